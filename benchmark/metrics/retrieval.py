"""Measures of retrieval, all from one pass over the nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from benchmark.metrics import search
from benchmark.utils.errors import UserError

KS = (1, 2, 4, 8, 10, 20, 30, 100, 1000)
DEPTH = 1000
"""How far down mAP@1000 looks."""
Similarity = Literal["cosine", "dot"]
Array = Any
"""A numpy array, a torch tensor or a sequence of numbers."""


@dataclass(frozen=True)
class Retrieval:
    """What one search tells: the mean of every measure, and the outcome of every query (for paired comparisons)."""

    scores: dict[str, float]
    first_hit: np.ndarray
    """Rank (from 1) of the first neighbour of the query's class; 0 where none of those looked at has it."""
    counted: np.ndarray
    """Which queries have another image of their class, and so count."""
    queries: np.ndarray
    """Which of the embeddings given were queries (all, but for images of the role 'gallery')."""
    precision: dict[str, np.ndarray] = field(default_factory=dict)
    """The average precision of every query, by the measure it is averaged in: 'map@1000', 'map@r'."""


def retrieval(embeddings: Array, labels: Array, *, gallery: Array | None = None, gallery_labels: Array | None = None,
              roles: Array | None = None, ks: Sequence[int] = KS, similarity: Similarity = "cosine",
              backend: search.Backend = "torch", chunk: int | None = None) -> dict[str, float]:
    """Recall@k, mAP@1000, MAP@R, R-precision and their `_released` variants; `outcomes` has the formulas.

    Args:
        embeddings: one row an image, an array or a tensor on any device; of any length, see `similarity`.
        labels: the class of each row, numbers or names.
        gallery, gallery_labels: what is searched, if not the embeddings themselves.
        roles: 'query', 'gallery' or '' (both) of each row, where one set holds queries and gallery.
        ks: the k of Recall@k.
        similarity: 'cosine', or 'dot' for the inner product.
        backend: what searches, 'torch' or 'faiss'; both give the same neighbours.
        chunk: queries searched at once [default: as many as fit a fixed amount of memory].

    Returns:
        Each measure as a fraction of 1, and the number of `queries` and of those `left_out`.

    >>> scores = retrieval(np.eye(4)[[0, 0, 1, 1]], [7, 7, 8, 8], ks=(1,))
    >>> scores["recall@1"], scores["map@r"], scores["map@1000_released"], scores["queries"]
    (1.0, 1.0, 0.5, 4)
    """
    return outcomes(embeddings, labels, gallery=gallery, gallery_labels=gallery_labels, roles=roles, ks=ks,
                    similarity=similarity, backend=backend, chunk=chunk).scores


def outcomes(embeddings: Array, labels: Array, *, gallery: Array | None = None, gallery_labels: Array | None = None,
             roles: Array | None = None, ks: Sequence[int] = KS, similarity: Similarity = "cosine",
             backend: search.Backend = "torch", chunk: int | None = None) -> Retrieval:
    """The outcome of every query and the means over queries, from one search.

    With h_r = 1 where the neighbour at rank r has the query's class, P_r = (h_1 + ... + h_r) / r, R the number of
    gallery images of that class without the query, and f the same with it where it stands in the gallery:

        recall@k            mean of max(h_1, ..., h_k)                   (hit rate)
        map@1000            mean of sum_{r<=1000} P_r h_r / min(R, 1000)
        map@r               mean of sum_{r<=R} P_r h_r / R               (Musgrave et al.)
        r-precision         mean of (h_1 + ... + h_R) / R
        map@1000_released   mean of sum_{r<=1000} P_r h_r / f            (Revisiting DML, ooDML: at best R / f)
        map@c_released      mean of sum_{r<=f} P_r h_r / f               (Revisiting DML)

    Without a gallery every image is query and gallery and no neighbour of itself (excluded by index). With one the
    two are different sets and nothing is excluded. `roles` says the same image by image: 'query', 'gallery' or ''
    (both: excluded as its own neighbour), which is how In-Shop stands in a union. A query with R = 0 is left out of
    every mean; `queries` counts those that remain, `left_out` the others; without any the means are NaN. Only
    max(1000, largest k, largest f) neighbours are looked up. Lengths may be of any size: for 'cosine' every row, for
    'dot' the whole table is first `scaled`.

    Neighbours at equal similarity are ordered by index, so a constant embedding gives every query the same list:
    the gallery from its first image on. Its recall@1 is the share of queries of the first image's class (that image
    itself hits if the second has its class). Over a random order of the images that is on average
    mean_i (n_i - 1) / (N - 1), n_i the size of i's class: what drawing a neighbour at random gives. For N images
    sorted into classes of m it is m / N where that chance is (m - 1) / (N - 1).
    """
    search.one_of("similarity", similarity, get_args(Similarity))
    sides = _sides(embeddings, labels, gallery, gallery_labels, roles, similarity).coded()
    sizes = np.bincount(sides.gallery_labels, minlength=1 + sides.query_labels.max(initial=0))[sides.query_labels]
    relevant = sizes - (0 if sides.own is False else (sides.own >= 0).numpy())
    sums = _look_up(sides, relevant, sizes, max(DEPTH, *ks, int(sizes.max(initial=0))), backend, chunk)
    first = sums["first"].astype(np.int64)
    counted = relevant > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        each: dict[str, np.ndarray] = {f"recall@{k}": (first > 0) & (first <= k) for k in ks}
        each |= {"map@1000": sums["ap@1000"] / np.minimum(relevant, DEPTH),
                 "map@1000_released": sums["ap@1000"] / sizes, "map@r": sums["ap@r"] / relevant,
                 "map@c_released": sums["ap@f"] / sizes, "r-precision": sums["hits@r"] / relevant}
    scores: dict[str, float] = {name: float(values[counted].mean()) if counted.any() else float("nan")
                                for name, values in each.items()}
    scores |= {"queries": int(counted.sum()), "left_out": int((~counted).sum())}
    precision = {name: np.where(counted, each[name], 0.0) for name in ("map@1000", "map@r")}
    return Retrieval(scores, first, counted, sides.asked, precision)


