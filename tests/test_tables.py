"""Tables in every format say the same numbers, and what is shown is percent with one decimal."""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.export import command as export_command
from benchmark.utils.terminal import columns
from reports import ReportError, aggregate, exports, records, terminal, tidy
from reports.analysis.ladder_tables import heat_table
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board
from reports.html import dataset_pages
from reports.html.cells import Head, cell
from reports.html.extras import Extras
from reports.html.home_page import write as home
from reports.html.rendering import Site
from reports.tables import formats
from reports.tables.boards import ags_table, union_table
from reports.tables.table import Column, Table
from tests.sample_records import LADDERS, make_record, some_pages, write_sample


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    folder = tmp_path_factory.mktemp("runs")
    write_sample(folder, {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.7}, seeds=2)
    return records.collect(folder)


@pytest.fixture(scope="module")
def results(frame: pd.DataFrame) -> Results:
    return Results(frame, with_published=False)


@pytest.fixture(scope="module")
def table(frame: pd.DataFrame) -> Table:
    return ags_table(aggregate.ags_board(frame))


def test_what_a_cell_shows() -> None:
    table = Table("t", "t", (Column("a", "A", "score"), Column("rank", "Rank", "rank")), pd.DataFrame([
        {"a": 0.71349, "a:std": 0.00449, "rank": 1.0}, {"a": 0.5, "a:std": math.nan, "rank": 2.0},
        {"a": math.nan, "a:coverage": "7/9", "rank": math.nan}, {"a": 0.2, "baseline": True, "rank": math.nan}]))
    shown = [[table.text(row, column) for column in table.columns] for row in table.rows]
    assert shown == [["71.3 ± 0.4", "1"], ["50.0", "2"], ["7/9", "–"], ["20.0", "baseline"]]


def test_a_page_tells_what_was_covered_from_a_score() -> None:
    ags = Column("ags", "AGS", "score")
    table = Table("t", "t", (ags,), pd.DataFrame([
        {"ags": 0.7, "ags:coverage": "9/9"}, {"ags": math.nan, "ags:coverage": "1/9"},
        {"ags": math.nan, "ags:coverage": "–"}, {"ags": math.nan, "ags:coverage": math.nan}]))
    head = Head("", -1, "", False)
    cells = [cell(table, row, ags, "", [], False, head, "") for row in table.rows]
    assert cells[0] == '<td data-v="0.7">70.0</td>'
    assert cells[1] == ('<td class="num" title="No score: run on 1 of 9 splits">'
                        '<span class="covered">1 of 9</span></td>')  # and no data-v, so it is sorted last
    assert cells[2:] == ['<td class="num">–</td>'] * 2
    harmonic = Table("u", "u", (), pd.DataFrame([{"harmonic": math.nan, "harmonic:coverage": "2/3"}]))
    column = Column("harmonic", "Harmonic mean", "score", role="harmonic")
    assert harmonic.reason(harmonic.rows[0], column) == "No score: run on 2 of 3 parts"


def test_a_minus_is_a_minus_and_zero_has_no_sign() -> None:
    columns = (Column("gain", "Gain", "gain"), Column("tau", "τ", "number", digits=2), Column("p", "p", "p", digits=4))
    table = Table("t", "t", columns, pd.DataFrame([
        {"gain": -0.0126, "tau": -0.5, "p": 0.03}, {"gain": -0.0004, "tau": -0.001, "p": 2e-9},
        {"gain": 0.0004, "tau": 0.0, "p": 1e-4}, {"gain": 0.02, "tau": 0.25, "p": 1.0}]))
    shown = [[table.text(row, column) for column in columns] for row in table.rows]
    assert shown == [["−1.3", "−0.50", "0.0300"], ["0.0", "0.00", "< 0.0001"], ["0.0", "0.00", "0.0001"],
                     ["+2.0", "0.25", "1.0000"]]
    assert "$-$1.3 & $-$0.50" in formats.to_latex(table)
    assert "-0.0126,-0.5" in formats.to_csv(table)  # what is read by programs has the sign that they read


def test_a_protocol_is_said_in_words_and_kept_as_it_is_in_files() -> None:
    table = Table("t", "t", (Column("protocol", "Protocol"),), pd.DataFrame([{"protocol": "oodml[epochs=40]"}]))
    assert table.text(table.rows[0], table.columns[0]) == "oodml, 40 epochs"
    assert "oodml[epochs=40]" in formats.to_csv(table)


