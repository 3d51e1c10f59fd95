"""Errors that a user can correct: one line, no traceback, exit code 2."""

from __future__ import annotations

import errno

from reports.wording import near

__all__ = ["NO_ROOM", "UserError", "is_user_error", "near"]

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of the system's errors that say that a disk, or the user's part of it, is full."""


class UserError(Exception):
    """Something the user can correct; the message says what was wrong, where, and what to do."""

    user_error = True
    """SplitError, MethodError and ReportError say the same of themselves; the libraries share no base class."""


def is_user_error(error: BaseException) -> bool:
    """Whether an error is worded for the user, who needs no traceback."""
    return getattr(error, "user_error", False)
