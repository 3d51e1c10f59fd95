"""The page of thresholds: how false accepts and rejects drift along each ladder."""

from __future__ import annotations

from reports.analysis import thresholds
from reports.figures import ladders
from reports.html.rendering import Site
from reports.storage.operating_points import RATES

DRAWN = (("accepts", "false_accepts", "False accepts"), ("rejects", "false_rejects", "False rejects"))


def drift(site: Site) -> None:
    """For each ladder and rate two curves and the table of all rows; nothing where no record keeps thresholds."""
    found, parts = site.results.thresholds, []
    place = {label: i for i, label in enumerate(site.look)}  # of the lines, the first are in colour
    for dataset in thresholds.laddered(found, site.runs):
        for rate in RATES:
            part = {"dataset": dataset, "rate": f"{100 * rate:g} %",
                    "table": site.table(thresholds.table(found, site.runs, dataset, rate))}
            for name, measure, head in DRAWN:
                cells = thresholds.cells(found, site.runs, dataset, rate, measure)
                cells = cells[cells["label"].isin(site.look)]
                cells = cells.sort_values("label", key=lambda labels: labels.map(place), kind="stable")
                title = f"{head} along the ladder of {dataset}, threshold fixed at {100 * rate:g} %"
                file = f"{site.slug(dataset)}-{name}-{rate:g}"
                part[name] = site.figure(ladders.ladder_curve(cells, site.look, file, title, head), file)
            parts.append(part)
    if parts:
        site.later("thresholds.html", "Thresholds", parts=parts)
