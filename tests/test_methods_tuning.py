"""Parameter-efficient methods: what is frozen stays, what the papers' equations and parameter counts say."""

from __future__ import annotations

import csv
import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import methods
from benchmark.config import plan
from benchmark.config import protocol as protocols
from methods import MethodError, Objective
from methods.backbones import create, skeleton
from methods.backbones.examples import small_vit
from methods.checks.example import build, glyphs, optimise
from methods.layers.adapters import Adapter, LowRank
from methods.layers.prompts import Prompted, PromptPool

TUNED = methods.names("parameter-efficient")
VIT = [name for name in TUNED if name not in ("linear-emb", "mlp3-emb")]
PUBLISHED = Path(__file__).parent.parent / "reports" / "data" / "published" / "uml_results.csv"


def published_millions() -> dict[tuple[str, str], float]:
    """Trainable parameters in millions by (setting, method), as the paper prints them."""
    with PUBLISHED.open(encoding="utf-8") as stream:
        return {(row["setting"], row["method"]): float(row["train_params_m"])
                for row in csv.DictReader(stream) if row["train_params_m"]}


def trainable(name: str, backbone: str, dim: int = 128, **settings: object) -> int:
    """Trainable parameters of the network, the objective's left out as in the paper."""
    entry = methods.get(name)
    skeleton.cache_clear()  # a method changes the backbone it is given
    with torch.device("meta"):
        method = entry.build(skeleton(backbone), 2, dim, entry.settings(**settings))
    skeleton.cache_clear()
    return sum(p.numel() for n, p in method.named_parameters() if p.requires_grad and not n.startswith("objective."))


@pytest.mark.parametrize(("setting", "name", "backbone", "settings"), [
    ("universal-peft", "lora", "vit_small", {}),
    ("universal-peft", "adaptformer", "vit_small", {}), ("universal-peft", "puma", "vit_small", {}),
    ("lora-variants", "stochastic-lora", "vit_small", {}), ("lora-variants", "puma+lora", "vit_small", {}),
    ("lora-variants", "puma+stochastic-lora", "vit_small", {}), ("vit-b", "puma", "vit_base", {}),
    ("vit-l", "puma", "vit_large", {}), ("vit-l-12", "puma", "vit_large", {"layers": 12})])
def test_parameter_counts_are_those_of_the_paper(setting: str, name: str, backbone: str, settings: dict) -> None:
    printed = published_millions()[setting, name]
    assert round(trainable(name, backbone, **settings) / 1e6, 1) == printed


def test_small_parameter_counts_are_those_of_table_3() -> None:
    """Table 2 rounds the linear layer and VPT up to 0.1 M, three layers to 5.3 M; table 3 prints two decimals."""
    assert published_millions()["universal-peft", "linear-emb"] == published_millions()["universal-peft", "vpt"] == 0.1
    assert trainable("linear-emb", "vit_small") == 384 * 128 + 128
    three = trainable("mlp3-emb", "vit_small")
    assert three == 384 * 2048 + 2048 + 2048 * 2048 + 2048 + 2048 * 128 + 128
    assert math.ceil(three / 1e5) / 10 == published_millions()["universal-peft", "mlp3-emb"]
    counts = {name: round(trainable(name, "vit_small") / 1e6, 2) for name in
              ("vpt", "puma-prompt", "puma-static-adapter", "puma-adapter", "puma-single-static", "puma")}
    assert counts == {"vpt": 0.05, "puma-prompt": 0.13, "puma-static-adapter": 2.41, "puma-adapter": 2.41,
                      "puma-single-static": 2.41, "puma": 2.49}


def test_the_whole_network_has_the_paper_s_size() -> None:
    """24.2 M in all for PUMA on ViT-S/16, 90.8 M on ViT-B/16 (tables 2 and 4)."""
    for backbone, total in (("vit_small", 24.2), ("vit_base", 90.8)):
        frozen = sum(p.numel() for p in skeleton(backbone).parameters())
        assert round((frozen + trainable("puma", backbone)) / 1e6, 1) == pytest.approx(total, abs=0.051)


