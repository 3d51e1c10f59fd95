"""Kills of single commands, each before or soon after a change that it makes on the disk or a step of its work.

What is killed must leave every file whole or not there at all, and the same command given again must end with the
files of an undisturbed one, byte for byte, without waiting for a lock. `make chaos-commands` kills each way of building
a ladder 60 times and the other commands 12 times each, and prints in which phase.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
PASSING = re.compile(r"(^|/)(\.[^/]+[.-]\d+(-\d+)?(/|$)|lock$|chunk-\d+$|[^/]+\.part(\.journal)?$)")
"""Names that nothing is read from: files on their way to their own name, locks, pieces of a growing file."""
SLOW = 60.0
"""Seconds after which a command given again is waiting for something."""


@dataclass(frozen=True)
class Scene:
    """A command, the files it finds, and those that count."""

    name: str
    words: Callable[[Path], list[str]]
    prepare: Callable[[Path], None] = lambda root: None
    changing: str = r"features\.json$|-part(/|$)"
    """Names of files that differ from run to run."""
    unready: str = ""
    """Names of files that count only with another one, which is written last."""
    there: str = "(?!)"
    """How it refuses where the whole is there already."""


def events(root: Path, log: int, stop: int, after: float) -> Callable[[str], None]:
    """In this process: writes a line for every change below `root` and every step, and dies at the `stop`-th.

    Returns what tells of a further step.
    """
    numbers = iter(range(1, sys.maxsize))

    def event(what: str) -> None:
        number = next(numbers)
        os.write(log, f"{what}\n".encode())
        if number == stop and after:
            threading.Thread(target=lambda: (time.sleep(after), os.kill(os.getpid(), signal.SIGKILL))).start()
        elif number == stop:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(name: str, facts: tuple[Any, ...]) -> None:
        writes = name == "open" and isinstance(facts[2], int) and facts[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if (writes or name in CHANGES) and isinstance(facts[0], (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(facts[0]))
            if path.startswith(f"{root}{os.sep}"):
                event(f"{name}\t{os.path.relpath(path, root)}")

    from benchmark.commands.splits import building
    from benchmark.utils import provenance
    from benchmark.utils.files import GrowingFile

    append, tell = GrowingFile.append, building._tell

    def appending(self: Any, *given: Any, **facts: Any) -> None:
        event(f"append\t{os.path.relpath(self.path, root)}")
        append(self, *given, **facts)

    def telling(step: Any) -> None:
        event(f"step\t{step.kind}")
        tell(step)

    provenance.now = lambda: "2026-01-01T00:00:00Z"
    GrowingFile.append, building._tell = appending, telling  # type: ignore[method-assign]
    sys.addaudithook(hook)
    return event


def run(words: list[str], root: Path, stop: int = 0, after: float = 0.0) -> tuple[int, str, list[list[str]], float]:
    """The command in a fork of this process: (exit code, output, what it did, seconds). Killed at step `stop`, if any.
    """
    output, log = root.with_name("output"), root.with_name("events")
    began = time.monotonic()
    child = os.fork()
    if not child:
        code = 70
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if stream == 1 else 0) | os.O_APPEND),
                        stream)
            event = events(root, os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), stop, after)
            from benchmark.cli import main

            main(words)
            event("end\tall is written")
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    done = [line.split("\t") for line in log.read_text().splitlines()]
    return os.waitstatus_to_exitcode(status), output.read_text(), done, time.monotonic() - began


def files(root: Path, leave: str) -> dict[str, bytes]:
    """Every file below a folder that is there to be read."""
    names = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in sorted(names.items())
            if not PASSING.search(name) and not (leave and re.search(leave, name))}


def phase(done: list[list[str]]) -> str:
    """What a command was at by the last thing it did."""
    kind, what = done[-1]
    folder, name = os.path.split(re.sub(r"(^|(?<=/))\.([^/]+?)[.-]\d+(-\d+)?(?=/|$)", r"\2", what))
    for part in ("images", "features", "contents"):
        if f"{part}-" in what:
            return f"{part}: {'folder and lock' if name == 'lock' or name.startswith(part + '-') else name}"
    if kind in ("step", "end"):
        return f"ladder: {what}" if kind == "step" else "the end"
    return f"{'/'.join(folder.split(os.sep)[:2])}/*{os.path.splitext(name)[1]}: {kind.removeprefix('os.')}"


def disturb(scene: Scene, folder: Path, kills: int, dice: random.Random) -> Counter[str]:
    """So many kills of a command, spread evenly over what it does; by phase."""
    from splits import pinning

    base, root = folder / "base", folder / "root"
    base.mkdir(parents=True)
    pinning.FOLDER = base / "pinned"
    in_fork(lambda: scene.prepare(base))

    def fresh() -> None:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(base, root, symlinks=True)

    fresh()
    before = files(root, scene.changing)
    code, output, all_done, _ = run(scene.words(root), root)
    assert code == 0, output
    expected = files(root, scene.changing)
    phases: Counter[str] = Counter()
    moments: dict[str, list[int]] = {}
    for number in range(1, len(all_done) + 1):
        moments.setdefault(phase(all_done[:number]), []).append(number)
    for choices in moments.values():
        dice.shuffle(choices)
    for kill, choices in zip(range(kills), cycle(dice.sample(list(moments.values()), len(moments)))):
        stop = choices[kill // len(moments) % len(choices)]
        after = dice.choice([0.0, 0.0, dice.uniform(0.001, 0.08)])
        fresh()
        code, output, done, _ = run(scene.words(root), root, stop, after)
        if code == 0:  # it was done before its moment came
            after = 0.0
            fresh()
            code, output, done, _ = run(scene.words(root), root, stop)
        assert code == -signal.SIGKILL, output
        where = phase(done)
        phases[where] += 1
        last = root / done[-2][1] if len(done) > 1 and done[-2][0] in ("open", "append") else root
        if not after and last.is_file():  # as if it died while it wrote that file
            os.truncate(last, dice.randrange(last.stat().st_size + 1))
            halved = str(last.relative_to(root))
        else:
            halved = ""
        for name, content in files(root, scene.changing).items():
            if not (scene.unready and re.search(scene.unready, name)):
                assert content in (before.get(name), expected.get(name)), f"{where}: {name} is not whole ({halved})"
        code, output, _, seconds = run(scene.words(root), root)
        assert code == 0 or re.search(scene.there, output), f"{where} ({halved}): {output}"
        assert "waiting" not in output, f"{where} ({halved}): {output}"
        assert seconds < SLOW, f"{where}: {seconds:.0f} s"
        given = files(root, scene.changing)
        differing = sorted(name for name in given.keys() | expected.keys() if given.get(name) != expected.get(name))
        assert not differing, f"{where} ({halved}): {differing}"
    return phases


def preload() -> None:
    """Imports once what every command imports; nothing is computed with it, as threads do not survive a fork."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("timm", "benchmark.commands.report", "benchmark.data.features", "benchmark.ladders.features",
                 "benchmark.ladders", "benchmark.data.weights", "benchmark.board.leaderboard",
                 "benchmark.submissions.check", "reports.site"):
        importlib.import_module(name)


