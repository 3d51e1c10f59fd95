"""Boards whatever their datasets are called, and boards of runs that differ from the file of their protocol."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import methods
from benchmark.config import overrides, plan, protocol
from reports import ReportError, exports, records, site, terminal
from reports.analysis import ladder_tables, standings
from reports.analysis.results import Results
from reports.analysis.rung_board import beside_ladder, rung_board
from reports.board import Board
from reports.html import home_page
from reports.overrides import overrides_text, with_overrides
from reports.tables import formats
from reports.tables.boards import ags_table, union_table
from reports.tables.table import Table
from tests.sample_records import LADDERS, identity, make_record, some_pages

LOST = pd.DataFrame(columns=list(records.FAILURE_FACTS))
TAKEN = ("covered", "mean", "method", "rank", "family", "source", "backbone", "label", "frd", "baseline", "overrides",
         "group", "score", "harmonic", "ags")
METHODS = {"frozen": 0.3, "margin": 0.7, "arcface": 0.6}


def write_runs(folder: Path, names: list[str], union: str = "zz-union") -> Results:
    """Runs of three methods on a ladder of two rungs of each dataset, and on the union of all of them."""
    for method, strength in METHODS.items():
        for seed in (0, 1):
            for i, name in enumerate(names):
                for split in (1, 2):
                    score = strength - 0.002 * i - 0.02 * split + 0.005 * seed
                    record = make_record("glyphs", split, method, seed, score)
                    record["dataset"] = name
                    record["split"]["ladder"] = LADDERS["glyphs"][:2]
                    record["identity"] = identity(f"{i}{split}{method}{seed}")
                    records.write(folder / method / str(seed) / str(i) / str(split), record)
            parts = {name: strength - 0.003 * i + 0.001 * seed for i, name in enumerate(names)}
            whole = make_record("glyphs", 1, method, seed, strength, parts)
            whole["dataset"], whole["split"]["ladder"] = union, []
            whole["split"]["parts"] = {name: 100 + i for i, name in enumerate(names)}
            whole["identity"] = identity(f"u{method}{seed}")
            records.write(folder / method / str(seed) / "union", whole)
    return Results(records.collect(folder))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Results, dict[str, str]]:
    """The same runs on datasets called like columns, and on datasets called d00, d01, ..., in the same order."""
    names = sorted(TAKEN)
    plain = {name: f"d{i:02d}" for i, name in enumerate(names)}
    return (write_runs(tmp_path_factory.mktemp("taken"), names),
            write_runs(tmp_path_factory.mktemp("plain"), list(plain.values())), plain)


def same(one: Board, two: Board, plain: dict[str, str]) -> None:
    rows = one.rows.assign(weakest=one.rows["weakest"].replace(plain)) if "weakest" in one.rows else one.rows
    pd.testing.assert_frame_equal(rows, two.rows)
    scores = one.scores.assign(part=one.scores["part"].replace(plain))
    pd.testing.assert_frame_equal(scores, two.scores)


def test_boards_do_not_depend_on_the_names_of_datasets(both: tuple[Results, Results, dict[str, str]]) -> None:
    one, two, plain = both
    same(one.ags("recall@1", "demo"), two.ags("recall@1", "demo"), plain)
    same(one.universal("zz-union", "demo"), two.universal("zz-union", "demo"), plain)
    for name in ("covered", "mean", "rank"):
        same(rung_board(one, name, "recall@1"), rung_board(two, plain[name], "recall@1"), plain)
    board = one.ags("recall@1", "demo")
    assert board.column("ags", "covered")["score"].between(0, 1).all()  # not the number of cells
    assert len(board.parts("ags")) == len(TAKEN)


def texts(table: Table, plain: dict[str, str]) -> list[list[str]]:
    heads = [plain.get(column.head, column.head) for column in table.columns]
    return [heads, *([plain.get(table.text(row, column), table.text(row, column)) if column.key == "weakest" else
                      table.text(row, column) for column in table.columns] for row in table.rows)]


def test_tables_do_not_depend_on_the_names_of_datasets(both: tuple[Results, Results, dict[str, str]]) -> None:
    one, two, plain = both
    for of in (lambda results: ags_table(results.ags("recall@1", "demo")),
               lambda results: union_table(results.universal("zz-union", "demo"))):
        first, second = of(one), of(two)
        assert texts(first, plain) == texts(second, {})
        assert [first.marks(column) for column in first.columns] == [second.marks(column) for column in second.columns]
        ours, theirs = (pd.read_csv(io.StringIO(formats.to_csv(table)), header=None, dtype=str)
                        for table in (first, second))
        assert ours.iloc[0].is_unique
        weakest = theirs.iloc[0] == "weakest"
        ours.loc[1:, weakest] = ours.loc[1:, weakest].replace(plain)
        pd.testing.assert_frame_equal(ours.iloc[1:], theirs.iloc[1:])


@pytest.mark.parametrize("name", ["ags", "ladder", "uml", "recall", "runs"])
def test_exports_do_not_depend_on_the_names_of_datasets(both: tuple[Results, Results, dict[str, str]],
                                                        name: str) -> None:
    one, two, plain = both
    frames = [pd.read_csv(io.StringIO(exports.export(results, name, "csv"))) for results in (one, two)]
    domains = {column: re.sub(r"^domain:([^:]+)", lambda part: f"domain:{plain[part[1]]}", column)
               for column in frames[0] if column.startswith("domain:")}
    ours = frames[0].rename(columns=domains).assign(dataset=frames[0]["dataset"].replace(plain))
    if name == "uml":  # there a mean over the parts and a part of the same name differ by the statistic alone
        assert len(ours[ours["statistic"] == "recall"]) == len(METHODS) * len(TAKEN)
        ours, frames[1] = ours.drop(columns="dataset"), frames[1].drop(columns="dataset")
    pd.testing.assert_frame_equal(ours[frames[1].columns], frames[1])
    texts = [exports.export(results, name, "md") for results in (one, two)]
    assert len(texts[0].splitlines()) == len(texts[1].splitlines())


def test_pages_are_made_of_datasets_called_like_columns(tmp_path: Path) -> None:
    names = ["covered", "mean", "rank", "method"]
    home = site.build(write_runs(tmp_path / "runs", names), LOST, tmp_path / "site").parent
    head = (home / "data" / "ags-demo-recall-1.csv").read_text().splitlines()[0].split(",")
    assert {"ags:mean", "mean", "ags:rank", "rank", "ags:method", "method", "covered"} <= set(head)
    assert all((home / "dataset" / f"{name}.html").is_file() for name in names)


def changed(folder: Path, dataset: str = "cars", **provenance: Any) -> Results:
    """Runs of `margin` by the protocol oodml with 30 epochs, with a provenance that says so or not."""
    settings = protocol.load("oodml", dataset=dataset, method="margin").identity() | {"epochs": 30}
    for split, _ in LADDERS["cars"]:
        record = make_record("cars", split, "margin", 0, 0.5, protocol=settings,
                             backbone={"name": settings["backbone"], "weights": None})
        record["dataset"] = dataset
        record["provenance"] = {**record["provenance"], **provenance}
        records.write(folder / str(split), record)
    return Results(records.collect(folder))


CHANGED = "epochs=30 (file: 200)"


def test_an_override_is_named_in_every_title_page_and_export(tmp_path: Path) -> None:
    results = changed(tmp_path / "runs", overrides={"epochs": [200, 30]})
    assert CHANGED in terminal.summary(results, LOST).splitlines()[0]
    table = ags_table(results.ags("recall@1", "oodml"))
    assert CHANGED in table.caption
    assert "Published rows are by the paper's own protocol." in table.note
    for name in ("ags", "ladder", "recall", "runs", "structure"):
        for form in formats.FORMATS:
            assert CHANGED in exports.export(results, name, form), (name, form)
    assert CHANGED in exports.export(results, "ags", "macros")
    home = site.build(results, LOST, tmp_path / "site", titles={"cars": "photographs of cars"}).parent
    for page in ("index.html", "dataset/cars.html", "method/margin.html", "data/ags-oodml-recall-1.csv",
                 "data/runs.csv", "data/cars-recall-1.csv"):
        assert CHANGED in (home / page).read_text(), page
    assert "hotographs of cars" in (home / "index.html").read_text()


def test_records_of_before_say_what_their_command_and_the_file_of_their_protocol_tell(tmp_path: Path) -> None:
    by_hand = changed(tmp_path / "a", command="oodml run --protocol oodml --set epochs=30")
    assert by_hand.ags("recall@1", "oodml").overrides == "epochs=30"
    study = changed(tmp_path / "b", command="oodml run --study mine")
    assert study.ags("recall@1", "oodml").overrides == "not recorded for 8 of 8 runs"
    derived = Results(records.collect(tmp_path / "b"), derive=overrides.of_run)
    assert CHANGED in derived.ags("recall@1", "oodml").overrides
    plain = changed(tmp_path / "c", command="oodml run --protocol oodml")
    assert plain.ags("recall@1", "oodml").overrides == ""


def test_a_run_is_held_against_the_file_of_its_protocol_as_it_is_now() -> None:
    runs = pd.DataFrame({"overrides": [{"epochs": [4, 60]}, {"epochs": [4, 60]}], "protocol_settings": [{}, {}],
                         "method": ["margin", "elsewhere"], "dataset": "glyphs", "settings": [{}, {}], "source": "run"})
    now = with_overrides(runs, lambda settings, method, dataset, own: {} if method == "margin" else None)
    assert now["overrides"].tolist() == [{}, {"epochs": [4, 60]}]
    assert with_overrides(runs)["overrides"].tolist() == runs["overrides"].tolist()


def test_some_changed_runs_are_counted() -> None:
    assert overrides_text([{"a": [1, 2]}, {"a": [1, 3]}, {}]) == "a in 2 of 3 runs"
    assert overrides_text([{}, {}]) == ""


def test_a_protocol_of_ones_own_cannot_be_compared() -> None:
    settings = protocol.load("oodml", dataset="cub", method="margin").identity()
    assert overrides.of_run({**settings, "name": "mine"}, "margin", "cub", {}) is None
    assert overrides.of_run(settings, "no-such-method", "cub", {}) is None
    through_json = json.loads(json.dumps(settings))
    assert overrides.of_run(through_json, "margin", "cub", {}) == {}
    assert overrides.of_run(through_json, "ensemble:margin", "cub", {}) == {}


@pytest.mark.parametrize(("name", "dataset", "method"), [
    ("oodml", "cub", "diva"), ("oodml", "cars", "s2sd"), ("uml", "uml", "puma"), ("uml", "cub", "triplet"),
    ("revisiting", "sop", "r-margin")])
def test_a_run_of_the_file_alone_has_no_overrides(name: str, dataset: str, method: str) -> None:
    """Settings of a base that the protocol changes are the file's, and so is all that came later."""
    entry, plain = methods.get(method), plan.Overrides()
    own = plan.load_protocol(name, dataset, method, plain).identity()
    settings = {**plan._settings(entry, dataset, name, plain), **plan.base_settings(entry, dataset, name, plain)}
    settings = json.loads(json.dumps(settings))
    assert overrides.of_run(own, method, dataset, settings) == {}
    if "limit" in settings:
        assert overrides.of_run(own, method, dataset, {**settings, "limit": 1.0})[f"{method}.limit"][1] == 1.0


