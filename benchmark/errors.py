"""The mistakes of users: one line, no traceback, exit code 2."""


class UserError(Exception):
    """Something the user can mend; the message says what was wrong, where, and what mends it."""
