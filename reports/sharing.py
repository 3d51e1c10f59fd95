"""Results in the formats of other places: Hugging Face's evaluation files, badges, parquet. Nothing is sent."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from reports import ReportError
from reports.safe_text import one_line
from reports.selection import ROW
from reports.storage import paths, queries
from reports.wording import counted

OUTCOMES = ["dataset", "split", "split_hash", *ROW, "seed", "identity"]
"""What says of which run a query is."""


def outcomes(runs: pd.DataFrame) -> pd.DataFrame:
    """One row for each query of the runs that kept them, in the order of the test side."""
    made = []
    for run in runs.to_dict("records"):
        path = Path(run["path"]) / queries.NAME
        if not path.is_file():
            continue
        try:
            kept = queries.load(path)
        except ReportError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            continue
        named = kept.labels if kept.classes is None else kept.classes[kept.labels]
        columns: dict[str, Any] = {key: run[key] for key in OUTCOMES}
        columns |= {"query": range(len(kept.labels)), "class": [str(name) for name in named], "counted": kept.counted,
                    "first_hit": kept.first_hit, **kept.precision}
        if kept.parts is not None:
            columns["part"] = [str(name) for name in kept.parts.names[kept.parts.part]]
        made.append(pd.DataFrame(columns))
    return pd.concat(made, ignore_index=True) if made else pd.DataFrame(columns=OUTCOMES)


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """A tidy frame as a parquet file; columns that hold texts and numbers become texts."""
    mixed = [str(key) for key in frame if frame[key].dtype == object]
    frame = frame.assign(**{key: frame[key].map(lambda value: value if value is None or value != value else str(value))
                            for key in mixed})
    try:
        frame.to_parquet(path, index=False)
    except ImportError:
        raise ReportError("writing parquet needs pyarrow: `pip install 'oodml[parquet]'`") from None


def huggingface(rows: pd.DataFrame, labels: dict[Any, str], hub: str) -> Iterator[tuple[str, str]]:
    """(path, text) of the evaluation files for the model repository of each row of the AGS table.

    `NAME/.eval_results/oodml.yaml` is what the Hub shows beside a benchmark, `NAME/model-index.yaml` goes to the head
    of the model's README. Values are percent; the datasets are `HUB/DATASET`.
    """
    import yaml

    for name, label, own in _by_row(rows, labels):
        results, index = [], []
        for row in own.to_dict("records"):
            dataset, value = one_line(str(row["dataset"])), round(100 * row["ags"], 2)
            bounds = "" if pd.isna(row["low"]) else (f"95 % interval {100 * row['low']:.1f} to "
                                                     f"{100 * row['high']:.1f}, ")
            notes = one_line(f"{row['protocol']} protocol, {row['backbone']}, {counted(int(row['n']), 'seed')}, "
                             f"{bounds}rungs {row['coverage']}")
            task = f"ags-{row['metric'].replace('@', '-')}"
            results.append({"dataset": {"id": f"{hub}/{dataset}", "task_id": task}, "value": value, "notes": notes})
            index.append({"task": {"type": "image-feature-extraction", "name": "Retrieval of classes not trained on"},
                          "dataset": {"type": f"{hub}/{dataset}", "name": f"Ladder of {dataset}"},
                          "metrics": [{"type": task, "name": f"AGS of {row['metric']}", "value": value}]})
        for path, content in ((".eval_results/oodml.yaml", results),
                              ("model-index.yaml", {"model-index": [{"name": label, "results": index}]})):
            yield f"{name}/{path}", yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def badges(rows: pd.DataFrame, labels: dict[Any, str]) -> Iterator[tuple[str, str]]:
    """(path, SVG) of a badge with rank and AGS for each row of the AGS table and each dataset."""
    for name, label, own in _by_row(rows, labels):
        for row in own.to_dict("records"):
            ranked = pd.notna(row["rank"]) and row["rank:of"] > 1
            place = f"#{int(row['rank'])} of {int(row['rank:of'])} · " if ranked else ""
            dataset = one_line(str(row["dataset"]), 60)
            score = f"{place}AGS {100 * row['ags']:.1f}"
            yield f"{name}-{_plain(dataset)}.svg", badge(f"oodml {dataset}", score, label)


def badge(left: str, right: str, title: str) -> str:
    """Two fields of text side by side, in no font that would have to be loaded.

    >>> "<title>a &lt;b&gt;: x y</title>" in badge("x", "y", "a <b>")
    True
    """
    widths = [10 + 6.6 * len(text) for text in (left, right)]
    left, right, title = (escape(text) for text in (left, right, one_line(title, 200)))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths):.0f}" height="20" role="img" '
            f'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" fill="#fff"><title>{title}: {left} {right}'
            f'</title><rect width="{sum(widths):.0f}" height="20" rx="3" fill="#444"/>'
            f'<rect x="{widths[0]:.0f}" width="{widths[1]:.0f}" height="20" rx="3" fill="#2f5d9b"/>'
            f'<text x="5" y="14" textLength="{widths[0] - 10:.0f}">{left}</text>'
            f'<text x="{widths[0] + 5:.0f}" y="14" textLength="{widths[1] - 10:.0f}">{right}</text></svg>\n')


def write(files: Iterator[tuple[str, str]], out: Path) -> int:
    """Writes files below a folder; how many."""
    count = 0
    for name, text in files:
        path = paths.below(out, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.write(path, text)
        count += 1
    return count


def _by_row(rows: pd.DataFrame, labels: dict[Any, str]) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """(a name for files, label, its rows) of each method; two labels never share a name."""
    taken: dict[str, int] = {}
    rows = rows[rows["ags"].notna() & (rows["source"] != "published")]
    for key, own in rows.groupby(ROW, sort=True):
        label = one_line(labels[key])
        name = _plain(label)
        taken[name] = taken.get(name, 0) + 1
        yield (name if taken[name] == 1 else f"{name}-{taken[name]}"), label, own


def _plain(text: str) -> str:
    """A text as a part of a path: letters, digits and a few signs.

    >>> _plain("r-margin · conv4"), _plain("../<b>")
    ('r-margin-conv4', 'b')
    """
    return re.sub(r"[^\w+]+", "-", text, flags=re.ASCII).strip("-")[:100] or "row"
