"""The ladder against a brute-force rendering of the paper's rule, and the properties that every ladder has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from splits import SplitError, frechet
from splits.frechet import frd_class_means_released, frechet_distance
from splits.ladder import build_ladder, default_rung
from splits.manifest import Ladder
from splits.rungs import choose_rungs
from tests.ladder_data import Data, build, data, means, side


def brute_force_swap(of: Data, train: set[str], test: set[str], swaps: int, resting: set[str],
                     sign: int = 1) -> tuple[list[str], list[str]]:
    """Eq. 2-3 by loops over names."""
    mean = {name: side(of, {name}).mean(axis=0) for name in train | test}
    chosen = []
    for own, other in ((train, test), (test, train)):
        mu_own, mu_other = (np.mean([mean[n] for n in sorted(s)], axis=0) for s in (own, other))
        score = {n: np.sqrt(((mean[n] - mu_own) ** 2).sum()) - np.sqrt(((mean[n] - mu_other) ** 2).sum()) for n in own}
        chosen.append([n for n in sorted(own, key=lambda n: (-sign * score[n], n)) if n not in resting][:swaps])
    return chosen[0], chosen[1]


@pytest.mark.parametrize(("d", "swaps", "sign"), [(3, 1, 1), (6, 2, 1), (70, 2, 1), (6, 2, -1), (70, 1, -1)])
def test_every_swap_is_the_one_of_eq_2_and_3_and_every_distance_is_right(d: int, swaps: int, sign: int) -> None:
    """With d = 70 a side has fewer images than dimensions, with d = 3 and 6 more: both roads."""
    of = data(d=d)
    ladder = build(of, swaps_per_iteration=swaps, reverse=True, removal=False, guard=2)
    steps = [s for s in ladder.progression if s.kind in ("swap" if sign > 0 else "reverse", "default")]
    steps.sort(key=lambda s: abs(s.iteration))
    train, test = set(of[2][:8]), set(of[2][8:])
    moved: list[set[str]] = []
    for number, step in enumerate(steps):
        if number:
            a, b = brute_force_swap(of, train, test, swaps, set().union(*moved[-2:]), sign)
            assert (list(step.moved_train), list(step.moved_test)) == (a, b)
            train, test = train - set(a) | set(b), test - set(b) | set(a)
            moved.append({*a, *b})
        assert step.iteration == sign * number
        assert step.frd == pytest.approx(frechet_distance(side(of, train), side(of, test)), rel=1e-8)
        expected = frd_class_means_released(means(of, train), means(of, test))
        assert step.frd_class_means_released == pytest.approx(expected, rel=1e-8)
        assert (step.train_images, step.test_images) == (len(side(of, train)), len(side(of, test)))
    distances = [sign * s.frd for s in steps]
    best = int(np.argmax(distances))
    assert [s.kept for s in steps] == [i <= best for i in range(len(steps))]
    assert len(steps) - 1 - best == 5, "five iterations without anything better end the swapping"


def test_reranking_takes_one_exchange_after_the_other() -> None:
    of = data()
    ladder = build(of, swaps_per_iteration=3, rerank=True, removal=False, iterations=1)
    train, test = set(of[2][:8]), set(of[2][8:])
    start = set(train)
    moved: set[str] = set()
    for _ in range(3):
        [a], [b] = brute_force_swap(of, train, test, 1, moved)
        train, test, moved = train - {a} | {b}, test - {b} | {a}, moved | {a, b}
    step = ladder.progression[1]
    assert set(step.moved_train) == start - train
    assert set(step.moved_test) == train - start


def test_removal_takes_the_classes_nearest_the_other_side() -> None:
    of = data(classes=20, d=4)
    ladder = build(of, swaps_per_iteration=1)
    swapped = [s for s in ladder.progression if s.kept and s.kind in ("default", "swap")][-1]
    train, test = set(of[2][:10]), set(of[2][10:])
    for step in ladder.progression:
        if step.kind == "swap" and step.iteration <= swapped.iteration:
            train = train - set(step.moved_train) | set(step.moved_test)
            test = test - set(step.moved_test) | set(step.moved_train)
    removals = [s for s in ladder.progression if s.kind == "removal"]
    for step in removals:
        for own, other, gone in ((train, test, step.moved_train), (test, train, step.moved_test)):
            centre = means(of, other).mean(axis=0)
            gap = {n: np.linalg.norm(means(of, {n})[0] - centre) for n in own}
            assert gone == (min(gap, key=gap.__getitem__),)
        train, test = train - set(step.moved_train), test - set(step.moved_test)
        assert step.frd == pytest.approx(frechet_distance(side(of, train), side(of, test)), rel=1e-8)
        assert step.train_classes == step.test_classes == len(train) == len(test)
        assert 2 * (step.train_images + step.test_images) >= len(of[1])
    assert removals


@settings(max_examples=25)
@given(st.integers(4, 30), st.integers(1, 40), st.integers(0, 10_000), st.integers(1, 3), st.booleans())
def test_properties(classes: int, d: int, seed: int, swaps: int, reverse: bool) -> None:
    of = data(classes, d, seed)
    ladder = build(of, swaps_per_iteration=swaps, reverse=reverse)
    names, total = set(of[2]), len(of[1])
    distances = [s.frd or 0.0 for s in ladder.splits]
    assert all(a < b for a, b in pairwise(distances)), "the ladder rises"
    assert [s.id for s in ladder.splits] == list(range(1, len(distances) + 1))
    assert len(distances) <= (9 if reverse else 8)
    assert set(ladder.default.train) == set(of[2][: classes // 2])
    for split in ladder.splits:
        assert not set(split.train) & set(split.test)
        assert set(split.validation) < set(split.train)
        assert len(split.validation) == len(split.train) - int(0.75 * len(split.train))
        if split.kind != "removal":
            assert set(split.train) | set(split.test) == names
            assert split.train_images + split.test_images == total, "images are conserved until removal"
        assert split.train_images + split.test_images >= total / 2
    for step in ladder.progression:
        assert len(step.moved_train) == len(step.moved_test)
    for last, step in pairwise([s for s in ladder.progression if s.kind == "swap"]):
        assert not {*last.moved_train, *last.moved_test} & {*step.moved_train, *step.moved_test}


def drawn_apart(ladder: Ladder) -> Ladder:
    """Without the distance at equal n, whose images are drawn by where they stand."""
    return dataclasses.replace(ladder, splits=tuple(dataclasses.replace(s, frd_equal_n=None) for s in ladder.splits))


@pytest.mark.parametrize("d", [5, 80])
def test_the_order_of_images_and_classes_changes_nothing(d: int) -> None:
    features, labels, names = data(d=d)
    ladder = build((features, labels, names), reverse=True)
    rng = np.random.default_rng(1)
    images, order = rng.permutation(len(labels)), rng.permutation(len(names))
    place = np.argsort(order)
    again = build_ladder(features[images], place[labels[images]], names[7::-1], names[:7:-1], iid_draws=0, reverse=True,
                         classes=[names[i] for i in order])
    assert drawn_apart(again) == drawn_apart(ladder)
    assert drawn_apart(again).hash == drawn_apart(ladder).hash


def test_a_memory_map_a_tensor_and_float32_give_the_same(tmp_path: object) -> None:
    features, labels, names = data()
    features = features.astype(np.float32)
    np.save(f"{tmp_path}/f.npy", features)
    ladder = build((features, labels, names))
    assert build((np.load(f"{tmp_path}/f.npy", mmap_mode="r"), labels, names)) == ladder
    assert build((torch.from_numpy(features), torch.from_numpy(labels), names), device="cpu") == ladder


@pytest.mark.parametrize("d", [3, 6, 70])
def test_the_tensor_road_without_a_gpu(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels, names = data(d=d)
    expected = build((features, labels, names), reverse=True, iid_draws=2)
    monkeypatch.setattr(frechet, "float64", lambda rows: torch.as_tensor(rows).double())
    computed = build((torch.from_numpy(features), labels, names), reverse=True, iid_draws=2)
    assert [s.hash for s in computed.splits] == [s.hash for s in expected.splits]
    assert [s.frd for s in computed.progression] == pytest.approx([s.frd for s in expected.progression], rel=1e-8)
    assert computed.iid == pytest.approx(expected.iid, rel=1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("d", [3, 6, 70])
def test_on_a_gpu(d: int) -> None:
    of = data(d=d)
    cpu, gpu = build(of, reverse=True), build(of, reverse=True, device="cuda")
    assert [s.hash for s in cpu.splits] == [s.hash for s in gpu.splits]
    assert [s.frd for s in cpu.progression] == pytest.approx([s.frd for s in gpu.progression], rel=1e-8)


def test_rungs_can_be_named_by_iteration() -> None:
    ladder = build(data(), rung_iterations=[2, -1, "R1"], reverse=True, iterations=3)
    computed = {(s.kind, s.iteration) for s in ladder.splits}
    assert computed == {("reverse", -1), ("default", 0), ("swap", 2), ("removal", 1)}
    with pytest.raises(SplitError, match="no iteration 77, R99"):
        build(data(), rung_iterations=[77, "R99"])


@settings(max_examples=40)
@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=9, unique=True), st.data())
def test_rungs_are_as_uniform_as_any_choice(values: list[int], draw: st.DataObject) -> None:
    distances = sorted(values)
    default = draw.draw(st.integers(0, len(distances) - 1))
    count = draw.draw(st.integers(3, len(distances)))
    chosen = choose_rungs(distances, default, count)
    candidates = [c for c in combinations(range(len(distances)), count) if {0, default, len(distances) - 1} <= set(c)]

    def unevenness(choice: tuple[int, ...]) -> float:
        return float(np.var(np.diff([distances[i] for i in choice])))

    assert tuple(chosen) in candidates
    assert unevenness(tuple(chosen)) == pytest.approx(min(map(unevenness, candidates)), abs=1e-6)


def test_too_few_rungs_for_the_ends_and_the_default() -> None:
    with pytest.raises(SplitError, match="needs 3 rungs, 2"):
        build(data(), reverse=True, rungs=2)


def _single(features: np.ndarray, labels: np.ndarray, classes: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    """The same with the first image alone of these classes."""
    first = np.unique(labels, return_index=True)[1]
    keep = ~np.isin(labels, [*classes]) | np.isin(np.arange(len(labels)), first)
    return features[keep], labels[keep]


@pytest.mark.parametrize(("d", "rerank"), [(4, False), (80, False), (4, True)])
def test_classes_of_one_image_stay_where_they_are(d: int, rerank: bool) -> None:
    """As In-Shop has them among its training classes; here on both sides, and nearest to the other one."""
    features, labels, names = data(classes=20, d=d)
    features[labels == 3], features[labels == 15] = features[labels >= 10].mean(0), features[labels < 10].mean(0)
    whole = build((features, labels, names), swaps_per_iteration=1, rerank=rerank)
    assert {"c03", "c15"} <= {*whole.progression[1].moved_train, *whole.progression[1].moved_test}

    of = (*_single(features, labels, [3, 7, 15]), names)
    ladder = build(of, swaps_per_iteration=1, rerank=rerank, reverse=True)
    assert {s.kind for s in ladder.progression} == {"reverse", "default", "swap", "removal"}
    for split in ladder.splits:
        assert {"c03", "c07"} <= set(split.train)
        assert "c15" in split.test
        assert split.frd == pytest.approx(frechet_distance(side(of, set(split.train)), side(of, set(split.test))))
    train, test = set(names[:10]), set(names[10:])
    moved: list[set[str]] = [{"c03", "c07", "c15"}]
    for step in (s for s in ladder.progression if s.kind == "swap"):
        a, b = brute_force_swap(of, train, test, 1, set().union(moved[0], *moved[1:][-2:]))
        assert (list(step.moved_train), list(step.moved_test)) == (a, b)
        train, test = train - set(a) | set(b), test - set(b) | set(a)
        moved.append({*a, *b})
    fewest = build(of, swaps_per_iteration=1, rerank=rerank, remaining=0.0).progression[-1]
    assert (fewest.kind, fewest.train_classes, fewest.test_classes) == ("removal", 4, 4), "8 and 9 others lost 6 each"


BAD = {
    "hold NaN": lambda f, y, n: (np.where(np.arange(len(f))[:, None] == 5, np.nan, f), y, n[:8], n[8:], n),
    "constant": lambda f, y, n: (np.ones_like(f), y, n[:8], n[8:], n),
    "one entry an image": lambda f, y, n: (f, y[:-1], n[:8], n[8:], n),
    "at least four classes": lambda f, y, n: (f, y, n[:1], n[1:3], n),
    "1 such train and 8": lambda f, y, n: (*_single(f, y, range(7)), n[:8], n[8:], n),
    "in train and in test": lambda f, y, n: (f, y, n[:9], n[8:], n),
    "not among": lambda f, y, n: (f, y, [*n[:8], "zebra"], n[8:], n),
    "no image": lambda f, y, n: (f[y > 0], y[y > 0], n[:8], n[8:], n),
    "positions in the list": lambda f, y, n: (f, y + 1, n[:8], n[8:], n),
    r"^classes=None must be a list of names; .*labels\[i\] is the place": lambda f, y, n: (f, y, n[:8], n[8:], None),
    "^test_classes=8 must be a list": lambda f, y, n: (f, y, n[:8], 8, n),
    "must be a matrix": lambda f, y, n: (f[:, 0], y, n[:8], n[8:], n),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_clear_line(message: str) -> None:
    features, labels, train, test, names = BAD[message](*data())
    with pytest.raises(SplitError, match=message) as caught:
        build_ladder(features, labels, train, test, classes=names)
    assert "\n" not in str(caught.value)


def test_a_class_outside_both_sides_plays_no_part() -> None:
    features, labels, names = data()
    ladder = build_ladder(features, labels, names[:7], names[8:15], classes=names, iid_draws=2)
    assert all("c07" not in (*s.train, *s.test) and "c15" not in (*s.train, *s.test) for s in ladder.splits)
    keep = ~np.isin(labels, [7, 15])
    without = build_ladder(features[keep], labels[keep], names[:7], names[8:15], classes=names, iid_draws=2)
    assert without == ladder


def test_the_default_split_alone_needs_no_features() -> None:
    labels = np.repeat(np.arange(6), [3, 1, 4, 1, 5, 9])
    ladder = default_rung(labels, ["a", "c", "e", "f"], ["b", "d"], classes=list("abcdef"), dataset="toy", seed=1)
    (split,) = ladder.splits
    assert (split.kind, split.frd, split.train_images, split.test_images) == ("default", None, 3 + 4 + 5 + 9, 2)
    assert len(split.validation) == 1
    assert set(split.validation) < set(split.train)
    assert ladder.default is split
