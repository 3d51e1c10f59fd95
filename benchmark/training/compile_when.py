"""When compiling a network pays; without torch, so that costs can be estimated without it."""

from __future__ import annotations

WORTHWHILE = 1000
"""Steps that a run must still have ahead: compiling takes up to a minute, and a step saves some ten milliseconds."""
RECORDABLE = 30
"""Steps that a run must have ahead for CUDA graphs without a compiler: recording them takes about a second."""


def wanted(compile_: str, steps: int) -> str:
    """yes, graphs or no: what a protocol's `compile` asks for on a GPU, where `auto` goes by the steps ahead.

    >>> wanted("auto", 10), wanted("auto", 100), wanted("auto", 10_000), wanted("graphs", 10_000)
    ('no', 'graphs', 'yes', 'graphs')
    """
    if compile_ != "auto":
        return compile_
    return "yes" if steps >= WORTHWHILE else "graphs" if steps >= RECORDABLE else "no"
