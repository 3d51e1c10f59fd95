"""The record of a run: its atomic writing, and the collecting of folders of them, loose or packed, into one table.

`record.json` is written last and is the done mark of a run; `failure.json` tells why there is none. Packed runs lie
many in a file (`packed`), and `failures.jsonl` beside them tells of those without a result.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports import ReportError
from reports.safe_text import one_line, printable
from reports.storage import packed, paths
from reports.storage.json_text import from_json, may_hold_controls
from reports.storage.migration import SCHEMA, current
from reports.storage.row import FACTS, row_of
from reports.storage.schema import SOURCES, check
from reports.wording import near

if TYPE_CHECKING:
    import pandas as pd

DAMAGES = (ReportError, ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError)
"""What reading a damaged file may raise."""

__all__ = ["FACTS", "SCHEMA", "SOURCES", "check", "collect", "metrics", "read", "run_folder", "scan",
           "scan_checked", "still_failed", "write", "write_failure"]

RECORD, FAILURE, FAILURES = "record.json", "failure.json", "failures.jsonl"
FAILURE_FACTS = ("dataset", "split", "method", "seed", "protocol", "backbone", "kind", "cause", "remedy", "state",
                 "path")


def run_folder(runs: Path, dataset: str, split: int, method: str, seed: int, identity: str) -> Path:
    """The folder of a run: DATASET/SPLIT/METHOD/sSEED-HASH8; the colon of `a:b` is no good in a file name.

    A ReportError where a name would lead elsewhere.

    >>> run_folder(Path("runs"), "cub", 5, "mixup:margin", 0, "0123456789abcdef").as_posix()
    'runs/cub/5/mixup@margin/s0-01234567'
    """
    own = paths.plain(f"s{seed}-{identity[:8]}", "identity")
    return runs / paths.plain(dataset, "dataset") / str(split) / paths.plain(paths.of_method(method), "method") / own


def _finite(value: Any) -> Any:
    """The value with what JSON cannot say (a diverged loss, an infinite distance) as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, (list, tuple)) else value


