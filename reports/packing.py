"""Loose records to packed ones and back.

Packed records are small enough to be committed and travel with their project. What is kept is kept bit for bit; left
out are results of single queries (summed by class instead, from which every test of recall@1 is made), the values of
single episodes, the name of the host, and of training curves the epochs without a score.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError, records
from reports.analysis import fewshot, galleries, transfer, wise
from reports.records import FAILURES, read, scan, scan_checked, still_failed
from reports.safe_text import without_folders
from reports.storage import by_class, packed, paths

BESIDE = (fewshot.NAME, transfer.NAME, galleries.NAME, wise.NAME)
"""What other commands leave beside a record."""
POINTS = 40
"""Points of a training curve that are packed: 200 epochs, evaluated after every fifth."""


def thinned(curve: list[dict[str, Any]], chosen: Iterable[int] = (), most: int = POINTS) -> list[dict[str, Any]]:
    """The points of a training curve that have a score, numbers to five digits.

    Of more than `most`, as many evenly over the curve and those of the epochs that were chosen, which tables name; of a
    curve without scores as many of its losses.

    >>> thinned([{"epoch": 1, "loss": 2.123456}, {"epoch": 2, "loss": 1.0, "recall@1": 0.5}])
    [{'epoch': 2, 'loss': 1.0, 'recall@1': 0.5}]
    >>> [point["epoch"] for point in thinned([{"epoch": n, "recall@1": 0.5} for n in range(1, 10)], [4], most=3)]
    [1, 4, 5, 9]
    """
    scored = [point for point in curve if set(point) - {"epoch", "loss"}] or list(curve)
    if len(scored) > most:
        even = {round(i * (len(scored) - 1) / (most - 1)) for i in range(most)}
        kept = set(chosen)
        scored = [point for i, point in enumerate(scored) if i in even or point["epoch"] in kept]
    return [{key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in point.items()}
            for point in scored]


def _entry(run: Path, record: dict[str, Any], sides: dict[str, Any], reader: by_class.Reader) -> packed.Entry:
    """A record with what lies beside it, as it is packed."""
    keys = sorted({key for point in record["curve"] for key in point})
    curve = thinned(record["curve"], record["chosen_epochs"].values())
    columns: Any = {key: [point.get(key) for point in curve] for key in keys}
    made = {key: value for key, value in record["provenance"].items() if key != "host"}
    made |= {"command": without_folders(made["command"])} if isinstance(made.get("command"), str) else {}
    entry = {"record": record | {"curve": columns, "provenance": made}, "beside": {}}
    for name in BESIDE:
        try:
            content = packed.beside(run, name)
        except ReportError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            continue
        if content is not None:
            entry["beside"][name] = _without_values(content)
    try:
        summed = by_class.summed(run, reader)
    except ReportError as error:
        warnings.warn(f"left out: {error}", stacklevel=2)
        summed = None
    if summed:
        key = by_class.side_name(summed["side"])
        sides[key] = summed["side"]
        entry["beside"][by_class.SUMMED] = summed | {"side": key}
    return entry


def _without_values(content: Any) -> Any:
    """Of few-shot measures the means and bounds, for each way of adapting, without those of each episode."""
    if isinstance(content, dict):
        return {key: _without_values(value) for key, value in content.items() if key != "values"}
    return [*map(_without_values, content)] if isinstance(content, list) else content


def pack(folders: Iterable[Path | str], out: Path, datasets: list[str] | None = None) -> tuple[list[Path], int]:
    """Writes the records below some folders to OUT/DATASET/METHOD.runs.jsonl; (the files, how many runs they hold).

    What OUT holds already stays; a run that is there already is replaced, and a failure by what came of its cell
    since. The same records give the same bytes.
    """
    frame, lost = scan_checked(folders, datasets)
    for cause in lost.loc[lost["state"] == "damaged", "cause"]:
        warnings.warn(f"left out: {cause}", stacklevel=2)
    lost = lost[(lost["state"] == "failed") & ~lost["path"].map(_passes).astype(bool)]
    earlier = lost.iloc[:0]
    if Path(out).is_dir():
        before, earlier = scan(out)
        frame = pd.concat([frame, before[before["dataset"].isin(frame["dataset"])]]).drop_duplicates("identity")
        if (earlier["state"] == "damaged").any():
            raise ReportError(str(earlier.loc[earlier["state"] == "damaged", "cause"].iloc[0]))
    lost = still_failed(lost, frame)
    lost = pd.concat([lost, still_failed(earlier, frame, lost)])
    written: list[Path] = []
    for dataset, texts in packed_texts(frame).items():
        home = paths.below(out, paths.plain(dataset, "dataset"))
        home.mkdir(parents=True, exist_ok=True)
        failed = lost[lost["dataset"] == dataset].drop(columns="path")
        lines = {json.dumps({k: v for k, v in row.items() if pd.notna(v)}, sort_keys=True, ensure_ascii=False)
                 for row in failed.to_dict("records")}
        if lines:
            texts[FAILURES] = "\n".join(sorted(lines)) + "\n"
        written += [paths.write(paths.below(home, name), text) for name, text in sorted(texts.items())]
        if not lines:
            paths.below(home, FAILURES).unlink(missing_ok=True)
    return written, len(frame)


CELL = ["dataset", "split_hash", "method", "protocol", "backbone", "seed"]
"""What two runs share of which one can stand for the other in a gallery."""


def add_galleries(folders: Iterable[Path | str], out: Path) -> tuple[list[Path], int]:
    """Adds galleries of `oodml inspect` to the packed records of the same cells; (the files, how many were added).

    For records whose weights are gone: their cells are trained again, and a gallery says so. The records stay as they
    are.
    """
    frame, known = scan_checked(folders)[0], scan(out)[0]
    homes = dict(zip(known[CELL].itertuples(index=False, name=None), zip(known["path"], known["identity"])))
    added: dict[str, dict[str, Any]] = {}
    for run, cell in zip(frame["path"], frame[CELL].itertuples(index=False, name=None)):
        content = packed.beside(run, galleries.NAME)
        if content is None:
            continue
        if cell not in homes:
            raise ReportError(f"{run} has a gallery, but {out} has no record of {cell[2]} on {cell[0]} with the same "
                              "classes, protocol, backbone and seed to add it to")
        (path, identity), record = homes[cell], read(run)
        if record["identity"] != identity:
            content |= {"again": {"device": record["cost"]["device"], "date": record["provenance"]["date"][:10]}}
        added.setdefault(os.path.dirname(path), {})[os.path.basename(path)] = content
    if not added:
        raise ReportError("none of these runs has a gallery; `oodml inspect` makes them where weights were kept")
    for file, contents in added.items():
        entries = {name: entry | {"beside": entry["beside"] | ({galleries.NAME: contents[name]} if name in contents
                                                               else {})} for name, entry in packed.read(file).items()}
        paths.write(Path(file), packed.to_text(entries.values()))
    return [Path(file) for file in sorted(added)], sum(map(len, added.values()))


def packed_texts(frame: pd.DataFrame) -> dict[str, dict[str, str]]:
    """For each dataset the files METHOD.runs.jsonl, with what they share, as text."""
    found: dict[str, dict[str, str]] = {}
    for dataset, here in frame.groupby("dataset", sort=True):
        sides: dict[str, Any] = {}
        reader = by_class.summing()
        files: dict[str, list[packed.Entry]] = {}
        for run in here["path"]:
            record = read(run)
            method = paths.of_method(record["method"]["name"])
            files.setdefault(method, []).append(_entry(Path(run), record, sides, reader))
        texts = {f"{method}{packed.ENDING}": packed.to_text(entries) for method, entries in files.items()}
        if sides:
            texts[by_class.SIDES] = json.dumps(sides, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"
        found[str(dataset)] = texts
    return found


def archive(frame: pd.DataFrame) -> bytes:
    """A ZIP of the packed records of some runs, which `oodml report --records FOLDER` reads; the same bytes each time.
    """
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for dataset, texts in packed_texts(frame).items():
            for name, text in sorted(texts.items()):
                about = zipfile.ZipInfo(f"records/{paths.plain(dataset, 'dataset')}/{name}", (1980, 1, 1, 0, 0, 0))
                about.compress_type = zipfile.ZIP_DEFLATED
                file.writestr(about, text)
    return content.getvalue()


def _passes(run: str) -> bool:
    """Whether a failure passes by itself, as that of a full disk: the next sweep does the cell, and nobody need know.
    """
    failure = packed.beside(run, records.FAILURE)
    return isinstance(failure, dict) and bool(failure.get("passing"))


def _target(runs: Path, record: dict[str, Any]) -> Path:
    return records.run_folder(runs, record["dataset"], record["split"]["id"], record["method"]["name"], record["seed"],
                         record["identity"])


def unpack(folder: Path, runs: Path) -> tuple[int, int]:
    """Puts every packed run below a folder as a run's own folder below `runs`; (how many, how many were there).

    All of them or, where one is damaged, none.
    """
    frame, lost = scan_checked([folder])
    for cause in lost.loc[lost["state"] == "damaged", "cause"]:
        raise ReportError(f"nothing is unpacked: {cause}")
    written = there = 0
    inside = [run for run in frame["path"] if os.path.dirname(run).endswith(packed.ENDING)]
    for run, to in [(run, _target(Path(runs), read(run))) for run in inside]:
        record = read(run)
        if (to / records.RECORD).exists():
            there += 1
            continue
        to.mkdir(parents=True, exist_ok=True)
        beside = {name: packed.beside(run, name) for name in BESIDE}
        for name, content in (beside | {by_class.SUMMED: by_class.summed(run)}).items():
            if content is not None:
                (to / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        records.write(to, record)
        written += 1
    return written, there
