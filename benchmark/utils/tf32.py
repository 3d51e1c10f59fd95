"""float32 that is float32, without TF32, of ten bits, under its name; and TF32 where that is wanted."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def no_tf32() -> contextlib.AbstractContextManager[None]:
    """float32 products and convolutions as such on a GPU, whatever was switched on."""
    return tf32(False)


@contextlib.contextmanager
def tf32(wanted: bool = True) -> Iterator[None]:
    """float32 products and convolutions on a GPU in TF32, the range of float32 with ten bits, or not."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if wanted else "highest")
    torch.backends.cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions
