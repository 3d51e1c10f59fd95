"""Measures of retrieval and structure against pytorch-metric-learning's AccuracyCalculator on the same neighbours.

The large sets are searched by a part of their queries on the CPU and the time is scaled up: what is done once for a
gallery is scaled with it, so that the ratio is a little below that of all queries.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.data.task import Side
from benchmark.metrics.clustering import f1, nmi_f1
from benchmark.metrics.retrieval import retrieval
from benchmark.metrics.structure import structure
from benchmark.runs.scoring import score
from tests.bench import Row, seconds

PML = "pytorch-metric-learning"
PEAK = """
import torch
from tests.bench.bench_measures import {work}, memory
x, y = torch.randn({n}, {d}), torch.arange({n}) * {classes} // {n}
{work}(x[:100], y[:100], x[:2000], y[:2000])
before = memory("VmRSS")
{work}(x[:{part}], y[:{part}], x, y)
print((memory("VmHWM") - before) / 2**20)
"""


def data(n: int, classes: int, d: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Noisy clouds around class centres."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) * classes // n
    x = torch.randn(classes, d, generator=generator)[y] + 1.5 * torch.randn(n, d, generator=generator)
    return normalize(x).to(device), y.to(device)


def memory(field: str) -> int:
    """Memory of this process in KiB: VmRSS what it holds, VmHWM the most it held."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))


def peak(work: str, n: int, classes: int, d: int, part: int) -> float:
    """GiB that a search by the first queries takes beyond the embeddings, in a process of its own.

    The embeddings are made without any other table, whose memory the search could use again.
    """
    code = PEAK.format(work=work, n=n, classes=classes, d=d, part=part)
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def ours(queries: Tensor, labels: Tensor, gallery: Tensor, gallery_labels: Tensor) -> object:
    if len(queries) == len(gallery):
        return retrieval(queries, labels)
    return retrieval(queries, labels, gallery=gallery, gallery_labels=gallery_labels)


def theirs(queries: Tensor, labels: Tensor, gallery: Tensor, gallery_labels: Tensor) -> object:
    """Recall@1, mAP@1000, MAP@R and R-precision from the 1000 nearest, as a user would ask for them."""
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculator = AccuracyCalculator(include=("precision_at_1", "mean_average_precision", "mean_average_precision_at_r",
                                             "r_precision"), k=1000, device=queries.device)
    own = len(queries) == len(gallery)
    return calculator.get_accuracy(queries, labels, gallery, gallery_labels, ref_includes_query=own)


def pairwise_f1(classes: np.ndarray, clusters: np.ndarray) -> float:
    """By pairs of images, as most released code counts it."""
    same_class, same_cluster = classes[:, None] == classes, clusters[:, None] == clusters
    both = np.triu(same_class & same_cluster, 1).sum()
    return 2 * both / (np.triu(same_class, 1).sum() + np.triu(same_cluster, 1).sum())


def measure(device: str) -> Iterator[Row]:
    if device != "cpu":
        yield from _on_gpu(device)
        return
    for name, n, classes, d, part, target, repeats in (
            ("CUB test, 5,924 x 512", 5924, 100, 512, 5924, 1.5, 2),
            ("SOP test, 60,502 x 512", 60502, 11316, 512, 1500, 1.1, 1),
            ("SOP test, 60,502 x 128", 60502, 11316, 128, 3000, 2.0, 1),
            ("UML test, 148,595 x 128", 148595, 15937, 128, 600, 2.0, 1)):
        x, y = data(n, classes, d)
        chosen = torch.randperm(n, generator=torch.Generator().manual_seed(1))[:part] if part < n else slice(None)
        arguments = (x[chosen], y[chosen], x, y)
        scale = n / part
        yield Row(f"retrieval measures, {name}" + (f" (1 of {scale:.0f} queries)" if part < n else ""),
                  scale * seconds(partial(ours, *arguments), repeats),
                  scale * seconds(partial(theirs, *arguments), repeats), PML, target)
    x, y = data(5924, 100, 512)
    yield Row("structure (pi, density, rho, class spectra), 5,924 x 512", seconds(lambda: structure(x, y), 2))
    yield Row("k-means, NMI and F1, 5,924 x 512 into 100", seconds(lambda: nmi_f1(x, y, 0), 2))
    found = np.random.default_rng(0).integers(0, 100, 5924)
    yield Row("pairwise F1, 5,924 images", seconds(lambda: f1(y.numpy(), found)),
              seconds(lambda: pairwise_f1(y.numpy(), found), 1), "all pairs in numpy", 100)
    peaks = [peak(work, 20000, 4000, 128, 20000) for work in ("ours", "theirs")]
    yield Row("peak memory over the embeddings, 20,000 x 128, as 1/GiB", 1 / peaks[0], 1 / peaks[1],
              f"{PML}: {peaks[1]:.2f} GiB, ours {peaks[0]:.2f} GiB", 5, unit="1/GiB")
    # one table of similarities serves all chunks of queries, so that more of them need hardly more memory
    held = peak("ours", 60502, 11316, 512, 3000)
    yield Row("peak memory over the embeddings, 60,502 x 512 (1 of 20 queries), as 1/GiB", 1 / held, 1 / 7.06,
              f"{PML}: 7.06 GiB for all queries, measured apart, ours {held:.2f} GiB", 5, unit="1/GiB")


def _on_gpu(device: str) -> Iterator[Row]:
    """Against the stated limits: 1 s for all measures of SOP without k-means, 2 s for the union with its members."""
    x, y = data(60502, 11316, 512, device)
    yield Row("all measures, 60,502 x 512", seconds(lambda: (retrieval(x, y), structure(x, y)), device=device), 1.0,
              "limit of 1 s", 1)
    yield Row("  of these retrieval", seconds(lambda: retrieval(x, y), device=device))
    yield Row("k-means, NMI and F1, 60,502 x 512 into 11,316", seconds(lambda: nmi_f1(x, y, 0), device=device))
    small = data(5924, 100, 512, device)
    yield Row("k-means, NMI and F1, 5,924 x 512 into 100", seconds(lambda: nmi_f1(*small, 0), device=device))
    x, y = data(148595, 15937, 128, device)
    yield Row("retrieval, 148,595 x 128 unified", seconds(lambda: retrieval(x, y), device=device), 2.0,
              "limit of 2 s", 1)
    labels = y.cpu().numpy()
    side = Side(np.arange(148595), labels, tuple(map(str, range(15937))), domains=labels * 8 // 15937)
    names = tuple(f"part {i}" for i in range(8))
    yield Row("  with its 8 members", seconds(lambda: score(side, x, names), device=device))
    flat = torch.ones(20000, 128, device=device)
    yield Row("a constant embedding, 20,000 x 128 (all ties)",
              seconds(lambda: retrieval(flat, y[:20000]), device=device))
