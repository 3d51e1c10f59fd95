"""What kernels written with Triton have in common. It is not made for every system, and needs a C compiler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None  # type: ignore[assignment]

__all__ = ["kernel", "tl", "triton", "usable"]

log = logging.getLogger(__name__)


def kernel(*varying: str) -> Callable[[Any], Any]:
    """Compiles a function with Triton, where it is there, once for all values of these arguments."""
    return (lambda function: function) if triton is None else triton.jit(do_not_specialize=list(varying))


def usable(what: str, trial: Callable[[], object]) -> bool:
    """Whether kernels can be built and run here: after a trial, with a line in the log where it fails."""
    if triton is None:
        return False
    try:
        with torch.enable_grad(), torch.autocast("cuda", enabled=False):
            trial()
        return True
    except Exception as error:  # a compiler raises anything, and torch's own kernels are as right
        log.info("%s stay with torch's kernels: %s", what, str(error).split("\n")[0] or type(error).__name__)
        return False
