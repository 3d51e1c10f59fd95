"""Compiled templates are kept by the rules of compiled modules, and never used for another source."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment, FileSystemLoader

from reports.html.compiled import Compiled


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names of templates in the order in which they are compiled from here on; code is kept in a folder `kept`."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "kept"))
    names: list[str] = []
    plain = Environment.compile

    def counted(self: Environment, source: Any, name: str, *rest: Any, **options: Any) -> Any:
        names.append(name)
        return plain(self, source, name, *rest, **options)

    monkeypatch.setattr(Environment, "compile", counted)
    return names


def _page(folder: Path, **options: Any) -> str:
    environment = Environment(loader=FileSystemLoader(folder), bytecode_cache=Compiled(), **options)
    return environment.get_template("page.html").render(name="<b>")


def test_a_template_is_compiled_anew_only_if_it_or_the_options_changed(tmp_path: Path, compiled: list[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("one {{ name }}")
    assert [_page(tmp_path), _page(tmp_path)] == ["one <b>"] * 2
    assert len(compiled) == 1
    page.write_text("two {{ name }}")
    assert _page(tmp_path) == "two <b>"
    assert _page(tmp_path, autoescape=True) == "two &lt;b&gt;"
    assert len(compiled) == 3
    kept = list((tmp_path / "kept").rglob("template-*"))
    assert len(kept) == 1, "the new takes the place of the old"
    kept[0].write_bytes(kept[0].read_bytes()[:-20])
    assert _page(tmp_path, autoescape=True) == "two &lt;b&gt;"
    assert len(compiled) == 4


def test_nothing_is_kept_where_python_keeps_nothing(tmp_path: Path, compiled: list[str],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "page.html").write_text("{{ name }}")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert _page(tmp_path) == _page(tmp_path) == "<b>"
    assert compiled == ["page.html"] * 2
    assert not (tmp_path / "kept").exists()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (tmp_path / "kept").write_text("")  # a folder cannot be made there: one may not write to the installation
    assert _page(tmp_path) == "<b>"