@dataclass(frozen=True)
class _Sides:
    """Queries and the gallery in which they are looked up, ready for inner products."""

    queries: Tensor
    query_labels: np.ndarray
    gallery: Tensor
    gallery_labels: np.ndarray
    own: Tensor | Literal[False]
    """The row of each query in the gallery, -1 for none; False where no query is in it."""
    asked: np.ndarray
    """Which of the embeddings given are queries."""

    def coded(self) -> _Sides:
        """The same with whole numbers from 0 on as labels."""
        both = np.concatenate([self.query_labels, self.gallery_labels])
        kinds = self.query_labels.dtype, self.gallery_labels.dtype
        if both.dtype.kind == "f" and {kind.kind for kind in kinds} == {"i", "u"}:
            raise UserError(f"labels of queries are {kinds[0]}, of the gallery {kinds[1]}, and no integers hold both; "
                            "convert one of them")
        codes = np.unique(both, return_inverse=True)[1]
        count = len(self.query_labels)
        return replace(self, query_labels=codes[:count], gallery_labels=codes[count:])


def _sides(embeddings: Array, labels: Array, gallery: Array | None, gallery_labels: Array | None, roles: Array | None,
           similarity: Similarity) -> _Sides:
    """One set that is searched for itself, a set and its gallery, or both out of one set by the roles of its images."""
    ready = unit if similarity == "cosine" else partial(scaled, whole=True)
    x, y = as_embeddings(embeddings), as_labels(labels)
    everything = np.ones(len(x), dtype=bool)
    if gallery is not None:
        g, z = as_embeddings(gallery).to(x.device), as_labels(gallery_labels)
        same_length(g, z)
    same_length(x, y)
    if roles is not None:
        roles = np.asarray(roles)
        _check_roles(roles, len(x), gallery is not None)
    if gallery is not None:
        return _Sides(ready(x), y, ready(g), z, False, everything)
    x = ready(x)
    if roles is None:
        return _Sides(x, y, x, y, torch.arange(len(x)), everything)
    queries, shown, own = by_role(roles)
    of_queries, of_gallery = (x[torch.from_numpy(rows).to(x.device)] for rows in (queries, shown))
    return _Sides(of_queries, y[queries], of_gallery, y[shown], own, roles != "gallery")


def _check_roles(roles: np.ndarray, count: int, gallery: bool) -> None:
    """A UserError unless every embedding has one of the three roles, and there is no gallery beside them."""
    unknown = sorted(set(roles.tolist()) - {"", "query", "gallery"})
    if gallery or len(roles) != count or unknown:
        what = f"'{unknown[0]}' is no role" if unknown else f"{len(roles)} roles for {count} embeddings"
        raise UserError(f"{'roles and a gallery exclude each other' if gallery else what}; "
                        "give every image one of 'query', 'gallery' and '' (both), or a gallery of its own")


