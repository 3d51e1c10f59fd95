"""`oodml datasets check`: decodes every image of a dataset and says what is wrong with it."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from benchmark import datasets
from benchmark.data.decoding import shrunk
from benchmark.data.store import ImageStore
from benchmark.datasets import Counts, DatasetIndex, csv_list, folder, known_split
from benchmark.datasets.index import upright
from benchmark.datasets.reading import images_under
from benchmark.datasets.union import Members
from benchmark.utils.processors import cores
from benchmark.utils.signals import block_signals
from benchmark.utils.wording import counted
from reports.storage.processes import end_with_parent

CHUNK = 64
PUT_BACK = {"": "unpack the archive again", "csv": "put back what is missing or take its lines out of the list",
            "folder": "put back what is missing", "parquet": "fetch the shard again", "wds": "fetch the shard again",
            "union": "put back what is missing, or unpack the archive it comes from again"}
"""What mends a missing image, by the family of the dataset."""


@dataclass
class Report:
    """The findings; `problems` are lines for the user, each with what mends it. Without any the dataset is sound."""

    images: int
    family: str = ""
    """csv, folder or union for a dataset of one's own."""
    missing: list[str] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    """Where the user's list names a missing image."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Path to cause."""
    extra: list[str] = field(default_factory=list)
    """Image files of an archive, beside the listed ones, that no list names."""
    empty: list[str] = field(default_factory=list)
    """Class folders of one's own without an image, and what they hold."""
    loose: list[str] = field(default_factory=list)
    """Images in a folder of one's own that lie in no class folder."""
    unread: list[str] = field(default_factory=list)
    """Endings of files in its class folders that are not read."""
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """(training image, test image) with the same pixels."""
    changed: list[str] = field(default_factory=list)
    """Images that are no longer those that were decoded for training."""
    split: str = ""
    """The official split whose numbers of images these are, '' if none."""
    single: list[str] = field(default_factory=list)
    """Classes of one image, unless the official dataset has them."""
    counts: str = ""
    """How the counts differ from the official ones, '' if they do not."""

    @property
    def sound(self) -> bool:
        return not self.problems()

    def problems(self, most: int = 5) -> list[str]:
        """One line for each kind of finding, naming the first few."""

        problems = []
        if self.counts:
            problems.append(f"counts: {self.counts}; unpack the archive again")
        if self.missing:
            missing = [f"{path} (line {self.lines[path]})" if path in self.lines else path for path in self.missing]
            listed = counted(len(missing), "listed image is", "listed images are")
            problems.append(f"missing: {listed} not there: {first(missing, most)}; {PUT_BACK[self.family]}")
        if self.unreadable:
            causes = [f"{path} ({cause})" for path, cause in sorted(self.unreadable.items())]
            problems.append(f"unreadable: {counted(len(causes), 'image')} cannot be decoded: {first(causes, most)}; "
                            f"replace {_them(causes)}")
        if self.extra:
            problems.append(f"extra: {counted(len(self.extra), 'image is', 'images are')} on no list: "
                            f"{first(self.extra, most)}; remove {_them(self.extra)}")
        if self.empty:
            folders = counted(len(self.empty), "class folder has no image and is no class",
                              "class folders have no image and are no classes")
            problems.append(f"empty: {folders}: {first(self.empty, most)}; put images there (JPEG, PNG, ...) or take "
                            "the folder away")
        if self.duplicates:
            pairs = [f"{one} = {other}" for one, other in self.duplicates]
            twice = counted(len(pairs), "test image is a training image", "test images are training images")
            problems.append(f"duplicates: {twice} too: {first(pairs, most)}; scores on {_them(pairs)} measure memory")
        if self.changed:
            other = counted(len(self.changed), "image is not that which was", "images are not those that were")
            problems.append(f"changed: {other} decoded for training: {first(self.changed, most)}; put "
                            f"{_them(self.changed)} back, or decode anew (`oodml datasets prepare`) and make ladders "
                            "and runs of that")
        if self.single:
            problems.append(f"single: {counted(len(self.single), 'class has', 'classes have')} one image, which has "
                            f"nothing to be matched with: {first(self.single, most)}; add images or remove the class")
        return problems

    def notes(self, most: int = 5) -> list[str]:
        """What is no fault, but should be known: files that play no part."""
        notes = [f"these are the numbers of images of {self.split}"] if self.split else []
        if self.loose:
            loose = counted(len(self.loose), "image lies in no class folder and plays",
                            "images lie in no class folder and play")
            notes.append(f"{loose} no part: {first(self.loose, most)}")
        if self.unread:
            notes.append(f"files with these endings are not read as images: {first(self.unread, most)}")
        return notes


def _them(items: list[str]) -> str:
    return "it" if len(items) == 1 else "them"


def first(items: list[str], most: int) -> str:
    """The first few of them, and how many more there are."""
    return ", ".join(items[:most]) + (f" and {len(items) - most:,} more" if len(items) > most else "")


def count(index: DatasetIndex) -> Counts:
    """The size of the default split."""
    train = len(index.of_classes(index.train_classes))
    test = len(index.of_classes(index.test_classes))
    return Counts(train, len(index.train_classes), test, len(index.test_classes))


def single_classes(index: DatasetIndex) -> list[str]:
    """Classes that have one image only."""
    return [index.classes[c] for c in np.flatnonzero(np.bincount(index.labels, minlength=len(index.classes)) == 1)]


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
    if report.missing and report.family == "csv":
        report.lines = csv_list.line_numbers(Path(index.reference.partition(":")[2]).expanduser())
    report.extra = _of_members(index, extra_images)
    report.loose = _of_members(index, loose_images)
    report.empty = _of_members(index, lambda one: _of_folder(one, folder.empty_classes))
    report.unread = [ending for one in _members(index) for ending in _of_folder(one, folder.other_endings)]
    report.duplicates = _across(index, digests)
    return report


def _part_of(index: DatasetIndex, official: Counts) -> str:
    """Where only one side of the split for classification was unpacked, that."""
    both = datasets.get(index.name).classification if not index.reference else None
    if both is None or len(index) not in both or len(index.classes) != official.train_classes + official.test_classes:
        return ""
    return f" (the {'training' if len(index) == both[0] else 'test'} side of the split for classification alone)"


def describe(counts: Counts) -> str:
    return (f"{counted(counts.train_images, 'image')} of {counted(counts.train_classes, 'class')} to train on, "
            f"{counts.test_images:,} of {counts.test_classes:,} to test on")


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
    with ProcessPoolExecutor(min(jobs, len(starts)), multiprocessing.get_context("spawn"), _receive,
                             (index, store)) as pool:
        try:
            with block_signals(signal.SIGINT):
                looked_at = pool.map(_look_at_range, starts, [min(start + CHUNK, len(index)) for start in starts])
            for results in looked_at:
                yield from results
                progress(len(results))
        finally:
            pool.shutdown(cancel_futures=True)


def _family(index: DatasetIndex) -> str:
    return index.reference.partition(":")[0]


def _members(index: DatasetIndex) -> tuple[DatasetIndex, ...]:
    return index.opener.indexes if isinstance(index.opener, Members) else (index,)


def _of_members(index: DatasetIndex, look: Callable[[DatasetIndex], list[str]]) -> list[str]:
    if not isinstance(index.opener, Members):
        return look(index)
    return [f"{member.name}/{path}" for member in index.opener.indexes for path in look(member)]


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
