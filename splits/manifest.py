"""A ladder of splits as a file: what it holds, how it is written, and what is checked when it is read."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from splits import SplitError

SCHEMA = 1
LARGEST = 1 << 28
"""Bytes of a manifest that is read."""
KINDS = ("reverse", "default", "swap", "removal", "fixed-test", "union", "imported")


def digest(facts: Any) -> str:
    """SHA-256 of facts that can be written as JSON, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def seeded_order(names: Sequence[str], *seed: object) -> list[int]:
    """A random order of names that depends on the names and the seed alone, not on where each stands in the list.

    >>> [("b", "c", "a")[i] for i in seeded_order(("b", "c", "a"), 0)]
    ['c', 'b', 'a']
    >>> [("a", "b", "c")[i] for i in seeded_order(("a", "b", "c"), 0)]
    ['c', 'b', 'a']
    """
    salt = "/".join(map(str, seed))
    keys = [hashlib.sha256(f"{salt}/{name}".encode()).digest() for name in names]
    return sorted(range(len(names)), key=keys.__getitem__)


HELD_OUT = 0.25
"""The part of the training classes that is held out to choose by, as in the released files."""


def validation_part(train: Sequence[str], seed: int) -> tuple[str, ...]:
    """The classes of `train` held out to choose by: n - int((1 - HELD_OUT) n), seeded, in the order of `train`."""
    held = set(seeded_order(train, "validation", seed)[: len(train) - int((1 - HELD_OUT) * len(train))])
    return tuple(name for i, name in enumerate(train) if i in held)


@dataclass(frozen=True)
class Split:
    """One rung: classes to train on and to test on, the classes of `train` held out for validation, and distances."""

    id: int
    kind: str
    iteration: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    validation: tuple[str, ...]
    train_images: int
    test_images: int
    frd: float | None
    """Fréchet distance of the two sets of images."""
    frd_class_means_released: float | None
    """The same over class means, as the script released with the ooDML paper computes it."""
    frd_equal_n: float | None = None
    """`frd` with as many images a side as the smallest side of the ladder has: the estimate rises as images get fewer,
    and removal leaves fewer. None where it was not measured; outside the hash then, as in manifests from before it."""

    __pydantic_config__ = {"extra": "forbid"}

    @cached_property
    def hash(self) -> str:
        """Of the class names alone, so that a result keeps its key when other rungs change."""
        return digest({part: sorted(getattr(self, part)) for part in ("train", "test", "validation")})


@dataclass(frozen=True)
class Iteration:
    """One step of the builder: what left each side, what was there after it, and how far apart the sides then were.

    `moved_train` and `moved_test` left train and test, to the other side in a swap and for good in a removal.
    `kept` is false for steps after the best one, which only showed that the distance no longer changes for the better.
    """

    kind: str
    iteration: int
    frd: float
    frd_class_means_released: float
    moved_train: tuple[str, ...]
    moved_test: tuple[str, ...]
    train_classes: int
    test_classes: int
    train_images: int
    test_images: int
    kept: bool = True

    __pydantic_config__ = {"extra": "forbid"}


@dataclass(frozen=True)
class Ladder:
    """The splits of one dataset from easy to hard, ids 1..m by distance, and all that says how they were made."""

    dataset: str
    dataset_hash: str
    features: dict[str, Any]
    parameters: dict[str, Any]
    splits: tuple[Split, ...]
    progression: tuple[Iteration, ...] = ()
    iid: dict[str, Any] | None = None
    """Distance of random halves of the same classes: mean, std, draws."""
    episodes: dict[str, Any] = field(default_factory=dict)
    """Few-shot episodes that came with a released split file: {split id: {shots: {episode: {class: files}}}}."""
    made: dict[str, Any] = field(default_factory=dict, compare=False)
    """By which version and command it was made. Outside the hash: the same splits by another version are the same
    ladder, and manifests from before it was kept stay as they are."""

    __pydantic_config__ = {"extra": "forbid"}

    def split(self, id: int) -> Split:
        """The rung of this id."""
        for split in self.splits:
            if split.id == id:
                return split
        raise SplitError(f"{self.dataset or 'this ladder'} has no split {id}; there are "
                         f"{', '.join(str(s.id) for s in self.splits)}")

    @property
    def default(self) -> Split:
        """The split that the dataset comes with."""
        for kind in ("default", "union"):
            for split in self.splits:
                if split.kind == kind:
                    return split
        raise SplitError(f"the ladder of {self.dataset or 'this dataset'} has no default split; name its splits, "
                         f"1-{len(self.splits)}, by number or make one that has it with `oodml splits build`")

    @cached_property
    def hash(self) -> str:
        """Of everything in the manifest but by whom it was made."""
        return digest({key: value for key, value in self.facts().items() if key != "made"})

    def facts(self) -> dict[str, Any]:
        """All fields as they are written; what came later is left out where it was not measured."""
        facts = asdict(self)
        facts["splits"] = [{key: value for key, value in split.items() if key != "frd_equal_n" or value is not None}
                           for split in facts["splits"]]
        return facts


