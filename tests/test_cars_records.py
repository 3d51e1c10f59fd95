"""The published runs on the released Cars ladder: what the page of results says of them, from their records."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import kendalltau

from benchmark.config import overrides
from reports import records
from reports.aggregate import ags
from reports.analysis import study_progress
from reports.analysis.results import Results

ROOT = Path(__file__).parent.parent
DATA = ROOT / "reports" / "data"
METHODS = ("s2sd", "r-margin", "diva", "multisimilarity", "margin", "proxyanchor", "uniform-prior", "arcface")


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    """The runs of the papers' protocol, with their length and their best epoch on the test classes in percent."""
    runs = records.collect(DATA / "records" / "photos")
    runs = runs[(runs["dataset"] == "cars") & (runs["protocol"] == "oodml")]
    return runs.assign(epochs=[settings["epochs"] for settings in runs["protocol_settings"]],
                       best=100 * runs["best-test:recall@1"],
                       changed=[any("." in key for key in overrides) for overrides in runs["overrides"]])


@pytest.fixture(scope="module")
def printed() -> pd.DataFrame:
    table = pd.read_csv(DATA / "published" / "oodml_ladder.csv")
    table = table[(table["dataset"] == "cars") & (table["metric"] == "recall@1")]
    return table.pivot(index="method", columns="split", values="value")


def table(head: str, page: str = "results.md") -> list[list[str]]:
    """The lines of the table of a page that begins with this head, without it."""
    page = (ROOT / "docs" / "pages" / page).read_text(encoding="utf-8")
    _, found, rest = page.partition(f"\n| {head} |")
    assert found
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def in_words(scores: object) -> list[str]:
    return [f"{score:.1f}" for score in scores]  # type: ignore[attr-defined]


def test_both_ends_of_the_ladder(runs: pd.DataFrame, printed: pd.DataFrame) -> None:
    best = runs[(runs["epochs"] == 200) & runs["seed"].eq(0)].pivot(index="method", columns="split", values="best")
    near, near_printed, far, far_printed, *_ = [line[1:9] for line in table("| S2SD | r-margin")]
    for split, measured, said in ((1, near, near_printed), (8, far, far_printed)):
        assert measured == in_words(best.loc[list(METHODS), split])
        for cell, value in zip(said, printed.loc[list(METHODS), split]):
            assert float(cell) == pytest.approx(value, abs=0.0501)
    best, printed = best[[1, 8]].reindex(printed.index), printed[[1, 8]]
    short = (printed - best).round(1)
    assert short[short.max(axis=1) > 3].T.to_dict("list") == {"diva": [3.1, 3.9], "arcface": [6.7, 5.4],
                                                              "uniform-prior": [5.9, 5.7]}
    pairs = ((best[1], printed[1]), (best[8], printed[8]), (best[1], best[8]))
    assert [round(kendalltau(*pair).statistic, 2) for pair in pairs] == [0.64, 0.57, 0.93]
    for scores, least, most in ((best, 16, 19), (printed, 15, 19)):
        lost = (scores[1] - scores[8]).round()
        assert (lost.min(), lost.max()) == (least, most)


@pytest.fixture(scope="module")
def along(runs: pd.DataFrame) -> pd.DataFrame:
    """The runs of `photos-cars`, first seed."""
    lengths = {"multisimilarity": 100, "proxyanchor": 50, "margin": 90, "uniform-prior": 100, "arcface": 20,
               "s2sd": 200, "diva": 140, "r-margin": 200, "frozen": 200}
    return runs[(runs["epochs"] == runs["method"].map(lengths)) & runs["seed"].eq(0) & ~runs["changed"]]


