"""The errors behind ranks: rung by rung, part by part, within a backbone; against simulations and brute force."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from benchmark.config import overrides
from benchmark.data.task import Side
from benchmark.runs import scoring
from reports import packing, records
from reports.aggregate import harmonic_mean
from reports.analysis import comparison, paper_tables, significance, standings, statistics
from reports.analysis.paper_numbers import method_name
from reports.analysis.results import Results
from reports.analysis.seeds import RowErrors, SeedErrors, SeedScores, seed_errors
from reports.selection import ROW
from reports.storage.by_class import Reader, summed
from reports.storage.queries import NAME, PartResults, QueryResults
from tests.bench import bench_ranks
from tests.sample_records import make_record, write_sample

PUBLISHED = Path(__file__).parent.parent / "reports" / "data" / "records" / "glyphs"


@pytest.fixture(scope="module")
def study() -> Results:
    return Results(packing.scan(PUBLISHED)[0], derive=overrides.of_run)


def test_equal_rows_of_simulated_boards_are_told_apart_in_six_of_a_hundred_at_most() -> None:
    boards = 8
    for kind in bench_ranks.KINDS:
        found = [bench_ranks.familywise(kind, pattern, seeds, boards) for pattern in bench_ranks.PATTERNS
                 for seeds in bench_ranks.SEEDS]
        assert np.mean(found, axis=0)[0] <= 0.1  # each is the larger of two
        assert max(error for error, *_ in found) <= 0.26


@pytest.mark.slow
@pytest.mark.parametrize("seeds", bench_ranks.SEEDS)
@pytest.mark.parametrize("pattern", bench_ranks.PATTERNS)
@pytest.mark.parametrize("kind", bench_ranks.KINDS)
def test_the_familywise_error_is_six_percent_at_most(kind: str, pattern: str, seeds: int) -> None:
    """Fresh boards each time, in every setting and in the worse of its two rankings, within three binomial errors."""
    boards, start = 1000, int(np.random.default_rng().integers(2**31))
    error, power, width, tied = bench_ranks.familywise(kind, pattern, seeds, boards, start=start)
    print(f"{kind}, {pattern}, {seeds} seeds: error {error:.3f}, power {power:.3f}, width of ranks {width:.1f}, "
          f"tied with best {tied:.1f}")
    assert error <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / boards), f"boards of the seed {start}"


@pytest.mark.parametrize(("kind", "pattern"), [("union", "backbones"), ("ladder", "heteroscedastic")])
def test_ranks_are_narrower_than_with_one_prior_for_all_backbones(kind: str, pattern: str) -> None:
    now, before = (bench_ranks.familywise(kind, pattern, 3, 15, old) for old in (False, True))
    assert now[1] > before[1]
    assert now[2] < before[2]
    assert now[3] <= before[3]


@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_the_variance_by_rungs_is_that_of_the_weighted_mean(correlation: float) -> None:
    """Against the variance that the scores were drawn with; it varies less than that of the few sums themselves."""
    rng = np.random.default_rng(0)
    weights, spread = np.array([0.1, 0.3, 0.4, 0.2]), np.array([1.0, 2.0, 0.5, 1.5])
    scores = np.sqrt(correlation) * rng.standard_normal((3000, 3, 1))
    scores = (scores + np.sqrt(1 - correlation) * rng.standard_normal((3000, 3, 4))) * spread
    sums = (scores @ weights).var(axis=1, ddof=1) / 3
    each = scores.std(axis=1, ddof=1) / np.sqrt(3)
    found = seed_errors([RowErrors(one, 3, one, whole, 3) for one, whole in zip(each, sums)], weights.tolist())
    together = np.full((4, 4), correlation) + (1 - correlation) * np.eye(4)
    true = weights * spread @ together @ (weights * spread) / 3
    assert found.variance.mean() == pytest.approx(true, rel=0.08)
    assert found.variance.var() < 0.8 * sums.var()
    assert found.freedom.mean() == pytest.approx(2 * found.variance.mean() ** 2 / found.variance.var(), rel=0.35)


def partly_seeded(scores: np.ndarray, several: list[int]) -> SeedScores:
    """The scores (rows, seeds, rungs), of which all seeds but the first have these rungs alone."""
    frame = pd.DataFrame([
        {**dict.fromkeys(ROW, ""), "method": f"m{row}", "dataset": "cub", "split": rung, "seed": seed,
         "score": scores[row, seed, rung]}
        for row, seed, rung in np.ndindex(*scores.shape) if seed == 0 or rung in several])
    return SeedScores(frame, "score")


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_where_some_rungs_alone_have_several_seeds_they_tell_the_error_of_one(correlation: float) -> None:
    """The variance of the weighted mean of one training, on average and in its degrees of freedom."""
    rng = np.random.default_rng(4)
    weights = np.array([0.1, 0.3, 0.4, 0.2])
    scores = np.sqrt(correlation) * rng.standard_normal((1200, 3, 1))
    scores = scores + np.sqrt(1 - correlation) * rng.standard_normal((1200, 3, 4))
    known = partly_seeded(scores, [0, 2, 3])
    rows = list(dict.fromkeys(row for row, _ in known.scores))
    found = known.errors({("cub", rung): weight for rung, weight in enumerate(weights)}, rows)
    assert set(found.counts) == {1}
    assert found.variance.mean() == pytest.approx((scores[:, 0] @ weights).var(), rel=0.12)
    assert found.freedom.mean() == pytest.approx(2 * found.variance.mean() ** 2 / found.variance.var(), rel=0.3)


def test_the_error_of_one_seed_by_hand() -> None:
    """Deviations of 1 and 2 points on two of three rungs, three and two seeds: s^2 = (2 * 1 + 1 * 4) / 3 = 2."""
    scores = np.zeros((1, 3, 3))
    scores[0, :, 0] = [-1, 0, 1]
    scores[0, :2, 2] = np.array([-1, 1]) * np.sqrt(2)
    frame = partly_seeded(scores, [0, 2]).scores
    (row, _), = {(row, "") for row, _ in frame}
    del frame[row, ("cub", 2)][2]
    known = SeedScores.__new__(SeedScores)
    known.scores = frame
    errors = known._of_row(row, {("cub", rung): 1 / 3 for rung in range(3)})
    assert errors.errors == pytest.approx([np.sqrt(2)] * 3)
    assert (errors.counts, errors.pooled, errors.seeds) == (1, 3, 2)
    assert errors.shared == pytest.approx([0.5, np.nan, np.sqrt(2)], nan_ok=True)  # over the first two seeds
    assert errors.sums == pytest.approx(np.var([(-1 - np.sqrt(2)) / 3, np.sqrt(2) / 3], ddof=1) / 2)


def test_a_row_with_an_error_of_its_own_does_not_take_that_of_the_others() -> None:
    errors = SeedErrors(np.array([0.01, 0.04, 0.09, np.nan]) / [3, 3, 1, 1], np.array([4.0, 4.0, 5.0, 0.0]),
                        np.array([3.0, 3, 1, 1]))
    spread = significance.errors(np.full((4, 2), np.nan), np.array([0.1, 0.2, np.nan, np.nan]),
                                 errors.counts, 50, over_seeds=errors)
    assert spread.seeds[2] == pytest.approx(0.09)
    assert spread.own[2] == pytest.approx(0.09)
    assert spread.seeds[3] == pytest.approx((4 * 0.01 + 4 * 0.04 + 5 * 0.09) / 13)
    assert np.isnan(spread.own[3]), "what others vary by is not what is known of it"


def test_of_several_datasets_the_one_that_tells_least_bounds_the_degrees_of_freedom() -> None:
    """Two seeds on one rung of the first and five on seven rungs of the second: all is known by one deviation."""
    rng = np.random.default_rng(2)
    lines = [{**dict.fromkeys(ROW, ""), "method": f"m{row}", "dataset": dataset, "split": rung, "seed": seed,
              "score": rng.normal(0, spread)}
             for row in range(400) for dataset, spread, seeds, several in (("a", 2.0, 2, 1), ("b", 1.0, 5, 7))
             for seed in range(seeds) for rung in range(8) if seed == 0 or rung < several]
    known = SeedScores(pd.DataFrame(lines), "score")
    rows = list(dict.fromkeys(row for row, _ in known.scores))
    found = known.errors({(dataset, rung): 1 / 16 for dataset in "ab" for rung in range(8)}, rows)
    wanted = (2.0**2 + 1.0**2) * 8 / 16**2
    assert 0.9 * wanted < found.variance.mean() < 1.5 * wanted
    assert found.freedom.max() <= 29
    assert found.freedom.mean() < 5, "28 of the second dataset say nothing of the first"


def test_what_no_seed_changes_needs_one_alone() -> None:
    """A frozen network beside two rows of three seeds, and beside another frozen one, of which nothing is known."""
    scores, stds = np.array([0.5, 0.6, 0.3, 0.2]), np.array([0.01, 0.02, np.nan, np.nan])
    drawn, counts, random = np.full((4, 2), np.nan), np.array([3.0, 3, 1, 1]), np.array([True, True, False, False])
    found = significance.errors(drawn, stds, counts, 2, scores, random=random)
    assert found.pair[:2, 2] == pytest.approx(stds[:2]**2 / 3)
    assert found.freedom[:2, 2] == pytest.approx(2)
    assert np.isnan(found.pair[2, 3])
    assert np.isnan(found.half_widths()[2:]).all()
    trained = significance.errors(drawn, stds, counts, 2, scores)
    assert np.isnan(trained.pair[:2, 2]).all(), "of a row that was trained once nothing is known"


def test_priors_are_of_each_backbone() -> None:
    """Two backbones whose variances differ a hundredfold, each with a variance of its own for all rows."""
    rng = np.random.default_rng(1)
    variances = np.concatenate([rng.chisquare(2, 400) / 2, 100 * rng.chisquare(2, 400) / 2])
    groups = np.repeat(["a", "b"], 400)
    apart, freedom = statistics.moderated(variances, np.full(800, 2.0), groups)
    _, freedom_mixed = statistics.moderated(variances, np.full(800, 2.0))
    assert np.median(freedom) > 5 * np.median(freedom_mixed)
    assert np.median(apart[:400]) == pytest.approx(1, rel=0.3)
    assert np.median(apart[400:]) == pytest.approx(100, rel=0.3)


def test_the_prior_of_steady_and_unsteady_rows_is_not_that_of_the_steady_ones() -> None:
    """Half of the rows vary eight times as much: unsteady ones that look steady by chance are near the middle."""
    rng = np.random.default_rng(2)
    true = np.where(np.arange(400) % 2, 64.0, 1.0)
    variances, _ = statistics.moderated(true * rng.chisquare(2, 400) / 2, np.full(400, 2.0))
    assert variances[true > 1].min() > 0.3 * 8  # the geometric mean is 8
    assert variances.min() < 8


def test_a_difference_over_classes_has_the_p_value_of_permutations() -> None:
    """Two rows of one seed: signs of the classes' differences are flipped at random."""
    rng = np.random.default_rng(3)
    classes = 80
    one = rng.normal(0.6, 0.1, classes)
    two = one + rng.normal(0.012, 0.05, classes)
    drawn = rng.poisson(1.0, (classes, 4000))
    resampled = np.stack([one @ drawn, two @ drawn]) / drawn.sum(0)
    spread = significance.errors(resampled, np.full(2, np.nan), np.ones(2), classes)
    p = significance.p_values(np.array([one.mean(), two.mean()]), spread)[0, 1]
    signs = rng.choice([-1, 1], (20_000, classes))
    flipped = np.abs(signs @ (one - two)) >= abs((one - two).sum())
    assert p == pytest.approx(flipped.mean(), abs=0.015)