@pytest.mark.parametrize("name", TUNED)
def test_what_is_frozen_is_bit_equal_after_training(name: str) -> None:
    torch.manual_seed(4)
    original = {key: value.clone() for key, value in small_vit().state_dict().items()}
    torch.manual_seed(4)
    entry = methods.get(name)
    method = entry.build(small_vit(), 6, 8)
    optimise(method, *glyphs(), steps=3)
    after = method.state_dict()
    for key, value in original.items():
        kept = [k for k in after if k.startswith("backbone.") and plain(k) == key]
        assert kept, key
        assert torch.equal(after[kept[0]], value), key


def plain(key: str) -> str:
    """A key of an extended backbone as in the plain one."""
    return key.removeprefix("backbone.").replace("network.vit.", "network.").replace(".frozen.", ".")


@pytest.mark.parametrize("name", ["lora", "stochastic-lora", "adaptformer", "puma-adapter", "puma-static-adapter"])
def test_adapters_and_low_rank_updates_change_nothing_at_first(name: str) -> None:
    images, _ = glyphs()
    torch.manual_seed(1)
    before = small_vit().eval()(images)
    torch.manual_seed(1)
    method = methods.get(name).build(small_vit(), 6, 8)
    torch.testing.assert_close(method.train().features(images), before, rtol=0, atol=1e-6)


def test_statistics_of_a_frozen_convolutional_network_stay() -> None:
    method = methods.get("linear-emb").build(create("conv4"), 6, 8)
    before = method.backbone.network.layers[1].running_mean.clone()
    optimise(method, *glyphs(), steps=2)
    assert torch.equal(method.backbone.network.layers[1].running_mean, before)


@pytest.mark.parametrize("addition", [Adapter(4, 3, keep=0.5), LowRank(4, 3, "qk", keep=0.5)])
def test_stochastic_depth_is_for_each_sample_and_off_in_evaluation(addition: nn.Module) -> None:
    torch.manual_seed(0)
    for parameter in addition.parameters():
        nn.init.uniform_(parameter, 0.1, 1.0)
    x = torch.rand(200, 5, 4) + 0.1
    full = addition.eval()(x)
    assert torch.equal(addition(x), full)
    got = addition.train()(x)
    dropped = (got == 0).all(dim=(1, 2)) if full.ndim == 3 else None
    assert dropped is not None
    assert 60 < int(dropped.sum()) < 140
    # a sample is dropped as a whole, or divided by the probability to be kept
    torch.testing.assert_close(got[~dropped], 2 * full[~dropped])


def test_adapter_by_a_loop_over_equation_4() -> None:
    torch.manual_seed(0)
    adapter = Adapter(4, 3, scale=0.1).double()
    nn.init.normal_(adapter.up.weight)
    x = torch.randn(2, 4, dtype=torch.double)
    down, up = adapter.down.weight.detach().numpy(), adapter.up.weight.detach().numpy()
    expected = np.zeros((2, 4))
    for i in range(2):
        hidden = [max(0.0, sum(x[i, d].item() * down[r, d] for d in range(4))) for r in range(3)]
        for d in range(4):
            expected[i, d] = 0.1 * sum(hidden[r] * up[d, r] for r in range(3))
    np.testing.assert_allclose(adapter(x).detach().numpy(), expected)


def test_both_adapters_stand_beside_their_block() -> None:
    """Equation 5 in full for one block: attention, MLP and both adapters on the layer-normed input."""
    torch.manual_seed(0)
    method = methods.get("puma-static-adapter").build(small_vit(), 6, 8).eval()
    block = method.backbone.network.blocks[0]
    for adapter in (block.attn.addition, block.mlp.addition):
        nn.init.normal_(adapter.up.weight)
    z = torch.randn(3, 5, 24)
    normed = block.norm1(z)
    middle = block.attn.frozen(normed) + z + 0.1 * (normed @ block.attn.addition.down.weight.T).relu() \
        @ block.attn.addition.up.weight.T
    normed = block.norm2(middle)
    expected = block.mlp.frozen(normed) + middle + 0.1 * (normed @ block.mlp.addition.down.weight.T).relu() \
        @ block.mlp.addition.up.weight.T
    torch.testing.assert_close(block(z), expected)