def test_the_whole_ladder(along: pd.DataFrame, printed: pd.DataFrame) -> None:
    best = along.pivot(index="method", columns="split", values="best")
    distances = along.drop_duplicates("split").sort_values("split")["frd"]
    *methods, frozen = table("Cars, rung: best of the epochs")
    order = ["s2sd", "diva", "r-margin", "multisimilarity", "proxyanchor", "margin", "uniform-prior", "arcface"]
    names = [*order, "frozen"]
    assert sorted(best.index) == sorted(names)
    for name, measured, said in zip(names, [*methods[::2], frozen], [*methods[1::2], None]):
        assert measured[1:] == in_words([*best.loc[name], ags(distances, best.loc[name])])
        if said:
            assert all(float(cell) == pytest.approx(value, abs=0.0501) for cell, value in zip(
                said[1:], [*printed.loc[name], ags(distances, printed.loc[name])]))
    best, printed = best.loc[order], printed.loc[order]
    ranks, ranks_printed = best.rank(ascending=False).astype(int), printed.rank(ascending=False).astype(int)
    assert set(ranks.loc["s2sd"]) == set(ranks_printed.loc["s2sd"]) == {1}
    assert (ranks.loc["diva"].tolist(), set(ranks_printed.loc["diva"])) == ([2, 2, 2, 2, 4, 2, 2, 3], {2})
    assert (ranks.loc["r-margin"].tolist(), set(ranks_printed.loc["r-margin"])) == ([3, 3, 3, 3, 2, 3, 3, 2], {3, 4, 5})
    assert set(ranks.loc["arcface"]) == set(ranks_printed.loc["arcface"]) == {8}
    gaps = (printed - best).round(1)
    assert (printed - best).mean(axis=1).round(1).tolist() == [1.3, 2.9, 1.8, 1.6, 3.0, 2.1, 6.1, 7.2]
    assert gaps.loc[["s2sd", "r-margin"]].max(axis=1).tolist() == [2.3, 2.5]
    assert best.T.corrwith(printed.T).round(2).isin([0.99, 1]).all()
    assert (gaps > 3).sum(axis=1).tolist() == [0, 4, 0, 0, 4, 1, 8, 8]
    assert gaps.loc["margin"].max() == 3.6
    assert sorted(gaps.loc["diva"])[-4:] == [3.1, 3.4, 3.4, 3.7]
    assert sorted(gaps.loc["proxyanchor"])[-4:] == [3.1, 3.1, 3.2, 4.3]
    assert [(gaps.loc[name].min(), gaps.loc[name].max()) for name in ("uniform-prior", "arcface")] == [(5.6, 7.7),
                                                                                                     (5.4, 8.2)]
    fall = [(scores[1] - scores[8]).round(1) for scores in (best, printed)]
    assert [(lost.min(), lost.max()) for lost in fall] == [(16.0, 19.8), (15.3, 19.2)]
    taus = [round(kendalltau(best[split], printed[split]).statistic, 2) for split in best]
    assert taus == [0.79, 0.71, 0.79, 0.93, 0.5, 0.86, 0.86, 0.57]
    areas = [[ags(distances, scores.loc[name]) for name in order] for scores in (best, printed)]
    assert round(kendalltau(*areas).statistic, 2) == 0.86


def test_whether_the_lengths_were_enough(along: pd.DataFrame) -> None:
    page = (ROOT / "docs" / "pages" / "results_in_detail.md").read_text(encoding="utf-8")
    for name, group in along[along["method"] != "frozen"].sort_values("split").groupby("method"):
        epochs = [chosen["best-test"] for chosen in group["chosen_epochs"]]
        assert f"\n| {name} | {' | '.join(map(str, epochs))} | {group['epochs'].iloc[0]} |\n" in page
    arcface = along[along["method"] == "arcface"].set_index("split")["curve"].map(
        lambda curve: [100 * point["recall@1"] for point in curve if point.get("recall@1") is not None])
    gained = pd.Series({split: last - first for split, (first, last) in arcface.items()}).round(1)
    assert (gained.loc[2:6] > 0).all()
    assert gained.max() == gained[6] == 2.7


@pytest.mark.parametrize("method", ["s2sd", "diva", "r-margin", "proxyanchor"])
def test_curves_on_every_rung(method: str, along: pd.DataFrame, printed: pd.DataFrame) -> None:
    curves = [{point["epoch"]: point["recall@1"] for point in curve if point.get("recall@1") is not None}
              for curve in along[along["method"] == method].sort_values("split")["curve"]]
    *measured, said = table(f"Cars, {method}, epoch", "results_in_detail.md")
    assert len(measured) == 5
    for epoch, *cells in measured:
        assert cells == in_words(100 * curve[int(epoch)] for curve in curves)
    assert all(float(cell) == pytest.approx(value, abs=0.0501) for cell, value in zip(said[1:], printed.loc[method]))


