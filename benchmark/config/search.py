"""Configurations of a method to compare: its search space, and how each trial is drawn from it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchmark.utils.errors import UserError
from benchmark.utils.terminal import value_text
from methods import Entry

LR_FACTOR = 10.0
"""The learning rate is searched from the protocol's own divided by this to the same multiplied by it."""
STARTUP = 8
"""Configurations that `tpe` draws at random before it looks at scores."""
ROUND = 4
"""Configurations that `tpe` proposes at a time, so that several can be run side by side."""

Space = Mapping[str, Any]
"""What is searched by key, `lr` or METHOD.SETTING: (low, high), log-uniform, or a list of choices."""


def space_of(entry: Entry, lr: float, fixed: Mapping[str, Any], own: Space | None = None) -> dict[str, Any]:
    """The space of a method: the protocol's learning rate and what the method's file declares, less what is fixed.

    `own` is what a study searches beside that or in its stead; settings of other methods are left out.

    >>> import methods
    >>> space_of(methods.get("triplet"), 1e-5, {})
    {'lr': (1e-06, 0.0001), 'triplet.margin': (0.05, 0.5)}
    """
    rate = {"lr": (_rounded(lr / LR_FACTOR), _rounded(lr * LR_FACTOR))} if lr > 0 else {}
    owners = ("", entry.name, "" if entry.base is None else entry.base.name)
    mine = {key: values for key, values in (own or {}).items() if key.rpartition(".")[0] in owners}
    return {key: values for key, values in (rate | entry.space() | mine).items() if key not in fixed}


def draw(space: Space, seed: int, method: str, number: int) -> dict[str, Any]:
    """Configuration `number` of a random search: a function of its arguments alone; number 0 is the default, {}.

        log x ~ U(log low, log high), or one of the choices alike; three significant digits

    >>> draw({"lr": (1e-4, 1e-2)}, 0, "margin", 0), draw({"lr": (1e-4, 1e-2)}, 0, "margin", 1)
    ({}, {'lr': 0.00286})
    """
    if number == 0:
        return {}
    configuration = {}
    for key, values in space.items():
        # a hash and no generator: a key that is added later leaves the draws of the others as they are
        digest = hashlib.sha256(f"{seed}:{method}:{number}:{key}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        configuration[key] = _at(values, share)
    return configuration


def propose(space: Space, seed: int, method: str, number: int, earlier: Sequence[tuple[dict[str, Any], float | None]],
            sampler: str = "random") -> dict[str, Any]:
    """Configuration `number`, given the earlier ones with their validation scores, which `random` does not look at.

    `tpe` is Optuna's tree-structured Parzen estimator; a trial that diverged counts as a score of 0.
    """
    if sampler == "random" or number < STARTUP:
        return draw(space, seed, method, number)
    try:
        import optuna
    except ImportError:
        raise UserError("--sampler tpe needs Optuna: `pip install 'oodml[tune]'`, or search with --sampler "
                        "random") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {key: _distribution(optuna.distributions, values) for key, values in space.items()}
    own = int.from_bytes(hashlib.sha256(f"{seed}:{method}:{number}".encode()).digest()[:4], "big")
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(n_startup_trials=0, seed=own))
    for configuration, score in earlier:
        if configuration:  # the default's values may lie outside the space
            study.add_trial(optuna.trial.create_trial(params=configuration, distributions=distributions,
                                                      value=0.0 if score is None else score))
    return {key: _rounded(value) if isinstance(value, float) and key_is_range(space[key]) else value
            for key, value in study.ask(distributions).params.items()}


def rounds(trials: int, sampler: str) -> list[int]:
    """How many configurations are known after each round: all at once at random, a few at a time for `tpe`.

    >>> rounds(18, "random"), rounds(18, "tpe")
    ([18], [8, 12, 16, 18])
    """
    if sampler == "random":
        return [trials]
    return [*range(STARTUP, trials, ROUND), trials] if trials > STARTUP else [trials]


def key_is_range(values: Any) -> bool:
    """Whether a key is drawn between two bounds, and not from a list of choices."""
    return not isinstance(values, list)


def described(values: Any) -> str:
    """What a key is searched over, in words.

    >>> described((0.05, 0.4)), described([2, 5])
    ('0.05 to 0.4, log-uniform', 'one of 2, 5')
    """
    if key_is_range(values):
        return f"{values[0]:g} to {values[1]:g}, log-uniform"
    return f"one of {', '.join(map(value_text, values))}"


def _at(values: Any, share: float) -> Any:
    if not key_is_range(values):
        return values[int(share * len(values))]
    low, high = values
    if isinstance(low, int) and isinstance(high, int):
        # each whole number has its share of the axis, the last as much as the first
        return min(high, int(math.exp(math.log(low) + share * (math.log(high + 1) - math.log(low)))))
    return _rounded(math.exp(math.log(low) + share * (math.log(high) - math.log(low))))


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _distribution(kinds: Any, values: Any) -> Any:
    if not key_is_range(values):
        return kinds.CategoricalDistribution(values)
    low, high = values
    if isinstance(low, int) and isinstance(high, int):
        return kinds.IntDistribution(low, high, log=True)
    return kinds.FloatDistribution(low, high, log=True)
