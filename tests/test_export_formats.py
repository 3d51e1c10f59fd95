"""Exports for other places, read by other programs: parquet by pyarrow, evaluation files by the Hub's own library."""

from __future__ import annotations

import hashlib
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import huggingface_hub
import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner, Result
from huggingface_hub.repocard_data import model_index_to_eval_results

from benchmark.board import versions
from benchmark.commands.board import command as board
from benchmark.commands.export import command as export
from reports import packing, records
from reports.analysis.results import Results
from reports.sharing import badge
from reports.tidy import tidy_table
from tests.sample_records import make_record, write_sample

WICKED = '</title><script>alert(1)</script>: "- &x'


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_sample(tmp_path_factory.mktemp("work") / "runs", {"margin": 0.66, "s2sd": 0.73}, ("glyphs",),
                          seeds=2, queries=True)
    for split in range(1, 6):
        record = make_record("glyphs", split, "wicked", 0, 0.5, backbone={"name": WICKED, "weights": None})
        records.write(folder / "glyphs" / str(split) / "wicked" / "s0-0", record)
    return folder


@pytest.fixture(scope="module")
def rows(runs: Path) -> pd.DataFrame:
    return tidy_table(Results(records.collect(runs), with_published=False), "ags")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(export, [str(word) for word in words])


def test_runs_that_are_set_aside_are_told_beside_the_table(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.66}, ("glyphs",), seeds=1, union=False)
    assert invoke("--records", runs).stderr == ""
    old = make_record("glyphs", 1, "arcface", provenance=make_record()["provenance"] | {"date": "2020-01-01"},
                      dataset_hash="e" * 64)
    records.write(runs / "old", old)
    done = invoke("--records", runs)
    assert done.stderr.startswith("note: 1 run on another ladder of glyphs is set aside. Give their `oodml run`")
    assert "arcface" not in done.stdout
    assert "set aside" not in done.stdout, "a table that goes into a file is a table alone"


def test_single_queries_give_the_scores_of_their_runs(runs: Path, tmp_path: Path) -> None:
    done = invoke("--records", runs, "--table", "queries", "--format", "parquet", "--out", tmp_path / "q.parquet")
    assert done.exit_code == 0, done.output
    frame = pd.read_parquet(tmp_path / "q.parquet")
    assert {"dataset", "split", "split_hash", "method", "seed", "identity", "query", "class", "counted",
            "first_hit"} <= set(frame)
    (identity, one), *_ = frame[frame["method"] == "margin"].groupby("identity")
    (path,) = [path for path in runs.glob("*/*/*/*/record.json")
               if json.loads(path.read_text())["identity"] == identity]
    with np.load(path.parent / "queries.npz") as kept:
        assert one["first_hit"].tolist() == kept["first_hit"].tolist()
        assert len(one["class"].unique()) == len(np.unique(kept["labels"]))
    assert one["query"].tolist() == list(range(len(one)))