def test_a_record_from_before_a_setting_had_what_all_runs_had_then() -> None:
    own = plan.load_protocol("uml", "cub", "hyp", plan.Overrides()).identity()
    settings = {"curvature": 0.1, "radius": 2.3, "temperature": 0.1}
    assert overrides.of_run(own, "hyp", "cub", settings) == {"hyp.pairs_released": [True, False]}
    assert overrides.of_run(own, "hyp", "cub", {**settings, "pairs_released": True}) == {}


def test_absolute_rates_of_older_records_are_compared_as_multiples() -> None:
    """As records had them: `beta_lr`, `proxy_lr`, and under puma a factor on it in `proxy_rate`."""
    for name, method, rates in (("oodml", "margin", {"beta_lr": 5e-4}), ("oodml", "uniform-prior", {"beta_lr": 5e-4}),
                                ("uml", "puma", {"proxy_lr": 0.3, "proxy_rate": 1 / 0.3})):
        own = plan.load_protocol(name, "cub", method, plan.Overrides()).identity()
        assert overrides.of_run(own, method, "cub", rates) == {}
    own = plan.load_protocol("oodml", "cub", "margin", plan.Overrides()).identity()
    assert overrides.of_run(own, "margin", "cub", {"beta_lr": 1e-3}) == {"margin.beta_rate": [50.0, 100.0]}


