"""One training run, from top to bottom.

Every epoch starts from random states that depend on the seed and the epoch's number alone, every batch's crops on
its number as well. A run that was killed resumes from its last checkpoint, which is of a whole epoch, and ends, on a
CPU bit for bit, as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.config.protocol import Protocol
from benchmark.data.loader import Loader
from benchmark.data.task import Side
from benchmark.training import checkpoint, compiling, micro_batch, optimising, precision
from benchmark.training.distributed import World
from benchmark.training.meter import Meter, held_memory, peak_memory, write_line
from benchmark.training.optimising import groups_of
from benchmark.training.resuming import History, resume
from benchmark.utils.errors import UserError
from benchmark.utils.phases import Phases
from methods import Method
from methods.samplers.by_label import BatchSampler

Evaluate = Callable[[], dict[str, Any]]
"""Measures of the method as it is now, by side: {'test': {...}, 'validation': {...}}."""
Report = Callable[[dict[str, Any]], None]

GRACE = 10.0
"""Seconds: a run that is asked to stop still finishes an epoch, with its evaluation, that takes no longer than this."""


class Interrupted(Exception):
    """The run was asked to stop; it can be resumed from its last checkpoint."""


@dataclass(frozen=True)
class TrainContext:
    """What a method is trained on, how, and who is informed on the way."""

    side: Side
    """The training images."""
    loader: Loader
    sampler: BatchSampler
    protocol: Protocol
    seed: int
    device: str
    folder: Path
    """Keeps the checkpoint and `log.jsonl`."""
    evaluate: Evaluate
    should_stop: Callable[[], bool] = lambda: False
    """Asked after every step, and after every epoch before it is kept; what it raises ends the run unkept."""
    report: Report = lambda event: None
    """Called with the entry of every epoch and, in between, with the number of whole epochs so far; each time with the
    images trained on since."""
    spent: Callable[[], dict[str, float]] = dict
    """What this attempt has cost so far: kept in each checkpoint, so that a resumed run knows its whole cost."""
    world: World = field(default_factory=World)
    """The processes that share every batch; all but the first only train."""
    phases: Phases = field(default_factory=Phases)
    """Where the seconds of this attempt went."""


def train(method: Method, context: TrainContext) -> History:
    """Train `method` and measure it along the way, from the last checkpoint in the folder if there is one.

    Args:
        method: the network with its objective; trained in place.
        context: images, protocol and everything else.

    Returns:
        One entry an epoch, and what training and evaluation took.
    """
    protocol, device, world, history = context.protocol, context.device, context.world, History()
    groups = groups_of(method, protocol)
    if not groups or protocol.epochs == 0:
        began = time.perf_counter()
        history.epochs.append({"epoch": 0, **context.evaluate()})
        history.evaluating = time.perf_counter() - began
        return history

    loop = _Loop(method, context, groups, history)
    start = loop.resume()
    # The first epoch that trains the backbone is the first that can use it compiled.
    ahead = (protocol.epochs - max(start, protocol.warmup)) * loop.length
    kind = compiling.kind_of(protocol, method, device)
    mode = compiling.mode_of(protocol, method, device, ahead, compiling.ready(kind))
    fast, plain = None, compiling.Compiled(method, micro_batch=protocol.micro_batch, world=world)
    write_line(loop.log, {"event": "start", "epoch": start, "images": context.loader.describe(),
                          "precision": precision.of(protocol, device), "compile": mode or "no"})

    due = 0.0  # seconds that the last evaluation took
    with _step_of(history), contextlib.closing(checkpoint.Saver(context.folder)) as saver:
        for epoch in range(start + 1, protocol.epochs + 1):
            evaluated = epoch % protocol.evaluate_every == 0 or epoch == protocol.epochs
            method.train()
            micro_batch.check(method, protocol.micro_batch, world)
            optimising.set_rates(loop.optimiser, loop.rates, protocol, epoch)
            if fast is None and epoch > protocol.warmup:
                with context.phases("compile"):
                    saver.settle()
                    fast = compiling.compiled(method, mode, kind, loop.sample, loop.trial, protocol.micro_batch, world)
                if fast.mode != mode:
                    write_line(loop.log, {"event": "compile", "compile": fast.mode or "no"})
            gauge, mean_loss = loop.epoch(epoch, fast or plain, evaluated * due)
            seconds = time.perf_counter() - gauge.began
            history.seconds += seconds
            history.images += gauge.images
            entry: dict[str, Any] = {"epoch": epoch, "loss": mean_loss}
            if evaluated and world.leads:
                entry |= context.evaluate()
            evaluating = time.perf_counter() - gauge.began - seconds
            history.evaluating += evaluating
            due = evaluating if evaluated else due
            history.epochs.append(entry)
            write_line(loop.log, {"event": "epoch", **entry, "step": history.steps, "lr": loop.lr, "seconds": seconds,
                                  "images_per_second": gauge.images / seconds, "evaluate_seconds": evaluating,
                                  "memory": peak_memory(device)})
            stopped = context.should_stop() and epoch < protocol.epochs
            if world.leads:
                with context.phases("checkpoint"):
                    loop.save(saver, epoch, whole=stopped)
            context.report({**entry, "images": gauge.unreported, "memory": held_memory(device)})
            if stopped:
                raise Interrupted(f"stopped after epoch {epoch} of {protocol.epochs}")
        with context.phases("checkpoint"):
            saver.settle()
    return history


class _Loop:
    """A method with its optimiser and its batches: how it resumes, one step, one epoch, one checkpoint."""

    def __init__(self, method: Method, context: TrainContext, groups: list[dict[str, Any]], history: History) -> None:
        sampler, protocol, device, world = context.sampler, context.protocol, context.device, context.world
        if sampler.batch_size % world.size:
            raise UserError(f"a batch of {sampler.batch_size} images cannot be shared alike by {world.size} devices; "
                            "choose another --gpus-per-run, or --set batch_size=...")
        self.method, self.context, self.history = method, context, history
        method.to(device).to(memory_format=torch.channels_last)
        self.optimiser = optimising.optimiser_of(groups, protocol, device)
        self.rates = [group["lr"] for group in self.optimiser.param_groups]
        self.ids = torch.from_numpy(context.side.ids)
        self.labels = torch.from_numpy(context.side.labels).to(device)
        self.length = min(len(sampler), protocol.steps_per_epoch or len(sampler))
        """Steps of an epoch."""
        self.share = world.share(sampler.batch_size)
        self.log = context.folder if world.leads else None

    @property
    def lr(self) -> float:
        return self.optimiser.param_groups[0]["lr"]

    def resume(self) -> int:
        """Takes up the last checkpoint, if there is one; the number of whole epochs so far."""
        context, sampler, world = self.context, self.context.sampler, self.context.world
        if not world.leads:
            world.wait()  # the first process sets damaged checkpoints aside
        start = resume(context.folder, self.method, self.optimiser, sampler, self.history)
        optimising.set_rates(self.optimiser, self.rates, context.protocol, start)  # also where no epoch is left
        if world.leads:
            world.wait()
        if context.device == "cpu":
            torch.set_num_threads(self.history.threads or torch.get_num_threads())
            self.history.threads = torch.get_num_threads()
        context.report({"epoch": start})
        if sampler.needs_bank and start == 0:
            sampler.start(embed(self.method, context.loader, context.side.ids, context.protocol, context.device))
        return start

    def gradients(self, images: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and embeddings of the training images at the positions `chosen`, after the backward pass."""
        protocol, device = self.context.protocol, self.context.device
        with precision.forward(protocol, device):
            loss, embeddings = self.method.step(images, self.labels[_to(chosen, device)])
        with precision.backward(protocol, device):
            loss.backward()
        self.context.world.average(self.method.parameters())
        return loss, embeddings

    def sample(self) -> Tensor:
        """A batch to compile the network with."""
        context = self.context
        (_, images), = context.loader.prefetch([self.ids[:context.sampler.batch_size]], _generators(context.seed, 0),
                                               views=self.method.views, share=self.share)
        return images

    def trial(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """A step with that batch."""
        return self.gradients(images, torch.arange(self.context.sampler.batch_size))

    def epoch(self, number: int, networks: compiling.Compiled, due: float) -> tuple[Meter, float]:
        """Trains one epoch, after which an evaluation of `due` seconds follows; its meter and its mean loss."""
        context, method, optimiser, history = self.context, self.method, self.optimiser, self.history
        sampler, protocol = context.sampler, context.protocol
        batches = islice(sampler.epoch(_seed_everything(context.seed, number)), self.length)
        supply = _batches(context.loader, self.ids, batches, context.seed, number, method.views, self.share)
        gauge = Meter(self.log, context.device, number, history.steps, context.report)
        with contextlib.closing(supply):
            for chosen, images in supply:
                with networks():
                    loss, embeddings = self.gradients(images, chosen)
                optimising.clip(method, protocol)
                if protocol.cosine is not None:
                    optimising.fall(optimiser, self.rates, protocol.cosine,
                                    history.steps / (protocol.epochs * self.length))
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
                method.after_step()
                sampler.remember(chosen, embeddings)
                history.steps += 1
                gauge.add(loss, len(chosen), self.lr)
                if context.should_stop() and gauge.left(self.length) + due > GRACE:
                    raise Interrupted(f"stopped within epoch {number} of {protocol.epochs}")
            return gauge, gauge.end()

    def save(self, saver: checkpoint.Saver, epoch: int, whole: bool) -> None:
        """Keeps the state after an epoch; `whole`: waits until it is on disk."""
        spent = self.history.with_earlier(self.context.spent())
        saver.save({"method": self.method.state_dict(), "optimiser": self.optimiser.state_dict(),
                    "sampler": self.context.sampler.state_dict()},
                   {"epoch": epoch, "history": {**copy.deepcopy(vars(self.history)), "earlier": spent}}, whole=whole)


@torch.no_grad()
def embed(method: Method, loader: Loader, ids: np.ndarray, protocol: Protocol, device: str,
          step: Callable[[int], None] = lambda images: None) -> Tensor:
    """The normalised float32 embeddings of the images `ids`, (n, d), on the device; `step` hears of each batch."""
    method.to(device).to(memory_format=torch.channels_last).eval()
    batch = loader.at_once
    # the last batch is filled up: on a GPU evaluation took 3 s with a new number of images and 0.1 s with a known one
    filled = np.pad(ids, (0, -len(ids) % batch if device.startswith("cuda") else 0), mode="edge")
    parts = []
    for _, images in loader.prefetch(torch.from_numpy(filled).split(batch), thread=loader.placement != "device"):
        with precision.forward(protocol, device):
            parts.append(method.embed(images).float())
        step(min(len(images), len(ids) - batch * (len(parts) - 1)))
    return torch.cat(parts)[:len(ids)]


def _mixed(*facts: int) -> int:
    """A seed of 63 bits from several numbers."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, facts)).encode()).digest()[:8], "big") >> 1


def _seed_everything(seed: int, epoch: int) -> torch.Generator:
    """Seeds torch's global state (mining, dropout) and gives the generator of the epoch's batches."""
    torch.manual_seed(_mixed(seed, epoch))
    return torch.Generator().manual_seed(_mixed(seed, epoch))


def _generators(seed: int, epoch: int) -> Callable[[int], torch.Generator]:
    """The generator of each batch's crops, so that they do not depend on how far ahead batches are made."""
    return lambda k: torch.Generator().manual_seed(_mixed(seed, epoch, k))


def _batches(loader: Loader, ids: Tensor, batches: Iterator[Tensor], seed: int, epoch: int,
             views: int, share: slice) -> Generator[tuple[Tensor, Tensor], None, None]:
    """Each batch's positions in the training set, and the augmented images of a share of it.

    Where the pixels lie on the GPU itself their kernels queue up behind the step's; otherwise a thread fetches them.
    """
    ahead: list[Tensor] = []

    def image_ids() -> Iterator[Tensor]:
        for positions in batches:
            ahead.append(positions)
            yield ids[positions]

    for _, images in loader.prefetch(image_ids(), _generators(seed, epoch), views=views,
                                     thread=loader.placement != "device", share=share):
        yield ahead.pop(0), images


def _to(chosen: Tensor, device: str) -> Tensor:
    """Positions on the device; from pageable memory the copy would wait for the GPU."""
    return chosen.pin_memory().to(device, non_blocking=True) if device.startswith("cuda") else chosen


@contextlib.contextmanager
def _step_of(history: History) -> Iterator[None]:
    """Adds to an error the step of the run at which it was raised, for `failure.json`."""
    try:
        yield
    except Exception as error:
        error.step = history.steps  # type: ignore[attr-defined]
        raise