def test_conditional_prompt_by_a_loop_over_equations_6_to_9() -> None:
    torch.manual_seed(0)
    pool = PromptPool(3, 2, 4).double()
    nn.init.normal_(pool.prompts)
    patches = torch.randn(2, 5, 4, dtype=torch.double)
    keys, attention, prompts = (p.detach().numpy() for p in (pool.keys, pool.attention, pool.prompts))
    expected = np.zeros((2, 2, 4))
    for i, e in enumerate(patches.numpy()):
        q = [sum(e[n][d] for n in range(5)) / 5 + max(e[n][d] for n in range(5)) for d in range(4)]
        for m in range(3):
            attended = [q[d] * attention[m][d] for d in range(4)]
            alpha = sum(attended[d] * keys[m][d] for d in range(4)) / (
                sum(a * a for a in attended)**0.5 * sum(k * k for k in keys[m])**0.5)
            for token in range(2):
                for d in range(4):
                    expected[i, token, d] += alpha * prompts[m][token][d]
    np.testing.assert_allclose(pool(patches).detach().numpy(), expected)


def test_prompts_stand_between_class_token_and_patches() -> None:
    """Equation 10: what the first block sees, and with a network of no blocks what comes out."""
    torch.manual_seed(0)
    vit = small_vit().network.eval()
    pool = PromptPool(3, 2, 24)
    seen = []
    vit.blocks[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.randn(2, 3, 32, 32)
    out = Prompted(vit, pool).forward_features(images)
    patches = vit.patch_embed(images).flatten(1, 2)
    (tokens,) = seen
    assert tokens.shape == (2, 1 + 2 + 4, 24)
    torch.testing.assert_close(tokens[:, :1], (vit.cls_token + vit.pos_embed[:, :1]).expand(2, -1, -1))
    torch.testing.assert_close(tokens[:, 1:3], pool(patches))
    torch.testing.assert_close(tokens[:, 3:], patches + vit.pos_embed[:, 1:])
    assert out.shape == (2, 1 + 4, 24)


def test_released_variants_of_puma_differ_as_said() -> None:
    images, labels = glyphs()
    entry = methods.get("puma")

    def loss(**settings: object) -> float:
        torch.manual_seed(0)
        method = entry.build(small_vit(), 6, 8, entry.settings(**settings)).eval()
        return float(method.step(images, labels).loss.detach())

    plain_loss = loss()
    assert loss(orthogonality=0.5) > plain_loss
    assert loss(softmax_released=True) != plain_loss
    assert loss(class_position_released=True) != plain_loss


def test_three_layers_as_released() -> None:
    """Linear, GELU, linear, GELU, linear, written out; the exact GELU, x Phi(x), and no norm between."""
    method = build(methods.get("mlp3-emb"), hidden=3).eval()
    x = torch.linspace(-1, 1, method.backbone.dim)
    states = x.tolist()
    layers = [module for module in method.embedding.modules() if isinstance(module, nn.Linear)]
    for place, layer in enumerate(layers):
        states = [sum(w * s for w, s in zip(row, states)) + b
                  for row, b in zip(layer.weight.tolist(), layer.bias.tolist())]
        if place < 2:
            states = [s * (1 + math.erf(s / 2**0.5)) / 2 for s in states]
    length = sum(s * s for s in states)**0.5
    assert method.project(x[None])[0].tolist() == pytest.approx([s / length for s in states], rel=1e-4, abs=1e-6)


def test_low_rank_update_touches_query_and_key_alone() -> None:
    torch.manual_seed(0)
    update = LowRank(4, 2, "qk")
    for layer in update.up:
        nn.init.normal_(layer.weight)
    x = torch.randn(1, 3, 4)
    q, k, v = update(x).chunk(3, dim=-1)
    torch.testing.assert_close(q, x @ (update.up[0].weight @ update.down[0].weight).T)
    torch.testing.assert_close(k, x @ (update.up[1].weight @ update.down[1].weight).T)
    assert not v.any()


def test_rates_are_multiplied_as_released() -> None:
    method = build(methods.get("puma"))
    groups = {group["name"]: group for group in method.groups(1e-4, 1e-4)}
    assert groups["head"]["lr"] == pytest.approx(1e-3)


@pytest.mark.parametrize("dataset", ["uml", "uml-4", "cub"])
def test_the_universal_study_has_its_settings_on_every_dataset(dataset: str) -> None:
    """Proxies at 1e4 times the rate; the scales and temperatures of its released code."""
    expected = {"proxyanchor": ("proxy_rate", 1e4), "softtriple": ("proxy_rate", 1e4),
                "curricularface": ("proxy_rate", 1e4), "cosface": ("proxy_rate", 1e4), "arcface": ("scale", 64.0),
                "multisimilarity": ("beta", 50.0),
                "hyp": ("temperature", 0.1)}
    for name, (key, value) in expected.items():
        assert plan._settings(methods.get(name), dataset, "uml", plan.Overrides())[key] == value, name
        assert plan._settings(methods.get(name), dataset, "oodml", plan.Overrides())[key] != value, name


def test_a_copy_of_a_protocol_is_that_protocol_but_for_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "mine.toml"
    copy.write_bytes(protocols.path_of("uml").read_bytes())
    for name in ("arcface", "puma", "crt", "hyp", "triplet"):
        ours, theirs = (plan.load_protocol(at, "cub", name, plan.Overrides()) for at in (str(copy), "uml"))
        assert dataclasses.replace(ours, name="uml") == theirs
        assert (plan._settings(methods.get(name), "cub", str(copy), plan.Overrides())
                == plan._settings(methods.get(name), "cub", "uml", plan.Overrides())), name


@pytest.mark.parametrize("name", ["multisimilarity", "crt", "s2sd", "uniform-prior", "manifold-mixup-triplet",
                                  "lora:triplet", "linear-emb:multisimilarity", "r-margin", "hyp"])
def test_a_pair_loss_has_pairs_in_its_batches_whatever_stands_around_it(name: str) -> None:
    assert plan.load_protocol("uml", "sop", name, plan.Overrides()).batches == "spc-4"
    assert plan.load_protocol("uml", "sop", "lora", plan.Overrides()).batches == "random"


@pytest.mark.parametrize("name", VIT)
def test_a_backbone_that_is_no_vision_transformer_is_refused_in_a_line(name: str) -> None:
    entry = methods.get(name)
    assert "resnet18 is not" in entry.misfit("resnet18")
    assert entry.misfit("vit_small") == entry.misfit("deit_small") == ""
    with pytest.raises(MethodError, match=r"method .*: it adapts the blocks of a plain vision transformer"):
        entry.build(create("conv4"), 2, 8)


def test_probes_stand_on_any_backbone() -> None:
    assert methods.get("linear-emb").misfit("resnet18") == methods.get("mlp3-emb").misfit("conv4") == ""


def test_any_objective_can_be_the_base() -> None:
    images, labels = glyphs()
    for base in ("proxyanchor", "triplet", "hyp", "multisimilarity-xbm"):
        method = build(methods.get(f"puma:{base}"))
        assert torch.isfinite(method.step(images, labels).loss)


# an objective sees embeddings alone and has no part in the traced network: one stands for all; these are parts of puma
# and of puma+stochastic-lora
TRACED = ["margin", *(name for name in methods.names() if not issubclass(methods.get(name).cls, Objective)
                      and methods.get(name).trains != "nothing" and name not in {
                          "puma-adapter", "puma-static-adapter", "puma-single-static", "puma+lora", "stochastic-lora"})]


@pytest.mark.parametrize("name", TRACED)
def test_the_backbone_is_one_graph_for_the_compiler(name: str) -> None:
    """Traced without a break, by the back end that runs what it traced, or the method says that it cannot be."""
    images, labels = glyphs()
    method = build(methods.get(name)).eval()
    if not method.compiles:
        assert name.startswith(("manifold-mixup", "lp-ft")), "it changes the network's course from outside"
        return
    before = method.embed(images)
    torch._dynamo.reset()
    method.backbone.compile(backend="eager", fullgraph=True)
    torch.testing.assert_close(method.embed(images), before)
    views = torch.stack([images] * method.views) if method.views > 1 else images
    method.train().step(views, labels).loss.backward()
