"""A ladder as text."""

from __future__ import annotations

from benchmark.utils.terminal import columns
from splits.manifest import Ladder, Split


def table(ladder: Ladder) -> str:
    """The rungs as text: id, kind, iteration, classes and images of each side, both distances."""
    heads = ("id", "kind", "iteration", "train classes", "images", "test classes", "images", "FRD", "FRD equal n",
             "FRD class means")
    rows = [heads, *((str(s.id), s.kind, _iteration(s), str(len(s.train)), str(s.train_images), str(len(s.test)),
                      str(s.test_images), *map(_number, (s.frd, s.frd_equal_n, s.frd_class_means_released)))
                     for s in ladder.splits)]
    lines = list(columns(rows, left=0))
    if ladder.iid:
        lines.append(f"random halves of the same classes (i.i.d.): {ladder.iid['mean']:.2f} ± {ladder.iid['std']:.2f} "
                     f"(std over {ladder.iid['draws']} draws)")
    return "\n".join(lines)


def _iteration(split: Split) -> str:
    """That of a split which was made here; the 0 of one from a released file, which tells none, is the default's."""
    return "-" if split.kind == "imported" else str(split.iteration)


def _number(value: float | None) -> str:
    """Two decimals or, of features so small that these would be zeros, two digits.

    >>> _number(123.034), _number(0.00123), _number(0.0), _number(None)
    ('123.03', '0.0012', '0.00', '-')
    """
    return "-" if value is None else f"{value:.2f}" if not 0 < abs(value) < 0.1 else f"{value:.2g}"
