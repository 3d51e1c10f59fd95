"""The backbone, compiled for training where that pays and plain everywhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmark.protocol import Protocol
from methods import Method

log = logging.getLogger(__name__)

WORTHWHILE = 1000
"""Steps that a run must still have ahead: compiling takes up to a minute, and a step saves some ten milliseconds."""
GRAPHED = 256
"""Images a step up to which CUDA graphs pay: beyond, the GPU is busy longer than launching its kernels takes."""
TRIAL = 3
"""Steps of the trial: the first compiles, the second records a CUDA graph, the third replays it."""

_last: tuple[object, ...] = ()


class Compiled:
    """A method's backbone in two forms; inside the context the fast one is called, outside the plain one.

    Only `forward` is exchanged, and put back: the names in a state dict, and evaluation in batches of other sizes,
    never see the compiled form. `mode` is empty where nothing is compiled, and the context then changes nothing.
    """

    def __init__(self, method: Method, mode: str = "") -> None:
        self.backbone, self.mode = method.backbone, mode
        self._fast: Callable[..., object] | None = None
        if mode:
            self._fast = torch.compile(self.backbone.forward, dynamic=False, mode=None if mode == "plain" else mode)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self._fast is None:
            yield
            return
        if self.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        self.backbone.forward = self._fast  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self.backbone.forward


def mode_of(protocol: Protocol, method: Method, device: str, steps: int) -> str:
    """How the backbone is compiled: 'reduce-overhead' (with CUDA graphs), 'plain', or '' for not at all.

    `auto` compiles on CUDA only and where enough steps are ahead. A method that changes its network's course from
    outside (hooks) says `compiles = False`.
    """
    cuda = device.startswith("cuda")
    if protocol.compile == "no" or not getattr(method, "compiles", True):
        return ""
    if protocol.compile == "auto" and (not cuda or steps < WORTHWHILE):
        return ""
    return "reduce-overhead" if cuda and protocol.batch_size * method.views <= GRAPHED else "plain"


def compiled(method: Method, mode: str, step: Callable[[], object]) -> Compiled:
    """The method's backbone compiled, after a trial; plain, with a line in the log, where the compiler fails.

    `step` does one training step up to its gradients. What it changes in the method is put back; what it draws from
    torch's generators is not.
    """
    if not mode:
        return Compiled(method)
    _forget_others((method.backbone.name, type(method), mode))
    state = {name: value.detach().clone() for name, value in method.state_dict().items()}
    fast = Compiled(method, mode)
    try:
        for _ in range(TRIAL):
            method.zero_grad(set_to_none=True)
            with fast():
                step()
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception as error:  # a compiler raises anything, and a run without it is as good
        log.warning("the backbone %s is not compiled: %s", method.backbone.name,
                    (str(error) or type(error).__name__).splitlines()[0])
        fast = Compiled(method)
    finally:
        method.zero_grad(set_to_none=True)
        method.load_state_dict(state)
    return fast


def _forget_others(kind: tuple[object, ...]) -> None:
    """Drop what was compiled for a network of another kind: the compiler keeps few, and their memory."""
    global _last
    if _last not in ((), kind):
        torch.compiler.reset()
    _last = kind
