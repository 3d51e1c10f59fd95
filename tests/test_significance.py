"""Ties, ranges of ranks and tests over cells, against brute force, scipy and published tables of critical values."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reports import ReportError, aggregate, records
from reports.analysis import baselines, significance, statistics
from reports.analysis.resampling import Resamples, ags_weights
from reports.analysis.results import Results
from reports.storage.by_class import Reader
from reports.storage.queries import QueryResults
from tests.sample_records import LADDERS, make_record, write_queries


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_definition(p: list[float]) -> None:
    """Sorted, the i-th smallest of m is multiplied by m - i + 1 and may not fall below its predecessor."""
    expected: dict[int, float] = {}
    running = 0.0
    for place, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        running = max(running, min(1.0, (len(p) - place) * p[index]))
        expected[index] = running
    assert statistics.holm(p).tolist() == pytest.approx([expected[i] for i in range(len(p))])


def test_critical_differences_are_those_of_demsar() -> None:
    """q_0.05 of table 5(a) in Demšar (2006)."""
    printed = {2: 1.960, 3: 2.343, 4: 2.569, 5: 2.728, 6: 2.850, 7: 2.949, 8: 3.031, 9: 3.102, 10: 3.164}
    for methods, q in printed.items():
        cd = statistics.critical_difference(methods, 14)
        assert cd == pytest.approx(q * math.sqrt(methods * (methods + 1) / (6 * 14)), abs=2e-3)


def wide(values: list[list[float]]) -> pd.DataFrame:
    return pd.DataFrame(values, index=pd.Index([f"m{i}" for i in range(len(values))], name="label"))


def test_friedman_and_wilcoxon_are_scipys() -> None:
    rng = np.random.default_rng(3)
    table = wide((rng.random((4, 11)) + np.arange(4)[:, None] * 0.2).tolist())
    found = statistics.friedman(table)
    assert found is not None
    expected = stats.friedmanchisquare(*table.to_numpy())
    assert (found.statistic, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    ranks = [sum(1 + sum(other > own for other in column) for own, column in
                 zip(table.to_numpy()[i], table.to_numpy().T)) / 11 for i in range(4)]
    assert list(found.ranks.values()) == pytest.approx(ranks)
    pairs = statistics.wilcoxon_pairs(table)
    row = pairs[(pairs["first"] == "m0") & (pairs["second"] == "m3")].iloc[0]
    assert row["p"] == pytest.approx(stats.wilcoxon(table.loc["m0"], table.loc["m3"]).pvalue)
    assert row["wins"] + row["ties"] + row["losses"] == 11
    assert (pairs["holm"] >= pairs["p"]).all()
    assert statistics.friedman(table.iloc[:2]) is None


@pytest.mark.parametrize("cells", [2, 5, 24, 50])
def test_exact_and_tied_tests_are_scipys(cells: int) -> None:
    """Up to 50 differences without ties are tested exactly; scores tie in Friedman's test and in Kendall's tau."""
    rng = np.random.default_rng(cells)
    differences = rng.normal(0.4, 1, (6, cells))
    expected = stats.wilcoxon(differences, axis=1, method="exact").pvalue
    assert statistics.signed_rank(differences).tolist() == pytest.approx(expected.tolist(), rel=1e-12)
    tied = rng.integers(0, 4, (5, cells)).astype(float)
    found = statistics.friedman(wide(tied.tolist()))
    assert found is not None
    assert (found.statistic, found.p) == pytest.approx(tuple(stats.friedmanchisquare(*tied)), rel=1e-9)
    tau, flips = statistics.kendall(tied[0], tied[1])
    assert tau == pytest.approx(stats.kendalltau(tied[0], tied[1]).statistic, nan_ok=True)
    assert flips == sum((tied[0, i] - tied[0, j]) * (tied[1, i] - tied[1, j]) < 0
                        for i in range(cells) for j in range(i))


@pytest.mark.parametrize("methods", [2, 5, 44, 300])
def test_critical_differences_are_scipys(methods: int) -> None:
    q = stats.studentized_range.ppf(0.95, methods, np.inf) / math.sqrt(2)
    assert statistics.critical_difference(methods, 7) == pytest.approx(
        q * math.sqrt(methods * (methods + 1) / 42), rel=1e-6)


def test_cliques_join_what_is_near() -> None:
    found = statistics.Friedman(1, 0.01, {"a": 1.0, "b": 1.5, "c": 2.4, "d": 4.0}, 10, 1.0)
    assert found.cliques == [("a", "b"), ("b", "c")]


def test_equal_methods_are_no_finding() -> None:
    table = wide([[0.5, 0.6]] * 3)
    found = statistics.friedman(table)
    assert found is not None
    assert found.p == 1
    assert statistics.wilcoxon_pairs(table)["p"].tolist() == [1, 1, 1]


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(0, 1)), min_size=2, max_size=9, unique_by=lambda pair: pair[0]))
def test_ags_is_the_weighted_mean(points: list[tuple[float, float]]) -> None:
    fids, scores = zip(*points)
    if max(fids) - min(fids) < 1e-3:
        return
    assert float(ags_weights(fids) @ np.array(scores)) == pytest.approx(aggregate.ags(fids, scores), abs=1e-9)


def test_without_queries_the_test_is_welchs() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(0.6, 0.01, 4), rng.normal(0.58, 0.03, 3)
    stds = np.array([one.std(ddof=1), two.std(ddof=1)])
    found = significance.errors(np.full((2, 5), np.nan), stds, np.array([4.0, 3.0]), 2)
    p = significance.p_values(np.array([one.mean(), two.mean()]), found)
    assert p[0, 1] == pytest.approx(stats.ttest_ind(one, two, equal_var=False).pvalue)
    half = found.pair_half_widths()[0, 1]
    interval = stats.ttest_ind(one, two, equal_var=False).confidence_interval()
    assert half == pytest.approx((interval.high - interval.low) / 2)


def test_single_seeds_without_queries_cannot_be_tested() -> None:
    found = significance.errors(np.full((2, 5), np.nan), np.array([np.nan, 0.01]), np.array([1.0, 3.0]), 2)
    assert np.isnan(found.pair[0, 1])
    p = significance.p_values(np.array([0.6, 0.5]), found)
    assert [side.tolist() for side in significance.rank_ranges(np.array([0.6, 0.5]), p)] == [[1, 2], [1, 2]]


def test_ranges_and_groups_by_hand() -> None:
    values = np.array([0.9, 0.88, 0.7, 0.69])
    p = np.array([[1, 0.4, 0.01, 0.01], [0.4, 1, 0.2, 0.01], [0.01, 0.2, 1, 0.5], [0.01, 0.01, 0.5, 1.0]])
    first, last = significance.rank_ranges(values, p)
    assert list(zip(first.tolist(), last.tolist())) == [(1, 2), (1, 3), (2, 4), (3, 4)]
    assert significance.tie_groups(values, p).tolist() == [1, 1, 2, 2]


@given(st.integers(2, 8), st.integers(0, 10_000))
def test_a_rank_lies_in_its_range(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random(count).round(1)
    p = rng.random((count, count))
    p = np.triu(p, 1) + np.triu(p, 1).T + np.eye(count)
    p[values[:, None] == values[None, :]] = 1
    first, last = significance.rank_ranges(values, p)
    place = stats.rankdata(-values, method="min")
    assert (first <= place).all()
    assert (place <= last).all()
    assert significance.tie_groups(values, p)[np.argmax(values)] == 1


def write_cell(folder: Path, method: str, split: int, hits: np.ndarray, labels: np.ndarray, seed: int = 0,
               classes: list[str] | None = None) -> None:
    path = folder / method / str(split) / f"s{seed}"
    records.write(path, make_record("glyphs", split, method, seed, float(hits.mean())))
    write_queries(path, labels, hits, classes)


def test_the_error_by_resampled_classes_is_the_cluster_error(tmp_path: Path) -> None:
    """Against the linearised variance of a ratio: sum over classes of (d_c - D n_c)^2 / N^2."""
    rng = np.random.default_rng(5)
    classes, each = 60, 8
    labels = np.repeat(np.arange(classes), each)
    ease = rng.normal(0, 0.25, classes)[labels]
    one = rng.random(len(labels)) < np.clip(0.7 + ease, 0, 1)
    two = rng.random(len(labels)) < np.clip(0.62 + ease, 0, 1)
    write_cell(tmp_path, "one", 1, one, labels)
    write_cell(tmp_path, "two", 1, two, labels)
    results = Results(records.collect(tmp_path))
    cells, errors = results.rung_errors("glyphs", 1, "recall@1")
    assert cells["method"].tolist() == ["one", "two"]
    difference = (one.astype(int) - two).reshape(classes, each).sum(axis=1)
    expected = ((difference - difference.mean()) ** 2).sum() / len(labels) ** 2
    assert errors.pair[0, 1] == pytest.approx(expected, rel=0.12)
    single = one.reshape(classes, each).sum(axis=1)
    assert errors.own[0] == pytest.approx(((single - single.mean()) ** 2).sum() / len(labels) ** 2, rel=0.12)


def test_named_classes_are_drawn_once_for_all_rungs(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(30), 5)
    hits = rng.random(len(labels)) < 0.5
    names = [f"class {i}" for i in range(30)]
    for split in (1, 2):
        write_cell(tmp_path, "named", split, hits, labels, classes=names)
        write_cell(tmp_path / "x", "plain", split, hits, labels)
    frame = records.collect(tmp_path)
    named = Resamples.of(frame[frame["method"] == "named"], ["recall@1"])["recall@1"]
    plain = Resamples.of(frame[frame["method"] == "plain"], ["recall@1"])["recall@1"]
    draws = [[next(iter(found.rungs["glyphs", split].values())) for split in (1, 2)] for found in (named, plain)]
    assert np.array_equal(*draws[0])
    assert abs(np.corrcoef(*draws[1])[0, 1]) < 0.2


def test_methods_that_differ_by_chance_share_a_range(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(40), 10)
    for method, strength in (("a", 0.70), ("b", 0.69), ("c", 0.30)):
        for split, _ in LADDERS["glyphs"]:
            write_cell(tmp_path, method, split, rng.random(len(labels)) < strength, labels)
    results = Results(records.collect(tmp_path))
    board = results.ags("recall@1", "demo").wide().set_index("method")
    assert (board.at["a", "rank:low"], board.at["a", "rank:high"]) == (1, 2)
    assert (board.at["c", "rank:low"], board.at["c", "rank:high"]) == (3, 3)
    assert board["mean:group"].to_dict() == {"a": 1, "b": 1, "c": 2}
    assert board.at["a", "mean:low"] < board.at["a", "mean"] < board.at["a", "mean:high"]


def test_the_interval_of_an_ags_over_seeds_is_scipys(tmp_path: Path) -> None:
    scores = {"a": [0.61, 0.64, 0.66, 0.58], "b": [0.5]}
    for method, values in scores.items():
        for seed, value in enumerate(values):
            for split, _ in LADDERS["glyphs"]:
                record = make_record("glyphs", split, method, seed, value)
                records.write(tmp_path / f"{method}-{split}-{seed}", record)
    board = Results(records.collect(tmp_path)).ags("recall@1", "demo").wide().set_index("method")
    values = scores["a"]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = board.loc["a", ["ags:glyphs", "ags:glyphs:low", "ags:glyphs:high"]].tolist()
    assert found == pytest.approx([np.mean(values), low, high])
    assert board["ags:glyphs:n"].to_dict() == {"a": 4, "b": 1}
    assert math.isnan(board.at["b", "ags:glyphs:low"])


def test_intervals_of_fractions_end_at_zero_and_one() -> None:
    spread = significance.errors(np.full((3, 2), np.nan), np.array([0.01, 0.05, 0.02]), np.full(3, 3.0), 1)
    low, high = spread.bounds(np.array([0.5, 0.99, 0.01]))
    half = stats.t(2).ppf(0.975) * np.array([0.01, 0.05, 0.02]) / 3**0.5
    assert low == pytest.approx([0.5 - half[0], 0.99 - half[1], 0])
    assert high == pytest.approx([0.5 + half[0], 1, 0.01 + half[2]])
    counts = np.array([5.0, 0.99, 0.01])  # no fractions
    assert spread.bounds(counts)[1] == pytest.approx(counts + half)


def test_moderated_variances_find_what_they_were_drawn_from() -> None:
    """Variances from a scaled inverse chi-square, each seen through three values: Bayes' rule."""
    rng = np.random.default_rng(0)
    prior, common, seen = 6.0, 4.0, 2
    true = prior * common / rng.chisquare(prior, 20_000)
    variances = np.var(rng.normal(0, np.sqrt(true), (3, 20_000)), axis=0, ddof=1)
    found, freedom = statistics.moderated(variances, np.full(20_000, seen))
    assert freedom[0] == pytest.approx(prior + seen, rel=0.08)
    centre = np.exp(np.log(true).mean())  # above `common`: the posterior mean, moved towards unsteady rows
    posterior = (prior * centre + seen * variances) / (prior + seen)
    np.testing.assert_allclose(found, np.maximum(variances, posterior), rtol=0.08)


