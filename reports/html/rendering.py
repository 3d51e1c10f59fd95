"""How pages are made: tables and figures in the looks of the site, and the files that they leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from reports import citing
from reports.analysis import paper_tables, pretraining
from reports.analysis.results import Results
from reports.analysis.rung_board import rung_board
from reports.analysis.tuning import Search
from reports.figures import drawing, inline, ladders
from reports.html.cells import ROOT, Head, cell, swatch
from reports.html.markup import dense, distinct_regions, hashed, slug, slugs, with_permalinks, with_quoted_links
from reports.selection import ROW, in_words
from reports.storage.row import LEVELS
from reports.tables import formats
from reports.tables.table import Column, Table, level_of
from reports.wording import counted, decimal, metric_name, probability


class Site:
    """The pages in the making: file name -> content, and what they have in common."""

    def __init__(self, results: Results, failures: pd.DataFrame, searches: Sequence[Search] = (),
                 url: str = "", titles: Mapping[str, str] | None = None) -> None:
        self.files: dict[str, str | bytes] = {}
        self.results = results
        self.runs, self.metrics = results.runs, results.metrics
        self.failures = failures
        self.searches = searches
        self.url = url.rstrip("/") + "/" if url else ""
        self.datasets, self.unions = results.datasets, results.unions
        self.board = results.ranking(self.metrics[0])
        self.look = self._styles()
        self.facts = self._facts()
        self.slugs = slugs([*self.look, *self.datasets, *self.unions])
        self.sections: list[tuple[str, str, str]] = []
        self.compared: set[str] = set()
        self._tables: dict[str, str] = {}
        self._drawn: dict[str, dict[str, Any]] = {}
        self._later: list[tuple[str, str, dict[str, Any]]] = []
        named = {name: title[:1].upper() + title[1:] for name, title in (titles or {}).items()}  # they begin a line
        self.environment = jinja2.Environment(
            loader=jinja2.PackageLoader("reports.html"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
            undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
            optimized=False)  # there is nothing to fold, and to look for it takes a tenth of the time of compiling
        self.environment.globals |= {
            "datasets": self.datasets, "members": results.members, "unions": self.unions, "slug": self.slug,
            "metrics": self.metrics, "facts": self.facts, "levels": LEVELS,
            "title_of": lambda name: named.get(name, name), "metric_name": metric_name, "level": results.level,
            "percent": lambda value: decimal(100 * value, 1), "decimal": decimal, "probability": probability,
            "in_words": in_words, "counted": counted,
            "sections": self.sections, "swatch": lambda hue, baseline: Markup(swatch(hue, baseline)),
            "coded": lambda text: Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(escape(text)))),
            "compared": lambda label: label in self.compared, "url": self.url,
        }

    def slug(self, name: str) -> str:
        """The file name of a row or dataset of this site, or of anything else."""
        return self.slugs.get(name) or slug(name)

    def _styles(self) -> dict[str, drawing.Style]:
        """The looks of all rows, in order of the boards, then of the name; see `hues.shared_out`.

        The figures of datasets that papers report on come first, of which the home page tells before all others.
        """
        results = self.results
        boards = [self.board, *(board.rows for dataset in self.unions
                                for board in results.boards("recall@1", dataset).values())]
        known = [board[board["source"] != "published"] for board in boards if len(board)]
        order = [label for board in known for label in results.label(board)] + sorted(results.labels.values())
        frozen = set(self.runs.loc[self.runs["baseline"], "label"])
        place = {label: i for i, label in reversed(list(enumerate(order)))}
        told = sorted([*results.without_ladder, *results.laddered], key=lambda name: not paper_tables.reported(name))
        parts = [results.cells(dataset, results.metrics[0]) for dataset in told]
        curves = [cells[~ladders.single(cells)] for cells in parts]
        rankings = [sorted(rows["label"].unique(), key=place.__getitem__)
                    for cells in curves for _, rows in cells[~cells["baseline"]].groupby("backbone")]
        rankings += [[label for label in results.label(rows) if label not in frozen]
                     for board in known for _, rows in board.groupby("network", sort=False)]
        return drawing.styles([label for label in dict.fromkeys(order) if label not in frozen], sorted(frozen),
                              dict(zip(self.runs["label"], self.runs["method"])), rankings, self.backbones)

    def _facts(self) -> dict[str, Any]:
        """The line under the title: how much there is, how recent, from which code."""
        ours = self.board[self.board["source"] != "published"] if len(self.board) else self.board
        covered, cells = int(ours["covered"].sum()), int(ours["cells"].sum())
        trained = self.runs[~self.runs["baseline"].astype(bool)]
        return {"runs": len(self.runs), "covered": covered, "cells": cells, "failed": len(self.failures),
                "rows": int(self.runs["method"].nunique()),
                "methods": int(trained["base_method"].nunique()), **citing.made_of(self.runs),
                "dirty": int(self.runs["dirty"].eq(True).sum()), "seeds": int(self.runs["seed"].nunique()),
                "protocols": self.results.protocols, "notes": self.results.notes}

    def page(self, path: str, template: str, **content: Any) -> None:
        """Renders a template; the way back to the top is `root`, so that links work from any folder."""
        root = "../" * path.count("/")
        text = self.environment.get_template(template).render(root=root, path=path, **content)
        self.files[path] = with_quoted_links(with_permalinks(distinct_regions(dense(text).replace(ROOT, root))))

    def later(self, path: str, head: str, template: str = "", menu: str = "Analysis", **content: Any) -> None:
        """Puts a page that has a head into the navigation, in a menu or, with an empty one, beside the menus.

        It is rendered when all that stand there are known.
        """
        if head:
            self.sections.append((menu, path, head))
        self._later.append((path, template or path, {"head": head, **content}))

    def has(self, path: str) -> bool:
        """Whether a page is there or stands in the navigation."""
        return path in self.files or any(path == other for _, other, _ in self.sections)

    def finish(self) -> None:
        """Renders the pages that were put off."""
        for path, template, content in self._later:
            self.page(path, template, **content)

    @staticmethod
    def data(content: Any) -> Markup:
        """Content as JSON that may stand inside a script element."""
        text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        return Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))

    def table(self, table: Table, spark: dict[str, Markup] | None = None) -> dict[str, Any]:
        """A table as its template wants it: linked and marked rows, and its CSV among the files."""
        name = slug(table.name)
        if self._tables.setdefault(name.casefold(), table.name) != table.name:  # of datasets of much the same name
            name = hashed(name, table.name)
        self.files[f"data/{name}.csv"] = formats.to_csv(table)
        labelled = all(key in table.frame for key in ROW)
        bars = self._intervals(table) if labelled else {}
        columns = _with_intervals(table.columns) if bars else table.columns
        heat, marks = _heat(table), [table.marks(column) for column in columns]
        barred = [any(pd.notna(row.get(f"{column.key}:std")) and pd.notna(row.get(column.key)) for row in table.rows)
                  if column.kind in ("score", "gain") else False for column in columns]
        names = [column.key for column in columns].index("method") if labelled else 0
        ours = {row["backbone"] for row in table.rows if row["source"] != "published"} if labelled else set()
        levels = {level_of(row) for row in table.rows} if labelled else set()
        differing = [(facet, column) for facet, column in (("family", "family"), ("training", "group"))
                     if len({row.get(column) for row in table.rows}) > 1]
        seen = self._pretraining(table)
        rows: list[dict[str, Any]] = []
        for index, row in enumerate(table.rows):
            label = self.results.labels.get(tuple(row[part] for part in ROW), "") if labelled else ""
            head = self._head(row, label, labelled)
            drawn = {"kept": (spark or {}).get(label, ""), "interval": bars.get(index, "")}
            cells = [cell(table, row, column, mark.get(index, ""), heat, bar, head, drawn.get(column.key, ""))
                     for column, mark, bar in zip(columns, marks, barred)]
            if cells[names].startswith("<td>"):
                cells[names] = f'<th scope="row">{cells[names][4:-5]}</th>'
            facets = {"backbone": row["backbone"] if len(ours) > 1 else None,
                      **{facet: row.get(column) for facet, column in differing},
                      "level": head.level if len(levels) > 1 else None, "method": label} if labelled else {}
            rows.append({"cells": Markup("".join(cells)), "baseline": head.baseline, "facets": _attributes(facets),
                         "group": _group(row, seen),
                         "incomplete": "rank" in row and pd.isna(row["rank"]) and not head.baseline})
        grouped = bool(seen) or len({row["group"] for row in rows}) > 1
        return {"name": name, "caption": table.caption, "note": table.note, "columns": columns, "rows": rows,
                "meanings": [c for c in columns if c.about and not c.heat], "grouped": grouped,
                "csv": f"data/{name}.csv", "names": formats.headers(column.key for column in columns)}

    def _head(self, row: Mapping[str, Any], label: str, labelled: bool) -> Head:
        """The head of a row that has this label, '' if none; published rows have one page in common."""
        published = labelled and row["source"] == "published"
        href = f"method/{self.slug(label)}.html" if label else "published.html" if published else ""
        style = self.look.get(label)
        return Head(href, style.number if style else -1, level_of(row) if labelled else "", row.get("baseline") is True)

    def _pretraining(self, table: Table) -> dict[str, str]:
        """For each network of a board its name with what it was pretrained on, a reason to take care told once."""
        said: dict[str, str] = {}
        told: set[str] = set()
        tested = [key.split(":")[1] for key in map(str, table.frame) if key.startswith(("ags:", "recall:"))]
        for row in table.rows if "network" in table.frame and "weights" in table.frame else ():
            text = pretraining.told(str(row["weights"] or ""), [*tested, str(row.get("dataset", ""))])
            if text and row["network"] not in said:
                words, mark, reason = text.partition(" ⚠")
                said[row["network"]] = f"{row['network']}, {words}{mark}" + ("" if reason in told else reason)
                told.add(reason)
        return said

    def _intervals(self, table: Table) -> dict[int, str]:
        """The first score of each row as a dot on its interval, where most ranked rows have one."""
        key = next((column.key for column in table.columns if column.kind == "score"), "")
        if f"{key}:low" not in table.frame or "rank" not in table.frame:
            return {}
        known = {index: (float(row[key]), float(row[f"{key}:low"]), float(row[f"{key}:high"]))
                 for index, row in enumerate(table.rows) if pd.notna(row[f"{key}:low"]) and pd.notna(row[key])}
        groups: dict[str, list[tuple[float, float, float]]] = {}
        for index in known:
            if pd.notna(table.rows[index]["rank"]):
                groups.setdefault(_group(table.rows[index], {}), []).append(known[index])
        if 2 * sum(map(len, groups.values())) < table.frame["rank"].notna().sum():
            return {}
        scales = {group: (inline.usual([low for _, low, _ in rows])[0], inline.usual([high for *_, high in rows])[1])
                  for group, rows in groups.items()}
        return {index: inline.interval(*one, *scales[group]) for index, one in known.items()
                if (group := _group(table.rows[index], {})) in scales}

    def figure(self, drawn: str, name: str) -> dict[str, Any]:
        """A figure for the page, and the same as a file of its own with fixed colours, which are made for white."""
        head = '<?xml version="1.0" encoding="utf-8"?>\n<svg style="background:#fff"'
        alone = drawn.replace("<svg", head, 1)
        if 'class="name"' in drawn:  # as in site.css: a name that stands on other lines stays readable
            halo = "<style>.name{paint-order:stroke;stroke:#fff;stroke-width:3px}</style>"
            alone = alone.replace("<title", f"{halo}<title", 1)
        self.files[f"figures/{slug(name)}.svg"] = alone
        return {"svg": Markup(drawing.for_page(drawn)), "file": f"figures/{slug(name)}.svg"}

    def figure_once(self, name: str, draw: Callable[[], str]) -> dict[str, Any]:
        """A figure that several pages show, drawn for the first of them."""
        if name not in self._drawn:
            self._drawn[name] = self.figure(draw(), name)
        return self._drawn[name]

    def cells(self, dataset: str, metric: str) -> pd.DataFrame:
        """The rungs of a dataset with the label of their row, in the order of the board."""
        return self.results.once(("ordered", dataset, metric), lambda: self._cells(dataset, metric))

    def _cells(self, dataset: str, metric: str) -> pd.DataFrame:
        cells = self.results.cells(dataset, metric)
        order = {label: i for i, label in enumerate(self.look)}
        return cells.assign(order=cells["label"].map(order)).sort_values(["order", "frd"], kind="stable")

    @cached_property
    def backbones(self) -> dict[str, str]:
        """The backbone of each row, by its label."""
        return dict(zip(self.runs["label"], self.runs["backbone"]))

    @cached_property
    def frozen(self) -> dict[tuple[str, str], str]:
        """The label of the frozen network of each (dataset, backbone)."""
        rows = self.runs[self.runs["base_method"] == "frozen"].drop_duplicates(["dataset", "backbone"])
        return dict(zip(zip(rows["dataset"], rows["backbone"]), rows["label"]))

    def sparks(self, metric: str) -> dict[str, Markup]:
        """For each row what is left of its score on the nearest split, along the first ladder where it has one."""
        return self.results.once(("sparks", metric), lambda: self._sparks(metric))

    def _sparks(self, metric: str) -> dict[str, Markup]:
        drawings: dict[str, Markup] = {}
        for dataset in self.datasets:
            cells = self.cells(dataset, metric)
            if cells["split"].nunique() < 2:
                continue
            across = float(cells["frd"].min()), float(cells["frd"].max())
            nearest = cells[cells["frd"] == across[0]].drop_duplicates("label").set_index("label")["score"]
            rows = rung_board(self.results, dataset, metric).rows
            if "kept:why" in rows:  # of what failed on the nearest split no share is told, and none drawn
                nearest = nearest.drop(self.results.label(rows[rows["kept:why"] != ""]), errors="ignore")
            cells = cells.assign(kept=cells["score"] / cells["label"].map(nearest))
            methods = cells.loc[~cells["baseline"], "kept"] if not cells["baseline"].all() else cells["kept"]
            up = inline.usual(methods.dropna().tolist())
            cells = cells.assign(kept=cells["kept"].clip(*up))[cells["kept"].notna()]
            for label, curve in cells.groupby("label", sort=False):
                drawn = inline.sparkline(curve["frd"].tolist(), curve["kept"].tolist(), across, up)
                drawings.setdefault(str(label), Markup(drawn))
        return drawings


def _group(row: Mapping[str, Any], seen: Mapping[str, str]) -> str:
    """What heads the rows that are ranked together: network, what it was pretrained on, protocol where several are."""
    if "network" not in row:
        return ""
    network = str(row["network"])
    return in_words(str(row.get("ranking", network))) + seen.get(network, network).removeprefix(network)


def _with_intervals(columns: Sequence[Column]) -> list[Column]:
    """The columns of a table with one for the intervals of the first score behind it."""
    place = 1 + next(i for i, column in enumerate(columns) if column.kind == "score")
    about = ("The score with its 95 % interval, on a scale common to rows ranked together; "
             "what lies far outside has no dot")
    return [*columns[:place], Column("interval", "95 %", "html", about), *columns[place:]]


def _heat(table: Table) -> list[float]:
    """The ends of the scale by which cells are shaded: the lowest and the highest of methods; none where none are."""
    methods = [row for row in table.rows if row.get("baseline") is not True] or table.rows
    values = [float(row[c.key]) for c in table.columns if c.heat for row in methods if pd.notna(row[c.key])]
    return [min(values), max(values)] if values else []


def _attributes(facets: Mapping[str, Any]) -> Markup:
    """What rows can be filtered by, as attributes of the row."""
    return Markup("".join(f' data-{kind}="{escape(str(value))}"' for kind, value in facets.items()
                          if value and not pd.isna(value)))
