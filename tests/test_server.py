"""The process that workers are forked from: begun early, ended with the command, replaced where it stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import pytest

from benchmark import cli
from benchmark.runs import sweep
from benchmark.runs.executors import mps, server
from benchmark.runs.executors.pool import WorkerPool
from benchmark.runs.interrupt import StopRequest
from benchmark.runs.locks import Watch
from benchmark.runs.progress import Progress
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

WORDS = ["run", *tiny_sweep.WORDS, "--methods", "margin", "--splits", "1", "--seeds", "1"]


def runs_in(session: int) -> bool:
    """Whether the process that workers are forked from runs in this session."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            own = int((path / "stat").read_text().rpartition(")")[2].split()[3]) == session
            if own and "forkserver" in (path / "cmdline").read_text():
                return True
        except OSError:  # it is gone by now
            continue
    return False


def wait_for_server(session: int) -> None:
    deadline = time.monotonic() + 60
    while not runs_in(session) and time.monotonic() < deadline:
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
def test_ctrl_c_while_workers_are_made_leaves_no_traceback(tiny: Workspace) -> None:
    runner = tiny_sweep.oodml(tiny, *WORDS)
    wait_for_server(runner.pid)
    time.sleep(0.3)  # so that it is in the middle of its imports
    os.killpg(runner.pid, signal.SIGINT)
    out, _ = runner.communicate(timeout=90)
    assert runner.returncode == 130, out
    assert "Traceback" not in out


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
def test_a_killed_runner_leaves_no_server_behind(tiny: Workspace) -> None:
    runner = tiny_sweep.oodml(tiny, *WORDS)
    wait_for_server(runner.pid)
    runner.kill()
    runner.communicate(timeout=90)  # the server has the same output, and keeps it open to its end
    assert not runs_in(runner.pid)


