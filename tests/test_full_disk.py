"""A disk that is really full: a small file system in a namespace of its own, filled to the last bytes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark import datasets
from benchmark.data.store import open_store
from benchmark.runs import planned, sweep
from benchmark.runs.job import Resources, SweepOptions
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import packing, records, site
from reports.analysis.results import Results
from tests import tiny_sweep
from tests.sample_records import write_sample


class Ballast:
    """All of a file system but `room` bytes, as one file."""

    def __init__(self, folder: Path, room: int) -> None:
        self.file = folder / "ballast"
        disk = os.statvfs(folder)
        self.file.write_bytes(bytes(disk.f_bavail * disk.f_bsize - room))

    def drop(self) -> None:
        self.file.unlink()


def decoding(folder: Path) -> None:
    """Decoding that has no room is refused with a line, and goes on when there is room."""
    made = Workspace.at(folder / "work")
    index = datasets.load("glyphs-mini", made.data)
    made.cache.mkdir(parents=True)
    ballast = Ballast(folder, 200_000)
    with pytest.raises(UserError, match=r"needs about \d\.\d+ MB in .*: free some space"):
        open_store(index, made.cache, progress=False)
    ballast.drop()
    assert len(open_store(index, made.cache, progress=False)) == len(index)


def running(folder: Path) -> None:
    """Two runs find no room for their checkpoints: both say why, and the next sweep does them."""
    made = tiny_sweep.workspace(folder / "work")
    study, lines = tiny_sweep.study(seeds=1), list[str]()
    options = SweepOptions(made, resources=Resources(jobs=2), command="oodml run")
    ballast = Ballast(folder, 200_000)
    first = sweep.run(study, options, lines.append)
    assert "the disk is full" in first.ended
    assert not first.done
    assert not first.failed
    for file in made.runs.rglob("failure.json"):
        facts = json.loads(file.read_text(encoding="utf-8"))
        assert (facts["cause"], facts["passing"]) == ("the disk is full", True)
        assert facts["step"] in (2, 4)  # the first epoch's checkpoint did not fit; a thread writes it meanwhile
    assert len(list(made.runs.rglob("failure.json"))) == 2
    assert not list(made.runs.rglob(".*.json*"))  # nothing half written is left
    assert "again: oodml run\n" in "\n".join(planned.failures(planned.survey(made)[0]))
    ballast.drop()
    second = sweep.run(study, options, lines.append)
    assert len(second.done) == 2
    assert not list(made.runs.rglob("failure.json"))


def keeping(folder: Path) -> None:
    """What a pack and a site held before is there as it was where the new one does not fit: it may be the only copy."""
    loose, pack, pages = folder / "runs", folder / "pack", folder / "site"
    write_sample(loose, {"margin": 0.6}, ("glyphs",), seeds=1)
    packing.pack([loose], pack)
    results = Results(records.collect(pack))
    site.build(results, records.scan(pack)[1], pages)
    write_sample(loose, {"margin": 0.6}, ("glyphs",), seeds=5)
    before = {path: path.read_bytes() for top in (pack, pages) for path in top.rglob("*") if path.is_file()}
    Ballast(folder, 0)
    for write in (lambda: packing.pack([loose], pack), lambda: site.build(results, records.scan(pack)[1], pages)):
        with pytest.raises(OSError, match="No space left"):
            write()
    assert {path: path.read_bytes() for top in (pack, pages) for path in top.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("scene", ["decoding", "running", "keeping"])
def test_a_disk_without_room(tmp_path: Path, scene: str) -> None:
    alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=48m none '{tmp_path}'"
    try:
        subprocess.run([*alone, mount], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this system lends no file system of one's own")
    # with -c: each worker of a sweep would import anew what -m names
    code = f"import pathlib, tests.test_full_disk as scenes; scenes.{scene}(pathlib.Path({str(tmp_path)!r}))"
    done = subprocess.run([*alone, f"{mount} && exec {shlex.join([sys.executable, '-c', code])}"],
                          cwd=Path(__file__).parent.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
