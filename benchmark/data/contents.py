"""What the files of a dataset contain: a hash of their bytes, read anew only where a size or a time has changed."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.datasets.index import DatasetIndex
from benchmark.utils.files import whole
from benchmark.utils.processors import cores

SAMPLE = 256
"""Files that `oodml datasets prepare` reads again."""


def contents(index: DatasetIndex, folder: Path, progress: bool = False) -> str:
    """SHA-256 over the bytes of every file of a dataset, in order; '' where its images are drawn.

    Two copies of the same files have the same, wherever they lie. Where all files are gone, it is that of the decoded
    images in `folder`, if there are some.
    """
    if index.files and not any(map(os.path.exists, index.files)):
        before = decoded(index, folder)
        return str(_facts(before).get("contents", "")) if before is not None else ""
    return combined(digests(index, folder, progress))


def decoded(index: DatasetIndex, folder: Path, shorter: int | None = None) -> Path | None:
    """The folder of the images of this list that were decoded last, whatever the files contained; of this shorter side,
    if one is given."""
    homes = (path.parent for path in folder.glob(f"images-{slug(index)}-*/store.json"))
    alike = [home for home in homes if (facts := _facts(home)).get("index") == index.hash
             and shorter in (None, facts.get("shorter_side"))]
    return max(alike, key=lambda home: (home / "store.json").stat().st_mtime_ns, default=None)


def _facts(home: Path) -> dict[str, Any]:
    try:
        facts = json.loads((home / "store.json").read_text())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def digests(index: DatasetIndex, folder: Path, progress: bool = False) -> np.ndarray:
    """The hash of each file, (files, 32); zeros for one that cannot be read, which decoding will name.

    They are kept in `folder/contents-NAME-HASH16.npy` and read from there as long as no file's size or time of change
    is another.
    """
    if not index.files:
        return np.zeros((0, 32), np.uint8)
    home = _home(index, folder)
    kept = _read(home, len(index.files))
    if kept is not None:
        return kept
    found = np.frombuffer(b"".join(_hash_all(index.files, index.name if progress else "")), np.uint8).reshape(-1, 32)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with whole(home) as part, part.open("wb") as file:
            np.save(file, found)
    except OSError:  # a working folder that cannot be written to: they are computed again
        pass
    return found


def combined(found: np.ndarray) -> str:
    """One hash of the hashes of several files; '' of none."""
    return hashlib.sha256(found.tobytes()).hexdigest() if len(found) else ""


def changed_silently(index: DatasetIndex, folder: Path, most: int | None = None) -> list[str]:
    """The files whose bytes are others than when they were hashed, though their size and time of change are the same.

    With `most` that many are read, spread evenly. Where there are any, the kept hashes are dropped.
    """
    kept = _read(_home(index, folder), len(index.files))
    if kept is None:
        return []
    count = len(index.files)
    chosen = range(count) if most is None or most >= count else np.unique(np.linspace(0, count - 1, most).astype(int))
    files = [index.files[i] for i in chosen]
    wrong = [file for file, i, digest in zip(files, chosen, _hash_all(files, "")) if bytes(kept[i]) != digest]
    if wrong:
        _home(index, folder).unlink(missing_ok=True)
    return wrong


def stamp(index: DatasetIndex) -> str:
    """SHA-256 over the size and the times of change of every file; a missing one counts as such.

    Of content and of status: an archive can set the first, the same for all that it unpacks, but nobody the second.
    """
    facts = hashlib.sha256(index.hash.encode())
    for file in index.files:
        try:
            found = os.stat(file)
            facts.update(b"%d %d %d\n" % (found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        except OSError:
            facts.update(b"-\n")
    return facts.hexdigest()


def slug(index: DatasetIndex) -> str:
    """The dataset's name as part of a file's."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", index.name)


def _home(index: DatasetIndex, folder: Path) -> Path:
    return folder / f"contents-{slug(index)}-{stamp(index)[:16]}.npy"


def _read(path: Path, count: int) -> np.ndarray | None:
    try:
        kept = np.load(path)
    except Exception:  # absent, or damaged in one of the many ways that numpy has an error for
        return None
    return kept if kept.dtype == np.uint8 and kept.shape == (count, 32) else None


def _hash_all(files: Sequence[str], name: str) -> list[bytes]:
    """The hash of each file, several at a time; with a name under a progress bar."""
    from tqdm import tqdm

    with ThreadPoolExecutor(min(8, cores())) as pool:
        return list(tqdm(pool.map(_hash, files), total=len(files), desc=f"hashing {name}", unit="file",
                         disable=None if name else True))


def _hash(file: str) -> bytes:
    try:
        if not os.path.isfile(file):  # reading a named pipe would wait for ever
            return bytes(32)
        digest = hashlib.sha256()
        with open(file, "rb", buffering=0) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        return digest.digest()
    except OSError:
        return bytes(32)