def test_how_far_two_methods_fall_after_their_best_epoch(along: pd.DataFrame) -> None:
    runs = along.set_index(["method", "split"])
    fall = (runs["best"] - 100 * runs["recall@1"]).round(1)
    r_margin = fall["r-margin"].sort_values()
    assert (r_margin.index[-1], r_margin.tolist()[0], r_margin.tolist()[-2:]) == (5, 0.7, [2.9, 4.8])
    assert fall["diva"].max() == 1.0


def test_runs_of_one_seed_and_of_two_lengths(runs: pd.DataFrame, along: pd.DataFrame) -> None:
    long = runs[(runs["epochs"] == 200) & runs["seed"].eq(0)].set_index(["method", "split"])
    best = long.loc[long.index.isin([1, 8], level="split"), "best"]
    moved = (along.set_index(["method", "split"])["best"] - best).abs().dropna().round(1).sort_values()
    assert (moved.index[-1], moved.tolist()[-1]) == (("diva", 1), 0.9)
    assert moved[moved.index.get_level_values("method") != "diva"].max() == 0.6
    for method, epoch, *scores in ("arcface", 20, "70.5", "53.8"), ("proxyanchor", 50, "77.6", "71.7"):
        middle = long.loc[(method, 4)]
        assert middle["chosen_epochs"]["best-test"] == epoch
        assert in_words([middle["best"], 100 * middle["recall@1"]]) == scores


def test_three_seeds(runs: pd.DataFrame, along: pd.DataFrame, printed: pd.DataFrame) -> None:
    lengths = along.set_index("method")["epochs"].to_dict()
    seeds = runs[(runs["epochs"] == runs["method"].map(lengths)) & ~runs["changed"] & runs["split"].isin([1, 4, 8])]
    seeds = seeds[seeds["method"] != "frozen"]
    best = seeds.groupby(["method", "split"])["best"].agg(["mean", "std", "count"])
    assert (best.pop("count") == 3).all()
    assert f"differ by ± {best['std'].mean():.1f} points" in (ROOT / "README.md").read_text(encoding="utf-8")
    names = ["multisimilarity", "proxyanchor", "margin", "arcface", "uniform-prior", "s2sd", "diva", "r-margin"]
    told = table("Cars, rung: mean ± std of three seeds")
    for name, (_, *cells, falls) in zip(names, told):
        assert cells == [f"{row['mean']:.1f} ± {row['std']:.1f}" for _, row in best.loc[name].iterrows()]
        whole = seeds[seeds["method"] == name].pivot(index="seed", columns="split", values="best")
        fall = whole[1] - whole[8]
        assert falls == f"{fall.min():.1f} to {fall.max():.1f}"
    assert len(told) == len(names) == best.index.get_level_values("method").nunique()
    short = (printed.stack() - best["mean"]).dropna().round(1)
    low = ["arcface", "uniform-prior"]
    assert short.loc[low].min() == 5.6
    rest = short.drop(low, level="method").sort_values()
    assert rest.iloc[-3:].to_dict() == {("proxyanchor", 4): 3.1, ("margin", 4): 3.7, ("diva", 8): 4.3}
    assert rest.iloc[-4] == 2.8
    lowest, highest = (seeds.groupby(["split", "method"])["best"].agg(of).unstack() for of in ("min", "max"))
    assert (lowest["s2sd"] > highest.drop(columns="s2sd").max(axis=1)).all()
    falls = seeds.pivot(index=["method", "seed"], columns="split", values="best").eval("`1` - `8`")
    assert falls["s2sd"].max() < falls.drop(["s2sd", "r-margin"], level="method").min()
    assert in_words(falls.groupby("method").mean().nsmallest(2)[["s2sd", "r-margin"]]) == ["16.0", "15.9"]
    middle = seeds[seeds["method"].eq("r-margin") & seeds["split"].eq(4)].sort_values("seed")
    assert in_words(middle["best"]) == ["78.4", "78.3", "78.3"]
    assert in_words(100 * middle["recall@1"]) == ["75.6", "78.0", "77.4"]
    of = seeds.pivot(index=["seed", "split"], columns="method", values="best")
    ahead = (of["r-margin"] - of["diva"]).unstack().round(1)
    assert (ahead[[1, 4]] < 0).all(axis=None)
    assert (ahead[8].min(), ahead[8].max()) == (0.3, 1.9)
    assert round(printed.loc["diva", 8] - printed.loc["r-margin", 8], 1) == 1.2