def test_runs_on_the_default_split_alone_are_shown_and_intervals_are_fractions(tmp_path: Path) -> None:
    """Two methods, one near 1, whose scores differ much between two seeds; one of them also beside a ladder."""
    for method, scores in {"margin": (0.99, 0.7), "arcface": (0.02, 0.3)}.items():
        for seed, score in enumerate(scores):
            record = make_record("cub", 1, method, seed, score)
            record["split"] |= {"ladder": [], "frd": None}
            records.write(tmp_path / "runs" / method / str(seed), record)
    alone = Results(records.collect(tmp_path / "runs"))
    assert alone.without_ladder == ["cub"]
    table = pd.read_csv(io.StringIO(exports.export(alone, "ladder", "csv")))
    assert (table["low"] >= 0).all()
    assert (table["high"] <= 1).all()
    assert 1.0 in set(table["high"])
    for results in (alone, Results(records.collect([tmp_path / "runs", _ladder(tmp_path / "more")]))):
        told = terminal.summary(results, LOST)
        wanted = r"no run has the metric 'recal@1' \(did you mean 'recall@1'\?\); there are: .*recall@1"
        with pytest.raises(ReportError, match=wanted):
            terminal.summary(results, LOST, "recal@1")
        assert "Recall@1 of each method on the default split of cub (percent)" in told
        assert "84.5" in told
        assert 'id="single-cub"' in some_pages(results, home_page.write)["index.html"]


