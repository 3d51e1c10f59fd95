"""On what networks are run and embeddings searched: the CPU or a GPU."""

from __future__ import annotations

from benchmark.utils.errors import UserError


def best_device(wanted: str | None = None) -> str:
    """The device that is wanted, if it is here; without a wish the GPU where there is one."""
    import torch

    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    known = ["cpu", *(["cuda", *gpus] if gpus else [])]
    if wanted is not None and wanted not in known:
        raise UserError(f"there is no device '{wanted}' here; --device may be {' or '.join(known)}")
    return wanted or ("cuda" if gpus else "cpu")
