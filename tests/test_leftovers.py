"""Half-written files and folders of killed commands: the next command removes them, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmark.cli import main
from benchmark.utils import files, leftovers
from benchmark.utils.workspace import Workspace
from reports.storage import paths
from splits import manifest, pinning
from splits.ladder import build_ladder


@pytest.fixture
def gone() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def old(path: Path, folder: bool = False) -> Path:
    """A file, or a folder with one, that nobody has written to for two hours."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if folder:
        path.mkdir()
    (path / "part" if folder else path).write_text("half")
    os.utime(path, (time.time() - 7200,) * 2)
    return path


def test_what_killed_commands_left_is_removed(gone: int, tmp_path: Path) -> None:
    left = [old(tmp_path / f".oodml.writable.{gone}"), old(tmp_path / "splits" / f".oodml.mine.json.{gone}"),
            old(tmp_path / "splits" / f".oodml.mine-1.csv.{gone}-2814"),
            old(tmp_path / "plans" / f".oodml.a.{gone}", folder=True)]
    kept = [old(tmp_path / "splits" / "mine.json"), old(tmp_path / "splits" / ".hidden"), old(tmp_path / "notes.1234"),
            old(tmp_path / f".config.{gone}", folder=True),
            old(tmp_path / "splits" / f".oodml.mine.json.{os.getpid()}"),
            old(tmp_path / "runs" / f".oodml.x.{gone}")]
    young = tmp_path / "splits" / f".oodml.other.json.{gone}"
    young.write_text("half")
    Workspace.at(tmp_path).writable()
    assert not [path for path in left if path.exists()]
    assert all(path.exists() for path in (*kept, young)), "another machine may be writing"


def test_a_link_is_removed_and_not_what_it_points_to(gone: int, tmp_path: Path) -> None:
    home = old(tmp_path / "home", folder=True)
    link = tmp_path / "splits" / f".oodml.x.{gone}"
    link.parent.mkdir()
    link.symlink_to(home)
    os.utime(link, (time.time() - 7200,) * 2, follow_symlinks=False)
    assert leftovers.remove([link.parent]) == [link]
    assert (home / "part").exists()


def test_of_one_thing_alone_where_others_lie(gone: int, tmp_path: Path) -> None:
    own, other = (old(tmp_path / f".oodml.{name}.{gone}", folder=True) for name in ("mine", "yours"))
    assert leftovers.remove([tmp_path], "mine") == [own]
    assert other.exists()


def test_they_are_called_as_what_writes_them_calls_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill before the file has its name, by each way in which files are written."""
    seen: list[str] = []

    def killed(source: Path, target: Path) -> None:
        seen.append(Path(source).name)
        raise KeyboardInterrupt

    ladder = build_ladder(np.random.default_rng(0).normal(size=(24, 3)), np.repeat(np.arange(8), 3), list("abcd"),
                          list("efgh"), classes=list("abcdefgh"), rungs=2)
    monkeypatch.setattr(os, "replace", killed)
    monkeypatch.setattr(Path, "replace", killed)
    for write in (lambda: files.write_json(tmp_path / "a.json", {}), lambda: paths.write(tmp_path / "b.json", ""),
                  lambda: manifest.save(ladder, tmp_path / "c.json"),
                  lambda: pinning.save(pinning.get("glyphs@v2"), tmp_path / "d.json")):
        with pytest.raises(KeyboardInterrupt):
            write()
    assert len(seen) == 4
    assert all(leftovers._NAMES.fullmatch(name) for name in seen)


def test_a_leaderboard_is_built_without_them(gone: int, tmp_path: Path) -> None:
    left = old(tmp_path / "site" / f".oodml.index.html.{gone}")
    records = Path(__file__).parent.parent / "reports" / "data" / "records" / "glyphs"
    main(["report", "--records", str(records), "--dataset", "glyphs-arrows", "--out", str(tmp_path / "site")])
    assert not left.exists()
