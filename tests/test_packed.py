"""Packed records: nothing kept is changed, nothing depends on order, and reports do not tell them from loose ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.commands.diff import command as diff
from benchmark.commands.records import command
from benchmark.commands.report import command as report
from benchmark.utils.errors import UserError
from reports import ReportError, packing, records, site
from reports.analysis import fewshot, tuning
from reports.analysis.results import Results
from reports.storage import by_class, packed
from tests.sample_records import make_record, write_sample
from tests.test_report_studies import write_fewshot

ROOT = Path(__file__).parent.parent
METHODS = {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_sample(tmp_path_factory.mktemp("work") / "runs", METHODS, ("glyphs",), seeds=2, queries=True)
    write_fewshot(next((folder / "glyphs" / "1" / "margin").iterdir()), 0.5, 0.6)
    records.write_failure(folder / "glyphs" / "2" / "diva" / "s0-0000", {"cause": "loss became nan"})
    return folder


@pytest.fixture(scope="module")
def pack(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pack")
    packing.pack([runs], out)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def kept(record: dict[str, Any]) -> dict[str, Any]:
    """A record less what packing says it leaves out."""
    made = {key: value for key, value in record["provenance"].items() if key != "host"}
    return record | {"curve": None, "provenance": made}


def test_kept_fields_come_back_to_the_bit(runs: Path, pack: Path) -> None:
    loose = {json.loads(path.read_text())["identity"]: json.loads(path.read_text())
             for path in runs.rglob("record.json")}
    frame, _ = records.scan(pack)
    back = {record["identity"]: record for record in map(records.read, frame["path"])}
    assert set(back) == set(loose)
    for identity, record in back.items():
        assert json.dumps(kept(record), sort_keys=True) == json.dumps(kept(loose[identity]), sort_keys=True)
        assert len(record["curve"]) == len(loose[identity]["curve"])
        for one, two in zip(record["curve"], loose[identity]["curve"]):
            assert one == {key: pytest.approx(value, rel=1e-4) for key, value in two.items()}


def test_packed_and_loose_runs_are_collected_alike_and_once(runs: Path, pack: Path) -> None:
    loose, there = records.collect(runs), records.collect(pack)
    assert sorted(loose["identity"]) == sorted(there["identity"])
    assert len(records.collect([runs, pack])) == len(loose)
    assert sorted(records.collect([pack, runs])["path"]) == sorted(loose["path"])


def test_a_report_shows_packed_and_loose_records_alike(runs: Path, pack: Path, tmp_path: Path) -> None:
    built = []
    for number, folder in enumerate((runs, pack)):
        frame, lost = records.scan(folder)
        built.append(site.build(Results(frame), lost, tmp_path / str(number)).parent)
    one, two = (contents(folder) for folder in built)
    assert set(one) == set(two)
    assert [name for name in one if one[name] != two[name] and "training" not in name] == [
        f"method/{name}.html" for name in METHODS if name != "frozen"]
    assert b"loss became nan" in two["index.html"]
    assert b"+10.0" in two["fewshot.html"]


def test_the_same_records_give_the_same_bytes_in_any_order(runs: Path, pack: Path, tmp_path: Path) -> None:
    half = sorted(path.parent for path in (runs / "glyphs").rglob("record.json"))[::2]
    for folder in half:
        shutil.copytree(folder, tmp_path / "half" / folder.relative_to(runs))
    packing.pack([tmp_path / "half"], tmp_path / "pack")
    packing.pack([runs], tmp_path / "pack")
    assert contents(tmp_path / "pack") == contents(pack)
    packing.pack([pack], tmp_path / "again")
    assert contents(tmp_path / "again") == contents(pack)


def test_unpacked_runs_stand_where_a_sweep_looks_for_them(runs: Path, pack: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["unpack", str(pack), "--work", str(tmp_path)])
    assert result.exit_code == 0, result.output
    there = {path.relative_to(tmp_path / "runs") for path in (tmp_path / "runs").rglob("record.json")}
    assert there == {path.relative_to(runs) for path in runs.rglob("record.json")}
    again = CliRunner().invoke(command, ["unpack", str(pack), "--work", str(tmp_path)])
    assert f"unpacked 0 runs into {tmp_path / 'runs'}, {len(there)} were there already" in again.output
    packing.pack([tmp_path / "runs"], tmp_path / "pack")
    assert {k: v for k, v in contents(tmp_path / "pack").items() if "failures" not in k} == {
        k: v for k, v in contents(pack).items() if "failures" not in k}


def test_results_by_class_are_those_of_the_queries(runs: Path, pack: Path) -> None:
    loose = records.scan(runs)[0].set_index("identity")["path"]
    for identity, path in records.scan(pack)[0].set_index("identity")["path"].items():
        one, two = by_class.Reader().read(loose[identity]), by_class.Reader().read(path)
        assert one.keys() == two.keys()
        for key in ("keys", "queries", "hits") if one else ():
            assert getattr(one["recall@1"], key).tolist() == getattr(two["recall@1"], key).tolist()
    assert by_class.Reader("recall@2").read(path) == {}


def test_what_is_not_needed_stays_behind(pack: Path) -> None:
    text = b"".join(contents(pack).values()).decode()
    assert '"host"' not in text
    assert "first_hit" not in text
    margin = records.scan(pack)[0].query("method == 'margin' and split == 1 and dataset == 'glyphs'")
    found = [packed.beside(path, fewshot.NAME) for path in margin["path"]]
    assert [one["shots"]["2"]["few"]["recall@1"]["mean"] for one in found if one] == [0.6]


def test_the_commands(runs: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(command, ["pack", str(tmp_path / "pack"), "--records", str(runs)])
    assert result.exit_code == 0, result.output
    assert "packed 30 runs" in result.output
    result = CliRunner().invoke(report, ["--records", str(tmp_path / "pack"), "--work", str(tmp_path / "work")])
    assert result.exit_code == 0, result.output
    assert "s2sd" in result.output
    assert (tmp_path / "work" / "leaderboard" / "dataset" / "glyphs.html").is_file()


def test_a_study_is_packed_where_its_photographs_are_not(tmp_path: Path) -> None:
    published, work, name = ROOT / "reports/data/records/fixed-test", tmp_path / "work", "photos-fixed-test"
    asked = ["pack", str(tmp_path / "out"), "--study", name, "--work", str(work), "--data", str(tmp_path / "data")]
    shutil.copytree(published, tmp_path / "pack", ignore=shutil.ignore_patterns("studies"))
    assert CliRunner().invoke(command, ["unpack", str(tmp_path / "pack"), "--work", str(work)]).exit_code == 0
    done = CliRunner().invoke(command, asked)
    assert isinstance(done.exception, UserError), "nothing tells of the study"
    assert not (tmp_path / "out").exists()
    assert CliRunner().invoke(command, ["unpack", str(published), "--work", str(work)]).exit_code == 0
    done = CliRunner().invoke(command, asked)
    assert done.exit_code == 0, done.output
    assert f"study {name} as it was last run or unpacked in" in done.output
    kept = Path("studies", f"{name}.json")
    assert (tmp_path / "out" / kept).read_bytes() == (published / kept).read_bytes()


def test_what_tuning_chose_goes_along(tmp_path: Path) -> None:
    work, back = tmp_path / "work", tmp_path / "back"
    write_sample(work / "runs", {"margin": 0.7}, ("glyphs",), seeds=1, union=False)
    (work / "tune").mkdir()
    search = {"dataset": "glyphs", "protocol": "demo", "backbone": "conv4", "split": 1, "sampler": "random", "seed": 0,
              "metric": "recall@1", "budget": 1, "fixed": {}, "tested_held_out": {}, "trials": [], "choice": None,
              "chosen": None, "default_score": None, "score": None, "test": [], "test_gain": None}
    for name in ("margin", "arcface"):
        (work / "tune" / f"{name}.json").write_text(json.dumps({"schema": 1, "searches": [{**search, "method": name}]}))
    assert CliRunner().invoke(command, ["pack", str(tmp_path / "pack"), "--work", str(work)]).exit_code == 0
    assert [path.name for path in (tmp_path / "pack" / "tune").iterdir()] == ["margin.json"], "that of the packed runs"
    assert CliRunner().invoke(command, ["unpack", str(tmp_path / "pack"), "--work", str(back)]).exit_code == 0
    assert (back / "tune" / "margin.json").read_bytes() == (work / "tune" / "margin.json").read_bytes()
    assert [one["method"] for one in tuning.read([tmp_path / "pack"])] == ["margin"]


@pytest.mark.parametrize(("damage", "told"), [
    (lambda text: text[:-40], "line 3"), (lambda text: text.replace('"pack":1', '"pack":9'), "format 9"),
    (lambda text: text.partition("\n")[2], "line 1"), (lambda text: "", "no run"),
    (lambda text: text.replace('"schema":2', '"schema":77'), "77")])
def test_a_damaged_file_is_told_and_the_others_count(tmp_path: Path, damage: Any, told: str) -> None:
    for method in ("margin", "s2sd"):
        for seed in (0, 1):
            records.write(tmp_path / "runs" / method / str(seed), make_record("glyphs", 1, method, seed, 0.5))
    packing.pack([tmp_path / "runs"], tmp_path / "pack")
    path = tmp_path / "pack" / "glyphs" / "margin.runs.jsonl"
    text = path.read_text()
    path.write_text(damage(text))
    assert path.read_text() != text
    frame, lost = records.scan(tmp_path / "pack")
    assert frame["method"].tolist() == ["s2sd", "s2sd"]
    assert lost["state"].tolist() == ["damaged"]
    assert told in lost["cause"].iloc[0]
    assert str(path) in lost["cause"].iloc[0]
    with pytest.raises(ReportError, match=r"margin\.runs"):
        packing.pack([tmp_path / "runs"], tmp_path / "pack")
    compared = CliRunner().invoke(diff, [str(tmp_path / "runs"), str(tmp_path / "pack")])
    assert f"left out: {path}" in compared.output
    assert "2 only in A" in compared.output


def test_a_damaged_ladder_is_left_out_and_the_runs_are_unpacked(tmp_path: Path) -> None:
    pack, work = tmp_path / "pack", tmp_path / "work"
    records.write(tmp_path / "runs", make_record("glyphs", 1, "margin", 0, 0.5))
    packing.pack([tmp_path / "runs"], pack)
    (pack / "splits").mkdir()
    (pack / "splits" / "glyphs.json").write_text("{")
    for times in (1, 2):
        done = CliRunner().invoke(command, ["unpack", str(pack), "--work", str(work)])
        assert done.exit_code == 0, done.output
        assert f"left out: {pack / 'splits' / 'glyphs.json'} is not a split manifest" in done.output
        assert ("unpacked 1 run into" if times == 1 else f"unpacked {2 - times} runs into") in done.output
    assert not (work / "splits" / "glyphs.json").exists()
    shown = CliRunner().invoke(report, ["--records", str(pack), "--work", str(work)])
    assert "\ndamaged: ladder: " in shown.output
    assert "nan" not in shown.output


def failed(folder: Path, split: int, cause: str, **facts: Any) -> Path:
    """Writes the failure of margin on a split where a sweep would, and returns the folder."""
    record = make_record("glyphs", split, "margin", 0, 0.5)
    run = records.run_folder(folder, "glyphs", split, "margin", 0, record["identity"])
    records.write_failure(run, {"cause": cause, "dataset": "glyphs", "split": split, "method": "margin", "seed": 0,
                                "protocol": "demo", "backbone": "conv4", **facts})
    return run


def causes(pack: Path) -> list[str]:
    return sorted(records.scan(pack)[1]["cause"])


def test_a_pack_tells_of_failures_until_their_runs_are_done(tmp_path: Path) -> None:
    one, two, pack = tmp_path / "one", tmp_path / "two", tmp_path / "pack"
    for folder, split in ((one, 1), (two, 2)):
        records.write(folder / "done", make_record("glyphs", split, "s2sd", 0, 0.7))
    first, second = failed(one, 1, "out of memory"), failed(two, 2, "loss became nan")
    failed(two, 3, "the disk is full", passing=True)
    records.write_failure(one / "glyphs" / "4" / "margin" / "s0-0000", {"cause": "told by its place alone"})
    for folder in (one, two, one):
        packing.pack([folder], pack)
    assert causes(pack) == ["loss became nan", "out of memory", "told by its place alone"]
    failed(one, 1, "out of memory again")
    packing.pack([one], pack)
    assert causes(pack) == ["loss became nan", "out of memory again", "told by its place alone"]
    records.write(first, make_record("glyphs", 1, "margin", 0, 0.5))
    packing.pack([one], pack)
    assert causes(pack) == ["loss became nan", "told by its place alone"]
    shutil.rmtree(one / "glyphs" / "4")
    records.write(second, make_record("glyphs", 2, "margin", 0, 0.5))
    records.write(two / "other", make_record("glyphs", 4, "margin", 0, 0.5))
    packing.pack([two], pack)
    assert causes(pack) == []
    assert not list(pack.rglob(records.FAILURES))
    assert len(records.collect(pack)) == 5


KEYS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)
ENTRIES = st.lists(st.tuples(st.dictionaries(KEYS, VALUES, max_size=4), st.integers(0, 3), st.integers(0, 2)),
                   max_size=6)


@settings(max_examples=200)
@given(ENTRIES)
def test_any_entries_come_back(made: list[tuple[dict[str, Any], int, int]]) -> None:
    entries = [{"record": {"protocol": {"name": "p"}, "backbone": {"name": "b"}, "split": {"id": split}, "seed": seed,
                           "identity": str(i), "more": more}} for i, (more, split, seed) in enumerate(made)]
    text = packed.to_text(entries)
    back = sorted(packed.from_text(text), key=lambda entry: int(entry["record"]["identity"]))
    assert json.dumps(back, sort_keys=True) == json.dumps(entries, sort_keys=True)
    assert packed.to_text(entries[::-1]) == text
