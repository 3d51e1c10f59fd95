"""The process that workers are forked from: started where our own packages are found, ended where it hangs."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pkgutil
import signal
import tempfile
import threading
from pathlib import Path
from typing import Any

import methods
from benchmark.utils.errors import UserError
from benchmark.utils.signals import block_signals

STARTING = 120.0
"""Seconds that a worker may take to start: the server has torch to import first, maybe from a busy disk."""

ORPHANED = 255
"""Exit code that multiprocessing gives a worker, alive or not, whose server has died."""

AVAILABLE = "forkserver" in multiprocessing.get_all_start_methods()
"""Whether this system has such a process."""


def start(process: Any) -> None:
    """Start a worker; an EOFError or ConnectionError where its server died, or stood still and was ended."""
    warm()
    limit = threading.Timer(STARTING, end)
    limit.daemon = True
    limit.start()
    try:
        process.start()
    finally:
        limit.cancel()


def strike(process: Any) -> None:
    """Kill a worker that is known to be there, its end of the pipe being open, without waiting for its end.

    `Process.kill` leaves one whose server has died as it is, since it takes it for ended. Such a worker ends by itself,
    but not where it is stopped.
    """
    process.kill()
    if process.exitcode == ORPHANED:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


def kill(process: Any, seconds: float) -> None:
    """Kill a worker and wait for its end, which its server tells: one that does not is ended, and the next is made."""
    process.kill()
    process.join(seconds)
    if process.exitcode is None:
        end()
        process.join(seconds)


@atexit.register  # by itself it would notice our end only after all its imports, and hold our output open till then
def end() -> None:
    """Kill the server, if there is one: what waits for an answer of it gets an end of file."""
    try:
        from multiprocessing.forkserver import _forkserver  # not on every system
    except ImportError:
        return
    pid = getattr(_forkserver, "_forkserver_pid", None)
    if pid is not None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # multiprocessing reaps it when it makes the next


def warm() -> None:
    """Start the server that workers are forked from, if none runs; it then imports torch and all methods by itself.

    Ctrl-C, SIGTERM and what clusters warn with are blocked from its first moment: each may go to all processes at once,
    and workers, which end when the server does, have an epoch to save.

    It imports from its current folder, so that must be the parent of our own packages: in the user's folder a
    `splits` or `methods` may mean something else. Workers go back to that folder by themselves.
    """
    if not AVAILABLE:
        return
    from multiprocessing import forkserver

    own = [module.name for module in pkgutil.iter_modules(methods.__path__)]
    # optimisers import torch._dynamo at their first step, which takes seconds
    forkserver.set_forkserver_preload(["oodml", "benchmark.runs.executors.worker_process", "benchmark.runs.attempt",
                                       "torch._dynamo", *(f"methods.{name}" for name in own)])
    here = os.getcwd()
    with block_signals(signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        try:
            os.chdir(Path(methods.__file__).parents[1])
            forkserver.ensure_running()
        except OSError as error:
            if "path too long" not in str(error):
                raise
            # a socket's path has some 100 bytes at most, which folders of a cluster's jobs may take by themselves
            raise UserError(f"workers are reached by a socket among the temporary files, and the path "
                            f"{tempfile.gettempdir()} is too long for one: set TMPDIR=/tmp") from None
        finally:
            os.chdir(here)
