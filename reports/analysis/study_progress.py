"""How far a study is: the runs that it asks for, as a file beside the records says, against those that are there.

`studies/NAME.json` is {"study": NAME, "summary": ..., "command": ..., "rows": [{"dataset": ..., "method": ...,
"protocol": ..., "backbone": ..., "given": what differs from the file of the protocol, "runs": how many, "splits": the
first digits of each one's hash, "seeds": of each split, where they differ}, ...]}. Files of earlier versions do not
tell what was given: there a run of any settings counts; the earliest have no splits either: there it counts on whatever
ladder it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError
from reports.analysis import costs
from reports.safe_text import printable
from reports.selection import NAMED
from reports.storage import paths
from reports.storage.json_text import from_json
from reports.tables.table import Column, Table

FOLDER = "studies"
KEYS = ["dataset", "method", "protocol", "backbone"]
"""What a row of a study is called by."""
GIVEN = [*KEYS, "given"]
"""The same with what it was given, which files of earlier versions do not tell."""
DIGITS = 12
"""Of a split's hash, as many as tell all splits of a study apart."""


def given(overrides: Mapping[str, Sequence[Any]] | None) -> str:
    """What a run was given that is not as in the file of its protocol, as one text.

    >>> given({"epochs": [200, 50], "backbone": ["resnet50", "resnet50_v1"]}), given(None)
    ('{"epochs": 50}', '{}')
    """
    changed = {key: pair[1] for key, pair in (overrides or {}).items() if key != "backbone"}  # which a row names
    return json.dumps(changed, sort_keys=True, default=str)


