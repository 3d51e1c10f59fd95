"""The split builder: Fréchet distances and whole ladders, against matrix square roots and recomputing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import scipy.linalg

from benchmark import datasets
from benchmark.utils.processors import peak_memory
from benchmark.utils.workspace import Workspace
from splits.frechet import Moments, frd_class_means_released, frechet_distance
from splits.ladder import build_ladder
from tests.bench import Row, cpu_of_children, seconds

DIMENSIONS = 2048
CUB = (200, 59)
SOP_CLASSES = {"cpu": 9_000, "cuda": 22_634}
"""All classes take minutes on a CPU: `python -m tests.bench.bench_splits cpu 22634` measures them there."""


def features(classes: int, images: int, d: int = DIMENSIONS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with a decaying spectrum in float32, as pooled features have, and `images` of them in all."""
    rng = np.random.default_rng(seed)
    scale = (np.arange(1, d + 1) ** -0.6).astype(np.float32)
    labels = np.sort(np.arange(images) % classes)
    centres = rng.standard_normal((classes, d), dtype=np.float32)
    x = np.empty((images, d), dtype=np.float32)
    for start in range(0, images, 8192):
        part = slice(start, start + 8192)
        x[part] = (centres[labels[part]] + rng.standard_normal(x[part].shape, dtype=np.float32)) * scale + 0.4
    return x, labels


def by_sqrtm(mu1: np.ndarray, s1: np.ndarray, mu2: np.ndarray, s2: np.ndarray) -> float:
    """As pytorch-fid and the released ooDML script do it."""
    root = scipy.linalg.sqrtm(s1 @ s2)
    return float((mu1 - mu2) @ (mu1 - mu2) + np.trace(s1) + np.trace(s2) - 2 * np.trace(root.real))


def by_eigenvalues(mu1: np.ndarray, s1: np.ndarray, mu2: np.ndarray, s2: np.ndarray) -> float:
    """As torch-fidelity does it."""
    roots = np.sqrt(np.linalg.eigvals(s1 @ s2).astype(complex)).real
    return float((mu1 - mu2) @ (mu1 - mu2) + np.trace(s1) + np.trace(s2) - 2 * roots.sum())


def released_script(x: np.ndarray, y: np.ndarray, eps: float = 1e-8) -> float:
    """Means and covariances of the class means, eps on the diagonals, sqrtm."""
    s1, s2 = np.cov(x.T), np.cov(y.T)
    ridge = eps * np.eye(len(s1))
    root = scipy.linalg.sqrtm((s1 + ridge) @ (s2 + ridge))
    gap = x.mean(axis=0) - y.mean(axis=0)
    return float(gap @ gap + np.trace(s1) + np.trace(s2) - 2 * np.trace(root.real))


def once(work: Callable[[], object]) -> float:
    """CPU seconds of one call, for what is too slow to repeat."""
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(device: str) -> Iterator[Row]:
    yield from one_distance(device)
    yield from cub_ladder(device)
    yield from sop_ladder(device)
    yield from command(device)


def one_distance(device: str) -> Iterator[Row]:
    x, labels = features(*CUB[:1], 2 * 5_900)
    halves = x[:5_900], x[5_900:]
    if device != "cpu":
        import torch

        there = [torch.from_numpy(h).to(device) for h in halves]
        moments = [Moments.of(t) for t in there]
        for name, sides in (("covariances given", moments), ("from 5,900 images a side", there)):
            took = seconds(lambda sides=sides: frechet_distance(*sides), device=device)  # type: ignore[misc]
            yield Row(f"Fréchet distance d=2048, {name}", took, 0.15, "the aim of 0.15 s", 1)
        return
    moments = [Moments.of(h) for h in halves]
    given = [a for m in moments for a in (m.mean, m.covariance)]
    ours = seconds(lambda: frechet_distance(*moments), repeats=2)
    sqrtm = once(lambda: by_sqrtm(*given))
    eigenvalues = once(lambda: by_eigenvalues(*given))
    yield Row("Fréchet distance d=2048, covariances given", ours, sqrtm, "scipy sqrtm, as pytorch-fid", 6)
    yield Row("Fréchet distance d=2048, covariances given", ours, eigenvalues,
              "eigenvalues of S1 S2, as torch-fidelity", 2)
    covariances = once(lambda: [np.cov(h.T.astype(np.float64)) for h in halves])
    ours = seconds(lambda: frechet_distance(*halves), repeats=1)
    yield Row("Fréchet distance d=2048, from 5,900 images a side", ours, sqrtm + covariances, "np.cov and scipy sqrtm")
    means = np.array([x[labels == c].mean(axis=0, dtype=np.float64) for c in range(CUB[0])])
    ours = seconds(lambda: frd_class_means_released(means[:100], means[100:]))
    yield Row("the same over 100 class means a side", ours,
              once(lambda: released_script(means[:100], means[100:])), "the released script's way", 500)


