"""Chromium, and two sites to drive in it: one of made-up records and one of the published ones."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmark.commands.report import command as report
from reports import records, site
from reports.analysis.results import Results
from tests.sample_records import write_sample

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ROOT = Path(__file__).parents[2]
METHODS = {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "proxyanchor": 0.70, "multisimilarity": 0.7}


def chromium() -> str:
    return os.environ.get("OODML_BROWSER") or next((found for name in BROWSERS if (found := shutil.which(name))), "")


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """The site that `make` builds in a folder: by the first of the processes side by side, the others wait for it."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder.with_suffix(".path")
        if not path.exists():
            path.write_text(str(make(folder)))
        return Path(path.read_text())


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return once(tmp_path_factory, "built", build_sample)


def build_sample(work: Path) -> Path:
    write_sample(work / "runs", METHODS, ("glyphs", "cars"), seeds=2, queries=True)
    frame, lost = records.scan(work / "runs")
    return site.build(Results(frame), lost, work / "site").parent


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the records that `make pages` publishes: a ladder and a union on several backbones, one split."""
    return once(tmp_path_factory, "published", build_published)


def build_published(work: Path) -> Path:
    chosen = re.search(r"^PUBLISHED := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert chosen
    records_of = [str(ROOT / part) if part.startswith("reports/") else part for part in chosen[1].split()]
    result = CliRunner().invoke(report, [*records_of, "--work", str(work)])
    assert result.exit_code == 0, result.output
    return work / "leaderboard"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: `make test-browser`")
    if not chromium():
        pytest.skip("no Chromium on this machine: `make test-browser` installs it")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page on which no script may fail, nothing may be logged as an error and no other host may be asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith(("file:", "data:", "blob:"))
              else wrong.append(request.url))
    yield opened
    context.close()
    assert wrong == []
