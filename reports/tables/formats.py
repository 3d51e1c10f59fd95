"""A table as CSV, LaTeX, Markdown, JSON or text for the terminal: the same cells, each in the format's own way."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from reports import ReportError
from reports.safe_text import one_line, printable
from reports.tables.alignment import aligned, width
from reports.tables.notes import TIE
from reports.tables.table import Table, missing


def headers(keys: Iterable[Any]) -> dict[Any, str]:
    """The names of a frame's columns in a file: the score of a dataset is called by the dataset if nothing else is.

    >>> list(headers(["method", "ags:cub", "ags:cub:std", "ags:method", "ags:method:std", "rung:5"]).values())
    ['method', 'cub', 'cub:std', 'ags:method', 'ags:method:std', 'rung5']
    """
    parts = {key: re.fullmatch(r"(ags|recall|target|variant|rung):(.+?)((?::(?:std|n|coverage|low|high|group|gain))?)",
                               str(key)) for key in keys}
    plain = {key: f"rung{part[2]}" if part[1] == "rung" else part[2] for key, part in parts.items() if part}
    taken = {str(key).partition(":")[0] for key, part in parts.items() if not part} | {
        name for name, count in Counter(plain[key] for key, part in parts.items() if part and not part[3]).items()
        if count > 1}
    return {key: plain[key] + part[3] if part and plain[key] not in taken else str(key) for key, part in parts.items()}


def to_csv(table: Table) -> str:
    """The shown columns in full precision, with `:std` and `:n` beside each score that has them, and any overrides."""
    keys: list[str] = []
    for column in table.shown:
        kinds = {"score": ("std", "n", "coverage", "low", "high", "gain"), "rank": ("low", "high")}
        beside = [f"{column.key}:{what}" for what in kinds.get(column.kind, ())]
        keys += [key for key in (column.key, *beside) if key in table.frame and key not in keys]
    if "overrides" in table.frame and "overrides" not in keys and table.frame["overrides"].fillna("").ne("").any():
        keys.append("overrides")
    return csv_text((name, [row[key] for row in table.rows]) for key, name in headers(keys).items())


def csv_text(columns: Iterable[tuple[Any, Iterable[Any]]]) -> str:
    """Named columns as CSV in which no cell is a formula to a spreadsheet; numbers stay numbers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")  # pandas' own takes three times as long for a table of a few rows
    columns = list(columns)
    writer.writerow(_harmless(name) for name, _ in columns)
    writer.writerows(zip(*(map(_harmless, cells) for _, cells in columns)))
    return text.getvalue()


_FORMULA = frozenset("=+-@＝＋－＠")


def _harmless(cell: Any) -> Any:
    """A cell of CSV as it is or empty, a text that a spreadsheet would take for a formula behind an apostrophe.

    >>> _harmless("=1+1"), _harmless("-0.5"), _harmless(-0.5), _harmless("margin"), _harmless(float("nan"))
    ("'=1+1", '-0.5', -0.5, 'margin', '')
    """
    if not isinstance(cell, str):
        return "" if missing(cell) else cell
    cell = printable(cell)
    return f"'{cell}" if cell.lstrip()[:1] in _FORMULA and not _is_number(cell) else cell


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text) is not None


def to_json(table: Table) -> str:
    """The rows as a list of objects, missing values as null."""
    names = headers(table.frame.columns)
    rows = [{names[key]: None if missing(value) else value for key, value in row.items()} for row in table.rows]
    content = {"name": table.name, "caption": table.caption, "note": table.note, "rows": rows}
    return printable(json.dumps(content, indent=1, ensure_ascii=False, default=str)) + "\n"


def _grid(table: Table) -> list[list[str]]:
    return [[one_line(table.text(row, column)) for column in table.shown] for row in table.rows]


def markdown(text: str) -> str:
    r"""Text on one line with the characters that Markdown would take for its own written out.

    >>> markdown("a_b | [x](y) <b>")
    'a_b \\| \\[x\\](y) &lt;b&gt;'
    """
    text = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", lambda special: "\\" + special[0], text)


def to_markdown(table: Table) -> str:
    """A pipe table, the best of each column in bold."""
    marks = [table.marks(column) for column in table.shown]
    head = "| " + " | ".join(markdown(column.head) for column in table.shown) + " |"
    rule = "|" + "|".join("---" if column.kind == "text" else "--:" for column in table.shown) + "|"
    lines = []
    for index, cells in enumerate(_grid(table)):
        cells = [markdown(cell) for cell in cells]
        shown = [f"**{cell}**" if mark.get(index) == "best" else cell for cell, mark in zip(cells, marks)]
        lines.append("| " + " | ".join(shown) + " |")
    return "\n".join([head, rule, *lines]) + "\n" + (f"\n{markdown(table.note)}\n" if table.note else "")


_TEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "±": r"$\pm$", "·": r"$\cdot$", "–": "--",
        "−": "$-$"}


def tex(text: str) -> str:
    r"""Text on one line with the characters that LaTeX would take for its own written out.

    >>> tex("[2pt] 50 %"), tex("s2sd · oodml")  # the end of the row before takes a bracket for its argument
    ('{[}2pt] 50 \\%', 's2sd $\\cdot$ oodml')
    """
    text = re.sub(r"[&%$#_{}~^\\±·–−]", lambda special: _TEX[special[0]], one_line(text))
    return re.sub(r"^[\[*]", r"{\g<0>}", text)


def _marked(table: Table, any_mark: bool) -> str:
    """What bold and underlined mean; of bold where rows were tested the note below the table tells."""
    if not any_mark:
        return ""
    if TIE in table.note:
        return "; bold: see the last line, underlined: the next best and all that tie with it"
    best = "best ranked row" if "rank" in table.frame else "best method"
    return f"; bold: the {best} of a column{' in its group' if table.grouped else ''}, underlined: the next best"


def to_latex(table: Table) -> str:
    """A `tabular` with booktabs rules, the best group of each column bold, the second underlined."""
    marks = [table.marks(column) for column in table.shown]
    wrap = {"best": r"\textbf{%s}", "second": r"\underline{%s}"}
    lines = [r"% needs \usepackage{booktabs}" + _marked(table, any(marks)),
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
    note = [f"% {one_line(table.note)}"] if table.note else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *note]) + "\n"


def to_text(table: Table) -> str:
    """Aligned columns for the terminal."""
    grid = aligned([[column.head for column in table.shown], *_grid(table)],
                   [column.kind == "text" for column in table.shown])
    lines = ["  ".join(row).rstrip() for row in grid]
    lines.insert(1, "  ".join("─" * width(cell) for cell in grid[0]))
    return printable("\n".join([*lines, *([table.note] if table.note else [])])) + "\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv, "latex": to_latex, "md": to_markdown, "json": to_json, "text": to_text,
}


def render(table: Table, form: str) -> str:
    """The table in one of FORMATS."""
    if form not in FORMATS:
        raise ReportError(f"unknown format '{form}'; there are: {', '.join(FORMATS)}")
    return FORMATS[form](table)
