"""Frozen features: right, kept, resumed, and refused where they make no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchvision import transforms as T

from benchmark import datasets, ladders
from benchmark.data import features
from benchmark.data.store import ImageStore, open_store
from benchmark.data.transform import IMAGENET_MEAN, IMAGENET_STD, Transform
from benchmark.datasets.index import DatasetIndex
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from tests.pictures import Drawing, drawn

COUNT = 50
TRANSFORM = Transform(size=32, resize=36)


class Backbone(nn.Module):
    """A convolution, batch normalisation and pooling; counts its images and can be made to fail."""

    def __init__(self, fail_after: int = 10**9) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(3, 6, 5, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                  nn.Flatten())
        self.seen, self.fail_after = 0, fail_after

    def forward(self, batch: Tensor) -> Tensor:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.seen += len(batch)
        if self.seen > self.fail_after:
            raise KeyboardInterrupt
        return self.body(batch)


@pytest.fixture(scope="module")
def index() -> DatasetIndex:
    return drawn(COUNT, Drawing(height=40, width=57))


@pytest.fixture(scope="module")
def store(index: DatasetIndex, tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return open_store(index, tmp_path_factory.mktemp("cache"), progress=False)


@pytest.fixture
def extract(index: DatasetIndex, store: ImageStore, tmp_path: Path) -> Any:
    def call(backbone: nn.Module, **changes: Any) -> np.ndarray:
        arguments = {"name": "toy", "weights_hash": "w", "transform": TRANSFORM, "folder": tmp_path, "batch": 8,
                     "progress": False, **changes}
        return features.extract(index, store, backbone, **arguments)

    return call


def test_equal_to_one_image_at_a_time(extract: Any, index: DatasetIndex) -> None:
    backbone = Backbone()
    extracted = extract(backbone)
    assert isinstance(extracted, np.memmap)
    assert extracted.shape == (COUNT, 6)
    assert extracted.dtype == np.float32
    pipeline = T.Compose([T.Resize(36), T.CenterCrop(32), T.ToTensor(), T.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    backbone.eval()
    with torch.no_grad():
        expected = torch.cat([backbone(pipeline(index.open(i))[None]) for i in range(COUNT)])
    np.testing.assert_allclose(extracted, expected.numpy(), atol=1e-3)


def test_kept_and_mode_put_back(extract: Any) -> None:
    backbone = Backbone().train()
    backbone.body[1].eval()
    first = extract(backbone)
    assert backbone.training
    assert not backbone.body[1].training
    assert backbone.seen == COUNT
    np.testing.assert_array_equal(extract(backbone), first)
    assert backbone.seen == COUNT


@pytest.mark.parametrize("change", [{"name": "other"}, {"weights_hash": "v"}, {"transform": TRANSFORM.replace(size=30)},
                                    {"transform": TRANSFORM.replace(mean=(0, 0, 0))}])
def test_made_again_when_something_differs(extract: Any, change: dict) -> None:
    backbone = Backbone()
    extract(backbone)
    extract(backbone, **change)
    assert backbone.seen == 2 * COUNT
    extract(backbone, transform=TRANSFORM.replace(flip=0.1))
    assert backbone.seen == 2 * COUNT


def test_goes_on_where_it_stopped(extract: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "PIECE", 8)
    with pytest.raises(KeyboardInterrupt):
        extract(Backbone(fail_after=30))
    assert not list(tmp_path.glob("*/features.npy"))
    backbone = Backbone()
    resumed = extract(backbone)
    assert backbone.seen == COUNT - 24
    np.testing.assert_array_equal(resumed, extract(Backbone(), folder=tmp_path / "whole"))
    facts = json.loads(next(tmp_path.glob("features-*/features.json")).read_text())
    assert (facts["backbone"], facts["weights"], facts["precision"]) == ("toy", "w", "float32")
    assert sorted(p.name for p in next(tmp_path.glob("features-*")).iterdir() if p.name != "lock") == [
        "features.json", "features.npy"]


def test_refused(extract: Any, store: ImageStore, tmp_path: Path) -> None:
    class Broken(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return torch.full((len(batch), 6), torch.nan)

    class Maps(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            return batch

    with pytest.raises(UserError, match=r"not finite for image 0\.png"):
        extract(Broken())
    with pytest.raises(UserError, match="pooled"):
        extract(Maps(), name="maps")
    with pytest.raises(UserError, match="datasets prepare"):
        features.extract(drawn(3), store, Backbone(), name="toy", weights_hash="w", transform=TRANSFORM,
                         folder=tmp_path)
    assert not list(tmp_path.glob("*/features.npy"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_cuda(extract: Any, tmp_path: Path) -> None:
    expected = extract(Backbone(), folder=tmp_path / "cpu")
    extracted = extract(Backbone(), folder=tmp_path / "cuda", device="cuda")
    np.testing.assert_allclose(extracted, expected, atol=0.03)
    assert np.linalg.norm(extracted - expected) / np.linalg.norm(expected) < 0.01


@pytest.mark.parametrize(("typed", "used"), [(None, "cuda"), ("cpu", "cpu"), ("cuda:1", "cuda:1")])
def test_distances_are_computed_where_features_are(typed: str | None, used: str,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """`oodml splits build` uses the GPU where there is one, for the ladder too."""
    asked: list[str | None] = []

    def build_ladder(*given: Any, device: str | None, **named: Any) -> Any:
        asked.append(device)
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("benchmark.ladders.building.build_ladder", build_ladder)
    monkeypatch.setattr("benchmark.ladders.features.frozen_features",
                        lambda name, *given: (datasets.load(name, None), np.zeros(1), {}))
    with pytest.raises(KeyboardInterrupt):
        ladders.build("glyphs-mini", Workspace.at(Path("nowhere")), device=typed)
    assert asked == [used]