def check(ladder: Ladder, where: str = "ladder") -> Ladder:
    """The ladder itself, after making sure that it can be trusted: sides disjoint, validation within train."""
    if not ladder.splits:
        raise SplitError(f"{where}: holds no split")
    ids = [split.id for split in ladder.splits]
    if ids != list(range(1, len(ids) + 1)):
        raise SplitError(f"{where}: split ids must be 1 to {len(ids)} in order, found {ids}")
    for split in ladder.splits:
        train, test = set(split.train), set(split.test)
        if split.kind not in KINDS:
            raise SplitError(f"{where}: split {split.id} is of unknown kind '{split.kind}'; known: {', '.join(KINDS)}")
        if not all(math.isfinite(value) for value in (split.frd, split.frd_equal_n) if value is not None):
            raise SplitError(f"{where}: the distance of split {split.id} is no finite number")
        if not train or not test:
            raise SplitError(f"{where}: split {split.id} has an empty side")
        if train & test:
            raise SplitError(f"{where}: split {split.id} has {_some(train & test)} in train and in test")
        for side, names in (("train", split.train), ("test", split.test)):
            if len(names) != len(set(names)):
                raise SplitError(f"{where}: split {split.id} names a class twice in {side}")
        if set(split.validation) - train:
            raise SplitError(f"{where}: split {split.id} validates on {_some(set(split.validation) - train)}, "
                             "not in its train classes")
    return ladder


def save(ladder: Ladder, path: str | Path) -> None:
    """Writes a manifest; it is there as a whole or not at all."""
    path = Path(path)
    facts = {key: value for key, value in ladder.facts().items() if key != "made" or value}
    text = json.dumps({"schema": SCHEMA, "hash": check(ladder, str(path)).hash, **facts}, sort_keys=True, indent=1,
                      ensure_ascii=False) + "\n"
    write_whole(path, text)


def write_whole(path: Path, text: str) -> None:
    """Writes a file that is there as a whole or not at all; a SplitError where it cannot be."""
    temporary = path.with_name(f".oodml.{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise SplitError(f"cannot write {path}: {error.strerror}") from None


def plain_file(path: str | Path) -> Path:
    """The path of a file; an OSError where it is no plain one (a pipe would be waited for) or too large to be read."""
    if Path(path).exists() and not (Path(path).is_file() and os.path.getsize(path) <= LARGEST):
        raise OSError(f"no plain file of at most {LARGEST:,} bytes")
    return Path(path)


def load(path: str | Path) -> Ladder:
    """Reads a manifest and checks its schema, its hash, and that no class is on both sides."""
    from pydantic import ValidationError  # who only builds a ladder does without it

    remedy = "build it anew with `oodml splits build`"
    try:
        facts = json.loads(plain_file(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SplitError(f"cannot read {path}: {error.strerror or error}; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise SplitError(f"{path} is not a split manifest ({error}); {remedy}") from None
    if not isinstance(facts, dict) or "schema" not in facts:
        raise SplitError(f"{path} is not a split manifest (no schema version); {remedy}")
    if facts.pop("schema") != SCHEMA:
        raise SplitError(f"{path} is not of schema version {SCHEMA}; {remedy}")
    if "classes" in facts:
        raise SplitError(f"{path} is a pinned ladder, no split manifest; `oodml splits use {path}` makes one of it")
    stated = facts.pop("hash", None)
    try:
        ladder: Ladder = _adapter().validate_python(facts)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
        raise SplitError(f"{path} lacks or misnames a field of a split manifest ({problems}); {remedy}") from None
    if ladder.hash != stated:
        raise SplitError(f"{path} was changed after it was written: its hash does not match; {remedy}")
    return check(ladder, str(path))


@lru_cache(maxsize=1)
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Ladder)


def verify(ladder: Ladder, classes: Sequence[str], labels: np.ndarray, dataset_hash: str = "") -> list[str]:
    """What of a ladder disagrees with the dataset on disk, one line each; nothing where all agrees."""
    images = dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist()))
    problems = []
    if dataset_hash and ladder.dataset_hash and dataset_hash != ladder.dataset_hash:
        problems.append(f"made from dataset {ladder.dataset_hash[:8]}, on disk is {dataset_hash[:8]}")
    for split in ladder.splits:
        for side in ("train", "test"):
            names, stated = getattr(split, side), getattr(split, f"{side}_images")
            missing = {name for name in names if name not in images}
            if missing:
                problems.append(f"split {split.id}: {side} has {_some(missing)}, not on disk")
            counted = sum(images.get(name, 0) for name in names)
            if counted != stated:
                problems.append(f"split {split.id}: {side} should have {stated} image{'s' * (stated != 1)}, on disk "
                                f"are {counted}")
    return problems


def _some(names: set[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in sorted(names)[:3])
    return f"class {shown}" if len(names) == 1 else f"{len(names)} classes ({shown}{', ...' if len(names) > 3 else ''})"
