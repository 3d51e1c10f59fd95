"""Errors that a user can correct: one line, no traceback, exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can correct; the message says what was wrong, where, and what to do."""


def is_users_mistake(error: BaseException) -> bool:
    """Whether the error is one of the kinds that the wings raise for their users (they share no base class)."""
    kinds = {"SplitError", "MethodError", "ReportError", "UserError"}
    return any(kind.__name__ in kinds for kind in type(error).__mro__)


def near(name: str, options: Iterable[str]) -> str:
    """A hint at the option that was probably meant, ready to stand behind the wrong name.

    >>> near("glyph", ["glyphs", "cub"])
    " (did you mean 'glyphs'?)"
    """
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=0.5)
    return f" (did you mean '{close[0]}'?)" if close else ""
