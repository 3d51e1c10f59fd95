"""Scales of the small figures in tables: common to rows, and not set by one that lies far outside."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reports.figures import inline


@given(st.lists(st.floats(0.6, 0.8), min_size=8, max_size=40), st.floats(0.0, 0.01))
def test_a_method_that_collapsed_does_not_flatten_the_intervals_of_the_others(scores: list[float], lost: float) -> None:
    near = [0.6, 0.65, 0.75, 0.8, *scores]
    low, high = inline.usual([*near, lost])
    assert lost < low <= high <= max(near)
    first, third = np.quantile([*near, lost], [0.25, 0.75])
    reach = 1.5 * (third - first) + 1e-9
    assert all(low <= one <= high for one in near if first - reach + 2e-9 < one < third + reach - 2e-9)
    assert inline.interval(lost, lost, lost, low, high) == ""


def test_few_values_are_all_usual_and_what_is_no_number_is_left_out() -> None:
    assert inline.usual([0.9, 0.5]) == (0.5, 0.9)
    assert inline.usual([float("nan"), 0.5, float("inf")]) == (0.5, 0.5)
    assert inline.usual([]) == (0.0, 0.0)
