"""The progress of a sweep: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from reports.safe_text import one_line, printable
from reports.wording import duration

INTERVAL = 60.0
"""Seconds between two lines about runs under way where there is no terminal."""


class Progress:
    """One overall bar in epochs of all runs, so that the time left is honest when runs differ in length, and one
    line for each run at work. Epochs that an earlier sweep did are not counted as speed.
    """

    def __init__(self, runs: int, epochs: int, *, terminal: bool | None = None, interval: float = INTERVAL) -> None:
        self.runs, self.epochs = runs, epochs
        self.finished = 0
        self.position = 0
        self.fresh = 0
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self._began = self._last_line = time.monotonic()
        self._interval = interval
        self._running: dict[str, dict[str, Any]] = {}
        self._bar = self._new(0, total=max(epochs, 1), unit="epoch",
                              bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} epochs{postfix}")
        self._show()

    def start(self, key: str, label: str, epochs: int) -> None:
        """A worker begins with a run."""
        used = {run["line"] for run in self._running.values()}
        line = next(i for i in range(1, len(used) + 2) if i not in used)
        bar = self._new(line, bar_format="  {desc}")
        self._running[key] = {"label": label, "epochs": epochs, "epoch": 0, "line": line, "bar": bar}
        self._describe(key)

    def epoch(self, key: str, entry: dict[str, Any]) -> None:
        """A run has finished an epoch or, without a loss, begins after one: those before it are not of this sweep."""
        run = self._running.get(key)
        if run is None:
            return
        steps = max(0, int(entry.get("epoch", 0)) - run["epoch"])
        self.position += steps
        self.fresh += min(steps, 1) if "loss" in entry else 0
        run |= {"epoch": run["epoch"] + steps, "loss": entry.get("loss")}
        self._describe(key)
        self._show()
        self.tick()

    def done(self, key: str, note: str = "done", score: str = "") -> None:
        """A run has its record."""
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
        run = self._running.get(key, {})
        self.position -= run.get("epoch", 0)
        label = self._leave(key, finish=False)
        if note:
            self.write(f"{note:<7} {label}")

    def tick(self) -> None:
        """Called now and then: without a terminal a line shows every minute what is running."""
        if not self.terminal and time.monotonic() - self._last_line >= self._interval and self._running:
            self.write("running " + ", ".join(f"{run['label']} ({_how_far(run)})" for run in self._running.values()))

    def write(self, text: str) -> None:
        """A line that stays, with the count of runs and the time left."""
        self._last_line = time.monotonic()
        left = self.left()
        ahead = f", {duration(left)} left" if left is not None and self.finished < self.runs else ""
        tqdm.write(f"[{self.finished}/{self.runs}] {printable(text)}{ahead}", file=sys.stdout)
        sys.stdout.flush()
        self._show()

    def left(self) -> float | None:
        """Seconds to the end at the speed so far; None before the first epoch."""
        if not self.fresh:
            return None
        return (time.monotonic() - self._began) / self.fresh * max(0, self.epochs - self.position)

    def close(self) -> None:
        for run in self._running.values():
            run["bar"].close()
        self._running.clear()
        self._bar.close()

    def _leave(self, key: str, finish: bool = True) -> str:
        run = self._running.pop(key, None)
        if run is None:
            return key
        run["bar"].close()
        if finish:
            self.position += run["epochs"] - run["epoch"]
        return run["label"]

    def _new(self, line: int, **options: Any) -> Any:
        return tqdm(position=line, leave=line == 0, disable=not self.terminal, dynamic_ncols=True, file=sys.stderr,
                    **options)

    def _describe(self, key: str) -> None:
        run = self._running[key]
        loss = f", loss {run['loss']:.3f}" if isinstance(run.get("loss"), float) else ""
        run["bar"].set_description_str(f"{run['label']}: {_how_far(run)}{loss}")

    def _show(self) -> None:
        left = self.left()
        self._bar.n = min(self.position, self._bar.total or 0)
        self._bar.set_description_str(f"{self.finished}/{self.runs} runs", refresh=False)
        self._bar.set_postfix_str("" if left is None else f"{duration(left)} left", refresh=True)


def _how_far(run: dict[str, Any]) -> str:
    """How far a run is; a frozen network has no epochs."""
    return f"epoch {run['epoch']} of {run['epochs']}" if run["epochs"] else "embedding"
