"""One page for each paper, in its own order: what is printed, what was measured here, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.analysis import catalogue, papers, published
from reports.html.rendering import Site
from reports.tables.formats import to_csv


def write(site: Site, fills: Mapping[str, Sequence[str]]) -> None:
    """The pages `paper/NAME.html`, to which the page of published tables links; `fills` names the studies of items."""
    for key in catalogue.PAPERS:
        items = papers.page(key, site.runs, fills)
        site.files |= {f"data/{one.name}.csv": to_csv(one.table()) for one in items if one.shown}
        site.later(f"paper/{key}.html", "", "paper.html", paper=published.PAPERS[key],
                   papers=[published.PAPERS[other] for other in catalogue.PAPERS], items=items,
                   note=catalogue.load(key).note, there=site.has)
