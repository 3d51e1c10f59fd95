"""The page of a method: where it stands on every board, its curve over all others, rivals, training, settings, runs."""

from __future__ import annotations

from typing import Any

import pandas as pd

from reports.analysis import run_tables, standings, wise
from reports.analysis.results import union_parts
from reports.board import key_of
from reports.figures import inline, method_curve
from reports.figures import wise as wise_figures
from reports.html import cards
from reports.html.extras import Extras
from reports.html.rendering import Site
from reports.overrides import overrides_text
from reports.selection import in_words
from reports.tables.table import missing
from reports.wording import metric_name

TAGS = {"floor": "baseline", "auxiliary": "auxiliary objective", "proxy": "proxy loss", "ranking": "ranking loss",
        "classification": "classification loss", "memory": "memory of past embeddings",
        "hyperbolic": "hyperbolic embedding", "regularised": "regularised loss", "oodml-study": "in the ooDML paper",
        "retention": "keeps to the pretrained weights", "ranking-surrogate": "smooth surrogate of the ranking",
        "structure": "structure of the embedding", "threshold": "consistent threshold", "margin": "margin loss",
        "ensemble": "a model for each dataset", "modern": ""}
"""Families and tags of methods in words; empty for one that groups methods of this suite and says nothing of them."""


def write(site: Site, label: str, runs: pd.DataFrame, extras: Extras) -> None:
    """The page of one row: its curve over all others, its boards and rivals, then training, runs and settings."""
    known, name = standings.of(site.results), site.slug(label)
    dates = runs[["date", "identity"]].reset_index(drop=True).sort_values(["date", "identity"], na_position="first")
    newest = runs.iloc[dates.index[-1]]  # records have hundreds of columns, and sorting takes rows of them all
    facts = {key: None if missing(value) else value for key, value in newest.items()}
    first = standings.headline(known, label)
    settings = cards.settings_table(newest["settings"] or {}, f"{name}-settings", f"Settings of {label}")
    protocols = site.results.protocol_settings[newest["base_protocol"]]
    usual = site.results.once(("usual", newest["base_protocol"]), lambda: cards.usual(protocols))
    changes = overrides_text(runs["overrides"])
    differs = f"; differs from its file: {changes}" if changes else ""
    protocol = cards.protocol_table(newest["protocol_settings"], usual, f"{name}-protocol",
                                    f"Protocol {in_words(newest['protocol'])}{differs}")
    said = cards.paper_says(runs, newest.to_dict(), f"{name}-paper")
    rivals = [(line, near) for line in first if (near := standings.rivals(known, line))]
    rows = site.runs.loc[site.runs["base_method"] == newest["base_method"], ["label", "dataset"]].drop_duplicates()
    others = [(other, sorted(here)) for other, here in rows.groupby("label")["dataset"] if other != label]
    on_boards = standings.of_row(known, label, f"{name}-boards")
    site.page(f"method/{name}.html", "method.html", label=label, others=others, run=facts, style=site.look[label],
              first=first,
              curves=_curves(site, label), rivals=rivals, own=name, drawn=_training(site, label, runs),
              standing=site.table(on_boards) if len(on_boards.frame) else None,
              tags=[TAGS.get(tag, tag) for tag in (newest["family"], *(newest["tags"] or ())) if TAGS.get(tag, tag)],
              commands=sorted({cards.again(str(command)) for command in runs["command"].dropna()}),
              said=site.table(said) if said else None, settings=site.table(settings), protocol=site.table(protocol),
              between=_interpolated(site, label, runs),
              card=site.table(cards.settings_table(newest["card"], f"{name}-card", f"Card of {label}"))
              if isinstance(newest["card"], dict) else None, inspected=extras.of_runs(site, runs),
              runs=site.table(run_tables.runs_table(runs, f"{name}-runs", f"All runs of {label}")))


def _curves(site: Site, label: str) -> list[dict[str, Any]]:
    """The row along each ladder and on the parts of each union, over the grey field of all others."""
    drawn, metric, short = [], site.metrics[0], site.slug(label)
    for dataset in (*site.results.laddered, *site.results.without_ladder):
        curves = site.results.once(("curves", dataset), lambda: _by_label(site, dataset, metric))  # noqa: B023
        if len(curves.get(label, ())) > 1:
            name, title = f"{short}-{site.slug(dataset)}", f"{label} along the ladder of {dataset}"
            frozen = _frozen(site, label, dataset)
            others = [curve for other, curve in curves.items() if other in _rivals(site, label) - {frozen}]
            svg = method_curve.shift_curve(curves[label], others, curves.get(frozen, ()) if frozen != label else (),
                                           label, site.look[label], name, title, metric)
            drawn.append(site.figure(svg, name) | {"board": dataset, "href": f"dataset/{site.slug(dataset)}.html",
                                                   "union": False, "frozen": frozen in curves and frozen != label,
                                                   "banded": any(std for *_, std in curves[label])})
        elif label in curves:
            drawn += _split_dots(site, label, dataset)
    for dataset in site.unions:
        for protocol in site.results.protocols:
            figure = _union_dots(site, label, dataset, protocol)
            drawn += [figure] if figure else []
    return drawn


def _rivals(site: Site, label: str) -> set[str]:
    """The other rows of a row's backbone: others are pretrained differently and no fair comparison."""
    return {other for other, backbone in site.backbones.items()
            if backbone == site.backbones[label] and other != label}