def test_moderated_variances_leave_alone_what_tells_nothing() -> None:
    few = np.array([1.0, 2.0, 3.0])
    assert statistics.moderated(few, np.full(3, 2))[0].tolist() == few.tolist()
    mixed = np.array([0.0, np.nan, *np.geomspace(0.001, 100, 30)])
    found, freedom = statistics.moderated(mixed, np.array([2.0, 0.0, *[2.0] * 30]))
    assert (found[0], freedom[0], freedom[1]) == (0, 2, 0)
    assert math.isnan(found[1])
    assert (np.diff(found[2:]) > 0).all()
    assert found[2] > mixed[2]
    assert found[-1] == mixed[-1]


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_equal_methods_of_three_seeds_are_seldom_told_apart(spread: float) -> None:
    """About 5 % of boards may call any two of 40 equal methods different, however much their variances differ."""
    rng = np.random.default_rng(3)
    wrong = 0
    for _ in range(300):
        scores = rng.normal(0.5, 0.01 * np.exp(rng.normal(0, spread, (40, 1))), (40, 3))
        found = significance.errors(np.full((40, 2), np.nan), scores.std(axis=1, ddof=1), np.full(40, 3.0), 100)
        p = significance.p_values(scores.mean(axis=1), found)
        wrong += bool((p[np.triu_indices(40, 1)] < 0.05).any())
    assert wrong / 300 < 0.08


