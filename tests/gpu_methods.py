"""Every registered method a few hundred steps on glyphs: `python -m tests.gpu_methods [--steps 200]`.

On a GPU under bf16 autocast, and once more with a compiled backbone for a few methods that change the network or the
step. One line a method: loss at first and at last; before and after training how much closer images of a class lie
than others (gap) and how often the nearest image is of the class (R@1); images a second, peak memory, seconds. A
method that fails fills its line with the reason. Networks start from the embedded ImageNet weights where a package
carries them, else at random.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import methods
from benchmark import datasets
from benchmark.data import weights
from benchmark.utils.errors import UserError
from methods import Entry, Method
from methods.backbones import Backbone, create
from methods.samplers import batches

LR, WEIGHT_DECAY, DIM = 1e-4, 1e-4, 128
COMPILED = "s2sd,crt,puma"
"""One method each of those that read the map, add to it, and change the blocks: compiling takes half a minute."""


class Sight(NamedTuple):
    """How well an embedding tells the classes apart."""

    gap: float
    """Mean cosine within classes minus that between them."""
    recall: float
    """Recall@1."""


UNSEEN = Sight(0.0, 0.0)


@dataclass
class Outcome:
    """What one method did."""

    losses: list[float] = field(default_factory=list)
    before: Sight = UNSEEN
    after: Sight = UNSEEN
    rate: float = 0.0
    compiled_rate: float = 0.0
    memory: float = 0.0
    seconds: float = 0.0
    note: str = ""
    failed: bool = False

    @property
    def first(self) -> float:
        return float(np.mean(self.losses[:max(1, len(self.losses) // 10)])) if self.losses else float("nan")

    @property
    def last(self) -> float:
        return float(np.mean(self.losses[-max(1, len(self.losses) // 10):])) if self.losses else float("nan")

    @property
    def verdict(self) -> str:
        """Empty where the classes came apart. No loss tells: a collapse lowers it, two players' need not fall."""
        if self.failed or self.after.gap > self.before.gap:
            return ""
        if self.after.gap < 0.01:
            return "collapsed"
        return "" if self.after.recall > self.before.recall + 0.1 else "learnt nothing"


def glyphs(name: str, size: int, limit: int, device: str) -> tuple[Tensor, Tensor]:
    """Images of a glyph dataset in [-1, 1] on the device, and their labels."""
    index = datasets.get(name).read(Path())  # type: ignore[call-arg]
    chosen = np.flatnonzero(index.labels < limit)
    pictures = [np.asarray(index.open(int(i)).convert("RGB").resize((size, size))) for i in chosen]
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).to(device).float() / 127.5 - 1
    return images.contiguous(memory_format=torch.channels_last), torch.from_numpy(index.labels[chosen])


def backbone_of(entry: Entry, wanted: str, transformer: str) -> Backbone:
    """The wanted backbone, or the transformer for methods that need one; pretrained where that costs no download."""
    name = transformer if entry.misfit(wanted) else wanted
    if name in weights.EMBEDDED:
        with contextlib.suppress(UserError):
            return weights.pretrained(name, frozen_norm=True)
    return create(name, frozen_norm=False)


