"""`oodml datasets check`: decodes every image of a dataset and says what is wrong with it."""

from __future__ import annotations

import hashlib
import multiprocessing
import posixpath
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmark import datasets
from benchmark.data.decoding import killed_processes, shrunk
from benchmark.data.store import ImageStore
from benchmark.datasets import Counts, DatasetIndex, csv_list, folder, known_split
from benchmark.datasets.index import upright
from benchmark.datasets.reading import images_under
from benchmark.datasets.union import Members, members
from benchmark.overview.counts import count, describe, single_classes
from benchmark.overview.report import Report
from benchmark.utils.processors import cores
from benchmark.utils.signals import block_signals
from reports.storage.processes import end_with_parent
from reports.wording import counted

CHUNK = 64
"""Images that a process is handed at a time: enough to make the handing cheap, few enough for a steady progress bar."""


def examine(index: DatasetIndex, official: Counts | None = None, jobs: int | None = None,
            progress: Callable[[int], object] = lambda done: None, store: ImageStore | None = None,
            size: tuple[int, int] | None = None) -> Report:
    """Decodes all images in `jobs` processes; `progress` is called with the number of images just done.

    With the `store` that was made of them each is held against its copy there. `size`: the official numbers of images
    and classes, where those of the sides are not known.
    """
    report = Report(len(index), _family(index))
    counts = count(index)
    if official is not None and counts != official:
        report.counts = f"{describe(counts)}{_part_of(index, official)}; official are {describe(official)}"
    if size is not None and (len(index), len(index.classes)) != size:
        report.counts = (f"{counted(len(index), 'image')} of {counted(len(index.classes), 'class')}; official are "
                         f"{size[0]:,} of {size[1]:,}")
    if report.counts or (official is None and size is None):
        report.single = single_classes(index)
    report.split = known_split(counts.train_images, counts.test_images)
    digests: dict[int, str] = {}
    for i, look in enumerate(_look_at_all(index, store, jobs or cores(), progress)):
        if look.digest:
            digests[i] = look.digest
        elif look.cause:
            report.unreadable[index.paths[i]] = look.cause
        else:
            report.missing.append(index.paths[i])
        if look.changed:
            report.changed.append(index.paths[i])
    report.missing.sort()
    report.bare = sorted(_folders(report.missing) - _folders(set(index.paths).difference(report.missing)))
    if report.missing and report.family == "csv":
        report.lines = csv_list.line_numbers(Path(index.reference.partition(":")[2]).expanduser())
    report.extra = _of_members(index, extra_images)
    report.loose = _of_members(index, loose_images)
    report.empty = _of_members(index, lambda one: _of_folder(one, folder.empty_classes))
    report.hidden = _of_members(index, lambda one: _of_folder(one, folder.hidden_images))
    report.unread = [ending for one in members(index) or (index,) for ending in _of_folder(one, folder.other_endings)]
    report.duplicates = _across(index, digests)
    return report


def _part_of(index: DatasetIndex, official: Counts) -> str:
    """Where only one side of the split for classification was unpacked, that."""
    both = datasets.get(index.name).classification if not index.reference else None
    if both is None or len(index) not in both or len(index.classes) != official.train_classes + official.test_classes:
        return ""
    return f" (the {'training' if len(index) == both[0] else 'test'} side of the split for classification alone)"


class Look(NamedTuple):
    """One image: the hash of its upright RGB pixels, or why there is none ('' where there is no such file)."""

    digest: str = ""
    cause: str = ""
    changed: bool = False
    """Whether it differs from its copy in the store."""