def _split_dots(site: Site, label: str, dataset: str) -> list[dict[str, Any]]:
    """A row with one split of a dataset: its scores by each metric over those of the rows it is ranked with."""
    known, frozen = standings.of(site.results), _frozen(site, label, dataset)
    lines = known[(known["board"] == dataset) & (known["kind"] == "split") & known["score"].notna()]
    own = lines[lines["label"] == label].set_index("metric")
    metrics = [metric for metric in site.metrics if metric in own.index]
    if not metrics:
        return []
    protocol = own["protocol"].iloc[0]
    kinds = site.runs.loc[(site.runs["label"] == label) & (site.runs["dataset"] == dataset), "kind"]
    where = "default split" if kinds.eq("default").all() else "one split"
    rest = lines[lines["label"].isin(_rivals(site, label) - {frozen}) & lines["protocol"].eq(protocol)]
    scores = {name: dict(zip(here["metric"], 100 * here["score"])) for name, here in lines.groupby("label")
              if name in (label, frozen)}
    base = scores.get(frozen, {}) if frozen != label else {}
    name = f"{site.slug(label)}-{site.slug(dataset)}"
    svg = method_curve.part_dots([scores[label][metric] for metric in metrics],
                                 [(100 * rest.loc[rest["metric"] == metric, "score"]).tolist() for metric in metrics],
                                 [base.get(metric) for metric in metrics], list(map(metric_name, metrics)), label,
                                 site.look[label], name,
                                 f"{label} among others on {dataset}", f"{dataset}, {where}")
    return [site.figure(svg, name) | {"board": dataset, "href": f"dataset/{site.slug(dataset)}.html", "union": True,
                                      "frozen": bool(base), "banded": False}]


def _by_label(site: Site, dataset: str, metric: str) -> dict[str, method_curve.Curve]:
    cells = site.results.cells(dataset, metric).sort_values(["frd", "split"])
    return {str(label): list(zip(curve["frd"], 100 * curve["score"], 100 * curve["std"].fillna(0)))
            for label, curve in cells[cells["frd"].notna()].groupby("label", sort=True)}


def _frozen(site: Site, label: str, dataset: str) -> str:
    """The label of the frozen network with the backbone of a row on a dataset; empty where there is none."""
    return site.frozen.get((dataset, site.backbones[label]), "")


def _union_dots(site: Site, label: str, dataset: str, protocol: str) -> dict[str, Any] | None:
    """The row on each part of a union, or None where it has no score there."""
    board = site.results.universal(dataset, protocol)
    if not len(board):
        return None
    rows = site.results.once(("dots", dataset, protocol), lambda: _wide_by_label(site, dataset, protocol))
    if label not in rows.index or pd.isna(rows.at[label, "harmonic"]):
        return None
    parts = union_parts(board)
    keys, names = [*(key_of("recall", part) for part in parts), "unified", "harmonic"], [*parts, "unified", "harmonic"]

    def scores(row: str) -> list[float | None]:
        return [100 * float(rows.at[row, key]) if row in rows.index and pd.notna(rows.at[row, key]) else None
                for key in keys]

    frozen = _frozen(site, label, dataset)
    rest = rows.loc[[each for each in rows.index if each in _rivals(site, label) - {frozen}]]
    others = [(100 * rest[key].dropna()).tolist() for key in keys]
    name = f"{site.slug(label)}-{site.slug(dataset)}" + (f"-{protocol}" if len(site.results.protocols) > 1 else "")
    svg = method_curve.part_dots(scores(label), others, scores(frozen if frozen != label else ""), names, label,
                                 site.look[label], name, f"{label} on the parts of {dataset}", "recall@1")
    return site.figure(svg, name) | {"board": dataset, "href": f"union/{site.slug(dataset)}.html", "union": True,
                                     "frozen": frozen in rows.index and frozen != label, "banded": False}


def _wide_by_label(site: Site, dataset: str, protocol: str) -> pd.DataFrame:
    board = site.results.universal(dataset, protocol).wide()
    board = board[board["source"] != "published"]
    return board.assign(label=site.results.label(board)).set_index("label")


def _training(site: Site, label: str, runs: pd.DataFrame) -> dict[str, Any] | None:
    """Loss and score over the epochs of the first seed, on the nearest and the farthest rung of each dataset."""
    seed, name = runs["seed"].min(), site.slug(label)
    curves = []
    trained = runs[(runs["seed"] == seed) & runs["curve"].map(lambda curve: len(curve or ()) > 1)]
    for dataset, here in trained.groupby("dataset", sort=True):
        rungs = here.sort_values(["frd", "split"])
        ends = rungs.iloc[[0, -1]] if len(rungs) > 1 else rungs
        alone = runs.loc[runs["dataset"] == dataset, "split"].nunique() == 1 and ends["frd"].isna().all()
        curves += [(str(dataset) if alone else f"{dataset}, split {split}", curve)
                   for split, curve in zip(ends["split"], ends["curve"])]
    if not curves:
        return None
    drawing = inline.training_curves(curves, f"{name}-training", f"Training of {label}", site.metrics[0])
    numbers = run_tables.curve_table(curves, site.metrics[0], f"{name}-training", f"Training of {label}, seed {seed}")
    return site.figure(drawing, f"{name}-training") | {
        "table": site.table(numbers), "seed": seed, "ends": trained.groupby("dataset")["split"].nunique().max() > 2}


def _interpolated(site: Site, label: str, runs: pd.DataFrame) -> dict[str, Any] | None:
    """The curves between start and end of a method's runs, where `oodml wise` made some."""
    curves, name, metric = wise.curves(wise.collect(runs), site.metrics[0]), f"{site.slug(label)}-wise", site.metrics[0]
    if curves.empty:
        return None
    drawn = wise_figures.interpolation(curves, name, f"Between start and end of {label}", metric)
    return site.figure(drawn, name) | {"table": site.table(wise.table(curves, metric, name, label))}
