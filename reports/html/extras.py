"""What other commands left beside splits and runs, taken along as it is: figures of ladders, inspected runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from reports import ReportError
from reports.html import svg_check
from reports.html.rendering import Site
from reports.records import FAILURE_FACTS
from reports.safe_text import one_line
from reports.storage import paths
from reports.storage.json_text import from_json

INSPECTION = "inspect/inspection.json"
SCHEMA = 1
_PICTURES = (("progression.svg", "How the distance grows as classes are swapped and removed; numbers mark the splits"),
             ("umap.png", "Training and test images of an easy, a medium and a hard split in the plane (UMAP)"))
_SUFFIXES = (".png", ".svg", ".jpg", ".webp")

_Shot = TypedDict("_Shot", {"image": str, "class": str})
_Answer = TypedDict("_Answer", {"image": str, "class": str, "right": bool, "similarity": float})


class _Row(TypedDict):
    query: _Shot
    neighbours: list[_Answer]


class _Gallery(TypedDict):
    title: str
    note: str
    neighbours: int
    rows: list[_Row]


class _Figure(TypedDict):
    title: str
    file: str
    caption: str
    heads: NotRequired[list[str]]
    rows: NotRequired[list[list[str | float]]]


class _Inspection(TypedDict):
    side: int
    lead: str
    galleries: list[_Gallery]
    figures: list[_Figure]
    files: list[str]


@dataclass(frozen=True)
class Extras:
    """Where to look; without a folder of splits no figures of ladders are taken along."""

    splits: Path | None = None

    def of_splits(self, site: Site, dataset: str) -> list[dict[str, str]]:
        """The figures that `oodml splits plot` made of a dataset."""
        pictures = []
        for ending, caption in _PICTURES if self.splits and paths.is_plain(dataset) else ():
            if paths.is_own_file(self.splits or "", f"{dataset}-{ending}"):
                name = f"figures/{site.slug(dataset)}-{ending}"
                content = (Path(self.splits or "") / f"{dataset}-{ending}").read_bytes()
                if ending.endswith(".svg") and svg_check.fault(content):
                    continue
                site.files[name] = content
                pictures.append({"file": name, "caption": caption})
        return pictures

    def of_runs(self, site: Site, runs: pd.DataFrame) -> list[dict[str, str]]:
        """A page for each run that `oodml inspect` looked into, and the links to them; damaged ones are left out."""
        links = []
        seen = _inspected(runs)
        for run in seen.sort_values(["dataset", "frd", "split", "seed"]).to_dict("records") if len(seen) else ():
            path = Path(run["path"]) / INSPECTION
            try:
                shown = read_inspection(path)
            except ReportError:  # stands among the runs without a result
                continue
            name = f"{site.slug(run['dataset'])}-{run['split']}-{site.slug(run['label'])}-s{run['seed']}"
            for file in shown["files"]:
                site.files[f"inspect/{name}/{file}"] = (path.parent / file).read_bytes()
            site.page(f"inspect/{name}.html", "inspect.html", run=run, seen=shown, folder=name)
            links.append({"href": f"inspect/{name}.html", "text": f"{run['dataset']}, split {run['split']}"})
        return links


def _inspected(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[[os.path.lexists(os.path.join(path, INSPECTION)) for path in runs["path"]]]


def damaged(runs: pd.DataFrame) -> pd.DataFrame:
    """A row, as those of runs without a result, for each inspection that cannot be shown."""
    rows = []
    told = ["path", "dataset", "method", "protocol", "backbone", "split", "seed"]
    for run in _inspected(runs[told]).to_dict("records"):
        path = Path(run["path"]) / INSPECTION
        try:
            read_inspection(path)
        except ReportError as error:
            cell = {key: run[key] for key in ("dataset", "method", "protocol", "backbone")}
            rows.append({**cell, "split": str(run["split"]), "seed": str(run["seed"]), "kind": "ReportError",
                         "cause": str(error), "state": "damaged", "path": str(path)})
    return pd.DataFrame(rows, columns=list(FAILURE_FACTS))


def with_damaged(failures: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Runs without a result, and after them the inspections that cannot be shown: pages and terminal name both."""
    spoilt = damaged(runs)
    return pd.concat([failures, spoilt], ignore_index=True) if len(spoilt) else failures


@lru_cache(maxsize=1)
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(_Inspection)


def read_inspection(path: Path) -> dict[str, Any]:
    """What `oodml inspect` wrote of a run: its galleries, figures, and the names of their files.

    Only pictures that lie beside it are named; a ReportError where it names another file, whatever that is.
    """
    again = "delete it and run `oodml inspect` again"
    if not paths.is_own_file(path.parent.parent, INSPECTION):
        raise ReportError(f"{path} is no file of its run; {again}")
    try:
        content = from_json(paths.content(path))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged ({error}); {again}") from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ReportError(f"{path} is not of schema {SCHEMA}; run `oodml inspect` again")
    try:
        _adapter().validate_python(content)
    except ValidationError as error:
        first = error.errors()[0]
        raise ReportError(f"{path} is damaged ({'.'.join(map(str, first['loc']))}: {first['msg']}); {again}") from None
    shots = [shot for gallery in content["galleries"] for row in gallery["rows"]
             for shot in (row["query"], *row["neighbours"])]
    named = {shot["image"] for shot in shots} | {figure["file"] for figure in content["figures"]}
    for file in sorted({*content["files"], *named}):
        whole = paths.is_plain(file) and file.endswith(_SUFFIXES) and paths.is_own_file(path.parent, file)
        if not whole or file not in content["files"]:
            raise ReportError(f"{path} names {file[:120]!r}, which is no picture beside it; {again}")
        fault = svg_check.fault((path.parent / file).read_bytes()) if file.endswith(".svg") else ""
        if fault:
            raise ReportError(f"{path} names {file[:120]!r}, a drawing that may not be published: {one_line(fault)}; "
                              f"{again}")
    if sum(os.path.getsize(path.parent / file) for file in content["files"]) > paths.LARGEST:
        raise ReportError(f"{path}: its pictures have more than {paths.LARGEST:,} bytes; {again}")
    return content
