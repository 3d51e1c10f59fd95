"""The contact sheet of a dataset: some classes, some images of each, on one page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from benchmark.data.decoding import opened
from benchmark.datasets.index import DatasetIndex, upright
from benchmark.utils.files import whole

ROWS, COLUMNS = 16, 8
"""Classes, half of them from each side, and images of each."""
TILE, GAP, CAPTION = 96, 4, 18
"""Pixels."""


def contact_sheet(index: DatasetIndex, path: Path) -> Path:
    """Writes a PNG of some classes of each side and some images of each class, evenly spaced in their order."""
    chosen = [*_spread(index.train_classes, ROWS // 2), *_spread(index.test_classes, ROWS // 2)]
    train = set(index.train_classes)
    font = ImageFont.load_default(size=12)
    high = TILE + CAPTION + GAP
    sheet = Image.new("RGB", (COLUMNS * (TILE + GAP) + GAP, len(chosen) * high + GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for row, name in enumerate(chosen):
        images = index.of_classes((name,))
        top = GAP + row * high
        # the default font is Latin alone
        caption = f"{'train' if name in train else 'test'} · {_latin(name)} · {len(images)} images"
        pen.text((GAP, top), caption, fill="black", font=font)
        for column, i in enumerate(_spread(images.tolist(), COLUMNS)):
            with opened(index, i) as image:
                tile = ImageOps.pad(upright(image), (TILE, TILE), color="lightgray")
            sheet.paste(tile, (GAP + column * (TILE + GAP), top + CAPTION))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as part:
        sheet.save(part, format="PNG")
    return path


def _latin(name: str) -> str:
    return name.encode("latin-1", "backslashreplace").decode("latin-1")


def _spread(items: tuple | list, count: int) -> list:
    """At most `count` of the items, evenly spaced, the first and last among them.

    >>> _spread([1, 2, 3, 4, 5], 3)
    [1, 3, 5]
    """
    positions = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[i] for i in positions]
