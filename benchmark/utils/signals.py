"""Which signals a process hears. Ctrl-C and SIGTERM may go to all processes at once; one of them decides for all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deaf(*numbers: int) -> Iterator[None]:
    """Processes that are started within do not hear these signals, until they `hear` them again."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker  # not on every system

    resource_tracker.ensure_running()  # the first process would start it otherwise, and that ends our mask
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def hear(*numbers: int) -> None:
    """Let signals through that whoever started this process may have held back."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
