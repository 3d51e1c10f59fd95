"""A dataset of one's own with a ladder of three rungs, and embeddings of it to evaluate."""

from __future__ import annotations

import numpy as np
from click.testing import CliRunner
from PIL import Image

from benchmark import datasets
from benchmark.cli import cli
from splits.manifest import Ladder, Split, save

CARD = {"method": "mine", "paper": "https://example.org/paper", "code": "https://example.org/code",
        "backbone": "resnet50", "pretraining_data": "ImageNet-1k", "training_data": "birds", "extra_data": "none",
        "hardware": "one H200", "contact": "me@example.org", "licence": "CC BY 4.0"}


def make(folder):
    """A folder of 8 classes with 5 small images each, and a ladder of three rungs for it."""
    for c in range(8):
        (folder / "birds" / f"c{c}").mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (2, 2), (c, i, 0)).save(folder / "birds" / f"c{c}" / f"{i}.png")
    names = tuple(f"c{c}" for c in range(8))
    splits = (Split(1, "default", 0, names[:4], names[4:], (), 20, 20, 1.5, 0.5),
              Split(2, "swap", 3, names[4:], names[:4], (), 20, 20, 2.5, 1.5),
              Split(3, "removal", 4, names[:2], names[6:], (), 10, 10, 3.5, 2.5))
    files = datasets.load(f"folder:{folder / 'birds'}", folder).hash
    save(Ladder("birds", files, {}, {}, splits), folder / "work" / "splits" / "birds.json")
    return folder


def sent(train=False, seed=0):
    """Random embeddings in an order of their own, and the images they belong to."""
    random = np.random.default_rng(seed)
    ids = [f"c{c}/{i}.png" for c in range(0 if train else 4, 8) for i in range(5)]
    order = random.permutation(len(ids))
    return [ids[i] for i in order], random.normal(size=(len(ids), 6)).astype(np.float32)


def run(birds, file, *more):
    return CliRunner().invoke(cli, ["evaluate", "--embeddings", str(file), "--dataset", f"folder:{birds / 'birds'}",
                                    "--split", "1", "--work", str(birds / "work"), "--device", "cpu", *more],
                              catch_exceptions=True)


def recall_at_1(ids, x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    hits = []
    for i, name in enumerate(ids):
        nearest = max((j for j in range(len(ids)) if j != i), key=lambda j: x[i] @ x[j])
        hits.append(ids[nearest].split("/")[0] == name.split("/")[0])
    return np.mean(hits)
