"""Which rungs of a ladder a text means: `--splits` of `oodml run`, `--split` of `oodml evaluate`."""

from __future__ import annotations

import re

from benchmark.utils.errors import UserError
from splits.fixed_test import is_control
from splits.manifest import Ladder, Split


def chosen(text: str, ladder: Ladder, needs: str = "", option: str = "--splits") -> tuple[Split, ...]:
    """The rungs that a text means: their numbers, `default`, `all`, or `fixed-test`, all of a control.

    Args:
        needs: the ladder that is meant, see `study.Part.needs`.
        option: what the text was given to, for the message.
    """
    return tuple(map(ladder.split, ids(text, ladder, needs, option)))


def ids(text: str, ladder: Ladder, needs: str = "", option: str = "--splits") -> list[int]:
    """The numbers of the rungs that a text means; those that are written out, the ladder may lack."""
    if text == "default":
        return [ladder.default.id]
    if text == "fixed-test" and not is_control(ladder):
        made = needs if "--fixed-test" in needs else "--fixed-test"
        raise UserError(f"{option} fixed-test: the ladder of {ladder.dataset} is not one with fixed test classes; "
                        f"`oodml splits build --dataset {ladder.dataset} {made} --work DIR` makes one, in a "
                        "working folder of its own")
    return [split.id for split in ladder.splits] if text in ("all", "fixed-test") else numbers(text, option)


def numbers(text: str, option: str = "--splits") -> list[int]:
    """A list of numbers and ranges, each once: what is named twice is not scored twice.

    >>> numbers("1,3-5,4")
    [1, 3, 4, 5]
    """
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if not ends or int(ends[2] or ends[1]) < int(ends[1]):
            also = ", or default, or all" if option.startswith("--split") else ""
            raise UserError(f"{option} {text[:100]}: write numbers and rising ranges such as 1,3-5, below 10000{also}")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return list(dict.fromkeys(found))