def cub_ladder(device: str, iterations: int = 54) -> Iterator[Row]:
    """A distance over images and one over class means at every iteration."""
    classes, each = CUB
    x, labels = features(classes, classes * each)
    names = [f"{c:03d}" for c in range(classes)]

    def ladder(steps: int) -> None:
        build_ladder(x, labels, names[:100], names[100:], classes=names, swaps_per_iteration=2, iterations=steps,
                     removal=False, iid_draws=0, device=None if device == "cpu" else device)

    if device != "cpu":
        yield Row(f"CUB-size ladder, {iterations} iterations", seconds(lambda: ladder(iterations), 1, device), 15,
                  "the aim of 15 s", 1)
        return
    # One iteration costs what the next does: a few are measured and carried on to all.
    few = 3
    one, more = once(lambda: ladder(0)), once(lambda: ladder(few))
    ours = one + (more - one) / few * iterations
    halves = [x[labels < 100].astype(np.float64), x[labels >= 100].astype(np.float64)]
    again = once(lambda: by_sqrtm(*(a for h in halves for a in (h.mean(axis=0), np.cov(h.T)))))
    yield Row(f"CUB-size ladder, {iterations} iterations (from {few})", ours, again * (iterations + 1),
              "means, np.cov and sqrtm each time", 6)


def command(device: str) -> Iterator[Row]:
    """`oodml splits build` as a user has it, nothing cached, from the images on disk to the manifest.

    On a GPU the wall seconds for the photographs in OODML_DATA; the images of glyphs-mini, few and drawn, cost little
    more than the imports.
    """
    clock = cpu_of_children if device == "cpu" else time.perf_counter
    data = Workspace.at().data
    photographs = {"cub": 20, "cars": 30} if device != "cpu" else {}
    for name, aim in {**{name: aim for name, aim in photographs.items() if datasets.present(name, data)},
                      "glyphs-mini": None}.items():
        he = Path(os.environ.get("OODML_WEIGHTS", "")) / "resnet50_v1.pth"
        backbone = ["--backbone", "resnet50_v1"] if aim and he.is_file() else []
        with tempfile.TemporaryDirectory() as work:
            start = clock()
            subprocess.run([sys.executable, "-m", "oodml", "splits", "build", "--dataset", name, "--device", device,
                            "--work", work, "--data", str(data), *backbone], capture_output=True, check=True)
        yield Row(f"oodml splits build --dataset {name}", clock() - start, aim, f"the aim of {aim} s" if aim else "",
                  1 if aim else None)


def sop_ladder(device: str) -> Iterator[Row]:
    """In a process of its own, so that its peak memory is its own."""
    classes = SOP_CLASSES["cpu" if device == "cpu" else "cuda"]
    command = [sys.executable, "-m", "tests.bench.bench_splits", device, str(classes)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    images, iterations, took, peak = int(found[0]), int(found[1]), float(found[2]), float(found[3])
    size = f"{images:,} x {DIMENSIONS}, {classes:,} classes"
    yield Row(f"SOP-like ladder, {size}", took, against=f"at {iterations} splits, two distances each")
    yield Row("  its peak memory", peak, against="aim: under 4 GB", unit="GB")
    if len(found) > 4:
        yield Row("  its peak GPU memory", float(found[4]), unit="GB")


def main(device: str, classes: int) -> None:
    """One ladder of SOP's shape: images, iterations, seconds, peak memory in GB, peak GPU memory in GB if any."""
    images = round(classes * 120_053 / 22_634)
    x, labels = features(classes, images)
    names = [f"{c:05d}" for c in range(classes)]
    half = classes // 2
    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    ladder = build_ladder(x, labels, names[:half], names[half:], classes=names,
                          swaps_per_iteration=max(1, classes // 22), iterations=20 if classes > 20_000 else 4,
                          iid_draws=0, device=None if device == "cpu" else device)
    took = clock() - start
    print(images, len(ladder.progression), took, peak_memory() / 1e9)
    if device != "cpu":
        import torch

        print(torch.cuda.max_memory_allocated() / 1e9)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
