"""The working folder, where everything that is made lies, and the data folder, where datasets are read from."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmark.utils.errors import UserError


@dataclass(frozen=True)
class Workspace:
    """Where things are: `--work` or OODML_WORK (default `work`), `--data` or OODML_DATA (default `work/data`)."""

    root: Path
    data: Path

    @classmethod
    def at(cls, work: str | Path | None = None, data: str | Path | None = None) -> Workspace:
        root = Path(work or os.environ.get("OODML_WORK") or "work")
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

    def writable(self) -> Workspace:
        """Itself, after making sure that something can be written here."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(f"cannot write to the working folder {self.root}: {error.strerror}; "
                            "give another with --work DIR") from None
        return self


def workspace_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--work` and `--data` to a click command, which gets them as one `workspace`."""

    @click.option("--work", type=click.Path(file_okay=False), help="Working folder [OODML_WORK, default: work].")
    @click.option("--data", type=click.Path(file_okay=False), 
                  help="Folder of datasets [OODML_DATA, default: WORK/data].")
    def wrapped(work: str | None, data: str | None, **arguments: Any) -> Any:
        return command(workspace=Workspace.at(work, data), **arguments)

    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    wrapped.__click_params__ = getattr(command, "__click_params__", []) + wrapped.__click_params__  # type: ignore[attr-defined]
    return wrapped
