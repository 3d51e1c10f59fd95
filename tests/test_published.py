"""The papers' tables: as printed, beside ours without a rank, and beside what was measured."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import reports
from benchmark import cli, datasets
from reports import records
from reports.analysis import paper_tables
from reports.analysis.results import Results
from reports.html import cards
from tests.sample_records import make_record, write_sample

FILES = Path(reports.__file__).parent / "data" / "published"
EIGHT = ("cub", "cars", "sop", "inshop", "nabirds", "dogs", "flowers", "aircraft")


def test_every_shown_number_is_printed_in_its_file() -> None:
    printed: set[float] = set()
    for path in FILES.glob("*.csv"):
        frame = pd.read_csv(path)
        for column in ("value", "ags"):
            if column in frame:
                printed |= set(frame[column].dropna().round(2))
    count = 0
    for _, tables in paper_tables.boards():
        for table in tables:
            for column in table.columns:
                if column.kind == "score":
                    for value in table.frame[column.key].dropna():
                        assert round(100 * value, 2) in printed, (table.name, column.key)
                        count += 1
    assert count > 900


def test_published_rows_stand_on_the_board_without_a_rank(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.66, "s2sd": 0.73}, ("cars",), seeds=2, union=False)
    frame = records.collect(tmp_path)
    board = Results(frame).ags("recall@1", "demo").wide()
    said = board[board["source"] == "published"].set_index("method")
    assert said.at["s2sd", "ags:cars"] == pytest.approx(0.802)
    assert said["rank"].isna().all()
    ours = board[board["source"] == "run"].set_index("method")
    assert ours["rank"].to_dict() == {"s2sd": 1, "margin": 2}
    hidden = Results(frame, with_published=False).ags("recall@1", "demo").wide()
    assert set(hidden["source"]) == {"run"}
    assert hidden.set_index("method").at["margin", "ags:cars"] == ours.at["margin", "ags:cars"]
    ranked = Results(frame, rank_published=True).ags("recall@1", "demo").wide()
    assert ranked["rank"].notna().all()
    assert ranked.sort_values("rank").iloc[0]["source"] == "published"


def test_an_export_without_rows_of_papers_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Asked for and not there: because of the data, the format, or the table; nothing is said where they are there."""
    write_sample(tmp_path / "cars", {"margin": 0.66}, ("cars",), seeds=1, union=False)
    write_sample(tmp_path / "glyphs", {"margin": 0.66}, ("glyphs",), seeds=1, union=False)
    small = make_record("uml", 1, "puma", 0, 0.6, {name: 0.7 for name in EIGHT})
    for cub, folder in ((5864, "uml"), (60, "other")):
        small["split"]["parts"] = {**{name: paper_tables.IMAGES[name][0] for name in EIGHT}, "cub": cub}
        records.write(tmp_path / folder / "a", small)

    def exported(folder: str, *words: str, published: str = "shown") -> tuple[bool, str]:
        cli.main(["export", "--records", str(tmp_path / folder), "--published", published, *words])
        out, error = capsys.readouterr()
        return "0.71" in out or "80.2" in out, error

    assert exported("cars", "--format", "md") == (True, "")
    assert exported("uml", "--table", "uml") == (True, "")
    for words, why in ((("cars", "--format", "csv"), "table ags as csv; those that can have some: ags as latex, md"),
                       (("cars", "--table", "ladder", "--format", "md"), "table ladder as md"),
                       (("glyphs", "--format", "text"), "papers print no AGS of recall@1 on glyphs"),
                       (("cars", "--format", "md", "--metric", "map@r"), "papers print no AGS of map@r on cars"),
                       (("other", "--table", "uml"), "cub has 60 training images here and 5,864 in the papers")):
        there, said = exported(*words)
        assert not there
        assert said.startswith("note: no row from papers")
        assert why in said
        assert len(said.splitlines()) == 1
        assert exported(*words, published="hidden") == (False, "")


