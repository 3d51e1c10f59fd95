"""What measures are called: those of the structure of an embedding as papers name them, and the order of metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RELEASED = "_released"


@dataclass(frozen=True)
class Measure:
    """A measure of structure: its name, its symbol in Revisiting DML (section 5), and what it is in a line."""

    name: str
    symbol: str
    meaning: str


STRUCTURE = {
    "pi_intra": Measure("Intra-class distance", "π_intra", "mean Euclidean distance of the pairs of images of one "
                        "class, embeddings normalised"),
    "pi_inter": Measure("Inter-class distance", "π_inter", "mean Euclidean distance between the mean embeddings of two "
                        "classes"),
    "density": Measure("Embedding space density", "π_ratio", "intra-class distance divided by inter-class distance; "
                       "the lower, the tighter classes are for how far apart they lie"),
    "rho": Measure("Spectral decay", "ρ", "KL(U ‖ S) from the uniform distribution to the singular values of the "
                   "embeddings, the largest left out, divided by their sum; 0 where all directions are used alike"),
    "rho_class": Measure("Spectral decay within classes", "ρ_class", "the same of the embeddings of each class alone, "
                         "mean over classes"),
    "pi_intra_released": Measure("Intra-class cosine distance", "", "mean over classes of the mean cosine distance of "
                                 "their pairs"),
    "pi_inter_released": Measure("Inter-class cosine distance", "", "mean cosine distance between the normalised mean "
                                 "embeddings of two classes"),
    "density_released": Measure("Density by cosine distances", "", "intra-class divided by inter-class cosine "
                                "distance"),
}
"""In the order of the paper, what its released code computes instead after what it defines."""


def of_structure(key: str) -> Measure:
    """What a measure of the records is called; one that no paper names is called by its key, in words.

    >>> of_structure("rho").name, of_structure("rho_released@10").name, of_structure("gap_width").name
    ('Spectral decay', 'Spectral decay without the 9 largest', 'Gap width')
    """
    released = re.fullmatch(r"rho_released@(-?)(\d+)", key)
    if not released:
        words = key.replace("_", " ")
        return STRUCTURE.get(key) or Measure(words[:1].upper() + words[1:], "", "")
    reverse, left = released[1], int(released[2]) - 1
    which = "of all values" if left == 0 else "without the largest" if left == 1 else f"without the {left} largest"
    divergence = "KL(S ‖ U)" if reverse else "KL(U ‖ S)"
    return Measure(f"Spectral decay {which}{', ' + divergence if reverse else ''}", "",
                   f"{divergence} of the singular values {'' if left == 0 else which}".rstrip())


def is_released(key: str) -> bool:
    """Whether a measure follows released code where that differs from its paper."""
    return _RELEASED in key


def structure_order(key: str) -> tuple[int, str]:
    """As the paper has them, what it does not name last."""
    order = list(STRUCTURE)
    return (order.index(key) if key in order else len(order)), key


def metric_order(metric: str) -> tuple[bool, bool, str, int]:
    """Recall first, by k as a number; the measures that imitate released code last."""
    name, _, k = metric.partition("@")
    return metric.endswith(_RELEASED), name != "recall", name, int(k) if k.isdigit() else 0
