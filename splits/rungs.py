"""Which of the splits that a builder came by become the rungs of a ladder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from splits import SplitError


def rising(distances: Sequence[float], default: int) -> list[int]:
    """Positions that form a strictly rising chain through `default`: new minima before it, new maxima after it.

    `distances` run from the last reverse step over the default split to the last removal.

    >>> rising([3, 2, 4, 5, 7, 6, 9], default=3)
    [1, 2, 3, 4, 6]
    """
    before, after = [default], [default]
    for i in range(default - 1, -1, -1):
        if distances[i] < distances[before[-1]]:
            before.append(i)
    for i in range(default + 1, len(distances)):
        if distances[i] > distances[after[-1]]:
            after.append(i)
    return before[:0:-1] + after


def check_rungs(count: int | None, reverse: bool | None) -> None:
    """A SplitError where so many rungs cannot hold the ends and, between them, the default split.

    Without `reverse` the default split is an end itself.
    """
    if count is not None and count < 3 and reverse is not False:
        raise SplitError(f"{count} rungs are too few for the easiest, the default and the hardest split: take 3, or "
                         "2 with --no-reverse, which begins at the default split")


def choose_rungs(distances: Sequence[float], default: int, count: int) -> list[int]:
    """`count` positions of a rising sequence, its ends and `default` among them, with gaps as equal as can be.

    The gaps g_1..g_(m-1) of m rungs have a given sum, so that they are most nearly equal where sum g_i^2 is least; the
    least is found exactly (shortest path over the positions).

    >>> choose_rungs([0, 1, 4, 5, 6, 9, 10], default=0, count=3)
    [0, 3, 6]
    """
    n = len(distances)
    needed = len({0, default, n - 1})
    if count < needed:
        raise SplitError(f"a ladder with its ends and the default split needs {needed} rungs, {count} were asked for")
    if count >= n:
        return list(range(n))
    d = np.asarray(distances, dtype=np.float64)
    cost = (d[None, :] - d[:, None]) ** 2
    cost[np.tril_indices(n)] = np.inf
    cost[:default, default + 1 :] = np.inf
    reach = np.full((count, n), np.inf)
    reach[0, 0] = 0.0
    back = np.zeros((count, n), dtype=np.int64)
    for k in range(1, count):
        through = reach[k - 1][:, None] + cost
        back[k] = through.argmin(axis=0)
        reach[k] = through.min(axis=0)
    path = [n - 1]
    for k in range(count - 1, 0, -1):
        path.append(int(back[k, path[-1]]))
    return path[::-1]