def test_best_and_second_leave_floors_out(table: Table) -> None:
    marks = table.marks(table.columns[2])
    names = {table.rows[index]["method"]: mark for index, mark in marks.items()}
    assert names == {"s2sd": "best", "proxyanchor": "second"}


def numbers(text: str) -> list[str]:
    return re.findall(r"\d+\.\d", text)


def test_every_format_shows_the_numbers_of_the_csv(table: Table) -> None:
    csv = pd.read_csv(io.StringIO(formats.to_csv(table)), float_precision="round_trip")
    expected = []
    for row in csv.to_dict("records"):
        for key in ("mean", "cars", "glyphs"):
            expected.append(f"{100 * row[key]:.1f}")
            if not math.isnan(row[f"{key}:std"]):
                expected.append(f"{100 * row[f'{key}:std']:.1f}")
    for form in ("text", "md", "latex"):
        assert numbers(formats.render(table, form)) == expected
    rows = json.loads(formats.to_json(table))["rows"]
    assert [row["mean"] for row in rows] == csv["mean"].tolist()


def test_latex_is_balanced_and_escaped(table: Table) -> None:
    text = formats.to_latex(table)
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert text.count("multicolumn") == table.frame["network"].nunique()
    assert {line.count(" & ") for line in body} == {len(table.columns) - 1}
    assert text.count("{") == text.count("}")
    assert r"efficientnet\_lite0" in text
    assert r"\textbf{" in text
    assert text.startswith("%")
    assert "underlined: the next best" in text.splitlines()[0]
    assert formats.tex("50 % & a_b") == r"50 \% \& a\_b"


def test_columns_tell_backbones_apart_only_where_they_differ(frame: pd.DataFrame) -> None:
    assert "backbone" in [c.key for c in ags_table(aggregate.ags_board(frame)).columns]
    same = frame[frame["method"] != "frozen"]
    keys = [c.key for c in ags_table(aggregate.ags_board(same)).columns]
    assert "backbone" not in keys
    assert "protocol" not in keys


def test_a_bar_is_named_or_there_is_none(frame: pd.DataFrame) -> None:
    assert "ddof = 1" in ags_table(aggregate.ags_board(frame)).note
    single = ags_table(aggregate.ags_board(frame[frame["seed"] == 0]))
    assert "±" not in formats.to_text(single)
    assert single.note == "One seed each, so no deviations."


