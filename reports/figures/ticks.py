"""Round numbers along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence


def ticks_within(low: float, high: float, most: int = 6, least: float = 0.0) -> list[float]:
    """Round numbers within two others, at most so many steps, none smaller than `least`.

    >>> ticks_within(23.1, 77.9), ticks_within(-0.4, 0.7, 4), ticks_within(1, 3, least=1)
    ([30.0, 40.0, 50.0, 60.0, 70.0], [0.0, 0.5], [1.0, 2.0, 3.0])
    """
    step = max(least, _step((high - low) or 1.0, most))
    return _multiples(step, math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9))


def ticks_around(values: Sequence[float], most: int = 6) -> list[float]:
    """Round numbers that some values lie among; the first and the last may be beyond them, but 0 and 100 stay ends.

    >>> ticks_around([62.0, 99.5]), ticks_around([0.50001, 0.50003], 5)
    ([60.0, 70.0, 80.0, 90.0, 100.0], [0.50001, 0.500015, 0.50002, 0.500025, 0.50003])
    >>> ticks_around([100.0], 2), ticks_around([0.0], 2)
    ([99.0, 99.5, 100.0], [0.0, 0.5, 1.0])
    """
    low, high = min(values), max(values)
    if low == high:
        low, high = (low - 1, high) if low >= 1 else (low, high + 1)
    step = _step(high - low, most)
    return _multiples(step, math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9))


def _step(span: float, most: int) -> float:
    """The smallest of 1, 2 and 5 times a power of ten of which a span has at most so many."""
    power = 10.0 ** math.floor(math.log10(span / most))
    return next(power * times for times in (1, 2, 5, 10) if span / (power * times) <= most * (1 + 1e-9))


def _multiples(step: float, first: int, last: int) -> list[float]:
    """Without what the product of a binary fraction adds, and without a negative zero."""
    digits = 2 - math.floor(math.log10(step))
    return [round(step * k, digits) + 0.0 for k in range(first, last + 1)]
