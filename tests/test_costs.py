"""A run's share of a device that several use, by other roads: the device's own account, and the published files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from benchmark.utils import provenance
from reports import records
from reports.analysis import costs, run_tables, study_progress
from reports.analysis.results import Results
from reports.html import analysis_pages, dataset_pages, home_page
from reports.html.extras import Extras
from reports.tidy import tidy_table
from tests.sample_records import make_record, some_pages

PHOTOS = Path(__file__).parent.parent / "reports" / "data" / "records" / "photos"
GPU = {"seconds": 60.0, "energy_joules": 18_000.0, "shared": 2.0, "device": "NVIDIA H200"}


def published(folder: Path) -> pd.DataFrame:
    """Dataset and cost of every packed run, read off the lines of the files by what `packed` says of its format."""
    rows = []
    for path in folder.rglob("*.runs.jsonl"):
        head: dict[str, Any] = {}
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            if isinstance(line, dict):
                head = line
                continue
            own = {key: head["lists"][key][value] if key in head["lists"] else value
                   for key, value in zip(head["keys"], line)}
            common = head["common"]["record"]
            rows.append({"dataset": own.get("/record/dataset", common.get("dataset")), **common.get("cost", {}),
                         **{key.rpartition("/")[2]: value for key, value in own.items() if "/record/cost/" in key}})
    return pd.DataFrame(rows)


def test_sums_of_the_published_runs_are_those_of_their_files() -> None:
    runs = published(PHOTOS)
    shared = pd.to_numeric(runs["shared"]).fillna(1)
    expected = pd.DataFrame({
        "runs": 1, "gpu_hours": runs["seconds"] / shared / 3600,
        "kwh": pd.to_numeric(runs["energy_joules"]) / shared / 3.6e6, "without_energy": runs["energy_joules"].isna(),
    }).groupby(runs["dataset"]).sum()
    assert expected["runs"].sum() > 200
    assert expected["without_energy"].to_dict() == {"cars": 0, "cub": 0, "dogs": 0, "flowers": 0,
                                                    "union-cub-cars-dogs-flowers": 6}, "ensembles of finished runs"
    found = costs.table(records.collect(PHOTOS)).frame.set_index("dataset")
    pd.testing.assert_frame_equal(found.drop("all").astype(float), expected.astype(float), check_names=False)
    assert found.loc["all"].tolist() == pytest.approx(expected.sum().tolist())
    counted = float(pd.to_numeric(runs["energy_joules"]).sum() / 3.6e6)
    assert found.at["all", "kwh"] < counted / 2, "what records say counts a shared GPU several times"


def test_shares_add_up_to_what_the_device_spent() -> None:
    """Runs of 100 s, a new one every 40 s, on a GPU that takes 200 W."""
    spans = [(40 * i, 40 * i + 100) for i in range(5)]
    rows = []
    for begin, end in spans:
        others = [sum(start <= second < stop for start, stop in spans) for second in range(begin, end)]
        rows.append({"source": "run", "device": "NVIDIA H200", "cost:seconds": 100.0, "cost:energy_joules": 20_000.0,
                     "cost:shared": 100 / sum(1 / count for count in others)})
    sums = costs.total(pd.DataFrame(rows))
    last = spans[-1][1]
    assert sums["gpu_hours"] == pytest.approx(last / 3600)
    assert sums["kwh"] == pytest.approx(200 * last / 3.6e6)


def test_two_gpus_are_twice_the_time_and_both_count(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = {"source": "run", "device": "NVIDIA H200", "cost:seconds": 1800.0, "cost:devices": 2, "cost:shared": 1.0}
    assert costs.total(pd.DataFrame([pair]))["gpu_hours"] == 1
    counters = {"GPU-cuda:0": iter((1_000, 31_000)), "GPU-cuda:1": iter((5_000, 25_000))}
    monkeypatch.setattr(provenance, "gpu_id", lambda device: f"GPU-{device}")
    monkeypatch.setattr(provenance, "_millijoules", lambda gpu: next(counters[gpu]) if gpu else None)
    with provenance.Energy("cuda:0", "cuda:1") as energy:
        pass
    assert energy.joules == 30 + 20
    with provenance.Energy("cpu", "cpu") as none:
        pass
    assert none.joules is None


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """margin with energy on every split, one of them twice; s2sd without on one; a CPU, a submission and a union."""
    folder = tmp_path_factory.mktemp("runs")
    for split in range(1, 6):
        costs_of = {"margin": GPU, "s2sd": GPU | ({"energy_joules": None} if split == 3 else {}),
                    "r-margin": {"seconds": 10.0, "device": "AMD EPYC", "shared": 1.0, "energy_joules": None}}
        for method, cost in costs_of.items():
            records.write(folder / str(split) / method, make_record("glyphs", split, method, 0, 0.5, cost=cost))
        records.write(folder / str(split) / "sent", make_record("glyphs", split, "sent", 0, 0.4, cost=GPU)
                      | {"source": "submitted"})
    records.write(folder / "again", make_record("glyphs", 1, "margin", 1, 0.5, cost=GPU))
    records.write(folder / "union", make_record("u", 1, "margin", 0, 0.3, {"latin": 0.2, "greek": 0.8}, cost=GPU))
    return folder


def test_boards_have_the_energy_of_rows_all_of_whose_runs_tell_it(runs: Path) -> None:
    results = Results(records.collect(runs), with_published=False)
    board = results.ags("recall@1", "demo").rows.set_index("method")
    assert board.loc["margin", ["seconds", "energy_wh"]].tolist() == [6 * 30, 6 * 2.5]
    assert board["energy_wh"].notna().to_dict() == {"margin": True, "s2sd": False, "r-margin": False, "sent": False}
    assert board["seconds"].notna().to_dict() == {"margin": True, "s2sd": True, "r-margin": True, "sent": False}


def test_runs_have_their_shares_on_pages_and_in_exports(runs: Path) -> None:
    results = Results(records.collect(runs), with_published=False)
    tidy = tidy_table(results, "runs").query("method == 'margin'")
    assert tidy[["cost:seconds", "cost:energy_joules", "cost:shared"]].drop_duplicates().values.tolist() == [
        [60, 18_000, 2]], "what the records say stays"
    assert tidy[["share:seconds", "share:energy_wh"]].drop_duplicates().values.tolist() == [[30, 2.5]]
    heads = {method: {column.head for column in run_tables.runs_table(some, "a", "A").columns}
             for method, some in results.runs.groupby("method")}
    assert {method: heads[method] & {"Time", "Energy, Wh"} for method in heads} == {
        "margin": {"Time", "Energy, Wh"}, "s2sd": {"Time", "Energy, Wh"}, "r-margin": {"Time"}, "sent": set()}


def test_pages_say_what_their_runs_took(runs: Path) -> None:
    rows = pd.DataFrame([{"dataset": "glyphs", "method": method, "protocol": "demo", "backbone": "conv4", "runs": count}
                         for method, count in (("margin", 5), ("s2sd", 10))])
    study = study_progress.StudyProgress("mine", "Two methods.", "oodml run --study mine", rows)
    results = Results(records.collect(runs), with_published=False, studies=[study])
    files = some_pages(results, lambda site: dataset_pages.ladder(site, "glyphs", Extras()),
                       lambda site: dataset_pages.union(site, "u"), analysis_pages.about,
                       home_page.write)
    linked = '<a href="{}about.html#cost">What is counted</a>'
    assert ("16 runs took 0.092 GPU-hours, 0.014 CPU-hours and 25 Wh; the energy of 6 of them is not known. "
            + linked.format("../")) in files["dataset/glyphs.html"]
    assert "1 run took 0.0083 GPU-hours and 2.5 Wh. " + linked.format("../") in files["union/u.html"]
    assert ("10 runs took 0.083 GPU-hours and 22.5 Wh; the energy of 1 of them is not known. "
            + linked.format("")) in files["index.html"], "the seed that the study does not ask for is not its own"
    assert 'id="cost"' in files["about.html"]
    table = files["data/costs.csv"].splitlines()
    assert table[0] == "dataset,runs,gpu_hours,cpu_hours,kwh,without_energy"
    assert [line.split(",")[0] for line in table[1:]] == ["glyphs", "u", "all"]
    assert [float(value) for value in table[-1].split(",")[1:]] == pytest.approx(
        [17, 12 * 30 / 3600, 50 / 3600, 0.0275, 6])


def test_where_nothing_was_run_here_nothing_is_said(runs: Path) -> None:
    frame = records.collect(runs)
    assert costs.told(frame[frame["source"] == "submitted"]) == ""
    assert costs.told(frame[frame["method"] == "r-margin"]) == "5 runs took 0.014 CPU-hours; the energy is not known."
