"""The static leaderboard: pages that open from file://, load nothing from elsewhere and read without JavaScript."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import resources
from pathlib import Path

import pandas as pd

from reports import ReportError, packing
from reports.analysis import paper_tables, run_tables, standings
from reports.analysis.results import Results
from reports.analysis.tuning import Search
from reports.figures.preview import preview
from reports.html import analysis_pages, dataset_pages, home_page, method_pages, paper_pages
from reports.html.extras import Extras, with_damaged
from reports.html.rendering import Site
from reports.storage import paths
from reports.storage.json_text import from_json
from reports.storage.processes import end_with_parent
from reports.tables import formats
from reports.wording import counted

_LIST = ".oodml-site.json"
MANY = 24
"""Pages from which on several processes are worth their start."""


def build(results: Results, failures: pd.DataFrame, out: Path, splits: Path | None = None,
          fills: Mapping[str, Sequence[str]] | None = None, searches: Sequence[Search] = (), url: str = "",
          titles: Mapping[str, str] | None = None) -> Path:
    """Writes the site of some results into a folder and returns its `index.html`.

    The same records give the same bytes; pages of an earlier build that are no longer made are removed. Figures of
    ladders in the folder `splits` and inspected runs are taken along; the home page says how far the studies are, and
    the pages of the papers which of them fill (`fills`) a table. `url` is where the pages will lie: previews of links
    want it; `titles` say in words what the images of a dataset are.
    """
    site = Site(results, with_damaged(failures, results.runs), searches, url, titles)
    extras = Extras(splits)
    for study in analysis_pages.STUDIES:
        study(site)
    paper_pages.write(site, fills or {})
    home_page.write(site)
    work: list[Callable[[], None]] = [partial(_records, site)]  # the longest begins first
    work += [partial(dataset_pages.ladder, site, dataset, extras) for dataset in site.datasets]
    work += [partial(dataset_pages.union, site, dataset) for dataset in site.unions]
    work += [partial(method_pages.write, site, str(label), runs, extras)
             for label, runs in site.runs.groupby("label", sort=True)]
    _make(site, work)
    site.finish()
    known = sorted([*results.laddered, *results.without_ladder], key=lambda name: not paper_tables.reported(name))
    site.files["assets/preview.png"] = preview("How well does a learned metric hold up\nas the test data drift away?", (
        f"oodml · {counted(site.facts['runs'], 'run')} · {', '.join(known + results.unions)}"),
        site.cells(known[0], site.metrics[0]) if known else pd.DataFrame(), site.look, site.metrics[0])
    for asset in resources.files("reports.html").joinpath("static").iterdir():
        site.files[f"assets/{asset.name}"] = asset.read_text(encoding="utf-8")
    return _write(site.files, Path(out))


def _records(site: Site) -> None:
    """All runs, as records that can be read again and as one table."""
    site.files["data/records.zip"] = packing.archive(site.runs)
    site.files["data/runs.csv"] = formats.csv_text(run_tables.tidy(site.runs).items())


_site: Site
_work: list[Callable[[], None]]


def _make(site: Site, work: list[Callable[[], None]]) -> None:
    """Makes the pages one after the other or, where there are many of them, in a process for each core.

    A forked process has all that was computed so far; only the files that it makes come back.
    """
    global _site, _work
    # elsewhere than on Linux a process that uses several threads cannot be forked safely, or not at all
    cores = min(4, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1
    if len(work) < MANY or cores == 1:
        for page in work:
            page()
        return
    standings.of(site.results)  # every page of a method has a part of them: computed once, not in each process
    _site, _work = site, work
    with multiprocessing.get_context("fork").Pool(cores, end_with_parent) as pool:
        for made in pool.imap(_made, range(len(work)), chunksize=1):
            site.files |= made


def _made(number: int) -> dict[str, str | bytes]:
    _site.files = {}
    _work[number]()
    return _site.files


def _remove_empty(out: Path, folder: Path) -> None:
    """Removes a folder below another, and those above it, as far as nothing is left in them."""
    with suppress(OSError):  # one that holds something stays, and so does a link
        for part in (folder, *folder.parents):
            if part != Path():
                (out / part).rmdir()


def _write(files: dict[str, str | bytes], out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    listing = out / _LIST
    try:
        before = from_json(paths.own_content(out, listing))
    except (OSError, ValueError):  # the first build, or a cut one: nothing is known as ours
        before = []
    ours = {name for name in before if isinstance(name, str)} if isinstance(before, list) else set()
    files = files | {_LIST: json.dumps(sorted(files), indent=0)}
    for name in sorted(ours - set(files)):
        if paths.is_own_file(out, name):  # the list may not be ours: nothing outside is deleted
            (out / name).unlink()
            _remove_empty(out, Path(name).parent)
    for name, content in sorted(files.items()):
        path = paths.below(out, name)
        if path.exists() and not path.is_file():
            raise ReportError(f"{path} is no plain file; move it away, or give another folder with --out")
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.write(path, content)
    return out / "index.html"