def test_a_few_rungs_of_a_ladder_have_no_ags_but_their_two_ends(tmp_path: Path) -> None:
    """Cars on the first and the last of eight rungs, one method on the last alone, beside a whole ladder of glyphs."""
    for method, near, far in (("margin", 0.8, 0.6), ("arcface", 0.7, 0.63), ("diva", None, 0.5), ("frozen", 0.4, 0.3)):
        for split, score in ((1, near), (8, far)):
            if score is not None:
                records.write(tmp_path / "runs" / method / str(split), make_record("cars", split, method, 0, score))
        for split, _ in LADDERS["glyphs"]:
            made = make_record("glyphs", split, method, 0, far)
            records.write(tmp_path / "runs" / method / f"g{split}", made)
    results = Results(records.collect(tmp_path / "runs"))
    assert (results.laddered, results.without_ladder) == (["glyphs"], ["cars"])
    board = results.ags("recall@1", "demo")
    assert board.parts("ags") == ["glyphs"]
    assert board.rows.set_index("method")["rank"].dropna().to_dict() == {"arcface": 1, "margin": 2, "diva": 3}
    pages = some_pages(results, home_page.write, titles={"cars": "photographs of cars"})
    shown = pd.read_csv(io.StringIO(pages["data/home-cars-recall-1.csv"])).set_index("method")
    assert shown["rung1"].dropna().to_dict() == {"margin": 0.8, "arcface": 0.7, "frozen": 0.4}
    assert shown["rung8"].to_dict() == {"margin": 0.6, "arcface": 0.63, "diva": 0.5, "frozen": 0.3}
    assert shown["kept"].dropna().to_dict() == pytest.approx({"margin": 0.75, "arcface": 0.9, "frozen": 0.75})
    assert not any("ags" in key for key in shown)
    text = pages["index.html"]
    assert "Nearest, 8.6" in text
    assert "Farthest, 123" in text
    assert "Trained on 2 splits of 8 so far" in text
    # a dataset with a description is called by its name like one without
    heads = dict(re.findall(r'<h2 id="[^"]*"><a href="dataset/([a-z]+)\.html">[a-z]+</a> <small>([^<]*)</small>', text))
    assert (heads["glyphs"], heads["cars"]) == ("", "Photographs of cars")
    measured = text[text.index("What was measured"):text.index("</nav>", text.index("What was measured"))]
    assert [name for name in re.findall(r">([^<>]+)</a>", measured)] == ["cars", "glyphs"]
    assert "</a> Photographs of cars</span>" in measured
    told = terminal.summary(results, LOST)
    assert "on 2 of the 8 splits of cars" in told
    for method, score in (("margin", 0.55), ("arcface", 0.57)):  # short runs, on the farthest rung alone
        made = make_record("cars", 8, method, 1, score) | {"protocol": {"name": "short", "epochs": 1}}
        records.write(tmp_path / "runs" / method / "short", made)
    board = rung_board(Results(records.collect(tmp_path / "runs")), "cars", "recall@1").rows
    ranks = board.set_index(["protocol", "method"])["rank"].dropna()
    assert ranks.to_dict() == {("demo", "margin"): 1, ("demo", "arcface"): 2, ("short", "arcface"): 1,
                               ("short", "margin"): 2}


