"""Embeddings that somebody else's code made: how they are read, and what is checked before they are scored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.errors import UserError

FORMATS = (".npz", ".npy", ".safetensors", ".parquet")
ID_COLUMNS = ("id", "ids", "image", "path")


@dataclass(frozen=True)
class Submission:
    """Embeddings with the image each belongs to."""

    ids: tuple[str, ...]
    embeddings: np.ndarray

    @property
    def hash(self) -> str:
        """Of images and numbers, whatever the order and the file they came in."""
        order = np.argsort(np.array(self.ids))
        content = hashlib.sha256("\n".join(self.ids[i] for i in order).encode())
        content.update(np.ascontiguousarray(self.embeddings[order]).tobytes())
        return content.hexdigest()


def read(path: Path, ids: Path | None = None) -> Submission:
    """Reads npz ('embeddings' and 'ids'), npy or safetensors (ids in a text file, one a line), or parquet.

    The ids file of `NAME.npy` is `NAME.txt` if none is named; a line may go on after a tab, as in the list that
    `oodml splits export --format txt` writes. A safetensors file may hold the ids in its metadata instead, as a JSON
    list under 'ids'. A parquet file has a column 'id' (or 'image', 'path') and either a column 'embedding' of lists
    or one column a dimension.
    """
    if not path.exists():
        raise UserError(f"there is no file {path}")
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UserError(f"{path} is none of {', '.join(FORMATS)}; save the embeddings as one of these")
    try:
        names, table = readers[path.suffix](path)
    except (ValueError, KeyError, EOFError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from None
    if ids is not None or names is None:
        names = _lines(ids or path.with_suffix(".txt"))
    table = np.asarray(table)
    if table.ndim != 2 or table.dtype.kind not in "fiu" or table.shape[1] == 0:
        raise UserError(f"{path}: embeddings are {table.dtype} of shape {table.shape}; they must be a table of "
                        "numbers, one row an image")
    if len(names) != len(table):
        raise UserError(f"{path}: {len(table)} embeddings but {len(names)} ids; every row needs the path of its image")
    return Submission(tuple(_clean(str(name)) for name in names), table.astype(np.float32))


def align(submission: Submission, wanted: Sequence[str], known: Sequence[str]) -> np.ndarray:
    """The rows of `wanted` in its order; a UserError if one is missing, comes twice, or an id is not `known`."""
    rows = {name: row for row, name in enumerate(submission.ids)}
    if len(rows) < len(submission.ids):
        seen: set[str] = set()
        twice = next(name for name in submission.ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise UserError(f"'{twice}' comes twice ({len(submission.ids) - len(rows)} ids too many); "
                        "every image has one embedding")
    stray = rows.keys() - set(known)
    missing = [name for name in wanted if name not in rows]
    hint = "`oodml splits export` lists the images of a split"
    if missing:
        told = f"; it has ids such as '{min(stray)}' that the split does not know" if stray else ""
        raise UserError(f"{len(missing)} of {len(wanted)} test images have no embedding, such as '{missing[0]}'{told}; "
                        f"{hint}")
    if stray:
        raise UserError(f"{len(stray)} ids are no images of this split, such as '{min(stray)}'; {hint}")
    return submission.embeddings[[rows[name] for name in wanted]]


def check(embeddings: np.ndarray, ids: Sequence[str]) -> list[str]:
    """What a user should know of the numbers, one line each; what cannot be scored is a UserError."""
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(bad):
        raise UserError(f"{len(bad)} embeddings hold NaN or infinite values, such as that of '{ids[bad[0]]}'")
    norms = np.linalg.norm(embeddings.astype(np.float64), axis=1)
    if (norms == 0).any():
        row = int(np.flatnonzero(norms == 0)[0])
        raise UserError(f"{int((norms == 0).sum())} embeddings are all zero, such as that of '{ids[row]}'")
    notes = []
    if np.abs(norms - 1).max() > 1e-3:
        notes.append(f"lengths run from {norms.min():.4g} to {norms.max():.4g}: normalised before the search")
    distinct = len(np.unique(embeddings, axis=0))
    if distinct < len(embeddings):
        notes.append(f"only {distinct} of {len(embeddings)} embeddings are different; equal ones are ties, "
                     "ordered by the position of their image")
    return notes


def _npz(path: Path) -> tuple[Sequence[Any] | None, Any]:
    with np.load(path) as file:
        if "embeddings" not in file:
            raise KeyError(f"no array 'embeddings'; it has {', '.join(file.files) or 'none'}")
        return next((file[name].tolist() for name in ID_COLUMNS if name in file), None), file["embeddings"]


def _npy(path: Path) -> tuple[None, Any]:
    return None, np.load(path)


def _safetensors(path: Path) -> tuple[Sequence[Any] | None, Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            names, facts = list(file.keys()), file.metadata() or {}
            if "embeddings" not in names:
                raise KeyError(f"no tensor 'embeddings'; it has {', '.join(names) or 'none'}")
            return json.loads(facts["ids"]) if "ids" in facts else None, file.get_tensor("embeddings").float().numpy()
    except SafetensorError as error:
        raise ValueError(str(error)) from None


def _parquet(path: Path) -> tuple[Sequence[Any] | None, Any]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise UserError("reading parquet needs pyarrow: `pip install pyarrow`, or save the embeddings as npz") from None
    column = next((name for name in ID_COLUMNS if name in frame), None)
    names = None if column is None else frame.pop(column).tolist()
    if "embedding" in frame:
        return names, np.stack([np.asarray(row) for row in frame["embedding"]])
    return names, frame.to_numpy()


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UserError(f"the ids of the embeddings are not there: no text file {path}; name it with --ids FILE, "
                        "one image path a line") from None
    return [line.split("\t")[0] for line in text.splitlines() if line.strip()]


def _clean(name: str) -> str:
    return name.strip().replace("\\", "/").removeprefix("./")
