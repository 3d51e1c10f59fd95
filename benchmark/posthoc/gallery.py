"""What a network retrieves: some queries with their nearest images, and these as small pictures."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmark.data.store import ImageStore
from benchmark.data.task import Side
from benchmark.metrics import search
from benchmark.metrics.retrieval import by_role
from reports.analysis import galleries

NEIGHBOURS = 7
SIDE = 112
"""Pixels of the longer side of a picture in a gallery."""
THUMBNAIL = 48
"""Pixels of a picture that is packed with a record, in eight greys."""


@dataclass(frozen=True)
class Retrieved:
    """For each query its row on the test side, its nearest images (rows, similarities), and how badly it fails.

    `failure` is the similarity of the nearest wrong image less that of the nearest right one: above zero, the first
    answer is wrong.
    """

    queries: np.ndarray
    neighbours: np.ndarray
    similarities: np.ndarray
    failure: np.ndarray


def retrieve(side: Side, embeddings: Tensor) -> Retrieved:
    """The nearest images of every query and how badly it fails; queries without a second image of their class left out.

    Query and gallery of a side with roles are different images; otherwise every image is both, but not its own answer.
    """
    asks, answers, own = by_role(np.full(len(side), "") if side.roles is None else side.roles)
    gallery_ = embeddings[torch.from_numpy(answers).to(embeddings.device)]
    asked = embeddings[torch.from_numpy(asks).to(embeddings.device)]
    nearest, similarities = search.neighbours(asked, gallery_, NEIGHBOURS, exclude_self=own)
    labels = torch.from_numpy(side.labels)
    failure = _failures(asked, gallery_, labels[asks], labels[answers], own)
    counts = failure < np.inf  # of a single class no answer is wrong
    return Retrieved(asks[counts], answers[nearest.cpu().numpy()][counts], similarities.cpu().numpy()[counts],
                     failure[counts])


def _failures(asked: Tensor, gallery_: Tensor, labels: Tensor, known: Tensor, own: Tensor) -> np.ndarray:
    """Similarity of the nearest wrong image less that of the nearest right one; none where there is no right one."""
    parts = []
    for start in range(0, len(asked), 1024):
        rows = slice(start, start + 1024)
        products = (asked[rows].float() @ gallery_.float().T).cpu()
        inside = (own[rows] >= 0).nonzero().squeeze(1)
        same = labels[rows, None] == known[None, :]
        wrong = products.masked_fill(same, -torch.inf).amax(1)
        products[inside, own[rows][inside]] = -torch.inf
        parts.append(wrong - products.masked_fill(~same, -torch.inf).amax(1))
    return torch.cat(parts).numpy()


def sample(side: Side, retrieved: Retrieved, kind: str, count: int, seed: int) -> dict[str, Any]:
    """Some queries with their neighbours: drawn at random, or those that fail worst, one a class."""
    if kind == "sampled":
        chosen = np.sort(np.random.default_rng(seed).permutation(len(retrieved.queries))[:count])
        title, note = "Sampled queries", "Drawn at random."
    else:
        order = np.argsort(-retrieved.failure, kind="stable")
        classes = side.labels[retrieved.queries[order]]
        first = np.sort(np.unique(classes, return_index=True)[1])
        chosen = order[first[:count]]
        title, note = "Worst queries", "The wrong answer is nearest compared with the right one; one query a class."
    rows = []
    for i in chosen:
        own = side.labels[retrieved.queries[i]]
        rows.append({"query": _shot(side, retrieved.queries[i]), "neighbours": [
            _shot(side, row) | {"right": bool(side.labels[row] == own), "similarity": float(similarity)}
            for row, similarity in zip(retrieved.neighbours[i], retrieved.similarities[i]) if np.isfinite(similarity)]})
    return {"kind": kind, "title": title, "note": note, "neighbours": NEIGHBOURS, "rows": rows}


def compact(shown: dict[str, Any], store: ImageStore, right: float) -> dict[str, Any]:
    """A gallery with its pictures in one object, small enough to be packed with a record, see `galleries.collect`."""
    every = shots(shown)
    images = {}
    for image in sorted({shot["id"] for shot in every}):
        content = io.BytesIO()
        small = Image.fromarray(np.ascontiguousarray(store.image(image)))
        small.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        small.convert("L").quantize(8).save(content, "PNG", optimize=True)
        images[str(image)] = base64.b64encode(content.getvalue()).decode()
    return {"schema": galleries.SCHEMA, "right": round(right, 5), "images": images,
            "classes": {str(shot["id"]): shot["class"] for shot in every},
            "rows": [[str(row["query"]["id"]), [[str(one["id"]), round(one["similarity"], 3)]
                                                for one in row["neighbours"]]] for row in shown["rows"]]}


def shots(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Every image of a gallery: each query and its neighbours."""
    return [shot for row in shown["rows"] for shot in (row["query"], *row["neighbours"])]


def _shot(side: Side, row: int) -> dict[str, Any]:
    image = int(side.ids[row])
    return {"id": image, "image": file_of(image), "class": side.classes[side.labels[row]]}


def file_of(image: int) -> str:
    return f"image-{image}.png"


def picture(pixels: np.ndarray) -> Image.Image:
    """A small copy for a gallery; small images are enlarged in whole steps, so that their pixels stay square."""
    image = Image.fromarray(np.ascontiguousarray(pixels))
    step = SIDE // max(image.size)
    if step > 1:
        return image.resize((image.width * step, image.height * step), Image.Resampling.NEAREST)
    image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    return image
