"""What a search may draw: of every method a space that holds its default, and draws that nothing else moves."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

import methods
from benchmark import cli
from benchmark.config import search

TUNED = ("margin", "multisimilarity", "proxyanchor", "arcface", "triplet", "contrastive", "normsoftmax", "s2sd", "diva",
         "uniform-prior", "cosface", "softtriple")


def test_a_draw_depends_on_seed_method_number_and_key_alone() -> None:
    space = {"lr": (1e-5, 1e-3), "m.count": (2, 9), "m.kind": ["a", "b", "c"]}
    draws = [search.draw(space, 0, "m", number) for number in range(400)]
    assert draws == [search.draw(dict(reversed(space.items())), 0, "m", number) for number in range(400)]
    assert draws[0] == {}
    fewer = {key: values for key, values in space.items() if key != "m.kind"}
    assert all({**search.draw(fewer, 0, "m", n), "m.kind": draws[n]["m.kind"]} == draws[n] for n in range(1, 400))
    assert search.draw(space, 1, "m", 5) != draws[5] != search.draw(space, 0, "other", 5)
    logs = [math.log10(draw["lr"]) for draw in draws[1:]]
    assert stats.kstest(logs, stats.uniform(-5, 2).cdf).pvalue > 0.01
    assert {draw["m.count"] for draw in draws[1:]} == set(range(2, 10))
    assert {draw["m.kind"] for draw in draws[1:]} == {"a", "b", "c"}


@pytest.mark.parametrize("name", methods.names())
def test_every_declared_space_can_be_drawn_and_holds_the_default(name: str) -> None:
    entry = methods.get(name)
    space = entry.space()
    assert (name not in TUNED) or any(key.startswith(f"{name}.") for key in space)
    for number in range(1, 20):
        for key, value in search.draw(space, 0, name, number).items():
            owner, _, setting = key.rpartition(".")
            settings = (entry if owner == name else entry.base).settings(**{setting: str(value)})
            assert getattr(settings, setting) == value
            assert type(value) is type(getattr(settings, setting))
    for key, values in space.items():
        owner, _, setting = key.rpartition(".")
        default = getattr((entry if owner == name else entry.base).settings(), setting)
        assert default in values if isinstance(values, list) else values[0] <= default <= values[1], key


@pytest.mark.parametrize("wrong", [(0.4, 0.1), (0.0, 1.0), (1.0,), [1.0], 0.3])
def test_a_space_that_cannot_be_drawn_from_is_refused(wrong: Any) -> None:
    with pytest.raises(methods.MethodError, match="write \\(low, high\\)"):
        methods.setting(0.2, "here", search=wrong)


def test_show_prints_the_space(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["methods", "show", "uniform-prior"])
    said = capsys.readouterr().out
    assert "uniform-prior.weight         0.02 to 2, log-uniform" in said
    assert "margin.beta                  0.5 to 1.4, log-uniform" in said
