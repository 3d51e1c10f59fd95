"""The progress of a sweep: a bar on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


class Progress:
    """Counts epochs of all cells, so that the time left is honest when cells differ in length."""

    def __init__(self, cells: int, epochs: int) -> None:
        self.cells = cells
        self.finished = 0
        self.bar = tqdm(total=epochs, unit="epoch", disable=not sys.stderr.isatty(), dynamic_ncols=True)

    def epoch(self, label: str, entry: dict[str, Any]) -> None:
        self.bar.update()
        loss = f" loss {entry['loss']:.3f}" if "loss" in entry else ""
        self.bar.set_description_str(f"{self.finished}/{self.cells} runs · {label}{loss}")

    def done(self, label: str) -> None:
        self._say(f"done    {label}")

    def failed(self, label: str, cause: str) -> None:
        self._say(f"FAILED  {label}: {cause}")

    def close(self) -> None:
        self.bar.close()

    def _say(self, line: str) -> None:
        self.finished += 1
        left = ""
        rate = self.bar.format_dict.get("rate")
        if self.bar.disable and rate is None:
            rate = None
        tqdm.write(f"[{self.finished}/{self.cells}] {line}{left}", file=sys.stdout)
