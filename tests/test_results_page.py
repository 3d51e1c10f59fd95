"""What the page of results says beside its tables, from the published records by another road."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pandas as pd
import pytest
from scipy.stats import hmean, kendalltau

import methods
from benchmark.ladders import pinned
from reports import records
from reports.aggregate import ags
from reports.analysis import reproduction
from reports.analysis.results import Results

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "reports" / "data" / "records"
UNION = ["cars", "cub", "dogs", "flowers"]


@pytest.fixture(scope="module")
def photos() -> pd.DataFrame:
    runs = records.collect(RECORDS / "photos")
    return runs.assign(epochs=[settings["epochs"] for settings in runs["protocol_settings"]],
                       last=100 * runs["recall@1"], best=100 * runs["best-test:recall@1"])


def assert_told(*sentences: str) -> None:
    page = " ".join((ROOT / "docs/pages/results.md").read_text(encoding="utf-8").split())
    for sentence in sentences:
        assert sentence in page


def _cars(photos: pd.DataFrame) -> pd.DataFrame:
    """The first seeds of `photos-cars`."""
    lengths = {"multisimilarity": 100, "proxyanchor": 50, "margin": 90, "uniform-prior": 100, "arcface": 20,
               "s2sd": 200, "diva": 140, "r-margin": 200}
    cars = photos[(photos["dataset"] == "cars") & (photos["protocol"] == "oodml") & (photos["seed"] == 0)
                  & (photos["epochs"] == photos["method"].map(lengths))]
    return cars[[not any("." in key for key in changed) for changed in cars["overrides"]]]  # without the trials


def test_four_networks_at_their_best_epochs_against_one(photos: pd.DataFrame) -> None:
    told = {"resnet50_v1": [75.7, 74.0, 71.7], "efficientnet_lite0": [74.0, 72.9, 69.7]}
    photos, ahead = photos[photos["protocol"] == "uml"], []
    for backbone, scores in told.items():
        for method, score in zip(("proxyanchor", "curricularface", "margin"), scores):
            here = photos[(photos["backbone"] == backbone) & (photos["method"] == method)]
            four = here[here["dataset"].isin(UNION)]
            one = here[~here["dataset"].isin(UNION)].iloc[0]
            assert len(four) == 4
            assert hmean(four["best"]) == pytest.approx(score, abs=0.051)
            ahead.append(hmean([100 * one[f"domain:{name}:recall@1"] for name in UNION]) - hmean(four["best"]))
    assert [round(min(ahead), 1), round(max(ahead), 1)] == [-1.9, 0.1]


def test_the_order_along_cubs_ladder(photos: pd.DataFrame) -> None:
    cub = photos[(photos["dataset"] == "cub") & (photos["protocol"] == "oodml") & (photos["epochs"] == 40)
                 & (photos["seed"] == 0)]
    scores = cub.pivot(index="method", columns="split", values="last").dropna()
    order = ["proxyanchor", "margin", "multisimilarity", "uniform-prior", "s2sd", "r-margin", "arcface", "diva"]
    assert sorted(scores.index) == sorted(order)
    for names, told in ((order[1:6], 0.03), (order, 0.66)):
        taus = [kendalltau(scores.loc[names, a], scores.loc[names, b]).statistic for a, b in combinations(scores, 2)]
        assert round(sum(taus) / len(taus), 2) == told
    default = cub[cub["split"] == 2].set_index("method")
    fallen = (default["best"] - default["last"])[["arcface", "proxynca", "contrastive"]]
    assert [round(fallen.min()), round(fallen.max())] == [4, 5]
    assert {chosen["best-test"] for chosen in default.loc[fallen.index, "chosen_epochs"]} == {10}
    still_rising = default.loc[["s2sd", "r-margin", "diva", "crt"], "chosen_epochs"]
    assert {chosen["best-test"] for chosen in still_rising} == {40}


def test_each_method_as_long_as_it_gains_on_cub(photos: pd.DataFrame) -> None:
    """The table of `photos-cub-long`, and what is said of it."""
    lengths = {"s2sd": 200, "proxyanchor": 40, "r-margin": 100, "diva": 140, "multisimilarity": 40, "uniform-prior": 40,
               "arcface": 40, "margin": 40}
    names = ["S2SD", "ProxyAnchor", "r-margin", "DiVA", "multi-similarity", "uniform prior", "ArcFace", "margin"]
    cub = photos[(photos["dataset"] == "cub") & (photos["protocol"] == "oodml") & photos["split"].isin([1, 2, 9])
                 & (photos["epochs"] == photos["method"].map(lengths))]
    lines = (ROOT / "docs/pages/results.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| CUB, distance: best of the epochs"))
    best = cub.pivot(index=["method", "seed"], columns="split", values="best")
    assert set(best.idxmax().map(lambda run: run[0])) == {"s2sd"}
    for line, (method, length), name in zip(lines[first + 2:], lengths.items(), names):
        own = best.loc[method]
        lost = own[1] - own[9]
        spread = [f" ± {std:.1f}" if std > 0 else "" for std in own.std()]
        told = [f"{mean:.1f}{std}" for mean, std in zip(own.mean(), spread)]
        fall = " to ".join(dict.fromkeys([f"{lost.min():.1f}", f"{lost.max():.1f}"]))
        assert line == f"| {name} | {length} | {' | '.join(told)} | {fall} |"
    ahead = best.loc["s2sd"].iloc[0] - best.loc["proxyanchor"].max()
    assert_told(f"by {ahead[1]:.1f} and {ahead[9]:.1f} points")
    cub = cub.assign(epoch=[chosen["best-test"] for chosen in cub["chosen_epochs"]])
    slow = cub[cub["epochs"] > 40].pivot(index="method", columns="split", values="epoch")
    assert slow.T.to_dict("list") == {"s2sd": [120, 140, 170], "diva": [90, 80, 110], "r-margin": [100, 70, 90]}
    far = cub[(cub["split"] == 9) & cub["method"].isin(["margin", "multisimilarity", "uniform-prior"])]
    assert (len(far), sum(far["epoch"] == 40)) == (7, 5)
    diva = cub[cub["method"] == "diva"]
    assert [round((diva["best"] - diva["last"]).agg(end), 1) for end in ("min", "max")] == [2.5, 5.7]
    means, cars = best.groupby("method").mean(), _cars(photos).pivot(index="method", columns="split", values="best")
    taus = [kendalltau(cars.loc[means.index, a], means[b]).statistic for a, b in ((1, 2), (8, 9))]
    assert [round(tau, 2) for tau in taus] == [0.79, 0.21]
    assert means[9].rank(ascending=False)["arcface"] == 3


def test_other_papers_that_print_cub_with_a_resnet50(photos: pd.DataFrame) -> None:
    here = photos[(photos["dataset"] == "cub") & (photos["split"] == 2) & (photos["epochs"] == 40)].groupby(
        "method")[["best"]].mean()
    told = {"multisimilarity": 63.9, "crt": 62.9, "margin": 63.9, "normsoftmax": 62.5, "proxynca++": 63.0}
    assert here.loc[list(told), "best"].round(1).to_dict() == told
    crt = pd.read_csv(ROOT / "reports/data/published/crt_results.csv")
    crt = crt[(crt["table"] == 5) & (crt["dataset"] == "cub") & (crt["metric"] == "recall@1")].set_index("method")
    assert crt["value"][["ResNet-50 MS", "ResNet-50 MS+CRT"]].round(1).tolist() == [62.6, 64.2]
    uml = pd.read_csv(ROOT / "reports/data/published/uml_results.csv")
    uml = uml[(uml["table"] == 10) & (uml["dataset"] == "cub") & uml["setting"].str.startswith("cnn-")]
    assert uml.set_index("method")["value"][["margin", "normsoftmax", "proxynca++"]].tolist() == [63.9, 61.3, 69.0]


def test_the_order_on_cubs_default_split_beside_the_printed_one() -> None:
    frame = pd.concat([records.collect(RECORDS / name) for name in ("photos", "frozen")], ignore_index=True)
    runs = Results(frame, pinned=pinned.known(frame["dataset"])).runs
    short = runs[runs["protocol_settings"].map(lambda settings: settings["epochs"]) == 40]
    for known, told in ((runs, {"revisiting": 0.46, "oodml": 0.79}), (short, {"oodml": -0.21})):
        taus = {one.paper.key: round(kendalltau(one.table.frame["printed"], one.table.frame["ours"]).statistic, 2)
                for one in reproduction.default_split(known, "cub")}
        assert {key: taus[key] for key in told} == told
    of_oodml, = (one for one in reproduction.default_split(runs, "cub") if one.paper.key == "oodml")
    below = (-100 * of_oodml.table.frame.set_index("method")["difference"]).round(1)
    assert below.to_dict() == {"proxyanchor": 0.6, "s2sd": 0.9, "diva": 1.4, "r-margin": 1.7, "arcface": 1.7,
                               "margin": 1.9, "multisimilarity": 2.4, "uniform-prior": 3.5}


def test_how_many_methods_were_trained_on_cubs_default_split(photos: pd.DataFrame) -> None:
    runs = photos[(photos["dataset"] == "cub") & (photos["split"] == 2) & (photos["protocol"] == "oodml")]
    counts = runs[runs["method"] != "frozen"].groupby("epochs")["method"].nunique().to_dict()
    assert counts == {40: 51, 100: 1, 140: 1, 200: 1}
    page = (ROOT / "docs/pages/results.md").read_text()
    assert f"On CUB's default split {counts[40]} methods were trained for 40 epochs, " in page


def test_seven_methods_beside_their_own_papers(photos: pd.DataFrame) -> None:
    names = ["contextual", "hier", "proxyanchor", "proxynca++", "roadmap", "hyp", "normsoftmax"]
    lines = (ROOT / "docs/pages/results.md").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| CUB, default split: best of the"))
    printed, here, recipes = ([None if cell.strip() == "–" else float(cell.strip("* \\"))
                               for cell in line.split("|")[2:-1]] for line in lines[first + 2:first + 5])
    own = photos[(photos["dataset"] == "cub") & (photos["split"] == 2) & (photos["protocol"] == "oodml")
                 & (photos["epochs"] == 40)]
    own = own.drop_duplicates("method").set_index("method").assign(**own.groupby("method")[["last", "best"]].mean())
    assert here == own.loc[names, "best"].round(1).tolist()
    known = pd.read_csv(ROOT / "reports/data/published/released_results.csv").query("dataset == 'cub'")
    assert printed == known.set_index("method").loc[names, "value"].tolist()
    below = [round(a - b, 1) for a, b in zip(printed[:5], own.loc[names[:5], "best"])]
    assert [min(below), max(below)] == [3.3, 7.1]
    assert own.loc[["r-snr", "r-triplet"], "best"].round(1).tolist() == [66.4, 65.5]
    released = photos[photos["protocol"] == "released"].set_index("method")
    assert recipes == [round(best, 1) if best > 0 else None for best in released["best"].reindex(names)]
    short = pd.Series(printed, names) - released["best"]
    assert short.dropna().round(1).to_dict() == {"contextual": 2.5, "hier": 1.1, "proxyanchor": 2.5, "roadmap": -0.8}
    gained = (released["best"] - own.loc[released.index, "best"]).round(1)
    assert (gained.min(), gained.max()) == (1.4, 4.6)
    assert (released["best"] - released["last"]).max() < 0.4
    newer = own.loc[["hier", "roadmap", "contextual"]]
    assert newer["best"].round(1).tolist() == [65.7, 65.2, 64.8]
    assert newer["last"].round(1).tolist() == [65.2, 63.5, 63.9]
    assert [chosen["best-test"] for chosen in newer["chosen_epochs"]] == [20, 20, 20]


def test_the_newer_methods_on_cub(photos: pd.DataFrame) -> None:
    here = photos[(photos["dataset"] == "cub") & (photos["split"] == 2) & (photos["protocol"] == "oodml")]
    own = here[here["tags"].map(lambda tags: "modern" in tags)].set_index("method")
    lines = (ROOT / "docs/pages/results.md").read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("| CUB, newer methods"))
    assert lines[first + 2:first + 2 + len(own)] == [
        f"| {name} | {run['last']:.1f} | {run['best']:.1f} | {run['chosen_epochs']['best-test']} |"
        for name, run in own.sort_values("best", ascending=False).iterrows()]
    assert set(own["epochs"]) == {40}
    past = own["best"] - own["last"]
    assert sorted(past.index[past == 0]) == ["circle", "ldifs", "lp-ft"]
    assert (round(past[past > 0].min(), 1), round(past.max(), 1)) == (0.6, 4.1)


def test_other_frozen_networks_lose_less_along_cubs_ladder() -> None:
    frozen = records.collect(RECORDS / "frozen")
    scores = 100 * frozen[frozen["dataset"] == "cub"].pivot(index="backbone", columns="split", values="recall@1")
    lost = (scores[1] - scores[9]).round().astype(int)
    assert lost.to_dict() == {"efficientnet_lite0": 6, "efficientnet_lite1": 7, "efficientnet_lite2": 6,
                              "resnet50_v1": 11}


def test_how_far_seeds_and_splits_agree_on_glyphs() -> None:
    runs = records.collect(RECORDS / "glyphs")
    runs = runs[(runs["dataset"] == "glyphs") & (runs["backbone"] == "efficientnet_lite0")]
    runs = runs[runs["trains"] != "nothing"]
    seeds = [runs[runs["seed"] == seed].pivot(index="method", columns="split", values="recall@1") for seed in range(3)]
    several = seeds[0].loc[seeds[2].index]
    widths = runs.drop_duplicates("split").sort_values("split")["frd"]
    area = ((several.iloc[:, 1:].to_numpy() + several.iloc[:, :-1]) / 2 * widths.diff()[1:].to_numpy()).sum(axis=1)
    for count, told in ((18, [0.41, 0.47, 0.58]), (12, [0.26, 0.36, 0.46])):
        best = area.nlargest(count).index
        one = [kendalltau(seed.loc[best, a], seed.loc[best, b]) for seed in seeds for a, b in combinations(several, 2)]
        same = [kendalltau(a.loc[best, split], b.loc[best, split])
                for a, b in combinations(seeds, 2) for split in several]
        mean = sum(seed.loc[best] for seed in seeds)
        three = [kendalltau(mean[a], mean[b]) for a, b in combinations(several, 2)]
        assert [round(sum(tau.statistic for tau in taus) / len(taus), 2) for taus in (one, same, three)] == told


def test_how_many_methods_on_glyphs_are_below_what_they_add_to() -> None:
    runs = records.collect(RECORDS / "glyphs").sort_values("frd")
    runs = runs[(runs["dataset"] == "glyphs") & (runs["backbone"] == "efficientnet_lite0")]
    rungs = runs.groupby(["method", "split"], as_index=False)[["frd", "recall@1"]].mean()
    area = {name: 100 * ags(of["frd"], of["recall@1"]) for name, of in rungs.groupby("method")}
    bases = {name: methods.get(name).base.name for name in area if methods.get(name).base is not None}
    assert (len(bases), [name for name in bases if area[name] > area[bases[name]]]) == (15, ["hier", "manifold-mixup"])
    assert_told(("S2SD ({s2sd:.1f}) below r-margin ({r-margin:.1f}), CRT ({crt:.1f}) below multi-similarity "
                 "({multisimilarity:.1f}) and DiVA ({diva:.1f}) below margin ({margin:.1f}); of fifteen two are above, "
                 "HIER ({hier:.1f}; ProxyAnchor has {proxyanchor:.1f}) and the normalised softmax with manifold mixup "
                 "({manifold-mixup:.1f}; {normsoftmax:.1f} without)").format_map(area))


def test_what_four_methods_gain_from_four_times_the_steps() -> None:
    runs = records.collect(RECORDS / "lengths").sort_values("frd")
    runs = runs.assign(epochs=[settings["epochs"] for settings in runs["protocol_settings"]])
    area = runs.groupby(["epochs", "method"])[["frd", "recall@1"]].apply(
        lambda rungs: 100 * ags(rungs["frd"], rungs["recall@1"]))
    middle, last = sorted(runs["epochs"].unique())[-2:]
    gained = (area[last] - area[middle]).round(1)
    assert_told(f"(AGS of margin −{-gained['margin']}, ArcFace +{gained['arcface']}, ProxyAnchor "
                f"+{gained['proxyanchor']}); multi-similarity gains {gained['multisimilarity']} points")


def test_how_far_cars_falls_and_what_a_union_adds_on_flowers(photos: pd.DataFrame) -> None:
    ends = _cars(photos).pivot(index="method", columns="split", values="best")[[1, 8]]
    lost = ends[1] - ends[8]
    assert_told(f"**{lost.min():.0f} to {lost.max():.0f} points** on Cars", f"(on Cars 6 of {lost.mean():.0f})")
    union = photos[photos["dataset"].str.startswith("union") & (photos["split"] == 1)]
    flowers = 100 * union.groupby(["backbone", "method"])["domain:flowers:recall@1"].max()
    ahead = [flowers[network].drop("frozen").max() - flowers[network, "frozen"]
             for network in ("resnet50_v1", "efficientnet_lite0")]
    assert_told("on Flowers the best is {:.1f} points ahead of it (Lite0: {:.1f})".format(*ahead))
    table = pd.read_csv(ROOT / "reports/data/published/uml_results.csv").query("table == 2 and dataset == 'unified'")
    one, each = (table[table["setting"] == name].set_index("method")["value"]
                 for name in ("universal-full", "dataset-specific"))
    gaps = (one - each)[["margin", "curricularface", "proxyanchor"]].round(1)
    assert_told(f"gaps of {gaps.min()} to {gaps.max()} there")
