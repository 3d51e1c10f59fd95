"""The twelve DejaVu faces that matplotlib ships: where they are, what they cover and their outlines as polygons."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmark.errors import UserError

if TYPE_CHECKING:
    from fontTools.ttLib import TTFont

FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
)
STEPS = 8
"""Straight pieces a curve is cut into: at 64 px the polygon stays within 1/20 of a pixel of it."""
UNITS_PER_EM = 2048 * 2 * STEPS * STEPS
"""Outline units an em: fine enough that every corner of every polygon is a whole number."""


@cache
def folder() -> Path:
    """The folder of the font files; matplotlib itself, slow to import, is asked only where a packager moved them."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("the glyphs are drawn from matplotlib's fonts and matplotlib is missing; pip install matplotlib")
    place = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"
    if not place.is_dir():
        import matplotlib

        place = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    missing = [face for face in FACES if not (place / f"{face}.ttf").is_file()]
    if missing:
        raise UserError(f"no {missing[0]}.ttf in {place}; pip install --force-reinstall matplotlib")
    return place


@cache
def fonts_hash() -> str:
    """SHA-256 over the bytes of the twelve files in the order of `FACES`."""
    digest = hashlib.sha256()
    for face in FACES:
        digest.update((folder() / f"{face}.ttf").read_bytes())
    return digest.hexdigest()


@cache
def _font(face: str) -> TTFont:
    from fontTools.ttLib import TTFont

    return TTFont(folder() / f"{face}.ttf", lazy=True)


@cache
def _cmap(face: str) -> dict[int, str]:
    return _font(face).getBestCmap()


@cache
def shared_characters() -> tuple[int, ...]:
    """The code points that every face has a glyph for, in rising order."""
    return tuple(sorted(set.intersection(*(set(_cmap(face)) for face in FACES))))


@lru_cache(maxsize=4096)
def outline(face: str, code: int) -> np.ndarray:
    """The glyph's edges as whole numbers (n, 4): x0, y0, x1, y1, y upwards, `UNITS_PER_EM` an em.

    A TrueType contour is a ring of points on and off the curve; between two off points lies an implied one, half
    way. Each piece (p0, c, p1) is the curve B(t) = (1-t)^2 p0 + 2t(1-t) c + t^2 p1, here at t = k / STEPS.
    """
    table = _font(face)["glyf"]
    points, ends, flags = table[_cmap(face)[code]].getCoordinates(table)
    ring_points, on_curve = np.array(points, dtype=np.float64).reshape(-1, 2), np.array(flags, dtype=bool)
    # Whole already, but for accents placed by a scaled component, whose sixteenths of a unit nobody sees.
    ring_points = 2 * np.rint(ring_points).astype(np.int64)
    edges = [np.zeros((0, 4), np.int64)]
    start = 0
    for end in ends:
        edges.append(_flatten(ring_points[start : end + 1], on_curve[start : end + 1]))
        start = end + 1
    return np.concatenate(edges)


def _flatten(points: np.ndarray, on_curve: np.ndarray) -> np.ndarray:
    """One closed contour, coordinates doubled, as edges in units of `UNITS_PER_EM`."""
    following, following_on = np.roll(points, -1, axis=0), np.roll(on_curve, -1)
    lines = on_curve & following_on
    middle = (points + following) // 2
    off = ~on_curve
    before = np.where(np.roll(on_curve, 1)[:, None], np.roll(points, 1, axis=0), np.roll(middle, 1, axis=0))
    after = np.where(following_on[:, None], following, middle)
    k = np.arange(STEPS + 1)[None, :, None]
    curve = ((STEPS - k) ** 2 * before[off][:, None] + 2 * k * (STEPS - k) * points[off][:, None]
             + k**2 * after[off][:, None])
    straight = STEPS * STEPS * np.concatenate([points[lines], following[lines]], axis=1)
    bent = np.concatenate([curve[:, :-1], curve[:, 1:]], axis=2).reshape(-1, 4)
    return np.concatenate([straight, bent])
