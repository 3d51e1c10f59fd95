"""An error that nobody foresaw ends a command in one line that names a file with the traceback."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import click
import pytest

from benchmark import cli
from benchmark.commands import workspace_options
from benchmark.utils import bugs
from benchmark.utils.files import disk_errors
from benchmark.utils.workspace import Workspace


@click.command(name="status")
@click.argument("how")
@click.option("--redo", is_flag=True)
@workspace_options
def broken(workspace: Workspace, how: str, redo: bool) -> None:
    """In place of a command: does what a bug might."""
    from tqdm import tqdm

    for i in tqdm(range(5), ascii=True):
        if i == 2 and how == "thread":
            thread = threading.Thread(target=lambda: {}["missing"])
            thread.start()
            thread.join()
        elif i == 2:
            errors: dict[str, BaseException] = {
                "pipe": BrokenPipeError(32, "Broken pipe"),
                "error": RuntimeError("two\nlines \x1b[31m"), "eof": EOFError(), "memory": MemoryError(),
                "disk": OSError(5, "Input/output error", "/x"), "full": OSError(28, "No space left on device"),
                "denied": OSError(13, "Permission denied", "/x")}
            with disk_errors(Path("/y")) if how == "file" else contextlib.nullcontext():
                raise errors["full" if how == "file" else how]


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.Commands, "get_command", lambda self, context, name: broken)
    monkeypatch.delenv(bugs.DEBUG, raising=False)


def ended(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int | str | None, list[str]]:
    """The exit code and what a terminal shows of stderr beside the bar: each line after its last return."""
    with pytest.raises(SystemExit) as exit:
        cli.main(["status", *words])
    shown = [line.split("\r")[-1] for line in capsys.readouterr().err.splitlines()]
    return exit.value.code, [line for line in shown if line and not re.match(r" *\d+%\|", line)]


@pytest.mark.parametrize(("how", "said"), [("error", "RuntimeError: two lines "), ("eof", "EOFError "),
                                           ("pipe", "Severed: [Errno 32] Broken pipe ")])
def test_one_line_and_a_file_with_the_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str,
                                                said: str) -> None:
    code, (line,) = ended(capsys, how, "--work", str(tmp_path))
    assert code == 1
    assert line.startswith(f"oodml: {said}")
    assert re.search(r"\(tests/test_bugs\.py, line \d+\)", line)
    assert "\x1b" not in line
    (file,) = (tmp_path / bugs.FOLDER).iterdir()
    assert str(file) in line
    text = file.read_text()
    assert "Traceback (most recent call last)" in text
    assert "in broken" in text
    assert re.search(r"^version: \d", text, re.MULTILINE)


def test_without_a_working_folder_the_file_is_a_temporary_one(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    _, (line,) = ended(capsys, "error", "--work", str(tmp_path / "absent"))
    assert [path.name for path in tmp_path.iterdir()] == [Path(re.findall(r"(\S+) has the traceback", line)[0]).name]
    work = tmp_path / "work"
    work.mkdir()
    (work / bugs.FOLDER).touch()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(work / bugs.FOLDER / "nowhere"))
    assert "no file could be written" in ended(capsys, "error", "--work", str(work))[1][0]


def test_what_is_no_bug_is_not_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, (line,) = ended(capsys, "memory", "--work", str(tmp_path))
    assert (code, line.partition(":")[0], "main memory ran out" in line) == (1, "oodml", True)
    assert ended(capsys, "disk", "--work", str(tmp_path)) == (2, ["oodml: Input/output error /x"])
    code, (line,) = ended(capsys, "full", "--work", str(tmp_path))
    assert line.startswith("oodml: No space left on device: free some space, or write to another disk")
    assert not (tmp_path / bugs.FOLDER).exists()


@pytest.mark.parametrize("how", ["full", "file"])
def test_after_a_full_disk_nothing_is_done_anew_that_was(capsys: pytest.CaptureFixture[str], how: str) -> None:
    """`--redo` sets aside what there is: given again, it would do so with what it has done by then."""
    code, (line,) = ended(capsys, how)
    assert (code, "--redo" in line) == (2, False)
    code, (line,) = ended(capsys, how, "--redo")
    assert code == 2
    assert line.endswith("; leave --redo out then, which would begin anew what has been done again by now")


def test_what_may_not_be_written_is_told_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    code, (line,) = ended(capsys, "denied")
    assert code == 2
    assert line == ("oodml: Permission denied /x: see to its permissions or, where it should be written, take another "
                    "folder (--work DIR, --out)")


def test_a_thread_of_the_background_says_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["status", "thread", "--work", str(tmp_path)])
    lines = [line for line in re.split(r"[\r\n]+", capsys.readouterr().err) if "oodml" in line]
    assert len(lines) == 1
    assert "KeyError: 'missing'" in lines[0]


def test_who_asks_for_the_traceback_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bugs.DEBUG, "1")
    with pytest.raises(RuntimeError, match="two"):
        cli.main(["status", "error", "--work", str(tmp_path)])
    with pytest.raises(OSError, match="output"):
        cli.main(["status", "disk", "--work", str(tmp_path)])


def test_ctrl_c_does_not_wait_for_a_thread() -> None:
    """A library that is imported, or weights that are fetched, beside the main thread."""
    code = ("import click, signal, time\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # which a shell has its background jobs ignore
            "from concurrent.futures import ThreadPoolExecutor\n"
            "from benchmark import cli\n"
            "@click.command()\n"
            "def slow():\n"
            "    pool = ThreadPoolExecutor(1)\n"
            "    pool.submit(time.sleep, 60)\n"
            "    click.echo('begun')\n"
            "    time.sleep(60)\n"
            "cli.Commands.get_command = lambda self, context, name: slow\n"
            "cli.main(['slow'])\n")
    child = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.5)  # until it sleeps
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=25)
    told = "oodml: stopped; the same command goes on with what was finished"
    assert (child.returncode, out, err.strip()) == (130, "", told)
