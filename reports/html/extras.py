"""What other commands left beside splits and runs, taken along as it is: figures of ladders, inspected runs."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError
from reports.html.rendering import Site

INSPECTION = "inspect/inspection.json"
SCHEMA = 1
_PICTURES = (("progression.svg", "How the distance grows as classes are swapped and removed; numbers mark the splits"),
             ("umap.png", "Training and test images of an easy, a medium and a hard split in the plane (UMAP)"))


@dataclass(frozen=True)
class Extras:
    """Where to look; without a folder of splits no figures of ladders are taken along."""

    splits: Path | None = None

    def of_splits(self, site: Site, dataset: str) -> list[dict[str, str]]:
        """The figures that `oodml splits plot` made of a dataset."""
        found = []
        for ending, caption in _PICTURES if self.splits else ():
            path = Path(self.splits or "") / f"{dataset}-{ending}"
            if path.is_file():
                name = f"figures/{site.slug(dataset)}-{ending}"
                site.files[name] = path.read_bytes()
                found.append({"file": name, "caption": caption})
        return found

    def of_runs(self, site: Site, runs: pd.DataFrame) -> list[dict[str, str]]:
        """A page for each run that `oodml inspect` looked into, and the links to them."""
        found = []
        seen = runs[[os.path.isfile(os.path.join(path, INSPECTION)) for path in runs["path"]]]
        for run in seen.sort_values(["dataset", "frd", "split", "seed"]).to_dict("records"):
            path = Path(run["path"]) / INSPECTION
            shown = read_inspection(path)
            name = f"{site.slug(run['dataset'])}-{run['split']}-{site.slug(run['label'])}-s{run['seed']}"
            for file in shown["files"]:
                site.files[f"inspect/{name}/{file}"] = (path.parent / file).read_bytes()
            site.page(f"inspect/{name}.html", "inspect.html", run=run, seen=shown, folder=name)
            found.append({"href": f"inspect/{name}.html", "text": f"{run['dataset']}, split {run['split']}"})
        return found


def read_inspection(path: Path) -> dict[str, Any]:
    """What `oodml inspect` wrote of a run: its galleries, figures, and the names of their files."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is damaged ({error}); delete it and run `oodml inspect` again") from None
    if found.get("schema") != SCHEMA:
        raise ReportError(f"{path} is not of schema {SCHEMA}; run `oodml inspect` again")
    return found
