"""Records made up for the tests of reports: plausible scores that fall along a ladder, with known exact values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reports import records
from reports.analysis.results import Results
from reports.html.rendering import Site

LADDERS = {
    "glyphs": [[1, 164.25], [2, 214.5], [3, 268.0], [4, 331.5], [5, 402.0]],
    "cars": [[1, 8.6], [2, 14.3], [3, 32.2], [4, 43.6], [5, 63.3], [6, 86.5], [7, 101.2], [8, 123.0]],
}
IMAGES = {"cars": (8054, 8131)}
DEFAULTS = {"glyphs": 1, "cars": 1, "glyphs-union": 1}
DOMAINS = {"latin": 700, "greek": 120, "cyrillic": 250, "armenian": 76, "georgian": 83, "arrows": 112,
           "operators": 256, "shapes": 224}
STRENGTH = {"frozen": 0.23, "random": 0.06, "margin": 0.66, "multisimilarity": 0.71, "arcface": 0.63,
            "proxyanchor": 0.70, "s2sd": 0.73, "diva": 0.69, "tripletloss": 0.52}


def identity(text: str) -> str:
    """A text as the hex digits of a run's identity; the order of texts is that of their identities."""
    return text.encode().hex().ljust(64, "0")


def make_record(dataset: str = "glyphs", split: int = 1, method: str = "margin", seed: int = 0, score: float = 0.7,
                domains: dict[str, float] | None = None, **changes: Any) -> dict[str, Any]:
    """A whole record, valid as it stands; `changes` replace its top-level keys."""
    floor = method in ("frozen", "random")
    ladder = LADDERS.get(dataset, [[1, 55.0]])
    scores = {"recall@1": score, "recall@2": score + 0.4 * (1 - score), "recall@4": score + 0.6 * (1 - score),
              "recall@8": score + 0.75 * (1 - score), "map@1000": 0.4 * score, "map@r": 0.35 * score,
              "r-precision": 0.5 * score}
    better = {metric: min(1.0, value + 0.004) for metric, value in scores.items()}
    key = f"{dataset}/{split}/{method}/{seed}"
    record: dict[str, Any] = {
        "schema": records.SCHEMA, "source": "run", "identity": hashlib.sha256(key.encode()).hexdigest(),
        "dataset": dataset, "dataset_hash": "d" * 64,
        "split": {"id": split,
                  "kind": "union" if domains else "default" if split == DEFAULTS.get(dataset, 1) else "swap",
                  "iteration": 4 * (split - 1), "frd": dict(map(tuple, ladder))[split],
                  "frd_class_means_released": dict(map(tuple, ladder))[split] / 2, "hash": f"{split:x}" * 64,
                  "train_classes": 273, "test_classes": 273,
                  **dict(zip(("train_images", "test_images"), IMAGES.get(dataset, (6552, 6552)))),
                  "ladder": ladder},
        "method": {"name": method, "family": "floor" if floor else "proxy" if "proxy" in method else "pair",
                   "papers": ["https://arxiv.org/abs/1706.07567"], "tags": ["floor"] if floor else ["oodml"],
                   "summary": f"{method}: pulls images of one class together and pushes others apart",
                   "cite": "@inproceedings{wu2017sampling,\n  title={Sampling matters},\n  year={2017}\n}",
                   "settings": {} if floor else {"margin": 0.2, "beta": 1.2},
                   "trains": "nothing" if floor else "network",
                   "trainable_parameters": 0 if floor else 117_568,
                   "total_parameters": 3_371_008 if floor else 117_568},
        "protocol": {"name": "demo", "epochs": 3, "batch": 112, "lr": 0.001},
        "backbone": {"name": "efficientnet_lite0" if floor else "conv4", "weights": "imagenet" if floor else None},
        "seed": seed, "scores": {"last": scores, "best-test": better}, "chosen_epochs": {"last": 3, "best-test": 2},
        "domains": {name: {"recall@1": value} for name, value in (domains or {}).items()},
        "structure": {side: {"pi_intra": 0.9 - 0.3 * score, "pi_inter": 1.1, "density": (0.9 - 0.3 * score) / 1.1,
                             "rho": 0.2 + 0.1 * abs(score - 0.6)} for side in ("train", "test")},
        "curve": [] if floor else [{"epoch": epoch, "loss": 2.4 / epoch, "recall@1": score * (0.9 if epoch == 1 else 1)}
                                   for epoch in (1, 2, 3)],
        "queries": {"count": 6552, "left_out": 0},
        "cost": {"seconds": 14.5 if not floor else 2.0, "train_seconds": 11.0, "images_per_second": 430.0,
                 "peak_memory_bytes": 300_000_000, "device": "cpu"},
        "provenance": {"version": "0.1.0", "commit": "5f1467d2c1aa", "dirty": False, "python": "3.11.4",
                       "torch": "2.6.0", "platform": "Linux", "host": "example",
                       "date": f"2026-11-14T10:{seed:02d}:{split:02d}Z",
                       "command": f"oodml run --methods {method} --dataset {dataset} --protocol demo"},
    }
    return record | changes


