"""How far a command is that embeds images with finished runs: a bar on a terminal, a line a minute in a log file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from tqdm import tqdm

from benchmark.runs.progress import INTERVAL
from benchmark.utils.terminal import Tell
from reports.safe_text import printable
from reports.wording import duration


class Bar:
    """Counts images over all runs of a command; lines that stay go through `tell`, above the bar.

    Args:
        total: images that are to be embedded in all.
        tell: prints a line for the user.
    """

    def __init__(self, total: int, tell: Tell, *, terminal: bool | None = None, interval: float = INTERVAL) -> None:
        self.total, self.done = total, 0
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self._print, self._what, self._interval = tell, "", interval
        self._began = self._last_line = time.monotonic()
        self._bar = tqdm(total=total, unit="img", disable=not self.terminal, dynamic_ncols=True, file=sys.stderr)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._bar.close()

    def begin(self, what: str) -> None:
        """From now on this is done."""
        self._what = what
        self._bar.set_description_str(printable(what))
        self._tick()

    def step(self, images: int) -> None:
        """So many more images are embedded."""
        self.done += images
        self._bar.update(images)
        self._tick()

    def tell(self, line: str) -> None:
        """A line that stays."""
        self._last_line = time.monotonic()
        with tqdm.external_write_mode(file=sys.stdout):
            self._print(line)

    def _tick(self) -> None:
        now = time.monotonic()
        if not self.terminal and now - self._last_line >= self._interval:
            left = (now - self._began) / self.done * (self.total - self.done) if self.done else None
            ahead = "" if left is None else f", {duration(left)} left"
            self.tell(f"{self._what} ({self.done:,} of {self.total:,} images{ahead})")
