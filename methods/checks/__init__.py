"""The conformance suite of a method: `oodml methods check FILE` runs it over a plug-in, the tests over all methods."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import NamedTuple

from methods import Entry, MethodError
from methods.checks.conformance import CHECKS

__all__ = ["CHECKS", "Result", "check_method"]


class Result(NamedTuple):
    """How one check of one method ended."""

    check: str
    error: BaseException | None = None

    @property
    def passed(self) -> bool:
        return self.error is None

    @property
    def reason(self) -> str:
        """One line: what a failed check says, or the line of code that it stopped at; empty if it passed."""
        if self.error is None:
            return ""
        text = " ".join(str(self.error).split())
        if isinstance(self.error, AssertionError):
            return text or self._line()
        return f"{type(self.error).__name__}: {text}" if text else f"{type(self.error).__name__} at {self._line()}"

    def _line(self) -> str:
        assert self.error is not None
        return traceback.extract_tb(self.error.__traceback__)[-1].line or ""


def check_method(entry: Entry) -> Iterator[Result]:
    """Every check over one method, each result as soon as it is known; no failure keeps the others from running.

    >>> import methods
    >>> all(result.passed for result in check_method(methods.get("random")))
    True
    """
    if not __debug__:
        raise MethodError("the checks are assertions, which `python -O` leaves out: run them without -O")
    for name, check in CHECKS.items():
        try:
            check(entry)
        except (Exception, SystemExit) as error:  # whatever somebody's method raises is a result
            yield Result(name, error)
        else:
            yield Result(name)