def test_a_threshold_of_the_nearest_rung_on_others() -> None:
    results = Results(records.collect(DATA / "records" / "photos"), derive=overrides.of_run)
    found = results.thresholds.query("dataset == 'cars' and rate == 0.01 and fixed_on == 'nearest split'")
    found = found[found["protocol"].str.startswith("oodml")].assign(passed=100 * found["false_accepts"])
    names = {"frozen": "frozen", "r-margin": "r-margin", "DiVA": "diva", "uniform prior": "uniform-prior",
             "margin": "margin", "S2SD": "s2sd", "ProxyAnchor": "proxyanchor", "ArcFace": "arcface",
             "multi-similarity": "multisimilarity"}
    page = " ".join((ROOT / "docs" / "pages" / "results.md").read_text(encoding="utf-8").split())
    far = found[found["split"] == 8]
    long = far[(far["protocol"] == "oodml") & far["seed"].eq(0)].set_index("method")["passed"]
    said = page.partition("it lets pass on rung 8: ")[2].partition(". **")[0].replace(" %", "")
    assert {names[cell.rpartition(" ")[0]]: cell.rpartition(" ")[2] for cell in said.split(", ")} == {
        name: f"{passed:.1f}" for name, passed in long.items()}
    assert long.drop("frozen").min() > long["frozen"]
    for name in ("margin", "multi-similarity", "ProxyAnchor", "ArcFace", "uniform prior"):
        seeds = far[(far["method"] == names[name]) & (far["protocol"] != "oodml")].sort_values("seed")["passed"]
        *first, last = in_words(seeds)
        assert f"{', '.join(first)} and {last} {'% pass ' if name == 'margin' else ''}({name})" in page
    for name in ("S2SD", "r-margin"):
        *first, last = in_words(far[far["method"] == names[name]].sort_values("seed")["passed"])
        assert f"{', '.join(first)} and {last} ({name})" in page
    *first, last = in_words(far[(far["method"] == "diva") & (far["protocol"] != "oodml")].sort_values("seed")["passed"])
    assert f"DiVA's alone agree on rung 8: {', '.join(first)} and {last}." in page
    whole = (found["protocol"] != "oodml") | found["method"].isin(["s2sd", "r-margin"])
    middle = found.loc[(found["split"] == 4) & whole, "passed"].dropna()
    assert len(middle) == 3 * 8
    assert f"on rung 4 {middle.min():.1f} to {middle.max():.1f}." in page


def test_the_ranks_that_these_seeds_allow() -> None:
    results = Results(records.collect(DATA / "records" / "photos"), derive=overrides.of_run,
                      studies=study_progress.read([DATA / "records" / "photos"], []))
    board = results.ags("recall@1", "oodml[study=photos-cars]").wide().set_index("base_method")
    ranks = {name: (int(row["rank:low"]), int(row["rank:high"])) for name, row in board.iterrows() if row["rank"] > 0}
    assert ranks == {"s2sd": (1, 1), "diva": (2, 5), "multisimilarity": (2, 5), "proxyanchor": (2, 5),
                     "r-margin": (2, 5), "margin": (6, 7), "uniform-prior": (6, 7), "arcface": (8, 8)}


def test_trials_of_what_keeps_two_methods_below_print(runs: pd.DataFrame) -> None:
    changed = runs[runs["changed"]]
    assert changed["split"].tolist() == [8, 8]
    best = changed.set_index(changed["method"].str.partition("[")[0])["best"]
    told = [line[2] for line in table("Cars, rung 8: best of the epochs")]
    assert told == in_words(best[["arcface", "uniform-prior"]])