@dataclass(frozen=True)
class StudyProgress:
    """What a study asks for: `rows` has dataset, method, protocol, backbone, runs and, if known, splits and `given`."""

    name: str
    summary: str
    command: str
    rows: pd.DataFrame

    @property
    def keys(self) -> list[str]:
        """What tells its rows apart."""
        return GIVEN if "given" in self.rows else KEYS

    def held_against(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The rows with `done`, how many of their runs are among the collected ones."""
        done = self._plain(self.done(runs)).groupby(self.keys).size().rename("done").reset_index()
        rows = self.rows.merge(done, how="left", on=self.keys)
        return rows.assign(done=rows["done"].fillna(0).astype(int).clip(upper=rows["runs"]))

    def asks_for(self, runs: pd.DataFrame) -> pd.Series:
        """Which runs are of the study, with what it gives them; none where it does not tell that."""
        here = self._asked(self._plain(runs)) if "given" in self.rows else [False] * len(runs)
        return pd.Series(here, runs.index, dtype=bool)

    def done(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The runs that count as done: where there are more seeds than a row asks for, the first of each split.

        A split that a row asks for takes at least one run, which a further seed on another one does not replace.
        """
        plain = self._plain(runs).reset_index(drop=True)
        asked = plain.loc[self._asked(plain), [*self.keys, "on", "seed", "identity"]].sort_values("seed", kind="stable")
        asked = asked.drop_duplicates([*self.keys, "identity"])
        asked = asked.assign(again=asked.groupby([*self.keys, "on"], dropna=False).cumcount())
        counts = self._seeds_told()
        enough = [counts.get(key, math.inf) for key in asked[[*self.keys, "on"]].itertuples(index=False, name=None)]
        asked = asked[asked["again"] < enough].sort_values("again", kind="stable")
        most = asked.merge(self.rows.groupby(self.keys, as_index=False)["runs"].sum(), how="left", on=self.keys)["runs"]
        if "splits" in self.rows:
            splits = self.by_split().groupby(self.keys, as_index=False)["on"].nunique()
            wanted = asked[self.keys].merge(splits, how="left", on=self.keys)["on"].to_numpy()
            lacking = wanted - asked.groupby(self.keys)["on"].transform("nunique").to_numpy()
            most = most.where(most < wanted, most - lacking)
        return runs.iloc[sorted(asked.index[asked.groupby(self.keys).cumcount().to_numpy() < most.to_numpy()])]

    def by_split(self) -> pd.DataFrame:
        """The rows with the hash of a split as `on` and the `seeds` that are asked for on it, a line a split."""
        splits = self.rows["splits"].str.split()
        told = self.rows["seeds"].str.split() if "seeds" in self.rows else [()] * len(self.rows)
        seeds = pd.Series([list(map(int, own)) or [runs // len(each)] * len(each)
                           for own, runs, each in zip(told, self.rows["runs"], splits)], self.rows.index, dtype=object)
        return self.rows.assign(on=splits, seeds=seeds).explode(["on", "seeds"], ignore_index=True)

    def _seeds_told(self) -> dict[tuple[str, ...], int]:
        """The seeds that are asked for, by row and split: as told split by split, or as many on each.

        Not of rows whose runs cannot be equally many on each split and which do not say how many: files of earlier
        versions have such.
        """
        if "splits" not in self.rows:
            return {}
        even = self.rows["runs"] % [len(splits.split()) for splits in self.rows["splits"]] == 0
        told = self.rows["seeds"].ne("") if "seeds" in self.rows else False
        lines = replace(self, rows=self.rows[even | told]).by_split()
        counts = lines.groupby([*self.keys, "on"])["seeds"].sum()
        return dict(zip(counts.index.tolist(), counts.tolist()))

    def _plain(self, runs: pd.DataFrame) -> pd.DataFrame:
        """The runs as a study calls them."""
        named = {key: runs[f"base_{key}"] for key in NAMED if f"base_{key}" in runs}
        return runs.assign(**named, given=[given(one) for one in runs["overrides"]],
                           on=runs["split_hash"].str[:DIGITS])

    def _asked(self, plain: pd.DataFrame) -> Any:
        rows, by = self.rows, self.keys
        if "splits" in rows:
            rows, by = self.by_split(), [*by, "on"]
        return pd.MultiIndex.from_frame(plain[by]).isin(pd.MultiIndex.from_frame(rows[by]))


def write(folder: Path, study: StudyProgress) -> Path:
    """Puts a study as `studies/NAME.json` into a folder of packed records, a row a line."""
    head = json.dumps({"study": study.name, "summary": study.summary, "command": study.command}, ensure_ascii=False)
    told = [{key: json.loads(value) if key == "given" else value for key, value in row.items()
             if (key, value) != ("seeds", "")} for row in study.rows.to_dict("records")]
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in told)
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
                damage = ReportError(f"{path} is damaged ({error}); run the study again, or pack it")
                if damaged is None:
                    raise damage from None
                damaged.append(damage)
    return [studies[name] for name in sorted(studies)]


def _checked(content: Any) -> StudyProgress:
    """What a file says; a ValueError, KeyError or TypeError where it says something else."""
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise ValueError("it is no table of rows")
    if not all(isinstance(row, dict) for row in content["rows"]):
        raise ValueError("a row of it is none")
    texts = [content["study"], content["summary"], content["command"],
             *(row[key] for row in content["rows"] for key in KEYS)]
    if not all(isinstance(text, str) and "\n" not in text and printable(text) == text for text in texts):
        raise ValueError("a name is no text")
    if not paths.is_plain(content["study"]):
        raise ValueError("its name is none that a file may have")
    if not all(type(row["runs"]) is int and 0 <= row["runs"] < 2**31 for row in content["rows"]):
        raise ValueError("a number of runs is none")
    known = [key for key in ("splits", "given") if any(key in row for row in content["rows"])]
    for key, kind in (("splits", str), ("given", dict)):
        if key in known and not all(isinstance(row.get(key), kind) and row[key] != "" for row in content["rows"]):
            raise ValueError(f"'{key}' of a row is not as studies have it")
    if any("seeds" in row for row in content["rows"]):
        known.append("seeds")
        content = {**content, "rows": [{"seeds": "", **row} for row in content["rows"]]}
        if not all(row["seeds"] == "" or _are_seeds(row) for row in content["rows"]):
            raise ValueError("'seeds' of a row are not those of its splits")
    order = [*KEYS, "given", "runs", "splits", "seeds"]  # as written: a file that is read and written stays the same
    rows = pd.DataFrame(content["rows"], columns=[key for key in order if key in (*KEYS, "runs", *known)])
    if "given" in known:
        rows["given"] = [json.dumps(one, sort_keys=True) for one in rows["given"]]
    return StudyProgress(content["study"], content["summary"], content["command"], rows)


def _are_seeds(row: dict[str, Any]) -> bool:
    """Whether the seeds of a row are a number for each of its splits, its runs together."""
    each = row["seeds"].split() if isinstance(row["seeds"], str) else []
    plain = all(count.isascii() and count.isdigit() and len(count) < 10 for count in each)
    return plain and len(each) == len(str(row.get("splits")).split()) and sum(map(int, each)) == row["runs"]


def shown(study: StudyProgress, runs: pd.DataFrame) -> dict[str, Any] | None:
    """What a page says of a study: runs done and asked for, overall and by dataset and backbone, a table of rows, and
    what the runs took.

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
            "parts": parts.to_dict("records"), "table": table, "took": costs.told(study.done(runs))}
