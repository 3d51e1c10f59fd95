"""The architecture holds: which package may import which, no circles, files of a readable size."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARIES = ("splits", "methods", "reports")
PACKAGES = ("benchmark", *LIBRARIES)
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def imported(path: Path, top_level_only: bool = False) -> set[str]:
    """The modules that a file imports, absolute names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("library", LIBRARIES)
def test_splits_methods_and_reports_import_nothing_of_each_other(library: str) -> None:
    forbidden = set(PACKAGES) - {library}
    for path in (ROOT / library).rglob("*.py"):
        assert not {name.split(".")[0] for name in imported(path)} & forbidden, path


def test_no_circle_of_imports_not_even_of_late_ones() -> None:
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    graph = {name: {m for m in imported(path) if m in modules and m != name} for name, path in modules.items()}
    # A package's __init__ that re-exports its own modules, which in turn name the package, is how Python packages
    # are made; a circle is one that goes through something else.
    state: dict[str, int] = {}

    def visit(name: str, trail: list[str]) -> None:
        state[name] = 1
        for other in graph[name]:
            if other == name.rpartition(".")[0] or name == other.rpartition(".")[0]:
                continue
            assert state.get(other) != 1, " -> ".join([*trail, name, other])
            if other not in state:
                visit(other, [*trail, name])
        state[name] = 2

    for name in graph:
        if name not in state:
            visit(name, [])


FOLDERS = {"benchmark": ["utils", "datasets", "metrics", "data", "ladders", "overview", "config", "training", "runs",
                         "board", "submissions", "posthoc", "commands"],
           "reports": ["wording", "safe_text", "storage", "records", "row_settings", "selection", "pinned_ladders",
                       "board", "aggregate", "tables", "analysis", "figures", "html"]}
"""From the lowest up: a folder imports only itself and those before it. Modules beside the folders stand above all."""


@pytest.mark.parametrize("package", FOLDERS)
def test_a_folder_imports_only_those_below_it(package: str) -> None:
    order = FOLDERS[package]
    assert {path.parent.name for path in (ROOT / package).glob("*/__init__.py")} <= set(order)
    for path in (ROOT / package).rglob("*.py"):
        own = path.relative_to(ROOT / package).parts[0].removesuffix(".py")
        if own not in order:
            continue
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == package and len(parts) > 1 and parts[1] in order:
                assert order.index(parts[1]) <= order.index(own), f"{path.relative_to(ROOT)} imports {name}"


def test_a_file_can_be_read_in_one_sitting() -> None:
    long = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in FILES}
    assert {name: count for name, count in long.items() if count > 350} == {}


def test_commands_and_datasets_import_nothing_heavy_at_their_top() -> None:
    heavy = {"torch", "timm", "pandas", "matplotlib", "scipy", "faiss", "sklearn", "umap", "torchvision", "methods",
             "reports"}
    for folder in ("benchmark/commands", "benchmark/datasets"):
        for path in (ROOT / folder).rglob("*.py"):
            top = {name.split(".")[0] for name in imported(path, top_level_only=True)
                   if not name.startswith("reports.wording")}  # which imports nothing itself
            assert not top & heavy, f"{path} imports {top & heavy} at its top"


def test_methods_are_listed_without_libraries_of_networks_that_take_seconds() -> None:
    code = "import sys, methods; methods.names(); print({'timm', 'torchvision'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_the_map_in_contributing_is_true() -> None:
    """Every file and folder that CONTRIBUTING.md names is there, and every folder of code is named."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    part = text.partition("## Where things are")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", part))
    for name in named:
        assert any((ROOT / home / name).exists() for home in ("", "methods", "benchmark/runs")), name
    folders = {path.parent for path in FILES} - {ROOT / package for package in PACKAGES}
    assert {folder.name for folder in folders} <= {name.strip("/").rpartition("/")[2] for name in named}
