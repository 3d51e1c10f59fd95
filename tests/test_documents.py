"""What the documents say is there: commands and their options, files, names in Python, and an example that runs."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

import methods
import oodml
from benchmark.cli import cli
from methods.checks import check_method
from tests import sample_records

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = {path.name: path.read_text(encoding="utf-8")
             for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "benchmark").glob("*.md")),
                          *sorted((ROOT / "docs/pages").glob("*.md")), ROOT / "reports/html/templates/submit.html"]}
SHOWN = sorted({(name, line) for name, text in DOCUMENTS.items()
                for line in [*re.findall(r"^ {4,8}(?:[A-Z_]+=\S+ )*(oodml .*)$", text.replace("\\\n", " "), re.M),
                             *re.findall(r"^(?:<pre.*?<code>)?(oodml .*?)(?:</code>.*)?$", text, re.M),
                             *re.findall(r"`(oodml [^`]+)`", text.replace("\n", " "))]})


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that a line names, and the words behind it."""
    found: click.Command = cli
    while words and isinstance(found, click.Group):
        inner = found.get_command(click.Context(found), words[0])
        if inner is None:
            break
        found, words = inner, words[1:]
    return found, words


@pytest.mark.parametrize(("document", "line"), SHOWN)
def test_every_command_that_is_shown_is_there(document: str, line: str) -> None:
    line, _, listed = line.split("#")[0].partition("[")
    command, rest = command_of(shlex.split(line)[1:])
    assert command is not cli, f"{document}: {line}"
    options = {text for parameter in command.params for text in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.split("=")[0] for word in rest if word.startswith("--")} <= options, f"{document}: {line}"
    for name in filter(None, listed.rstrip("] ").split(", ")):
        assert isinstance(command, click.Group)
        assert command.get_command(click.Context(command), name) is not None, f"{document}: {line} {name}"


@pytest.mark.parametrize(("document", "path"), sorted({
    (name, path) for name, text in DOCUMENTS.items() for path in re.findall(
        r"`((?:benchmark|methods|splits|reports|tests)/[\w./-]*)`", text)}))
def test_every_file_that_is_named_is_there(document: str, path: str) -> None:
    assert (ROOT / path).exists(), document


@pytest.mark.parametrize(("document", "name"), sorted({
    (name, found) for name, text in DOCUMENTS.items() for found in re.findall(
        r"`((?:oodml|benchmark|methods|splits|reports)(?:\.\w+)+)`", text)}))
def test_every_name_in_python_is_there(document: str, name: str) -> None:
    module, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        assert hasattr(importlib.import_module(module), last), document


def test_the_example_in_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new folder, where no ladder was built before."""
    sample_records.write_sample(tmp_path / "work" / "runs", {"margin": 0.7}, ("glyphs",))
    monkeypatch.chdir(tmp_path)
    code = re.search(r"```python\n(.*?)```", DOCUMENTS["README.md"].partition("## In Python")[2], re.S)
    assert code is not None
    values: dict[str, Any] = {}
    exec(code[1], values)
    assert set(re.findall(r"oodml\.(\w+)", code[1])) >= set(oodml.__all__) - {"main", "register", "load_ladder"}
    assert oodml.load_ladder("mine.json") == values["ladder"]
    assert len(values["scores"]) == len(values["ladder"].splits) > 2
    assert values["embeddings"].shape == (8, 64)
    assert values["loss"].isfinite()
    assert set(values["runs"]["method"]) == {"margin"}
    assert "glyphs-mini" in set(values["runs"]["dataset"])


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^ {4}make ([\w-]+)", "\n".join(DOCUMENTS.values()), re.M))))
def test_every_target_is_there(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_the_example_of_a_method_conforms(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods.names()  # discovered now, so that what is put back is whole
    monkeypatch.setattr(methods.registry, "_ENTRIES", dict(methods.registry._ENTRIES))
    code = re.search(r"```python\n(.*?)```", DOCUMENTS[document], re.S)
    assert code is not None
    assert code[1].count("\n") <= 60
    (tmp_path / "mine.py").write_text(code[1])
    (name,) = methods.load_plugin(tmp_path / "mine.py")
    assert [result for result in check_method(methods.get(name)) if not result.passed] == []
