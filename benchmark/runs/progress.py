"""The progress of a sweep: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

from reports.storage.text import duration, one_line, printable

INTERVAL = 60.0
"""Seconds between two lines about running cells where there is no terminal."""


class Progress:
    """One overall bar in epochs of all cells, so that the time left is honest when cells differ in length, and one
    line for each cell at work. Epochs that an earlier sweep did are not counted as speed.
    """

    def __init__(self, cells: int, epochs: int, *, terminal: bool | None = None, interval: float = INTERVAL) -> None:
        self.cells, self.epochs = cells, epochs
        self.finished = 0
        self.position = 0
        self.fresh = 0
        self.terminal = sys.stderr.isatty() if terminal is None else terminal
        self._began = self._last_line = time.monotonic()
        self._interval = interval
        self._at: dict[str, dict[str, Any]] = {}
        self._bar = self._new(0, total=max(epochs, 1), unit="epoch",
                              bar_format="{desc} {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} epochs{postfix}")
        self._show()

    def start(self, key: str, label: str, epochs: int) -> None:
        """A worker begins with a cell."""
        used = {cell["line"] for cell in self._at.values()}
        line = next(i for i in range(1, len(used) + 2) if i not in used)
        bar = self._new(line, bar_format="  {desc}")
        self._at[key] = {"label": label, "epochs": epochs, "epoch": 0, "line": line, "bar": bar, "seen": False}
        self._describe(key)

    def epoch(self, key: str, entry: dict[str, Any]) -> None:
        """A cell has finished an epoch (or resumes after an earlier one)."""
        cell = self._at.get(key)
        if cell is None:
            return
        steps = max(0, int(entry.get("epoch", 0)) - cell["epoch"])
        self.position += steps
        self.fresh += min(steps, 1)
        cell |= {"epoch": cell["epoch"] + steps, "loss": entry.get("loss"), "seen": True}
        self._describe(key)
        self._show()
        self.tick()

    def done(self, key: str, note: str = "done", score: str = "") -> None:
        """A cell has its record."""
        label = self._leave(key)
        self.finished += 1
        self.write(f"{note:<7} {label}" + (f": {score}" if score else ""))

    def failed(self, key: str, cause: str, file: Path | None = None) -> None:
        """A cell failed for good; `file` tells more."""
        label = self._leave(key)
        self.finished += 1
        more = f"; see {file}" if file is not None and file.is_file() else ""
        self.write(f"FAILED  {label}: {one_line(cause)}{more}")

    def paused(self, key: str, note: str = "saved") -> None:
        """A cell is left unfinished; its epochs count again when it is resumed."""
        cell = self._at.get(key, {})
        self.position -= cell.get("epoch", 0)
        label = self._leave(key, finish=False)
        if note:
            self.write(f"{note:<7} {label}")

    def tick(self) -> None:
        """Called now and then: without a terminal a line shows every minute what is running."""
        if not self.terminal and time.monotonic() - self._last_line >= self._interval and self._at:
            self.write("running " + ", ".join(f"{cell['label']} ({_at(cell)})" for cell in self._at.values()))

    def write(self, text: str) -> None:
        """A line that stays, with the count of cells and the time left."""
        self._last_line = time.monotonic()
        left = self.left()
        ahead = f", {duration(left)} left" if left is not None and self.finished < self.cells else ""
        tqdm.write(f"[{self.finished}/{self.cells}] {printable(text)}{ahead}", file=sys.stdout)
        sys.stdout.flush()
        self._show()

    def left(self) -> float | None:
        """Seconds to the end at the speed so far; None before the first epoch."""
        if not self.fresh:
            return None
        return (time.monotonic() - self._began) / self.fresh * max(0, self.epochs - self.position)

    def close(self) -> None:
        for cell in self._at.values():
            cell["bar"].close()
        self._at.clear()
        self._bar.close()

    def _leave(self, key: str, finish: bool = True) -> str:
        cell = self._at.pop(key, None)
        if cell is None:
            return key
        cell["bar"].close()
        if finish:
            self.position += cell["epochs"] - cell["epoch"]
        return cell["label"]

    def _new(self, line: int, **options: Any) -> Any:
        return tqdm(position=line, leave=line == 0, disable=not self.terminal, dynamic_ncols=True, file=sys.stderr,
                    **options)

    def _describe(self, key: str) -> None:
        cell = self._at[key]
        loss = f", loss {cell['loss']:.3f}" if isinstance(cell.get("loss"), float) else ""
        cell["bar"].set_description_str(f"{cell['label']}: {_at(cell)}{loss}")

    def _show(self) -> None:
        left = self.left()
        self._bar.n = min(self.position, self._bar.total or 0)
        self._bar.set_description_str(f"{self.finished}/{self.cells} runs", refresh=False)
        self._bar.set_postfix_str("" if left is None else f"{duration(left)} left", refresh=True)


def _at(cell: dict[str, Any]) -> str:
    """How far a cell is; a frozen network has no epochs."""
    return f"epoch {cell['epoch']} of {cell['epochs']}" if cell["epochs"] else "embedding"
