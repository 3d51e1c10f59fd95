"""`oodml export --columns` and `--methods`: parts of tables say what the whole says."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.export import command as export
from reports import ReportError, exports, records
from reports.analysis.results import Results
from reports.tidy import tidy_table
from tests.sample_records import make_record, write_sample


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sample(tmp_path_factory.mktemp("work") / "runs",
                        {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.7}, ("glyphs",), seeds=2)


@pytest.fixture(scope="module")
def results(runs: Path) -> Results:
    return Results(records.collect(runs), with_published=False)


def cells(text: str) -> list[list[str]]:
    """The lines of the first pipe table, heading first, without the rule."""
    lines = text.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in (lines[0], *lines[2:])]


def test_columns_stand_in_the_order_asked_for_and_say_the_same(results: Results) -> None:
    whole = cells(exports.export(results, "ags", "md"))
    some = cells(exports.export(results, "ags", "md", wanted="AGS, method,vs Frozen,farthest"))
    at = [whole[0].index(head) for head in some[0]]
    assert some[0] == ["AGS", "Method", "vs frozen", "Farthest"]
    assert some == [[line[i] for i in at] for line in whole]


@pytest.mark.parametrize("form", ["latex", "md", "text"])
def test_what_is_taken_away_leaves_the_others(results: Results, form: str) -> None:
    text = exports.export(results, "ags", form, wanted="-time,-Best - last epoch,-kept")
    assert "Time" not in text
    assert "Kept" not in text
    assert "Best" not in text
    assert "Method" in text
    assert "s2sd" in text
    assert exports.export(results, "ags", form, wanted="all") == exports.export(results, "ags", form)
    assert exports.export(results, "ags", form, wanted="rank,*") == exports.export(results, "ags", form)


def test_a_latex_table_has_as_many_cells_as_columns(results: Results) -> None:
    text = exports.export(results, "ladder", "latex", wanted="rank,method,AGS")
    assert "{rlr}" in text
    lines = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count(" & ") for line in lines} == {2}


def test_files_for_programs_have_these_columns_alone(results: Results) -> None:
    frame = pd.read_csv(io.StringIO(exports.export(results, "ags", "csv", wanted="ags,method,rank*")))
    assert frame.columns.tolist() == ["ags", "method", "rank", "rank:low", "rank:high", "rank:of"]
    whole = pd.read_csv(io.StringIO(exports.export(results, "ags", "csv")))
    pd.testing.assert_frame_equal(frame, whole[frame.columns.tolist()])
    rows = json.loads(exports.export(results, "ags", "json", wanted="method,ags"))["rows"]
    assert [list(row) for row in rows] == [["method", "ags"]] * len(whole)
    assert tidy_table(results, "runs", wanted="seed,recall@1").columns.tolist() == ["seed", "recall@1"]


def test_a_column_that_only_some_tables_have(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.66, "s2sd": 0.73}, ("cars", "glyphs"), seeds=1, union=False)
    results = Results(records.collect(runs), with_published=False)
    whole = [line for line in exports.export(results, "ladder", "md").splitlines() if line.startswith("| Rank")]
    cars, glyphs = ([head.strip() for head in line.strip("|").split("|")] for line in whole)
    nearest = next(head for head in cars if head not in glyphs)
    some = exports.export(results, "ladder", "md", wanted=f"method,{nearest}")
    assert [line for line in some.splitlines() if "Method" in line] == [f"| Method | {nearest} |", "| Method |"]
    alone = exports.export(results, "ladder", "md", wanted=nearest)
    assert alone.count("| --") + alone.count("|--") == 1, "a table that keeps no column is left out"


def test_unknown_columns_are_told(results: Results) -> None:
    with pytest.raises(ReportError, match=r"no column 'agss' \(did you mean 'ags'\?\); there are: rank; method; ags"):
        exports.export(results, "ags", "latex", wanted="agss")
    with pytest.raises(ReportError, match="leaves no column"):
        exports.export(results, "ags", "latex", wanted="rank,-rank")


def test_the_command_takes_columns(runs: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(export, ["--records", str(runs), "--format", "text", "--columns", "method,ags"])
    assert done.exit_code == 0, done.output
    assert done.stdout.split()[:2] == ["Method", "AGS"]
    out = tmp_path / "ags.parquet"
    CliRunner().invoke(export, ["--records", str(runs), "--format", "parquet", "--columns", "method,ags",
                                "--out", str(out)])
    assert pd.read_parquet(out).columns.tolist() == ["method", "ags"]
    for extra in (["--format", "macros"], ["--to", "badges", "--out", str(tmp_path / "badges")]):
        refused = CliRunner().invoke(export, ["--records", str(runs), "--columns", "ags", *extra])
        assert (refused.exit_code, "no table with --columns" in refused.stderr) == (2, True)


def test_methods_are_those_of_records_that_hold_no_others(runs: Path, tmp_path: Path) -> None:
    some = CliRunner().invoke(export, ["--records", str(runs), "--methods", "-proxyanchor,-s2*"]).stdout
    alone = write_sample(tmp_path / "runs", {"frozen": 0.23, "margin": 0.66}, ("glyphs",), seeds=2)
    assert some == CliRunner().invoke(export, ["--records", str(alone)]).stdout
    kept = CliRunner().invoke(export, ["--records", str(runs), "--columns", "kept,-", "--format", "text"])
    assert kept.stdout.startswith("Kept, %")
    refused = CliRunner().invoke(export, ["--records", str(runs), "--methods", "margn"])
    assert "no method 'margn' (did you mean 'margin'?)" in str(refused.exception)


def test_a_method_is_called_by_its_settings_too() -> None:
    published = Path(__file__).parent.parent / "reports" / "data" / "records" / "photos"

    def methods(chosen: str) -> set[str]:
        done = CliRunner().invoke(export, ["--records", str(published), "--dataset", "cars", "--table", "ladder",
                                           "--methods", chosen])
        return set(pd.read_csv(io.StringIO(done.stdout))["method"])

    arcface = "arcface[margin=0.0,positive_cosines_released=true]"
    assert methods(f"frozen,{arcface}") == {"frozen", "arcface"}, "alone it needs no settings to be told apart"
    assert methods("uniform-prior,-uniform-prior[*") == {"uniform-prior"}
    assert methods(f"arcface,margin,-{arcface}") == {"arcface", "margin"}
    assert methods("arcface") == {"arcface", arcface}


def test_a_note_on_a_column_that_is_left_out_is_left_out(tmp_path: Path) -> None:
    """margin scores higher on the farthest split, of which without its frozen network no share is told."""
    for split, score in ((1, 0.3), (2, 0.4), (3, 0.4), (4, 0.5), (5, 0.6)):
        records.write(tmp_path / f"margin-{split}", make_record("glyphs", split, "margin", 0, score))
        records.write(tmp_path / f"s2sd-{split}", make_record("glyphs", split, "s2sd", 0, 0.9 - score))
    results = Results(records.collect(tmp_path), with_published=False)
    assert "Kept is –" in exports.export(results, "ags", "latex")
    assert "Kept is –" in exports.export(results, "ags", "latex", wanted="method,kept")
    without = exports.export(results, "ags", "latex", wanted="method,ags")
    assert "Kept" not in without
    assert "One seed each" in without
