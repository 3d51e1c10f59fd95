"""The working folder, where everything that is made lies, and the data folder, where datasets are read from."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmark.utils import leftovers
from benchmark.utils.errors import UserError


@dataclass(frozen=True)
class Workspace:
    """Where things are: `--work` or OODML_WORK (default `work`), `--data` or OODML_DATA (default `work/data`)."""

    root: Path
    data: Path

    @classmethod
    def at(cls, work: str | Path | None = None, data: str | Path | None = None) -> Workspace:
        root = Path(work or os.environ.get("OODML_WORK") or "work")
        try:
            str(root.absolute()).encode()
        except UnicodeEncodeError:
            raise UserError(f"the path of the working folder {root.absolute()} is not UTF-8, as records and pages are; "
                            "give another with --work DIR") from None
        return cls(root, Path(data or os.environ.get("OODML_DATA") or root / "data"))

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def splits(self) -> Path:
        return self.root / "splits"

    @property
    def plans(self) -> Path:
        return self.root / "plans"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def leaderboard(self) -> Path:
        return self.root / "leaderboard"

    def option(self) -> str:
        """What another command needs to find this folder: nothing, or its `--work`.

        >>> Workspace.at("elsewhere").option()
        ' --work elsewhere'
        """
        return "" if Workspace.at(None, None).root == self.root else f" --work {shlex.quote(str(self.root))}"

    def dataset(self, name: str) -> str:
        """A dataset as it is read: one's own may be called by the name that it has in every output.

        The command that built its ladder says where its images lie.
        """
        manifest = self.splits / f"{name}.json"
        if not re.fullmatch(r"[\w-]+", name) or not manifest.is_file():
            return name
        try:
            words = shlex.split(json.loads(manifest.read_bytes())["made"]["command"])
            source = words[words.index("--dataset") + 1]
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return name
        return source if source.startswith(("folder:", "csv:", "union:", "parquet:", "wds:")) else name

    def writable(self) -> Workspace:
        """Itself, after making sure that something can be written here."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".oodml.writable.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(f"cannot write to the working folder {self.root}: {error.strerror}; "
                            "give another with --work DIR") from None
        leftovers.remove((self.root, self.splits, self.plans))
        return self


def workspace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--work` and `--data` to a click command, which gets them as one `workspace`.

    A command that is refused leaves no empty working folder behind.
    """

    @click.option("--work", type=click.Path(file_okay=False), help="Working folder [OODML_WORK, default: work].")
    @click.option("--data", type=click.Path(file_okay=False),
                  help="Folder of datasets [OODML_DATA, default: WORK/data].")
    def wrapped(work: str | None, data: str | None, **arguments: Any) -> Any:
        workspace = Workspace.at(work, data)
        facts = click.get_current_context().obj
        if isinstance(facts, dict):
            facts["work"] = workspace.root
        if isinstance(arguments.get("dataset"), str):
            arguments["dataset"] = workspace.dataset(arguments["dataset"])
        made = [folder for folder in (workspace.root, *workspace.root.parents) if not os.path.lexists(folder)]
        try:
            return command(workspace=workspace, **arguments)
        except BaseException:
            with contextlib.suppress(OSError):  # the first that was not made, or holds something, ends it
                for folder in made:
                    folder.rmdir()
            raise

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", []) + wrapped.__click_params__  # type: ignore[attr-defined]
    return wrapped