def write_queries(folder: Path, labels: np.ndarray, hits: np.ndarray, classes: list[str] | None = None) -> None:
    """A `queries.npz` as runs leave it: a hit at rank 1, or at rank 5."""
    named = {} if classes is None else {"classes": np.array(classes)}
    np.savez_compressed(folder / "queries.npz", first_hit=np.where(hits, 1, 5).astype(np.uint8),
                        counted=np.packbits(np.ones(len(labels), bool)), labels=labels.astype(np.int32), **named)


def _queries(folder: Path, score: float, rng: np.random.Generator, classes: int = 40, each: int = 20) -> None:
    """Outcomes whose mean is near the score, with classes that are easier and harder than others."""
    labels = np.repeat(np.arange(classes), each)
    ease = np.random.default_rng(7).normal(0, 0.15, classes)[labels]
    write_queries(folder, labels, rng.random(len(labels)) < np.clip(score + ease, 0, 1))


def write_sample(folder: Path, methods: dict[str, float] = STRENGTH, datasets: tuple[str, ...] = ("glyphs", "cars"),
                 seeds: int = 3, union: bool = True, queries: bool = False) -> Path:
    """A folder of records of all methods, datasets, rungs and seeds, laid out as `work/runs` is."""
    rng, draws = np.random.default_rng(0), np.random.default_rng(1)
    for method, strength in methods.items():
        steep = rng.uniform(0.6, 1.4)
        for seed in range(1 if method == "frozen" else seeds):
            for dataset in datasets:
                distances = dict(map(tuple, LADDERS[dataset]))
                low, high = min(distances.values()), max(distances.values())
                for split, frd in distances.items():
                    fall = 0.12 * steep * strength * ((frd - low) / (high - low)) ** 0.8
                    noise = 0 if method == "frozen" else rng.normal(0, 0.004)
                    score = float(np.clip(strength - fall + noise, 0, 1))
                    record = make_record(dataset, split, method, seed, score)
                    path = folder / dataset / str(split) / method / f"s{seed}-{record['identity'][:8]}"
                    records.write(path, record)
                    if queries:
                        _queries(path, score, draws)
            if union:
                parts = {name: float(np.clip(strength + 0.25 - size / 2000 + rng.normal(0, 0.02), 0, 1))
                         for name, size in DOMAINS.items()}
                record = make_record("glyphs-union", 1, method, seed, strength * 0.9, parts)
                record["split"]["parts"] = DOMAINS
                path = folder / "glyphs-union" / "1" / method / f"s{seed}-{record['identity'][:8]}"
                records.write(path, record)
                if queries:
                    _queries(path, strength * 0.9, draws)
    return folder


def some_pages(results: Results, *make: Callable[[Site], None],
               titles: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The files of these pages alone: a whole site takes seconds."""
    site = Site(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)), titles=titles)
    for page in make:
        page(site)
    site.finish()
    return site.files