def test_the_server_is_warm_before_images_are_made_ready_and_only_where_runs_are_to_do(
        tiny: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    warm, prepare = server.warm, sweep.prepare
    monkeypatch.setattr(server, "warm", lambda: (order.append("warm"), warm())[1])
    monkeypatch.setattr(sweep, "prepare", lambda *words: (order.append("prepare"), prepare(*words))[1])
    words = [*WORDS, "--work", str(tiny.root)]
    cli.main([*words, "--dry-run"])
    with pytest.raises(SystemExit):
        cli.main([*words, "--methods", "margni"])
    assert not order
    cli.main(words)
    assert order[:2] == ["warm", "prepare"]
    order.clear()
    cli.main(words)
    assert not order, "all is done"


IN_VAIN = """
from benchmark import cli
from benchmark.runs import sweep
from benchmark.utils.errors import UserError

def fail(*_):
    raise UserError("no images")

sweep.prepare = fail
cli.main()
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python takes /tmp there by itself")
def test_a_folder_for_temporary_files_that_no_socket_fits_into_is_named(tiny: Workspace, tmp_path: Path) -> None:
    """Jobs of a cluster are often given one with a long path."""
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    runner = tiny_sweep.oodml(tiny, *WORDS, TMPDIR=str(deep))
    output = runner.communicate(timeout=120)[0]
    assert runner.returncode == 2
    assert f"the path {deep} is too long for one: set TMPDIR=/tmp" in output


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test finds processes in /proc")
def test_an_error_before_the_first_worker_ends_the_server(tiny: Workspace) -> None:
    """In the middle of its imports: it would keep the output open till their end."""
    runner = subprocess.Popen([sys.executable, "-c", IN_VAIN, *WORDS, "--work", str(tiny.root)], text=True,
                              stderr=subprocess.PIPE, start_new_session=True)
    assert runner.wait(90) == 2
    assert not runs_in(runner.pid)
    assert runner.communicate()[1] == "oodml: no images\n"


def test_a_runner_without_gpus_imports_no_torch(tiny: Workspace) -> None:
    """Its server does so for all workers: twice would take seconds of the same cores."""
    code = ("import sys; from benchmark import cli; from benchmark.runs.executors import gpus\n"
            "gpus.may_have_gpu = lambda: False\n"
            f"words = {[*WORDS, '--work', str(tiny.root)]!r}\n"
            "for _ in range(2):\n"
            "    cli.main(words)\n"
            "    loaded = {'torch', 'timm', 'pandas', 'scipy'} & set(sys.modules)\n"
            "    assert not loaded, loaded")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=90)
    assert done.returncode == 0, done.stderr
    assert "1 done" in done.stdout


KILLED = tiny_sweep.PLUGIN + """
import os, signal
from tqdm import tqdm

@register("killed", family="test")
class Killed(Plain):
    def trouble(self):
        tqdm(disable=True)  # as a frozen run has one for its features
        if not (HERE / "once").exists():
            (HERE / "once").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_worker_leaves_no_semaphore_behind(tiny: Workspace) -> None:
    """So ends one that found too little memory; Python warned of its semaphore at the end of the sweep."""
    plugin = tiny.root / "killed.py"
    plugin.write_text(KILLED)
    runner = tiny_sweep.oodml(tiny, *WORDS, "--methods", "killed", "--plugin", str(plugin))
    output = runner.communicate(timeout=120)[0]
    assert runner.returncode == 0, output
    assert "once more" in output
    assert "leaked" not in output


def test_workers_are_told_of_a_daemon_that_is_younger_than_their_server(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(server, "start", started.append)
    monkeypatch.setenv(mps.PIPES, "/of-this-sweep")
    pool = WorkerPool(["cpu"], Progress({}, terminal=False), StopRequest(), deque())
    pool._spawn()
    assert started[0]._args[-1] == "/of-this-sweep"
    mps.join("/of-another")
    assert os.environ[mps.PIPES] == "/of-another"
    mps.join(None)
    assert mps.PIPES not in os.environ


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no server to fork from")
def test_a_stopped_server_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a debugger or a memory-short machine leaves it: neither a start nor an end may wait for it for ever."""
    from multiprocessing import forkserver
    from multiprocessing.forkserver import _forkserver

    preload = forkserver.set_forkserver_preload
    alone = ["benchmark.runs.executors.worker_process"]
    monkeypatch.setattr(forkserver, "set_forkserver_preload", lambda names: preload(alone))
    # ENDING is short, and no torch is imported, since no worker here has a run to do
    monkeypatch.setattr("benchmark.runs.executors.pool.ENDING", 1.0)
    with StopRequest() as stop:
        pool = WorkerPool(["cpu", "cpu"], Progress({}, terminal=False), stop, deque())
        pool.workers[0] = pool._spawn()
        first = _forkserver._forkserver_pid
        os.kill(first, signal.SIGSTOP)
        with monkeypatch.context() as short:
            short.setattr(server, "STARTING", 1.0)
            with pytest.raises((EOFError, ConnectionError)):
                server.start(pool.processes.Process(target=os.getpid))
        pool.workers[1] = pool._spawn()
        assert _forkserver._forkserver_pid != first
        os.kill(_forkserver._forkserver_pid, signal.SIGSTOP)
        pool.close()
        assert [worker.process.is_alive() for worker in pool.workers if worker] == [False, False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no server to fork from")
def test_a_stopped_worker_whose_server_died_is_ended() -> None:
    """multiprocessing takes it for ended and would not kill it: the sweep waited for its run for ever."""
    with StopRequest() as stop:
        pool = WorkerPool(["cpu"], Progress({}, terminal=False), stop, deque(), watch=Watch(stale=0.6))
        worker = pool.workers[0] = pool._spawn()
        worker.job = object()  # type: ignore[assignment]
        deadline = time.monotonic() + 60
        try:
            while not worker.heartbeats.value:  # by now it holds nothing of its server's
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(worker.process.pid, signal.SIGSTOP)
            server.end()
            assert not worker.process.is_alive()
            while not worker.pipe.poll(0.05):
                assert time.monotonic() < deadline
                pool._check_heartbeats()
            with pytest.raises(EOFError):
                worker.pipe.recv()
            assert worker.killed
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process.pid, signal.SIGKILL)
            pool.close()
