"""Unions of datasets: nothing is lost, nothing collides, roles stay with their images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splits import SplitError
from splits.manifest import load, save
from splits.union import EIGHT, STANDARD_FOUR, Member, union_split, unite

names = st.text("aбc d", min_size=1, max_size=4)
class_names = st.lists(st.text("ab/", min_size=1, max_size=3), min_size=2, max_size=5, unique=True)


@st.composite
def members(draw: st.DrawFn) -> list[Member]:
    found = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        classes = tuple(draw(class_names))
        labels = np.array(draw(st.lists(st.integers(0, len(classes) - 1), max_size=12)), dtype=np.int64)
        cut = draw(st.integers(1, len(classes) - 1))
        roles = np.array(draw(st.lists(st.sampled_from(["", "query", "gallery"]), min_size=len(labels),
                                       max_size=len(labels))), dtype="<U7") if draw(st.booleans()) else None
        found.append(Member(name, classes, labels, classes[:cut], classes[cut:], roles))
    return found


@settings(max_examples=60)
@given(members())
def test_every_image_keeps_its_dataset_class_side_and_role(parts: list[Member]) -> None:
    united = unite(parts)
    assert len(set(united.classes)) == sum(len(m.classes) for m in parts)
    at = 0
    for number, member in enumerate(parts):
        for i, label in enumerate(member.labels):
            name = united.classes[united.labels[at]]
            assert name == f"{member.name}/{member.classes[label]}"
            assert united.domain_names[united.domains[at]] == member.name
            assert united.domains[at] == number
            assert (name in united.train_classes) == (member.classes[label] in member.train_classes)
            assert (name in united.test_classes) == (member.classes[label] in member.test_classes)
            if united.roles is not None:
                assert united.roles[at] == ("" if member.roles is None else member.roles[i])
            at += 1
    assert at == len(united.labels) == len(united.domains)
    assert (united.roles is None) == all(m.roles is None for m in parts)
    split = union_split(united).split(1)
    assert split.train_images + split.test_images == at
    assert split.kind == "union"
    for member in parts:
        held = [c for c in split.validation if c.startswith(f"{member.name}/")]
        assert len(held) == len(member.train_classes) - int(0.75 * len(member.train_classes))


def of_size(name: str, train: int, test: int, roles: np.ndarray | None = None) -> Member:
    labels = np.array([0] * train + [1] * test)
    return Member(name, ("x", "y"), labels, ("x",), ("y",), roles)


def test_the_eight_add_up_to_the_counted_totals(tmp_path: object) -> None:
    """Image counts of the annotation files: 141,404 train and 146,665 test images, In-Shop 14,218 + 12,612."""
    sizes = {"cub": (5864, 5924), "cars": (8054, 8131), "sop": (59551, 60502), "inshop": (25882, 26830),
             "nabirds": (22909, 25653), "dogs": (10651, 9929), "flowers": (3493, 4696), "aircraft": (5000, 5000)}
    roles = np.array([""] * 25882 + ["query"] * 14218 + ["gallery"] * 12612)
    parts = [of_size(name, *sizes[name], roles if name == "inshop" else None) for name in EIGHT]
    united = unite(parts)
    ladder = union_split(united, dataset="union")
    [split] = ladder.splits
    assert (split.id, split.train_images, split.test_images) == (1, 141_404, 146_665)
    assert (np.bincount(united.domains) == [sum(sizes[name]) for name in EIGHT]).all()
    assert united.roles is not None
    inshop = united.domains == EIGHT.index("inshop")
    assert (united.roles[inshop] == roles).all()
    assert (united.roles[~inshop] == "").all()
    save(ladder, f"{tmp_path}/union.json")
    assert load(f"{tmp_path}/union.json") == ladder
    four = unite([part for part in parts if part.name in STANDARD_FOUR])
    assert four.domain_names == ("cub", "cars", "sop", "inshop")


def test_bad_members() -> None:
    good = of_size("a", 2, 2)
    cases = {
        "at least one dataset": [],
        "twice in the union": [good, good],
        "without '/'": [of_size("a/b", 2, 2)],
        "in train and in test": [Member("a", ("x", "y"), np.array([0]), ("x",), ("x",))],
        "not among its classes": [Member("a", ("x", "y"), np.array([0]), ("z",), ("y",))],
        "a class name stands twice": [Member("a", ("x", "x"), np.array([0]), ("x",), ())],
        "positions in its list": [Member("a", ("x", "y"), np.array([2]), ("x",), ("y",))],
        "1 roles for 4 images": [of_size("a", 2, 2, np.array([""]))],
    }
    for message, parts in cases.items():
        with pytest.raises(SplitError, match=message):
            unite(parts)
