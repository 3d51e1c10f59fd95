"""The page of frozen networks: a board and a front for each dataset."""

from __future__ import annotations

from typing import Any

from reports.analysis import frozen
from reports.figures import drawing, ladders
from reports.figures import frozen as figures
from reports.html.rendering import Site


def untrained(site: Site) -> None:
    """Every dataset on which two frozen networks were run, or one that says what it is."""
    rows, parts = frozen.collect(site.results, site.metrics[0]), []
    for dataset, here in rows.groupby("dataset", sort=True):
        if len(here) < 2 and here["dim"].isna().all():
            continue
        name = f"{site.slug(str(dataset))}-frozen"
        several = here["parameters"].notna().sum() > 1
        parts.append({"dataset": dataset, "table": site.table(frozen.table(rows, str(dataset))),
                      "figure": site.figure(figures.front(here, name, f"Frozen networks on {dataset}"), name)
                      if several else None, "curve": _along(site, str(dataset))})
    if parts:
        site.later("frozen.html", "Frozen", parts=parts)


def _along(site: Site, dataset: str) -> dict[str, Any] | None:
    """Two frozen networks or more along a ladder, with the best and the worst trained row (ooDML, figure 6)."""
    metric = site.metrics[0]
    cells = frozen.with_extremes(site.results.cells(dataset, metric))
    if not len(cells):
        return None
    name = f"{site.slug(dataset)}-frozen-curve"
    # grey is what frozen networks are elsewhere, where they are the floor of others
    labels = sorted(cells["label"].unique())
    look = drawing.styles(labels, rankings=[labels])
    drawn = site.figure(ladders.ladder_curve(cells.assign(baseline=False), look, name,
                                             f"Frozen networks along the ladder of {dataset}", metric), name)
    return drawn | {"trained": bool((cells["base_method"] != frozen.METHOD).any())}
