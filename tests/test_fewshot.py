"""Few-shot adaptation of finished runs, on real runs over the embedded glyphs."""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

import methods
from benchmark import cli, datasets, ladders
from benchmark.config import study
from benchmark.config.plan import Overrides, load_protocol
from benchmark.data.store import open_store
from benchmark.data.task import Side, Task, learnt
from benchmark.data.weights import RUN
from benchmark.posthoc import adaptation, fewshot, finished
from benchmark.posthoc.adaptation import Adaptation
from benchmark.runs import worker
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import Method, MethodError
from methods.frozen import RandomProjection
from methods.margin import Margin
from reports import packing, records
from reports.analysis.fewshot import collect
from splits import manifest
from tests import tiny_runs

NAMES = ("margin", "diva", "crt", "mlp3-emb", "frozen")
RUNS = {name: (0,) for name in NAMES}
QUICK = Adaptation(iterations=3, episodes=2)


def restored(workspace: Workspace, name: str) -> tuple[Method, torch.Tensor, Task]:
    (one,) = finished.find(workspace, "glyphs-mini", name)
    index = datasets.load("glyphs-mini", workspace.data)
    ladder = ladders.load(workspace, "glyphs-mini", index)
    task = Task.of(index, ladder.split(one.spec.split))
    return *fewshot.restore(one, task, open_store(index, workspace.cache), "cpu", index, workspace), task


def adapt(workspace: Workspace, chosen: str, *shots: int, splits: str = "all", adaptation: Adaptation = QUICK,
          tell: Callable[[str], None] = lambda line: None) -> list[Path]:
    """Adapts the finished runs of these methods and splits to each number of shots."""
    found = finished.matching(workspace, "glyphs-mini", chosen, splits, untrained=True)
    return fewshot.run(workspace, found, shots=shots, adaptation=adaptation, device="cpu", tell=tell)


def test_zero_and_few_shot_on_the_same_queries(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fewshot", "--dataset", "glyphs-mini", "--shots", "2,5", "--episodes", "2", "--iterations", "3",
                 "--work", str(workspace.root)]
    cli.main(arguments)
    out = capsys.readouterr().out
    assert "5 runs adapted" in out
    files = sorted(workspace.runs.glob("*/*/*/*/fewshot.json"))
    assert len(files) == 5
    for file in files:
        measured = json.loads(file.read_text())
        assert set(measured["shots"]) == {"2", "5"}
        for shots, entry in measured["shots"].items():
            test_classes = entry["support"] // int(shots)
            assert entry["support"] == test_classes * int(shots)
            assert entry["queries"] == test_classes * (12 - int(shots))
            for side in ("zero", "few"):
                summary = entry[side]["recall@1"]
                values = summary["values"]
                assert len(values) == 2
                half = stats.t.ppf(0.975, 1) * np.std(values, ddof=1) / 2**0.5
                assert summary["mean"] == pytest.approx(np.mean(values))
                assert summary["high"] == pytest.approx(np.mean(values) + half)
    stamps = [file.stat().st_mtime_ns for file in files]
    cli.main(arguments)
    assert [file.stat().st_mtime_ns for file in files] == stamps


def test_each_line_says_how_long_the_rest_takes(workspace: Workspace, tmp_path: Path) -> None:
    """By the steps that are ahead; what was adapted before is not, and the last line has nothing left."""
    other = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    for file in other.runs.rglob("fewshot.json"):
        file.unlink()
    adapt(other, "margin", 2)
    lines: list[str] = []
    adapt(other, "margin,diva", 2, 5, tell=lines.append)
    assert lines[0].startswith("2 episodes of 3 steps for each run and number of shots, on the CPU: ")
    assert "--episodes" in lines[0]
    assert [bool(re.search(r"run . of 2, \d+ s left\)$", line)) for line in lines[1:]] == [True, True, False]
    adapt(other, "margin,diva", 2, 5, tell=lines.append)
    assert len(lines) == 4, "nothing is ahead, and no CPU is at work"


