"""What the record of a submitted method says before its scores, whoever makes it: `oodml evaluate` or a pack."""

from __future__ import annotations

from typing import Any

from benchmark.runs import recording
from splits.manifest import Ladder, Split


def facts(name: str, seed: int, rung: Split, ladder: Ladder, dataset_hash: str, *, identity: str, backbone: str,
          summary: str, papers: list[str]) -> dict[str, Any]:
    """Of one split and seed; nothing is known of how the method was trained but what its card says."""
    return {
        "source": "submitted", "identity": identity, "dataset": ladder.dataset,
        "dataset_hash": dataset_hash, "seed": seed, "split": recording.split_facts(rung, ladder),
        "method": {"name": name, "family": "submitted", "papers": papers, "tags": [], "cite": None, "trains": None,
                   "summary": summary, "settings": {}, "trainable_parameters": None, "total_parameters": None},
        "protocol": {"name": "submitted"}, "backbone": {"name": backbone, "weights": None}}
