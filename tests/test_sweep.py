"""Sweeps: what is done, retried, left alone, refused and printed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from benchmark import ladders
from benchmark.config.study import Part, Study
from benchmark.runs import forecast, planned, status, sweep, worker
from benchmark.runs.job import Resources, SweepOptions, SweepResult
from benchmark.runs.matrix import gather
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from methods.backbones import create
from reports import records, selection
from tests import layouts, tiny_sweep

pytestmark = pytest.mark.usefixtures("plugins_forgotten")

TROUBLE = tiny_sweep.PLUGIN + '''
import errno, os, signal

@register("fails", family="test")
class Fails(Plain):
    """Raises until it is repaired."""
    def trouble(self):
        if not (HERE / "repaired").exists():
            raise ValueError("made to fail")

@register("ends", family="test")
class Ends(Plain):
    """Ends itself as a script would."""
    def trouble(self):
        raise SystemExit("enough")

@register("crashes-once", family="test")
class CrashesOnce(Plain):
    """Kills its process the first time."""
    def trouble(self):
        if not (HERE / "crashed").exists():
            (HERE / "crashed").touch()
            os.kill(os.getpid(), signal.SIGKILL)

@register("crashes", family="test")
class Crashes(Plain):
    """Kills its process every time."""
    def trouble(self):
        os.kill(os.getpid(), signal.SIGKILL)

@register("fills", family="test")
class Fills(Plain):
    """Finds the disk full."""
    def trouble(self):
        if not (HERE / "repaired").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
'''


def run(tiny: Workspace, methods: str, lines: list[str] | None = None, jobs: int = 2, *, retry_failed: bool = False,
        command: str = "", seconds: float | None = None, **fields: object) -> SweepResult:
    """A sweep of methods, those of `trouble.py` among them."""
    (tiny.root / "trouble.py").write_text(TROUBLE)
    options = SweepOptions(tiny, plugins=(str(tiny.root / "trouble.py"),), resources=Resources(jobs, seconds=seconds),
                           retry_failed=retry_failed, command=command)
    return sweep.run(tiny_sweep.study(methods, **fields), options, [].append if lines is None else lines.append)


def test_troubles_of_one_cell_are_its_own(tiny: Workspace) -> None:
    chosen = "fine,fails,crashes-once,crashes,ends"
    result = run(tiny, chosen, seeds=1, command="oodml run --this")
    assert {spec.method for spec in result.done} == {"fine", "crashes-once"}
    causes = {spec.method: cause for spec, cause in result.failed}
    line = 1 + TROUBLE[:TROUBLE.index("made to fail")].count("\n")
    assert causes["fails"] == f"ValueError: made to fail ({tiny.root / 'trouble.py'}, line {line})"
    assert causes["ends"].startswith("SystemExit: enough")
    assert "died" in causes["crashes"]
    assert "2 times" in causes["crashes"]
    assert {path.parts[-3] for path in tiny.runs.rglob("record.json")} == {"fine", "crashes-once"}
    assert {path.parts[-3] for path in tiny.runs.rglob("failure.json")} == {"fails", "crashes", "ends"}
    facts = json.loads(next(tiny.runs.rglob("fails/*/failure.json")).read_text())
    assert (facts["dataset"], facts["split"], facts["seed"], facts["kind"]) == ("glyphs-mini", 1, 0, "ValueError")
    assert "made to fail" in facts["traceback"]
    assert not list(tiny.runs.rglob("*/record.json.*"))

    runs, _ = planned.survey(tiny)
    text = "\n".join(planned.failures(runs))
    assert "made to fail" in text
    assert "oodml run --this --retry-failed" in text
    assert re.search(r"all\s+2\s+0\s+3\s+0", planned.table(runs))

    lines: list[str] = []
    again = run(tiny, chosen, lines, seeds=1)
    assert not again.done
    assert not again.failed
    assert any("--retry-failed" in line for line in lines)
    (tiny.root / "repaired").touch()
    repaired = run(tiny, "fine,fails", seeds=1, retry_failed=True)
    assert [spec.method for spec in repaired.done] == ["fails"]
    assert not list(tiny.runs.rglob("fails/*/failure.json"))


def test_a_full_disk_ends_the_sweep_but_not_what_runs_and_is_tried_again_by_the_next(tiny: Workspace) -> None:
    result = run(tiny, "fills,fine", jobs=2, seeds=1, command="oodml run --this")
    assert "disk is full" in result.ended
    assert not result.failed
    assert {spec.method for spec in result.done} == {"fine"}  # it ran beside, and to its end
    (failure,) = tiny.runs.rglob("failure.json")
    facts = json.loads(failure.read_text())
    assert (facts["cause"], facts["step"], facts["passing"]) == ("the disk is full", 0, True)
    assert "free some space" in facts["remedy"]

    runs, _ = planned.survey(tiny)
    text = "\n".join(planned.failures(runs))
    assert "the disk is full" in text
    assert "again: oodml run --this\n" in text
    (tiny.root / "repaired").touch()
    assert [spec.method for spec in run(tiny, "fills,fine", seeds=1).done] == ["fills"]
    assert not list(tiny.runs.rglob("failure.json"))


MENDED = '''
from methods import Objective, register

@register("mended", family="test")
class Mended(Objective):
    """The mean square of embeddings."""
    normalised = False
    def forward(self, embeddings, labels):
        return %s
'''


def test_edited_code_is_never_taken_for_the_old(tiny: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tiny.root / "mended.py"

    def again(loss: str, names: str = "mended", redo: bool = False) -> tuple[SweepResult, str]:
        plugin.write_text(MENDED % loss)
        lines: list[str] = []
        options = SweepOptions(tiny, plugins=(str(plugin),), resources=Resources(1), redo=redo)
        result = sweep.run(tiny_sweep.study(names, seeds=1), options, lines.append)
        return result, "\n".join([*lines, capsys.readouterr().out])

    failed, text = again("embeddings.sqare().mean()")
    assert len(failed.failed) == 1
    assert "1 run that failed earlier is left alone" in again("embeddings.sqare().mean()")[1]
    failed, text = again("embeddings.sqare().mean()", redo=True)
    assert len(failed.failed) == 1
    assert "left alone" not in text
    assert f"({plugin}, line 9); see {failed.jobs[0].folder / 'failure.json'}" in text
    mended, text = again("embeddings.square().mean()")  # without --retry-failed
    assert len(mended.done) == 1
    assert re.search(r"done    glyphs-mini/1 mended conv4 seed 0: recall@1 \d+\.\d %", text)
    assert not again("embeddings.square().mean()")[0].done
    other, _ = again("embeddings.abs().mean()")
    assert len(other.done) == 1
    record = other.jobs[0].folder / "record.json"
    first = json.loads(record.read_text())
    redone, _ = again("embeddings.abs().mean()", redo=True)
    assert len(redone.done) == 1
    second, before = json.loads(record.read_text()), json.loads(record.with_name("before-1-record.json").read_text())
    assert before == first
    assert (second["scores"], second["identity"]) == (first["scores"], first["identity"])
    assert second["provenance"]["date"] >= first["provenance"]["date"]

    made, text = again("embeddings.abs().mean()", "margin")
    assert "code changed" not in text
    record = made.jobs[0].folder / "record.json"
    facts = json.loads(record.read_text())
    assert len(facts["provenance"]["code"]) == 64
    facts["provenance"]["code"] = "0" * 64
    record.write_text(json.dumps(facts))
    (line,) = [line for line in planned.survey(tiny)[1] if "code" in line]
    assert line.startswith("glyphs-mini, margin: code changed since 1 finished run was made")
    _, text = again("embeddings.abs().mean()", "margin")
    assert line in text


def test_changed_code_of_many_methods_is_one_line(tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that all methods share was edited: as many lines as methods tell nothing, `--verbose` lists them."""
    names = ["margin", "arcface", "triplet", "contrastive", "supcon"]
    matrix = gather(tiny_sweep.study(",".join(names), seeds=3), SweepOptions(tiny))
    runs = [planned.PlannedRun(job.spec, job.folder, status.RunState("done", code="0" * 64), "") for job in matrix.jobs]
    (line,) = planned.code_changes(runs, "oodml plan")
    assert line.startswith("code changed since 15 finished runs of 5 methods were made (arcface, contrastive, margin "
                           "and 2 more); ")
    assert line.endswith("`oodml plan --verbose` lists them")
    listed = planned.code_changes(runs, "oodml plan", verbose=True)
    assert [text.partition(": ")[0] for text in listed] == [f"glyphs-mini, {name}" for name in sorted(names)]
    few = [run for run in runs if run.spec.method in ("arcface", "contrastive", "margin")]
    assert planned.code_changes(few, "oodml plan") == listed[:3]

    monkeypatch.setattr("benchmark.runs.status.look", lambda folder: runs[0].state)
    for verbose in (False, True):
        lines: list[str] = []
        forecast.show(tiny_sweep.study(",".join(names), seeds=3), SweepOptions(tiny), lines.append, verbose=verbose)
        assert [text for text in lines if "code changed" in text] == (listed if verbose else [line])


