"""What GitHub and readers take from the repository: workflows, issue forms, the citation, hooks, the version."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

import methods
import oodml
from benchmark.cli import cli
from docs.formulas import GREEK, mathml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(path: Path) -> list[dict[str, Any]]:
    """The steps of all jobs of a workflow."""
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize(("schema", "pattern"), [
    ("github-workflows", ".github/workflows/*.yml"), ("github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
    ("github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"), ("citation-file-format", "CITATION.cff")])
def test_files_follow_their_published_schema(schema: str, pattern: str, tmp_path: Path) -> None:
    files = sorted(ROOT.glob(pattern))
    assert files
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run([*check, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.yml").write_text(files[0].read_text(encoding="utf-8") + "\nunheard-of: 1\n")
    assert subprocess.run([*check, tmp_path / "wrong.yml"], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_is_a_published_action_or_one_make_target(path: Path) -> None:
    """So that what GitHub runs also runs here; only GitHub's own actions, at a version."""
    for step in steps(path):
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
        else:
            words = re.fullmatch(r"make ([\w-]+)((?: [A-Z]+=[\w./-]+)*)", step["run"])
            assert words, step["run"]
            assert re.search(rf"^{words[1]}:.*##", MAKEFILE, re.M), step["run"]
            for variable in re.findall(r"([A-Z]+)=", words[2]):
                assert f"$({variable})" in MAKEFILE, step["run"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_workflow_may_more_than_it_needs(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] in ({}, {"contents": "read"})
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 60
        writes = [key for key, value in job.get("permissions", {}).items() if value == "write"]
        assert not writes or not any("run" in step for step in job["steps"]), f"{name} runs code and may write {writes}"


def test_packs_of_a_pull_request_are_refused_or_told_in_a_comment(tmp_path: Path) -> None:
    """As `make check-submissions` calls it; a wicked pack is one line of text that is no Markdown."""
    script = ["sh", str(ROOT / ".github/check_submissions.sh"), str(tmp_path / "packs"), str(tmp_path / "comment.md")]
    command = tmp_path / "oodml"
    command.write_text(f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m oodml "$@"\n')
    command.chmod(0o755)
    env = {**os.environ, "OODML": str(command), "AGAINST": "--against reports/data/records/precision"}
    assert subprocess.run(script, env=env, check=False).returncode == 0
    assert (tmp_path / "comment.md").read_text().startswith("There is no pack")
    pack = tmp_path / "packs" / "<b>x"
    pack.mkdir(parents=True)
    (pack / "pack.json").write_text('{"name": "# big"}')
    assert subprocess.run(script, env=env, capture_output=True, check=False).returncode == 1
    first, *rest = (tmp_path / "comment.md").read_text().splitlines()
    assert first == "Refused:"
    assert any(rest)
    assert all(line.startswith("    ") or not line for line in rest)


def test_a_comment_on_packs_has_whole_lines_and_says_what_is_left_out(tmp_path: Path) -> None:
    """Long messages are not cut, not within a character either; one pack's many leave room for the verdict on others.

    GitHub refuses comments of more than 65,536 characters.
    """
    long, many = f"the scores of {'ä' * 3000} do not follow: give the pack anew", "one of a thousand messages"
    command = tmp_path / "oodml"
    command.write_text('#!/bin/sh\ncat "$3/said"\nexit 1\n')
    command.chmod(0o755)
    packs = {**{f"a{number}": f"{long}\n" + f"{many}\n" * 1000 for number in range(6)},
             "b": "x" * 70_000 + "\nafter it\n", "c": "sound\r# no heading\n"}
    for name, text in packs.items():
        (tmp_path / "packs" / name).mkdir(parents=True)
        (tmp_path / "packs" / name / "said").write_bytes(text.encode())
    done = subprocess.run(["sh", str(ROOT / ".github/check_submissions.sh"), str(tmp_path / "packs"),
                           str(tmp_path / "comment.md")], env={**os.environ, "OODML": str(command), "AGAINST": ""},
                          capture_output=True, check=False)
    assert done.stdout == "".join(packs.values()).encode(), "the log has all"
    comment = (tmp_path / "comment.md").read_bytes().decode()
    assert len(comment) < 65_000
    assert "\r" not in comment
    first, *others = comment.split("Refused:\n\n")[1:]
    assert len(others) == 7
    head, *body, last = first.strip("\n").splitlines()
    assert head == f"    {long}"
    assert set(body) == {f"    {many}"}
    assert last == f"    ({1000 - len(body)} lines are left out here: the log of the check has all)"
    assert others[5].strip("\n") == "    (2 lines are left out here: the log of the check has all)"
    assert others[6].strip("\n") == "    sound# no heading"


def test_the_matrix_has_every_python_that_is_promised() -> None:
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.10", "3.11", "3.12", "3.13"]
    assert 'requires-python = ">=3.10"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert jobs["lowest"]["steps"][1]["with"]["python-version"] == "3.10"


def test_every_dependency_has_a_lower_bound() -> None:
    """Without one, the test with the lowest dependencies would install a release of ten years ago."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.scripts]")[0]
    needed = re.findall(r'"([\w-]+(?:\[\w+\])?)([^"]*)"', text.partition("dependencies = [")[2])
    assert len(needed) > 30
    assert [name for name, bound in needed if not bound.startswith(">=")] == []


def test_hooks_before_a_commit_are_the_checks_of_make_lint() -> None:
    from pre_commit.clientlib import load_config

    hooks = [hook for repo in load_config(str(ROOT / ".pre-commit-config.yaml"))["repos"] for hook in repo["hooks"]]
    lint = MAKEFILE.partition("\nlint:")[2].partition("\n\n")[0]
    programs = set(re.findall(r"\$\(VENV\)/bin/(\w+)", lint))
    assert {re.match(r"\.venv/bin/(\w+)", hook["entry"])[1] for hook in hooks} == programs  # type: ignore[index]


def test_the_version_stands_in_one_place() -> None:
    stated = re.search(r'^__version__ = "(.+)"$', (ROOT / "benchmark/__init__.py").read_text(encoding="utf-8"), re.M)
    assert stated is not None
    assert oodml.__version__ == version("oodml") == stated[1]
    assert read(ROOT / "CITATION.cff")["version"] == stated[1]
    newest = re.findall(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest[0] == stated[1]


def test_a_checkout_that_is_not_installed_says_its_version(tmp_path: Path) -> None:
    """Without site-packages: only click, which the command line needs, is there."""
    (tmp_path / "click").symlink_to(Path(click.__file__).parent)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run([sys.executable, "-S", "-m", "oodml", "--version"], cwd=tmp_path, env=environment,
                          capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"oodml, version {oodml.__version__}\n", "")


def test_the_output_of_a_notebook_is_what_a_terminal_shows() -> None:
    pytest.importorskip("mkdocs")
    from docs.hooks import printed

    bars = [{"text": ["\rdecoding:   0%|  | 0/9"]}, {"text": "\rdecoding: 100%|##| 9/9\r\nsound\r\n"}]
    assert printed([*bars, {"data": {"text/plain": ["a table"]}}, {"data": {"image/png": ""}}]) == "sound\na table"
    assert printed([]) == ""


def formulas() -> dict[str, str]:
    """Every line of a formula in the docstrings of methods, with one method that has it."""
    return {line: name for name in methods.names()
            for line in re.findall(r"^ {4}(.*)$", inspect.getdoc(methods.get(name).cls) or "", re.M)}


def test_every_formula_is_drawn_whole() -> None:
    """The MathML is well-formed and has every letter and digit of the source, in order, with Greek letters as such."""
    found = formulas()
    assert len(found) > 60
    for line, name in found.items():
        tree = ElementTree.fromstring(mathml(line))
        drawn = "".join(character for character in "".join(tree.itertext()) if character.isalnum())
        plain = re.sub(r"[A-Za-z]+", lambda word: GREEK.get(word[0], word[0]), re.sub(
            r"(?<=\w) x (?=\w)", " ", re.sub(r"(?<!as) in\b", " ", re.sub(r"\bnot in\b", "", line))))
        expected = re.sub(r"sum", "", "".join(character for character in plain if character.isalnum()))
        assert sorted(drawn) == sorted(expected), f"{name}: {line}"


def test_formulas_have_the_structure_of_mathematics() -> None:
    assert mathml("[x]_+").endswith('>]</mo><mo>+</mo></msub></mrow></math>')
    assert "<munder><mo>∑</mo><mrow><mi>p</mi><mo>∈</mo>" in mathml("sum_{p in P} p")
    assert "<msubsup><mi>φ</mi>" in mathml("phi*_a.phi_b")
    assert "<mo>·</mo>" in mathml("phi*_a.phi_b")
    with pytest.raises(ValueError, match="not closed"):
        mathml("sum_{p")


def test_pages_are_written_from_the_sources() -> None:
    pytest.importorskip("mkdocs")
    from docs import hooks

    pages = hooks.pages()
    assert sum(name.startswith("methods/") for name in pages) == len(methods.names()) + 1
    assert sum(name.startswith("commands/") for name in pages) == len(cli.list_commands(click.Context(cli))) + 1
    assert "| \\`--seeds" in pages["commands/run.md"] or "| --seeds" in pages["commands/run.md"]
    assert "supplement B" in pages["protocols/oodml.md"]
    assert "SoftplusTriplet" in pages["own_method.md"]
    assert all(f".{name}\n" in pages["api.md"] for _, name in oodml.SOURCES.values() if name)
