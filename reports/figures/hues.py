"""Which colour a method has: the same on every page, and the same again when others come or go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from zlib import crc32

COUNT = 8
"""Hues that can be told apart, and lines of a figure that are in colour."""
EASY = 6
"""Of them the first, which can be seen on white and on black; the others are for where these do not suffice."""


def preferred(method: str) -> int:
    """The hue that follows from the name of a method alone.

        crc32(name) mod 6

    >>> preferred("margin"), preferred("multisimilarity"), preferred("arcface")
    (3, 5, 5)
    """
    return crc32(method.encode()) % EASY


def shared_out(methods: Iterable[str], figures: Sequence[Sequence[str]] = ()) -> dict[str, int]:
    """The number of each method's hue: the preferred one, or the next that is free where figures would show it twice.

    A hue that came from a method's rank would change with every run that is added. One that comes from its name stays,
    but there are more methods than hues. So a method gives way, and only it, to one with which it stands among the
    first eight of a figure, which are in colour. Those of the first figure choose first, then those of the second that
    are not in the first, and so on: by name, not by score, which the next seed may change. Where the others of
    all its figures leave no hue, a method takes one that it shares in the last of these figures alone.

    Args:
        figures: the methods of each figure in the order of its lines, the figures that most will look at first.

    >>> shared_out(["arcface", "margin", "multisimilarity"])
    {'arcface': 5, 'margin': 3, 'multisimilarity': 5}
    >>> shared_out(["arcface", "margin", "multisimilarity"], [["multisimilarity", "arcface"]])
    {'arcface': 5, 'multisimilarity': 0, 'margin': 3}
    """
    firsts = [list(dict.fromkeys(figure))[:COUNT] for figure in figures]
    hues: dict[str, int] = {}
    for method in [method for first in firsts for method in sorted(first)]:
        if method in hues:
            continue
        shared = {hue: len(firsts) for hue in range(COUNT)}
        for number, first in reversed(list(enumerate(firsts))):
            if method in first:
                shared |= {hues[other]: number for other in first if other in hues}
        own = preferred(method)
        order = [*((own + step) % EASY for step in range(EASY)), *range(EASY, COUNT)]
        hues[method] = max(order, key=lambda hue: shared[hue])
    return hues | {method: preferred(method) for method in sorted(set(methods) - set(hues))}