@pytest.mark.parametrize(("several", "spread"), [(12, 0.0), (12, 0.5), (30, 0.5)])
def test_equal_methods_of_one_and_of_three_seeds_are_seldom_told_apart(several: int, spread: float) -> None:
    """A method trained once is no surer than one trained three times: it has the variance of those that tell theirs."""
    rng = np.random.default_rng(5)
    counts = np.repeat([3.0, 1.0], [several, 40 - several])
    wrong = {True: 0, False: 0}
    for _ in range(300):
        test = rng.normal(0, 0.002, (40, 200))  # what test classes add, resampled
        scores = rng.normal(0.5, 0.01 * np.exp(rng.normal(0, spread, (40, 1))), (40, 3))
        means = np.where(counts > 1, scores.mean(axis=1), scores[:, 0]) + rng.normal(0, 0.002, 40)
        stds = np.where(counts > 1, scores.std(axis=1, ddof=1), np.nan)
        for trained in wrong:
            found = significance.errors(test, stds, counts, 100, random=np.full(40, trained))
            p = significance.p_values(means, found)
            wrong[trained] += bool((p[np.triu_indices(40, 1)] < 0.05).any())
    assert wrong[True] / 300 < 0.2
    assert wrong[False] / 300 > 0.9  # taken as exact, they are told apart on nearly every board


