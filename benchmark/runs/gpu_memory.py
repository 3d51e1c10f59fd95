"""Whose memory a GPU is short of: a run that others left too little may find enough at another time."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmark.runs.executors.gpus import PROCESS

OUT = "the GPU ran out of memory"
SHARE = 0.05
"""Part of a GPU's memory, held by others, from which on they may be why a run finds too little."""
BELOW_TORCH = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""How the driver and its libraries say it: that of a process that finds no room even to begin on the GPU is such."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that a GPU has no memory left.

    >>> ran_out(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    True
    >>> ran_out(RuntimeError("CUDA error: out of memory")), ran_out(RuntimeError("CUDA error: device-side assert"))
    (True, False)
    """
    return isinstance(error, torch.cuda.OutOfMemoryError) or any(text in str(error) for text in BELOW_TORCH)


def held_by_others(devices: Sequence[str]) -> str:
    """What other programs hold of the fullest of these GPUs, in words; '' where that is little, and on a CPU."""
    found = [_of(device) for device in devices if device.startswith("cuda")]
    return max(found, default=(0.0, ""))[1]


def told(total: float, free: float, own: float) -> tuple[float, str]:
    """The bytes that others hold, and what is said of them: total - free - what this process has.

    >>> told(total=139.8e9, free=2.6e9, own=75e9)
    (61200000000.0, 'other programs hold 61.2 of its 139.8 GB')
    >>> told(total=24e9, free=2e9, own=21e9)
    (0.0, '')
    """
    held = total - free - own - PROCESS
    if held < SHARE * total:
        return 0.0, ""
    return held, f"other programs hold {held / 1e9:.1f} of its {total / 1e9:.1f} GB"


def _of(device: str) -> tuple[float, str]:
    try:
        free, total = torch.cuda.mem_get_info(device)
    except RuntimeError:  # this process has found no room to begin
        return float("inf"), "other programs hold all of it"
    return told(total, free, torch.cuda.memory_reserved(device))
