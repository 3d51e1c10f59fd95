"""Exact nearest neighbours by chunked matrix products, on the device where the embeddings lie."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmark.utils.errors import UserError, near
from benchmark.utils.tf32 import no_tf32

Backend = Literal["torch", "faiss"]


class Neighbours(NamedTuple):
    """The neighbours of the queries `start`, `start + 1`, ...: gallery indices and similarities, nearest first."""

    start: int
    indices: Tensor
    similarities: Tensor


def neighbours(queries: Tensor, gallery: Tensor | None = None, k: int = 1, *, exclude_self: bool | Tensor,
               chunk: int | None = None, backend: Backend = "torch") -> tuple[Tensor, Tensor]:
    """The k nearest gallery rows of every query by inner product: indices (q, k) and similarities (q, k).

    Nearest first. Similarities are float32 products whatever precision is switched on around; rows at equal
    similarity are ordered by index, and equal rows have equal similarity. Without a gallery the queries are their
    own. `exclude_self` leaves row i out of the neighbours of query i; where only some queries stand in the gallery it
    is a tensor of their rows there, -1 for the others. Where the gallery holds fewer than k others, all of them are
    given: the width is min(k, available), and a query with one fewer than others ends in index -1, similarity -inf.

    The `faiss` backend gives identical neighbours, where identical means: up to the rounding of float32 products. The
    two libraries sum the terms of a product in another order, so similarities differ by about 1e-7 for unit vectors;
    rows of the gallery whose exact similarities are further apart than that (1e-6 is safe) come in the same order from
    both. Equal rows are ties, ordered by index, in both.

    >>> points = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> neighbours(points, k=1, exclude_self=True)[0].T
    tensor([[1, 0, 1]])
    """
    chunks = list(stream(queries, gallery, k, exclude_self=exclude_self, chunk=chunk, backend=backend))
    if not chunks:
        return torch.empty((0, k), dtype=torch.int64), torch.empty((0, k))
    return torch.cat([part.indices for part in chunks]), torch.cat([part.similarities for part in chunks])


def stream(queries: Tensor, gallery: Tensor | None = None, k: int = 1, *, exclude_self: bool | Tensor,
           chunk: int | None = None, backend: Backend = "torch") -> Iterator[Neighbours]:
    """The same as `neighbours`, a chunk of queries at a time, so that memory stays bounded."""
    one_of("backend", backend, get_args(Backend))
    queries = queries.detach().float()
    gallery = queries if gallery is None else gallery.detach().float()
    if gallery.shape[1] != queries.shape[1]:
        raise UserError(f"the queries have {queries.shape[1]} dimensions, the gallery has {gallery.shape[1]}; "
                        "both must come from one network")
    own = exclude_self if isinstance(exclude_self, Tensor) else torch.arange(len(queries)) if exclude_self else None
    own = None if own is None else own.to(queries.device)
    width = max(0, min(k, len(gallery) - (own is not None and bool((own >= 0).all()))))
    if chunk is None:
        memory = 2**27 if queries.device.type == "cpu" else 2**31
        chunk = max(1, memory // (4 * max(1, len(gallery))))
    # one table for all chunks: an allocator may give the next chunk new memory before it gives back the last one's
    table = torch.empty((min(chunk, len(queries)), len(gallery)), dtype=torch.float32, device=queries.device)
    copies, originals = _copies(gallery)
    index = _faiss_index(gallery, width + 2) if backend == "faiss" and width else None

    def by_products(rows: Tensor) -> tuple[Tensor, Tensor]:
        with full_precision(queries.device.type):
            similarities = torch.mm(queries[rows], gallery.T, out=table[:len(rows)])
        if len(copies):
            similarities[:, copies] = similarities[:, originals]
        if own is not None:
            inside = (own[rows] >= 0).nonzero().squeeze(1)
            similarities[inside, own[rows[inside]]] = -torch.inf
        return _nearest(similarities, width)

    for start in range(0, len(queries), chunk):
        rows = torch.arange(start, min(start + chunk, len(queries)), device=queries.device)
        if index is None:
            indices, similarities = by_products(rows)
        else:
            indices, similarities, doubtful = _by_faiss(index, queries[rows], None if own is None else own[rows], width,
                                                        torch.cat([copies, originals]))
            if len(doubtful):
                indices[doubtful], similarities[doubtful] = by_products(rows[doubtful])
        if width == len(gallery):
            indices = indices.masked_fill(similarities == -torch.inf, -1)
        yield Neighbours(start, indices, similarities)


def one_of(what: str, name: str, choices: tuple[str, ...]) -> None:
    """A UserError unless the name is one of the choices."""
    if name not in choices:
        raise UserError(f"unknown {what} '{name}'{near(name, choices)}; there are {', '.join(choices)}")


@contextmanager
def full_precision(device: str) -> Iterator[None]:
    """float32 products as such: no TF32, no autocast, whatever the training around it has switched on."""
    with no_tf32(), torch.autocast(device, enabled=False), torch.no_grad():
        yield


def _nearest(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of every row, equal ones by index (`topk` promises no order among those, nor which it takes)."""
    if k == 0:
        return similarities[:, :0].long(), similarities[:, :0]
    if similarities.device.type == "cpu":
        return _nearest_by_threshold(similarities.numpy(), k)
    return _nearest_by_topk(similarities, k)