def test_terminal_summary_names_every_method_and_rank(results: Results) -> None:
    text = terminal.summary(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    assert re.search(r"1\s+s2sd", text)
    assert re.search(r"baseline\s+frozen", text)
    assert "harmonic" in text


@pytest.mark.parametrize("name", sorted({*tidy.TABLES} - {"fewshot", "thresholds", "frozen", "wise", "queries"}))
@pytest.mark.parametrize("form", ["csv", "latex", "md", "json", "text"])
def test_every_export_is_made(results: Results, name: str, form: str) -> None:
    text = exports.export(results, name, form)
    assert "margin" in text
    if form == "csv":
        assert len(pd.read_csv(io.StringIO(text))) > 0


def test_macros_are_letters_and_equal_the_table(frame: pd.DataFrame, results: Results) -> None:
    text = exports.export(results, "ags", "macros")
    found = dict(re.findall(r"\\newcommand\{\\([A-Za-z]+)\}\{([0-9.]+)\} % ", text))
    assert len(found) == len(text.splitlines()) == 8
    board = aggregate.ags_board(frame).wide().set_index("method")
    assert found["oodmlGlyphsSTwoSDAgs"] == f"{100 * board.at['s2sd', 'ags:glyphs']:.1f}"


def test_macros_have_the_score_on_every_split(frame: pd.DataFrame, results: Results) -> None:
    text = exports.export(results, "ladder", "macros")
    found = dict(re.findall(r"\\newcommand\{\\([A-Za-z]+)\}\{([0-9.]+)\} % ", text))
    runs = frame[frame["dataset"].eq("glyphs") & frame["method"].eq("s2sd") & frame["split"].eq(3)]
    assert found["oodmlGlyphsSTwoSDSplitThree"] == f"{100 * runs['recall@1'].mean():.1f}"
    cells = results.cells("glyphs", "recall@1")
    assert sum(key.startswith("oodmlGlyphs") for key in found) == len(cells[cells["source"] == "run"])


def test_unknown_names_are_refused(results: Results) -> None:
    with pytest.raises(ReportError, match="there are"):
        exports.export(results, "best", "csv")
    with pytest.raises(ReportError, match="there are"):
        exports.export(results, "ags", "xls")
    with pytest.raises(ReportError, match="macros"):
        exports.export(results, "runs", "macros")


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    write_sample(tmp_path / "work" / "runs", {"margin": 0.7}, ("glyphs",), seeds=1, union=False)
    target = tmp_path / "tables" / "ags.csv"
    arguments = ["--work", str(tmp_path / "work"), "--table", "ags", "--out", str(target)]
    result = CliRunner().invoke(export_command, arguments)
    assert result.exit_code == 0, result.output
    assert pd.read_csv(target)["coverage"].tolist() == ["5/5"]


def test_what_was_submitted_is_ranked_among_the_methods(tmp_path: Path) -> None:
    """On the one board of its ladder, among rows of its backbone; a row of another backbone changes nothing."""
    methods = {"frozen": 0.23, "margin": 0.66, "arcface": 0.655, "s2sd": 0.73}
    runs = write_sample(tmp_path / "runs", methods, ("glyphs",), seeds=2, union=False, queries=True)
    alone = heat_table(Results(records.collect(runs)), "glyphs", "recall@1").frame
    sent: dict[str, Any] = {"source": "submitted", "protocol": {"name": "submitted"}}
    for split in range(1, 6):
        records.write(runs / f"sent-{split}", make_record("glyphs", split, "elsewhere", 0, 0.5, **sent))
    results = Results(records.collect(runs))
    assert results.protocols == ["demo"]
    table = heat_table(results, "glyphs", "recall@1")
    assert dict(zip(table.frame["method"], table.frame["rank"].fillna(0))) == {
        "s2sd": 1, "margin": 2, "arcface": 3, "elsewhere": 4, "frozen": 0}
    assert "within a protocol" not in table.note
    board = results.ags("recall@1", "demo").rows
    assert dict(zip(board["method"], board["level"]))["elsewhere"] == "re-embedded"
    assert board.loc[board["method"] == "elsewhere", "rank"].tolist() == [4]
    for split in range(1, 6):
        other = make_record("glyphs", split, "elsewhere", 0, 0.5, **sent, backbone={"name": "vit", "weights": None})
        records.write(runs / f"sent-{split}", other)
    table = heat_table(Results(records.collect(runs)), "glyphs", "recall@1")
    ours = table.frame[table.frame["source"] == "run"].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours[alone.columns], alone, check_dtype=False)
    limited = Results(records.collect(runs), level="run here").ags("recall@1", "demo").rows
    assert limited.loc[limited["source"] == "submitted", "rank"].isna().all()


def test_rows_on_the_default_split_alone_are_ranked_by_it(tmp_path: Path) -> None:
    for method, score in {"margin": 0.66, "s2sd": 0.73, "arcface": 0.7}.items():
        records.write(tmp_path / "runs" / method, make_record("cars", 1, method, 0, score))
    table = heat_table(Results(records.collect(tmp_path / "runs")), "cars", "recall@1")
    assert table.frame["method"].tolist() == ["s2sd", "arcface", "margin"]
    assert table.frame["rank"].tolist() == [1, 2, 3]
    assert [column.head for column in table.columns] == ["Rank", "Method", "Recall@1"]
    assert table.caption == "Recall@1 of each method on the default split of cars"
    for split in range(1, 9):  # of a network that is not trained the whole ladder is cheap, and ranks nobody out
        records.write(tmp_path / "runs" / f"frozen-{split}", make_record("cars", split, "frozen", 0, 0.4))
    table = heat_table(Results(records.collect(tmp_path / "runs")), "cars", "recall@1")
    assert table.frame["method"].tolist()[:3] == ["s2sd", "arcface", "margin"]
    assert table.frame["rank"].tolist()[:3] == [1, 2, 3]
    assert "No method has the whole ladder yet: ranked by the score on the default split at" in table.note


