"""Two folders of results against each other."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.diff import command
from benchmark.utils.errors import UserError
from reports import ReportError, records
from reports.analysis import differences
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


def test_the_name_of_a_version_is_told_where_its_records_are(folders: tuple[Path, Path]) -> None:
    for words in (("v2026.1", "v2026.2"), (str(folders[0]), "reports/data/boards/v2026.1.json")):
        with pytest.raises(UserError, match=r"v2026.1\S* is a version of.*`git worktree add ../v2026.1 v2026.1`"):
            CliRunner().invoke(command, words, catch_exceptions=False)


def test_an_unknown_metric_is_told(folders: tuple[Path, Path]) -> None:
    a, b = (records.collect(folder) for folder in folders)
    with pytest.raises(ReportError, match="recall@3"):
        differences.cells(a, b, "recall@3")


def variant(folder: Path, beta: float, score: float = 0.6) -> None:
    """Five runs of margin with this beta, along a ladder."""
    for split in range(1, 6):
        record = make_record("glyphs", split, "margin", 0, score)
        record["method"]["settings"]["beta"] = beta
        record["identity"] = hashlib.sha256(f"{beta}/{split}".encode()).hexdigest()
        records.write(folder / str(beta) / str(split), record)


def test_a_run_is_the_same_whatever_lies_beside_it(tmp_path: Path) -> None:
    variant(tmp_path / "a", 0.6)
    for beta, score in ((0.6, 0.6), (1.2, 0.7), (2.0, 0.5)):
        variant(tmp_path / "b", beta, score)
    a, b = (records.collect(tmp_path / name) for name in "ab")
    told = {key: differences.summary(differences.cells(*pair), differences.shared(*pair))
            for key, pair in {"ab": (a, b), "ba": (b, a)}.items()}
    assert told == {"ab": "0 only in A, 10 only in B, 0 changed, 5 the same",
                    "ba": "10 only in A, 0 only in B, 0 changed, 5 the same"}
    means = differences.boards(a, b)
    assert means["b"].tolist() == pytest.approx([0.7, 0.5])
    assert means["a"].isna().all()


def test_one_variant_on_each_side_has_changed(tmp_path: Path) -> None:
    variant(tmp_path / "a", 0.6)
    variant(tmp_path / "b", 1.2, 0.7)
    found = differences.cells(*(records.collect(tmp_path / name) for name in "ab"))
    assert found["state"].tolist() == ["changed"] * 5
    assert set(found["causes"]) == {"settings"}
    assert set(found["method"]) == {"margin"}


@pytest.mark.filterwarnings("error::pandas.errors.PerformanceWarning")
def test_folders_whose_runs_have_many_other_measures_are_compared_in_silence(folders: tuple[Path, Path]) -> None:
    """Of a union, say, beside a ladder: pandas warned a reader of frames in pieces, sixty times over."""
    a, b = (pd.concat([frame, pd.DataFrame({f"m{i}": pd.Series(0.5 if i % 2 else "x", frame.index, dtype=object)
                                            for i in range(250)})], axis=1)
            for frame in map(records.collect, folders))
    assert differences.cells(a.drop(columns=[f"m{i}" for i in range(0, 250, 3)]), b).empty


def test_folders_on_two_pinned_ladders_of_a_dataset_are_compared(tmp_path: Path) -> None:
    for version, score in (("v1", 0.6), ("v2", 0.5)):
        for split in (1, 2):
            record = make_record("glyphs", split, "margin", 0, score)
            record["split"] |= {"pinned": {"name": f"glyphs@{version}", "hash": version[1] * 64},
                                "hash": f"{version[1]}{split}" * 32}
            records.write(tmp_path / version / str(split), record)
    found = differences.cells(*(records.collect(tmp_path / name) for name in ("v1", "v2")))
    assert found["state"].tolist() == ["changed"] * 2
    assert set(found["causes"]) == {"split"}


@pytest.mark.parametrize(("tolerance", "same"), [(0, False), (0.0009, False), (0.001, True), (0.0011, True)])
def test_a_difference_of_just_the_tolerance_is_none(tmp_path: Path, tolerance: float, same: bool) -> None:
    for side, score in (("a", 0.7), ("b", 0.701)):
        for split in range(1, 6):
            records.write(tmp_path / side / f"run-{split}", make_record("glyphs", split, "margin", 0, score))
    a, b = (records.collect(tmp_path / side) for side in "ab")
    assert differences.cells(a, b, tolerance=tolerance).empty == same
    assert differences.boards(a, b, tolerance=tolerance).empty == same
