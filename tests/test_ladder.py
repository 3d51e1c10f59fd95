"""The ladder against a brute-force rendering of the paper's rule, and the properties that every ladder has."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from benchmark import cli, datasets, ladders
from benchmark.utils.workspace import Workspace
from splits import SplitError, frechet, manifest
from splits.compare import compare_ladders, cross_distances, overlap
from splits.frechet import frd_class_means_released, frechet_distance
from splits.iid import iid_distance, random_halves
from splits.ladder import against_rule, build_ladder, default_rung, measure
from splits.manifest import Ladder, load
from splits.plot_data import curves, easy_medium_hard, points
from splits.rungs import choose_rungs, rising

Data = tuple[Any, Any, list[str]]


def data(classes: int = 16, d: int = 6, seed: int = 0, spread: float = 0.5) -> Data:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(4, 9, classes)
    labels = np.repeat(np.arange(classes), sizes)
    features = (rng.normal(size=(classes, d)) * 2)[labels] + spread * rng.normal(size=(len(labels), d))
    return features, labels, [f"c{i:02d}" for i in range(classes)]


def build(of: Data, **options: object) -> Ladder:
    features, labels, names = of
    half = len(names) // 2
    return build_ladder(features, labels, names[:half], names[half:], classes=names,
                        **{"iid_draws": 0, **options})  # type: ignore[arg-type]


def side(of: Data, wanted: set[str]) -> np.ndarray:
    features, labels, names = of
    return np.array([f for f, c in zip(features, labels) if names[c] in wanted])


def means(of: Data, wanted: set[str]) -> np.ndarray:
    return np.array([side(of, {name}).mean(axis=0) for name in sorted(wanted)])


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


@settings(max_examples=25, deadline=None)
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


@settings(max_examples=40, deadline=None)
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


def test_too_few_rungs_are_refused_before_features_are_computed(tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.ladders.features.frozen_features", lambda *_: pytest.fail("features were computed"))
    with pytest.raises(SplitError, match="take 3, or 2 with --no-reverse"):
        ladders.build("glyphs-mini", Workspace.at(tmp_path), rungs=2)
    assert rising([5.0], 0) == [0]


def test_iid_halves_share_their_classes() -> None:
    features, labels, _ = data(classes=12, d=3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        first = random_halves(labels, rng)
        sizes = np.bincount(labels)
        assert (np.abs(2 * np.bincount(labels[first], minlength=12) - sizes) == sizes % 2).all()
    for d in (3, 60):
        features = data(classes=12, d=d)[0]
        computed = iid_distance(features, labels, draws=4, seed=3)
        rng = np.random.default_rng(3)
        halves = [random_halves(labels, rng) for _ in range(4)]
        expected = [frechet_distance(features[h], features[~h]) for h in halves]
        assert computed["mean"] == pytest.approx(np.mean(expected), rel=1e-8)
        assert computed["std"] == pytest.approx(np.std(expected, ddof=1), rel=1e-6)
    ladder = build(data(classes=12), iid_draws=10)
    assert ladder.iid is not None
    assert ladder.iid["mean"] < ladder.default.frd  # type: ignore[operator]


def test_cross_distances() -> None:
    sets = {name: (data(d=4, seed=i)[0], data(d=4, seed=i + 9)[0]) for i, name in enumerate("abc")}
    computed = cross_distances(sets)
    for i, one in enumerate("abc"):
        for j, two in enumerate("abc"):
            assert computed.matrix[i, j] == pytest.approx(frechet_distance(sets[one][0], sets[two][1]), rel=1e-9)
    with pytest.raises(SplitError, match="different widths"):
        cross_distances({"a": (np.eye(3), np.eye(3)), "b": (np.eye(4), np.eye(4))})


def test_backbones_side_by_side() -> None:
    features, labels, names = data(d=8)
    noise = np.random.default_rng(5).normal(size=features.shape)
    ladders = {"one": build((features, labels, names)), "same": build((3 * features, labels, names)),
               "other": build((features + 2 * noise, labels, names))}
    computed = compare_ladders(ladders)
    assert computed.move_correlation[0, 1] == pytest.approx(1)
    np.testing.assert_allclose(computed.progressions["one"].distance, computed.progressions["same"].distance, atol=1e-7)
    assert computed.progressions["other"].distance.min() == 0
    assert computed.progressions["other"].distance.max() == 1

    def first(ladder: Ladder) -> list[float]:
        return [min((s.iteration for s in ladder.progression if s.kept and s.kind == "swap"
                     and name in (*s.moved_train, *s.moved_test)), default=1000) for name in names]

    assert not all(step.kept for step in ladders["other"].progression if step.kind == "swap")
    expected = spearmanr(first(ladders["one"]), first(ladders["other"])).statistic
    assert computed.move_correlation[0, 2] == pytest.approx(expected)
    for id, shared in computed.rung_overlap.items():
        a, b = ladders["one"].split(id), ladders["other"].split(id)
        jaccard = [len(set(x) & set(y)) / len(set(x) | set(y)) for x, y in ((a.train, b.train), (a.test, b.test))]
        assert shared[2, 0] == pytest.approx(sum(jaccard) / 2)
        assert shared[0, 1] == 1
    with pytest.raises(SplitError, match="different default splits"):
        compare_ladders({"a": ladders["one"], "b": build(data(classes=12))})


def test_what_is_shown() -> None:
    of = data()
    _, labels, names = of
    ladder = build(of, reverse=True)
    assert all(s.train_images == len(side(of, set(s.train))) for s in ladder.splits)
    parts = curves(ladder)
    assert [s.iteration for s in parts["swap"]] == sorted(s.iteration for s in parts["swap"])
    assert parts["removal"][0].frd == max(s.frd for s in parts["swap"] if s.kept)
    assert [s.id for s in easy_medium_hard(ladder)] == [1, len(ladder.splits) // 2 + 1, len(ladder.splits)]
    some = points(ladder.splits[-1], labels, names, limit=20)
    assert len(some.images) == 20
    for i, test in zip(some.images, some.test):
        assert names[labels[i]] in (ladder.splits[-1].test if test else ladder.splits[-1].train)


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


def test_the_options_by_which_a_ladder_is_not_the_rules() -> None:
    of = data(30)
    assert against_rule(build(of, iid_draws=3)) == {}
    options = {"removal": False, "rungs": 5, "swaps_per_iteration": 3, "iterations": 2, "rerank": True, "seed": 4}
    assert against_rule(build(of, **options)) == options
    assert against_rule(build(of, patience=3, rung_iterations=[0, 1])) == {"patience": 3, "rung_iterations": [0, 1]}
    far = build(of, iid_draws=3).parameters["reverse"]
    assert against_rule(build(of, iid_draws=3, reverse=not far)) == {"reverse": not far}
    assert against_rule(default_rung(of[1], of[2][:4], of[2][4:], classes=of[2])) == {}


@pytest.mark.parametrize("options", [
    ["--rungs", "4", "--swaps", "3", "--iterations", "2", "--no-removal"], ["--rerank", "--no-reverse", "--seed", "3"],
    ["--rung-iterations", "0,1,R2"], ["--default-only"], ["--reverse", "--backbone", "conv4"], []])
def test_the_command_in_a_manifest_makes_the_same_ladder(options: list[str], tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed again, also where an older manifest has its parameters alone."""
    def frozen(name: str, workspace: Workspace, backbone: str | None = None, *_: object) -> tuple[Any, Any, Any]:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 9
        return index, features, {"backbone": backbone or "efficientnet_lite0"}

    monkeypatch.setattr("benchmark.ladders.features.frozen_features", frozen)

    def made(*words: str) -> Ladder:
        work = tmp_path / str(len(list(tmp_path.iterdir())))
        cli.main([*words, "--work", str(work)])
        return ladders.load(Workspace.at(work), "glyphs-mini")

    first = made("splits", "build", "--dataset", "glyphs-mini", *options)
    assert first.made["version"]
    again = made(*shlex.split(first.made["command"])[1:])
    assert (again.hash, again.made) == (first.hash, first.made)
    older = made(*shlex.split(ladders.made_by(dataclasses.replace(first, made={})))[1:])
    assert older.hash == first.hash


