"""Records wherever they lie, loose or packed, as one table; and the way from one form to the other.

Packed records are small enough to be committed and travel with their project. What is kept is kept bit for bit; left
out are outcomes of single queries (summed by class instead, from which every test of recall@1 is made), the values of
single episodes, the name of the host, and of training curves all but a few points.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError, crossing, fewshot, outcomes, packed, records
from reports.migration import current
from reports.records import FACTS, FAILURE_FACTS

FAILURES = "failures.jsonl"
POINTS = 16
"""Points of a training curve that are packed."""
_MAKE = "`oodml run --dataset glyphs --protocol demo` makes records"


def scan(folder: Path | str | Iterable[Path | str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(finished runs, runs without a result) below one folder or several, loose and packed; see `records.scan`."""
    folders = [Path(folder)] if isinstance(folder, (str, Path)) else [Path(f) for f in folder]
    frame, lost = records.scan(folders)
    rows: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    shared: dict[str, Any] = {}
    for path in _files(folders):
        try:
            if path.name == FAILURES:
                failed += [json.loads(line) | {"path": str(path)} for line in path.read_text("utf-8").split("\n")[:-1]]
            else:
                rows += [records._row(read(path / name), path / name, shared) for name in packed.read(path)]
        except (ReportError, ValueError) as error:
            failed.append({"kind": "ReportError", "cause": str(error), "state": "damaged", "path": str(path)})
    if rows:
        parts = [part for part in (frame, pd.DataFrame(rows)) if len(part)]
        frame = pd.concat(parts, ignore_index=True).drop_duplicates("identity", ignore_index=True)
        extra = sorted(set(frame.columns) - set(FACTS), key=lambda column: (":" in column, column))
        frame = frame.reindex(columns=[*FACTS, *extra])
    if failed:
        lost = pd.DataFrame([*lost.to_dict("records"), *failed], columns=list(FAILURE_FACTS))
    return frame, lost


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for top in folders:
        for root, inside, files in os.walk(top):
            inside.sort()
            yield from (Path(root, name) for name in sorted(files) if name.endswith(packed.ENDING) or name == FAILURES)