def test_who_loses_every_split_to_the_leader_is_not_tied_with_it(study: Results) -> None:
    board = study.ags("recall@1", "glyphs").wide()
    board = board[board["rank"].notna()]
    lost = 0
    for _, rows in board.assign(label=study.label(board)).groupby("network"):
        labels = rows["label"].tolist()
        cells = [cell for cell in comparison.cells(study, labels, "recall@1") if cell["dataset"] == "glyphs"]
        leader = int(rows["mean"].to_numpy().argmax())
        for i in set(range(len(labels))) - {leader}:
            outcomes = {comparison.outcome(cell["scores"][i] - cell["scores"][leader],
                                           comparison.half_width(cell, i, leader)) for cell in cells}
            if outcomes == {-1}:
                lost += 1
                assert rows["mean:group"].iloc[i] != 1, labels[i]
                assert rows["rank:low"].iloc[i] > 1, labels[i]
    assert lost > 20


def test_the_published_boards_rank_each_backbone_apart(study: Results) -> None:
    boards = {"mean": study.ags("recall@1", "glyphs"), "harmonic": study.universal("glyphs-uneven", "glyphs")}
    for key, board in boards.items():
        frame = board.wide()
        for _, rows in frame.groupby("network"):
            ranked = rows[rows["rank"].notna()]
            assert ranked["rank"].min() == ranked["rank:low"].min() == 1
            assert ranked["rank:high"].max() == len(ranked)
            assert (ranked[f"{key}:group"] == 1).any()
            (frozen,) = rows.loc[rows["method"] == "frozen", key]
            gains = (ranked[key] - frozen).tolist()
            assert ranked[f"{key}:gain"].tolist() == pytest.approx(gains)
        assert set(frame.loc[frame["method"] == "frozen", "group"]) == {"frozen baseline"}
    union = frame.set_index(["method", "backbone"])
    assert union.at[("s2sd", "efficientnet_lite0"), "rank:low"] > 20
    ladder = study.ags("recall@1", "glyphs").wide().set_index(["method", "backbone"])
    assert ladder.at[("npair", "efficientnet_lite0"), "rank:low"] > 1


