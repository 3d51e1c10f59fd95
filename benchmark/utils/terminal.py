"""Tables in a terminal, and output without control characters: names of files, classes and runs may hold any."""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO, cast

from reports.safe_text import cut, printable, spelt
from reports.tables.alignment import aligned, fitted
from reports.wording import number

Tell = Callable[[str], None]
"""Prints a line for the user."""
LONGEST = 2000
"""Characters of a message."""

_PARTS = re.compile(r"((?:\x1b\[A)*[\r\n]*)(.*?)([\r\n]*(?:\x1b\[A)*)", re.DOTALL)
"""Around a text stands what a progress bar writes by itself: line ends and steps to the line above."""


class Harmless:
    """A text stream to which control characters, and letters that it cannot have, are written in others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        start, inner, end = _PARTS.fullmatch(text).groups()  # type: ignore[union-attr]
        shown = start + printable(inner) + end
        try:
            self._stream.write(shown)
        except UnicodeEncodeError:  # a locale of another encoding than UTF-8
            self._stream.write(spelt(shown, self._stream.encoding))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def plain_warning(message: Warning | str, *where: object, **more: object) -> str:
    """A warning as it is shown, for `warnings.formatwarning`: without the line of the code that gave it."""
    return cut(f"oodml: {message}", LONGEST) + "\n"


def columns(rows: Sequence[Sequence[str]], left: int | None = None) -> Iterator[str]:
    """Rows as lines of aligned cells; on a terminal those that end in a text are cut to its width.

    The first `left` columns stand to the left and the others, of numbers, to the right; None: all to the left.

    >>> list(columns([("name", "what it is"), ("margin", "A loss.")]))
    ['name    what it is', 'margin  A loss.']
    >>> list(columns([("name", "runs"), ("margin", "12")], left=1))
    ['name    runs', 'margin    12']
    """
    room = shutil.get_terminal_size().columns if left is None and sys.stdout.isatty() else sys.maxsize
    for cells in aligned(rows, [left is None or i < left for i in range(max(map(len, rows), default=0))]):
        yield fitted("  ".join(cells).rstrip(), room)


def value_text(value: Any) -> str:
    """A key of a protocol or a setting of a method as it may be written after --set KEY=.

    >>> value_text(1 / 6), value_text(1e-5), value_text(True), value_text((0.5, 1)), value_text("adam"), value_text(())
    ('0.1667', '1e-05', 'true', '0.5,1', 'adam', '')
    """
    if isinstance(value, (tuple, list)):
        return ",".join(map(value_text, value))
    if isinstance(value, bool):
        return str(value).lower()
    return number(value) if isinstance(value, float) else str(value)


def end_bars() -> None:
    """Ends the lines of progress bars that an error left open, so that a message begins at the start of its own."""
    bars = getattr(sys.modules.get("tqdm"), "tqdm", None)
    for bar in list(getattr(bars, "_instances", ())):
        bar.close()


def reader_gone() -> bool:
    """Whether nobody reads the output any more; where that cannot be told, as if so."""
    if not hasattr(select, "poll"):
        return True
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll(0))


@contextlib.contextmanager
def harmless_output() -> Iterator[None]:
    """While it lasts, whatever is printed is `Harmless`; where a stream is closed, what is printed there is lost."""
    while sys.stdout is None or sys.stderr is None:  # the next file opened would otherwise be taken for that stream
        lost = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        if lost.fileno() > 2 or sys.stdout is None:
            sys.stdout = sys.stdout or lost
        if lost.fileno() > 1:
            sys.stderr = sys.stderr or lost
    try:
        with (contextlib.redirect_stdout(cast(TextIO, Harmless(sys.stdout))),
              contextlib.redirect_stderr(cast(TextIO, Harmless(sys.stderr)))):
            yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:  # the reader went away: Python must not complain again at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
