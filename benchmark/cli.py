"""The `oodml` command: finds the commands in `benchmark/commands/` and turns users' mistakes into one line."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import warnings

import click

from benchmark import __version__, commands
from benchmark.utils.children import own_children
from benchmark.utils.errors import is_user_error
from benchmark.utils.terminal import harmless_output
from reports.storage.text import cut

LONGEST = 2000
"""Characters of a message."""


class Commands(click.Group):
    """A group whose members are the files of `benchmark/commands/`."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        return importlib.import_module(f"benchmark.commands.{name}").command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="oodml")
def cli() -> None:
    """Benchmark deep metric learning under distribution shift: build splits, run methods, report."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point: exit code 2 and one line for a user's mistake, a traceback only for ours."""
    with harmless_output(), warnings.catch_warnings(), own_children():
        warnings.formatwarning = _one_line
        _main(arguments)


def _one_line(message: Warning | str, *where: object, **more: object) -> str:
    """A warning as it is shown: without the line of the code that gave it."""
    return cut(f"oodml: {message}", LONGEST) + "\n"


def _main(arguments: list[str] | None) -> None:
    try:
        cli.main(args=arguments, prog_name="oodml", standalone_mode=False)
    except click.exceptions.Abort as abort:
        if isinstance(abort.__cause__, EOFError):  # click takes the end of any file for Ctrl-D
            raise abort.__cause__ from None
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except BrokenPipeError:
        # the reader (head, less) went away: not our mistake, and Python must not complain again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        click.echo(cut(f"oodml: {error.strerror or error}{where}", LONGEST), err=True)
        sys.exit(2)
    except Exception as error:
        if not is_user_error(error):
            raise
        click.echo(cut(f"oodml: {error}", LONGEST), err=True)
        sys.exit(2)