def in_fork(function: Callable[[], Any]) -> None:
    """Calls a function in a fork, so that this process stays without threads."""
    child = os.fork()
    if not child:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def pictures(root: Path) -> None:
    from tests import layouts

    for label in range(8):
        for number in range(5):
            layouts.picture(root / "pictures" / f"{label:02}" / f"{number}.png", 5 * label + number)


def an_earlier_ladder(root: Path) -> None:
    """A ladder of glyphs-mini with a run on it, which the new one leaves behind."""
    from benchmark import ladders
    from reports import records
    from tests import tiny_sweep
    from tests.sample_records import make_record

    made = tiny_sweep.workspace(root / "work")
    hardest = ladders.load(made, "glyphs-mini").splits[-1]
    record = make_record("glyphs-mini", split=1)
    records.write(made.runs / "glyphs-mini" / "3" / "margin" / "s0-00000000",
                  record | {"split": record["split"] | {"hash": hardest.hash}})


def runs(root: Path) -> None:
    """Loose runs, a pack of some of them, and the pages of that."""
    from reports import packing
    from tests.sample_records import write_sample

    write_sample(root / "work/runs", {"margin": 0.6, "arcface": 0.5}, ("glyphs",), seeds=1)
    packing.pack([root / "work/runs"], root / "pack")
    write_sample(root / "work/runs", {"margin": 0.6, "arcface": 0.5, "s2sd": 0.7}, ("glyphs", "cars"), seeds=2)


