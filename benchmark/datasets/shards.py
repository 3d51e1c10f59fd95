"""What readers of sharded files share: which shards there are, which side they are of, and the index in their order."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from benchmark.datasets import DatasetIndex, known_split
from benchmark.datasets.folder import HELD_OUT, TRAIN, own_name
from benchmark.datasets.reading import NotThere, files_under, make_index
from benchmark.utils.errors import UserError, near

COLUMNS = ("image", "label")


def with_columns(name: str, columns: str | None) -> str:
    """The name of a dataset of shards with the columns to read, as `--columns` gives them.

    >>> with_columns("parquet:birds", "label=species"), with_columns("cub", None)
    ('parquet:birds@label=species', 'cub')
    """
    if not columns:
        return name
    if name.partition(":")[0] not in ("parquet", "wds"):
        raise UserError(f"--columns is for parquet:PATH and wds:PATH, not for '{name}'; leave it out")
    return f"{name}@{'+'.join(part.strip() for part in columns.split(','))}"


def split_columns(rest: str) -> tuple[str, str]:
    """(the path, the columns or '') of what follows the colon; the name of a folder may have an @ as well.

    >>> split_columns("birds@label=species"), split_columns("birds@v2"), split_columns("birds@v2@label=species")
    (('birds', 'label=species'), ('birds@v2', ''), ('birds@v2', 'label=species'))
    """
    path, at, columns = rest.rpartition("@")
    return (path, columns) if at and "=" in columns else (rest, "")


def find(rest: str, family: str, ending: str) -> tuple[Path, Path, list[Path], dict[str, str]]:
    """(the path given, the folder of the shards, these in order of their names, the columns chosen) after the colon."""
    text, chosen = split_columns(rest)
    columns = dict(part.partition("=")[::2] for part in chosen.split("+")) if chosen else {}
    for key, value in columns.items():
        if key not in COLUMNS or not value:
            raise UserError(f"--columns {chosen}: write image=NAME or label=NAME{near(key, COLUMNS)}")
    path = Path(text).expanduser()
    if text and path.is_file():
        return path, path.parent, [path], columns
    if not text or not path.is_dir():
        raise NotThere(f"there is no file or folder '{text}'; give {family}:PATH with a {ending} file or a folder of "
                       "such")
    files = (path / name for name in files_under(path) if name.endswith(ending))
    shards = sorted(file for file in files if file.is_file())
    if not shards:
        packed = next(path.rglob(f"*{ending}.*"), None)
        remedy = f"unpack {packed.name} first" if packed else f"give the folder that has them, {family}:PATH"
        raise UserError(f"{path} has no {ending} file; {remedy}")
    return path, path, shards, columns


def side_of(shard: Path) -> str:
    """train or test where the name of a shard, or else that of its folder, begins with such a word, else ''.

    >>> side_of(Path("train-00000-of-00002.parquet")), side_of(Path("val/0000.parquet")), side_of(Path("trains.tar"))
    ('train', 'test', '')
    """
    for name in (shard.name, shard.parent.name):
        if match := re.match(rf"({'|'.join((*TRAIN, *HELD_OUT))})(?![A-Za-z])", name, re.IGNORECASE):
            return "train" if match[1].lower() in TRAIN else "test"
    return ""


def indexed(place: Path, folder: Path, shards: Sequence[Path], labels: Sequence[Sequence[Any]],
            ids: Sequence[Sequence[str]], opener: Callable[[int], Image.Image],
            class_names: Mapping[Any, str] | None = None) -> DatasetIndex:
    """The index of all rows in the order of the shards, so that they are decoded as they lie.

    Where shards of train and test (or val) have different classes, these are the split; where the classes are the same,
    as for classification, all are put together and halved in their order.
    """
    keys = [label for part in labels for label in part]
    if not all(isinstance(key, int) for key in keys):
        keys = [str(key) for key in keys]
    sides = [side_of(shard.relative_to(folder)) for shard, part in zip(shards, labels) for _ in part]
    first = {key for key, side in zip(keys, sides) if side == "train"}
    second = {key for key, side in zip(keys, sides) if side == "test"}
    train, note = None, ""
    if first and second and not first & second:
        train = first
    elif first & second and not (first <= second or second <= first):
        raise UserError(f"{folder}: class '{min(first & second)}' is in shards of both sides "
                        f"({len(first & second)} such classes); the two sides need different classes, or the same ones")
    elif first & second:
        note = ("shards of train and test have the same classes, as for classification: their images are put together, "
                f"and the {len(first | second):,} classes are halved in order")
        if split := known_split(sides.count("train"), sides.count("test")):
            note = f"shards of train and test are {split}: all are put together, and the classes halved in order"
    index = make_index(own_name(place.with_suffix("")), folder, [one for part in ids for one in part], keys,
                       where=folder, class_names=class_names, train=train, as_given=True)
    return replace(index, opener=opener, note=note)
