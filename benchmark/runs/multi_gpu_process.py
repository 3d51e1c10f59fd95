"""A further process of a run on several devices: trains on its share of every batch."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading

import torch

from benchmark.config.spec import RunSpec
from benchmark.runs import multi_gpu, worker
from benchmark.training.distributed import World
from benchmark.utils.errors import is_user_error


def main() -> None:
    """What such a process does: its share of the run whose spec comes by standard input."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # they may go to all processes at once, and the first one decides
    facts, context, rank, place = pickle.load(sys.stdin.buffer)

    def watch() -> None:
        sys.stdin.buffer.read()  # comes back when whoever started this process is gone
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    torch.set_num_threads(1 if context.device == "cpu" else torch.get_num_threads())
    multi_gpu.join(context.device, rank, len(context.devices), place)
    try:
        worker.assist(RunSpec.of(facts), context, World(rank, len(context.devices)))
        multi_gpu.leave()
    except Exception as error:
        if not is_user_error(error):  # else the first process has met it too and says so
            raise


if __name__ == "__main__":
    main()
