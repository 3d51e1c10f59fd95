"""A split as a list of images that any other training code can read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

import numpy as np

from splits import SplitError
from splits.manifest import Split

FORMATS = ("csv", "json", "txt")
COLUMNS = ("image", "class", "label", "part", "role")


def image_list(split: Split, paths: Sequence[str], labels: np.ndarray, classes: Sequence[str],
               roles: np.ndarray | None = None,
               hold_out: bool = False) -> Iterator[tuple[str, str, int, str, str]]:
    """(image, class, label, part, role) of every image of a split, train before test.

    `part` is train or test; with `hold_out` the classes of the training side that a run may choose its epoch by, and
    otherwise trains on, are marked validation. Labels run from 0 in each side, in the
    order of the split's classes; `role` is query or gallery where a dataset tells these apart, else empty.
    """
    _check(split, paths, labels, classes)
    held = set(split.validation) if hold_out else set()
    for side, part in ((split.train, "train"), (split.test, "test")):
        number = {name: i for i, name in enumerate(side)}
        for i, label in enumerate(labels):
            name = classes[label]
            if name in number:
                role = "" if roles is None else str(roles[i])
                yield paths[i], name, number[name], "validation" if part == "train" and name in held else part, role


def export(split: Split, paths: Sequence[str], labels: np.ndarray, classes: Sequence[str], form: str,
           roles: np.ndarray | None = None, hold_out: bool = False) -> Iterator[str]:
    """The image list of a split as text, line by line: csv with a header, json as an array, txt with tabs.

    Paths and classes stand as they are, also where they begin with = + - @, which a spreadsheet takes for a formula:
    training code opens the paths, and `oodml evaluate --ids` knows images by them.

    >>> split = Split(1, "default", 0, ("a",), ("b",), (), 1, 1, None, None)
    >>> print("".join(export(split, ["x 1.jpg", "y,2.jpg"], np.array([1, 0]), ["a", "b"], "csv")), end="")
    image,class,label,part,role
    "y,2.jpg",a,0,train,
    x 1.jpg,b,0,test,
    """
    if form not in FORMATS:
        raise SplitError(f"unknown format '{form}'; there are {', '.join(FORMATS)}")
    # Before the first line goes out, so that a mistake leaves no half-written list.
    _check(split, paths, labels, classes)
    if form == "txt":
        for name in (*paths, *classes):
            if "\t" in name or len(name.splitlines()) > 1:
                raise SplitError(f"{name!r} holds a tab or the end of a line, which txt has between names; take csv or "
                                 "json")
    entries = image_list(split, paths, labels, classes, roles, hold_out)
    if form == "csv":
        yield _csv(COLUMNS)
        yield from map(_csv, entries)
    elif form == "txt":
        yield from ("\t".join(map(str, entry)) + "\n" for entry in entries)
    else:
        separator = "[\n"
        for entry in entries:
            yield separator + json.dumps(dict(zip(COLUMNS, entry)), ensure_ascii=False)
            separator = ",\n"
        yield "\n]\n"


def _csv(values: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


def _check(split: Split, paths: Sequence[str], labels: np.ndarray, classes: Sequence[str]) -> None:
    if len(paths) != len(labels):
        raise SplitError(f"there are {len(paths)} images but {len(labels)} labels; both must have one entry an image")
    missing = sorted({*split.train, *split.test} - set(classes))
    if missing:
        raise SplitError(f"split {split.id} names {len(missing)} classes that the dataset lacks, such as "
                         f"'{missing[0]}'; `oodml splits verify` lists all that disagrees")
