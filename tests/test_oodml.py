"""The public module: its names, that it loads nothing heavy, that the user's folder does not matter; and the wheel."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import oodml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = oodml.PACKAGES


def python(*words: str, cwd: Path, path: Path | None = ROOT) -> subprocess.CompletedProcess[str]:
    """A new process in a folder, with one more folder on its search path."""
    env = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, unpacked as pip installs it. It is built from a copy, so that no `build/` is left."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                             capture_output=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout: which files belong to the project is not known")
    for name in filter(None, tracked.stdout.decode().split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            copy = folder / "source" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(ROOT / name, copy)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('..'))"
    done = python("-c", code, cwd=folder / "source")
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture(scope="module")
def editable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that makes Python find this checkout as an editable installation does: after the search path."""
    folder = tmp_path_factory.mktemp("editable")
    (folder / "sitecustomize.py").write_text(f"""
import sys
from importlib.machinery import PathFinder

class Editable:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return PathFinder.find_spec(name, [{str(ROOT)!r}]) if name in {("oodml", *PACKAGES)} else None

sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, Editable)
""", encoding="utf-8")
    return folder


def test_the_wheel_has_what_is_no_code(wheel: Path) -> None:
    for pattern in ("oodml.py", "benchmark/config/protocols/*.toml", "benchmark/config/studies/*.toml",
                    "reports/html/templates/*.html", "reports/html/static/*.js", "reports/html/static/*.css",
                    "reports/data/published/*.csv", "reports/data/records/**/*.jsonl", "reports/data/records/**/*.json",
                    "reports/data/papers/*.toml", "methods/checks/*.png"):
        ours = {path.relative_to(ROOT) for path in ROOT.glob(pattern)}
        assert ours
        assert {path.relative_to(wheel) for path in wheel.glob(pattern)} == ours, pattern
    entry_points = next(wheel.glob("oodml-*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    assert "oodml = oodml:main" in entry_points
    assert not (wheel / "tests").exists()


def test_the_wheel_makes_the_leaderboard_of_its_published_records(wheel: Path, tmp_path: Path) -> None:
    done = python("-m", "oodml", "report", "--records", str(wheel / "reports/data/records/precision"), "--out", "site",
                  cwd=tmp_path, path=wheel)
    assert done.returncode == 0, done.stderr
    assert "margin" in done.stdout
    assert (tmp_path / "site" / "data" / "runs.csv").stat().st_size > 1000
    assert "margin" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


SCRIPT = """
import importlib.util
import json
import multiprocessing

import numpy as np

import oodml

def places(_=None):
    distance = oodml.frechet_distance(np.array([[0.0], [2]]), np.array([[3.0], [5]]))
    specs = [importlib.util.find_spec(name) for name in oodml.PACKAGES]
    return [oodml.__file__, distance, *(spec.origin for spec in specs)]

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(json.dumps([places(), *pool.map(places, [0])]))
"""


@pytest.mark.parametrize("packages", [("splits", "reports"), ("methods", "benchmark")], ids=str)
@pytest.mark.parametrize("installed", ["wheel", "editable"])
def test_folders_of_the_user_with_our_names_do_not_matter(
        installed: str, packages: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Two of them are packages, which fail when they are imported, and two are mere folders."""
    path = request.getfixturevalue(installed)
    home = path if installed == "wheel" else ROOT
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        if name in packages:
            (tmp_path / name / "__init__.py").write_text("raise RuntimeError('the wrong package')", encoding="utf-8")
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "oodml").write_text("import sys\nfrom oodml import main\nsys.exit(main())", encoding="utf-8")

    done = python("script.py", cwd=tmp_path, path=path)
    assert done.returncode == 0, done.stderr
    here, in_child = json.loads(done.stdout)
    assert here == [str(home / "oodml.py"), 9.0, *(str(home / name / "__init__.py") for name in PACKAGES)]
    assert in_child == here
    for words in (["-m", "oodml"], ["-c", "import oodml; oodml.main()"], [str(scripts / "oodml")]):
        done = python(*words, "protocols", cwd=tmp_path, path=path)
        assert done.returncode == 0, done.stderr
        assert "oodml" in done.stdout


@pytest.mark.parametrize("package", [True, False])
def test_another_package_of_our_name_that_is_there_already_is_named(package: bool, tmp_path: Path) -> None:
    (tmp_path / "splits").mkdir()
    if package:
        (tmp_path / "splits" / "__init__.py").touch()
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.meta_path[:] = [f for f in sys.meta_path if " \
           "'Editable' not in getattr(f, '__name__', '')]; import splits; "
    done = python("-c", f"{code} sys.path.append({str(ROOT)!r}); import oodml", cwd=tmp_path, path=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    for fact in ("ImportError", "'splits'", str(tmp_path / "splits"), str(ROOT / "splits")):
        assert fact in last


def test_importing_it_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, oodml; dir(oodml); print(sorted({'torch', 'pandas', 'numpy', 'click'} & set(sys.modules)))"
    assert python("-c", code, cwd=tmp_path).stdout == "[]\n"


def test_every_name_is_there_and_typed() -> None:
    """The table by which names are loaded and the imports that a type checker reads say the same."""
    tree = ast.parse((ROOT / "oodml.py").read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    typed = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            typed |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            typed |= {alias.name: (alias.name, "") for alias in node.names}
    assert typed == oodml.SOURCES
    assert set(oodml.__all__) == {*typed, "main"}
    assert set(oodml.__all__) <= set(dir(oodml))
    for name, (module, attribute) in oodml.SOURCES.items():
        value = getattr(oodml, name)
        assert value is (getattr(sys.modules[module], attribute) if attribute else sys.modules[module])
    with pytest.raises(AttributeError, match="no attribute 'agss'"):
        oodml.agss  # noqa: B018
