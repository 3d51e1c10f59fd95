"""A table as CSV, LaTeX, Markdown, JSON or text for the terminal: the same cells, each in the format's own way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from reports import ReportError
from reports.tables.boards import Table, missing


def to_csv(table: Table) -> str:
    """The shown columns in full precision, with `:std` and `:n` beside each score that has them."""
    keys: list[str] = []
    for column in table.shown:
        kinds = {"score": ("std", "n", "coverage", "low", "high"), "rank": ("low", "high")}
        beside = [f"{column.key}:{what}" for what in kinds.get(column.kind, ())]
        keys += [key for key in (column.key, *beside) if key in table.frame]
    return table.frame[keys].to_csv(index=False, lineterminator="\n")


def to_json(table: Table) -> str:
    """The rows as a list of objects, missing values as null."""
    rows = [{key: None if missing(value) else value for key, value in row.items()} for row in table.rows]
    return json.dumps({"name": table.name, "caption": table.caption, "note": table.note, "rows": rows},
                      indent=1, ensure_ascii=False, default=str) + "\n"


def _grid(table: Table) -> list[list[str]]:
    return [[table.text(row, column) for column in table.shown] for row in table.rows]


def to_markdown(table: Table) -> str:
    """A pipe table, the best of each column in bold."""
    marks = [table.marks(column) for column in table.shown]
    head = "| " + " | ".join(column.head for column in table.shown) + " |"
    rule = "|" + "|".join("---" if column.kind == "text" else "--:" for column in table.shown) + "|"
    lines = []
    for index, cells in enumerate(_grid(table)):
        cells = [cell.replace("|", "\\|") for cell in cells]
        shown = [f"**{cell}**" if mark.get(index) == "best" else cell for cell, mark in zip(cells, marks)]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join([head, rule, *lines]) + "\n" + (f"\n{table.note}\n" if table.note else "")


_TEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "–": "--"}


def tex(text: str) -> str:
    """Text with the characters that LaTeX would take for its own written out."""
    return re.sub(r"[&%$#_{}~^\\±–]", lambda found: _TEX[found[0]], text)


def to_latex(table: Table) -> str:
    """A `tabular` with booktabs rules, the best group of each column bold, the second underlined."""
    marks = [table.marks(column) for column in table.shown]
    wrap = {"best": r"\textbf{%s}", "second": r"\underline{%s}"}
    lines = [r"% needs \usepackage{booktabs}",
             r"\begin{tabular}{" + "".join("l" if column.kind == "text" else "r" for column in table.shown) + "}",
             r"\toprule", " & ".join(tex(column.head) for column in table.shown) + r" \\", r"\midrule"]
    group = None
    for index, cells in enumerate(_grid(table)):
        if table.grouped and table.rows[index][table.grouped] != group:
            group = table.rows[index][table.grouped]
            lines += [r"\midrule"] * (index > 0)
            lines.append(rf"\multicolumn{{{len(cells)}}}{{l}}{{\emph{{{tex(str(group))}}}}} \\")
        shown = [wrap.get(mark.get(index, ""), "%s") % tex(cell) for cell, mark in zip(cells, marks)]
        lines.append(" & ".join(shown) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *([f"% {table.note}"] if table.note else [])]) + "\n"


def to_text(table: Table) -> str:
    """Aligned columns for the terminal."""
    grid = [[column.head for column in table.shown], *_grid(table)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.shown))]
    left = [column.kind == "text" for column in table.shown]
    lines = ["  ".join(cell.ljust(width) if is_left else cell.rjust(width)
                       for cell, width, is_left in zip(row, widths, left)).rstrip() for row in grid]
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join([*lines, *([table.note] if table.note else [])]) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv, "latex": to_latex, "md": to_markdown, "json": to_json, "text": to_text,
}


def render(table: Table, form: str) -> str:
    """The table in one of FORMATS."""
    if form not in FORMATS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(FORMATS)}")
    return FORMATS[form](table)
