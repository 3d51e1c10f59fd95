"""The states of runs: done, running, failed or missing, read off the working folder alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from benchmark.runs import locks
from benchmark.utils.errors import UserError
from reports import ReportError, records
from reports.safe_text import one_line
from reports.storage.by_class import SUMMED
from reports.storage.migration import IncompatibleRecord
from reports.wording import duration

KINDS = ("done", "running", "failed", "missing")


@dataclass(frozen=True)
class RunState:
    """The state of one run: one of KINDS, `damaged` (unreadable record) or `incompatible` (of another version)."""

    kind: str
    text: str = ""
    """Why there is no result; also of a missing run whose last attempt met a full disk or GPU."""
    begun: bool = False
    """Whether there is a checkpoint to resume."""
    remedy: str = ""
    code: str = ""
    """Of a finished run of one of the suite's own methods: the hash of its files."""
    commit: str = ""
    """The commit that made it; empty where files differed from that."""


def check_finished(folder: Path) -> None:
    """A UserError where this is not the folder of a finished run."""
    if not (folder / records.RECORD).is_file():
        raise UserError(f"{folder} is not the folder of a finished run, such as WORK/runs/DATASET/SPLIT/METHOD/s0-HASH")


def look(folder: Path) -> RunState:
    """The state of the run in this folder."""
    if (folder / records.RECORD).exists():
        return _recorded(folder)
    begun = any(folder.glob("checkpoint-*"))
    holder = locks.newest(folder)
    if holder is not None and not holder.released and not holder.gone:
        return RunState("running", _last_heartbeat(holder), begun)
    try:
        failure = json.loads((folder / records.FAILURE).read_text(encoding="utf-8"))
        cause = one_line(str(failure.get("cause", "?")).partition("\n")[0])
        return RunState("missing" if failure.get("passing") else "failed", cause, begun,
                        str(failure.get("remedy") or ""))
    except FileNotFoundError:
        return RunState("missing", begun=begun)
    except (OSError, ValueError, AttributeError, RecursionError):
        return RunState("failed", "its failure.json cannot be read", begun)


def _last_heartbeat(holder: locks.Holder) -> str:
    if holder.age < 2 * locks.STALE:
        return f"{holder.owner}, heartbeat {max(0, holder.age):.0f} s ago"
    return (f"{holder.owner}, no heartbeat for {duration(holder.age)}: if it is dead, the command that started it "
            "takes the run over")


def _recorded(folder: Path) -> RunState:
    try:
        made = records.read(folder)["provenance"]
    except IncompatibleRecord as error:
        return RunState("incompatible", str(error))
    except ReportError as error:
        return RunState("damaged", str(error))
    except OSError as error:  # it may be sound: it is not set aside, and not run again unasked
        return RunState("failed", f"its record cannot be read: {error}")
    return RunState("done", code=str(made.get("code") or ""),
                    commit="" if made.get("dirty") else str(made.get("commit") or ""))


def set_aside(folder: Path) -> list[Path]:
    """Keep a damaged record, and all that was computed from its run, as `damaged-N-NAME`: the run can be done again.

    Nothing where another runner did so.
    """
    return _rename(folder, "damaged") if look(folder).kind == "damaged" else []


def keep_before(folder: Path) -> list[Path]:
    """Keep the record or the failure of a run, and all that was computed from it, as `before-N-NAME`: it is done anew.

    What an attempt has saved on its way is removed, unless one is under way: anew is from the first epoch.
    """
    if look(folder).kind != "running":
        for saved in folder.glob("checkpoint-*"):
            shutil.rmtree(saved, ignore_errors=True)
    return _rename(folder, "before")


def _rename(folder: Path, word: str) -> list[Path]:
    """Put a word and a new number before the names of the record and of what goes with it; the paths, its own last."""
    from reports.html.extras import INSPECTION  # pages and packing are not needed to tell the state of a run
    from reports.packing import BESIDE

    # the record last: killed in between, the run is done as before, and lacks at most what can be computed again
    names = (*BESIDE, SUMMED, INSPECTION.partition("/")[0], records.FAILURE, records.RECORD)
    number = next(n for n in itertools.count(1) if not any(folder.glob(f"{word}-{n}[-.]*")))
    renamed = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):  # most are not there, or another runner was faster
            renamed.append((folder / name).rename(folder / f"{word}-{number}-{name}"))
    return renamed