def look_at(index: DatasetIndex, i: int, store: ImageStore | None = None) -> Look:
    """Decodes image i and, with a store, holds it against its copy there."""
    try:
        with index.open(i) as opened:
            image = upright(opened)
        changed = store is not None and not np.array_equal(shrunk(image), store.image(i))
        return Look(hashlib.sha256(b"%d %d " % image.size + image.tobytes()).hexdigest(), changed=changed)
    except FileNotFoundError:
        return Look()
    except Image.UnidentifiedImageError:
        return Look(cause="no image" if _size(index, i) else "empty file")
    except Exception as error:  # Pillow's decoders raise of all kinds on damaged files, and none may stop the round
        return Look(cause=str(error).splitlines()[0] if str(error) else type(error).__name__)


def _size(index: DatasetIndex, i: int) -> int:
    if isinstance(index.opener, Members):
        return _size(*index.opener.locate(i))
    return 1 if index.opener or index.root is None else (index.root / index.paths[i]).stat().st_size


_shared: tuple[DatasetIndex, ImageStore | None]


def _receive(index: DatasetIndex, store: ImageStore | None) -> None:
    global _shared
    _shared = index, store
    end_with_parent()


def _look_at_range(start: int, stop: int) -> list[Look]:
    index, store = _shared
    return [look_at(index, i, store) for i in range(start, stop)]


def _look_at_all(index: DatasetIndex, store: ImageStore | None, jobs: int,
                 progress: Callable[[int], object]) -> Iterator[Look]:
    """A look at every image, in index order."""
    if jobs == 1 or len(index) <= CHUNK:
        for i in range(len(index)):
            yield look_at(index, i, store)
            progress(1)
        return
    starts = range(0, len(index), CHUNK)
    # spawned, since a process with threads (torch, a progress bar) must not be forked
    with killed_processes(index), ProcessPoolExecutor(
            min(jobs, len(starts)), multiprocessing.get_context("spawn"), _receive, (index, store)) as pool:
        try:
            with block_signals(signal.SIGINT):
                looked_at = pool.map(_look_at_range, starts, [min(start + CHUNK, len(index)) for start in starts])
            for results in looked_at:
                yield from results
                progress(len(results))
        finally:
            pool.shutdown(cancel_futures=True)


def _folders(paths: Iterable[str]) -> set[str]:
    return {posixpath.dirname(path) for path in paths}


def _family(index: DatasetIndex) -> str:
    return index.reference.partition(":")[0]


def _of_members(index: DatasetIndex, look: Callable[[DatasetIndex], list[str]]) -> list[str]:
    """What a look at a dataset finds, or one at each member of a union."""
    if not members(index):
        return look(index)
    return [f"{member.name}/{path}" for member in members(index) for path in look(member)]


def _of_folder(index: DatasetIndex, look: Callable[[Path], list[str]]) -> list[str]:
    return look(index.root) if _family(index) == "folder" and index.root is not None else []


def loose_images(index: DatasetIndex) -> list[str]:
    """Images anywhere in a folder of one's own that are of no class."""
    return sorted(set(_of_folder(index, images_under)) - set(index.paths))


def extra_images(index: DatasetIndex) -> list[str]:
    """Images on disk, in the top folders that the index uses, that the index does not name.

    Only an archive has none of these: a list of one's own may select.
    """
    if index.root is None or _family(index):
        return []
    listed = set(index.paths)
    tops = sorted({path.partition("/")[0] if "/" in path else "." for path in listed})
    present: set[str] = set()
    for top in [top for top in tops if "." not in tops or top == "."]:
        present.update((Path(top) / path).as_posix() for path in images_under(index.root / top))
    return sorted(present - listed)


def _across(index: DatasetIndex, digests: dict[int, str]) -> list[tuple[str, str]]:
    train: dict[str, int] = {}
    for i in index.of_classes(index.train_classes).tolist():
        if i in digests:
            train.setdefault(digests[i], i)
    pairs: dict[int, list[int]] = defaultdict(list)
    for i in index.of_classes(index.test_classes).tolist():
        if digests.get(i) in train:
            pairs[train[digests[i]]].append(i)
    return [(index.paths[one], index.paths[other]) for one in sorted(pairs) for other in pairs[one]]
