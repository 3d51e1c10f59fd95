"""Kills aimed by the logs of a sweep: whatever dies when, every run ends with the record of an undisturbed one.

`make chaos KILLS=1000` disturbs 54 runs and prints what was killed in which phase.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.runs import locks, planned
from benchmark.utils.workspace import Workspace
from tests import layouts, tiny_sweep

METHODS = "margin,arcface,multisimilarity"
KINDS = {"training": 88, "any": 4, "runner": 2, "half": 1, "hang": 1, "cut record": 1, "cut checkpoint": 1, "second": 2}
"""What is done, out of 100: kill a worker that trains, any worker, the runner, half of all processes; stop a worker;
cut a record or a checkpoint short; start a second runner of the same sweep and kill it with all its processes."""
IDLE = "between runs, or not a worker"
PATIENCE = 300.0
"""Seconds without any process to kill after which something is wrong."""


def base(folder: Path) -> Path:
    """A working folder with the ladder and the pixels of a dataset that a worker opens in no time."""
    for label in range(16):
        for number in range(6):
            layouts.picture(folder / "pictures" / f"{label:02}" / f"{number}.png", 6 * label + number)
    return tiny_sweep.workspace(folder / "work", (f"folder:{folder / 'pictures'}",)).root


@dataclass
class Chaos:
    """A sweep of METHODS on three rungs with so many seeds, and what was done to it."""

    made: Workspace
    dataset: str
    seeds: int
    epochs: int
    dice: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    """Killed processes by what they were at."""
    others: Counter[str] = field(default_factory=Counter)
    _dead: set[tuple[int, str]] = field(default_factory=set)
    """Processes that were killed, by number and time of birth: one that is still dying is not killed twice."""
    _seen: dict[tuple[Path, int], tuple[int, int]] = field(default_factory=dict)
    """By the lock of each attempt at a run: lines of its log when first seen, and after how many it is killed."""

    @property
    def cells(self) -> int:
        return len(METHODS.split(",")) * 3 * self.seeds

    @property
    def words(self) -> list[str]:
        return ["run", "--dataset", self.dataset, *tiny_sweep.WORDS[2:], "--set", f"epochs={self.epochs}",
                "--protocol", "demo", "--methods", METHODS, "--seeds", str(self.seeds), "--jobs", "3", "--retry-failed"]

    def disturb(self, kills: int, output: Path) -> None:
        """Run the sweep, start it again whenever it ends, until so many processes were killed and all runs are done."""
        while True:
            cut = self.others["cut record"]
            with output.open("a") as stream:
                runner = tiny_sweep.oodml(self.made, *self.words, stdout=stream, OODML_STALE_SECONDS="6")
            try:
                while runner.poll() is None and self.kills.total() < kills:
                    self.strike(runner)
                code = runner.wait(1200)
            finally:
                end(runner)
            done = self.done()
            if self.kills.total() >= kills and done == self.cells:
                return
            # a record that is cut once the sweep has counted it is the business of the next one
            whole = done == self.cells or self.others["cut record"] > cut
            assert code != 0 or whole, f"the sweep says it is done, but has {done} of {self.cells} runs"
            if done == self.cells:  # done early: take half away, so that there is something left to disturb
                for record in self.dice.sample(self.records(), done // 2):
                    shutil.rmtree(record.parent)

    def records(self) -> list[Path]:
        return sorted(self.made.runs.glob("*/*/*/*/record.json"))

    def done(self) -> int:
        cells, _ = planned.survey(self.made)
        return sum(cell.state.kind == "done" for cell in cells)

    def strike(self, runner: subprocess.Popen[str]) -> None:
        """One disturbance, when its moment has come; none if the runner ends first."""
        kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
        if kind == "training":
            self.kill_in_training(runner)
            return
        time.sleep(self.dice.uniform(0, 2))
        if kind == "runner" and runner.poll() is None:
            runner.kill()
            runner.wait()
            self.kills["the runner"] += 1
        elif kind == "second":
            other = tiny_sweep.oodml(self.made, *self.words, stdout=subprocess.DEVNULL, OODML_STALE_SECONDS="6")
            time.sleep(self.dice.uniform(2, 12))
            end(other)
            self.kills["a second runner"] += 1
        elif kind == "cut record" and (done := self.records()):
            self.cut(self.dice.choice(done), kind)
        elif kind == "cut checkpoint" and (files := sorted(self.made.runs.glob("*/*/*/*/checkpoint-*/tensors*"))):
            self.cut(self.dice.choice(files), kind)
        elif kind in ("any", "half", "hang") and (members := family(runner.pid)):
            chosen = self.dice.sample(members, len(members) // 2 if kind == "half" and members[1:] else 1)
            phases = {pid: phase for phase, pid, _ in self.at_work()}
            if kind == "hang":  # what a file server does to a worker; no such thing stops the server that forks them
                chosen = sorted(phases)[:1]
            for pid in chosen:
                if kind == "hang" and send(pid, signal.SIGSTOP):
                    self.others["a process stopped"] += 1
                elif kind != "hang":
                    self.kill(pid, phases.get(pid, IDLE))

    def kill(self, pid: int, phase: str) -> None:
        who = (pid, locks._born(pid) or "")
        if who[1] and who not in self._dead and send(pid, signal.SIGKILL):
            self._dead.add(who)
            self.kills[phase] += 1

    def kill_in_training(self, runner: subprocess.Popen[str]) -> None:
        began = time.monotonic()
        while runner.poll() is None:
            for phase, pid, due in self.at_work():
                if phase == "training" and due and (pid, locks._born(pid)) not in self._dead:
                    time.sleep(self.dice.uniform(0, 0.1))  # within an epoch, its evaluation or its checkpoint
                    after = next((now for now, other, _ in self.at_work() if other == pid), IDLE)
                    self.kill(pid, after)
                    return
            time.sleep(0.02)
            assert time.monotonic() - began < PATIENCE, "no run trains"

    def at_work(self) -> Iterator[tuple[str, int, bool]]:
        """Of each run that is held: what it is at by its log, its process, and whether it has come to its line."""
        for folder in {lock.parent for lock in self.made.runs.glob("*/*/*/*/lock.*")}:
            holder = locks.newest(folder)
            if holder is None or holder.released or holder.gone or "pid" not in holder.facts:
                continue
            with contextlib.suppress(OSError):
                lines = (folder / "log.jsonl").read_text().splitlines() if (folder / "log.jsonl").exists() else []
                first, wanted = self._seen.setdefault((folder, holder.number), (len(lines), self.dice.randint(1, 4)))
                phase = "starting"
                if len(lines) > first:
                    with contextlib.suppress(ValueError):
                        phase = "recording" if json.loads(lines[-1])["event"] == "end" else "training"
                yield phase, holder.facts["pid"], len(lines) >= first + wanted

    def cut(self, victim: Path, kind: str) -> None:
        with contextlib.suppress(OSError):
            victim.write_bytes(victim.read_bytes()[:self.dice.randrange(victim.stat().st_size)])
            self.others[kind] += 1


def family(leader: int) -> list[int]:
    """The processes of a session but for its leader."""
    members = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue
        if int(session) == leader and int(path.name) != leader and state != "Z":
            members.append(int(path.name))
    return sorted(members)


def send(pid: int, number: int) -> bool:
    """Whether the process was there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end(runner: subprocess.Popen[str]) -> None:
    """Kill what is left of a runner's family, stopped ones too."""
    for pid in [*family(runner.pid), runner.pid]:
        send(pid, signal.SIGKILL)
    runner.wait()


