"""Signal masks: Ctrl-C and SIGTERM may go to all processes of a group at once, but one process decides for all."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def block_signals(*numbers: int) -> Iterator[None]:
    """Processes that are started within do not receive these signals until they call `unblock_signals`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker  # not on every system

    resource_tracker.ensure_running()  # the first process would start it otherwise, and that ends our mask
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def unblock_signals(*numbers: int) -> None:
    """Receive signals again that the process which started this one may have blocked."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