def halved(device: torch.device) -> torch.autocast:
    """bf16 where the device multiplies it quickly, else float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def train(method: Method, images: Tensor, labels: Tensor, steps: int, batch: int, spread: str,
          lr: float = LR) -> tuple[list[float], float]:
    """Losses of every step, and images a second over the second half."""
    device = images.device
    groups = method.groups(lr, WEIGHT_DECAY)
    optimiser = torch.optim.Adam(groups, lr=lr, fused=device.type == "cuda") if groups else None
    sampler = batches.create(spread, labels, batch)
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    method.train()
    losses: list[Tensor] = []
    began, counted = 0.0, 0
    while len(losses) < steps:
        for chosen in sampler.epoch(generator):
            if len(losses) == steps // 2:
                _wait(device)
                began, counted = time.perf_counter(), 0
            x = images[chosen.to(device)]
            if method.views > 1:
                x = torch.stack([x + 0.05 * torch.randn_like(x) for _ in range(method.views)])
            with halved(device):
                loss = method.step(x, labels[chosen].to(device)).loss
            if optimiser is not None:
                optimiser.zero_grad(set_to_none=True)
                loss.backward()
                optimiser.step()
            method.after_step()
            losses.append(loss.detach())
            counted += len(chosen)
            if len(losses) == steps:
                break
    _wait(device)
    return torch.stack(losses).tolist(), counted / (time.perf_counter() - began)


@torch.no_grad()
def look(method: Method, images: Tensor, labels: Tensor) -> Sight:
    """Gap and Recall@1 over all images."""
    method.eval()
    with halved(images.device):
        embeddings = torch.cat([method.embed(part) for part in images.split(256)])
    cosines = (embeddings @ embeddings.T).cpu()
    same = labels[:, None] == labels[None, :]
    itself = torch.eye(len(labels), dtype=torch.bool)
    nearest = cosines.masked_fill(itself, -torch.inf).argmax(1)
    return Sight(float(cosines[same & ~itself].mean() - cosines[~same].mean()),
                 float((labels[nearest] == labels).float().mean()))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def attempt(name: str, given: argparse.Namespace, images: Tensor, labels: Tensor) -> Outcome:
    """One method, eager and then compiled where asked for; whatever goes wrong becomes the note."""
    outcome = Outcome()
    began = time.perf_counter()
    try:
        entry = methods.get(name)
        torch.manual_seed(0)
        method = entry.build(backbone_of(entry, given.backbone, given.vit), int(labels.max()) + 1, DIM)
        method.to(given.device).to(memory_format=torch.channels_last)
        outcome.note = method.backbone.name  # type: ignore[assignment]
        spread = entry.batches if entry.batches in batches.NAMES else "spc-2"
        if given.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        outcome.before = look(method, images, labels)
        outcome.losses, outcome.rate = train(method, images, labels, given.steps, given.batch, spread, given.lr)
        if given.device.startswith("cuda"):
            outcome.memory = torch.cuda.max_memory_allocated() / 2**30
        outcome.after = look(method, images, labels)
    except Exception as error:  # the table must go on, whatever a method does
        outcome.note += f" FAILED: {_line(error)}"
        outcome.failed = True
        return outcome
    if name in given.compile:
        try:
            torch._dynamo.reset()
            method.backbone.compile()
            _, outcome.compiled_rate = train(method, images, labels, max(20, given.steps // 4), given.batch, spread)
        except Exception as error:  # some methods cannot be compiled, and the reason is the finding
            outcome.note += f"; not compiled: {_line(error)}"
            outcome.failed = True
    outcome.seconds = time.perf_counter() - began
    return outcome


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or '?').splitlines()[0][:120]}"


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; returns the number of methods that failed or learnt nothing."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_methods", description=__doc__)
    parser.add_argument("--methods", default="all", help="as for `oodml run` (default: all)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=112)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=LR)
    parser.add_argument("--classes", type=int, default=40, help="classes of the dataset that are trained on")
    parser.add_argument("--dataset", default="glyphs-mini")
    parser.add_argument("--backbone", default="efficientnet_lite0")
    parser.add_argument("--vit", default="vit_small", help="backbone of methods that need a transformer")
    parser.add_argument("--compile", default=COMPILED, type=lambda text: () if text == "none" else methods.select(text),
                        help=f"methods whose backbone is compiled as well, or 'none' (default: {COMPILED})")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args(arguments)
    began = time.perf_counter()
    images, labels = glyphs(given.dataset, given.size, given.classes, given.device)
    sys.stdout.write(f"{len(images)} images of {given.size} px, {given.steps} steps of {given.batch}, torch "
                     f"{torch.__version__}, {given.device}\n{'method':24}{'loss':>10}{'at last':>10}{'gap':>8}"
                     f"{'at last':>9}{'R@1':>7}{'at last':>9}{'img/s':>9}{'compiled':>10}{'GiB':>7}{'s':>6}\n")
    wrong = 0
    for name in methods.select(given.methods):
        outcome = attempt(name, given, images, labels)
        verdict = "" if methods.get(name).family == "floor" else outcome.verdict
        wrong += outcome.failed or bool(verdict)
        (gap, recall), (gap_after, recall_after) = outcome.before, outcome.after
        sys.stdout.write(f"{name:24}{outcome.first:10.4f}{outcome.last:10.4f}{gap:8.3f}{gap_after:9.3f}{recall:7.3f}"
                         f"{recall_after:9.3f}{outcome.rate:9.0f}{outcome.compiled_rate:10.0f}{outcome.memory:7.2f}"
                         f"{outcome.seconds:6.1f}  {outcome.note}{f'  <- {verdict}' if verdict else ''}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{wrong} to look at, {time.perf_counter() - began:.0f} s\n")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