def test_where_the_best_epoch_is_notably_better_a_column_says_so(tmp_path: Path) -> None:
    """Boards rank the last epoch; papers print the best one."""
    for method, last, best in (("margin", 0.62, 0.82), ("s2sd", 0.87, 0.87)):
        record = make_record("cars", 1, method, 0, last)
        record["scores"]["best-test"] = {**record["scores"]["last"], "recall@1": best}
        records.write(tmp_path / method, record)
    table = heat_table(Results(records.collect(tmp_path)), "cars", "recall@1")
    assert "Best − last epoch, points" in [column.head for column in table.columns]
    assert dict(zip(table.frame["method"], table.frame["gap"])) == pytest.approx({"s2sd": 0.0, "margin": 0.2})
    assert "Scores are of the last epoch" in table.note


def test_a_row_that_still_gained_over_the_last_quarter_of_training_is_said_to_rise(tmp_path: Path) -> None:
    """Equal epochs for all are too few for some: DiVA is last on a board after 40 of the 200 that its paper has."""
    scores = {"diva": (0.5, 0.62, 0.68, 0.7), "margin": (0.6, 0.7, 0.702, 0.7), "arcface": (0.6, 0.7, 0.7, 0.66)}
    for method, curve in scores.items():
        for split, _ in LADDERS["glyphs"]:
            record = make_record("glyphs", split, method, 0, curve[-1])
            record["curve"] = [{"epoch": epoch, "loss": 1.0, "recall@1": score - 0.1 * split}
                               for epoch, score in zip((10, 20, 30, 40), curve)]
            records.write(tmp_path / f"{method}{split}", record)
    once = make_record("glyphs", 1, "npair", 0, 0.5) | {"curve": [{"epoch": 40, "loss": 1.0, "recall@1": 0.4}]}
    records.write(tmp_path / "once", once)
    results = Results(records.collect(tmp_path))
    told = "Still rising, by points of Recall@1 over the last quarter of training: diva (2.0)."
    for table in (heat_table(results, "glyphs", "recall@1"), ags_table(results.ags("recall@1", "demo"))):
        gains = dict(zip(table.frame["method"], table.frame["late"]))
        known = {method: gain for method, gain in gains.items() if method in scores}
        assert known == pytest.approx({"diva": 0.02, "margin": -0.002, "arcface": -0.04})
        assert math.isnan(gains.get("npair", math.nan)), "evaluated once"
        assert told in table.note
        assert next(column for column in table.columns if column.key == "late").spare
    page = some_pages(results, lambda site: dataset_pages.ladder(site, "glyphs", Extras()))["dataset/glyphs.html"]
    marked = re.findall(r'<th scope="row">.*?method/([a-z]+)[^<]*</a>( <span class="rising" [^>]*: \+2.0 )?', page)
    assert {method for method, badge in marked if badge} == {"diva"}
    assert {method for method, _ in marked} == {*scores, "npair"}


def test_a_submission_on_another_ladder_moves_no_board(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.66, "s2sd": 0.73}, ("glyphs",), seeds=1, union=False)
    sent: dict[str, Any] = {"source": "submitted", "protocol": {"name": "submitted"}}
    for split in range(1, 6):
        record = make_record("glyphs", split, "elsewhere", 0, 0.5, **sent)
        record["split"] |= {"pinned": {"name": "glyphs@v9", "hash": "9" * 64}}
        record["provenance"]["date"] = "2099-01-01T00:00:00Z"
        records.write(runs / f"sent-{split}", record)
    results = Results(records.collect(runs))
    assert set(results.runs["method"]) == {"margin", "s2sd"}
    assert any("--ladder glyphs@v9" in note for note in results.notes)
    assert set(Results(records.collect(runs), ladders=["glyphs@v9"]).runs["method"]) == {"elsewhere"}
    with pytest.raises(ReportError, match="there are: glyphs@v9"):
        Results(records.collect(runs), ladders=["glyphs@v1"])


