"""Methods that change the network or the step: the whole of each against its formula, written out another way."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import methods
from methods.backbones.examples import small_vit
from methods.checks.example import Small, build, glyphs

TESTED = {
    "adaptformer": "networks:test_adaptformer_stands_beside_the_mlp_alone",
    "anti-collapse": "modern:test_anticollapse_by_the_determinant_over_classes",
    "crt": "auxiliary:test_coded_residuals_by_a_loop_in_double",
    "diva": "diva:test_distance_adapted_contrast_by_a_loop",
    "frozen": "networks:test_floors_are_the_features_and_their_projection",
    "hier": "modern:test_hier_by_loops_where_ancestors_are_the_nearest",
    "l2-sp": "modern:test_l2sp_is_the_squared_way_from_the_start",
    "ldifs": "modern:test_ldifs_is_the_squared_way_of_the_directions_of_features",
    "linear-emb": "networks:test_a_linear_layer_on_frozen_features",
    "lora": "networks:test_lora_is_attention_with_other_weights",
    "lp-ft": "modern:test_lpft_leaves_the_backbone_alone_until_the_probe_is_over",
    "manifold-mixup": "memory:test_mixup_weighs_the_labels_of_both_images",
    "mlp3-emb": "tuning:test_three_layers_as_released",
    "puma": "tuning:test_conditional_prompt_by_a_loop_over_equations_6_to_9",
    "random": "networks:test_floors_are_the_features_and_their_projection",
    "s2sd": "auxiliary:test_s2sd_loss_by_its_parts",
    "tcm": "modern:test_tcm_is_that_of_pytorch_metric_learning_on_top_of_its_base",
    "uniform-prior": "networks:test_uniform_prior_is_the_sum_of_its_losses",
    "vpt": "networks:test_one_prompt_for_every_image",
}
"""The test that holds each network method, or the class of several, to an independent computation."""


def test_every_network_method_is_held_to_another_computation() -> None:
    for place in TESTED.values():
        file, _, name = place.partition(":")
        module = "tests.test_diva" if file == "diva" else f"tests.test_methods_{file}"
        assert hasattr(importlib.import_module(module), name), place
    known = {methods.get(name).cls for name in TESTED}
    for name in methods.names():
        entry = methods.get(name)
        if entry.cls.__module__.startswith("methods.") and not entry.is_objective:
            assert entry.cls in known, f"{name}: write its formula out in a test and name that in TESTED"


@pytest.mark.parametrize("name", ["frozen", "random"])
def test_floors_are_the_features_and_their_projection(name: str) -> None:
    images, labels = glyphs()
    method = build(methods.get(name))
    features = method.backbone(images).detach().numpy().astype(np.float64)
    if name == "random":
        matrix = torch.randn(features.shape[1], 8, generator=torch.Generator().manual_seed(0)).numpy()
        features = features @ (matrix / np.sqrt(8))
    expected = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(method.embed(images).numpy(), expected, atol=1e-6)
    assert float(method.step(images, labels).loss) == 0


def test_a_linear_layer_on_frozen_features() -> None:
    images, _ = glyphs()
    method = build(methods.get("linear-emb"))
    z = method.backbone(images).detach().numpy() @ method.embedding.weight.detach().numpy().T
    z = z + method.embedding.bias.detach().numpy()
    np.testing.assert_allclose(method.embed(images).detach().numpy(), z / np.linalg.norm(z, axis=1, keepdims=True),
                               atol=1e-6)


@pytest.mark.parametrize("learns", [True, False])
def test_uniform_prior_is_the_sum_of_its_losses(learns: bool) -> None:
    """L = L_base + w BCE(D(h), 1) and, in a step in which D learns, BCE(D(u), 1) + BCE(D(h), 0); D in numpy."""
    images, labels = glyphs()
    entry = methods.get("uniform-prior:multisimilarity")  # a base that draws nothing
    torch.manual_seed(0)
    method = entry.build(Small(), 6, 8, entry.settings(weight=0.7, every=2, hidden=5, chunk=10))
    method.steps.count = 0 if learns else 1

    def judged(x: np.ndarray) -> np.ndarray:
        """The probability that D takes each row for a sample of the prior."""
        layers = [module for module in method.discriminator.layers if isinstance(module, nn.Linear)]
        for place, layer in enumerate(layers):
            x = x @ layer.weight.detach().numpy().T.astype(np.float64) + layer.bias.detach().numpy()
            x = np.maximum(x, 0) if place < 2 else x
        return 1 / (1 + np.exp(-x[:, 0]))

    torch.manual_seed(3)
    loss = float(method.step(images, labels).loss.detach())
    features = method.backbone(images).detach()
    base = float(method.objective(F.normalize(method.embedding(features), dim=1), labels).detach())
    pieces = np.concatenate([features.numpy()[i, start:start + 10][None] for i in range(24) for start in (0, 10)])
    expected = base - 0.7 * np.log(judged(pieces)).mean()
    if learns:
        torch.manual_seed(3)
        uniform = torch.rand(48, 10).numpy() * 2 - 1
        expected -= np.log(judged(uniform)).mean() + np.log(1 - judged(pieces)).mean()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_lora_is_attention_with_other_weights() -> None:
    """W' = W + B A for query and key: the plain network with its weights so changed embeds alike."""
    images, _ = glyphs()
    torch.manual_seed(0)
    backbone = small_vit()
    plain = copy.deepcopy(backbone).eval()
    entry = methods.get("lora")
    method = entry.build(backbone, 6, 8, entry.settings(rank=3)).eval()
    with torch.no_grad():
        for tuned, block in zip(method.backbone.network.blocks, plain.network.blocks):
            for place in (0, 1):
                nn.init.normal_(tuned.attn.qkv.addition.up[place].weight)
                rows = slice(24 * place, 24 * (place + 1))
                block.attn.qkv.weight[rows] += (tuned.attn.qkv.addition.up[place].weight
                                                @ tuned.attn.qkv.addition.down[place].weight)
        torch.testing.assert_close(method.backbone(images), plain(images), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(plain(images), small_vit().eval()(images))


def test_adaptformer_stands_beside_the_mlp_alone() -> None:
    """z_l = MLP(LN(z')) + z' + s (ReLU(LN(z') W_down + b_down) W_up + b_up), after attention as it was."""
    torch.manual_seed(0)
    backbone = small_vit()
    before = copy.deepcopy(backbone.network.blocks[0]).eval()
    entry = methods.get("adaptformer")
    method = entry.build(backbone, 6, 8, entry.settings(bottleneck=5, scale=0.3)).eval()
    block = method.backbone.network.blocks[0]
    adapter = block.mlp.addition
    for parameter in adapter.parameters():
        nn.init.normal_(parameter)
    z = torch.randn(2, 5, 24)
    middle = z + before.attn(before.norm1(z))
    normed = before.norm2(middle)
    hidden = np.maximum(normed.detach().numpy() @ adapter.down.weight.detach().numpy().T
                        + adapter.down.bias.detach().numpy(), 0)
    added = 0.3 * (hidden @ adapter.up.weight.detach().numpy().T + adapter.up.bias.detach().numpy())
    expected = (before.mlp(normed) + middle).detach().numpy() + added
    np.testing.assert_allclose(block(z).detach().numpy(), expected, atol=1e-4)


def test_one_prompt_for_every_image() -> None:
    """z_0 = [e_cls, P, E]: the blocks by hand over that sequence, and the class token at their end."""
    images, _ = glyphs()
    torch.manual_seed(0)
    backbone = small_vit()
    vit = copy.deepcopy(backbone.network).eval()
    entry = methods.get("vpt")
    method = entry.build(backbone, 6, 8, entry.settings(length=3)).eval()
    (tokens,) = [p for name, p in method.backbone.named_parameters() if name.endswith("tokens")]
    assert tokens.shape == (3, 24)
    bound = (6 / (3 * 16**2 + 24))**0.5
    assert 0 < float(tokens.detach().abs().max()) <= bound
    patches = vit.patch_embed(images).flatten(1, 2) + vit.pos_embed[:, 1:]
    first = (vit.cls_token + vit.pos_embed[:, :1]).expand(len(images), -1, -1)
    sequence = torch.cat([first, tokens.expand(len(images), -1, -1), patches], 1)
    for block in vit.blocks:
        sequence = block(sequence)
    torch.testing.assert_close(method.backbone(images), vit.norm(sequence)[:, 0], rtol=1e-4, atol=1e-5)
