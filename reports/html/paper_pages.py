"""One page for each paper, in its own order: what is printed, what was measured here, what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.analysis import paper_catalogue, paper_tables, papers
from reports.html.rendering import Site
from reports.tables.formats import csv_text


def write(site: Site, fills: Mapping[str, Sequence[str]]) -> None:
    """The pages `paper/NAME.html`, to which the page of published tables links; `fills` names the studies of items."""
    for key in paper_catalogue.PAPERS:
        items = papers.page(key, site.runs, fills)
        site.files |= {f"data/{one.name}.csv": csv_text(one.columns()) for one in items if one.shown}
        site.later(f"paper/{key}.html", "", "paper.html", paper=paper_tables.PAPERS[key],
                   papers=[paper_tables.PAPERS[other] for other in paper_catalogue.PAPERS], items=items,
                   note=paper_catalogue.load(key).note, there=site.has)
