"""Which hue a method has: those that share a figure differ, and what comes or goes elsewhere changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from reports.figures.drawing import styles
from reports.figures.hues import COUNT, EASY, preferred, shared_out

NAMES = [f"method-{number}" for number in range(30)]
FIGURES = st.lists(st.lists(st.sampled_from(NAMES), max_size=12, unique=True), max_size=4)


@given(FIGURES)
def test_the_first_eight_of_the_first_figure_have_eight_hues(figures: list[list[str]]) -> None:
    hues = shared_out(NAMES, figures)
    assert set(hues) == set(NAMES)
    assert set(hues.values()) <= set(range(COUNT))
    first = next((figure for figure in figures if figure), [])[:COUNT]
    assert len({hues[method] for method in first}) == len(first)


@given(FIGURES, st.lists(st.sampled_from(NAMES), unique=True))
def test_methods_outside_the_figures_change_no_hue(figures: list[list[str]], others: list[str]) -> None:
    every, few = shared_out(NAMES, figures), shared_out(others, figures)
    assert few == {method: every[method] for method in few}


@given(FIGURES, st.randoms())
def test_the_order_of_the_best_eight_changes_no_hue(figures: list[list[str]], random: Random) -> None:
    def shuffled(figure: Sequence[str]) -> list[str]:
        return random.sample(figure[:COUNT], len(figure[:COUNT])) + list(figure[COUNT:])

    assert shared_out(NAMES, figures) == shared_out(NAMES, [shuffled(figure) for figure in figures])


@given(FIGURES)
def test_a_method_gives_way_only_where_a_figure_would_show_its_hue_twice(figures: list[list[str]]) -> None:
    hues = shared_out(NAMES, figures)
    for method, hue in hues.items():
        rivals = [other for figure in figures if method in figure[:COUNT] for other in figure[:COUNT]]
        taken = {hues[other] for other in rivals if other != method}
        assert hue == preferred(method) or preferred(method) in taken
        assert hue < EASY or set(range(EASY)) <= taken, "weak hues are for where the others do not suffice"


def test_a_row_more_of_a_method_has_its_hue_and_another_mark() -> None:
    look = styles(["a · x", "a · y"], methods={"a · x": "margin", "a · y": "margin"})
    assert {style.number for style in look.values()} == {preferred("margin")}
    assert len({style.marker for style in look.values()}) == 2
