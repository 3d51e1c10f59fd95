"""Run records in, tables, figures and the HTML leaderboard out. Trains nothing."""


class ReportError(ValueError):
    """A mistake in records or in the choice of a table, worded for its user."""

    user_error = True
