"""`parquet:PATH`: image datasets of the Hugging Face hub saved locally, with a column of images and one of labels."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmark.datasets import Dataset, DatasetIndex, shards
from benchmark.datasets.parquet_pages import LARGEST, Group, groups, pages
from benchmark.utils.errors import UserError
from reports.wording import byte_size

LABELS = ("label", "labels", "class", "fine_label", "category", "target")


@dataclass(frozen=True)
class Rows:
    """Opens image i, the row of a shard; rows are read one after the other, as they are decoded."""

    shards: tuple[str, ...]
    starts: tuple[int, ...]
    """The number of the first image of each shard."""
    column: str
    beside: tuple[str, ...] = ()
    """Images that shards name by their paths."""

    @property
    def files(self) -> tuple[str, ...]:
        return self.shards + self.beside

    def __call__(self, i: int) -> Image.Image:
        shard = int(np.searchsorted(self.starts, i, side="right")) - 1
        content = _image(self.shards[shard], self.column, i - self.starts[shard])
        if isinstance(content, Mapping):
            raw, path = content.get("bytes"), content.get("path")
            if raw is None and (file := _named(self.shards[shard], path)):
                return Image.open(file)
        else:
            raw = content
        if not isinstance(raw, bytes):
            raise UserError("its row has no image")
        return Image.open(io.BytesIO(raw))


def _named(shard: str, path: Any) -> str:
    """The plain file below the folder of a shard that one of its rows names; '' where there is none."""
    if not path or not isinstance(path, str) or Path(path).is_absolute() or ".." in Path(path).parts:
        return ""
    file = os.path.join(os.path.dirname(shard), path)
    return file if os.path.isfile(file) else ""


def _image(file: str, column: str, row: int) -> Any:
    """The content of one row, as the shard has it."""
    for group, first in enumerate(starts := _starts(file)):
        if row < (starts[group + 1] if group + 1 < len(starts) else row + 1):
            return _group(file, column, group).row(row - first)
    raise UserError("there is no such row")


class _Group:
    """The images of a group of rows, of which one at a time is in memory: a kilobyte can repeat one a million times."""

    def __init__(self, file: str, column: str, group: int) -> None:
        opened = _opened(file)
        _check_pages(file, column, group)
        self._restart = lambda: opened.iter_batches(1, row_groups=[group], columns=[column])
        self._rows, self._at, self._value = self._restart(), -1, None

    def row(self, row: int) -> Any:
        """The content of a row; those before it are passed over."""
        if row < self._at:
            self._rows, self._at = self._restart(), -1
        while self._at < row:
            batch = next(self._rows, None)
            if batch is None:
                raise UserError("its group has fewer rows than the shard says")
            self._at, self._value = self._at + len(batch), batch.column(0)[-1]
        return self._value.as_py()  # type: ignore[attr-defined]


def _check_pages(file: str, column: str, *chosen: int) -> None:
    """A UserError where a page of a column, in these groups of rows or in all, is too large to be unpacked."""
    paths = [part.path for part in _opened(file).schema]
    for group in chosen or range(len(_groups(file))):
        for path, chunk in zip(paths, _groups(file)[group].chunks):
            row = _starts(file)[group]
            for page in pages(file, chunk) if f"{path}.".startswith(f"{column}.") else ():
                if page.size > LARGEST:
                    what = "dictionary" if page.dictionary else "page"
                    raise UserError(
                        f"{file}, row {row}: the {what} of '{path}' "
                        f"that begins there has {byte_size(page.size)}, more than the {byte_size(LARGEST)} that "
                        "are read at once; write the shard again with smaller pages (pyarrow: write_batch_size=16, "
                        "use_dictionary=False)")
                row += page.rows


@lru_cache(maxsize=64)
def _groups(file: str) -> tuple[Group, ...]:
    _opened(file)  # which says best what is wrong with a file that is not parquet at all
    return groups(file)


@lru_cache(maxsize=64)
def _starts(file: str) -> tuple[int, ...]:
    """The number of the first row of each group of rows."""
    return tuple(np.cumsum([0, *(group.rows for group in _groups(file)[:-1])]).tolist())


@lru_cache(maxsize=2)
def _group(file: str, column: str, group: int) -> _Group:
    return _Group(file, column, group)


@lru_cache(maxsize=8)
def _opened(file: str, dictionary: str = "") -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise UserError("reading parquet files needs pyarrow: pip install 'oodml[parquet]'") from None
    try:
        return parquet.ParquetFile(file, read_dictionary=[dictionary] if dictionary else None, buffer_size=1 << 20)
    except _damages() as error:
        raise UserError(f"{file} cannot be read as a parquet file ({_said(error)}); fetch it "
                        "again") from None


def _damages() -> tuple[type[Exception], ...]:
    """What pyarrow answers damaged bytes with."""
    import pyarrow

    return (pyarrow.ArrowException, OSError, ValueError, OverflowError)


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _values(file: Path, column: str, what: str) -> list[Any]:
    """All values of a column of a shard, equal texts as one: a kilobyte can name one long text a million times."""
    try:
        values: list[Any] = []
        _check_pages(str(file), column)
        simple = any(one.path == one.name == column for one in _opened(str(file)).schema)
        if not simple:
            same: dict[str, Any] = {}
            for batch in _opened(str(file)).iter_batches(64, columns=[column]):
                values += [same.setdefault(repr(value), value) for value in batch.column(0).to_pylist()]
            return values
        for chunk in _opened(str(file), column).read(columns=[column]).column(0).chunks:
            known = chunk.dictionary.to_pylist() if hasattr(chunk, "dictionary") else None
            places = chunk.to_pylist() if known is None else chunk.indices.to_pylist()
            values += places if known is None else [None if i is None else known[i] for i in places]
        return values
    except _damages() as error:
        raise UserError(f"{file}: its {what} cannot be read ({_said(error)}); fetch it again") from None


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads the labels of all shards; images are read when they are decoded.

    The columns are those of the features Image and ClassLabel that the hub's tools write down, else a column of
    structures with bytes and one called label; `--columns image=NAME,label=NAME` names others.
    """
    place, folder, files, chosen = shards.find(rest, "parquet", ".parquet")
    for opened in (_opened, _groups, _starts, _group):
        opened.cache_clear()  # type: ignore[attr-defined]  # a file may have been replaced since
    schema = _opened(str(files[0])).schema_arrow
    features = _features(schema)
    image = chosen.get("image") or _only("image", _images(schema, features), schema, folder)
    label = chosen.get("label") or _only("label", _labels(schema, features), schema, folder)
    columns = [_column(file, image, label) for file in files]
    ids = [[f"{file.relative_to(folder).as_posix()}#{row}" for row in range(len(part))]
           for file, part in zip(files, columns)]
    starts = tuple(np.cumsum([0, *map(len, columns[:-1])]).tolist())
    names = features.get(label, {}).get("names")
    names = names if isinstance(names, list) else ()
    rows = Rows(tuple(map(str, files)), starts, image, _beside(files, image))
    return shards.indexed(place, folder, files, columns, ids, rows, dict(enumerate(map(str, names))))