def test_every_row_of_the_published_study_stands_on_a_board(study: Results) -> None:
    known = standings.standings(study)
    assert set(known["label"]) == set(study.runs["label"])
    assert known[known["label"].str.contains("vit_small|puma")]["score"].notna().all()


def test_results_of_parts_and_precision_are_those_of_the_scores(tmp_path: Path) -> None:
    """Embeddings of a union with a query-only and a gallery-only image; also summed by class, and packed."""
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(12), 5)
    domains = (labels >= 7).astype(int)
    roles = np.full(60, "", dtype="<U7")
    roles[[3, 40]], roles[[8, 50]] = "query", "gallery"
    side = Side(np.arange(60), labels, tuple(f"class {i}" for i in range(12)), domains=domains,
                roles=roles)
    embeddings = torch.from_numpy(rng.normal(0, 1, (12, 6))[labels] + rng.normal(0, 1.2, (60, 6)))
    score = scoring.score(side, embeddings, ("first", "second"))
    score.queries.save(tmp_path / NAME)
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "classes.json").write_text(json.dumps(summed(tmp_path)))
    for folder, digits in ((tmp_path, 5), (packed, 3)):
        for metric in ("recall@1", "map@r", "map@1000"):
            one = Reader(metric).read(folder)[metric]
            assert one.parts is not None
            assert one.part_hits is not None
            assert one.hits.sum() / one.queries.sum() == pytest.approx(score.scores[metric], abs=10**-digits)
            for part, scores in score.domains.items():
                here = one.parts == part
                assert one.part_hits[here].sum() / one.queries[here].sum() == pytest.approx(
                    scores[metric], abs=10**-digits)