def test_a_plan_tells_of_weights_of_one_s_own(tiny: Workspace, tmp_path: Path) -> None:
    for seed in (0, 1):
        torch.manual_seed(seed)
        save_file(create("conv4").network.state_dict(), tmp_path / f"mine{seed}.safetensors")
    files = ",".join(f"conv4={tmp_path / name}.safetensors" for name in ("mine0", "mine1"))
    lines: list[str] = []
    forecast.show(tiny_sweep.study("margin", seeds=1, backbones=files), SweepOptions(tiny), lines.append)
    for name in ("mine0", "mine1"):
        (line,) = [line for line in lines if f"backbone conv4:{name} (weights {name}.safetensors, " in line]
        assert "1 run of 4 steps" in line


def test_nothing_new_begins_on_a_full_disk(tiny: Workspace) -> None:
    assert "disk is full" in run(tiny, "fills", jobs=1, seeds=3).ended
    assert len(list(tiny.runs.rglob("failure.json"))) == 1


def test_damaged_records_are_done_again_and_incompatible_ones_never_touched(tiny: Workspace) -> None:
    run(tiny, "fine", seeds=1)
    (record,) = tiny.runs.rglob("record.json")
    whole = record.read_bytes()
    record.write_bytes(whole[:100])
    lines: list[str] = []
    assert len(run(tiny, "fine", lines, seeds=1).done) == 1
    assert any("damaged-1-record.json" in line for line in lines)
    assert (record.parent / "damaged-1-record.json").read_bytes() == whole[:100]
    assert json.loads(record.read_text())["scores"] == json.loads(whole)["scores"]
    for schema in (records.SCHEMA + 1, 0):
        record.write_text(json.dumps({**json.loads(whole), "schema": schema}))
        before = record.read_bytes()
        with pytest.raises(UserError, match="another version"):
            run(tiny, "fine", seeds=1)
        assert record.read_bytes() == before
    record.write_text(json.dumps({**json.loads(whole), "schema": 1}))
    before = record.read_bytes()
    assert not run(tiny, "fine", seeds=1).done
    assert record.read_bytes() == before


