"""How a sweep is stopped: by Ctrl-C, by a cluster's SIGTERM, or by its time running out."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType
from typing import Any

from benchmark.utils.signals import hear

EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 75}
"""What a command leaves with that was stopped and can go on: 128 + 2 after Ctrl-C, as shells have it;
EX_TEMPFAIL of sysexits.h after a cluster's warning."""


class Brake:
    """Counts what asks the sweep to end; a context in which signals are counted instead of killing.

    Once: running cells finish an epoch that has at most `train.GRACE` seconds left, and save it; a longer one is left,
    and the checkpoint before it stands. Twice: everything ends at once.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.asked = 0
        self.exit_code = 0
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, Any] = {}

    @property
    def out_of_time(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    @property
    def pressed(self) -> bool:
        return self.asked > 0 or self.out_of_time

    @property
    def hard(self) -> bool:
        return self.asked > 1

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        self.exit_code = EXIT_CODES[signal.Signals(number)]

    def __enter__(self) -> Brake:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in EXIT_CODES}
            hear(*EXIT_CODES)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
