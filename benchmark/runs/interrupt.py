"""How a sweep is stopped: by Ctrl-C, by a cluster's SIGTERM, or by its time running out."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from benchmark.utils.signals import unblock_signals

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}
"""Exit codes of a command that was stopped and can be resumed: 128 + 2 after Ctrl-C, as shells have it;
EX_TEMPFAIL of sysexits.h after a cluster's warning."""


class StopRequest:
    """Counts the requests to end a sweep; a context in which signals are counted instead of killing.

    Once: runs under way finish an epoch that has at most `train.GRACE` seconds left, and save it; a longer one is
    abandoned, and the checkpoint before it stands. Twice: everything ends at once.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.count = 0
        self.exit_code = 0
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._previous: dict[int, Any] = {}

    @property
    def out_of_time(self) -> bool:
        """Whether the seconds of the sweep are over."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def requested(self) -> bool:
        """Whether runs under way should save and end."""
        return self.count > 0 or self.out_of_time

    @property
    def forced(self) -> bool:
        """Whether everything should end at once."""
        return self.count > 1

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        self.exit_code = EXIT_CODES[signal.Signals(number)]

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._handle) for number in EXIT_CODES}
            unblock_signals(*EXIT_CODES)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
