"""Scales of the small figures in tables: common to rows, and not set by one that lies far outside."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import font_manager
from PIL import ImageFont

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


@pytest.mark.parametrize("losses", [(2.5, 0.1), (0.0500441, 0.0500042), (0.05, 0.05 + 1e-14), (3.0, 3.0)])
def test_numbers_of_a_training_are_distinct_and_within_the_figure(losses: tuple[float, ...]) -> None:
    curve = [{"epoch": epoch, "loss": loss, "recall@1": 0.5} for epoch, loss in enumerate(losses)]
    drawn = inline.training_curves([("a", curve)], "name", "Title", "recall@1")
    numbers = re.findall(r'<text x="([0-9.]+)" y="[0-9.]+" font-size="8.5" text-anchor="end"[^>]*>([^<]+)<', drawn)
    size = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), 85)
    assert all(float(x) - size.getlength(text) / 10 >= 0 for x, text in numbers)
    if max(losses) - min(losses) > 1e-9:
        written = [text for x, text in numbers if x == numbers[0][0]]
        assert len(set(written)) == len(written)
