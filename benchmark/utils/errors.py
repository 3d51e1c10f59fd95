"""Errors that a user can correct: one line, no traceback, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can correct; the message says what was wrong, where, and what to do."""

    user_error = True
    """SplitError, MethodError and ReportError say the same of themselves; the libraries share no base class."""


def is_user_error(error: BaseException) -> bool:
    """Whether an error is worded for the user, who needs no traceback."""
    return getattr(error, "user_error", False)


def near(name: str, options: Iterable[str]) -> str:
    """A hint at the option that was probably meant, ready to stand behind the wrong name.

    >>> near("glyph", ["glyphs", "cub"])
    " (did you mean 'glyphs'?)"
    """
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
