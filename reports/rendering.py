"""How pages are made: tables and figures in the looks of the site, and the files that they leave."""

from __future__ import annotations

import re
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from reports import aggregate, figures, tables, views
from reports.aggregate import ROW
from reports.tables import Column, Table


def slug(name: str) -> str:
    """A name as a file name.

    >>> slug("margin[beta=0.6] · resnet50"), slug("recall@1")
    ('margin-beta-0.6-resnet50', 'recall-1')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "unnamed"


class Site:
    """The pages in the making: file name -> text, and what they have in common."""

    def __init__(self, frame: pd.DataFrame, failures: pd.DataFrame) -> None:
        self.files: dict[str, str] = {}
        self.runs, self.notes = aggregate.select(frame)
        self.failures = failures
        self.union = aggregate.is_union(self.runs)
        self.labels = aggregate.labels(self.runs)
        self.runs["label"] = self.label(self.runs)
        self.metrics = views.known_metrics(self.runs)
        self.datasets = sorted(self.runs.loc[~self.union, "dataset"].unique())
        self.unions = sorted(self.runs.loc[self.union, "dataset"].unique())
        self.board = aggregate.ags_board(self.runs[~self.union], self.metrics[0])
        self.look = self._styles()
        self.facts = self._facts()
        self.environment = jinja2.Environment(
            loader=jinja2.PackageLoader("reports"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
        self.environment.globals |= {
            "datasets": self.datasets, "unions": self.unions, "slug": slug, "metrics": self.metrics,
            "facts": self.facts, "percent": lambda value: f"{100 * value:.1f}",
        }

    def label(self, rows: pd.DataFrame) -> list[str]:
        return [self.labels[key] for key in rows[ROW].itertuples(index=False, name=None)]

    def _styles(self) -> dict[str, figures.Style]:
        """Hues in order of the board, then of the name, so that a method looks the same on every page."""
        boards = [self.board]
        if self.unions:
            boards.append(aggregate.union_board(self.runs, "recall@1"))
        order = [label for board in boards for label in self.label(board)] + sorted(self.labels.values())
        floor = self.runs["family"].eq("floor") | self.runs["method"].isin(aggregate.FLOORS)
        floors = set(self.runs.loc[floor, "label"])
        return figures.styles([label for label in dict.fromkeys(order) if label not in floors], sorted(floors))

    def _facts(self) -> dict[str, Any]:
        """The line under the title: how much there is, how recent, from which code."""
        dates = sorted(str(date)[:10] for date in self.runs["date"].dropna())
        commits = self.runs.dropna(subset=["commit"]).sort_values("date")["commit"].astype(str)
        covered, cells = int(self.board["covered"].sum()), int(self.board["cells"].sum())
        return {"runs": len(self.runs), "covered": covered, "cells": cells, "failed": len(self.failures),
                "rows": len(self.labels), "date": dates[-1] if dates else "", "first": dates[0] if dates else "",
                "commit": commits.iloc[-1][:9] if len(commits) else "", "seeds": int(self.runs["seed"].nunique()),
                "protocols": sorted(self.runs["protocol"].unique()), "notes": self.notes}

    def page(self, path: str, template: str, **content: Any) -> None:
        """Renders a template; the way back to the top is `root`, so that links work from any folder."""
        root = "../" * path.count("/")
        text = self.environment.get_template(template).render(root=root, path=path, **content)
        self.files[path] = re.sub(r"[ \t]+\n", "\n", re.sub(r"\n\s*\n+", "\n", text))

    def table(self, table: Table, spark: dict[str, Markup] | None = None) -> dict[str, Any]:
        """A table as its template wants it: linked and marked rows, and its CSV among the files."""
        name = slug(table.name)
        self.files[f"data/{name}.csv"] = tables.to_csv(table)
        columns = list(table.columns)
        labelled = all(key in table.frame for key in ROW)
        if spark and labelled:
            place = 1 + max(i for i, column in enumerate(columns) if column.kind == "score")
            about = "Share of the score on the nearest split that is kept along the ladder"
            columns.insert(place, Column("spark", "Kept", "html", about))
        methods = [row for row in table.rows if row.get("floor") is not True] or table.rows
        heat = [float(row[c.key]) for c in columns if c.heat for row in methods if pd.notna(row[c.key])]
        heat = [min(heat), max(heat)] if heat else []
        marks = [table.marks(column) for column in columns]
        rows = []
        for index, row in enumerate(table.rows):
            label = self.labels.get(tuple(row[key] for key in ROW), "") if labelled else ""
            style = self.look.get(label)
            cells = [self._cell(table, row, column, mark.get(index, ""), heat, (spark or {}).get(label, Markup("")))
                     for column, mark in zip(columns, marks)]
            rows.append({"cells": cells, "label": label, "href": f"method/{slug(label)}.html" if label else "",
                         "hue": style.number if style else -1, "floor": row.get("floor") is True,
                         "source": row.get("source", ""),
                         "incomplete": "rank" in row and pd.isna(row["rank"]) and row.get("floor") is not True})
        barred = {cell["key"] for row in rows for cell in row["cells"] if cell["bar"]}
        return {"name": name, "caption": table.caption, "note": table.note, "columns": columns, "rows": rows,
                "barred": barred, "meanings": [c for c in columns if c.about and not c.heat], "csv": f"data/{name}.csv"}

    @staticmethod
    def _cell(table: Table, row: dict[str, Any], column: Column, mark: str, heat: list[float],
              spark: Markup) -> dict[str, Any]:
        """What the template needs of a cell, made ready here because a page holds thousands of them."""
        if column.kind == "html":
            return {"kind": "html", "html": spark, "bar": ""}
        text, _, bar = table.text(row, column).partition(" ± ")
        if column.kind == "text":
            return {"kind": "method" if column.key == "method" else "text", "text": text, "bar": ""}
        value = row.get(column.key)
        attributes, classes = "", ["num"] + ["rank"] * (column.kind == "rank") + [mark] * bool(mark)
        if value is not None and not pd.isna(value):
            attributes = f' data-v="{float(value):.6g}"'
            if column.heat and heat and max(heat) > min(heat):
                share = max(0.0, (float(value) - min(heat)) / (max(heat) - min(heat)))
                attributes += f' style="--h:{100 * share:.0f}%"'
                classes.append("heat")
        return {"kind": "number", "text": text, "bar": bar, "key": column.key,
                "attributes": Markup(f'class="{" ".join(classes)}"{attributes}')}

    def figure(self, drawing: str, name: str) -> dict[str, Any]:
        """A figure for the page, and the same as a file of its own with fixed colours."""
        alone = re.sub(r"<svg", '<?xml version="1.0" encoding="utf-8"?>\n<svg', drawing, count=1)
        self.files[f"figures/{slug(name)}.svg"] = alone
        return {"svg": Markup(figures.for_page(drawing)), "file": f"figures/{slug(name)}.svg"}

    def cells(self, dataset: str, metric: str) -> pd.DataFrame:
        """The rungs of a dataset with the label of their row, in the order of the board."""
        cells = aggregate.rung_scores(self.runs, dataset, metric)
        cells = cells.assign(label=self.label(cells))
        order = {label: i for i, label in enumerate(self.look)}
        return cells.assign(order=cells["label"].map(order)).sort_values(["order", "frd"], kind="stable")

    def sparks(self) -> dict[str, Markup]:
        """For each row what is left of its score on the nearest split, along the first ladder where it has one."""
        found: dict[str, Markup] = {}
        for dataset in self.datasets:
            cells = self.cells(dataset, self.metrics[0])
            if cells["split"].nunique() < 2:
                continue
            cells = cells.assign(kept=cells["score"] / cells.groupby("label")["score"].transform("first"))
            methods = cells.loc[~cells["floor"], "kept"] if not cells["floor"].all() else cells["kept"]
            low, high = float(methods.min()), float(methods.max())
            for label, curve in cells.groupby("label", sort=False):
                drawn = figures.sparkline(curve["frd"].tolist(), curve["kept"].clip(low, high).tolist(), low, high)
                found.setdefault(str(label), Markup(drawn))
        return found
