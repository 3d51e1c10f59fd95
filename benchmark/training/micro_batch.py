"""A large batch in pieces that fit in memory, with the gradient of the whole (`micro_batch` of a protocol).

The network is called twice: first for the features of all images, some pieces at a time and without what a backward
pass needs; the loss is then that of the whole batch, and its gradient with respect to the features known; at last piece
by piece, with random numbers as the first time, to carry that gradient on to the weights. The last piece keeps what its
backward pass needs from the first time, so that its features are computed once. The cost is one more forward pass; the
memory is that of one piece and of all features (Gao et al. 2021, "Scaling deep contrastive learning batch size under
memory limited setup", for any objective and any method that calls its backbone).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.training.distributed import World
from benchmark.utils.errors import UserError
from methods import Method

Forward = Callable[..., Any]
State = tuple[Tensor, "Tensor | None"]
"""Of the generators of the CPU and of a GPU."""
ALONE = World()
WIDER = 4
"""Pieces at a time where nothing is kept for a backward pass: fewer kernels are launched for as many images, and the
two maps that a layer reads and writes for four pieces are smaller than all maps of one piece, which a graph keeps."""


class InPieces:
    """A backbone's forward pass, a piece of the batch at a time; the gradient is that of the whole batch."""

    def __init__(self, forward: Forward, size: int) -> None:
        self.forward, self.size, self.wider = forward, size, WIDER

    def __call__(self, images: Tensor, *given: Any, **named: Any) -> Any:
        if len(images) <= self.size:
            return self.forward(images, *given, **named)

        def part(piece: Tensor) -> Any:
            return self.forward(piece, *given, **named)

        if not torch.is_grad_enabled():
            return _joined([part(piece) for piece in images.split(self.size)])
        # what requires a gradient here stands for the weights, whose gradients are added up within
        found = _TwoPasses.apply(torch.zeros((), requires_grad=True), images, part, self)
        return found if len(found) > 1 else found[0]

    def first_pass(self, images: Tensor, part: Forward) -> tuple[list[Any], list[State]]:
        """The features of these images without a graph, and the random states before each piece.

        A network that draws random numbers must draw them piece by piece, as it will the second time: it shows in the
        first call, which is then done again, and is remembered.
        """
        device, states, found = images.device, [], []
        before = _random_state(device)
        for pieces in images.split(self.wider * self.size):
            states += [_random_state(device)] * -(-len(pieces) // self.size)
            found.append(part(pieces))
            if self.wider > 1 and not _same(before, _random_state(device)):
                self.wider = 1
                _set_random_state(device, before)
                return self.first_pass(images, part)
        return found, states


class _TwoPasses(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, anchor: Tensor, images: Tensor, part: Forward, pieces: InPieces) -> tuple[Tensor, ...]:
        context.part, context.size = part, pieces.size
        kind = images.device.type
        context.autocast = {"device_type": kind, "dtype": torch.get_autocast_dtype(kind),
                            "enabled": torch.is_autocast_enabled(kind)}
        context.save_for_backward(images)
        rest = (len(images) - 1) // pieces.size * pieces.size
        found, states = pieces.first_pass(images[:rest], part)
        context.states = [*states, _random_state(images.device)]
        last = images[rest:].detach().requires_grad_(images.requires_grad)
        torch.clear_autocast_cache()  # it holds weights that were cast without a graph
        with torch.enable_grad():
            context.kept = last, part(last)
        whole = _joined([*found, context.kept[1]])
        return tuple(x.detach() for x in whole) if isinstance(whole, tuple) else (whole.detach(),)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (images,) = context.saved_tensors
        wanted = context.needs_input_grad[1]
        to_images = []
        kept, context.kept = context.kept, None
        pieces = list(zip(images.split(context.size), context.states, *(g.split(context.size) for g in gradients)))
        with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
            for piece, state, *parts in reversed(pieces):  # the last one first: its graph takes memory
                if kept is None:
                    _set_random_state(images.device, state)
                    piece = piece.detach().requires_grad_(wanted)
                    with torch.enable_grad(), torch.autocast(**context.autocast):
                        found = context.part(piece)
                else:
                    (piece, found), kept = kept, None
                outputs = found if isinstance(found, tuple) else (found,)
                pairs = [(output, gradient) for output, gradient in zip(outputs, parts) if output.requires_grad]
                if pairs:
                    torch.autograd.backward([output for output, _ in pairs], [gradient for _, gradient in pairs])
                to_images.append(piece.grad)
        return None, torch.cat(to_images[::-1]) if wanted else None, None, None


def check(method: Method, micro_batch: int, world: World = ALONE) -> None:
    """A UserError for a method or a network that is not the same in pieces, or shared among devices."""
    if not micro_batch and world.size == 1:
        return
    key, value = ("micro_batch", f"micro_batch = {micro_batch}") if micro_batch else (
        "--gpus-per-run", f"--gpus-per-run {world.size}")
    if method.whole_batch:
        raise UserError(f"{type(method).__name__} mixes the images of a batch within the network, so that {value} "
                        f"would change what it learns; leave {key} out")
    norms = [name for name, module in method.backbone.named_modules()
             if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training]
    if norms:
        raise UserError(f"the batch norms of {method.backbone.name} ({norms[0]} and {len(norms) - 1} more) take their "
                        f"statistics from the whole batch, so that {value} would change them; "
                        f"freeze them (--set frozen_norm=statistics), or leave {key} out")


def _joined(found: list[Any]) -> Any:
    """The outputs of all pieces as those of one call: a tensor, or a tuple of them."""
    if isinstance(found[0], tuple):
        return tuple(torch.cat(parts) for parts in zip(*found))
    return torch.cat(found)


def _random_state(device: torch.device) -> State:
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _set_random_state(device: torch.device, state: State) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1], device)


def _same(one: State, other: State) -> bool:
    """Whether nothing was drawn between two states, which both lie in main memory: no GPU is waited for."""
    return all(x is y or (x is not None and y is not None and torch.equal(x, y)) for x, y in zip(one, other))
