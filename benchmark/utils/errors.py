"""Errors that a user can correct: one line, no traceback, exit code 2."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable

from reports.wording import near

__all__ = ["NO_ROOM", "NoRoom", "UserError", "is_user_error", "misspelt", "near"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the system's errors that say that a disk, or the user's part of it, is full."""


class UserError(Exception):
    """Something the user can correct; the message says what was wrong, where, and what to do."""

    user_error = True
    """SplitError, MethodError and ReportError say the same of themselves; the libraries share no base class."""


class NoRoom(UserError):
    """A disk is full: what was asked for was right, and is asked for again when there is room."""


def is_user_error(error: BaseException) -> bool:
    """Whether an error is worded for the user, who needs no traceback."""
    return getattr(error, "user_error", False)


def misspelt(name: str, known: Iterable[str]) -> str:
    """The known name of which an unknown one is a misspelling, else nothing.

    It decides whether there is an error at all, where `near` is a hint in one. A letter is missing, too many or wrong,
    two are swapped, or case and joints differ; other digits make a variant.

    >>> misspelt("margn", ["margin"]), misspelt("Proxy_Anchor", ["proxyanchor"]), misspelt("margin2", ["margin"])
    ('margin', 'proxyanchor', '')
    """
    return "" if name in known else next((other for other in known if _one_edit_apart(name, other)), "")


def _one_edit_apart(name: str, other: str) -> bool:
    one, two = (re.sub("[-_ ]", "", text.lower()) for text in (name, other))
    for _ in range(2):  # what is left without the common beginning and end
        same = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), min(len(one), len(two)))
        one, two = one[same:][::-1], two[same:][::-1]
    return not (one + two).isdigit() and (max(len(one), len(two)) < 2 or (len(one) == 2 and one == two[::-1]))
