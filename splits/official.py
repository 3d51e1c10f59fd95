"""Reads the split files released with the ooDML paper, without running anything that may be in them."""

from __future__ import annotations

import pickle
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from splits import SplitError
from splits.manifest import Ladder, Split, check, plain_file

ADMITTED = {("numpy.core.multiarray", "scalar"), ("numpy._core.multiarray", "scalar"), ("numpy", "dtype")}


class _NumbersAndNames(pickle.Unpickler):
    """Admits the constructors of numpy scalars, which the released files are made of, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "dtype"):
            return np.dtype
        if (module, name) in ADMITTED:
            # A new function each time: what a file hangs on it is gone with it.
            return lambda dtype, data=b"": _scalar(dtype, data)
        raise SplitError(f"refers to {module}.{name}, which no split file needs; it was not loaded")

    def persistent_load(self, pid: Any) -> Any:
        raise SplitError("refers to objects outside of the file; it was not loaded")


def _scalar(dtype: np.dtype, data: bytes) -> np.generic:
    if not isinstance(dtype, np.dtype) or dtype.kind not in "biufUS" or not isinstance(data, bytes):
        raise SplitError("holds a value that is neither a number nor a name; it was not loaded")
    return np.frombuffer(data, dtype=dtype, count=1)[0] if dtype.itemsize else np.zeros(1, dtype)[0]


@dataclass(frozen=True)
class Imported:
    """A released ladder, and what of it the local copy of the dataset does not have."""

    ladder: Ladder
    missing_classes: tuple[str, ...]
    missing_files: tuple[str, ...]
    """Image files 'class/file' that the few-shot episodes name; NAME_2 is here where a class has NAME twice."""


def read_pickle(stream: BinaryIO) -> Any:
    """The plain python values of a pickle made of numbers, names, lists and dicts; refuses all others."""
    try:
        return _plain(_NumbersAndNames(stream).load())
    except SplitError:
        raise
    # A broken pickle fails in whatever way its bytes lead to.
    except Exception as error:
        raise SplitError(f"is not a readable pickle ({type(error).__name__}: {error})") from None


def import_released(path: str | Path, *, dataset: str = "", dataset_hash: str = "",
                    classes: Sequence[str] | None = None, labels: np.ndarray | None = None,
                    images: Sequence[str] | None = None, train_classes: Sequence[str] = (),
                    test_classes: Sequence[str] = ()) -> Imported:
    """A released pickle as a ladder of kind 'imported', ids and class order as in the file.

    The file's `fid` becomes `frd`, the distance that scores are plotted over; the files do not say whether it was taken
    over images or over class means. `split_val` becomes the validation classes and `test_episodes` the ladder's
    episodes. With `classes`, `labels` and `images` (paths) of the local dataset the images are counted, and classes
    and files that it lacks are listed. The files name classes by folders, where '-' stands for a '/' ("Ram C-V" for
    Ram C/V): such a class gets its local name. Nothing else is renamed. The rung that has just `train_classes` and
    `test_classes` on its sides, the split that the dataset comes with, is of kind 'default'.
    """
    try:
        with plain_file(path).open("rb") as stream:
            released = read_pickle(stream)
    except OSError as error:
        raise SplitError(f"cannot read {path}: {error.strerror or error}") from None
    except SplitError as error:
        raise SplitError(f"{path} {error}") from None
    count = np.bincount([] if labels is None else labels, minlength=len(classes or ()))
    local = dict(zip(classes or (), count.tolist()))
    by_folder = {name.replace("/", "-"): name for name in local} | {name: name for name in local}
    splits: list[Split] = []
    episodes: dict[str, Any] = {}
    try:
        for id, entry in sorted(released.items()):
            train, test, validation = (tuple(by_folder.get(str(name), str(name)) for name in names)
                                       for names in (entry["train"], entry["test"], entry.get("split_val", ())))
            # In the SOP file split_val counts class numbers while train has product names: these cannot be matched.
            validation = validation if set(validation) <= set(train) else ()
            own = (set(train), set(test)) == (set(train_classes), set(test_classes))
            splits.append(Split(id=int(id), kind="default" if own else "imported", iteration=0, train=train, test=test,
                                validation=validation, train_images=sum(local.get(c, 0) for c in train),
                                test_images=sum(local.get(c, 0) for c in test), frd=float(entry["fid"]),
                                frd_class_means_released=None))
            episodes[str(id)] = _keyed_by_text(entry.get("test_episodes", {}), by_folder)
        named = set(_files_of(episodes))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SplitError(f"{path} is not a released ooDML split file ({type(error).__name__}: {error})") from None
    ladder = check(Ladder(dataset, dataset_hash, {"source": "released ooDML split file"}, {"file": Path(path).name},
                          tuple(splits), episodes=episodes), str(path))
    wanted = {c for split in splits for c in (*split.train, *split.test)}
    lacking = wanted - set(local) if classes is not None else set()
    files = Counter() if images is None or labels is None or classes is None else Counter(
        f"{classes[c]}/{p.rsplit('/', 1)[-1]}" for c, p in zip(labels, images))
    here = {*files, *(re.sub(r"(\.\w+)$", r"_2\1", name) for name, count in files.items() if count > 1)}
    return Imported(ladder, tuple(sorted(lacking)), tuple(sorted(named - here)) if images is not None else ())


def _files_of(episodes: dict[str, Any]) -> Iterator[str]:
    """CLASS/FILE of all images in the episodes of all splits: {split: {shots: {episode: {class: files}}}}."""
    for by_shots in episodes.values():
        for by_episode in by_shots.values():
            for by_class in by_episode.values():
                if isinstance(by_class, dict):
                    yield from (f"{name}/{file}" for name, files in by_class.items() for file in files)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise SplitError(f"holds a value of type {type(value).__name__}; it was not loaded")


def _keyed_by_text(value: Any, called: dict[str, str]) -> Any:
    """The same with text for keys, as JSON has it, and with classes as they are called here."""
    if not isinstance(value, dict):
        return value
    return {called.get(str(k), str(k)): _keyed_by_text(v, called) for k, v in value.items()}
