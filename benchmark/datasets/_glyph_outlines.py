"""The DejaVu and STIX faces that matplotlib ships: where they are, what they cover and their outlines as polygons."""

from __future__ import annotations

import hashlib
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmark.utils.errors import UserError

if TYPE_CHECKING:
    from fontTools.ttLib import TTFont

FACES = (
    "DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique",
    "DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic",
    "DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique",
)
STIX = ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta")
"""Faces of other designs, for pretraining alone."""
STEPS = 8
"""Straight pieces a curve is cut into: at 64 px the polygon stays within 1/20 of a pixel of it."""
UNITS_PER_EM = 2048 * 2 * STEPS * STEPS
"""Outline units an em: fine enough that every corner of every polygon is a whole number."""


@cache
def folder() -> Path:
    """The folder of the font files; matplotlib itself, slow to import, is asked only where a packager moved them."""
    spec = find_spec("matplotlib")
    if spec is None or not spec.submodule_search_locations:
        raise UserError("glyphs are drawn from matplotlib's fonts, but it is not installed; pip install matplotlib")
    fonts = Path(spec.submodule_search_locations[0]) / "mpl-data" / "fonts" / "ttf"
    if not fonts.is_dir():
        import matplotlib

        fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    missing = [face for face in (*FACES, *STIX) if not (fonts / f"{face}.ttf").is_file()]
    if missing:
        raise UserError(f"no {missing[0]}.ttf in {fonts}; pip install --force-reinstall matplotlib")
    return fonts


@cache
def fonts_hash(faces: tuple[str, ...] = FACES) -> str:
    """SHA-256 over the bytes of the files of these faces, in their order."""
    digest = hashlib.sha256()
    for face in faces:
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
def shared_characters(faces: tuple[str, ...] = FACES) -> tuple[int, ...]:
    """The code points that every one of these faces has a glyph for, in rising order."""
    return tuple(sorted(set.intersection(*(set(_cmap(face)) for face in faces))))


@lru_cache(maxsize=4096)
def outline(face: str, code: int) -> np.ndarray:
    """The glyph's edges as whole numbers (n, 4): x0, y0, x1, y1, y upwards, `UNITS_PER_EM` an em.

    A TrueType contour is a ring of points on and off the curve; between two off points lies an implied one, half
    way. Each piece (p0, c, p1) is the curve B(t) = (1-t)^2 p0 + 2t(1-t) c + t^2 p1, here at t = k / STEPS.
    """
    table = _font(face)["glyf"]
    coordinates, ends, flags = table[_cmap(face)[code]].getCoordinates(table)
    if not ends:
        return np.zeros((0, 4), np.int64)
    # Whole already but where a component is scaled, by a binary fraction: the product is exact before it is rounded.
    # Doubled, so that a point half way is whole too.
    points = 2 * np.rint(np.array(coordinates.array).reshape(-1, 2)).astype(np.int64)
    points *= 2048 // _font(face)["head"].unitsPerEm  # of STIX, whose em has 1,000 units, nearly to size
    # Bit 0 of a flag says "on the curve"; bit 6, overlapping contours, may stand beside it.
    on = np.array(flags, dtype=np.uint8) & 1 == 1
    following, preceding = np.arange(len(points)) + 1, np.arange(len(points)) - 1
    starts = [0, *(end + 1 for end in ends[:-1])]
    following[ends], preceding[starts] = starts, ends

    off, line = ~on, on & on[following]
    half_way = (points + points[following]) // 2
    p0 = np.where(on[preceding[off], None], points[preceding[off]], half_way[preceding[off]])[:, None]
    p1 = np.where(on[following[off], None], points[following[off]], half_way[off])[:, None]
    k = np.arange(STEPS + 1)[:, None]
    curve = (STEPS - k) ** 2 * p0 + 2 * k * (STEPS - k) * points[off][:, None] + k**2 * p1
    bent = np.concatenate([curve[:, :-1], curve[:, 1:]], axis=2).reshape(-1, 4)
    return np.concatenate([STEPS**2 * np.concatenate([points[line], points[following[line]]], axis=1), bent])