def test_files_without_precision_and_parts_are_read(tmp_path: Path) -> None:
    QueryResults(np.array([1, 2]), np.array([True, True]), np.array([0, 1])).save(tmp_path / NAME)
    assert set(np.load(tmp_path / NAME)) == {"first_hit", "counted", "labels"}
    one = Reader().read(tmp_path)["recall@1"]
    assert (one.parts, one.part_hits) == (None, None)
    assert Reader("map@r").read(tmp_path) == {}
    assert Reader("nmi").read(tmp_path) == {}


def test_the_harmonic_mean_has_the_error_of_its_classes(tmp_path: Path) -> None:
    """Two parts, one seed: against a bootstrap of the classes of each part."""
    rng = np.random.default_rng(5)
    labels, part = np.repeat(np.arange(60), 20), np.repeat([0, 1], [700, 500])
    hits = rng.random(1200) < np.repeat(rng.uniform(0.3, 0.9, 60), 20)
    scores = {name: float(hits[part == i].mean()) for i, name in enumerate(("greek", "latin"))}
    records.write(tmp_path / "a", make_record("glyphs-union", 1, "margin", 0, float(hits.mean()), scores))
    names = np.array([f"c{i}" for i in range(60)])
    first = np.where(hits, 1, 2)
    QueryResults(first, np.ones(1200, bool), labels, names, {},
                 PartResults(part, np.array(["greek", "latin"]), first)).save(tmp_path / "a" / NAME)
    results = Results(records.collect(tmp_path))
    (row,) = results.universal("glyphs-union", "demo").wide().to_dict("records")
    means = hits.reshape(60, 20).mean(1)
    drawn = [harmonic_mean([rng.choice(means[:35], 35).mean(), rng.choice(means[35:], 25).mean()])
             for _ in range(4000)]
    half = (row["harmonic:high"] - row["harmonic:low"]) / 2
    assert half / stats.t.ppf(0.975, 59) == pytest.approx(np.std(drawn), rel=0.12)
    assert row["recall:greek:low"] < scores["greek"] < row["recall:greek:high"]


def test_rows_of_several_weights_are_ranked_apart(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.6, "arcface": 0.5}, ("glyphs",), seeds=1, union=False)
    frame = records.collect(tmp_path)
    frame["weights"] = frame["method"].map({"margin": "a" * 64, "arcface": "b" * 64})
    rows = Results(frame).ags("recall@1", "demo").rows.set_index("method")
    assert rows["rank"].tolist() == [1, 1]
    assert rows["network"].to_dict() == {"arcface": "conv4 · weights bbbbbbbb", "margin": "conv4 · weights aaaaaaaa"}


def test_every_variant_of_revisiting_has_a_row_of_its_own() -> None:
    printed = paper_tables.read("revisiting_methods")
    names = {name: method_name(name) for name in printed["method"].unique()}
    by_dataset = printed[printed["metric"] == "recall@1"].assign(name=printed["method"].map(names))
    assert not by_dataset.duplicated(["dataset", "name"]).any()
    bare = printed[printed["std"].isna()]["method"].unique().tolist()
    assert "Imagenet" in bare