def test_three_seeds_of_many_methods_tell_far_ones_apart() -> None:
    rng = np.random.default_rng(4)
    truth = np.repeat([0.9, 0.5], 15)
    scores = rng.normal(truth[:, None], 0.01, (30, 3))
    found = significance.errors(np.full((30, 2), np.nan), scores.std(axis=1, ddof=1), np.full(30, 3.0), 100)
    first, last = significance.rank_ranges(scores.mean(axis=1), significance.p_values(scores.mean(axis=1), found))
    assert last[:15].max() <= 15 < first[15:].min()


def test_stability_counts_places() -> None:
    drawn = np.array([[0.5, 0.5, 0.5, 0.5], [0.4, 0.6, 0.4, 0.4]])
    spread = significance.errors(drawn, np.full(2, np.nan), np.ones(2), 4)
    places = significance.stability(drawn.mean(axis=1), drawn, spread)
    assert places is not None
    assert places.tolist() == [[0.75, 0.25], [0.25, 0.75]]
    still = significance.errors(np.full((2, 4), np.nan), np.zeros(2), np.ones(2), 2)
    assert significance.stability(np.array([1.0, 2.0]), np.full((2, 4), np.nan), still) is None


def test_results_of_queries_are_read_as_they_were_saved(tmp_path: Path) -> None:
    first = np.array([1, 2, 0, 7, 1, 300])
    counted = np.array([True, True, True, False, True, True])
    labels = np.array([3, 3, 0, 0, 5, 5])
    QueryResults(first, counted, labels).save(tmp_path / "queries.npz")
    found = Reader("recall@2").read(tmp_path)["recall@2"]
    assert dict(zip(found.keys.tolist(), zip(found.queries.tolist(), found.hits.tolist()))) == {
        0: (1, 0), 3: (2, 2), 5: (2, 1)}
    assert found.hits.sum() == np.isin(first[counted], (1, 2)).sum()
    assert Reader().read(tmp_path / "none") == {}
    (tmp_path / "queries.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(ReportError, match="damaged"):
        Reader().read(tmp_path)


def test_the_distance_at_which_a_method_falls_below_the_frozen_network(tmp_path: Path) -> None:
    """On a ladder 164.25, 214.5: gains of +0.1 and -0.3 cross zero a quarter of the way."""
    for split, ours in ((1, 0.6), (2, 0.2)):
        records.write(tmp_path / f"m{split}", make_record("glyphs", split, "margin", 0, ours))
        records.write(tmp_path / f"f{split}", make_record("glyphs", split, "frozen", 0, 0.5))
        records.write(tmp_path / f"a{split}", make_record("glyphs", split, "arcface", 0, 0.9))
    cells = aggregate.rung_scores(records.collect(tmp_path), "glyphs")
    below = baselines.falls_below(cells).set_index("method")["below"]
    assert below["margin"] == pytest.approx(164.25 + (214.5 - 164.25) / 4)
    assert math.isinf(below["arcface"])


def test_the_unified_score_of_a_union_has_the_error_of_its_classes(tmp_path: Path) -> None:
    """One seed, so that the interval is that of classes drawn anew: against a plain bootstrap of the class means."""
    rng = np.random.default_rng(5)
    labels, chance = np.repeat(np.arange(40), 25), np.repeat(rng.uniform(0.2, 0.9, 40), 25)
    hits = rng.random(len(labels)) < chance
    record = make_record("glyphs-union", 1, "margin", 0, float(hits.mean()), {"latin": 0.6, "greek": 0.5})
    records.write(tmp_path / "a", record)
    write_queries(tmp_path / "a", labels, hits)
    (row,) = Results(records.collect(tmp_path)).universal("glyphs-union", "demo").wide().to_dict("records")
    means = hits.reshape(40, 25).mean(1)
    error = np.std([rng.choice(means, 40).mean() for _ in range(4000)])
    assert (row["unified:high"] - row["unified:low"]) / 2 == pytest.approx(stats.t.ppf(0.975, 39) * error, rel=0.1)