def test_the_note_says_whether_classes_or_seeds_were_tested(tmp_path: Path) -> None:
    """recall@1 is tested over classes as long as the results of queries are there; nothing else ever is."""
    folder = write_sample(tmp_path / "runs", {"margin": 0.66, "s2sd": 0.73}, ("glyphs",), seeds=2, queries=True)

    def notes() -> list[str]:
        results = Results(records.collect(folder))
        union = union_table(results.universal("glyphs-union", "demo"), "recall@1")
        boards = [ags_table(results.ags(metric, "demo"), metric) for metric in ("recall@1", "map@1000")]
        heats = [heat_table(results, "glyphs", metric) for metric in ("recall@1", "map@1000")]
        return [table.note.partition("are bold (")[2] for table in (*boards, *heats, union)]

    seeds, both = "tests over seeds alone, Holm, 5 %).", "classes resampled, seeds; paired tests, Holm, 5 %)."
    mixed = "tests over seeds alone, in unified with classes resampled as well, Holm, 5 %)."
    assert notes() == [both, seeds, both, seeds, mixed]
    for path in folder.rglob("queries.npz"):
        path.unlink()
    assert notes() == [seeds] * 5


def test_intervals_of_one_seed_from_other_splits_are_not_said_to_be_of_classes(tmp_path: Path) -> None:
    """Every row has a second seed on the first split alone, and no row results of queries."""
    rng = np.random.default_rng(0)
    for (method, score), split, seed in itertools.product((("margin", 0.6), ("s2sd", 0.7), ("arcface", 0.5)),
                                                          range(1, 6), range(2)):
        if seed == 0 or split == 1:
            records.write(tmp_path / f"{method}-{split}-{seed}",
                          make_record("glyphs", split, method, seed, score - 0.05 * split + rng.normal(0, 0.002)))
    results = Results(records.collect(tmp_path))
    board = results.ags("recall@1", "demo")
    note = ags_table(board, "recall@1").note
    assert board.rows["rank:seeds"].all()
    assert "(tests over seeds alone, Holm, 5 %)" in note
    assert "Tests give an AGS the deviation of the splits that have several, all else the mean deviation" in note


def test_the_first_screen_tells_of_what_papers_report_on(tmp_path: Path) -> None:
    """A ladder of the field of which both ends were run comes before a whole one of drawn characters."""
    runs = write_sample(tmp_path / "runs", {"margin": 0.66, "s2sd": 0.73}, ("glyphs",), seeds=1, union=False)
    site = Site(Results(records.collect(runs)), pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    home(site)
    assert "glyphs" in str(site.files["index.html"]).split("<h1>")[0].split("eyebrow")[-1]
    for split, scores in {1: (0.8, 0.9), 8: (0.6, 0.75)}.items():
        for method, score in zip(("margin", "s2sd"), scores):
            records.write(runs / f"cars-{split}-{method}", make_record("cars", split, method, 0, score))
    results = Results(records.collect(runs))
    site = Site(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    home(site)
    page = str(site.files["index.html"])
    assert "cars" in page.split("<h1>")[0].split("eyebrow")[-1]
    assert "18 points on average" in page  # (80 - 60 + 90 - 75) / 2 = 17.5
    assert "90.0&nbsp;% of the test images nearest" in page
    assert page.index('id="single-cars"') < page.index('id="ladder-1"')
    board = rung_board(results, "cars", "recall@1").rows.set_index("method")
    assert board.loc["s2sd", "kept"] == pytest.approx(0.75 / 0.9)


WIDE = {"cub": 3, "日本語データ": 12, "데이터": 6, "e\u0301te\u0301": 3, "👩\u200d🔬": 2, "👍🏽": 2, "ﾊﾝｶｸ": 4}
"""Names with the columns they take in a terminal, counted by hand."""


def test_columns_line_up_whatever_is_written_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(name, "x", str(width)) for name, width in WIDE.items()]
    for line, (name, _, number) in zip(columns(rows, left=2), rows, strict=True):
        assert line == name + " " * (12 - WIDE[name]) + "  x  " + number.rjust(2)
    table = Table("wide", "", (Column("name", "Name"), Column("score", "Score", "number")),
                  pd.DataFrame({"name": [*WIDE], "score": 1.0}))
    text = formats.to_text(table).splitlines()
    assert text[1] == "─" * 12 + "  " + "─" * 5
    assert [line[:len(name)] for line, name in zip(text[2:], WIDE)] == [*WIDE]
    assert len({WIDE[name] + len(line[len(name):]) for line, name in zip(text[2:], WIDE)}) == 1
    monkeypatch.setattr("sys.stdout", type("Terminal", (), {"isatty": staticmethod(lambda: True)}))
    monkeypatch.setenv("COLUMNS", "9")
    assert [*columns([("日本語データ",), ("cub",)])] == ["日本語デ…", "cub"]