def scan_checked(folder: Iterable[Path | str], datasets: list[str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What `scan` finds, of some datasets only if asked; a ReportError where no finished run is among it."""
    folders = [Path(path) for path in folder]
    for path in folders:
        if not path.is_dir():
            raise ReportError(f"there is no folder {path}; {_MAKE}")
    frame, lost = scan(folders)
    where = ", ".join(str(path) for path in folders)
    if datasets:
        unknown = sorted(set(datasets) - set(frame["dataset"]))
        if unknown:
            known = ", ".join(sorted(frame["dataset"].unique())) or "none"
            raise ReportError(f"no finished run of the dataset '{unknown[0]}' below {where}; there are: {known}")
        frame = frame[frame["dataset"].isin(datasets)].reset_index(drop=True)
        lost = lost[lost["dataset"].isin(datasets)].reset_index(drop=True)
    if frame.empty:
        cause = f" ({len(lost)} without a result, the first: {lost['cause'].iloc[0]})" if len(lost) else ""
        raise ReportError(f"no finished run below {where}{cause}; {_MAKE}")
    return frame, lost


def thinned(curve: list[dict[str, Any]], most: int = POINTS) -> list[dict[str, Any]]:
    """At most so many points of a training curve, those with a score before others, numbers to five digits.

    >>> thinned([{"epoch": 1, "loss": 2.123456}, {"epoch": 2, "loss": 1.0, "recall@1": 0.5}])
    [{'epoch': 2, 'loss': 1.0, 'recall@1': 0.5}]
    """
    scored = [point for point in curve if set(point) - {"epoch", "loss"}] or list(curve)
    if len(scored) > most:
        scored = [scored[round(i * (len(scored) - 1) / (most - 1))] for i in range(most)]
    return [{key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in point.items()}
            for point in scored]


def _entry(run: Path, record: dict[str, Any], sides: dict[str, Any]) -> packed.Entry:
    """A record with what lies beside it, as it is packed."""
    keys = sorted({key for point in record["curve"] for key in point})
    curve = thinned(record["curve"])
    columns: Any = {key: [point.get(key) for point in curve] for key in keys}
    made = {key: value for key, value in record["provenance"].items() if key != "host"}
    entry = {"record": record | {"curve": columns, "provenance": made}, "beside": {}}
    for name in (fewshot.NAME, crossing.NAME):
        found = packed.beside(run, name)
        if found is not None:
            entry["beside"][name] = _without_values(found)
    summed = outcomes.summed(run)
    if summed:
        key = outcomes.side_name(summed["side"])
        sides[key] = summed["side"]
        entry["beside"][outcomes.SUMMED] = summed | {"side": key}
    return entry


def _without_values(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_values(value) for key, value in found.items() if key != "values"}
    return found


def pack(folders: Iterable[Path | str], out: Path, datasets: list[str] | None = None) -> tuple[list[Path], int]:
    """Writes the records below some folders to OUT/DATASET/METHOD.runs.jsonl; (the files, how many runs they hold).

    What OUT holds already stays; a run that is there already is replaced. The same records give the same bytes.
    """
    frame, lost = scan_checked(folders, datasets)
    if Path(out).is_dir():
        before, failed_before = scan(out)
        frame = pd.concat([frame, before[before["dataset"].isin(frame["dataset"])]]).drop_duplicates("identity")
        if (failed_before["state"] == "damaged").any():
            raise ReportError(str(failed_before.loc[failed_before["state"] == "damaged", "cause"].iloc[0]))
    written: list[Path] = []
    for dataset, here in frame.groupby("dataset", sort=True):
        sides: dict[str, Any] = {}
        files: dict[str, list[packed.Entry]] = {}
        for run in here["path"]:
            record = read(run)
            files.setdefault(record["method"]["name"].replace(":", "@"), []).append(_entry(Path(run), record, sides))
        home = Path(out) / str(dataset)
        home.mkdir(parents=True, exist_ok=True)
        texts = {f"{method}{packed.ENDING}": packed.to_text(entries) for method, entries in files.items()}
        if sides:
            texts[outcomes.SIDES] = json.dumps(sides, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"
        failed = lost[(lost["dataset"] == dataset) & (lost["state"] == "failed")].drop(columns="path")
        lines = sorted(json.dumps({k: v for k, v in row.items() if pd.notna(v)}, sort_keys=True, ensure_ascii=False)
                       for row in failed.to_dict("records"))
        if lines:
            texts[FAILURES] = "\n".join(dict.fromkeys(lines)) + "\n"
        for name, text in sorted(texts.items()):
            (home / name).write_text(text, encoding="utf-8")
            written.append(home / name)
    return written, len(frame)


def read(run: Path | str) -> dict[str, Any]:
    """The record of a run by the `path` of a collected table, loose or packed."""
    home, name = os.path.split(run)
    if not home.endswith(packed.ENDING):
        return records.read(Path(run))
    record = packed.read(home)[name]["record"]
    try:
        return records.check(current(record | {"curve": _points(record["curve"])}))
    except ReportError as error:
        raise ReportError(f"{run}: {error}") from None


def _points(columns: Any) -> list[dict[str, Any]]:
    """A curve as a list of points, from its columns."""
    if not columns:
        return []
    rows = zip(*columns.values())
    return [{key: value for key, value in zip(columns, row) if value is not None} for row in rows]


def unpack(folder: Path, runs: Path) -> tuple[int, int]:
    """Puts every packed run below a folder as a run's own folder below `runs`; (how many, how many were there)."""
    frame, _ = scan_checked([folder])
    written = there = 0
    for run in frame["path"]:
        if not os.path.dirname(run).endswith(packed.ENDING):
            continue
        record = read(run)
        to = (Path(runs) / record["dataset"] / str(record["split"]["id"]) / record["method"]["name"].replace(":", "@")
              / f"s{record['seed']}-{record['identity'][:8]}")
        if (to / records.RECORD).exists():
            there += 1
            continue
        to.mkdir(parents=True, exist_ok=True)
        beside = {name: packed.beside(run, name) for name in (fewshot.NAME, crossing.NAME)}
        for name, content in (beside | {outcomes.SUMMED: outcomes.summed(run)}).items():
            if content is not None:
                (to / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        records.write(to, record)
        written += 1
    return written, there