def _write_json(path: Path, content: dict[str, Any]) -> Path:
    try:
        text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise ReportError(f"cannot write {path}: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    return paths.write(path, text + "\n", flush=True)


def write(folder: Path, record: dict[str, Any]) -> Path:
    """Checks the record and puts it as `record.json` into the folder, whole or not at all; clears an old failure."""
    made = record.get("provenance")
    if isinstance(made, dict) and isinstance(made.get("command"), str):  # a stray key in it must not cost a result
        record = record | {"provenance": made | {"command": printable(made["command"])}}
    check(record)
    path = _write_json(Path(folder) / RECORD, _finite(record))
    (Path(folder) / FAILURE).unlink(missing_ok=True)
    return path


def write_failure(folder: Path, cause: dict[str, Any]) -> Path:
    """Puts `failure.json` into the folder: `cause` is required, of the rest FAILURE_FACTS are shown in reports."""
    if not cause.get("cause"):
        raise ReportError("a failure needs a 'cause' that says why the run failed")
    return _write_json(Path(folder) / FAILURE, _finite({"schema": SCHEMA, **cause}))


def _load(path: Path) -> tuple[Any, bool]:
    """The content of a JSON file, and whether its texts may hold control characters.

    An OSError where the file is out of reach, as another user's may be: it may be sound, and is kept.
    """
    try:
        raw = paths.content(path)
        return from_json(raw), may_hold_controls(raw)
    except (ValueError, OSError) as error:
        if paths.out_of_reach(error):
            raise
        raise ReportError(f"{path} is damaged ({error}); delete it and run again") from None


def read(path: Path | str) -> dict[str, Any]:
    """The record in a file, in a run's folder or in a pack (FILE/RUN), of an older schema as today's would have it.

    What is cut or damaged is a ReportError, what is of a newer schema `migration.IncompatibleRecord`, what cannot be
    read an OSError.
    """
    path = Path(path)
    inside = path.parent.name.endswith(packed.ENDING)
    path = path / RECORD if not inside and path.is_dir() else path
    try:
        content, suspect = (packed.record(path), packed.suspect(path)) if inside else _load(path)
        return check(current(content) if isinstance(content, dict) else content, texts=suspect)
    except ReportError as error:
        message = str(error)
        raise type(error)(message if str(path) in message else f"{path}: {message}") from None


def _files(folder: str, closed: Callable[[OSError], None]) -> Iterator[tuple[str, str]]:
    """Every (folder, name of a file about runs) below a folder, in a stated order; a record outranks a failure.

    `closed` is called with the error of each folder that cannot be read.

    Folders whose name begins with a dot are half made: a run or a pack that a killed command left.
    """
    for root, folders, files in os.walk(folder, onerror=closed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        mark = RECORD if RECORD in files else FAILURE if FAILURE in files else None
        if mark:
            yield root, mark
        yield from ((root, name) for name in sorted(files) if name.endswith(packed.ENDING) or name == FAILURES)


def _failure(folder: Path, root: Path, cause: dict[str, Any], state: str) -> dict[str, Any]:
    """What is told of a failure; what its file does not say is read off its path DATASET/SPLIT/METHOD/sSEED-HASH8."""
    parts = root.relative_to(folder).parts[-4:]
    known: dict[str, Any] = dict(zip(("dataset", "split", "method"), parts)) if len(parts) == 4 else {}
    if known and parts[3][:1] == "s":
        known["seed"] = parts[3][1:].split("-")[0]
    known |= {key: one_line(str(cause[key])) for key in FAILURE_FACTS if cause.get(key) is not None}
    row = {key: known.get(key) for key in FAILURE_FACTS} | {"state": state, "path": str(root)}
    return row | {key: str(row[key]) for key in ("split", "seed") if row[key] is not None}


def _packed_failures(path: Path) -> list[dict[str, Any]]:
    """The lines of `failures.jsonl`; a ReportError where one is not that."""
    rows = []
    for number, line in enumerate(paths.content(path).splitlines(), 1):
        try:
            row = from_json(line)
            if not isinstance(row, dict) or not all(isinstance(row.get(key), str | None) for key in FAILURE_FACTS):
                raise ValueError("no object of texts")
        except ValueError as error:
            raise ReportError(f"{path}, line {number} is damaged ({error}); pack the runs again") from None
        told = {"cause": one_line(row.get("cause") or ""), "state": row.get("state") or "failed", "path": str(path)}
        rows.append({key: row.get(key) for key in FAILURE_FACTS} | told)
    return rows


def _runs_inside(path: Path, shared: dict[str, Any], found: dict[str, dict[str, Any]]) -> None:
    """Adds the runs of a packed file; those that cannot be read are a ReportError, once the others are there."""
    damaged: list[str] = []
    for run in packed.read(path):
        try:
            row = row_of(read(path / run), path / run, shared)
            found.setdefault(row["identity"], row)
        except DAMAGES as error:
            damaged.append(str(error) or type(error).__name__)
    if damaged:
        others = f" (and {len(damaged) - 1} more of its runs)" if len(damaged) > 1 else ""
        raise ReportError(f"{path}: {damaged[0].removeprefix(f'{path}/')}{others}")


def rows(folder: Path | str | Iterable[Path | str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What `scan` gives, as plain rows."""
    folders = [Path(folder)] if isinstance(folder, (str, Path)) else [Path(f) for f in folder]
    found: list[dict[str, Any]] = []
    inside: dict[str, dict[str, Any]] = {}
    lost: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for top in folders:
        closed: list[OSError] = []
        for name, mark in _files(str(top), closed.append):
            path = Path(name) / mark
            try:
                if mark == RECORD:
                    found.append(row_of(read(path), path.parent, shared))
                elif mark == FAILURE:
                    cause, _ = _load(path)
                    lost.append(_failure(top, path.parent, cause if isinstance(cause, dict) else {}, "failed"))
                elif mark == FAILURES:
                    lost += _packed_failures(path)
                else:
                    _runs_inside(path, shared, inside)
            except DAMAGES as error:
                damage = {"kind": "ReportError", "cause": one_line(f"{'' if str(path) in str(error) else f'{path}: '}"
                                                                   f"{str(error) or type(error).__name__}")}
                lost.append(_failure(top, path.parent, damage, "damaged") | {"path": str(path)})
        for lack in closed:
            if paths.out_of_reach(lack):  # another was removed meanwhile
                told = one_line(f"{lack.filename} cannot be read ({lack.strerror}): the runs in it are left out")
                lost.append(_failure(top, Path(lack.filename), {"kind": "ReportError", "cause": told}, "damaged"))
    loose = {row["identity"] for row in found}
    return found + [row for identity, row in inside.items() if identity not in loose], lost


def scan(folder: Path | str | Iterable[Path | str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(finished runs, runs without a result) below one folder or several, loose and packed; reads each file once.

    A packed run that lies there loose as well is taken once. The second table has one row for each failure (state
    'failed') and each unreadable record ('damaged').
    """
    import pandas as pd  # what only reads or writes single records does without it

    found, lost = rows(folder)
    frame = pd.DataFrame(found)
    for missing in [column for column in FACTS if column not in frame]:
        frame[missing] = None
    extra = sorted(set(frame.columns) - set(FACTS), key=lambda column: (":" in column, column))
    return frame[[*FACTS, *extra]].copy(), pd.DataFrame(lost, columns=list(FAILURE_FACTS))


def collect(folder: Path | str | Iterable[Path | str]) -> pd.DataFrame:
    """One row a finished run below the folder; the FACTS, then a column for each metric.

    Columns `recall@1` are of the rule `last`, `best-test:recall@1` of another rule, `domain:latin:recall@1` of one
    part of a union, `structure:test:pi_intra` of the embedding, `cost:seconds` of the run. A damaged record is
    warned of by name; `scan` tells of it, too.
    """
    frame, lost = scan(_present([folder] if isinstance(folder, (str, Path)) else folder))
    for cause in lost.loc[lost["state"] == "damaged", "cause"]:
        warnings.warn(cause, stacklevel=2)
    return frame


PUBLISHED = Path(__file__).parent / "data" / "records"
HOW = (f"`oodml run` makes some, and `oodml report --records {shlex.quote(str(PUBLISHED / 'photos'))}` shows the "
       "published ones on photographs (in the folder glyphs beside it: those on the embedded glyphs)")
"""What to do where there is no run: of the published ones, first those that most will look for."""


def _present(folders: Iterable[Path | str]) -> list[Path]:
    """The folders themselves; a ReportError where one is not there, as where its name was mistyped."""
    paths = [Path(folder) for folder in folders]
    for path in paths:
        if not path.is_dir():
            said = f"{path} is a file and no folder" if path.is_file() else f"there is no folder {path}"
            raise ReportError(f"{said}; give one with records of runs ({HOW})")
    return paths


def scan_checked(folder: Iterable[Path | str], datasets: list[str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What `scan` finds, of some datasets only if asked; a ReportError where no finished run is among it.

    Failures are left out where another run of their cell is done by now: a plug-in that was mended has a new identity.
    """
    folders = _present(folder)
    frame, lost = scan(folders)
    where = ", ".join(str(path) for path in folders)
    if datasets:
        unknown = sorted(set(datasets) - set(frame["dataset"]))
        if unknown:
            known = sorted(frame["dataset"].unique())
            raise ReportError(f"no finished run of the dataset '{unknown[0]}'{near(unknown[0], known)} below {where}; "
                              f"there are: {', '.join(known) or 'none'}")
        frame = frame[frame["dataset"].isin(datasets)].reset_index(drop=True)
        lost = lost[lost["dataset"].isin(datasets)].reset_index(drop=True)
    lost = still_failed(lost, frame)
    if frame.empty:
        cause = f" ({len(lost)} without a result, the first: {lost['cause'].iloc[0]})" if len(lost) else ""
        raise ReportError(f"no finished run below {where}{cause}; {HOW}")
    return frame, lost


def _cells(runs: pd.DataFrame) -> list[tuple[str, ...]]:
    """The cell of each run or failure, as far as it is known: dataset, split, method, seed, protocol, backbone."""
    rows = runs[["dataset", "split", "method", "seed", "protocol", "backbone"]].itertuples(index=False, name=None)
    return [tuple(str(part) for part in row if part is not None and part == part) for row in rows]


def still_failed(lost: pd.DataFrame, *known: pd.DataFrame) -> pd.DataFrame:
    """Of runs without a result those that failed in cells that are not among the known ones, and the damaged ones.

    Not every failure tells its cell beyond the seed.
    """
    cells = {part for some in known for cell in _cells(some) for part in (cell, cell[:4])} if len(lost) else set()
    settled = [state == "failed" and cell in cells for state, cell in zip(lost["state"], _cells(lost))]
    return lost.drop(lost.index[settled]) if any(settled) else lost


def metrics(frame: pd.DataFrame) -> list[str]:
    """The metrics of the rule `last` in a collected table."""
    numeric = frame.select_dtypes("number").columns
    return [column for column in numeric if column not in FACTS and ":" not in column]
