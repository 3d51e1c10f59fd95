"""Fixtures that several test files share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from benchmark.utils.workspace import Workspace


@pytest.fixture(scope="module")
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A working folder with the finished runs that the test file asks for: RUNS = {METHOD: (rung, ...)}."""
    from tests import tiny_runs

    return tiny_runs.finished(tmp_path_factory.mktemp("work"), request.module.RUNS)
