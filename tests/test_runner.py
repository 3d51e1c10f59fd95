"""Sweeps on this machine: what is done, retried, left alone, refused and said."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmark import cli
from benchmark.data import ladders
from benchmark.runs import cell, locks, status, sweep, worker
from benchmark.runs.executors import local, slurm
from benchmark.runs.interrupt import Brake
from benchmark.runs.job import Outcome, Resources
from benchmark.runs.locks import Lock
from benchmark.runs.matrix import Places
from benchmark.runs.progress import Progress
from benchmark.training.train import Interrupted
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods import MethodError
from reports import ReportError, aggregate, records
from splits import SplitError
from tests import layouts, tiny_sweep

GPU = pytest.param("cuda:0", id="gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))

TROUBLE = '''
import errno, os, signal
from pathlib import Path
import torch
from methods import Objective, register

HERE = Path(__file__).parent

class Plain(Objective):
    """The mean square of embeddings."""
    normalised = False
    def forward(self, embeddings, labels):
        self.trouble()
        return embeddings.square().mean()
    def trouble(self):
        pass

@register("fine", family="test")
class Fine(Plain):
    """Nothing happens."""

@register("fails", family="test")
class Fails(Plain):
    """Raises until it is mended."""
    def trouble(self):
        if not (HERE / "mended").exists():
            raise ValueError("made to fail")

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
        if not (HERE / "mended").exists():
            raise OSError(errno.ENOSPC, "No space left on device")
'''


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tiny_sweep.workspace(tmp_path_factory.mktemp("base") / "work")
    (made.root / "trouble.py").write_text(TROUBLE)
    return made.root


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    with tiny_sweep.registry_as_before():
        yield


@pytest.fixture
def made(base: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(base, tmp_path / "work")
    return Workspace.at(tmp_path / "work")


def run(made: Workspace, methods: str, lines: list[str] | None = None, jobs: int = 2, **given: object) -> sweep.Outcome:
    options = {key: given.pop(key) for key in ("retry_failed", "command") if key in given}
    said = lines if lines is not None else []
    return sweep.run(tiny_sweep.study(methods, **given), Places(made, plugins=(str(made.root / "trouble.py"),)),
                     resources=Resources(jobs=jobs), say=said.append, **options)  # type: ignore[arg-type]


def test_troubles_of_one_cell_are_its_own(made: Workspace) -> None:
    chosen = "fine,fails,crashes-once,crashes"
    outcome = run(made, chosen, seeds=1, command="oodml run --this")
    assert {spec.method for spec in outcome.done} == {"fine", "crashes-once"}
    causes = {spec.method: cause for spec, cause in outcome.failed}
    assert causes["fails"] == "ValueError: made to fail"
    assert "died" in causes["crashes"]
    assert "2 times" in causes["crashes"]
    assert {path.parts[-3] for path in made.runs.rglob("record.json")} == {"fine", "crashes-once"}
    assert {path.parts[-3] for path in made.runs.rglob("failure.json")} == {"fails", "crashes"}
    facts = json.loads(next(made.runs.rglob("fails/*/failure.json")).read_text())
    assert (facts["dataset"], facts["split"], facts["seed"], facts["kind"]) == ("glyphs-mini", 1, 0, "ValueError")
    assert "made to fail" in facts["traceback"]
    assert not list(made.runs.rglob("*/record.json.*"))

    cells, _ = status.survey(made)
    told = "\n".join(status.failures(cells))
    assert "made to fail" in told
    assert "oodml run --this --retry-failed" in told
    assert re.search(r"all\s+2\s+0\s+2\s+0", status.table(cells))

    lines: list[str] = []
    again = run(made, chosen, lines, seeds=1)
    assert not again.done
    assert not again.failed
    assert any("--retry-failed" in line for line in lines)
    (made.root / "mended").touch()
    mended = run(made, "fine,fails", seeds=1, retry_failed=True)
    assert [spec.method for spec in mended.done] == ["fails"]
    assert not list(made.runs.rglob("fails/*/failure.json"))


def test_a_full_disk_ends_the_sweep_but_not_what_runs_and_is_tried_again_without_being_told(made: Workspace) -> None:
    outcome = run(made, "fills,fine", jobs=2, seeds=1, command="oodml run --this")
    assert "disk is full" in outcome.ended
    assert not outcome.failed
    assert {spec.method for spec in outcome.done} == {"fine"}  # it ran beside, and to its end
    (failure,) = made.runs.rglob("failure.json")
    facts = json.loads(failure.read_text())
    assert (facts["cause"], facts["step"], facts["passing"]) == ("the disk is full", 0, True)
    assert "free some space" in facts["remedy"]

    cells, _ = status.survey(made)
    told = "\n".join(status.failures(cells))
    assert "the disk is full" in told
    assert "again: oodml run --this\n" in told
    (made.root / "mended").touch()
    assert [spec.method for spec in run(made, "fills,fine", seeds=1).done] == ["fills"]
    assert not list(made.runs.rglob("failure.json"))


def test_nothing_new_begins_on_a_full_disk(made: Workspace) -> None:
    assert "disk is full" in run(made, "fills", jobs=1, seeds=3).ended
    assert len(list(made.runs.rglob("failure.json"))) == 1


def test_damaged_records_are_done_again_and_foreign_ones_never_touched(made: Workspace) -> None:
    run(made, "fine", seeds=1)
    (record,) = made.runs.rglob("record.json")
    whole = record.read_bytes()
    record.write_bytes(whole[:100])
    lines: list[str] = []
    assert len(run(made, "fine", lines, seeds=1).done) == 1
    assert any("damaged-1.json" in line for line in lines)
    assert (record.parent / "damaged-1.json").read_bytes() == whole[:100]
    assert json.loads(record.read_text())["scores"] == json.loads(whole)["scores"]
    for schema in (records.SCHEMA + 1, 0):
        record.write_text(json.dumps({**json.loads(whole), "schema": schema}))
        before = record.read_bytes()
        with pytest.raises(UserError, match="another version"):
            run(made, "fine", seeds=1)
        assert record.read_bytes() == before
    record.write_text(json.dumps({**json.loads(whole), "schema": 1}))
    before = record.read_bytes()
    assert not run(made, "fine", seeds=1).done
    assert record.read_bytes() == before


def test_a_record_that_another_runner_made_anew_stays(made: Workspace) -> None:
    run(made, "fine", seeds=1)
    (record,) = made.runs.rglob("record.json")
    assert status.set_aside(record.parent) is None
    assert record.exists()
    record.unlink()
    assert status.set_aside(record.parent) is None


def test_a_cell_held_elsewhere_is_waited_for_and_taken_over(made: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(locks, "STALE", 4.0)
    held, free = tiny_sweep.jobs(made, "margin")
    lock = Lock.take(held.folder, 0)
    assert lock is not None
    beat, _, facts = lock.path.read_text().partition("\n")
    lock.path.write_text(f"{beat}\n{json.dumps({**json.loads(facts), 'machine': 'elsewhere'})}\n")
    assert status.look(held.folder).kind == "running"

    def live() -> None:
        deadline = time.monotonic() + 60
        while not free.done and time.monotonic() < deadline and lock.beat():
            time.sleep(0.1)

    other = threading.Thread(target=live)
    other.start()
    outcome = run(made, "margin")
    other.join()
    assert [spec.seed for spec in outcome.done] == [1, 0]
    assert "another runner holds" in capsys.readouterr().out
    assert status.look(held.folder).kind == status.look(free.folder).kind == "done"


def test_two_runners_share_the_work(made: Workspace) -> None:
    outcomes: list[sweep.Outcome] = []
    runners = [threading.Thread(target=lambda: outcomes.append(run(made, "margin,arcface", jobs=1, splits="1-2")))
               for _ in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(150)
    done = [spec.identity for outcome in outcomes for spec in outcome.done]
    assert sorted(done) == sorted(job.spec.identity for job in tiny_sweep.jobs(made, splits="1-2"))
    assert len(list(made.runs.rglob("record.json"))) == 8
    assert not list(made.runs.rglob("lock.*"))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_ctrl_c_saves_and_the_same_command_goes_on(made: Workspace, times: int, device: str,
                                                   monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(local, "devices", lambda resources: [device])
    # an epoch takes longer than the time between two presses
    long = {"epochs": 8, "evaluate_every": 8, "steps_per_epoch": 25}
    words = ["run", *tiny_sweep.WORDS, *(word for key, value in long.items() for word in ("--set", f"{key}={value}")),
             "--methods", "margin", "--splits", "1", "--seeds", "1", "--work", str(made.root)]
    (job,) = tiny_sweep.jobs(made, "margin", seeds=1, set=long)

    def press() -> None:
        deadline = time.monotonic() + 90
        while not list(job.folder.glob("checkpoint-*")) and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(times if time.monotonic() < deadline else 0):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)

    finger = threading.Thread(target=press)
    finger.start()
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    finger.join()
    assert caught.value.code == 130
    out = capsys.readouterr().out
    assert "same command goes on" in out
    state = status.look(job.folder)
    assert (state.kind, state.begun) == ("missing", True)
    assert not (job.folder / "failure.json").exists()
    assert ("saved" in out) == (times == 1)
    cli.main(words)
    starts = [line["epoch"] for line in map(json.loads, (job.folder / "log.jsonl").read_text().splitlines())
              if line["event"] == "start"]
    assert len(starts) == 2
    assert 0 < starts[1] < 8
    found = records.read(job.folder)
    assert [entry["epoch"] for entry in found["curve"]] == list(range(1, 9))
    assert found["cost"]["device"] == provenance.device_name(device)
    cost = found["cost"]
    assert cost["seconds"] > cost["train_seconds"] + cost["evaluate_seconds"] > 0, "all attempts together"
    assert not list(job.folder.glob("checkpoint-*"))


@pytest.mark.parametrize("device", [GPU])
def test_energy_is_counted(device: str) -> None:
    began = time.monotonic()
    with provenance.Energy(device) as energy:
        matrix = torch.ones(4096, 4096, device=device)
        while time.monotonic() - began < 1:
            (matrix @ matrix).sum().item()
    watts = (energy.joules or 0) / (time.monotonic() - began)
    assert 5 < watts < 2000
    assert provenance.facts()["driver"]


def test_plan_and_status_say_what_there_is(made: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--work", str(made.root)]
    cli.main(["status", "--work", str(made.root)])
    assert "no sweep" in capsys.readouterr().out
    cli.main(["plan", *words, "--seeds", "2"])
    out = capsys.readouterr().out
    assert "--calibrate" in out
    assert not made.runs.exists()
    cli.main(["plan", *words, "--seeds", "2", "--calibrate"])
    assert "CPU-hours" in capsys.readouterr().out
    assert not made.runs.exists()
    cli.main(["run", *words, "--seeds", "1"])
    capsys.readouterr()
    cli.main(["run", *words, "--seeds", "2", "--dry-run", "--budget", "1h"])
    out = capsys.readouterr().out
    assert re.search(r"all\s+1\s+0\s+0\s+1", out)
    assert "1 of 1 cells fit" in out
    cli.main(["plan", *words, "--seeds", "2", "--budget", "1h", "--executor", "slurm", "--retry-failed"])
    assert capsys.readouterr().out == out, "plan takes what run takes"
    cli.main(["run", *words, "--seeds", "1", "--set", "dim=8"])
    capsys.readouterr()
    cli.main(["status", "--work", str(made.root)])
    out = capsys.readouterr().out
    assert "dim 16 -> 8 (1 earlier runs are kept)" in out


def test_a_backbone_without_weights_leaves_the_others_to_go_on(made: Workspace, monkeypatch: pytest.MonkeyPatch,
                                                             tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("OODML_WEIGHTS", str(tmp_path))
    lines: list[str] = []
    outcome = run(made, "fine", lines, seeds=1, backbones="resnet18,conv4")
    assert [spec.protocol.backbone for spec in outcome.done] == ["conv4"]
    assert (outcome.lacking, outcome.failed) == (1, [])
    assert any(line.startswith("resnet18: its cells are left out: no weights") for line in lines)


def test_the_time_of_a_budget_ends_a_sweep(made: Workspace) -> None:
    study = tiny_sweep.study("fine", seeds=1, set={"epochs": 100000, "evaluate_every": 100000})
    outcome = sweep.run(study, Places(made, plugins=(str(made.root / "trouble.py"),)),
                        resources=Resources(jobs=1, seconds=1.0), say=lambda line: None)
    assert "--budget" in outcome.ended
    assert not outcome.done
    assert not outcome.failed
    assert not outcome.interrupted


def test_a_failed_cell_is_no_open_one(made: Workspace) -> None:
    """So that the end of a budget does not hide it."""
    first, second = tiny_sweep.jobs(made, "margin", seeds=2)
    assert Outcome(failed=[(first.spec, "it broke")]).open([first, second])
    assert not Outcome(failed=[(first.spec, "it broke"), (second.spec, "too")]).open([first, second])


def test_what_failed_elsewhere_meanwhile_is_not_tried_again(made: Workspace) -> None:
    before, meanwhile, full, fresh = tiny_sweep.jobs(made, "margin", seeds=4)
    cell.write_failure(before, "before the sweep, so that --retry-failed was given")
    crew = local.Crew(["cpu"], Progress(4, 8), Brake(), deque([before, meanwhile, full, fresh]))
    cell.write_failure(meanwhile, "it broke there")
    cell.write_failure(full, "the disk is full", passing=True)
    taken = []
    while (job := crew._next()) is not None:
        taken.append(job.spec)
    assert taken == [before.spec, full.spec, fresh.spec]
    assert crew.outcome.failed == [(meanwhile.spec, "it broke there")]


def test_a_new_attempt_takes_the_failure_of_the_last_one_away(made: Workspace) -> None:
    (job,) = tiny_sweep.jobs(made, "margin", seeds=1)
    cell.write_failure(job, "the disk is full", passing=True)
    with pytest.raises(Interrupted):
        worker.run(job.spec, job.context, stop=lambda: True)
    assert status.look(job.folder) == status.State("missing", begun=True)


def test_missing_options_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words, missing in ((["run", "--dataset", "glyphs"], "--methods"),
                           (["plan", "--methods", "margin"], "--dataset"),
                           (["run", "--study", "oodml-cup"], "oodml-cub"),
                           (["run", "--dataset", "glyphs", "--methods", "margin", "--executor", "rai"], "ray"),
                           (["plan", "--dataset", "glyphs", "--methods", "margin", "--slurm", "partition"],
                            "--slurm partition: write KEY=VALUE")):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
        assert missing in capsys.readouterr().err


@pytest.mark.parametrize(("words", "names"), [
    (["--dataset", "glyphs-mini", "--dataset", "cub,cars"], ("glyphs-mini", "cub", "cars")),
    (["--dataset", "union:cub,cars", "--dataset", "cub", "--dataset", "cub"], ("union:cub,cars", "cub")),
])
def test_datasets_may_be_repeated_and_listed(words: list[str], names: tuple[str, ...],
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    monkeypatch.setattr(sweep, "run", lambda study, *_, **__: found.append(study) or sweep.Outcome())
    cli.main(["run", *words, "--methods", "margin"])
    assert found[0].parts[0].datasets == names


@pytest.mark.parametrize("kind", [UserError, SplitError, MethodError, ReportError])
def test_the_cause_of_a_users_mistake_is_its_text_alone(kind: type[Exception]) -> None:
    assert cell.failure_of(kind("unknown thing 'x'"))["cause"] == "unknown thing 'x'"


@pytest.mark.parametrize(("given", "match"), [({"partiton": "gpu"}, "'partiton'.*partition"),
                                              ({"cpus_per_task": "two"}, "cpus_per_task.*two")])
def test_what_slurm_does_not_know_is_refused(made: Workspace, given: dict[str, str], match: str) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(UserError, match=f"--slurm: .*{match}"):
        slurm.submit(tiny_sweep.jobs(made), Resources(slurm=given), cluster="local")


def test_a_finished_rung_goes_over_to_a_new_ladder_that_has_it(tmp_path: Path) -> None:
    """The report tells ladders apart by their distances: a run that counts as done must be told by the new ones."""
    made = tiny_sweep.workspace(tmp_path)
    ladders.save(ladders.build("glyphs-mini", made, default_only=True), made)
    study = tiny_sweep.study("frozen", seeds=1, splits="default")
    sweep.run(study, Places(made), resources=Resources(jobs=1), say=lambda line: None)
    tiny_sweep.workspace(tmp_path)
    ladder = ladders.load(made, "glyphs-mini")
    (before,) = records.collect(made.runs).to_dict("records")
    assert (before["split"], before["frd"]) == (ladder.default.id, None)
    lines: list[str] = []
    sweep.run(tiny_sweep.study("frozen", seeds=1, splits="all"), Places(made), resources=Resources(jobs=1),
              say=lines.append)
    assert any("brought to it" in line for line in lines)
    runs, notes = aggregate.select(records.collect(made.runs))
    assert not notes
    assert dict(zip(runs["split"], runs["frd"])) == {split.id: split.frd for split in ladder.splits}


def test_a_dataset_may_be_named_from_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abcd":
        for i in range(4):
            layouts.picture(tmp_path / "mine" / name / f"{i}.png", f"{name}{i}")
    monkeypatch.chdir(tmp_path)
    made = Workspace.at(tmp_path / "work")
    ladders.save(ladders.build("folder:mine", made, default_only=True), made)
    study = tiny_sweep.study("margin", datasets=("folder:mine",), seeds=1, splits="default", set={"batch_size": 4})
    (spec,) = sweep.run(study, Places(made), resources=Resources(jobs=1), say=lambda line: None).done
    assert spec.dataset == "mine"
