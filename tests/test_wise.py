"""Weights between the start and the end of runs: the ends are those of the run, the page and the export show them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from benchmark import cli, datasets, ladders
from benchmark.data.store import open_store
from benchmark.posthoc import finished, interpolate, steps
from benchmark.posthoc.bar import Bar
from benchmark.runs.scoring import score
from benchmark.training import train
from benchmark.utils.workspace import Workspace
from reports import exports, packing, records
from reports.analysis import wise
from reports.analysis.results import Results
from reports.html import method_pages
from reports.html.extras import Extras
from reports.html.rendering import Site
from tests import tiny_runs


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Runs on two rungs, interpolated by the command."""
    workspace = tiny_runs.finished(tmp_path_factory.mktemp("work"), {"margin": (0, 1), "frozen": (0,)})
    cli.main(["wise", "--dataset", "glyphs-mini", "--alphas", "0,0.5,1", "--work", str(workspace.root)])
    return workspace


def test_the_ends_are_the_start_and_the_end_of_the_run(made: Workspace) -> None:
    index = datasets.load("glyphs-mini", made.data)
    ladder, store = ladders.load(made, "glyphs-mini", index), open_store(index, made.cache)
    runs = list(finished.find(made, "glyphs-mini"))
    assert len(runs) == 2, "what trains nothing has no end"
    for one in runs:
        found = json.loads((one.folder / wise.NAME).read_text())["alphas"]
        record = records.read(one.folder)
        assert list(found) == ["0", "0.5", "1"]
        assert found["1"]["recall@1"] == pytest.approx(record["scores"]["last"]["recall@1"], abs=1e-6)
        task = one.task(index, ladder)
        method, loader = one.ready(len(task.train.classes), store, "cpu")
        begun = one.start(len(task.train.classes))
        assert not torch.equal(begun.embedding.weight, method.embedding.weight)  # type: ignore[union-attr, arg-type]
        embeddings = train.embed(begun, loader, task.test.ids, one.protocol, "cpu")
        assert found["0"] == pytest.approx(score(task.test, embeddings).scores, abs=1e-6)


def test_a_method_that_trains_nothing_is_not_to_be_run_again(made: Workspace, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        cli.main(["wise", "--dataset", "glyphs-mini", "--methods", "frozen", "--work", str(made.root)])
    assert "frozen trains nothing, so its runs keep no weights: name methods that train" in capsys.readouterr().err


def test_the_start_is_the_same_each_time(made: Workspace) -> None:
    one = next(finished.find(made, "glyphs-mini"))
    torch.manual_seed(5)
    first, second = (one.start(4).state_dict() for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_what_is_known_is_kept(made: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, bars, said = [], list[Bar](), list[str]()
    monkeypatch.setattr(interpolate, "mixed", lambda start, end, alpha: (asked.append(alpha), end)[1])

    class Noted(Bar):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, terminal=False)
            bars.append(self)

    monkeypatch.setattr(interpolate, "Bar", Noted)
    found = finished.matching(made, "glyphs-mini")
    interpolate.run(made, found, alphas=(0.5, 0.75), device="cpu", tell=said.append)
    assert asked == [0.75, 0.75]
    images = sum(len(one.task(found.index, found.ladder).test) for one in found.runs)
    assert said[0] == f"2 runs at up to 1 alpha: {images} images to embed"
    assert [(bar.total, bar.done) for bar in bars] == [(images, images)], "images are told of as they are embedded"
    interpolate.run(made, found, alphas=(0.5, 0.75), device="cpu", tell=said.append)
    assert len(said) == 3
    steps.follow({"step": "wise", "datasets": ["glyphs-mini"]}, [], made)


@pytest.mark.parametrize("words", [["wise", "--alphas", "0,1"], ["fewshot", "--shots", "2", "--episodes", "1",
                                                                   "--iterations", "1", "--methods", "margin"]])
def test_a_command_reads_the_dataset_and_its_ladder_once(made: Workspace, words: list[str],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    for module in (datasets, ladders):
        load = module.load
        monkeypatch.setattr(module, "load", lambda *given, load=load, module=module, **options: (
            read.append(module.__name__), load(*given, **options))[1])
    cli.main([*words, "--dataset", "glyphs-mini", "--work", str(made.root)])
    assert sorted(read) == ["benchmark.datasets", "benchmark.ladders"]


def test_page_export_and_packs_have_the_curves(made: Workspace, tmp_path: Path) -> None:
    results = Results(records.collect(made.runs), with_published=False)
    found = wise.collect(results.runs)
    here = found[found["metric"] == "recall@1"]
    assert {0.0, 0.5, 1.0} <= set(here["alpha"])
    site = Site(results, pd.DataFrame(columns=list(records.FAILURE_FACTS)))
    label = "margin"
    method_pages.write(site, label, site.runs[site.runs["label"] == label], Extras())
    page = str(site.files["method/margin.html"])
    assert "Between start and end" in page
    assert "data/margin-wise.csv" in site.files
    assert "alpha" in exports.export(results, "wise", "csv")
    packing.pack([made.runs], tmp_path)
    again = wise.collect(records.collect(tmp_path).assign(label=""))
    assert sorted(again["score"]) == pytest.approx(sorted(found["score"]))


def test_wrong_alphas_are_one_line(made: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["wise", "--dataset", "glyphs-mini", "--alphas", "0,2", "--work", str(made.root)])
    assert "write numbers from 0 to 1" in capsys.readouterr().err
