"""The `oodml` command: finds the commands in `benchmark/commands/` and turns errors into one line."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pkgutil
import sys
import threading
import warnings
from pathlib import Path

import click

from benchmark import __version__, commands
from benchmark.utils import bugs
from benchmark.utils.children import own_children
from benchmark.utils.errors import NO_ROOM, NoRoom, is_user_error
from benchmark.utils.terminal import LONGEST, end_bars, harmless_output, plain_warning, reader_gone
from reports.safe_text import cut

RESUMING = "leave --redo out then, which would begin anew what has been done again by now"


class Commands(commands.Group):
    """A group whose members are the files of `benchmark/commands/`."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        return importlib.import_module(f"benchmark.commands.{name}").command

    def invoke(self, context: click.Context) -> object:
        try:
            return super().invoke(context)
        except BrokenPipeError as error:  # which click would take for its own
            kind = ReaderGone if reader_gone() else Severed
            raise kind(str(error)).with_traceback(error.__traceback__) from error


class ReaderGone(Exception):
    """Whoever read the output (head, less) has seen enough."""


class Severed(Exception):
    """A pipe broke that is not the output's: a process that this one had started is gone."""


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oodml")
def cli() -> None:
    """Benchmark deep metric learning under distribution shift: build splits, run methods, report."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: one line and exit code 2 for a user's mistake; for ours one line, a file and exit code 1."""
    facts: dict[str, Path] = {}
    redo = "--redo" in (sys.argv if arguments is None else arguments)
    with harmless_output(), warnings.catch_warnings(), own_children(), bugs.of_threads(facts):
        warnings.formatwarning = plain_warning
        try:
            _run(arguments, facts, redo)
        except Exception as error:
            if is_user_error(error):
                _say(f"oodml: {error}{'; ' + RESUMING if redo and isinstance(error, NoRoom) else ''}")
                sys.exit(2)
            if os.environ.get(bugs.DEBUG):
                raise
            _say(bugs.line(error, facts.get("work")))
            sys.exit(1)


def _end(code: int) -> None:
    """Ends at once, as Ctrl-C asks: Python itself would wait for a thread that imports a library or fetches weights."""
    if all(thread is threading.main_thread() or thread.daemon for thread in threading.enumerate()):
        sys.exit(code)
    import multiprocessing

    for child in multiprocessing.active_children():
        child.terminate()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)


def _say(text: str) -> None:
    click.echo(cut(text, LONGEST), err=True)


def _run(arguments: list[str] | None, facts: dict[str, Path], redo: bool) -> None:
    """Does what the words ask for, --redo among them or not; `facts` has the working folder after that."""
    try:
        try:
            code = cli.main(args=arguments, prog_name="oodml", standalone_mode=False, obj=facts)
            if code:  # click returns that of its own `Exit`
                sys.exit(code)
        finally:
            end_bars()
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, EOFError):  # click takes the end of any file for Ctrl-D
            raise abort.__cause__ from None
        _say(f"oodml: stopped; the same command{' without --redo' if redo else ''} goes on with what was finished")
        _end(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except ReaderGone:
        # not our mistake, and Python must not complain again at exit; what was not done yet is not, so the exit code is
        # that of a program that SIGPIPE ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if os.environ.get(bugs.DEBUG):
            raise
        where = f" {error.filename}" if error.filename else ""
        _say(f"oodml: {error.strerror or error}{where}{_remedy(error, redo)}")
        sys.exit(2)


def _remedy(error: OSError, redo: bool) -> str:
    """What helps where a disk cannot be written; '' for other errors."""
    if error.errno in NO_ROOM:
        return (": free some space, or write to another disk (--work DIR, --out), then give the same command again"
                + f"; {RESUMING}" * redo)
    if error.errno == errno.EROFS:
        return ": write to another folder (--work DIR, --out)"
    if error.errno in (errno.EACCES, errno.EPERM):
        return ": see to its permissions or, where it should be written, take another folder (--work DIR, --out)"
    return ""
