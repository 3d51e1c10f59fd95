"""Two folders of results against each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmark.commands.diff import command
from reports import ReportError, differences, records
from tests.sample_records import make_record, write_sample


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    a = write_sample(tmp_path / "a" / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1, union=False)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    return a, tmp_path / "b" / "runs"


def test_equal_folders_do_not_differ(folders: tuple[Path, Path]) -> None:
    a, b = (records.collect(folder) for folder in folders)
    assert differences.cells(a, b).empty
    assert differences.boards(a, b).empty
    result = CliRunner().invoke(command, [str(folders[0]), str(folders[1].parent)])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == "0 only in A, 0 only in B, 0 changed, 10 the same"


def test_what_differs_is_named_with_its_cause(folders: tuple[Path, Path]) -> None:
    (old,) = (folders[1] / "glyphs" / "2" / "margin").iterdir()
    record = records.read(old)
    record["scores"]["last"]["recall@1"] -= 0.01
    record["provenance"]["commit"] = "abc"
    records.write(old, record)
    shutil.rmtree(folders[0] / "glyphs" / "5" / "s2sd")
    records.write(folders[0] / "new", make_record("glyphs", 1, "arcface", 0, 0.5))
    a, b = (records.collect(folder) for folder in folders)
    found = differences.cells(a, b).set_index("state")
    assert found.loc["changed", "method"] == "margin"
    assert found.loc["changed", "difference"] == pytest.approx(-0.01)
    assert found.loc["changed", "causes"] == "code"
    assert found.loc["only B", ["method", "split"]].tolist() == ["s2sd", 5]
    assert found.loc["only A", "method"] == "arcface"
    assert set(differences.cells(a, b, tolerance=0.02)["state"]) == {"only A", "only B"}
    means = differences.boards(a, b).set_index("method")
    assert means.at["margin", "difference"] < 0
    assert set(means.index) == {"margin", "s2sd"}
    result = CliRunner().invoke(command, [str(folder) for folder in folders])
    assert result.exit_code == 1
    assert "1 only in A, 1 only in B, 1 changed, 8 the same" in result.output
    assert "code" in result.output
    csv = CliRunner().invoke(command, [*(str(folder) for folder in folders), "--format", "csv"]).output
    assert csv.startswith("dataset,split,method,seed,state")


def test_an_unknown_metric_is_told(folders: tuple[Path, Path]) -> None:
    a, b = (records.collect(folder) for folder in folders)
    with pytest.raises(ReportError, match="recall@3"):
        differences.cells(a, b, "recall@3")
