"""The record of a run: what is accepted, what is refused, and what a folder of them becomes."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path

import pytest

from reports import ReportError, packing, records
from reports.storage import packed
from tests.sample_records import make_record, write_sample


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    record = make_record(score=0.625)
    path = records.write(tmp_path / "run", record)
    assert path.name == "record.json"
    assert records.read(path) == json.loads(json.dumps(record)) == records.read(tmp_path / "run")
    text = path.read_text()
    assert text == json.dumps(record, sort_keys=True, indent=1) + "\n"
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize(("key", "value", "told"), [
    ("source", "guess", "source"), ("seed", "0", "seed"), ("seed", True, "seed"), ("curve", {}, "curve"),
    ("scores", {}, "last"), ("scores", {"last": {"recall@1": 71.3}}, "recall@1"),
    ("scores", {"last": {"recall@1": math.nan}}, "recall@1"), ("domains", {"latin": {"recall@1": -0.1}}, "latin"),
    ("identity", "../../../evil", "'identity' is '../../../evil': it has 8 to 128 hex digits"),
    ("identity", "", "identity"), ("identity", "0123456789abcdef\n", "identity"), ("schema", 99, "schema 99"),
    ("schema", None, "schema None"), ("protocol", {"epochs": 3}, "protocol.name"),
    ("backbone", {"name": "conv4", "weights": None, "extra": 1}, "backbone.extra"),
])
def test_a_wrong_value_is_named(tmp_path: Path, key: str, value: object, told: str) -> None:
    with pytest.raises(ReportError, match=told):
        records.write(tmp_path, make_record() | {key: value})
    assert not list(tmp_path.iterdir())


def test_missing_and_unknown_keys_are_named() -> None:
    record = make_record()
    del record["cost"]
    with pytest.raises(ReportError, match="'cost'"):
        records.check(record)
    with pytest.raises(ReportError, match="'mood'"):
        records.check(make_record(mood="good"))
    record = make_record()
    record["split"] = record["split"] | {"ladder": [[2, 10.0], [3, 20.0]]}
    with pytest.raises(ReportError, match="split 1 is not exactly once on its own ladder"):
        records.check(record)


CONTROLLED = [(("method", "family"), "a\x1b[31m"), (("method", "settings"), {"a": ["b", {"c": "\x07"}]}),
              (("method", "cite"), "a\r\nb"), (("provenance", "version"), "\x9b31m"), (("split", "kind"), "sw\x7fap"),
              (("provenance", "date"), "\x00"), (("cost", "x\x1b"), 1.0)]


@pytest.mark.parametrize(("way", "value"), CONTROLLED)
def test_control_characters_are_refused_wherever_they_are(way: tuple[str, str], value: object, tmp_path: Path) -> None:
    record = make_record()
    record[way[0]] = record[way[0]] | {way[1]: value}
    with pytest.raises(ReportError, match="holds control characters") as refused:
        records.write(tmp_path / "run", record)
    assert way[0] in str(refused.value)
    assert str(refused.value).isprintable()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "escaped"])
@pytest.mark.parametrize(("way", "value"), CONTROLLED)
def test_a_record_with_control_characters_is_damaged_and_the_rest_goes_on(way: tuple[str, str], value: object,
                                                                          encoding: str, tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1, union=False)
    packing.pack([tmp_path / "runs"], tmp_path / "pack")
    loose = next((tmp_path / "runs").rglob("record.json"))
    record = json.loads(loose.read_text())
    record[way[0]] |= {way[1]: value}
    text = json.dumps(record, ensure_ascii=encoding == "escaped")
    loose.write_text(text, encoding="utf-8" if encoding == "escaped" else encoding)
    (file,) = (tmp_path / "pack").rglob("*.runs.jsonl")
    entries = [json.loads(json.dumps(entry)) for entry in packed.read(file).values()]
    entries[1]["record"][way[0]] |= {way[1]: value}
    file.write_text(packed.to_text(entries))
    for folder in ("runs", "pack"):
        frame, lost = records.scan(tmp_path / folder)
        if "\x00" not in str(value):  # a zero spoils the whole file: nothing could write it again
            assert (len(frame), lost["state"].tolist()) == (4, ["damaged"]), folder
            assert "holds control characters" in lost["cause"].iloc[0]
        assert lost["cause"].iloc[0].isprintable()


def test_lines_tabs_and_letters_of_all_kinds_are_no_control_characters(tmp_path: Path) -> None:
    record = make_record()
    record["method"] |= {"summary": "caf\xe9 \xb7 \u65e5\u672c \xa0",
                         "cite": "@a{b,\n\ttitle={{\\bfseries \\r \\u00e9}}}"}
    assert records.read(records.write(tmp_path, record))["method"] == record["method"]


def test_a_stray_key_in_a_command_does_not_cost_its_result(tmp_path: Path) -> None:
    record = make_record()
    record["provenance"] |= {"command": "oodml run \x1b[200~--methods margin"}
    assert records.read(records.write(tmp_path, record))["provenance"]["command"] == (
        "oodml run \\x1b[200~--methods margin")


def test_an_identity_that_leads_elsewhere_is_damaged_loose_and_packed(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1, union=False)
    packing.pack([tmp_path / "runs"], tmp_path / "pack")
    loose = next((tmp_path / "runs").rglob("record.json"))
    loose.write_text(json.dumps(json.loads(loose.read_text()) | {"identity": "../../../evil"}))
    (file,) = (tmp_path / "pack").rglob("*.runs.jsonl")
    entries = [json.loads(json.dumps(entry)) for entry in packed.read(file).values()]
    entries[1]["record"]["identity"] = "../../../evil"
    file.write_text(packed.to_text(entries))
    for folder in ("runs", "pack"):
        frame, lost = records.scan(tmp_path / folder)
        assert (len(frame), lost["state"].tolist()) == (4, ["damaged"]), folder
        assert "'identity' is '../../../evil'" in lost["cause"].iloc[0]


def test_a_failure_is_told_until_another_run_of_its_cell_is_done(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1, union=False)
    cell = {"cause": "my plug-in", "dataset": "glyphs", "method": "margin", "seed": 0, "protocol": "demo",
            "backbone": "conv4"}
    records.write_failure(runs / "glyphs" / "1" / "margin" / "s0-00000000", cell | {"split": 1})
    assert records.scan_checked([runs])[1].empty
    records.write_failure(runs / "glyphs" / "2" / "margin" / "s0-00000000", cell | {"split": 2, "backbone": "resnet50"})
    (runs / "glyphs" / "3" / "margin" / "s0-00000000").mkdir()
    (runs / "glyphs" / "3" / "margin" / "s0-00000000" / "record.json").write_text("{")
    _, lost = records.scan_checked([runs])
    assert sorted(zip(lost["split"], lost["state"])) == [("2", "failed"), ("3", "damaged")]


def test_a_diverged_loss_is_written_as_null(tmp_path: Path) -> None:
    path = records.write(tmp_path, make_record(curve=[{"epoch": 1, "loss": math.nan}]))
    assert records.read(path)["curve"] == [{"epoch": 1, "loss": None}]


@pytest.mark.parametrize("cut", [0, 1, 40, -2])
def test_a_cut_record_is_an_error_that_names_its_path(tmp_path: Path, cut: int) -> None:
    path = records.write(tmp_path, make_record())
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ReportError) as error:
        records.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_collect_is_one_row_a_run(tmp_path: Path) -> None:
    record = make_record("glyphs-union", score=0.5, domains={"latin": 0.25, "greek": 0.75})
    records.write(tmp_path / "a", record)
    records.write(tmp_path / "b" / "c", make_record(method="frozen", seed=3, score=0.125))
    frame = records.collect(tmp_path)
    assert len(frame) == 2
    union, frozen = frame.to_dict("records")
    assert (union["dataset"], union["recall@1"], union["domain:latin:recall@1"]) == ("glyphs-union", 0.5, 0.25)
    assert union["best-test:recall@1"] == pytest.approx(0.504)
    assert (frozen["method"], frozen["family"], frozen["seed"], frozen["frd"]) == ("frozen", "floor", 3, 164.25)
    assert frozen["ladder"][-1] == (5, 402.0)
    assert frozen["cost:seconds"] == 2.0
    assert math.isnan(frozen["domain:latin:recall@1"])
    assert set(records.metrics(frame)) == set(record["scores"]["last"])


def test_an_empty_folder_has_the_columns_too(tmp_path: Path) -> None:
    frame = records.collect(tmp_path)
    assert frame.empty
    assert set(records.FACTS) <= set(frame)
    with pytest.raises(ReportError, match="`oodml run` makes some"):
        records.scan_checked([tmp_path])
    with pytest.raises(ReportError, match="no folder"):
        records.scan_checked([tmp_path / "none"])
    with pytest.raises(ReportError, match="there is no folder"):
        records.collect(tmp_path / "mistyped")
    (tmp_path / "table.csv").touch()
    with pytest.raises(ReportError, match=r"table\.csv is a file and no folder; give one"):
        records.collect(tmp_path / "table.csv")


def test_without_runs_the_published_ones_on_photographs_are_named(tmp_path: Path) -> None:
    """The command in the hint, as a shell would read it, is of folders that are there and hold what is said."""
    with pytest.raises(ReportError) as caught:
        records.scan_checked([tmp_path])
    hint = str(caught.value)
    words = shlex.split(hint.partition("`oodml report ")[2].partition("`")[0])
    assert words[:-1] == ["--records"]
    photographs = Path(words[-1])
    assert "published ones on photographs" in hint
    assert {"cub", "cars"} <= {path.name for path in photographs.iterdir()}
    assert "folder glyphs beside it" in hint
    for folder in (photographs, photographs.with_name("glyphs")):
        assert next(folder.rglob("*.jsonl"), None) is not None


def test_failed_and_damaged_runs_are_told_not_dropped(tmp_path: Path) -> None:
    good = tmp_path / "glyphs" / "1" / "margin" / "s0-aaaa"
    records.write(good, make_record())
    failed = tmp_path / "glyphs" / "2" / "margin" / "s1-bbbb"
    records.write_failure(failed, {"cause": "out of memory", "kind": "OutOfMemoryError"})
    damaged = tmp_path / "glyphs" / "3" / "margin" / "s2-cccc" / "record.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    with pytest.warns(UserWarning, match="s2-cccc"):
        assert len(records.collect(tmp_path)) == 1
    lost = records.scan(tmp_path)[1].to_dict("records")
    assert [(row["state"], row["dataset"], row["split"], row["seed"]) for row in lost] == [
        ("failed", "glyphs", "2", "1"), ("damaged", "glyphs", "3", "2")]
    assert lost[0]["cause"] == "out of memory"
    assert str(damaged) in lost[1]["cause"]


def test_what_is_told_of_a_failure_is_one_line_of_some_length(tmp_path: Path) -> None:
    records.write_failure(tmp_path / "long", {"cause": "no\n" + 5000 * "x", "kind": {"odd": 5000 * "y"}})
    (row,) = records.scan(tmp_path)[1].to_dict("records")
    assert row["cause"] == f"no {996 * 'x'}…"
    assert len(row["kind"]) == 1000


def test_a_record_ends_an_earlier_failure(tmp_path: Path) -> None:
    records.write_failure(tmp_path, {"cause": "killed"})
    assert len(records.scan(tmp_path)[1]) == 1
    records.write(tmp_path, make_record())
    assert records.scan(tmp_path)[1].empty
    assert len(records.collect(tmp_path)) == 1
    with pytest.raises(ReportError, match="cause"):
        records.write_failure(tmp_path, {})


def test_what_a_killed_command_left_is_no_run(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.6}, ("glyphs",), seeds=1)
    whole = records.collect(tmp_path)
    half = tmp_path / ".mine.1234" / "1-s0"  # as `oodml submit` calls a pack until it is whole
    records.write(half, make_record(method="mine"))
    assert records.collect(tmp_path).equals(whole)
    assert len(records.collect(half.parent)) == 1


def test_datasets_can_be_chosen(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.7}, seeds=1)
    frame, _ = records.scan_checked([tmp_path], ["cars"])
    assert set(frame["dataset"]) == {"cars"}
    with pytest.raises(ReportError, match="there are: cars, glyphs"):
        records.scan_checked([tmp_path], ["cub"])
