"""The static leaderboard: pages that open from file://, load nothing from elsewhere and read without JavaScript."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pandas as pd

from reports import ReportError, audit, pages, views
from reports.rendering import Site

_LIST = ".oodml-site.json"


def build(frame: pd.DataFrame, failures: pd.DataFrame, out: Path) -> Path:
    """Writes the site for the runs of `records.scan` into a folder and returns its `index.html`.

    The same records give the same bytes; pages of an earlier build that are no longer made are removed.
    """
    if frame.empty:
        raise ReportError("there is no finished run to report; `oodml run --dataset glyphs --protocol demo` makes some")
    site = Site(frame, failures)
    pages.home(site)
    for dataset in site.datasets:
        pages.ladder(site, dataset)
    for dataset in site.unions:
        pages.union(site, dataset)
    for label, runs in site.runs.groupby("label", sort=True):
        pages.method(site, str(label), runs)
    findings = audit.audit()
    site.page("audit.html", "audit.html", lines=audit.summary(findings), table=site.table(audit.audit_table(findings)))
    site.page("about.html", "about.html", methods=sorted(site.look))
    site.files["data/runs.csv"] = views.tidy(site.runs).to_csv(index=False, lineterminator="\n")
    for asset in resources.files("reports").joinpath("static").iterdir():
        site.files[f"assets/{asset.name}"] = asset.read_text(encoding="utf-8")
    return _write(site.files, Path(out))


def _write(files: dict[str, str], out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    listing = out / _LIST
    try:
        before = json.loads(listing.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # the first build, or one that was cut: nothing is known to be ours
        before = []
    for name in sorted(set(before) - set(files)):
        (out / name).unlink(missing_ok=True)
    for name, text in sorted(files.items()):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    listing.write_text(json.dumps(sorted(files), indent=0), encoding="utf-8")
    return out / "index.html"
