"""Ladders with a name and a version, fixed for everyone: `splits/pinned/NAME@VERSION.json`, which images, which rungs.

A file holds no pixels: for each class its name, how many images it has and their ids, and for each rung its classes,
both distances and a hash of its queries' classes, against which outcomes can be checked without the photographs. Ids
are written as what those of a class begin and end with and what is between (or the place of an earlier class that has
the same between); classes of a rung as ranges of their places. `progression`, if there, holds the steps of the builder
in the order of the fields of `Iteration`; it has a hash of its own and no part in that of the ladder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from splits import SplitError
from splits.manifest import Iteration, Ladder, Split, check, digest, plain_file, write_whole

FOLDER = Path(__file__).parent / "pinned"
SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}@[A-Za-z0-9][A-Za-z0-9._-]{0,30}")


@dataclass(frozen=True)
class Pinned:
    """A ladder that stays as it is, with all that tells whether a copy of its dataset is the same."""

    name: str
    dataset: str
    dataset_hash: str
    """Of the index it was pinned from; records from before ladders had names are known by it."""
    classes: tuple[str, ...]
    counts: tuple[int, ...]
    """Images of each class."""
    images: tuple[tuple[str, ...], ...] | None
    """Ids of the images of each class; None where only the class lists are pinned."""
    splits: tuple[Split, ...]
    queries: tuple[str, ...] = ()
    """Of each rung the `test_digest` of its queries."""
    features: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    iid: dict[str, Any] | None = None
    made: dict[str, Any] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    """For readers: title, source, licence, date, duplicates, note."""
    progression: tuple[Iteration, ...] = ()
    """The swaps and removals that led to the rungs, where they were pinned as well."""

    @cached_property
    def hash(self) -> str:
        """Of what makes results comparable: images, classes of the rungs, distances; not card, name or progression."""
        ids = self.images or self.counts
        return digest({"dataset": self.dataset, "images": dict(zip(self.classes, ids)),
                       "splits": [[split.id, split.hash, split.frd, split.frd_class_means_released]
                                  for split in self.splits], "queries": self.queries,
                       **({"open": self.open} if self.open else {})})

    @property
    def open(self) -> dict[str, list[int]]:
        """Members of a union whose classes the file does not name, with how many classes and images each has."""
        return dict(self.parameters.get("open", {}))

    def names(self, label: str) -> bool:
        """Whether a class is one that the file decides on; those of open members stay as the local copy has them."""
        return label.partition("/")[0] not in self.open

    @property
    def ladder(self) -> Ladder:
        """As a ladder that says which pinned one it is; without the hash of a dataset on disk."""
        made = {**self.made, "command": f"oodml splits use {self.name}",
                "pinned": {"name": self.name, "hash": self.hash}}
        # what the files of one copy contained says nothing of another
        features = {key: value for key, value in self.features.items() if key != "contents"}
        return check(Ladder(self.dataset, "", features, self.parameters, self.splits, self.progression, self.iid,
                            made=made), self.name)


def test_digest(classes: Sequence[str], labels: np.ndarray, counted: np.ndarray) -> str:
    """The hash of the queries of a test side: the class of each, in order, and which of them count."""
    return digest({"classes": list(map(str, classes)), "labels": np.asarray(labels).tolist(),
                   "counted": np.flatnonzero(counted).tolist()})


def counted_queries(labels: np.ndarray, roles: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(which images of a test side are queries, which of these have an image of their class to be found).

    >>> counted_queries(np.array([0, 0, 1]))
    (array([ True,  True,  True]), array([ True,  True, False]))
    """
    roles = np.full(len(labels), "") if roles is None else roles
    query, shown = roles != "gallery", roles != "query"
    found = np.bincount(labels[shown], minlength=int(labels.max(initial=0)) + 1)
    return query, found[labels[query]] - shown[query] > 0


def names(datasets: Collection[str] | None = None) -> list[str]:
    """The pinned ladders that come with this version, of some datasets alone if these are given."""
    there = sorted(path.stem for path in FOLDER.glob("*.json") if NAME.fullmatch(path.stem))
    return [name for name in there if datasets is None or name.partition("@")[0] in datasets]


def get(name: str) -> Pinned:
    """The pinned ladder of this name, or that in a file of one's own (`path/to/cub@v2.json`)."""
    if name.endswith(".json"):
        return load(name)
    if name not in names():
        raise SplitError(f"there is no pinned ladder '{name[:100]}'; there are: {', '.join(names()) or 'none'}")
    return load(FOLDER / f"{name}.json")


