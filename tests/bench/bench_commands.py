"""What commands take that train nothing, as processes of their own: CPU seconds, beside what importing torch takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import tiny_sweep
from tests.bench import Row, cpu_of_children
from tests.sample_records import STRENGTH, write_sample

AIMS = {"status": 1.0, "methods": 1.0, "plan": 1.0, "protocols": 1.0, "studies": 1.0, "datasets": 1.0,
        "splits show": 1.0, "report": 5.0}
"""CPU seconds that are aimed at."""


def measure(device: str) -> Iterator[Row]:
    torch = _seconds("-c", "import torch")
    with tempfile.TemporaryDirectory() as folder:
        made = tiny_sweep.workspace(Path(folder) / "work")
        demo = {name: STRENGTH[name] for name in ("frozen", "margin", "multisimilarity", "arcface", "proxyanchor")}
        write_sample(made.runs, demo, ("glyphs",), seeds=1, queries=True)
        here = ["--work", str(made.root)]
        ladder = ["--dataset", "glyphs-mini"]
        for words, more in (("status", here), ("methods", []), ("protocols", []), ("studies", []), ("datasets", here),
                            ("splits show", [*ladder, *here]),
                            ("plan", [*ladder, "--methods", "all", *here]), ("report", here)):
            aim = f" (aim: {AIMS[words]:g} s)" if words in AIMS else ""
            yield Row(f"oodml {words}, CPU{aim}", _seconds("-m", "oodml", *words.split(), *more), torch,
                      "`import torch` alone")


def _seconds(*words: str) -> float:
    """The least CPU seconds of three processes."""
    used = []
    for _ in range(3):
        before = cpu_of_children()
        subprocess.run([sys.executable, *words], check=True, capture_output=True,
                       env={**os.environ, "OMP_NUM_THREADS": "1"})
        used.append(cpu_of_children() - before)
    return min(used)
