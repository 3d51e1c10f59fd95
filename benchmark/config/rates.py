"""Learning rates of loss parameters: multiples of lr, and absolute as runs of earlier versions hold them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from methods import Entry

RATED = ("beta", "proxy")
"""What has a rate of its own: `beta_rate`, times lr, was `beta_lr`."""


def in_absolutes(settings: Mapping[str, Any], lr: float) -> dict[str, Any]:
    """Settings with absolute rates, as specs of earlier versions hold them: identities are over these.

    >>> in_absolutes({"beta": 1.2, "beta_rate": 50.0}, 1e-5)
    {'beta': 1.2, 'beta_lr': 0.0005}
    """
    if "rate" in settings:  # an earlier parameter-efficient method's, whose `proxy_rate` was a factor
        return {**settings}
    names = {f"{key}_rate": f"{key}_lr" for key in RATED}
    return {names.get(key, key): float(f"{value * lr:.12g}") if key in names else value
            for key, value in settings.items()}


def in_multiples(entry: Entry, settings: Mapping[str, Any], base_settings: Mapping[str, Any],
                 lr: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a method and of its base with every rate as a multiple of lr; older specs hold absolute ones.

    >>> import methods
    >>> in_multiples(methods.get("margin"), {"beta": 1.2, "beta_lr": 0.0005}, {}, 1e-5)
    ({'beta': 1.2, 'beta_rate': 50.0}, {})
    """
    both = dict(settings), dict(base_settings)
    for one, values in zip((entry, entry.base), both):
        known = {} if one is None else {field.name for field in dataclasses.fields(one.declared.Settings)}  # type: ignore[attr-defined]
        for key in RATED:
            if f"{key}_lr" in values and f"{key}_rate" in known:
                values[f"{key}_rate"] = float(f"{values.pop(f'{key}_lr') / (lr or 1.0):.12g}")
        # parameter-efficient methods had a factor of their own for the proxies of the objective
        if one is entry and "proxy_rate" in values and "proxy_rate" not in known:
            factor = values.pop("proxy_rate")
            if "proxy_lr" in both[1]:
                both[1]["proxy_lr"] *= factor
    return both


def of_record(entry: Entry, settings: Mapping[str, Any], lr: float) -> dict[str, Any]:
    """The same of a record, which holds the settings of a method and of its base in one."""
    if entry.base is None:
        return in_multiples(entry, settings, {}, lr)[0]
    factor = {key: settings[key] for key in ("proxy_rate",) if {key, "proxy_lr"} <= {*settings}}
    return in_multiples(entry, factor, {key: value for key, value in settings.items() if key not in factor}, lr)[1]
