"""The working folder, where everything that is made lies, and the data folder, where datasets are read from."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from benchmark.utils import leftovers
from benchmark.utils.encodings import refuse_other
from benchmark.utils.errors import UserError

SPEC, ENVIRONMENT = "spec.json", "env.json"
"""What a run's folder holds before its record: what is to be trained, and where it is or was."""


@dataclass(frozen=True)
class Workspace:
    """Where things are: `--work` or OODML_WORK (default `work`), `--data` or OODML_DATA (default `work/data`)."""

    root: Path
    data: Path

    @classmethod
    def at(cls, work: str | Path | None = None, data: str | Path | None = None) -> Workspace:
        root = Path(work or os.environ.get("OODML_WORK") or "work")
        refuse_other(str(root.absolute()), f"the path of the working folder {root.absolute()}",
                     ", as records and pages are; give another with --work DIR")
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

    def writable(self) -> Workspace:
        """Itself, after making sure that something can be written here."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = leftovers.unfinished(self.root / "writable")
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise UserError(f"cannot write to the working folder {self.root}: {error.strerror}; "
                            "give another with --work DIR") from None
        leftovers.remove((self.root, self.splits, self.plans))
        return self
