"""`python -m tests.bench.compare_precision [--device cuda]`: does Recall@1 suffer from bf16 and the compiler?

Trains on the glyphs with the same seeds both ways, float32 without a compiler and bfloat16 with it, and prints the
Recall@1 of each run, the means, and the difference with its standard error over seeds.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmark import datasets, ladders, worker
from benchmark.plan import Overrides, plan
from reports import records
from tests import tiny_runs

WAYS = {"fp32, eager": ("precision=fp32", "compile=no"), "bf16, compiled": ("precision=bf16", "compile=yes")}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare_precision", description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dataset", default="glyphs")
    parser.add_argument("--methods", default="margin,multisimilarity,proxyanchor")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_runs.workspace(Path(folder), given.dataset)
        index = datasets.load(given.dataset, made.data)
        ladder = ladders.load(made, given.dataset, index)
        context = replace(tiny_runs.context(made), dataset=given.dataset, device=given.device)
        for method in given.methods.split(","):
            found: dict[str, list[float]] = {}
            for way, changes in WAYS.items():
                overrides = Overrides.parse(["epochs=10", "steps_per_epoch=0", "evaluate_every=10", *changes,
                                             *given.changes])
                specs = plan(ladder, index.hash, [method], protocol="demo", seeds=range(given.seeds),
                             splits=[ladder.default.id], overrides=overrides)
                found[way] = [records.read(worker.run(spec, context))["scores"]["last"]["recall@1"] for spec in specs]
                print(f"{method:18} {way:16} " + " ".join(f"{value:.4f}" for value in found[way])
                      + f"   mean {np.mean(found[way]):.4f}", flush=True)
            first, second = (np.array(values) for values in found.values())
            error = np.std(second - first, ddof=1) / len(first) ** 0.5 if len(first) > 1 else float("nan")
            print(f"{method:18} difference       {np.mean(second - first):+.4f} ± {error:.4f}", flush=True)


if __name__ == "__main__":
    main()
