"""The other processes of a run on several devices: started by its worker, ended with it."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import methods
from benchmark.config.spec import RunSpec
from benchmark.runs.locks import LOST
from benchmark.training.distributed import World

if TYPE_CHECKING:
    from benchmark.runs.job import RunContext

PATIENCE = timedelta(hours=2)
"""How long a process waits for the others: as long as the first one may take to evaluate."""
START = timedelta(minutes=5)
"""How long it waits for them to start."""


@contextlib.contextmanager
def joined(spec: RunSpec, context: RunContext) -> Iterator[World]:
    """Starts a process for each further device of the run and joins them; alone where there is one device."""
    count = len(context.devices)
    if count < 2:
        yield World()
        return
    with tempfile.TemporaryDirectory() as place:
        processes: list[subprocess.Popen[bytes]] = []
        ending = threading.Event()
        try:
            for rank in range(1, count):
                processes.append(subprocess.Popen(
                    [sys.executable, "-m", "benchmark.runs.multi_gpu_process"], stdin=subprocess.PIPE,
                    cwd=Path(methods.__file__).parents[1]))
                pipe = processes[-1].stdin
                assert pipe is not None
                pickle.dump((spec.facts(), replace(context, device=context.devices[rank]), rank, place), pipe)
                pipe.flush()  # it stays open: when it closes, the process ends
            join(context.device, 0, count, place)
            if context.device.startswith("cuda"):
                for process in processes:
                    threading.Thread(target=_end_with, args=(process, ending), daemon=True).start()
            yield World(0, count)
        finally:
            ending.set()
            leave()
            for process in processes:
                process.kill()
                process.wait()


def _end_with(process: subprocess.Popen[bytes], ending: threading.Event) -> None:
    """Ends this process when one that it shares its batches with is lost: on GPUs it would wait for it in vain."""
    if process.wait() and not ending.is_set():
        os._exit(LOST)


def join(device: str, rank: int, count: int, place: str) -> None:
    """Joins the processes of a run, which meet by a file in the folder `place`."""
    import torch
    import torch.distributed as dist

    gpu = device.startswith("cuda")
    if gpu:
        torch.cuda.set_device(torch.device(device).index or 0)
    elif Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # all are on this machine, whose name may lead nowhere
    store = dist.FileStore(f"{place}/meeting", count)
    store.set_timeout(START)
    dist.init_process_group("nccl" if gpu else "gloo", store=store, rank=rank, world_size=count, timeout=PATIENCE)


def leave() -> None:
    """Leaves them, where there are some."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