def _nearest_by_topk(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same on any device: `topk`, then the ties among and at the end of what it took put in order."""
    values, indices = similarities.topk(min(k + 1, similarities.shape[1]), dim=1)
    cut = (values[:, k - 1] == values[:, k]).nonzero().squeeze(1) if k < values.shape[1] else indices[:0, 0]
    values, indices = values[:, :k].contiguous(), indices[:, :k].contiguous()
    _order_ties(values, indices)
    for some in cut.split(256):
        rows, last = similarities[some], values[some, k - 1:k]
        above, level = rows > last, rows == last
        room = k - above.sum(dim=1, keepdim=True)
        chosen = above | (level & (level.cumsum(dim=1, dtype=torch.int32) <= room))
        by_index = chosen.nonzero()[:, 1].view(len(some), k)
        ordered = rows.gather(1, by_index).sort(dim=1, descending=True, stable=True)
        values[some], indices[some] = ordered.values, by_index.gather(1, ordered.indices)
    return indices, values


def _order_ties(values: Tensor, indices: Tensor) -> None:
    """Puts every run of equal values in the order of their indices, in place."""
    same = values[:, 1:] == values[:, :-1]
    as_before = pad(same, (1, 0)).flatten()
    at = (as_before | pad(same, (0, 1)).flatten()).nonzero().squeeze(1)
    run = (~as_before[at]).cumsum(dim=0)
    flat = indices.view(-1)
    order = flat[at].argsort()
    order = order[run[order].argsort(stable=True)]
    flat[at] = flat[at[order]]


def _nearest_by_threshold(table: np.ndarray, k: int) -> tuple[Tensor, Tensor]:
    """The same, quicker on a CPU: sorts only what lies above a threshold that at least k reach.

    Row by row, as a row stays in the cache through all the steps. The bits of floats above zero are integers of the
    same order, on which all of this is quicker; where the threshold is not above zero, all bits are put in order
    first. Similarity (its complement: the largest first) and index are sorted as one integer, which puts ties in order.
    """
    indices, values = np.empty((len(table), k), dtype=np.int64), np.empty((len(table), k), dtype=np.float32)
    for row, nearest, similarity in zip(table, indices, values):
        bits = row.view(np.int32)
        least = _reached(bits, k)
        if least <= 0:
            bits = (row + np.float32(0)).view(np.int32)
            bits ^= (bits >> 31) & 0x7FFFFFFF
            least = _reached(bits, k)
        passed = (bits >= least).nonzero()[0]
        keys = (~bits.take(passed)).astype(np.int64)
        keys <<= 32
        keys |= passed
        keys.sort()
        np.bitwise_and(keys[:k], 0xFFFFFFFF, out=nearest)
        similarity[:] = row.take(nearest)
    return torch.from_numpy(indices), torch.from_numpy(values)


def _reached(bits: np.ndarray, k: int) -> np.int32:
    """A value that at least k of these reach, and few more.

    The k-th largest among the maxima of about 2.5 k groups (never fewer than k): k groups hold a value that reaches
    it. A group is every m-th column, as neighbouring columns are often of one class; the few left over are in none.
    """
    size = -(-len(bits) // max(100, 5 * k // 2))
    count = len(bits) // size
    maxima = bits[:size * count].reshape(size, count).max(axis=0)
    maxima.partition(count - k)
    return maxima[count - k]


def _copies(gallery: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that equal an earlier row, and the first such row.

    A matrix product may round two equal columns differently (the edge of a block goes another way than its
    middle); equal rows would then not be ties. Found by a hash of the bits, exact in integers, then compared.
    """
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-2**62, 2**62, (gallery.shape[1],), generator=generator).to(gallery.device)
    hashes = torch.cat([((block + 0.0).contiguous().view(torch.int32) * factors).sum(dim=1)
                        for block in gallery.split(4096)] or [factors[:0]])
    own = torch.arange(len(gallery), device=gallery.device)
    values, group = hashes.unique(return_inverse=True)
    first = torch.full_like(values, len(gallery)).scatter_reduce(0, group, own, "amin")[group]
    copies = (first != own).nonzero().squeeze(1)
    equal = torch.cat([(gallery[some] == gallery[first[some]]).all(dim=1) for some in copies.split(4096)]
                      or [copies.bool()])
    return copies[equal], first[copies[equal]]


def _faiss_index(gallery: Tensor, k: int) -> Any:
    try:
        import faiss
    except ImportError:
        raise UserError("the faiss backend needs faiss: `pip install faiss-cpu`, or use the torch backend") from None
    # the GPU build answers no more than 2048 neighbours
    if gallery.is_cuda and k <= 2048 and getattr(faiss, "get_num_gpus", lambda: 0)() > 0:
        index: Any = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), gallery.shape[1])
    else:
        index = faiss.IndexFlatIP(gallery.shape[1])
    index.add(gallery.cpu().numpy())
    return index


def _by_faiss(index: Any, queries: Tensor, own: Tensor | None, k: int,
              repeated: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """faiss's k nearest, and the rows with ties among them or at their end, which faiss orders as it likes."""
    nearest = index.search(queries.cpu().numpy(), min(k + 2, index.ntotal))
    values, indices = (torch.from_numpy(a).to(queries.device) for a in nearest)
    doubtful = (values[:, 1:] == values[:, :-1]).any(dim=1)
    if len(repeated):
        doubtful |= torch.isin(indices, repeated).any(dim=1)
    if own is not None:
        itself = indices == own[:, None]
        order = itself.to(torch.int8).sort(dim=1, stable=True).indices
        values, indices = values.masked_fill(itself, -torch.inf).gather(1, order), indices.gather(1, order)
    return indices[:, :k], values[:, :k], doubtful.nonzero().squeeze(1)
