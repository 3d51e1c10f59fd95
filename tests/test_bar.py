"""What commands say that embed images with finished runs: a bar on a terminal, a line a minute elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from benchmark.posthoc.bar import Bar


def test_in_a_log_file_a_line_now_and_then_says_how_far(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    with Bar(2000, said.append, terminal=False, interval=0) as bar:
        bar.begin("cub/1 margin at alpha 0.5")
        bar.step(1500)
        bar.tell("done")
    assert said[0] == "cub/1 margin at alpha 0.5 (0 of 2,000 images)"
    assert said[1] == "cub/1 margin at alpha 0.5 (1,500 of 2,000 images, 0 s left)"
    assert said[2:] == ["done"]
    said.clear()
    with Bar(2000, said.append, terminal=False) as bar:
        bar.begin("cub/1 margin at alpha 0.5")
        bar.step(1500)
    assert said == [], "what is over within a minute says nothing between"
    assert capsys.readouterr().err == ""


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = io.StringIO()
    monkeypatch.setattr(sys, "stderr", drawn)
    said: list[str] = []
    with Bar(10, said.append, terminal=True, interval=0) as bar:
        bar.begin("UMAP of cub/1 margin")
        bar.step(10)
        bar.tell("done")
    assert said == ["done"]
    assert "UMAP of cub/1 margin" in drawn.getvalue()
    assert "10/10" in drawn.getvalue()
