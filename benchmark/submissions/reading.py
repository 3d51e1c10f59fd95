"""Embeddings made by other code: how they are read, and what is checked before they are scored."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.utils.errors import UserError
from reports.wording import counted

ID_COLUMNS = ("id", "ids", "image", "path", "file_name", "image_path", "filename")
VECTOR_COLUMNS = ("embedding", "embeddings", "features", "feature", "vector")
LISTED = ("class", "label", "part", "role")
"""What else `oodml splits export` says of an image; no dimension of an embedding, and not read."""
LISTS = "txt (one image path a line), csv or json as `oodml splits export` writes them, or npy of strings"


@dataclass(frozen=True)
class Submission:
    """Embeddings with the image each belongs to."""

    ids: tuple[str, ...]
    embeddings: np.ndarray

    @cached_property
    def hash(self) -> str:
        """Of images and numbers, whatever the order, the file and the precision they came in."""
        order = np.argsort(np.array(self.ids))
        content = hashlib.sha256("\n".join(self.ids[i] for i in order).encode())
        with np.errstate(over="ignore"):
            single = self.embeddings.astype(np.float32)
        numbers = single if (single == self.embeddings).all() else self.embeddings
        content.update(np.ascontiguousarray(numbers[order]).tobytes())
        return content.hexdigest()


def read(path: Path, ids: Path | None = None) -> Submission:
    """Reads npz ('embeddings' and 'ids'), npy or safetensors (ids in a file of their own), or parquet.

    The ids file of `NAME.npy` is `NAME.txt` if none is named: one path a line, which may go on after a tab, as in the
    list that `oodml splits export --format txt` writes; its csv and json are read too, and npy of strings. A
    safetensors file may hold the ids in its metadata instead, as a JSON list under 'ids'. A parquet file has a column
    'id' (or 'image', 'path', 'file_name'; also a struct with 'path', as Hugging Face keeps images) and either a column
    'embedding' (or 'embeddings', 'features', 'vector') of lists or a column a dimension, numbered from 0 on.
    float64 stays float64, all else becomes float32.
    """
    if not (path.is_file() or path.is_dir()):  # a pipe would be waited for
        raise UserError(f"there is no file {path}")
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".parquet": _parquet}
    if path.suffix not in readers:
        raise UserError(f"{path} is none of {', '.join(readers)}; save the embeddings as one of these")
    names, table = _from(path, readers[path.suffix])
    if ids is not None or names is None:
        listed = ids or path.with_suffix(".txt")
        if not listed.is_file():
            inside = f"{path} names none under {', '.join(ID_COLUMNS)}, and " if path.suffix != ".npy" else ""
            raise UserError(f"the ids of the embeddings are not there: {inside}there is no file {listed}; "
                            f"name one with --ids FILE: {LISTS}")
        names = _from(listed, _list)
    table = np.asarray(table)
    if table.ndim != 2 or table.dtype.kind not in "fiu" or table.shape[1] == 0:
        raise UserError(f"{path}: embeddings are {table.dtype} of shape {table.shape}; they must be a table of "
                        "numbers, one row an image")
    if len(names) != len(table):
        raise UserError(f"{path}: {len(table)} embeddings but {len(names)} ids; every row needs the path of its image")
    try:
        called = tuple(map(_clean, names))
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: the id {error.object!r} is not UTF-8; save the ids as strings, such as "
                        "np.array(ids, dtype=str)") from None
    return Submission(called,
                      table.astype(np.float64 if table.dtype == np.float64 else np.float32))


def align(submission: Submission, wanted: Sequence[str], known: Collection[str], where: str = "") -> np.ndarray:
    """The rows of `wanted` in its order; a UserError if one is missing, comes twice, or an id is not `known`.

    `known` are all images of the dataset: who embedded more of it than a split needs has made no mistake. `where` is
    the split whose images are wanted, for the message.
    """
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
        other = f"; it has ids such as '{min(stray)}' that the dataset does not know" if stray else ""
        raise UserError(f"{where}{': ' * bool(where)}{len(missing)} of {len(wanted)} test images have no embedding, "
                        f"such as '{missing[0]}'{other}; {hint}, and --split ID scores one alone")
    if stray:
        raise UserError(f"{len(stray)} ids are no images of this dataset, such as '{min(stray)}'; {hint}")
    return submission.embeddings[[rows[name] for name in wanted]]


def check(embeddings: np.ndarray, ids: Sequence[str]) -> list[str]:
    """What a user should know of the numbers, one line each; what cannot be scored is a UserError."""
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if len(bad):
        raise UserError(f"{counted(len(bad), 'embedding holds', 'embeddings hold')} NaN or infinite values, such as "
                        f"that of '{ids[bad[0]]}'; check the network's weights and its input")
    largest = np.abs(embeddings).max(axis=1).astype(np.float64)
    if (largest == 0).any():
        row = int(np.flatnonzero(largest == 0)[0])
        zero = counted(int((largest == 0).sum()), "embedding is", "embeddings are")
        raise UserError(f"{zero} all zero, such as that of '{ids[row]}', and nothing is near to them; check "
                        "the network's weights and its input")
    # squares of what is left stay within float64, whatever the lengths
    norms = largest * np.linalg.norm(embeddings / largest[:, None], axis=1)
    notes = []
    if np.abs(norms - 1).max() > 1e-3:
        notes.append(f"lengths run from {norms.min():.4g} to {norms.max():.4g}: normalised before the search")
    # rows as bytes: sorting them by their numbers takes twenty times as long; + 0 makes of -0 the 0 that it equals
    distinct = len({row.tobytes() for row in embeddings + 0})
    if distinct < len(embeddings):
        notes.append(f"only {distinct} of {len(embeddings)} embeddings are different; equal ones are ties, "
                     "ordered by the position of their image")
    return notes


def _from(path: Path, reader: Callable[[Path], Any]) -> Any:
    try:
        return reader(path)
    except UserError:
        raise
    except Exception as error:  # the libraries answer damaged bytes with a dozen kinds of errors
        why = " ".join(str(error).split()) or type(error).__name__
        if "allow_pickle" in why:
            why = "it holds Python objects; save the ids as strings, such as np.array(ids, dtype=str)"
        raise UserError(f"cannot read {path}: {why}") from None


def _npz(path: Path) -> tuple[Sequence[Any] | None, Any]:
    with np.load(path) as file:
        if "embeddings" not in file:
            raise ValueError(f"no array 'embeddings'; it has {', '.join(file.files) or 'none'}")
        return next((file[name].ravel().tolist() for name in ID_COLUMNS if name in file), None), file["embeddings"]


def _npy(path: Path) -> tuple[None, Any]:
    return None, np.load(path)


def _safetensors(path: Path) -> tuple[Sequence[Any] | None, Any]:
    import torch
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        names, facts = list(file.keys()), file.metadata() or {}
        if "embeddings" not in names:
            raise ValueError(f"no tensor 'embeddings'; it has {', '.join(names) or 'none'}")
        ids = json.loads(facts["ids"]) if "ids" in facts else None
        if ids is not None and not _all_texts(ids):
            raise ValueError("'ids' in its metadata must be a JSON list of strings")
        table = file.get_tensor("embeddings")
        return ids, table.to(torch.promote_types(table.dtype, torch.float32)).numpy()


def _parquet(path: Path) -> tuple[Sequence[Any] | None, Any]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise UserError("reading parquet needs pyarrow: `pip install pyarrow`, or save the embeddings as npz") from None
    frame.columns = frame.columns.map(str)
    column = next((name for name in ID_COLUMNS if name in frame), None)
    names = None if column is None else [_path_of(name) for name in frame.pop(column)]
    if vector := next((name for name in VECTOR_COLUMNS if name in frame), None):
        return names, np.stack([np.asarray(row) for row in frame[vector]])
    return names, frame[_series([name for name in map(str, frame) if name not in LISTED])].to_numpy()


def _path_of(image: Any) -> Any:
    """The path of an image that is kept as {"bytes": ..., "path": ...}; anything else as it is."""
    if isinstance(image, dict) and "path" not in image:
        raise ValueError("its images have no 'path'; add a column 'id' with the path of each")
    return image["path"] if isinstance(image, dict) else image


def _series(columns: Sequence[str]) -> list[str]:
    """Columns that are the dimensions of an embedding, in order; a ValueError that names one that is none.

    >>> _series(["d2", "d10", "d0", "d1", *(f"d{i}" for i in range(3, 10))])[-2:]
    ['d9', 'd10']
    """
    numbered = {name: match.groups() for name in columns if (match := re.fullmatch(r"(.*?)(\d+)", name))}
    main = [stem for stem, _ in Counter(stem for stem, _ in numbered.values()).most_common(1)]
    number = {name: int(digits) for name, (stem, digits) in numbered.items() if stem in main}
    order = sorted(number, key=lambda name: number[name])
    odd = [name for name in columns if name not in number] + [name for i, name in enumerate(order) if number[name] != i]
    if odd:
        raise ValueError(f"column '{odd[0]}' is no dimension of an embedding; these are numbered 0, 1, ... without a "
                         "gap, as in d0, d1, ... (or lists in one column 'embedding'): drop or rename it")
    return order


def _list(path: Path) -> Sequence[Any]:
    if path.suffix == ".npy":
        names = np.load(path)
        if names.dtype.kind not in "US":
            raise ValueError(f"it holds {names.dtype} and no strings; ids are {LISTS}")
        return names.tolist()
    with path.open("rb") as raw:
        if b"\0" in raw.read(1024):  # the embeddings themselves, for instance
            raise ValueError(f"it is no list; ids are {LISTS}")
    with path.open(encoding="utf-8-sig", newline="") as file:
        if path.suffix not in (".csv", ".json"):
            return [line.split("\t")[0] for line in file.read().splitlines() if line.strip()]
        entries = list(csv.DictReader(file)) if path.suffix == ".csv" else json.load(file)
    if _all_texts(entries):
        return entries
    tables = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    column = next((name for name in ID_COLUMNS if tables and all(name in entry for entry in entries)), None)
    if column is None:
        raise ValueError(f"it has no column {', '.join(ID_COLUMNS)}; ids are {LISTS}")
    return [entry[column] for entry in entries]


def _all_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _clean(name: Any) -> str:
    text = name.decode() if isinstance(name, bytes) else str(name)
    return text.rstrip().replace("\\", "/").removeprefix("./")  # a folder's name may begin with a space
