"""What a record says of the machine that made it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import benchmark
from benchmark.utils import provenance

GPU = pytest.param("cuda:0", id="gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))


@pytest.mark.parametrize("device", [GPU])
def test_energy_is_counted(device: str) -> None:
    began = time.monotonic()
    with provenance.Energy(device) as energy:
        matrix = torch.ones(4096, 4096, device=device)
        while time.monotonic() - began < 1:
            (matrix @ matrix).sum().item()
    watts = (energy.joules or 0) / (time.monotonic() - began)
    assert 5 < watts < 2000
    assert provenance.facts()["driver"]


def test_the_commit_is_that_of_the_suite_and_not_of_a_project_that_it_is_installed_in(tmp_path: Path) -> None:
    own = Path(benchmark.__file__).parents[1]
    place = tmp_path / ".venv" / "site-packages"
    place.mkdir(parents=True)
    for package in ("benchmark", "reports", "methods", "splits"):
        shutil.copytree(own / package, place / package, ignore=shutil.ignore_patterns("__pycache__", "records"))

    def commit() -> str:
        code = "from benchmark.utils import provenance; print(provenance.facts()['commit'])"
        return subprocess.run([sys.executable, "-c", code], cwd=place, check=True, capture_output=True,
                              text=True).stdout.strip()

    def git(folder: Path) -> None:
        for words in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty",
                                       "-m", "a"]):
            subprocess.run(["git", "-C", str(folder), *words], check=True)

    git(tmp_path)
    assert commit() == ""
    git(place)
    assert len(commit()) == 40


def test_a_run_takes_no_lock_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git would write its index anew where only the time of a file has changed, behind an index.lock."""
    home = tmp_path / "suite"
    code = home / "benchmark" / "__init__.py"
    code.parent.mkdir(parents=True)
    code.touch()
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m",
                                                 "a"]):
        subprocess.run(["git", "-C", str(home), *words], check=True)
    os.utime(code, (1e9, 1e9))
    monkeypatch.setattr(benchmark, "__file__", str(code))
    index = (home / ".git" / "index").read_bytes()
    assert provenance.facts.__wrapped__()["commit"]
    assert (home / ".git" / "index").read_bytes() == index