def _look_up(sides: _Sides, relevant: np.ndarray, sizes: np.ndarray, depth: int, backend: search.Backend,
             chunk: int | None) -> dict[str, np.ndarray]:
    """Per query: the rank of its first hit, its hits up to R, and its sums of P_r h_r up to 1000, R and f.

    The hits are few among the neighbours, so all is summed over their list, on the CPU and in float64: the same
    neighbours give the same bits on every device.
    """
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("first", "hits@r", "ap@1000", "ap@r", "ap@f")}
    query_codes, gallery_codes = (torch.from_numpy(codes.astype(np.int32)).to(sides.queries.device)
                                  for codes in (sides.query_labels, sides.gallery_labels))
    for start, indices, _ in search.stream(sides.queries, sides.gallery, depth, exclude_self=sides.own, chunk=chunk,
                                           backend=backend):
        n, width = indices.shape
        classes = gallery_codes.index_select(0, indices.clamp(min=0).flatten()).view(n, width)
        hit = (classes == query_codes[start:start + n, None]) & (indices >= 0)
        row, rank = np.divmod(np.flatnonzero(hit.cpu().numpy()), max(width, 1))
        rank += 1
        hits = np.bincount(row, minlength=n)
        begin = np.cumsum(hits) - hits
        precision = (np.arange(len(row)) - begin[row] + 1) / rank
        within = rank <= relevant[start:start + n][row]
        first = np.zeros(n)
        first[hits > 0] = rank[begin[hits > 0]]
        parts["first"].append(first)
        for name, values in (("hits@r", within), ("ap@1000", precision * (rank <= DEPTH)), ("ap@r", precision * within),
                             ("ap@f", precision * (rank <= sizes[start:start + n][row]))):
            parts[name].append(np.bincount(row, values, minlength=n))
    return {name: np.concatenate(part) if part else np.zeros(0) for name, part in parts.items()}


def by_role(roles: np.ndarray) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Rows of the queries, rows of the gallery, and for each query its row in the gallery (-1 where it has none).

    >>> by_role(np.array(["gallery", "query", ""]))
    (array([1, 2]), array([0, 2]), tensor([-1,  1]))
    """
    query, shown = roles != "gallery", roles != "query"
    own = np.where(shown, np.cumsum(shown) - 1, -1)[query]
    return np.flatnonzero(query), np.flatnonzero(shown), torch.from_numpy(own)


def as_embeddings(values: Array) -> Tensor:
    """A tensor of finite numbers, one row an image, on the device where it was; float64 stays, all else is float32."""
    tensor = (values if isinstance(values, Tensor) else torch.from_numpy(np.ascontiguousarray(values))).detach()
    tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
    if tensor.ndim != 2 or tensor.shape[1] == 0:
        raise UserError(f"embeddings have shape {tuple(tensor.shape)}; they must be a table, one row an image")
    # NaN and infinity pass through a sum, which is quicker than a look at every number
    if not torch.isfinite(tensor.sum()) and not (finite := torch.isfinite(tensor).all(dim=1)).all():
        row = int((~finite).nonzero()[0])
        raise UserError(f"the embedding in row {row} holds NaN or infinite values; nothing can be near to it")
    return tensor


def scaled(x: Tensor, whole: bool = False) -> Tensor:
    """In float32, every row (or the whole table) by the power of two that takes its largest entry to [1/2, 1).

    That changes no bit of a direction, but squares of very large or small numbers no longer leave float32.

    >>> scaled(torch.tensor([[3e30, 0.0], [0.0, 5e-30], [0.0, 0.0]])).square().sum(dim=1) > 0
    tensor([ True,  True, False])
    """
    largest = torch.linalg.vector_norm(x, torch.inf, dim=1, keepdim=True)
    if whole and len(x):
        largest = largest.amax(dim=0, keepdim=True)
    largest = largest.clamp(min=torch.finfo(x.dtype).tiny)
    return (x * (torch.frexp(largest).mantissa / largest)).float()


def unit(x: Tensor) -> Tensor:
    """Every row divided by its length, in float32; zero rows stay as they are."""
    return normalize(scaled(x))


def as_labels(values: Array) -> np.ndarray:
    """A numpy array."""
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def same_length(x: Tensor, y: np.ndarray) -> None:
    """A UserError unless every embedding has one label."""
    if y.shape != (len(x),):
        raise UserError(f"{len(x)} embeddings have labels of shape {y.shape}; every embedding needs one label")
