"""Processes of a pool end with the one that started them, and odd bytes of a path do not end a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark import cli
from benchmark.utils import provenance

CODE = """
import os, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from reports.storage.processes import end_with_parent
if __name__ == "__main__":
    pool = ProcessPoolExecutor(2, get_context(sys.argv[1]), end_with_parent)
    began = [pool.submit(time.sleep, 0.3) for _ in range(4)]
    print(*(pid for pid in pool._processes), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["spawn", "fork"])
def test_processes_of_a_pool_end_when_their_parent_is_killed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "script.py").write_text(CODE)
    root = Path(__file__).parents[1]
    parent = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), kind], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PYTHONPATH": str(root)})
    assert parent.stdout is not None
    children = [int(word) for word in parent.stdout.readline().split()]
    assert children
    time.sleep(1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 20
    while (left := [pid for pid in children if _runs(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _runs(pid: int) -> bool:
    """Whether a process of this number is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_working_folder_whose_path_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records, packs and pages could name nothing in it."""
    with pytest.raises(SystemExit):
        cli.main(["status", "--work", os.fsdecode(bytes(tmp_path) + b"/w\xe4")])
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not UTF-8" in line
    assert "--work DIR" in line


def test_a_command_with_bytes_that_are_no_text_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["oodml", "run", "--work", os.fsdecode(b"/tmp/w\xe4")])
    provenance.facts.cache_clear()
    try:
        assert provenance.facts()["command"] == "oodml run --work '/tmp/w\\udce4'"
        assert provenance.facts("oodml --work \udce4")["command"] == "oodml --work \\udce4"
    finally:
        provenance.facts.cache_clear()