def site(root: Path) -> None:
    from benchmark.board import leaderboard
    from benchmark.utils.workspace import Workspace

    runs(root)
    leaderboard.collect(Workspace.at(root / "work"), [root / "pack"], None, "shown", (), "").build(root / "site", "")


def packed(root: Path) -> None:
    """A pack with a ladder and what `oodml tune` chose."""
    an_earlier_ladder(root / "other")
    runs(root)
    shutil.rmtree(root / "work")
    for name in ("splits", "tune"):
        (root / "pack" / name).mkdir()
    shutil.copy(root / "other/work/splits/glyphs-mini.json", root / "pack/splits")
    (root / "pack/tune/glyphs-margin.json").write_text('{"some": "search"}\n')


def evaluated(root: Path) -> None:
    """Embeddings of another code, scored on a pinned ladder."""
    import json

    import numpy as np

    from benchmark import datasets
    from benchmark.ladders import pinned
    from benchmark.submissions.evaluate import evaluate_ladder
    from splits import pinning
    from tests import tiny_sweep
    from tests.birds import CARD

    made = tiny_sweep.workspace(root / "work")
    pinned.pin("glyphs-mini@v1", made, pinning.FOLDER)
    pinned.use("glyphs-mini@v1", made)
    index = datasets.load("glyphs-mini", made.data)
    x = np.random.default_rng(0).normal(size=(len(index), 8)).astype(np.float32)
    np.savez(root / "mine.npz", embeddings=x, ids=index.paths)
    card = dict(CARD) | {"method": "mine"}
    (root / "card.toml").write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in card.items()))
    evaluate_ladder(made, embeddings=str(root / "mine.npz"), dataset="glyphs-mini", seeds=(0,),
                    card=root / "card.toml", device="cpu", keep=True)


def at(*words: str) -> Callable[[Path], list[str]]:
    """The words of a command, with ROOT for its folder and BASE for that which this is a copy of."""
    return lambda root: [word.replace("ROOT", str(root)).replace("BASE", str(root.with_name("base")))
                         for word in (*words, "--work", "ROOT/work")]


STORED = r"/(geometry\.npy|store\.json)$"
SCENES = {scene.name: scene for scene in (
    Scene("splits build", at("splits", "build", "--dataset", "glyphs-mini"), unready=STORED),
    Scene("splits build of files", at("splits", "build", "--dataset", "folder:BASE/pictures", "--backbone", "resnet18",
                                      "--weights", "scratch"), pictures, unready=STORED),
    Scene("splits build --replace", at("splits", "build", "--dataset", "glyphs-mini", "--replace"), an_earlier_ladder),
    Scene("splits export", at("splits", "export", "--dataset", "glyphs-mini"), an_earlier_ladder),
    Scene("datasets check", at("datasets", "check", "folder:BASE/pictures", "--jobs", "1"), pictures),
    Scene("records pack", at("records", "pack", "ROOT/pack"), runs),
    Scene("records unpack", at("records", "unpack", "ROOT/pack"), packed),
    Scene("report", at("report", "--out", "ROOT/site"), site),
    Scene("submit", at("submit", "ROOT/mine", "--embeddings"), evaluated, there="is there already"),
)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-kills", type=int, default=60, help="of each way to build a ladder")
    parser.add_argument("--kills", type=int, default=12, help="of each other command")
    parser.add_argument("--only", help="the command of this name", choices=SCENES)
    parser.add_argument("--seed", type=int, default=0, help="of the schedule of kills")
    options = parser.parse_args()
    preload()
    with tempfile.TemporaryDirectory(prefix="oodml-chaos-") as made:
        folder = Path(os.path.realpath(made))
        for number, scene in enumerate([SCENES[options.only]] if options.only else SCENES.values()):
            kills, began = options.build_kills if "build" in scene.name else options.kills, time.monotonic()
            phases = disturb(scene, folder / str(number), kills, random.Random(options.seed))
            print(f"{scene.name}: {phases.total()} kills in {time.monotonic() - began:.0f} s; given again it ends each "
                  "time as if it had not been disturbed")
            for what, count in sorted(phases.items()):
                print(f"{count:6} {what}", flush=True)


if __name__ == "__main__":
    main()
