"""Methods on bases, samplers and settings that they were not published with: right, or refused in a line."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import methods
from methods import MethodError
from methods.checks.example import build, glyphs, views
from methods.samplers import batches

OF_ANY_LENGTH = [name for name in methods.names() if methods.get(name).is_objective
                 and not methods.get(name).cls.normalised]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [*OF_ANY_LENGTH, "margin"])
def test_a_bank_holds_what_images_are_searched_by_also_after_a_step(name: str) -> None:
    images, labels = glyphs()
    method = build(methods.get(name))
    sampler = batches.create("gc", labels, 8)
    with torch.no_grad():
        sampler.start(method.embed(images))
        before = sampler.state_dict()["bank"].clone()
        sampler.remember(torch.arange(24), method.train().step(images, labels).embeddings)
    torch.testing.assert_close(sampler.state_dict()["bank"], before)


def test_the_base_of_a_method_has_the_settings_of_the_dataset_too() -> None:
    base = methods.create("s2sd", "conv4", classes=4, dim=8, dataset="cub", targets=(16,)).objective
    assert base.settings == dataclasses.replace(methods.get("r-margin").settings("cub"), beta_rate=1.0)
    assert base.settings.p == 0.4
    of_sop = methods.create("manifold-mixup", "conv4", classes=4, dim=8, dataset="sop").objective
    assert of_sop.rates() == {"loss.W": 200.0}
    assert methods.create("manifold-mixup", "conv4", classes=4, dim=8).objective.rates() == {"loss.W": 1.0}


def test_the_heads_of_diva_have_their_weights_in_a_bank_too() -> None:
    images, labels = glyphs()
    method = build(methods.get("diva"), weights=(0.5, 1.5, 1.0, 2.0))
    with torch.no_grad():
        parts = method.heads(method.features(images))  # type: ignore[operator]
        expected = torch.cat([w * part for w, part in zip((0.5, 1.5, 1.0, 2.0), parts.values())], 1)
        expected = expected / math.sqrt(0.5**2 + 1.5**2 + 1.0**2 + 2.0**2)
        torch.testing.assert_close(method.step(views(method, images), labels).embeddings, expected)
        torch.testing.assert_close(method.embed(images), expected)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (1.0,) * 5])
def test_diva_wants_a_weight_for_each_head(weights: tuple[float, ...]) -> None:
    with pytest.raises(MethodError, match=f"diva.weights has {len(weights)} numbers and diva 4 heads"):
        build(methods.get("diva"), weights=weights)


@pytest.mark.parametrize("projections", ["qo", "", "qq", "q,k"])
def test_lora_wants_projections_that_there_are(projections: str) -> None:
    with pytest.raises(MethodError, match=f"lora.projections = '{projections}'"):
        build(methods.get("lora"), projections=projections)


@pytest.mark.parametrize("base", ["triplet-xbm", "multisimilarity-xbm"])
def test_mixup_refuses_a_memory_in_which_an_image_would_meet_itself(base: str) -> None:
    with pytest.raises(MethodError, match="take a base without a memory"):
        build(methods.get(f"manifold-mixup:{base}"))


@pytest.mark.parametrize("base", ["normsoftmax", "cosface", "arcface"])
def test_anticollapse_spreads_the_centres_of_every_objective_with_one_for_each_class(base: str) -> None:
    images, labels = glyphs()
    method = build(methods.get(f"anti-collapse:{base}"), base_weight=0.0)
    few, those = images[4:16], labels[4:16]
    own = next(method.objective.parameters())
    rows = own.detach().double().numpy() if base == "arcface" else own.detach().double().numpy().T
    centres = rows[1:4] / np.linalg.norm(rows[1:4], axis=1, keepdims=True)
    rate = 0.5 * np.log(np.linalg.det(np.eye(3) + 3 / (8 * 0.5) * centres @ centres.T))
    loss = method.step(few, those).loss
    assert loss.item() == pytest.approx(math.exp(-rate), rel=1e-5)
    loss.backward()
    assert float(own.grad.abs().sum()) > 0  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["gc", "ddm", "frd"])
def test_batches_keep_their_size_where_classes_have_one_image(name: str) -> None:
    """On several devices each takes its share of a batch by its size."""
    labels = torch.tensor([0] * 3 + [5] * 7 + list(range(20, 46)))
    sampler = batches.create(name, labels, 30, distance=lambda x, y: float(np.square(x.mean(0) - y.mean(0)).sum()))
    sampler.start(F.normalize(torch.randn(36, 4, generator=torch.Generator().manual_seed(1)), dim=1))
    (ids,) = sampler.epoch(torch.Generator().manual_seed(0))
    assert len(ids) == 30
    if name == "gc":
        assert len(set(ids.tolist())) == 30
