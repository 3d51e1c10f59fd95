"""One run on several devices: each process has a share of every batch, and all of them the loss over the whole.

A process calls its network on its own share; the features of all shares are gathered, so that mining, proxies and loss
are those of the whole batch in every process. Each then carries the gradient of its own features back, and gradients
are averaged over the processes: those of one process on the whole batch, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class World:
    """How many processes train a run, and which of them this is; the first one evaluates, logs and saves."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> slice:
        """Its part of a batch of so many images, which `size` divides.

        >>> World(1, 4).share(112)
        slice(28, 56, None)
        """
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def wait(self) -> None:
        """Come back when every process has come here."""
        if self.size > 1:
            dist.barrier()

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Gradients become their mean over all processes."""
        gradients = [p.grad for p in parameters if p.grad is not None] if self.size > 1 else []
        for dtype in dict.fromkeys(g.dtype for g in gradients):
            # all in one piece: hundreds of small messages would take longer
            kind = [g for g in gradients if g.dtype == dtype]
            flat = torch.cat([g.reshape(-1) for g in kind])
            dist.all_reduce(flat)
            flat /= self.size
            for gradient, mean in zip(kind, flat.split([g.numel() for g in kind])):
                gradient.copy_(mean.view(gradient.shape))


class Gathered:
    """A network's forward pass on this process's share of a batch, with the outputs of all shares."""

    def __init__(self, forward: Callable[..., Any], world: World, number: int = 0) -> None:
        self.forward, self.world, self.number = forward, world, number
        self._epoch = -1
        """The seed of the epoch."""

    def __call__(self, images: Tensor, *given: Any, **named: Any) -> Any:
        # Dropout differs between shares, and what is drawn after it is the same in every process.
        seed = self._next_seed() + self.world.rank
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
            torch.manual_seed(seed)
            own = self.forward(images, *given, **named)
        if isinstance(own, tuple):
            return tuple(_Gather.apply(part, self.world) for part in own)
        return _Gather.apply(own, self.world)

    def _next_seed(self) -> int:
        """Another for every call of an epoch and every network (`number`), and none drawn from torch's own generator:
        what is drawn from that, as in mining, is what one process draws.
        """
        if (epoch := torch.initial_seed()) != self._epoch:
            self._epoch, self._seeds = epoch, torch.Generator().manual_seed(epoch + self.number)
        return int(torch.randint(2**62, (), generator=self._seeds))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, own: Tensor, world: World) -> Tensor:
        context.world = world
        parts = [torch.empty_like(own, memory_format=torch.contiguous_format) for _ in range(world.size)]
        dist.all_gather(parts, own.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # times the number of processes, since gradients are averaged and only this one has its share
        world = context.world
        return gradient[world.share(len(gradient))] * world.size, None
