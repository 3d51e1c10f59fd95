"""What networks find for the same queries, from `gallery.json` beside records, where `oodml inspect` left one."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic import TypeAdapter

from reports.analysis import standings
from reports.storage import packed

NAME = "gallery.json"
SCHEMA = 1
_PNG = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Gallery:
    """The queries of one run with their nearest images: (image, class), then (image, class, right, similarity) each.

    An image is a PNG in base64.
    """

    rows: list[tuple[str, str, list[tuple[str, str, bool, float]]]]
    right: float
    again: str = ""
    """The device on which the cell was trained again for the gallery, where it is not of the record's own network."""

    @property
    def images(self) -> set[str]:
        return {image for query, _, found in self.rows for image in (query, *(one[0] for one in found))}


def collect(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a run that has a gallery: its label, dataset, split, distance and seed; `gallery`."""
    keys = ["label", "dataset", "split", "frd", "seed", "baseline", "base_method"]
    rows = packed.rows_beside(runs[[*keys, "path"]], NAME, SCHEMA, _rows, "run `oodml inspect` again")
    return pd.DataFrame(rows, columns=[*keys, "gallery"])


def _rows(content: Any) -> list[tuple[Any, ...]]:
    """The gallery of one file."""
    classes = TypeAdapter(dict[str, str]).validate_python(content["classes"])
    images = TypeAdapter(dict[str, str]).validate_python(content["images"])
    for text in images.values():
        if not base64.b64decode(text, validate=True).startswith(_PNG):
            raise ValueError("an image is no PNG")
    rows = []
    for query, neighbours in TypeAdapter(list[tuple[str, list[tuple[str, float]]]]).validate_python(content["rows"]):
        found = [(images[one], classes[one], classes[one] == classes[query], similarity)
                 for one, similarity in neighbours]
        rows.append((images[query], classes[query], found))
    return [(Gallery(rows, float(content["right"]), str(content.get("again", {}).get("device", ""))),)]


def chosen(known: pd.DataFrame, standing: pd.DataFrame) -> list[dict[str, Any]]:
    """For each dataset the nearest and the farthest split with galleries: the best, the median and the frozen row.

    Args:
        known: from `collect`.
        standing: the lines of `standings.standings` of the first metric.
    """
    panels = []
    for dataset, here in known.groupby("dataset", sort=True):
        board = standings.in_order(standing[standing["board"] == dataset])
        splits = here.drop_duplicates("split").sort_values(["frd", "split"])["split"]
        for split in dict.fromkeys((splits.iloc[0], splits.iloc[-1])):
            there = here[here["split"] == split].sort_values("seed").drop_duplicates("label").set_index("label")
            ranked = [label for label in board if label in there.index]
            middle = min(ranked[1:], key=lambda label: abs(board.index(label) - len(board) // 2), default=None)
            frozen = there.index[there["base_method"] == "frozen"].tolist()
            rows = [label for label in (ranked[0] if ranked else None, middle, *frozen[:1]) if label]
            if rows:
                first = there.loc[rows[0]]
                panels.append({"dataset": dataset, "split": int(split), "frd": first["frd"], "seed": int(first["seed"]),
                               "rows": [(label, there.at[label, "gallery"]) for label in rows]})
    return panels