def test_released_episodes_are_the_support_where_the_ladder_came_with_them(
        workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    index = datasets.load("glyphs-mini", other.data)
    ladder = ladders.load(other, "glyphs-mini", index)
    (one,) = finished.find(other, "glyphs-mini", "margin")
    files: dict[str, list[str]] = {}
    for i in one.task(index, ladder).test.ids:
        files.setdefault(index.classes[index.labels[i]], []).append(index.paths[i].rsplit("/", 1)[-1])
    episodes = {str(n): {name: some[n:n + 2] for name, some in files.items()} for n in range(3)}
    lines: list[str] = []
    ladders.save(replace(ladder, episodes={str(one.spec.split): {"2": episodes}}), other)
    shown = []
    teach = adaptation.teach
    monkeypatch.setattr(adaptation, "teach", lambda m, layer, features, labels, *rest: (
        shown.append((features, labels)), teach(m, layer, features, labels, *rest)))
    (path,) = adapt(other, "margin", 2, 5, tell=lines.append)
    entries = json.loads(path.read_text())["shots"]
    assert {k: entries[k]["source"] for k in ("2", "5")} == {"2": "released", "5": "drawn"}
    assert entries["2"]["episodes"] == QUICK.episodes
    _, features, task = restored(other, "margin")
    for n, (rows, labels) in enumerate(shown[:2]):
        support = [i for i, image in enumerate(task.test.ids) if index.paths[image].rsplit("/", 1)[-1] in
                   episodes[str(n)][index.classes[index.labels[image]]]]
        torch.testing.assert_close(rows, features[support])
        assert labels.tolist() == task.test.labels[support].tolist()
    count = len(shown)
    adapt(other, "margin", 2, 5, tell=lines.append)
    assert len(shown) == count, "adapted in the same way already"
    episodes["1"][next(iter(files))] = ["no such file.png", "none.png"]
    classes_alone = {"0": [*files]}
    broken = {"2": episodes, "5": classes_alone, "6": classes_alone}
    ladders.save(replace(ladder, episodes={str(one.spec.split): broken}), other)
    lines.clear()
    adapt(other, "margin", 2, 5, 6, tell=lines.append)
    assert [line.partition(" are drawn by a seed, since ") for line in lines if "drawn" in line] == [
        ("glyphs-mini: support images for 2 shots", " are drawn by a seed, since ",
         f"2 of {4 * len(files) + 2} files of the released episodes are not here, such as "
         f"{next(iter(files))}/no such file.png"),
        ("glyphs-mini: support images for 5, 6 shots", " are drawn by a seed, since ",
         "the released episodes name classes and no files")], "every cause once"
    assert json.loads(path.read_text())["shots"]["2"]["source"] == "drawn"


def test_models_for_the_adaptation_train_on_three_quarters_of_the_classes_and_uml_as_released() -> None:
    """FACTS of the released code: split_train; and of UML's command 32 / shots + 1 epochs with a cosine."""
    first, *others = study.load("fewshot").parts
    own = load_protocol("oodml", "cub", "margin", Overrides.of(first.set))
    split = manifest.Split(1, "default", 0, tuple("abcdefgh"), ("x",), ("b", "d"), 8, 1, None, None)
    assert learnt(split, own.validation) == tuple("acefgh")
    assert [part.set["train_shots"] for part in others] == [1, 2, 4, 8, 16]
    for part in others:
        shots = part.set["train_shots"]
        for name in methods.select(part.methods):
            there = load_protocol("uml", "uml", name, Overrides.of(part.set))
            assert (there.train_shots, there.epochs, there.dim) == (shots, 32 // shots + 1, 384)
            assert (there.cosine, there.milestones, there.evaluate_every) == (0.1, (), 32 // shots)
        changed = Overrides.of(part.set).methods
        assert changed == {"proxyanchor": {"alpha": "64.0"}, "puma:proxyanchor": {"length": "2"}}


def test_the_reports_wing_reads_it(workspace: Workspace) -> None:
    adapt(workspace, "margin", 2)
    measured = collect(records.collect(workspace.runs))
    here = measured[(measured["method"] == "margin") & (measured["metric"] == "recall@1") & (measured["shots"] == 2)]
    assert list(here["episodes"]) == [2]


def test_what_cannot_learn_is_left_out_with_a_reason() -> None:
    backbone = torch.nn.Identity()
    backbone.dim = 4  # type: ignore[assignment]
    with pytest.raises(MethodError, match="no last layer"):
        adaptation.last_layer(RandomProjection(backbone, None, 4))


@pytest.mark.parametrize("name", ["margin", "diva", "crt", "mlp3-emb"])
def test_features_and_last_layer_give_the_embeddings_of_the_run(workspace: Workspace, name: str) -> None:
    """By another road: the whole method on the images."""
    from benchmark.data.loader import Loader
    from benchmark.runs.ready import transform_of

    method, features, task = restored(workspace, name)
    (one,) = finished.find(workspace, "glyphs-mini", name)
    index = datasets.load("glyphs-mini", workspace.data)
    loader = Loader(open_store(index, workspace.cache), transform_of(one.spec.protocol, method), "cpu")
    with torch.no_grad():
        whole = method.embed(loader.evaluate(torch.from_numpy(task.test.ids[:20])))
        cached = torch.nn.functional.normalize(method.project(features[:20]), dim=1)
    torch.testing.assert_close(whole, cached)


@pytest.mark.parametrize("name", ["margin", "crt", "mlp3-emb"])
def test_only_the_last_layer_learns_and_is_put_back(workspace: Workspace, name: str) -> None:
    method, features, task = restored(workspace, name)
    before = copy.deepcopy(method.state_dict())
    layer = adaptation.last_layer(method)
    own = {id(p) for p in layer.parameters()}
    mine = {key for key, p in method.named_parameters() if id(p) in own}
    labels = torch.from_numpy(task.test.labels)
    adaptation.teach(method, layer, features, labels, QUICK, 3, 0)
    changed = {key for key, value in method.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == mine
    method.load_state_dict(before)
    adaptation.adapt_all(method, layer, features, task.test, [str(i) for i in range(1000)], 2, 0, QUICK)
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())


def test_adaptation_finds_the_classes_that_the_support_shows() -> None:
    """Two classes that differ in one weak direction of the features, drowned by others at first."""
    rng = np.random.default_rng(0)
    count, width = 60, 6
    labels = np.repeat(np.arange(6), count // 6)
    features = rng.normal(size=(count, width))
    features[:, 0] = labels - 2.5
    layer = torch.nn.Linear(width, 4)
    with torch.no_grad():
        layer.weight[:, 0] *= 0.05

    class Head(torch.nn.Module):
        embedding = layer

        def project(self, x: torch.Tensor) -> torch.Tensor:
            return layer(x)

    side = Side(np.arange(count), labels, tuple("abcdef"))
    measured = adaptation.adapt_all(Head(), layer, torch.tensor(features, dtype=torch.float32), side,  # type: ignore[arg-type]
                              [f"{i}.png" for i in range(count)], 5, 0, Adaptation(lr=0.03, iterations=200, episodes=3))
    assert measured["few"]["recall@1"]["mean"] > measured["zero"]["recall@1"]["mean"] + 0.1
    assert measured["episodes"] == 3
    assert measured["queries"] == 30


def test_the_boundary_is_not_trained_and_steps_follow_the_shots() -> None:
    assert Adaptation().steps(2) == 1000
    assert Adaptation().steps(5) == 1500
    assert Adaptation(iterations=7).steps(5) == 7
    assert Adaptation().beta == Margin.Settings().beta == 1.2


def test_mistakes_are_one_line(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="no finished run of triplet on glyphs-mini"):
        adapt(workspace, "triplet", 2)
    with pytest.raises(UserError, match="such as 1,3-5, below 10000, or default, or all"):
        adapt(workspace, "margin", 2, splits="first")
    with pytest.raises(UserError, match="ask for fewer --shots"):
        adapt(workspace, "margin", 40)
    told: list[str] = []
    with pytest.raises(UserError, match="beside 41 for the support"):
        adapt(workspace, "margin", 3, 41, tell=told.append)
    assert not told, "nothing is adapted before"
    with pytest.raises(SystemExit) as ended:
        cli.main(["fewshot", "--dataset", "glyphs-mini", "--shots", "two", "--work", str(workspace.root)])
    assert ended.value.code == 2
    assert "write numbers such as 2,5" in capsys.readouterr().err


def test_records_without_weights_are_told_apart_from_none(workspace: Workspace, tmp_path: Path) -> None:
    """Packed and unpacked elsewhere, beside the same ladder."""
    bare = Workspace.at(tmp_path / "work")
    packing.pack([workspace.runs], tmp_path / "packed")
    packing.unpack(tmp_path / "packed", bare.runs)
    shutil.copytree(workspace.splits, bare.splits)
    with pytest.raises(UserError, match=r"^1 finished run .*weights.*--dataset glyphs-mini --methods margin "
                                        "--splits all --protocol demo --work DIR"):
        adapt(bare, "margin", 2)
    with pytest.raises(UserError, match=f"^{len(NAMES)} finished runs .*weights"):
        adapt(bare, "all", 2)
    with pytest.raises(UserError, match="no finished run of triplet"):
        adapt(bare, "triplet", 2)
    (folder,) = (path.parent for path in bare.runs.glob("*/*/margin/*/record.json"))
    (folder / "spec.json").touch()
    with pytest.raises(UserError, match="no kept weights; run it again"):
        adapt(bare, "margin", 2)
    (rung,) = {path.parts[-3] for path in bare.runs.glob("*/*/*/*")}
    other = next(one.id for one in ladders.load(bare, "glyphs-mini").splits if str(one.id) != rung)
    with pytest.raises(UserError, match="no finished run of margin"):
        adapt(bare, "margin", 2, splits=str(other))


def test_rungs_are_named_as_for_a_run(tmp_path: Path) -> None:
    made = tiny_runs.workspace(tmp_path)
    rungs = {rung.id: rung for rung in ladders.load(made, "glyphs-mini").splits}
    index = datasets.load("glyphs-mini", made.data)
    (default,) = [i for i, rung in rungs.items() if set(rung.train) == set(index.train_classes)]
    other = max(set(rungs) - {default})
    for i in (default, other):
        worker.run(tiny_runs.spec(made, "margin", "backbone=conv4", "epochs=1", split=i), tiny_runs.context(made))

    def adapted(splits: str) -> set[int]:
        return {int(path.parts[-4]) for path in adapt(made, "all", 2, splits=splits)}

    assert adapted("default") == {default}
    assert adapted(f"{other},{other}") == {other}
    assert adapted(f"1-{max(rungs)}") == adapted("all") == {default, other}


def test_another_adaptation_stays_beside_the_old(workspace: Workspace, tmp_path: Path) -> None:
    """And neither is done again; 3 steps are the same in a report, asked for or not, and are there once."""
    work = Workspace(shutil.copytree(workspace.root, tmp_path / "work"), workspace.data)
    (one,) = finished.find(work, "glyphs-mini", "margin")
    path = one.folder / "fewshot.json"
    path.unlink(missing_ok=True)
    adapt(work, "margin", 2)
    first = json.loads(path.read_text())
    other = Adaptation(lr=1e-3, iterations=2, episodes=2)
    assert fewshot.done(one.folder, other) == set()
    adapt(work, "margin", 2, 3, adaptation=other)
    assert (fewshot.done(one.folder, QUICK), fewshot.done(one.folder, other)) == ({2}, {2, 3})
    both = json.loads(path.read_text())
    assert (both["adaptation"], both["others"]) == (asdict(other), [
        {"adaptation": first["adaptation"], "shots": first["shots"]}])
    adapt(work, "margin", 2)
    assert json.loads(path.read_text()) == both
    adapt(work, "margin", 3)
    assert (fewshot.done(one.folder, QUICK), fewshot.done(one.folder, other)) == ({2, 3}, {2, 3})

    def shown() -> list[tuple[float, ...]]:
        rows = collect(records.collect(work.runs)).query("method == 'margin' and metric == 'recall@1'")
        return sorted(rows[["shots", "iterations", "lr"]].itertuples(index=False, name=None))

    assert shown() == [(2, 2, 1e-3), (2, 3, 1e-4), (3, 2, 1e-3), (3, 3, 1e-4)]
    adapt(work, "margin", 2, adaptation=replace(QUICK, batch_size=50))
    assert len(shown()) == 4, "what reports do not tell apart is no second run"
    packing.pack([work.runs], tmp_path / "packed")
    packing.unpack(tmp_path / "packed", tmp_path / "unpacked")
    (again,) = tmp_path.glob("unpacked/*/*/margin/*/fewshot.json")
    adapted = json.loads(again.read_text())
    assert len(adapted["others"]) == 2
    assert '"values"' not in json.dumps(adapted), "of no way of adapting each episode is packed"


@pytest.mark.parametrize("content", ['{"schema": 1, "adap', "[]", '{"schema": 1}', '{"schema": 1, "shots": 3}',
                                     '{"schema": 1, "adaptation": {}, "shots": {}, "others": [3]}'])
def test_a_damaged_file_is_made_anew(workspace: Workspace, content: str) -> None:
    (one,) = finished.find(workspace, "glyphs-mini", "margin")
    (one.folder / "fewshot.json").write_text(content)
    (path,) = adapt(workspace, "margin", 2)
    assert set(json.loads(path.read_text())["shots"]) == {"2"}


@pytest.mark.parametrize(("option", "value", "said"), [
    ("--shots", "\u00b2", "--shots \u00b2: write numbers"), ("--shots", "0", "write numbers"),
    ("--lr", "nan", "--lr nan: write a number above 0"), ("--lr", "-1", "above 0"), ("--lr", "inf", "above 0")])
def test_options_that_teach_nothing_are_refused(workspace: Workspace, capsys: pytest.CaptureFixture[str], option: str,
                                                value: str, said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["fewshot", "--dataset", "glyphs-mini", option, value, "--work", str(workspace.root)])
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_weights_that_do_not_fit_are_named(workspace: Workspace, tmp_path: Path) -> None:
    (one,) = finished.find(workspace, "glyphs-mini", "margin")
    (other,) = finished.find(workspace, "glyphs-mini", "mlp3-emb")
    kept = (one.folder / RUN).read_bytes()
    (one.folder / RUN).write_bytes((other.folder / RUN).read_bytes())
    try:
        with pytest.raises(UserError, match="does not fit margin"):
            restored(workspace, "margin")
        (one.folder / RUN).write_bytes(kept[:-100])
        with pytest.raises(UserError, match=r"is damaged or does not fit margin: .*; run it again"):
            restored(workspace, "margin")
    finally:
        (one.folder / RUN).write_bytes(kept)
