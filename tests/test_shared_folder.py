"""Folders of other users: what may not be read is named and kept, and a home that cannot be written stops nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from benchmark.ladders import figures
from benchmark.runs import status
from reports import records
from tests.sample_records import write_sample

NOBODY = 65534


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may enter, which those of pytest are not, and in which all may be read."""
    before = os.umask(0o022)
    try:
        with another_user():
            pass
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            yield Path(folder)
    except PermissionError:
        pytest.skip("root may not become another user here")
    finally:
        os.umask(before)


@contextlib.contextmanager
def another_user() -> Iterator[None]:
    """While it lasts this process has no more rights than others; root would be let through everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_record_that_may_not_be_read_is_not_damaged(shared: Path) -> None:
    """A damaged one is set aside and its run done again, which another user's sound record must not meet."""
    runs = write_sample(shared / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1, union=False)
    first, *others = sorted(runs.rglob("record.json"))
    first.chmod(0)
    with another_user():
        with pytest.raises(PermissionError):
            records.read(first)
        state = status.look(first.parent)
        assert (state.kind, status.set_aside(first.parent)) == ("failed", [])
        assert "cannot be read: [Errno 13]" in state.text
        found, lost = records.scan(runs)
    assert len(found) == len(others)
    assert f"Permission denied: '{first}'" in lost["cause"].item()


def test_runs_in_a_folder_that_may_not_be_entered_are_told(shared: Path) -> None:
    runs = write_sample(shared / "runs", {"margin": 0.6}, ("glyphs",), seeds=2, union=False)
    closed = sorted(runs.rglob("record.json"))[0].parent
    closed.chmod(0)
    with another_user():
        found, lost = records.scan(runs)
    closed.chmod(0o755)
    assert len(found) == len(list(runs.rglob("record.json"))) - 1
    assert lost["cause"].item() == f"{closed} cannot be read (Permission denied): the runs in it are left out"


def test_umap_is_drawn_where_numba_finds_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numba = ModuleType("numba")
    numba.config = SimpleNamespace(CACHE_DIR="")  # type: ignore[attr-defined]
    (tmp_path / "umap.py").write_text(
        "import numba\nif not numba.config.CACHE_DIR:\n"
        "    raise RuntimeError(\"cannot cache function 'rdist': no locator available for file 'umap/layouts.py'\")\n"
        "UMAP = 'the class'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "numba", numba)
    monkeypatch.delitem(sys.modules, "umap", raising=False)
    assert figures._umap() == "the class"
    assert os.access(numba.config.CACHE_DIR, os.W_OK)
    sys.modules.pop("umap")  # that of this test; what was there before comes back
