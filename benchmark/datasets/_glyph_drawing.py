"""Drawing a glyph: outline, seeded variation, filled polygon, ink and ground, in whole numbers.

Neither FreeType nor Pillow nor a random generator of numpy has a say in a pixel, so the same font files give the same
bytes on every processor and with every library version. What varies is drawn from SHAKE-128 of (face, character,
drawing number): an image depends on nothing drawn before it.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from benchmark.datasets._glyph_outlines import UNITS_PER_EM, outline

RENDERER = 1
"""Raised with every change that alters a pixel; part of every image id."""
SIDE = 64
SAMPLES = 4
"""Sample rows and columns a pixel."""
EM = 32
"""Pixels an em before the seeded scale."""
ROOM = 44
"""A larger glyph is shrunk to this many pixels; smaller ones keep their size, by which 'o' differs from 'O'."""
ROTATION, SHEAR, SHIFT, NOISE = 12.0, 0.12, 4.0, 56
SCALE = (0.85, 1.15)
_FRACTION = 16
"""Bits behind the point of a sample coordinate."""


def draw(face: str, code: int, drawing: int) -> np.ndarray:
    """One seeded drawing of a character as a (64, 64, 3) array of bytes.

    >>> draw("DejaVuSans", ord("A"), 0).shape
    (64, 64, 3)
    """
    chance = hashlib.shake_128(f"{face}/{code:04X}/{drawing}".encode()).digest(32 + SIDE * SIDE * 3)
    turn, lean, size, right, down, soft = (int.from_bytes(chance[2 * i : 2 * i + 2], "little") for i in range(6))
    tint = np.frombuffer(chance[12:20], np.uint8).astype(np.int32)
    noise = np.frombuffer(chance[32:], np.uint8).reshape(SIDE, SIDE, 3).astype(np.int16)

    shape = coverage(
        outline(face, code),
        angle=_within(turn, -ROTATION, ROTATION),
        shear=_within(lean, -SHEAR, SHEAR),
        scale=_within(size, *SCALE),
        shift=(_within(right, -SHIFT, SHIFT), _within(down, -SHIFT, SHIFT)),
    )
    shape = _blur(shape, soft * 16 >> 16)
    ink = tint[0] * 50 // 255 + tint[1:4] * 70 // 255
    ground = 160 + tint[4] * 35 // 255 + tint[5:8] * 60 // 255
    drawn = ground + ((ink - ground) * shape[..., None] >> 12) + ((noise - 128) * NOISE >> 7)
    return np.clip(drawn, 0, 255).astype(np.uint8)


def _within(chance: int, low: float, high: float) -> float:
    return low + (high - low) * chance / 65535


def coverage(edges: np.ndarray, angle: float = 0.0, shear: float = 0.0, scale: float = 1.0,
             shift: tuple[float, float] = (0.0, 0.0)) -> np.ndarray:
    """How much of each pixel lies inside the outline, 0 to 4096, the ink's box centred and then moved.

    The four numbers of the matrix are rounded to 2^-26 of a sample an outline unit. Only there do sine and cosine
    enter, whose last bit may differ between C libraries; about one in 10^11 such differences would meet a rounding tie.
    """
    if not len(edges):
        return np.zeros((SIDE, SIDE), np.int32)
    corners = edges.reshape(-1, 2)
    low, high = corners.min(axis=0), corners.max(axis=0)
    unit = min(EM / UNITS_PER_EM, ROOM / float((high - low).max())) * SAMPLES * scale
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    # Pixel rows count downwards, so the second row of rotation times shear is negated.
    matrix = np.array([[cos, cos * shear - sin], [-sin, -sin * shear - cos]]) * unit
    fixed = np.rint(matrix * (1 << 26)).astype(np.int64)
    middle = np.rint((SIDE / 2 + np.array(shift)) * SAMPLES * (1 << _FRACTION)).astype(np.int64)
    placed = ((corners * 2 - low - high) @ fixed.T >> (27 - _FRACTION)) + middle
    inside = _fill(placed.reshape(-1, 4))
    # Rows first, then columns: several times faster than one sum over both axes.
    rows = inside.reshape(SIDE, SAMPLES, SIDE * SAMPLES).sum(axis=1, dtype=np.uint8)
    counts = rows.reshape(SIDE * SIDE, SAMPLES).T.sum(axis=0, dtype=np.int32).reshape(SIDE, SIDE)
    return counts * (4096 // SAMPLES**2)


def _fill(edges: np.ndarray) -> np.ndarray:
    """Which sample points lie inside by the non-zero winding rule.

    A sample row crosses an edge at one column at most: there the winding number changes by the edge's direction;
    summed from the left it is the winding number of each sample.
    """
    side, half, ones = SIDE * SAMPLES, 1 << (_FRACTION - 1), (1 << _FRACTION) - 1
    x0, y0, x1, y1 = edges[edges[:, 1] != edges[:, 3]].T
    first = np.clip((np.minimum(y0, y1) - half + ones) >> _FRACTION, 0, side)
    last = np.clip((np.maximum(y0, y1) - half + ones) >> _FRACTION, 0, side)
    times = last - first
    edge = np.repeat(np.arange(len(times)), times)
    row = np.arange(len(edge)) - np.repeat(np.cumsum(times) - times, times) + first[edge]
    centre = (row << _FRACTION) + half
    intersection = x0[edge] + (centre - y0[edge]) * (x1 - x0)[edge] // (y1 - y0)[edge]
    column = np.clip((intersection - half + ones) >> _FRACTION, 0, side)
    change = np.zeros((side, side + 1), np.int8)
    np.add.at(change, (row, column), np.where(y1 > y0, 1, -1).astype(np.int8)[edge])
    return np.cumsum(change[:, :-1], axis=1, dtype=np.int8) != 0


def _blur(shape: np.ndarray, weight: int) -> np.ndarray:
    """The shape mixed with its 3 x 3 binomial mean, `weight` sixteenths of it."""
    edge = np.pad(shape, 1)
    rows = edge[:-2] + 2 * edge[1:-1] + edge[2:]
    mean = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) >> 4
    return (shape * (16 - weight) + mean * weight) >> 4