def test_the_published_ladder_of_glyphs_and_the_command_in_the_documentation() -> None:
    root = Path(__file__).resolve().parents[1]
    ladder = load(root / "reports" / "data" / "records" / "glyphs" / "splits" / "glyphs.json")
    assert against_rule(ladder) == {"rungs": 5}
    unnamed = dataclasses.replace(ladder, made={})
    commands = [ladders.made_by(ladder), ladders.made_by(unnamed)]
    assert commands == ["oodml splits use glyphs@v2",
                        "oodml splits build --dataset glyphs --rungs 5 --backbone efficientnet_lite0"]
    page = (root / "docs" / "pages" / "results.md").read_text(encoding="utf-8")
    assert all(command in page for command in commands)


def test_easier_rungs_depend_neither_on_the_scale_of_a_network_nor_on_the_number_of_images() -> None:
    """Twice the images halve the distance of random halves, all of it bias, and must not decide; nor may the scale."""
    features, labels, names = data(20, seed=3, spread=1.0)
    rng = np.random.default_rng(5)
    many = np.repeat(labels, 8)
    more = np.repeat(features, 8, axis=0) + rng.normal(size=(len(many), features.shape[1]))

    def made(features: np.ndarray, labels: np.ndarray, order: list[int]) -> bool:
        sides = [names[i] for i in order]
        ladder = build_ladder(features, labels, sides[:10], sides[10:], classes=names, iid_draws=3, removal=False)
        return bool(ladder.parameters["reverse"])

    hardest = build_ladder(features, labels, names[:10], names[10:], classes=names, removal=False,
                           iid_draws=0).splits[-1]
    apart = [names.index(name) for name in (*hardest.train, *hardest.test)]
    mixed = [*range(0, 20, 2), *range(1, 20, 2)]
    for order, expected in ((apart, False), (mixed, made(features, labels, mixed))):
        assert made(1000 * features, labels, order) == made(more, many, order) == expected
    nearly = [*apart[1:10], apart[19], *apart[10:19], apart[0]]  # one exchange from the hardest: far from i.i.d.
    assert made(features, labels, nearly)
    assert made(more, many, nearly)


