"""Fixtures that several test files share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from benchmark.utils.workspace import Workspace

settings.register_profile("untimed", deadline=None)  # no test fails because a machine is slow
settings.load_profile("untimed")
for variable in ("OODML_WORK", "OODML_DATA", "OODML_WEIGHTS"):
    os.environ.pop(variable, None)  # whoever runs the tests may have set them for runs of their own


@pytest.fixture(scope="session")
def tiny_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the ladder and the images of glyphs-mini, made once: copy it before writing to it."""
    from tests import tiny_sweep

    return tiny_sweep.workspace(tmp_path_factory.mktemp("tiny") / "work").root


@pytest.fixture
def tiny(tiny_base: Path, tmp_path: Path) -> Workspace:
    """A working folder of one's own for runs of a second on glyphs-mini."""
    shutil.copytree(tiny_base, tmp_path / "work")
    return Workspace.at(tmp_path / "work")


@pytest.fixture(scope="module")
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A working folder with the finished runs that the test file asks for: RUNS = {METHOD: (rung, ...)}."""
    from tests import tiny_runs

    return tiny_runs.finished(tmp_path_factory.mktemp("work"), request.module.RUNS)


@pytest.fixture
def plugins_forgotten() -> Iterator[None]:
    """Takes away the methods that plug-ins registered in the test."""
    from tests import tiny_sweep

    with tiny_sweep.registry_as_before():
        yield


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """A folder of 8 classes with 5 small images each, and a ladder of three rungs for it."""
    from tests import birds

    return birds.make(tmp_path)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of photographs of many sizes."""
    from tests import pictures

    return pictures.photos(tmp_path / "photos")