def _beside(files: Sequence[Path], image: str) -> tuple[str, ...]:
    """The image files that shards name, which are part of what the dataset contains; most shards hold their images."""
    found: dict[str, None] = {}
    for file in files:
        if f"{image}.path" in (column.path for column in _opened(str(file)).schema):
            for row in _values(file, f"{image}.path", "paths of images"):
                if row and (name := _named(str(file), row["path"])):
                    found[name] = None
    return tuple(found)


def _column(file: Path, image: str, label: str) -> list[Any]:
    """The labels of a shard; a UserError that names the row where one is missing."""
    opened = _opened(str(file))
    for column in (image, label):
        if column not in opened.schema_arrow.names:
            raise UserError(f"{file} has no column '{column}'; there are {', '.join(opened.schema_arrow.names)} "
                            "(--columns image=NAME,label=NAME)")
    labels = _values(file, label, "labels")
    for row, value in enumerate(labels):
        # -1 is how the hub marks a row of a test set whose label is kept secret
        if value is None or value == -1 or value == "" or not isinstance(value, (int, str)):
            raise UserError(f"{file}, row {row}: its label is {value!r}, which names no class; take the shard away, or "
                            "name another column (--columns label=NAME)")
    return labels


def _features(schema: Any) -> dict[str, Any]:
    """What the hub's tools wrote down of each column."""
    try:
        facts = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, ValueError, TypeError, RecursionError):
        return {}
    return {name: one for name, one in facts.items() if isinstance(one, dict)} if isinstance(facts, dict) else {}


def _images(schema: Any, features: dict[str, Any]) -> list[str]:
    marked = [name for name, one in features.items() if one.get("_type") == "Image"]
    return marked or [field.name for field in schema if re.match(r"struct<.*\bbytes: (large_)?binary|(large_)?binary$",
                                                                 str(field.type))]


def _labels(schema: Any, features: dict[str, Any]) -> list[str]:
    marked = [name for name, one in features.items() if one.get("_type") == "ClassLabel"]
    return marked or [name for name in LABELS if name in schema.names][:1]


def _only(what: str, found: list[str], schema: Any, folder: Path) -> str:
    if len(found) != 1:
        several = f"several columns may be the {what}: {', '.join(found)}" if found else \
            f"no column is known to be the {what} among {', '.join(schema.names)}"
        raise UserError(f"{folder}: {several}; say which with --columns {what}=NAME, "
                        f"or in its name, parquet:{folder}@{what}=NAME")
    return found[0]


DATASETS = (Dataset(
    name="parquet:",
    title="parquet:PATH, a dataset of the Hugging Face hub that lies here as parquet files",
    read=read,
    source="Your own copy; nothing is downloaded.",
    tree="""\
PATH/train-00000-of-00002.parquet  a column of images (structures of bytes and path) and one of labels
PATH/test-00000-of-00001.parquet   with other classes than train, else all are put together
or one file; parquet:PATH@label=NAME+image=NAME, or --columns, names the columns""",
),)
