"""The default split of a dataset: what papers print for each method, and what was measured here."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from reports.aggregate import spread
from reports.analysis import paper_catalogue, paper_tables
from reports.analysis.board_columns import lengths
from reports.analysis.paper_catalogue import RELEASED
from reports.analysis.papers import STAND_INS
from reports.analysis.statistics import kendall
from reports.overrides import overrides_text
from reports.selection import ROW, is_union
from reports.tables.table import Column, Table
from reports.wording import metric_name

METRIC = "recall@1"
CLOSE = 0.03
"""Three points: seeds and the version of pretrained weights make about two."""


@dataclass(frozen=True)
class Reproduction:
    """The methods of one paper beside ours."""

    paper: paper_tables.Paper
    table: Table

    @property
    def counted(self) -> pd.DataFrame:
        """The rows that are counted: of a method that was trained by its own recipe as it is, that row alone."""
        rows = self.table.frame
        whole = rows["recipe"] & rows["changed"].eq("")
        return rows[whole | ~rows["recipe"] & ~rows["method"].isin(rows.loc[whole, "method"])]

    @property
    def close(self) -> int:
        """How many methods come within CLOSE of the printed number."""
        return int((self.counted["difference"].abs() < CLOSE).sum())

    @property
    def rising(self) -> int:
        """How many of those that stay below it were best in their last epoch, and may rise further."""
        rows = self.counted
        return int(((rows["difference"] <= -CLOSE) & rows["rising"]).sum())

    @property
    def training(self) -> str:
        """How networks were trained here, in the words of `Paper.training`; empty where rows differ."""
        dims, epochs = ({int(value) for value in self.table.frame[key].dropna()} for key in ("dim", "epochs"))
        return f"{dims.pop()} dimensions, {epochs.pop()} epochs" if len(dims) == len(epochs) == 1 else ""

    @property
    def mean(self) -> float:
        """The mean of ours less the printed number."""
        return float(self.counted["difference"].mean())

    @property
    def tau(self) -> float | None:
        """Kendall's tau between both orders; None of fewer than four methods."""
        rows = self.counted
        return kendall(rows["printed"].to_numpy(), rows["ours"].to_numpy())[0] if len(rows) > 3 else None


def default_split(runs: pd.DataFrame, dataset: str) -> list[Reproduction]:
    """For each paper that prints scores of methods on the default split with a network that was run here, both.

    The dataset must have as many images as the papers'. Both numbers are of the epoch that the paper prints, which may
    be the best one on the test classes; methods with changed settings take no part, nor runs by the protocol of a paper
    on another network, nor runs that others repeat for more epochs.
    """
    here = runs[(runs["dataset"] == dataset) & runs["kind"].eq("default") & runs["source"].eq("run") & ~is_union(runs)
                & runs["method"].eq(runs["base_method"])]
    if METRIC not in here or here.empty or paper_tables.differs(here, dataset, ladder=False):
        return []
    here = _longest(here)
    papers: dict[str, list[dict[str, object]]] = {}
    for (method, protocol, backbone, source), group in here.groupby(ROW, sort=True):
        said = paper_tables.says(str(method))
        said = said[said["dataset"].eq(dataset) & said["what"].eq("default split") & said["metric"].eq(METRIC)]
        for row in said.to_dict("records"):
            network = paper_catalogue.load(row["paper"]).backbone
            by, ran = str(group["base_protocol"].iloc[0]), str(group["base_backbone"].iloc[0])
            if by == RELEASED:  # a recipe of a single paper, its pooling part of it, says nothing of the other papers
                if row["paper"] != RELEASED:
                    continue
                ran = ran.partition("@")[0]
            meant = paper_catalogue.load(by).backbone if by in paper_catalogue.PAPERS else network
            if meant == network and ran in (network, *STAND_INS.get(network, ())):
                papers.setdefault(row["paper"], []).append(
                    {"method": method, "protocol": protocol, "backbone": backbone, "source": source,
                     "printed": row["value"], "printed:std": row["std"], "detail": row["detail"],
                     "recipe": by == RELEASED, "changed": _changed(group) if by == RELEASED else "",
                     **_measured(group, row["paper"], row["value"])})
    return [Reproduction(paper_tables.SOURCES[key], _table(dataset, key, rows)) for key, rows in sorted(papers.items())]


def _longest(runs: pd.DataFrame) -> pd.DataFrame:
    """Of runs that differ in nothing but their length the longest: the others are the beginning of it."""
    epochs, alike = lengths(runs)
    return runs[epochs == epochs.groupby(alike).transform("max")]


def _measured(group: pd.DataFrame, paper: str, printed: float) -> dict[str, object]:
    """What the runs of one method have for a printed score, and by which training."""
    column = paper_tables.as_printed(group, paper, METRIC)
    ours, std, n = spread(group[column].astype(float))
    settings = group["protocol_settings"].iloc[0] or {}
    epochs = settings.get("epochs")
    chosen = [(run or {}).get("best-test" if column != METRIC else "last") for run in group["chosen_epochs"]]
    known = sorted(int(epoch) for epoch in chosen if epoch is not None)
    epoch = f"{'–'.join(map(str, dict.fromkeys([known[0], known[-1]])))} of {epochs}" if known and epochs else ""
    return {"ours": ours, "ours:std": std, "ours:n": n, "difference": ours - printed,
            "last": float(group[METRIC].mean()), "epoch": epoch, "dim": settings.get("dim"),
            "epochs": epochs, "rising": bool(known) and min(known) == epochs}


def _changed(group: pd.DataFrame) -> str:
    """In what runs differ from the file of their protocol, but for a stand-in of the network and when they were
    evaluated; pooling is a part of the recipe."""
    return overrides_text({key: pair for key, pair in (one or {}).items() if key != "evaluate_every" and not (
        key == "backbone" and pair[0].partition("@")[2] == pair[1].partition("@")[2])} for one in group["overrides"])


def _table(dataset: str, paper: str, rows: list[dict[str, object]]) -> Table:
    frame = pd.DataFrame(rows).sort_values(["printed", *ROW], ascending=[False, *([True] * len(ROW))], kind="stable")
    columns = (Column("method", "Method"), Column("printed", "Paper says", "score"),
               Column("ours", "We got", "score", "The epoch that the paper prints"),
               Column("difference", "Difference", "gain", "Ours less the printed number"),
               Column("epoch", "Epoch", "text", "The epoch with that score, of those trained"),
               Column("last", "Last epoch", "percent", "The score that the boards rank"),
               Column("dim", "Dimensions", "number", "Numbers in an embedding here", 0),
               Column("detail", "Printed as"), Column("protocol", "Protocol"),
               Column("changed", "Not as in the recipe"), Column("backbone", "Backbone"))
    alike = {key for key in ("protocol", "backbone", "dim") if frame[key].nunique() < 2}
    alike |= set() if frame["changed"].any() else {"changed"}
    shown = tuple(column for column in columns if column.key not in alike and frame[column.key].notna().any())
    caption = f"{metric_name(METRIC)} on the default split of {dataset}, {paper_tables.SOURCES[paper].venue}"
    return Table(f"{dataset}-{paper}", caption, shown, frame.reset_index(drop=True), marked=False)