def _ladder(folder: Path) -> Path:
    for split, _ in LADDERS["cars"]:
        records.write(folder / str(split), make_record("cars", split, "margin", 0, 0.5))
    return folder


@pytest.fixture(scope="module")
def partly(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """A ladder of cars that two methods of short runs have whole, two its default split alone, one of shorter runs too;
    the frozen network was run by the protocol as it is."""
    folder, short = tmp_path_factory.mktemp("partly"), {"name": "demo", "batch": 112, "lr": 0.001}
    network = {"name": "conv4", "weights": None}

    def write(method: str, split: int, score: float, epochs: int) -> None:
        made = make_record("cars", split, method, 0, score, protocol=short | {"epochs": epochs}, backbone=network)
        made["provenance"]["overrides"] = {} if epochs == 3 else {"epochs": [3, epochs]}
        records.write(folder / f"{method}-{split}-{epochs}", made | {"identity": identity(f"{method}{split}{epochs}")})

    for split, _ in LADDERS["cars"]:
        write("frozen", split, 0.3, 3)
        write("margin", split, 0.8 - split / 50, 2)
        write("s2sd", split, 0.7 - split / 50, 2)
    for method, score, epochs in (("arcface", 0.9, 2), ("diva", 0.5, 2), ("circle", 0.6, 1)):
        write(method, 1, score, epochs)
    return Results(records.collect(folder), with_published=False)


def test_a_frozen_network_stands_with_the_methods_that_train_it(partly: Results) -> None:
    assert set(partly.protocols) == {"demo", "demo[epochs=1]", "demo[epochs=2]"}
    assert partly.laddering("recall@1") == ["demo[epochs=2]"]
    board = partly.ags("recall@1", "demo[epochs=2]").wide().set_index("method")
    assert board["rank"].dropna().to_dict() == {"margin": 1, "s2sd": 2}
    assert board.loc["margin", "mean:gain"] == pytest.approx(board.loc["margin", "mean"] - 0.3)
    assert not len(partly.ags("recall@1", "demo")), "a board of baselines alone"
    assert set(rung_board(partly, "cars", "recall@1").rows["board"]) == {"demo[epochs=1]", "demo[epochs=2]"}


def test_methods_on_the_default_split_of_a_ladder_that_others_have_whole_are_ranked_on_it(partly: Results) -> None:
    assert beside_ladder(partly, "cars", "recall@1") == "default"
    table = ladder_tables.heat_table(partly, "cars", "recall@1", "default")
    ranks = table.frame.set_index(["ranking", "method"])["rank"].dropna()
    assert ranks.to_dict() == {("conv4, protocol demo[epochs=2]", "arcface"): 1,
                               ("conv4, protocol demo[epochs=2]", "margin"): 2,
                               ("conv4, protocol demo[epochs=2]", "s2sd"): 3,
                               ("conv4, protocol demo[epochs=2]", "diva"): 4,
                               ("conv4, protocol demo[epochs=1]", "circle"): 1}
    assert table.frame["ranking"].nunique() == 2, "the frozen network heads no group of its own"
    made = some_pages(partly, home_page.write)["index.html"]
    assert "All 2 methods lose accuracy" in made
    assert "Without training the same network has 30.0 and 30.0&nbsp;%" in made
    assert "5 methods (2 at 8 distances), 1 seed" in made
    assert made.index('id="ladder-1"') < made.index('id="default-cars"')
    assert '"home-cars-default-recall-1"' in made
    known = standings.of(partly)
    (line,) = standings.headline(known, partly.labels["arcface", "demo[epochs=2]", "conv4", "run"])
    assert (line["kind"], line["score"], line["rank"], line["rank:of"]) == ("split", 0.9, 1, 4)


def test_a_heading_has_the_name_of_a_dataset_once_whatever_it_is(partly: Results) -> None:
    of_another_name = Results(partly.runs.drop(columns=["label", "ranked_with"]).assign(dataset="split"),
                              with_published=False)
    home = some_pages(of_another_name, home_page.write)["index.html"]
    assert '<a href="dataset/split.html">split</a>, default split <small>' in home


def test_methods_with_some_splits_of_a_ladder_that_one_has_whole_keep_both_ends(tmp_path: Path) -> None:
    """Otherwise the board of a single row would take the place of theirs."""
    for split, _ in LADDERS["cars"]:
        made = make_record("cars", split, "margin", 0, 0.8 - split / 50, protocol={"name": "demo", "epochs": 2})
        made["provenance"]["overrides"] = {"epochs": [3, 2]}
        records.write(tmp_path / f"margin-{split}", made | {"identity": identity(f"margin{split}")})
    for method, split, score in (("arcface", 1, 0.9), ("arcface", 8, 0.6), ("diva", 1, 0.7), ("diva", 8, 0.5)):
        records.write(tmp_path / f"{method}-{split}", make_record("cars", split, method, 0, score))
    results = Results(records.collect(tmp_path), with_published=False)
    assert beside_ladder(results, "cars", "recall@1") == "part"
    home = some_pages(results, home_page.write)["index.html"]
    assert 'id="single-cars"' in home
    assert 'id="ladder-' not in home
    assert "All 2 methods lose accuracy" in home
    assert "Most methods were trained on some of the 8 splits" in home
    table = ladder_tables.heat_table(results, "cars", "recall@1", "trained").frame.set_index("method")
    assert table.loc["arcface", ["rank", "rung:1", "rung:8"]].tolist() == [1, 0.9, 0.6]
    assert table.loc["margin", "ags:cars"] > 0
    assert "of each method on 2 of the 8 splits of cars" in terminal.summary(results, LOST)