def same(pinned: Pinned, ladder: Ladder) -> bool:
    """Whether a ladder has the rungs of a pinned one: their classes and distances."""
    own, other = ([(s.id, s.hash, s.frd, s.frd_class_means_released) for s in side.splits] for side in (pinned, ladder))
    return pinned.dataset == ladder.dataset and own == other


def differences(pinned: Pinned, classes: Sequence[str], labels: np.ndarray, paths: Sequence[str],
                layouts: bool = False) -> Iterator[str]:
    """What of a dataset on disk is not as it was pinned, image by image, one line each; nothing where all agrees.

    Some datasets come in several `layouts` with other names for the same images: where not one id is known, the
    images of each class are counted.
    """
    wanted = dict(zip(pinned.classes, pinned.counts))
    local = dict(zip(classes, np.bincount(labels, minlength=len(classes)).tolist()))
    for member, (number, images) in pinned.open.items():
        sizes = [count for name, count in local.items() if name.startswith(f"{member}/")]
        if (len(sizes), sum(sizes)) != (number, images):
            yield (f"{member} has {len(sizes):,} classes and {sum(sizes):,} images here, {number:,} and {images:,} in "
                   f"{pinned.name}")
    here = {name: count for name, count in local.items() if pinned.names(name)}
    for where, have, lack in (("here", wanted, here), (f"in {pinned.name}", here, wanted)):
        yield from (f"class '{name}' with {count:,} image{'s' * (count != 1)} is not {where}"
                    for name, count in have.items() if name not in lack)
    known = {id: name for name, ids in zip(pinned.classes, pinned.images or ()) for id in ids}
    found = {path: classes[label] for path, label in zip(paths, labels.tolist())}
    if not known or (layouts and not known.keys() & found.keys()):
        yield from (f"class '{name}' has {here[name]} images here and {count} in {pinned.name}"
                    for name, count in wanted.items() if name in here and here[name] != count)
        return
    for id, name in known.items():
        if id not in found:
            if name in here:
                yield f"image '{id}' of class '{name}' is missing here"
        elif found[id] != name:
            yield f"image '{id}' is of class '{found[id]}' here and of class '{name}' in {pinned.name}"
    yield from (f"image '{id}' of class '{name}' is not in {pinned.name}" for id, name in found.items()
                if id not in known and name in wanted)


def save(pinned: Pinned, path: str | Path) -> None:
    """Writes the file; it is there as a whole or not at all."""
    path = Path(path)
    check(pinned.ladder, str(path))
    place = {name: i for i, name in enumerate(pinned.classes)}
    rungs = []
    for split, queries in zip(pinned.splits, pinned.queries or [""] * len(pinned.splits)):
        facts = asdict(split) | {side: _ranges([place[name] for name in getattr(split, side)]) for side in SIDES}
        rungs.append({key: value for key, value in facts.items() if key != "frd_equal_n" or value is not None}
                     | {"queries": queries})
    classes: list[dict[str, Any]] = [{"name": name, "images": n} for name, n in zip(pinned.classes, pinned.counts)]
    first: dict[str, int] = {}
    for i, ids in enumerate(pinned.images or ()):
        *ends, between = _between(ids)
        earlier = first.setdefault(_compact(between), i)
        classes[i]["ids"] = [*ends, between if earlier == i else earlier]
    facts = {"schema": SCHEMA, "name": pinned.name, "hash": pinned.hash,
             **{key: getattr(pinned, key) for key in PLAIN}, "splits": rungs, "classes": classes}
    if pinned.progression:
        steps = [_stored(step, place) for step in pinned.progression]
        facts |= {"progression_hash": digest(steps), "progression": steps}
    lines = []
    for key, value in facts.items():
        listed = isinstance(value, list) and value
        text = "[\n" + ",\n".join(map(_compact, value)) + "]" if listed else _compact(value)
        lines.append(f"{json.dumps(key)}:{text}")
    write_whole(path, "{" + ",\n".join(lines) + "}\n")


PLAIN = ("dataset", "dataset_hash", "features", "parameters", "iid", "made", "card")
SIDES = ("train", "test", "validation")
MOVED = ("moved_train", "moved_test")


