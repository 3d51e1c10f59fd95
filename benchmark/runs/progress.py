"""The progress of a sweep: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmark.runs.time_left import TimeLeft, Work
from reports.safe_text import one_line, printable
from reports.wording import duration

INTERVAL = 60.0
"""Seconds between two lines about runs under way where there is no terminal."""
SHOWN = 0.5
"""Seconds from one look at the time left to the next, between lines that stay: many short epochs may end at once."""


class Progress:
    """One overall bar in epochs of all runs, with the time that is left, and one line for each run at work."""

    def __init__(self, work: Mapping[str, Work], *, terminal: bool | None = None, interval: float = INTERVAL) -> None:
        self.work, self.runs = dict(work), len(work)
        self.epochs = sum(one.epochs for one in work.values())
        self.finished = 0
        self.position = 0
        self.ahead = TimeLeft(dict(work))
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self._last_line = self._shown = time.monotonic()
        self._interval = interval
        self._running: dict[str, dict[str, Any]] = {}
        self._bar = self._new(0, total=max(self.epochs, 1), unit="epoch",
                              bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} epochs{postfix}")
        self._show()

    def start(self, key: str) -> None:
        """A worker begins with a run."""
        used = {run["line"] for run in self._running.values()}
        line = next(i for i in range(1, len(used) + 2) if i not in used)
        bar = self._new(line, bar_format="  {desc}")
        self._running[key] = {"epoch": 0, "line": line, "bar": bar}
        self.ahead.start(key, time.monotonic())
        self._describe(key)

    def epoch(self, key: str, entry: dict[str, Any]) -> None:
        """A run has finished an epoch or, without a loss, begins after one: those before it are not of this sweep."""
        run = self._running.get(key)
        if run is None:
            return
        steps = max(0, int(entry.get("epoch", 0)) - run["epoch"])
        self.position += steps
        run |= {"epoch": run["epoch"] + steps, "loss": entry.get("loss")}
        self.ahead.epoch(key, run["epoch"], "loss" in entry, time.monotonic())
        self._describe(key)
        self._show(now=False)
        self.tick()

    def done(self, key: str, note: str = "done", score: str = "") -> None:
        """A run has its record, of this sweep or, as the note says, of elsewhere."""
        if note == "done" and key in self._running:
            self.ahead.done(key, time.monotonic())
        label = self._leave(key)
        self.finished += 1
        self.write(f"{note:<7} {label}" + (f": {score}" if score else ""))

    def failed(self, key: str, cause: str, file: Path | None = None) -> None:
        """A run failed for good; `file` tells more."""
        label = self._leave(key)
        self.finished += 1
        more = f"; see {file}" if file is not None and file.is_file() else ""
        self.write(f"FAILED  {label}: {one_line(cause)}{more}")

    def paused(self, key: str, note: str = "saved") -> None:
        """A run is left unfinished; its epochs count again when it is resumed."""
        self.ahead.put_back(key, time.monotonic())
        label = self._leave(key, finished=False)
        if note:
            self.write(f"{note:<7} {label}")

    def tick(self) -> None:
        """Called now and then: without a terminal a line shows every minute what is running."""
        if not self.terminal and time.monotonic() - self._last_line >= self._interval and self._running:
            self.write("running " + ", ".join(f"{self._label(key)} ({self._how_far(key)})" for key in self._running))

    def write(self, text: str) -> None:
        """A line that stays, with the count of runs and the time left."""
        self._last_line = time.monotonic()
        left = self.left()
        ahead = f", {duration(left)} left" if left is not None and self.finished < self.runs else ""
        tqdm.write(f"[{self.finished}/{self.runs}] {printable(text)}{ahead}", file=sys.stdout)
        sys.stdout.flush()
        self._show()

    def left(self) -> float | None:
        """Seconds to the end; None while too little is known."""
        return self.ahead.seconds(time.monotonic())

    def close(self) -> None:
        for run in self._running.values():
            run["bar"].close()
        self._running.clear()
        self._bar.close()

    def _leave(self, key: str, finished: bool = True) -> str:
        run = self._running.pop(key, None)
        epoch = 0
        if run is not None:
            run["bar"].close()
            epoch = run["epoch"]
        if finished:
            self.ahead.drop(key, time.monotonic())
            self.position += self.work[key].epochs
        self.position -= epoch
        return self._label(key)

    def _label(self, key: str) -> str:
        return self.work[key].label

    def _new(self, line: int, **options: Any) -> Any:
        return tqdm(position=line, leave=line == 0, disable=not self.terminal, dynamic_ncols=True, file=sys.stderr,
                    **options)

    def _describe(self, key: str) -> None:
        run = self._running[key]
        loss = f", loss {run['loss']:.3f}" if isinstance(run.get("loss"), float) else ""
        run["bar"].set_description_str(f"{self._label(key)}: {self._how_far(key)}{loss}")

    def _show(self, now: bool = True) -> None:
        if not self.terminal or (not now and time.monotonic() - self._shown < SHOWN):
            return
        self._shown = time.monotonic()
        left = self.left()
        self._bar.n = min(self.position, self._bar.total or 0)
        self._bar.set_description_str(f"{self.finished}/{self.runs} runs", refresh=False)
        self._bar.set_postfix_str("" if left is None else f"{duration(left)} left", refresh=True)

    def _how_far(self, key: str) -> str:
        """How far a run is; a frozen network has no epochs."""
        epochs = self.work[key].epochs
        return f"epoch {self._running[key]['epoch']} of {epochs}" if epochs else "embedding"