def test_the_universal_board_takes_table_2_along(tmp_path: Path) -> None:
    parts = {name: 0.7 for name in EIGHT}
    records.write(tmp_path / "a", make_record("uml", 1, "puma", 0, 0.6, parts))
    board = Results(records.collect(tmp_path)).universal("uml", "demo").wide()
    said = board[board["source"] == "published"]
    assert said["group"].value_counts().to_dict() == {"full": 9, "dataset-specific": 9, "parameter-efficient": 6}
    anchor = said[(said["method"] == "proxyanchor") & (said["group"] == "full")].iloc[0]
    assert anchor["harmonic"] == pytest.approx(0.71)
    assert said["rank"].isna().all()
    small = Results(records.collect(tmp_path).rename(columns={"domain:cub:recall@1": "domain:owls:recall@1"}))
    assert set(small.universal("uml", "demo").rows["source"]) == {"run"}


def test_what_papers_say_stands_beside_what_we_got(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.66}, ("cars",), seeds=2, union=False)
    runs = Results(records.collect(tmp_path)).runs
    table = cards.paper_says(runs, runs.iloc[0].to_dict(), "x")
    assert table is not None
    rows = table.frame[(table.frame["what"] == "AGS") & (table.frame["metric"] == "recall@1")]
    assert rows["paper_value"].tolist() == [0.745]
    default = table.frame[(table.frame["what"] == "default split") & (table.frame["metric"] == "recall@1")]
    assert len(default) == 3, "of ooDML, of Revisiting the row with beta = 1.2 alone, of UML"
    usual = runs[runs["kind"] == "default"]
    best, last = usual["best-test:recall@1"].mean(), usual["recall@1"].mean()
    assert default["ours"].tolist() == pytest.approx([best, best, last]), "UML alone does not print the best epoch"
    assert (default["difference"] - (default["ours"] - default["paper_value"])).abs().max() < 1e-12
    assert cards.paper_says(runs, {"base_method": "nobody"}, "x") is None


def test_what_is_not_the_papers_dataset_or_ladder_has_no_rows_of_papers(tmp_path: Path) -> None:
    for name, counts in paper_tables.IMAGES.items():
        official = datasets.get(name).counts
        assert (official.train_images, official.test_images) == counts
    write_sample(tmp_path, {"margin": 0.66}, ("cars",), seeds=1, union=False)
    frame = records.collect(tmp_path)
    assert Results(frame).unlike_papers == {}
    small = Results(frame.assign(train_images=32, test_images=32))
    assert set(small.ags("recall@1", "demo").rows["source"]) == {"run"}
    assert any("cars has 64 images here and 16,185 in the papers" in note for note in small.notes)
    assert cards.paper_says(small.runs, small.runs.iloc[0].to_dict(), "x") is None
    short = Results(frame.assign(ladder=[rungs[:5] for rungs in frame["ladder"]]))
    assert short.unlike_papers == {
        "cars": "the ladder of cars has 5 rungs at distances from 8.6 to 63.3 here and 8 from 8.6 to 123.0 in the "
                "papers"}
    longer = [[rung, 2 * frd] for rung, frd in frame["ladder"].iloc[0]]
    assert set(Results(frame.assign(ladder=[longer] * len(frame))).unlike_papers) == {"cars"}
    table = cards.paper_says(short.runs, short.runs.iloc[0].to_dict(), "x")
    assert table is not None
    assert set(table.frame["what"]) == {"default split"}, "which needs no ladder"


def test_a_union_of_other_images_has_no_rows_of_papers(tmp_path: Path) -> None:
    record = make_record("uml", 1, "puma", 0, 0.6, {name: 0.7 for name in EIGHT})
    for cub, sources in ((5864, {"run", "published"}), (60, {"run"})):
        record["split"]["parts"] = {**{name: paper_tables.IMAGES[name][0] for name in EIGHT}, "cub": cub}
        records.write(tmp_path / "a", record)
        assert set(Results(records.collect(tmp_path)).universal("uml", "demo").rows["source"]) == sources