def load(path: str | Path) -> Pinned:
    """Reads a pinned ladder and checks its name, its hash, and that no class is on both sides."""
    path = Path(path)
    try:
        facts = json.loads(plain_file(path).read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA:
            raise SplitError(f"{path} is of schema {facts['schema']}, this version of oodml reads {SCHEMA}; update "
                             "oodml")
        classes = facts["classes"]
        names = tuple(one["name"] for one in classes)
        listed = all("ids" in one for one in classes)
        splits = [Split(**({key: value for key, value in rung.items() if key != "queries"}
                           | {side: tuple(names[i] for i in _positions(rung[side])) for side in SIDES}))
                  for rung in facts["splits"]]
        images = tuple(_ids(one["ids"], classes) for one in classes) if listed else None
        stored = facts.get("progression", [])
        pinned = Pinned(facts["name"], classes=names, counts=tuple(one["images"] for one in classes),
                        images=images, splits=tuple(splits),
                        queries=tuple(rung["queries"] for rung in facts["splits"]),
                        progression=tuple(_step(one, names) for one in stored), **{key: facts[key] for key in PLAIN})
        sound = (pinned.hash == facts["hash"] and pinned.name == path.stem
                 and (not stored or digest(stored) == facts["progression_hash"]))
        counted = (pinned.images is None or pinned.counts == tuple(map(len, pinned.images))) and _adds_up(pinned)
    except OSError as error:
        raise SplitError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        if isinstance(error, SplitError):
            raise
        raise SplitError(f"{path} is not a pinned ladder ({type(error).__name__}: {error})") from None
    if not sound or not counted:
        raise SplitError(f"{path} was changed after it was pinned: its name, hash or counts do not match; "
                         "fetch it again")
    check(pinned.ladder, str(path))
    return pinned


def _adds_up(pinned: Pinned) -> bool:
    """Whether the sides of all rungs have the images of their classes; those of open members are not known."""
    images = dict(zip(pinned.classes, pinned.counts))
    sides = [side for one in pinned.splits for side in ((one.train, one.train_images), (one.test, one.test_images))]
    return bool(pinned.open) or all(sum(images[name] for name in names) == count for names, count in sides)


def _stored(step: Iteration, place: dict[str, int]) -> list[Any]:
    """A step as the values of its fields in their order, classes as ranges of their places."""
    moved = {side: _ranges([place[name] for name in getattr(step, side)]) for side in MOVED}
    return [*(asdict(step) | moved).values()]


def _step(stored: list[Any], names: Sequence[str]) -> Iteration:
    step = Iteration(*stored)
    left, right = (tuple(names[i] for i in _positions(getattr(step, side))) for side in MOVED)
    return replace(step, moved_train=left, moved_test=right)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _ranges(places: Sequence[int]) -> str:
    """Places as ranges, in their order.

    >>> _ranges([0, 1, 2, 7, 5, 6]), _positions("0-2,7,5-6")
    ('0-2,7,5-6', [0, 1, 2, 7, 5, 6])
    """
    runs = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda pair: pair[1] - pair[0])]
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _positions(text: str) -> list[int]:
    ends = [[int(end) for end in part.split("-")] for part in text.split(",") if part]
    return [place for run in ends for place in range(run[0], run[-1] + 1)]


def _between(ids: Sequence[str]) -> list[Any]:
    """[what all begin with, what all end with, what is between: one text, or a list where a part holds a space].

    >>> _between(["a/x1.jpg", "a/x2.jpg"]), _ids(["a/x", ".jpg", "1 2"])
    (['a/x', '.jpg', '1 2'], ('a/x1.jpg', 'a/x2.jpg'))
    """
    before = _beginning(ids)
    rest = [id[len(before):] for id in ids]
    after = _beginning([part[::-1] for part in rest])[::-1]
    parts = [part[:len(part) - len(after)] for part in rest]
    plain = bool(parts) and all(part and " " not in part for part in parts)
    return [before, after, " ".join(parts) if plain else parts]


def _beginning(texts: Sequence[str]) -> str:
    """What all texts begin with, letter by letter; the first and the last in their order differ most."""
    first, last = min(texts, default=""), max(texts, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), min(len(first), len(last)))
    return first[:same]


def _ids(stored: list[Any], classes: Sequence[dict[str, Any]] = ()) -> tuple[str, ...]:
    before, after, parts = stored
    parts = classes[parts]["ids"][2] if isinstance(parts, int) else parts
    return tuple(f"{before}{part}{after}" for part in (parts.split(" ") if isinstance(parts, str) else parts))