def test_a_record_that_another_runner_made_anew_stays(tiny: Workspace) -> None:
    (job,) = tiny_sweep.jobs(tiny, "margin", seeds=1, set={"epochs": 1})
    record = worker.run(job.spec, job.context)
    assert status.set_aside(record.parent) == []
    assert record.exists()
    record.unlink()
    assert status.set_aside(record.parent) == []


def test_a_backbone_without_weights_leaves_the_others_to_go_on(tiny: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                             tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    lines: list[str] = []
    result = run(tiny, "fine", lines, seeds=1, backbones="resnet18,conv4")
    assert [spec.protocol.backbone for spec in result.done] == ["conv4"]
    assert (result.lacking, result.failed) == (1, [])
    assert any(line.startswith("resnet18: ") and "no weights" in line for line in lines)


def test_the_time_of_a_budget_ends_a_sweep(tiny: Workspace) -> None:
    result = run(tiny, "fine", jobs=1, seconds=1.0, seeds=1, set={"epochs": 100000, "evaluate_every": 100000})
    assert "--budget" in result.ended
    assert not result.done
    assert not result.failed
    assert not result.interrupted


def test_a_finished_rung_goes_over_to_a_new_ladder_that_has_it(tiny: Workspace,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """The report distinguishes ladders by their distances: a run that counts as done must have those of the new one."""
    ladder = ladders.load(tiny, "glyphs-mini")
    ladders.save(ladders.build("glyphs-mini", tiny, default_only=True), tiny)
    run(tiny, "frozen", jobs=1, seeds=1, splits="default")
    ladders.save(ladder, tiny)
    (before,) = records.collect(tiny.runs).to_dict("records")
    assert (before["split"], before["frd"]) == (ladder.default.id, None)
    lines: list[str] = []
    run(tiny, "frozen", lines, jobs=1, seeds=1, splits="all")
    assert any("older ladder" in line for line in lines)
    runs, notes = selection.select(records.collect(tiny.runs))
    assert not notes
    assert dict(zip(runs["split"], runs["frd"])) == {split.id: split.frd for split in ladder.splits}
    rest = enumerate(ladder.splits[1:], start=1)
    fewer = replace(ladder, splits=tuple(replace(split, id=i) for i, split in rest))
    ladders.save(fewer, tiny)
    monkeypatch.setattr("benchmark.utils.provenance.now", lambda: "2999-01-01T00:00:00Z")
    run(tiny, "frozen", jobs=1, seeds=1, splits="all")
    runs, notes = selection.select(records.collect(tiny.runs))
    assert dict(zip(runs["split"], runs["split_hash"])) == {split.id: split.hash for split in fewer.splits}
    assert [note[:6] for note in notes] == ["1 run "], "that of the rung which is gone; the others lie there twice"


def test_a_ladder_that_was_given_a_name_is_the_same(tiny: Workspace) -> None:
    """As packs have it whose first runs were made before their ladder was pinned."""
    run(tiny, "frozen", jobs=1, seeds=1)
    ladder = ladders.load(tiny, "glyphs-mini")
    name = {"name": "glyphs-mini@v1", "hash": "0" * 64}
    ladders.save(replace(ladder, made={**ladder.made, "pinned": name}), tiny)
    lines: list[str] = []
    run(tiny, "frozen", lines, jobs=1, seeds=1)
    assert not any("older ladder" in line for line in lines)
    (record,) = tiny.runs.rglob("record.json")
    assert json.loads(record.read_text())["split"]["pinned"] == name


def test_the_default_split_alone_needs_no_ladder(tmp_path: Path) -> None:
    empty = SweepOptions(Workspace.at(tmp_path))
    default, every = (Part((dataset,), "margin", splits=splits) for dataset, splits in
                      (("glyphs-mini", "default"), ("glyphs-mini", "all")))
    with pytest.raises(MethodError, match=r"'margni' \(did you mean 'margin'.*--plugin FILE takes your own"):
        gather(Study("one", (replace(every, methods="margni"),)), empty)
    with pytest.raises(UserError, match="has no ladder yet"):
        gather(Study("two", (default, every)), empty)
    assert not empty.workspace.splits.exists()
    (split,) = gather(Study("three", (default, Part(("glyphs-union",), "margin"))), empty).ladders["glyphs-mini"].splits
    assert (split.kind, split.frd) == ("default", None)
    assert {path.stem for path in empty.workspace.splits.glob("*.json")} == {"glyphs-mini", "glyphs-union"}
    with pytest.raises(UserError, match=r"has no ladder yet .* has the default split alone.*oodml splits build"):
        gather(Study("four", (every,)), empty)
    assert ladders.load(empty.workspace, "glyphs-mini").splits == (split,), "finished runs still find theirs"
    gather(Study("five", (default,)), empty)
    ladders.save(ladders.build("glyphs-mini", empty.workspace, default_only=True), empty.workspace)
    gather(Study("six", (every,)), empty)  # that is what its user wants


def test_a_dataset_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        for i in range(4):
            layouts.picture(tmp_path / "mine" / name / f"{i}.png", f"{name}{i}")
    monkeypatch.chdir(tmp_path)
    tiny = Workspace.at(tmp_path / "work")
    ladders.save(ladders.build("folder:mine", tiny, default_only=True), tiny)
    (spec,) = run(tiny, "margin", jobs=1, datasets=("folder:mine",), seeds=1, splits="default",
                  set={"batch_size": 4}).done
    assert spec.dataset == "mine"
