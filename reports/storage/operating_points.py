"""How a record keeps the similarities of all pairs: thresholds at fixed rates, and from them any rate.

A record's `thresholds` holds, for every rate of LEVELS, the lowest threshold that accepts no larger share of the
negative pairs (`negative`), and the highest that rejects no larger share of the positive pairs (`positive`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

RATES = (1e-2, 1e-3)
"""False accept rates at which a threshold is fixed."""
STEPS = 6
"""Levels in a factor of ten, up to 0.1."""
_LOW = [10 ** (-step / STEPS) for step in range(STEPS, 6 * STEPS + 1)]
LEVELS = tuple(sorted(float(f"{level:.4g}") for level in (
    *_LOW, *(part / 20 for part in range(3, 18)), *(1 - low for low in _LOW if low > 0.99e-4))))
"""From 1e-6 to 1 - 1e-4, dense at both ends; 1e-2 and 1e-3 are among them."""


def rate_at(threshold: float, thresholds: Sequence[float], accepts: bool) -> float:
    """The share of the negative pairs that a threshold accepts, or of the positive pairs that it rejects.

    Between two kept thresholds the logit of the share runs straight; beyond the first it is 0, beyond the last 1.

    >>> kept = [1 - 2 * level for level in LEVELS]      # similarities of negative pairs spread evenly over [-1, 1]
    >>> round(rate_at(0.98, kept, accepts=True), 4), round(rate_at(0.5, kept, accepts=True), 3)
    (0.01, 0.25)
    """
    sign = -1.0 if accepts else 1.0
    at, first = np.unique(sign * np.asarray(thresholds, dtype=np.float64), return_index=True)
    levels = np.asarray(LEVELS)[first]  # of equal thresholds the lowest rate: it holds for all of them
    here = sign * threshold
    if here < at[0]:
        return 0.0
    if here > at[-1]:
        return 1.0
    logit = float(np.interp(here, at, np.log(levels / (1 - levels))))
    return 1 / (1 + float(np.exp(-logit)))
