"""Looking into finished runs: what is shown is what a brute-force search finds, and the report takes it along."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from benchmark import datasets
from benchmark.commands.inspect import command
from benchmark.commands.report import command as report
from benchmark.data import weights
from benchmark.data.task import Side, Task
from benchmark.posthoc import embedding_figures, gallery, inspect
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.workspace import Workspace
from methods.layers.prompts import PromptPool
from reports import ReportError, packing, records
from reports.analysis import galleries, standings
from reports.analysis.results import Results
from reports.html import analysis_pages
from tests.sample_records import make_record, some_pages

RUNS = {"margin": (0, -1), "frozen": (0, -1), "crt": (0,)}


def folder_of(workspace: Workspace, method: str) -> Path:
    return sorted(workspace.runs.glob(f"*/*/{method}/s0-*"))[0]


@pytest.fixture(scope="module")
def inspected(workspace: Workspace) -> str:
    """What `oodml inspect` prints, in a folder that also holds the progress of a study."""
    rows = [{"dataset": "glyphs-mini", "method": "margin", "protocol": "demo", "backbone": "conv4", "runs": 9}]
    (workspace.root / "studies").mkdir()
    write_json(workspace.root / "studies" / "try.json",
               {"study": "try", "summary": "A try.", "command": "oodml run --study try", "rows": rows})
    arguments = [str(folder_of(workspace, "margin")), "--no-umap", "--queries", "3", "--device", "cpu",
                 "--work", str(workspace.root)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_galleries_and_pages_of_the_nearest_and_farthest_rung(workspace: Workspace, inspected: str) -> None:
    assert inspected.count("looked into") == 2
    assert "the UMAP" not in inspected, "--no-umap leaves out what takes longest, and what is said of it"
    pages = sorted((workspace.leaderboard / "inspect").glob("*.html"))
    assert len(pages) == 2
    assert "inspect/" in (workspace.leaderboard / "method" / "margin.html").read_text()
    seen = json.loads((folder_of(workspace, "margin") / "inspect" / "inspection.json").read_text())
    assert [part["kind"] for part in seen["galleries"]] == ["sampled", "worst"]
    text = pages[0].read_text()
    for part in seen["galleries"]:
        assert len(part["rows"]) == 3
        for row in part["rows"]:
            assert len(row["neighbours"]) == 7
            for one in row["neighbours"]:
                assert one["right"] == (one["class"] == row["query"]["class"])
                assert one["id"] != row["query"]["id"]
    assert text.count("<img") == 2 * 3 * 8
    for name in seen["files"]:
        with Image.open(pages[0].with_suffix("") / name) as picture:
            assert max(picture.size) <= gallery.SIDE


@pytest.mark.usefixtures("inspected")
def test_the_leaderboard_is_that_of_a_report(workspace: Workspace, tmp_path: Path) -> None:
    """With the progress of studies and the figures of ladders, none of which `oodml splits plot` made before."""
    assert "2 of 9 runs" in (workspace.leaderboard / "index.html").read_text()
    assert list((workspace.leaderboard / "figures").glob("glyphs-mini-progression.svg"))
    CliRunner().invoke(report, ["--out", str(tmp_path), "--work", str(workspace.root)], catch_exceptions=False)

    def pages(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    assert pages(workspace.leaderboard) == pages(tmp_path)


def test_retrieval_is_that_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 5))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    labels = np.repeat(np.arange(8), 5)
    side = Side(np.arange(40), labels, tuple("abcdefgh"))
    retrieved = gallery.retrieve(side, torch.from_numpy(x.astype(np.float32)))
    for i in range(40):
        order = sorted((j for j in range(40) if j != i), key=lambda j: -float(x[i] @ x[j]))
        assert retrieved.neighbours[i].tolist() == order[:7]
        wrong = max(float(x[i] @ x[j]) for j in order if labels[j] != labels[i])
        right = max(float(x[i] @ x[j]) for j in order if labels[j] == labels[i])
        assert retrieved.failure[i] == pytest.approx(wrong - right, abs=1e-5)
    worst = gallery.sample(side, retrieved, "worst", 4, 0)["rows"]
    assert len({row["query"]["class"] for row in worst}) == 4
    assert worst[0]["query"]["id"] == int(np.argmax(retrieved.failure))


def test_a_single_class_and_ties_are_no_failures() -> None:
    """One class: every answer is right, and no query is left out. Equal embeddings: the first by index answers."""
    x = torch.from_numpy(np.random.default_rng(2).normal(size=(6, 3)).astype(np.float32))
    alone = gallery.retrieve(Side(np.arange(6), np.zeros(6, int), ("a",)), x)
    assert len(alone.queries) == 6
    even = gallery.retrieve(Side(np.arange(6), np.arange(6) % 2, ("a", "b")), torch.ones(6, 3))
    assert len(even.queries) == 6
    assert even.neighbours[:, 0].tolist() == [1, 0, 0, 0, 0, 0]


def test_query_and_gallery_are_different_images() -> None:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(12, 4)).astype(np.float32))
    roles = np.array(["query", "gallery"] * 6)
    side = Side(np.arange(12), np.arange(12) // 4, tuple("abc"), roles)
    retrieved = gallery.retrieve(side, x)
    assert retrieved.queries.tolist() == [0, 2, 4, 6, 8, 10]
    assert set((retrieved.neighbours % 2).ravel().tolist()) == {1}


def test_maps_of_prototypes(workspace: Workspace) -> None:
    (path,) = inspect.inspect(workspace, folder_of(workspace, "crt"), queries=1, plane=False, device="cpu")
    seen = json.loads(path.read_text())
    assert [figure["file"] for figure in seen["figures"]] == ["prototypes.png"]
    assert (path.parent / "prototypes.png").stat().st_size > 1000


def test_prompt_weights_are_the_means_of_each_dataset(tmp_path: Path) -> None:
    torch.manual_seed(0)
    pool = PromptPool(3, 2, 8)
    method = nn.Sequential(pool)
    seen = embedding_figures.watch(method)  # type: ignore[arg-type]
    patches = torch.randn(6, 4, 8)
    method(patches[:4])
    method(patches[4:])
    domains = np.array([0, 0, 1, 1, 1, 0])
    task = Task(None, Side(np.arange(6), np.zeros(6, int), ("a",), None, domains), None, ("one", "two"))  # type: ignore[arg-type]
    (drawn,) = embedding_figures.figures(seen, task, None, None, tmp_path, 0)  # type: ignore[arg-type]
    table = pd.DataFrame([row[1:] for row in drawn["rows"]], columns=drawn["heads"][1:]).astype(float)
    with torch.no_grad():
        expected = torch.stack([pool.weights(patch[None])[0] for patch in patches]).numpy()
    assert table["one"].tolist() == pytest.approx(expected[domains == 0].mean(axis=0).tolist(), abs=6e-4)
    assert table["two"].tolist() == pytest.approx(expected[domains == 1].mean(axis=0).tolist(), abs=6e-4)


def test_mistakes_are_told(workspace: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="finished run"):
        inspect.opened(tmp_path)
    shutil.copytree(folder_of(workspace, "crt"), tmp_path / "run", ignore=shutil.ignore_patterns("*.safetensors"))
    with pytest.raises(UserError, match="weights"):
        inspect.opened(tmp_path / "run")


def test_the_best_the_median_and_the_frozen_network_stand_side_by_side(workspace: Workspace, tmp_path: Path) -> None:
    """Without the name of a run; what is shown is what a brute-force search finds, also from packed records."""
    arguments = ["--no-umap", "--queries", "2", "--device", "cpu", "--work", str(workspace.root)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert len(list(workspace.runs.rglob(galleries.NAME))) >= 2
    shown = (workspace.leaderboard / "gallery.html").read_text()
    packing.pack([workspace.runs], tmp_path / "packed")
    assert CliRunner().invoke(report, ["--records", str(tmp_path / "packed"), "--out", str(tmp_path / "site"),
                                       "--work", str(tmp_path / "none")], catch_exceptions=False).exit_code == 0
    again = (tmp_path / "site" / "gallery.html").read_text()
    pictures = re.findall(r'<img src="([^"]+)', shown)
    assert pictures == re.findall(r'<img src="([^"]+)', again)
    assert len(pictures) >= 2 * (1 + gallery.NEIGHBOURS)
    found = {base64.b64decode(image) for path in workspace.runs.rglob(galleries.NAME)
             for image in json.loads(path.read_text())["images"].values()}
    files = [tmp_path / "site" / name for name in sorted(set(pictures))]
    assert sorted(path.name for path in (tmp_path / "site" / "gallery").iterdir()) == [path.name for path in files]
    assert len({path.read_bytes() for path in files} & found) == len(files)  # each once, as a run left it
    for path in files:
        with Image.open(path) as picture:
            assert max(picture.size) <= gallery.THUMBNAIL
    run = folder_of(workspace, "margin")
    content = json.loads((run / galleries.NAME).read_text())
    assert content["right"] == pytest.approx(records.read(run)["scores"]["last"]["recall@1"], abs=1e-4)


def test_a_run_that_cannot_be_opened_does_not_hide_the_others(workspace: Workspace, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [tmp_path, folder_of(workspace, "margin")]
    monkeypatch.setattr(inspect, "typical", lambda results, of: runs)
    arguments = ["--no-umap", "--queries", "1", "--device", "cpu", "--work", str(workspace.root)]
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert f"left out: {tmp_path}" in result.output
    assert f"looked into {runs[1]}" in result.output


def test_of_a_ladder_run_at_its_ends_alone_these_are_looked_into(tmp_path: Path) -> None:
    for method, score in (("margin", 0.6), ("angular", 0.5), ("arcface", 0.4)):
        for split in (2, 5):
            run = tmp_path / method / str(split)
            records.write(run, make_record("glyphs", split, method, 0, score))
            (run / weights.RUN).touch()
    found = inspect.typical(Results(records.collect(tmp_path)))
    assert [path.relative_to(tmp_path).parts for path in found] == [
        ("margin", "2"), ("margin", "5"), ("angular", "2"), ("angular", "5")]


def test_of_unpacked_records_nothing_is_looked_into(tmp_path: Path) -> None:
    for method in ("margin", "frozen"):
        records.write(tmp_path / method, make_record("glyphs", 1, method, 0, 0.5))
    assert inspect.typical(Results(records.collect(tmp_path))) == []
    with pytest.raises(UserError, match="a record alone, unpacked or copied"):
        inspect.opened(tmp_path / "margin")


def test_best_and_median_are_of_the_ladder_where_others_have_its_default_split_alone(tmp_path: Path) -> None:
    """Scores on the nearest split lie above the areas under whole ladders, and other protocols rank by themselves."""
    whole = {"margin": 0.6, "angular": 0.5, "arcface": 0.45}
    alone = {"contrastive": 0.9, "npair": 0.85, "snr": 0.8, "cosface": 0.75}
    protocol = {"name": "demo[epochs=2]", "epochs": 2, "batch": 112, "lr": 0.001}
    for method, score in (whole | alone).items():
        for split in range(1, 6) if method in whole else (1,):
            run = tmp_path / method / str(split)
            records.write(run, make_record("glyphs", split, method, 0, score - 0.05 * split))
            (run / weights.RUN).touch()
            records.write(tmp_path / "short" / method / str(split),
                          make_record("glyphs", split, method, 1, score - 0.06 * split, protocol=protocol))
    results = Results(records.collect(tmp_path))
    middle = sorted(whole, key=lambda name: whole[name])[1]  # each falls alike, so that its first score tells its place
    found = inspect.typical(results)
    assert [path.relative_to(tmp_path).parts for path in found] == [
        (method, split) for method in ("margin", middle) for split in ("1", "5")]
    of_first = standings.of(results).query("board == 'glyphs' and metric == @results.metrics[0]")
    assert [label.split(" ")[0] for label in standings.in_order(of_first)] == list(whole)
    (split,) = {line["kind"] for line in of_first.to_dict("records")} - {"ladder"}
    assert [label.split(" ")[0] for label in standings.in_order(of_first[of_first["kind"] == split])] == sorted(
        whole | alone, key=lambda name: -(whole | alone)[name])


def test_a_frozen_network_without_pretraining_cannot_be_made_again(workspace: Workspace) -> None:
    with pytest.raises(UserError, match="weights"):
        inspect.opened(folder_of(workspace, "frozen"))


def test_pictures_of_other_datasets_stay_out_of_records() -> None:
    shown = {name for name in datasets.names() if datasets.get(name).embedded}
    assert {name.split("-")[0] for name in shown} == {"glyphs"}


def test_galleries_of_cells_trained_again_are_added_to_records_that_stay(tmp_path: Path) -> None:
    for seed in (0, 1):
        records.write(tmp_path / "old" / str(seed), make_record("glyphs", 1, "margin", seed, 0.5))
    packing.pack([tmp_path / "old"], tmp_path / "packed")
    before = records.collect(tmp_path / "packed")
    made = make_record("glyphs", 1, "margin", 1, 0.6) | {"identity": "f" * 64}
    records.write(tmp_path / "new" / "a", made)
    with pytest.raises(ReportError, match="oodml inspect"):
        packing.add_galleries([tmp_path / "new"], tmp_path / "packed")
    image = io.BytesIO()
    Image.new("L", (4, 4)).save(image, "PNG")
    shown = {"schema": 1, "right": 0.6, "classes": {"1": "a"}, "rows": [["1", [["1", 1.0]]]],
             "images": {"1": base64.b64encode(image.getvalue()).decode()}}
    write_json(tmp_path / "new" / "a" / galleries.NAME, shown)
    (file,), count = packing.add_galleries([tmp_path / "new"], tmp_path / "packed")
    assert (file.name, count) == ("margin.runs.jsonl", 1)
    after = records.collect(tmp_path / "packed")
    pd.testing.assert_frame_equal(before, after)
    results = Results(after)
    known = galleries.collect(results.runs)
    assert known["seed"].tolist() == [1]
    assert known["gallery"].iloc[0].again == "cpu"
    assert "trained again for this gallery on cpu" in some_pages(results, analysis_pages.retrieved)["gallery.html"]
    records.write(tmp_path / "new" / "a", made | {"seed": 7})
    with pytest.raises(ReportError, match="no record of margin on glyphs"):
        packing.add_galleries([tmp_path / "new"], tmp_path / "packed")


def test_a_damaged_gallery_is_left_out(tmp_path: Path) -> None:
    records.write(tmp_path / "a", make_record("glyphs", 1, "margin", 0, 0.5))
    good = {"schema": 1, "right": 0.5, "classes": {"1": "a"}, "images": {"1": "aGVsbG8="}, "rows": [["1", []]]}
    write_json(tmp_path / "a" / galleries.NAME, good)
    frame = Results(records.collect(tmp_path)).runs
    with pytest.warns(UserWarning, match="no PNG"):
        assert galleries.collect(frame).empty
