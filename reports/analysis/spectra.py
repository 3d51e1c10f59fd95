"""The singular values of embeddings, averaged over seeds, a method beside its regularised or mixed-up variants.

Revisiting DML, figures 8 (all embeddings), 10 (classes on average) and 12 (mixup).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from reports.selection import BASELINES, in_words, is_union, on_default
from reports.storage.row import SPECTRA

VARIANTS = ("r-", "manifold-mixup-")
"""How methods are called that are another one with rho-regularisation or mixup."""
FEW = 6
"""Methods in a panel where none has a variant."""
KEYS = ["dataset", "backbone", "protocol", "method"]


class Curve(NamedTuple):
    """Normalised singular values by rank."""

    method: str
    side: str
    kind: str
    ranks: tuple[int, ...]
    values: tuple[float, ...]


class Panel(NamedTuple):
    """Curves that are drawn together."""

    dataset: str
    title: str
    where: str
    curves: tuple[Curve, ...]


def base_of(method: str) -> str:
    """The method that this one is a variant of, or itself.

    >>> base_of("r-margin"), base_of("manifold-mixup-triplet"), base_of("arcface")
    ('margin', 'triplet', 'arcface')
    """
    return next((method.removeprefix(prefix) for prefix in VARIANTS if method.startswith(prefix)), method)


def panels(runs: pd.DataFrame, metric: str) -> list[Panel]:
    """A panel for each method that has variants, on the default split of each single dataset; without any, the best.

    Empty where no record keeps spectra, as those of earlier versions do not.
    """
    here = runs[~is_union(runs) & runs["spectra"].map(lambda sides: any(sides.values()) if sides else False)]
    made: list[Panel] = []
    for (dataset, backbone, protocol), cells in on_default(here).groupby(KEYS[:3], sort=True) if len(here) else ():
        if cells["method"].isin(BASELINES).all() and not here["method"].isin(BASELINES).all():
            continue  # a network that nobody trained has nothing to be compared with
        averages = {str(method): tuple(_averaged(str(method), group["spectra"]))
                    for method, group in cells.groupby("method", sort=True)}
        families: dict[str, list[str]] = {}
        for method in averages:
            families.setdefault(base_of(method), []).append(method)
        drawn = {base: sorted(members, key=lambda name: (name != base, name)) for base, members in families.items()
                 if len(members) > 1}
        if not drawn:
            best = cells.groupby("method")[metric].mean().sort_values(ascending=False, kind="stable")
            drawn = {"best methods": [str(name) for name in best.index[:FEW]]}
        made += [Panel(str(dataset), title, f"{backbone}\n{in_words(str(protocol))}", tuple(
            curve for method in members for curve in averages[method])) for title, members in drawn.items()]
    return made


def _averaged(method: str, spectra: pd.Series) -> list[Curve]:
    """The mean over seeds, rank by rank, of every side and kind of spectrum."""
    curves = []
    for side in ("train", "test"):
        for kind in SPECTRA:
            points = [point for sides in spectra for point in (sides.get(side) or {}).get(kind, [])]
            by_rank = pd.DataFrame(points, columns=["rank", "value"]).groupby("rank")["value"].mean()
            if len(by_rank):
                curves.append(Curve(method, side, kind, tuple(map(int, by_rank.index)),
                                    tuple(map(float, np.asarray(by_rank)))))
    return curves