def test_runs_as_parquet_are_those_of_the_csv(runs: Path, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        done = invoke("--records", runs, "--table", "runs", "--format", form, "--out", tmp_path / f"runs.{form}")
        assert done.exit_code == 0, done.output
    csv = pd.read_csv(tmp_path / "runs.csv", float_precision="round_trip")
    parquet = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(parquet) == list(csv)
    assert parquet["recall@1"].tolist() == csv["recall@1"].tolist()
    assert WICKED in set(parquet["backbone"])


def test_evaluation_files_are_read_by_the_library_of_the_hub(runs: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    done = invoke("--records", runs, "--to", "huggingface", "--hub", "someone", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    written = sorted(tmp_path.glob("*/.eval_results/oodml.yaml"))
    assert len(written) == rows.groupby(["method", "backbone"]).ngroups == 3
    values = set()
    for path in written:
        (entry,) = huggingface_hub.parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        assert (entry.dataset_id, entry.task_id) == ("someone/glyphs", "ags-recall-1")
        index = yaml.safe_load((path.parents[1] / "model-index.yaml").read_text(encoding="utf-8"))
        _, (result,) = model_index_to_eval_results(index["model-index"])
        assert result.metric_value == entry.value
        values.add(entry.value)
    assert values == {round(100 * value, 2) for value in rows["ags"]}


def test_badges_have_rank_and_score_and_nothing_that_runs(runs: Path, rows: pd.DataFrame, tmp_path: Path) -> None:
    done = invoke("--records", runs, "--to", "badges", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert {path.parent for path in tmp_path.rglob("*.svg")} == {tmp_path}
    best = rows.sort_values("rank").iloc[0]
    said = {}
    for path in tmp_path.glob("*.svg"):
        tree = ElementTree.parse(path)
        assert {element.tag.rpartition("}")[2] for element in tree.iter()} == {"svg", "title", "rect", "text"}
        said[path.stem] = "".join(tree.getroot().itertext())
    assert f"#1 of 2 · AGS {100 * best['ags']:.1f}" in said["s2sd-glyphs"]
    (alone,) = [text for name, text in said.items() if name.startswith("wicked")]
    assert "glyphsAGS" in alone, "the only one of its backbone: the first of one says nothing"
    assert WICKED in "".join(ElementTree.fromstring(badge("left", "right", WICKED)).itertext())


@pytest.mark.parametrize(("words", "said"), [
    (["--format", "parquet"], "--format parquet needs --out"), (["--to", "badges"], "--to badges needs --out"),
    (["--format", "parquet", "--out", "."], "is a folder")])
def test_what_cannot_be_is_one_line(runs: Path, words: list[str], said: str) -> None:
    done = invoke("--records", runs, *words)
    assert done.exit_code == 2
    assert said in done.output


def test_a_cut_board_is_built_again_byte_for_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one altered record, or one more, is noticed; a version is never written over, nor named otherwise."""
    write_sample(tmp_path / "runs", {"margin": 0.66}, ("glyphs",), seeds=1, union=False)
    packing.pack([tmp_path / "runs"], tmp_path / "records")
    home = tmp_path / "boards"

    def say(*words: object) -> Result:
        return CliRunner().invoke(board, [str(word) for word in words])

    cut = ["--records", tmp_path / "records", "--to", home]
    assert say("cut", "v2026.1", *cut).exit_code == 0
    done = say("check", home / "v2026.1.json")
    assert done.exit_code == 0, done.output
    assert done.output == "v2026.1: every table is byte for byte as it was cut, and so is every page\n"
    again = say("cut", "v2026.1", *cut)
    assert "never changed" in str(again.exception)
    assert "v2026.1" in str(say("cut", "2026", *cut).exception)
    (tmp_path / "records" / ".DS_Store").write_text("left by a system, read by nobody")
    assert say("check", home / "v2026.1.json").exit_code == 0
    assert "v20" in str(say("cut", "v20\uff12\uff16.1", *cut).exception), "other digits"
    assert "never be what it was cut from" in str(say("cut", "v2026.2", "--records", tmp_path, "--to", home).exception)
    monkeypatch.chdir(tmp_path / "records")
    assert say("cut", "v2026.2", "--records", ".", "--to", home).exit_code == 0
    assert say("check", home / "v2026.2.json").exit_code == 0
    packing.pack([tmp_path / "runs"], tmp_path / "other" / "records")
    twice = say("cut", "v2026.3", *cut, "--records", tmp_path / "other" / "records")
    assert "two folders of records are called records" in str(twice.exception)
    file = next(tmp_path.glob("records/glyphs/margin*.jsonl"))
    changed = re.sub(r"\b0\.6(?=\d)", "0.5", file.read_text())
    assert changed != file.read_text()
    file.write_text(changed)
    done = say("check", home / "v2026.1.json")
    assert done.exit_code == 1
    assert "records: " in done.output
    assert "check out its tag, v2026.1" in done.output
    facts = json.loads((home / "v2026.1.json").read_text())
    name = f"records/{file.relative_to(tmp_path / 'records').as_posix()}"
    facts["records"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
    (home / "v2026.1.json").write_text(json.dumps(facts))
    done = say("check", home / "v2026.1.json")
    assert done.exit_code == 1
    assert "tables: data/ags-demo-recall-1.csv differs" in done.output


BOARDS = sorted((Path(__file__).resolve().parents[1] / "reports/data/boards").glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_published_board_follows_from_its_records(path: Path) -> None:
    """As long as these are here: the board of records that were replaced is built from its tag."""
    lines, _ = versions.differences(path)
    if any(line.startswith("records: ") for line in lines):
        pytest.skip(f"the records of {path.stem} were replaced since")
    assert not lines
