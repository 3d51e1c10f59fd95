"""Frozen features of a backbone, computed once and kept by what they were made from."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, kept
from benchmark.data.transform import Transform
from benchmark.datasets.index import DatasetIndex
from benchmark.datasets.union import members
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.files import GrowingFile, alone, disk_errors, write_json
from reports.wording import byte_size

PIECE = 1024
"""Images between two marks on disk: what is lost at most when extraction is killed, and what is still to be written
when the network is done."""
BEHIND = 4
"""Pieces that may wait to be written."""
SHORT = {"bfloat16": "bf16", "float32": "fp32"}
"""Precisions of features as records call them."""


def extract(index: DatasetIndex, store: ImageStore, backbone: nn.Module, *, name: str, weights_hash: str,
            transform: Transform, folder: Path, device: str | torch.device = "cpu", batch: int | None = None,
            progress: bool = True, between: Callable[[], None] = lambda: None) -> np.ndarray:
    """Pooled features of every image, (n, d) float32, memory-mapped; computed only where not kept already.

    `backbone(images)` gives (b, d). It is moved to `device` and run in evaluation mode without gradients, `batch`
    images at a time (at most 256, on CUDA 512), channels-last; on CUDA in bfloat16 autocast. A union takes the
    features of its members, where those are decoded: each is embedded once for itself and for all unions. The file is
    `folder/features-NAME-BACKBONE-HASH8/features.npy` with a JSON beside it that says what it was made from. Work goes
    on where a killed call stopped. `between` is called before every batch; what it raises ends the work, and what is
    embedded is kept.
    """
    if len(store) != len(index):
        raise UserError(f"there are {len(store)} decoded images in {store.folder} but {len(index)} in dataset "
                        f"'{index.name}': run `oodml datasets prepare {index.typed}` again")
    facts = {"images": store.hash, "backbone": name, "weights": weights_hash, "transform": transform.evaluation}
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    home = folder / re.sub(r"[^A-Za-z0-9_.-]+", "_", f"features-{index.name}-{name}-{key[:8]}")
    final = home / "features.npy"
    if not final.is_file():
        with disk_errors(home):
            home.mkdir(parents=True, exist_ok=True)
        with alone(home / "lock", f"the features of {index.name}" if progress else ""):
            if not final.is_file():
                loader = Loader(store, transform, device, placement="disk")
                precision = "bfloat16" if loader.device.type == "cuda" else "float32"
                facts = {"dataset": index.name, "key": key, "precision": precision, **facts}
                write_json(home / "features.json", facts)
                batch = batch or min(loader.at_once, 512 if loader.device.type == "cuda" else 256)
                same = partial(extract, backbone=backbone, name=name, weights_hash=weights_hash, transform=transform,
                               folder=folder, device=device, batch=batch, progress=progress, between=between)
                if parts := _of_members(index, store, folder, same):
                    _unite(index, parts, final, precision)
                else:
                    _compute(index, loader, backbone, final, precision, batch, progress, facts, between)
    return _opened(final, len(index))


def _opened(final: Path, count: int) -> np.ndarray:
    """Features that were made before, of so many images."""
    try:
        vectors = np.load(final, mmap_mode="r")
    except Exception as error:  # numpy answers damaged bytes with a dozen kinds of errors, EOFError among them
        raise UserError(f"{final} is damaged ({error}): delete it and run again") from None
    if vectors.ndim != 2 or len(vectors) != count or vectors.dtype != np.float32:
        raise UserError(f"{final} is damaged ({vectors.dtype} of shape {vectors.shape}): delete it and run again")
    return vectors


def warm_up(backbone: nn.Module, images: tuple[int, ...], device: str) -> None:
    """Has a GPU load what batches of this shape need."""
    with _frozen(backbone, torch.device(device)) as forward:
        forward(torch.zeros(images, device=device))


def cost(vectors: np.ndarray | None) -> dict[str, Any]:
    """What is known of how features were made, for the cost of a run: images a second, the device, the precision.

    The precision is that of the device: features are made once for every run, whatever its protocol would train with.
    """
    file = getattr(vectors, "filename", None)
    try:
        facts = json.loads(Path(file).with_name("features.json").read_text()) if file else {}
    except (OSError, ValueError):
        return {}
    found = {f"embed_{key}": facts[key] for key in ("images_per_second", "device") if key in facts}
    return found | ({"precision": SHORT[facts["precision"]]} if facts.get("precision") in SHORT else {})


def _of_members(index: DatasetIndex, store: ImageStore, folder: Path,
                same: Callable[[DatasetIndex, ImageStore], np.ndarray]) -> list[np.ndarray]:
    """What the `same` extraction gives for each member of a union; nothing unless all are decoded as the union is."""
    decoded = [kept(one, folder) for one in members(index)]
    if not _same_images(store, decoded):
        return []
    return [same(one, own) for one, own in zip(members(index), decoded) if own is not None]


def _same_images(union: ImageStore, parts: Sequence[ImageStore | None]) -> bool:
    """Whether the decoded images of the members are those of the union: every size, and the pixels of some of each."""
    first = 0
    for own in parts:
        if own is None or not np.array_equal(union.geometry[first:first + len(own)], own.geometry):
            return False
        some = np.unique(np.linspace(0, len(own) - 1, 64).astype(int))
        if not all(np.array_equal(union.image(first + i), own.image(i)) for i in some.tolist()):
            return False
        first += len(own)
    return first == len(union)


def _unite(index: DatasetIndex, parts: list[np.ndarray], final: Path, precision: str) -> None:
    """The features of a union from those of its members, one after the other."""
    growing = GrowingFile(final.with_name("features.part"))
    try:
        growing.keep(0)
        for vectors in parts:
            for start in range(0, len(vectors), PIECE):
                _append(growing, torch.from_numpy(np.array(vectors[start:start + PIECE])), index, precision)
        growing.finish(final)
    finally:
        growing.close()


def _compute(index: DatasetIndex, loader: Loader, backbone: nn.Module, final: Path, precision: str, batch: int,
             progress: bool, facts: dict[str, Any], between: Callable[[], None]) -> None:
    from tqdm import tqdm

    began = time.perf_counter()
    growing = GrowingFile(final.with_name("features.part"))
    # Halves in two precisions would be worse than a new start.
    if growing.pieces and growing.pieces[0]["precision"] != precision:
        growing.keep(0)
    done = sum(piece["rows"] for piece in growing.pieces)
    left = torch.arange(done, len(index))
    try:
        with tqdm(total=len(index), initial=done, desc=f"features of {index.name}", unit="img",
                  disable=None if progress else True) as bar, ThreadPoolExecutor(1) as writer:
            written: deque[Future[None]] = deque()
            # A thread hashes and writes, so that the GPU does not wait for the disk; a few pieces may wait for it.
            for piece in _pieces(loader, backbone, left.split(batch) if len(left) else (), bar, between):
                written.append(writer.submit(_append, growing, piece, index, precision))
                if len(written) > BEHIND:
                    written.popleft().result()
            while written:
                written.popleft().result()
        if len(left):
            rate = len(left) / (time.perf_counter() - began)
            write_json(final.with_name("features.json"), {
                **facts, "images_per_second": round(rate, 1), "device": provenance.device_name(str(loader.device))})
        growing.finish(final)
    finally:
        growing.close()


def _append(growing: GrowingFile, piece: Tensor, index: DatasetIndex, precision: str) -> None:
    rows = np.ascontiguousarray(piece.cpu().numpy(), np.float32)
    if not growing.pieces:
        needed, free = len(index) * rows.shape[1] * 4, shutil.disk_usage(growing.path.parent).free
        if needed > free:
            raise UserError(f"the features of '{index.name}' need {byte_size(needed)} in {growing.path.parent}, "
                            f"where {byte_size(free)} are free: make room or give another folder with --work DIR")
        growing.append(_npy_header(len(index), rows.shape[1]), rows=0, precision=precision)
    # a float64 sum of float32 numbers is finite where all of them are, and nowhere else
    bad = np.flatnonzero(~np.isfinite(rows.sum(1, dtype=np.float64)))
    if len(bad):
        path = index.paths[sum(p["rows"] for p in growing.pieces) + bad[0]]
        raise UserError(f"the backbone gives features that are not finite for image {path} of '{index.name}': "
                        "check its weights and the transform")
    growing.append(rows.data.cast("B"), rows=len(rows))


def _pieces(loader: Loader, backbone: nn.Module, batches: Iterable[Tensor], bar: Any,
            between: Callable[[], None]) -> Iterator[Tensor]:
    """The features of these batches of ids, in pieces of at least `PIECE` rows but for the last."""
    held: list[Tensor] = []
    with _frozen(backbone, loader.device) as forward:
        for ids, images in loader.prefetch(batches):
            try:
                between()
            except BaseException:
                if held:
                    yield torch.cat(held)
                raise
            held.append(forward(images))
            bar.update(len(ids))
            if sum(map(len, held)) >= PIECE:
                yield torch.cat(held)
                held = []
    if held:
        yield torch.cat(held)


@contextmanager
def _frozen(backbone: nn.Module, device: torch.device) -> Iterator[Callable[[Tensor], Tensor]]:
    """The backbone as a function of images in evaluation mode; its mode is put back afterwards."""
    cuda = device.type == "cuda"
    modes = [(module, module.training) for module in backbone.modules()]
    # also on a CPU convolutions are faster with the channels last (EfficientNet-Lite0: 1.4 times)
    backbone.to(device).to(memory_format=torch.channels_last).eval()
    network = _cast(backbone) if cuda else backbone

    def forward(images: Tensor) -> Tensor:
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=cuda):
            features = network(images.contiguous(memory_format=torch.channels_last))
        if features.ndim != 2 or len(features) != len(images):
            raise UserError(f"the backbone gives {tuple(features.shape)} for {len(images)} images where pooled "
                            "features, (b, d), are wanted: pool its output")
        return features.float()

    try:
        yield forward
    finally:
        for module, mode in modes:
            module.training = mode


def _cast(backbone: nn.Module) -> nn.Module:
    """A copy whose products have bfloat16 weights, which autocast would make anew for every batch."""
    network = copy.deepcopy(backbone)
    for module in network.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.to(torch.bfloat16)
    return network


def _npy_header(rows: int, columns: int) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, columns)})
    return header.getvalue()