def undisturbed(root: Path, dataset: str, seeds: int, epochs: int) -> None:
    """Every run, one after the other, without a runner."""
    import torch

    from benchmark.runs import worker

    torch.set_num_threads(1)
    for job in tiny_sweep.jobs(Workspace.at(root), METHODS, datasets=(dataset,), seeds=seeds, splits="all",
                               set={"epochs": epochs}):
        worker.run(job.spec, job.context)


def check(folder: Path, kills: int, seeds: int, epochs: int, seed: int) -> Chaos:
    """Disturb a sweep in `folder` and hold its records against those of an undisturbed one, bit for bit."""
    made = base(folder)
    quiet, wild = (Workspace.at(shutil.copytree(made, folder / name)) for name in ("quiet", "wild"))
    dataset = f"folder:{folder / 'pictures'}"
    # In a process of its own: this one may have been switched to other kernels, whose last bits differ.
    reference = multiprocessing.get_context("spawn").Process(target=undisturbed, args=(quiet.root, dataset, seeds,
                                                                                          epochs))
    reference.start()
    chaos = Chaos(wild, dataset, seeds, epochs, random.Random(seed))
    try:
        chaos.disturb(kills, folder / "output")
    except BaseException:
        print((folder / "output").read_text()[-20000:])
        raise
    finally:
        reference.join(1200)
    what = f"{dict(chaos.kills)} {dict(chaos.others)}"
    assert reference.exitcode == 0
    expected, given = tiny_sweep.results(quiet), tiny_sweep.results(wild)
    assert len(expected) == chaos.cells
    differing = [name for name in expected if given.get(name) != expected[name]]
    assert given.keys() == expected.keys(), what
    assert not differing, f"{differing} {what}"
    assert not list(wild.runs.rglob("lock.*"))
    assert not list(wild.runs.rglob("failure.json"))
    return chaos


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=6, help="of three methods on three rungs")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0, help="of the schedule of kills")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="oodml-chaos-") as folder:
        chaos = check(Path(folder), options.kills, options.seeds, options.epochs, options.seed)
    print(f"{chaos.cells} runs, {chaos.kills.total()} kills in {time.monotonic() - began:.0f} s: every record is that "
          "of an undisturbed run, bit for bit")
    for what, count in [*chaos.kills.most_common(), *chaos.others.most_common()]:
        print(f"{count:6} {what}")


if __name__ == "__main__":
    main()
