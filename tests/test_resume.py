"""A run that is killed, however often and wherever, ends as one that was not: to the bit, on a CPU."""

from __future__ import annotations

import json
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from benchmark.runs.interrupt import EXIT_CODES
from benchmark.training import checkpoint
from benchmark.utils.workspace import Workspace
from tests import tiny_runs

CASES = {
    "margin": ("margin",),
    "a cross-batch memory": ("triplet-xbm", "triplet-xbm.size=60", "triplet-xbm.start=2"),
    "a sampler with a memory bank": ("margin", "batches=gc"),
    "a momentum network, a queue and adversaries": ("diva", "diva.keys=60"),
    "warm-up, milestones, clipping and few images": ("arcface", "warmup=1", "milestones=2", "clip_value=0.5",
                                                     "optimiser=adamw", "weight_decay=0.01", "train_shots=6"),
}


@pytest.fixture(scope="module")
def made(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace.at(shutil.copytree(tiny_base, tmp_path_factory.mktemp("runs") / "work"))


@pytest.mark.parametrize("case", CASES)
def test_killed_and_resumed_is_the_same_run(case: str, made: Workspace, tmp_path: Path) -> None:
    spec = tiny_runs.spec(made, *CASES[case])
    folder = spec.folder(made)
    began = time.monotonic()
    undisturbed = tiny_runs.process(spec, made)
    undisturbed.join()
    whole = time.monotonic() - began
    assert undisturbed.exitcode == 0
    expected = dict(tiny_runs.results(folder))
    shutil.rmtree(folder)

    chance = random.Random(case)
    kills = 0
    for attempt in range(6):
        # at a step, or at any moment from outside: in the middle of writing, evaluating, building
        # (the first two at steps that every run still has before it)
        inside = attempt in (0, 1, 3)
        child = tiny_runs.process(spec, made, die_at=chance.randint(1, 5) if inside else None)
        if not inside:
            child.join(chance.uniform(0.1, 0.6) * whole)
            child.kill()
        child.join()
        kills += child.exitcode == -signal.SIGKILL
        if (folder / "record.json").exists():
            break
    else:
        tiny_runs.process(spec, made).join()
    (folder / "checkpoint-00004").mkdir(exist_ok=True)  # as a kill after the record leaves it
    last = tiny_runs.process(spec, made)
    last.join()
    assert last.exitcode == 0
    assert kills >= 2
    assert dict(tiny_runs.results(folder)) == expected
    assert sorted(path.name for path in folder.iterdir()) == [
        "env.json", "log.jsonl", "queries.npz", "record.json", "spec.json", "weights.safetensors"]


def test_a_run_goes_on_with_the_threads_that_it_began_with(made: Workspace) -> None:
    """Sums over several threads have other last bits, and what is left of a sweep may have more of them."""
    spec = tiny_runs.spec(made, "margin", seed=2)
    folder = spec.folder(made)
    found = []
    for attempts in ([{"threads": 2}], [{"threads": 2, "die_at": 5, "saved": True}, {"threads": 1}]):
        for how in attempts:
            child = tiny_runs.process(spec, made, **how)
            child.join()
            assert child.exitcode == (-signal.SIGKILL if "die_at" in how else 0)
        assert json.loads((folder / "record.json").read_text())["provenance"]["threads"] == 2
        found.append(dict(tiny_runs.results(folder)))
        shutil.rmtree(folder)
    assert found[0] == found[1]


def test_a_clusters_warning_saves_and_leaves_with_its_own_code(made: Workspace) -> None:
    spec = tiny_runs.spec(made, "margin", seed=1)
    folder = spec.folder(made)
    child = tiny_runs.process(spec, made, terminate_at=5)
    child.join()
    assert child.exitcode == EXIT_CODES[signal.SIGTERM] == 75
    assert checkpoint.load(folder)[1]["epoch"] == 2  # three steps and one question an epoch: the fifth is in epoch 2
    assert not (folder / "record.json").exists()
    again = tiny_runs.process(spec, made)
    again.join()
    assert again.exitcode == 0
    resumed = dict(tiny_runs.results(folder))
    shutil.rmtree(folder)
    whole = tiny_runs.process(spec, made)
    whole.join()
    assert resumed == dict(tiny_runs.results(folder))
