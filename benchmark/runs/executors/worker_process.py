"""What a worker process does from its start to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import warnings
from multiprocessing.connection import Connection
from typing import Any

from benchmark.runs.executors import mps
from benchmark.runs.locks import LOST, Heartbeat
from benchmark.utils.signals import unblock_signals
from benchmark.utils.terminal import plain_warning


def serve(pipe: Connection, threads: int, stopping: Any, heartbeats: Any, beat: float, daemon: str | None) -> None:
    """Do the runs that come through the pipe, until None comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner decides what Ctrl-C means
    warnings.formatwarning = plain_warning
    leaving: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: leaving.append(number))
    unblock_signals(signal.SIGTERM)
    heartbeat = Heartbeat(heartbeats, watch_parent=True, beat=beat)
    heartbeat.start()
    mps.join(daemon)
    import torch
    from tqdm import tqdm

    from benchmark.runs.attempt import attempt_run

    # its own lock is a semaphore of the system, made by the first bar, shown or not, and left behind by a killed worker
    tqdm.set_lock(threading.RLock())

    def report(event: dict[str, Any]) -> None:
        try:
            pipe.send(("epoch", event))
        except OSError:  # the runner is dead: that is no failure of this run
            os._exit(LOST)

    with contextlib.suppress(EOFError, OSError):
        while not leaving and (job := pipe.recv()) is not None:
            torch.set_num_threads(threads)  # the run before may have gone on with those that it began with
            pipe.send(tuple(attempt_run(job, heartbeat, report=report,
                                        should_stop=lambda: bool(stopping.value or leaving))))
