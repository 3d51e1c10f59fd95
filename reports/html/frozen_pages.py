"""The page of frozen networks: a board and a front for each dataset."""

from __future__ import annotations

from reports.analysis import frozen
from reports.figures import frozen as figures
from reports.html.rendering import Site, slug


def untrained(site: Site) -> None:
    """Every dataset on which two frozen networks were run, or one that says what it is."""
    rows, parts = frozen.collect(site.results, site.metrics[0]), []
    for dataset, here in rows.groupby("dataset", sort=True):
        if len(here) < 2 and here["dim"].isna().all():
            continue
        name = f"{slug(str(dataset))}-frozen"
        several = here["parameters"].notna().sum() > 1
        parts.append({"dataset": dataset, "table": site.table(frozen.table(rows, str(dataset))),
                      "figure": site.figure(figures.front(here, name, f"Frozen networks on {dataset}"), name)
                      if several else None})
    if parts:
        site.later("frozen.html", "Frozen", parts=parts)
