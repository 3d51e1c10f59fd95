"""When compiling a network pays; without torch, so that costs can be estimated without it."""

from __future__ import annotations

from benchmark.config.protocol import Protocol

WORTHWHILE = 1000
"""Steps that a run must still have ahead: compiling takes up to a minute, and a step saves some ten milliseconds."""
RECORDABLE = 30
"""Steps that a run must have ahead for CUDA graphs without a compiler: recording them takes about a second."""
USUAL = 112 * 224 ** 2
"""Pixels of the step meant above; a step of more of them saves more."""


def wanted(protocol: Protocol, steps: int) -> str:
    """yes, graphs or no: what a protocol's `compile` asks for on a GPU, where `auto` goes by the work ahead.

    A step in pieces counts as many, and one of twice the usual pixels as two.

    >>> from benchmark.config.protocol import load
    >>> wanted(load("oodml"), 10), wanted(load("oodml"), 100), wanted(load("oodml"), 1000)
    ('no', 'graphs', 'yes')
    >>> wanted(load("uml"), 456), wanted(load("oodml", overrides={"compile": "graphs"}), 10_000)
    ('yes', 'graphs')
    """
    if protocol.compile != "auto":
        return protocol.compile
    pieces = -(-protocol.batch_size // protocol.micro_batch) if protocol.micro_batch else 1
    work = steps * max(pieces, protocol.batch_size * (protocol.size or 224) ** 2 / USUAL)
    return "yes" if work >= WORTHWHILE else "graphs" if steps >= RECORDABLE else "no"
