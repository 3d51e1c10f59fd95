"""When compiling a network pays; without torch, so that costs can be estimated without it."""

from __future__ import annotations

WORTHWHILE = 1000
"""Steps that a run must still have ahead: compiling takes up to a minute, and a step saves some ten milliseconds."""
RECORDABLE = 30
"""Steps that a run must have ahead for CUDA graphs without a compiler: recording them takes about a second."""
SERIES = 3 * WORTHWHILE
"""Steps that a series of short runs must have ahead, which one compiled network serves: an estimate, not measured."""


def wanted(compile_: str, steps: int, later: int = 0) -> str:
    """yes, graphs or no: what a protocol's `compile` asks for on a GPU, where `auto` goes by the steps ahead.

    `later`: those of the runs that are to follow in this process.

    >>> wanted("auto", 10), wanted("auto", 100), wanted("auto", 10_000), wanted("graphs", 10_000)
    ('no', 'graphs', 'yes', 'graphs')
    >>> wanted("auto", 400, later=2000), wanted("auto", 400, later=4000)
    ('graphs', 'yes')
    """
    if compile_ != "auto":
        return compile_
    return "yes" if steps >= WORTHWHILE or steps + later >= SERIES else "graphs" if steps >= RECORDABLE else "no"
