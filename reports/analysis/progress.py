"""How far a study is: the runs that it asks for, as a file beside the records says, against those that are there.

`studies/NAME.json` is {"study": NAME, "summary": ..., "command": ..., "rows": [{"dataset": ..., "method": ...,
"protocol": ..., "backbone": ..., "runs": how many, "identities": the first digits of each one's}, ...]}. Files of
earlier versions tell the splits alone, by their hashes, or not even these: there a run of any settings counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError
from reports.selection import NAMED
from reports.storage import paths
from reports.storage.text import from_json
from reports.tables.boards import Column, Table

FOLDER = "studies"
KEYS = ["dataset", "method", "protocol", "backbone"]
"""What a row of a study is called by."""
DIGITS = 12
"""Of a run's identity or a split's hash, as many as tell all of a study apart."""
_TOLD = ("identities", "splits")
"""How a file may tell which runs are meant, the best first."""


@dataclass(frozen=True)
class StudyProgress:
    """What a study asks for: `rows` has dataset, method, protocol, backbone, runs and, if known, `_TOLD`."""

    name: str
    summary: str
    command: str
    rows: pd.DataFrame

    def held_against(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The rows with `done`, how many of their runs are among the collected ones."""
        plain = runs.assign(**{key: runs[f"base_{key}"] for key in NAMED if f"base_{key}" in runs})
        if "identities" in self.rows:
            plain = plain[self.asks_for(plain)]
        elif "splits" in self.rows:
            asked = self.rows.assign(on=self.rows["splits"].str.split()).explode("on")[[*KEYS, "on"]]
            plain = plain.assign(on=plain["split_hash"].str[:DIGITS]).merge(asked, on=[*KEYS, "on"])
        done = plain.groupby(KEYS)["identity"].nunique().rename("done").reset_index()
        rows = self.rows.merge(done, how="left", on=KEYS)
        return rows.assign(done=rows["done"].fillna(0).astype(int).clip(upper=rows["runs"]))

    def asks_for(self, runs: pd.DataFrame) -> pd.Series:
        """Which runs are of the study; none where it does not tell their identities."""
        known = " ".join(self.rows["identities"]).split() if "identities" in self.rows else []
        return runs["identity"].str[:DIGITS].isin(known)


def write(folder: Path, study: StudyProgress) -> Path:
    """Puts a study as `studies/NAME.json` into a folder of packed records, a row a line."""
    head = json.dumps({"study": study.name, "summary": study.summary, "command": study.command}, ensure_ascii=False)
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in study.rows.to_dict("records"))
    path = paths.below(folder, FOLDER, f"{paths.plain(study.name, 'study')}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    return paths.write(path, f'{head[:-1]}, "rows": [\n{rows}\n]}}\n')


def read(folders: Iterable[Path | str], damaged: list[ReportError] | None = None) -> list[StudyProgress]:
    """The studies that lie in some folders of packed records, or in folders of such, by name.

    A damaged file is a ReportError, which goes to the list `damaged` where one is given.
    """
    studies: dict[str, StudyProgress] = {}
    for folder in folders:
        for path in sorted([*Path(folder).glob(f"{FOLDER}/*.json"), *Path(folder).glob(f"*/{FOLDER}/*.json")]):
            try:
                study = _checked(from_json(paths.own_content(folder, path)))
                studies.setdefault(study.name, study)
            except (OSError, ValueError, KeyError, TypeError) as error:
                damage = ReportError(f"{path} is damaged ({error}); pack the study again")
                if damaged is None:
                    raise damage from None
                damaged.append(damage)
    return [studies[name] for name in sorted(studies)]


def _checked(content: Any) -> StudyProgress:
    """What a file says; a ValueError, KeyError or TypeError where it says something else."""
    texts = [content["study"], content["summary"], content["command"],
             *(row[key] for row in content["rows"] for key in KEYS)]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name is no text")
    if not all(type(row["runs"]) is int and 0 <= row["runs"] < 2**31 for row in content["rows"]):
        raise ValueError("a number of runs is none")
    known = [key for key in _TOLD if content["rows"] and all(isinstance(row.get(key), str) for row in content["rows"])]
    rows = pd.DataFrame(content["rows"], columns=[*KEYS, "runs", *known[:1]])
    return StudyProgress(content["study"], content["summary"], content["command"], rows)


def shown(study: StudyProgress, runs: pd.DataFrame) -> dict[str, Any] | None:
    """What a page says of a study: runs done and asked for, overall and by dataset and backbone, and a table of rows.

    None where no run of it is there.
    """
    rows = study.held_against(runs)
    done, asked = int(rows["done"].sum()), int(rows["runs"].sum())
    if not done:
        return None
    parts = rows.groupby(["dataset", "backbone"], sort=False)[["done", "runs"]].sum().reset_index()
    rows = rows.assign(missing=rows["runs"] - rows["done"], share=rows["done"] / rows["runs"])
    rows = rows.sort_values(["share", "dataset", "backbone", "method"], kind="stable").reset_index(drop=True)
    columns = (Column("method", "Method"), Column("dataset", "Dataset"), Column("backbone", "Backbone"),
               Column("done", "Done", "number", digits=0), Column("runs", "Of", "number", digits=0),
               Column("missing", "To come", "number", digits=0))
    table = Table(f"study-{study.name}", f"Runs of the study {study.name}", columns,
                  rows[[column.key for column in columns]], marked=False)
    return {"study": study, "done": done, "runs": asked, "complete": done >= asked,
            "parts": parts.to_dict("records"), "table": table}