def test_the_distance_at_equal_n_and_a_ladder_measured_with_other_features() -> None:
    of = data(24, seed=1)
    ladder = build(of, iid_draws=0)
    n = ladder.parameters["equal_n"]
    assert n == min(min(split.train_images, split.test_images) for split in ladder.splits)
    for split in ladder.splits:  # by hand: the same draw, plain covariances
        rng = np.random.default_rng(0)
        rows = [np.flatnonzero([of[2][c] in names for c in of[1]]) for names in (split.train, split.test)]
        drawn = [of[0][np.sort(rng.permutation(side)[:n])] for side in rows]
        assert split.frd_equal_n == pytest.approx(by_definition(*drawn), rel=1e-6)
    other = data(24, seed=2)[0][: len(of[1])]
    other = np.concatenate([other, other])[: len(of[1])] + of[0]
    for split, (frd, _) in zip(ladder.splits, measure(ladder, other, of[1], of[2])):
        sides = [side((other, of[1], of[2]), set(names)) for names in (split.train, split.test)]
        assert frd == pytest.approx(by_definition(*sides), rel=1e-6)


def by_definition(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.linalg import sqrtm

    a, b = np.cov(x.T), np.cov(y.T)
    return float(((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(a + b - 2 * np.real(sqrtm(a @ b))))


def test_a_released_ladder_beside_one_built_here() -> None:
    ladder = build(data(24, seed=1), removal=False)
    released = dataclasses.replace(ladder, progression=(), splits=tuple(
        dataclasses.replace(split, kind="imported") for split in ladder.splits))
    alike = overlap(released, ladder)
    assert np.diag(alike.rungs).tolist() == [1.0] * len(ladder.splits)
    assert alike.rungs[0, -1] < 1
    assert alike.moves > 0.5  # the released one knows the rung alone at which a class is found on the other side
    assert overlap(ladder, ladder).moves == pytest.approx(1)


def test_a_ladder_measured_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    def frozen(name: str, workspace: Workspace, *_: object, **__: object) -> tuple[Any, Any, Any]:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 9
        return index, features, {"backbone": "x"}

    monkeypatch.setattr("benchmark.ladders.features.frozen_features", frozen)
    where = ["--dataset", "glyphs-mini", "--work", str(tmp_path)]
    cli.main(["splits", "build", "--rungs", "3", *where])
    built = capsys.readouterr().out
    kept, out = tmp_path / "splits" / "glyphs-mini.json", tmp_path / "measured.json"
    named = {"oodml": "1", "pinned": {"name": "glyphs-mini@v1", "hash": "0" * 64}}
    manifest.save(dataclasses.replace(manifest.load(kept), made=named), kept)
    cli.main(["splits", "measure", *where, "--against", str(kept), "--out", str(out)])
    measured = capsys.readouterr().out
    written, ladder = manifest.load(out), manifest.load(kept)
    assert written.features == {"backbone": "x"}
    assert written.made == {"oodml": "1"}, "it is no more the pinned one, whose distances are others"
    assert [(split.train, split.test, split.frd_equal_n) for split in written.splits] == [
        (split.train, split.test, split.frd_equal_n) for split in ladder.splits]
    assert [split.frd for split in written.splits] == pytest.approx([split.frd for split in ladder.splits])
    with pytest.raises(SystemExit):
        cli.main(["splits", "measure", *where, "--out", str(out)])
    assert f"{out} is there already" in capsys.readouterr().err
    rungs = [line.split() for line in measured.splitlines()[1:4]]
    assert [row[:9] for row in rungs] == [line.split()[:9] for line in built.splitlines() if line.strip()[:2] in
                                          ("1 ", "2 ", "3 ")]
    assert "rank correlation of when classes change sides: 1.00" in measured
