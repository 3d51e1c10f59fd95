"""`wds:PATH`: WebDataset shards, tar files in which the files of one sample share a name: 0001.jpg, 0001.cls."""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.datasets import Dataset, DatasetIndex, shards
from benchmark.datasets.reading import SUFFIXES
from benchmark.utils.errors import UserError

IMAGES = tuple(suffix[1:] for suffix in SUFFIXES)
KEYS = ("label", "cls", "class", "class_name")
"""Where a JSON file beside an image may have the label."""


@dataclass(frozen=True)
class Samples:
    """Opens image i: the bytes of a tar file from `offsets[i]` on."""

    files: tuple[str, ...]
    starts: tuple[int, ...]
    """The number of the first image of each shard."""
    offsets: np.ndarray
    sizes: np.ndarray

    def __call__(self, i: int) -> Image.Image:
        shard = int(np.searchsorted(self.starts, i, side="right")) - 1
        with open(self.files[shard], "rb") as file:
            file.seek(int(self.offsets[i]))
            return Image.open(io.BytesIO(file.read(int(self.sizes[i]))))


def read(data: Path, rest: str) -> DatasetIndex:
    """Reads the heads of all members and the labels; images are read when they are decoded.

    The label is NAME.cls, else `label` (or cls, class) in NAME.json; `--columns label=KEY` names another key or
    another ending, `image=ENDING` one of several images.
    """
    place, folder, files, chosen = shards.find(rest, "wds", ".tar")
    parts = []
    for file in files:
        found = os.stat(file)
        parts.append(_scan(str(file), found.st_size, found.st_mtime_ns, chosen.get("image", ""),
                           chosen.get("label", "")))
    labels = [[label for label, *_ in part] for part in parts]
    numbers = all(re.fullmatch("-?[0-9]{1,18}", label) for part in labels for label in part)
    ids = [[f"{file.relative_to(folder).as_posix()}#{row} {os.path.basename(name)}"
            for row, (_, name, *_) in enumerate(part)] for file, part in zip(files, parts)]
    starts = tuple(np.cumsum([0, *map(len, parts[:-1])]).tolist())
    offsets, sizes = (np.array([one[k] for part in parts for one in part], np.int64) for k in (2, 3))
    return shards.indexed(place, folder, files,
                          [[int(label) if numbers else label for label in part] for part in labels], ids,
                          Samples(tuple(map(str, files)), starts, offsets, sizes))


@lru_cache(maxsize=1024)
def _scan(file: str, size: int, changed: int, image: str, label: str) -> tuple[tuple[str, str, int, int], ...]:
    """(label, name, offset, bytes) of each sample of a shard; size and time of change tell one from its successor."""
    pictures: dict[str, tuple[str, int, int]] = {}
    labels: dict[str, str] = {}
    try:
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                key, dot, ending = os.path.basename(member.name).partition(".")
                key = f"{os.path.dirname(member.name)}/{key}"
                if member.size < 0:  # which some versions of Python follow backwards for ever
                    raise ValueError("a member of negative size")
                if os.path.basename(member.name).startswith("."):  # `._0001.jpg`, which a Mac's tar adds to 0001.jpg
                    continue
                ending = ending.lower()
                picture = ending == image or (not image and ending.rpartition(".")[2] in IMAGES)
                if picture and (member.islnk() or member.issym() or member.issparse()):
                    raise UserError(f"{file}: {member.name[:100]!r} is a link or has holes, its bytes lie "
                                    "elsewhere; pack again with --dereference --hard-dereference, without --sparse")
                if not member.isreg() or not dot:
                    continue
                if picture:
                    if key in pictures:
                        raise UserError(f"{file}: {member.name[:100]!r} is a second image of its sample; say "
                                        "which is meant with --columns image=ENDING")
                    pictures[key] = (member.name, member.offset_data, member.size)
                elif ending in ("cls", "json", label):
                    content = archive.extractfile(member)
                    text = b"" if content is None else content.read(1 << 20)
                    found = _label(text, ending, label)
                    if found and (ending != "json" or key not in labels or label):
                        labels[key] = found
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:  # a size that no file can have
        raise UserError(f"{file} cannot be read as a tar file ({error}); fetch it again, and unpack it to .tar where "
                        "it is compressed") from None
    if not pictures:
        raise UserError(f"{file} has no image in it" + (f" that ends in .{image}" if image else "")
                        + "; take the shard away, or say what images end in with --columns image=ENDING")
    for row, (key, (name, *_)) in enumerate(pictures.items()):
        if key not in labels:
            raise UserError(f"{file}, sample {row} ({repr(name[:100])[1:-1]}): it has no label, neither a .cls file "
                            f"nor '{label or 'label'}' in a .json file; add it, or name the key with --columns "
                            "label=KEY")
        if labels[key] == "-1":  # as the hub's tools mark it
            raise UserError(f"{file}, sample {row} ({repr(name[:100])[1:-1]}): its label is -1, kept secret, "
                            "which names no class; take the shard away, or name another key with --columns label=KEY")
    return tuple((labels[key], *facts) for key, facts in pictures.items())


def _label(text: bytes, ending: str, wanted: str) -> str:
    """The label in one of a sample's files; '' where there is none."""
    if ending != "json":
        return text.decode("utf-8-sig", "replace").strip() if not wanted or ending == wanted else ""
    try:
        facts = json.loads(text)
        values = [facts[key] for key in ([wanted] if wanted else KEYS) if key in facts]
    except (ValueError, TypeError, RecursionError):
        return ""
    return str(values[0]).strip() if values and isinstance(values[0], (int, str)) else ""


DATASETS = (Dataset(
    name="wds:",
    title="wds:PATH, WebDataset shards (.tar) that lie here",
    read=read,
    source="Your own copy; nothing is downloaded.",
    tree="""\
PATH/train-000000.tar              with 0001.jpg and 0001.cls, or 0001.json that has a label, for each sample
PATH/test-000000.tar               with other classes than train, else all are put together
or one file; wds:PATH@label=KEY+image=ENDING, or --columns, names the key and the ending""",
),)
