"""Distances beside those of the rungs: of halves at random, of other networks, at equal n, of another ladder."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.stats import spearmanr

from splits import SplitError
from splits.compare import compare_ladders, cross_distances, overlap
from splits.frechet import frechet_distance
from splits.iid import iid_distance, random_halves
from splits.ladder import build_ladder, measure
from splits.manifest import Ladder
from splits.plot_data import curves, easy_medium_hard, points
from tests.ladder_data import build, data, side


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
