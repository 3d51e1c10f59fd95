"""How many runs share a GPU, whichever sweep they belong to: each run of this user on this machine marks its GPUs."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmark.utils import provenance

EVERY = 0.5
"""Seconds between two looks at the marks."""


def folder() -> Path:
    """Where the marks lie: beside each other whatever TMPDIR a job has been given, where there is a /tmp."""
    root = Path("/tmp") if os.access("/tmp", os.W_OK) else Path(tempfile.gettempdir())
    return root / f"oodml-runs-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


class Occupancy:
    """Marks the GPUs of a run while it lasts, and measures the share of them that the run had.

    With n(t) marks on its fullest GPU, its own among them, the run had `part` = integral of dt / n(t) of the GPU's
    seconds. A mark is a file on which its process holds a lock: the system takes the lock back when the process ends,
    however it ends, so that a run that was killed does not count. On a CPU, and where no mark can be made, n = 1.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.part = 0.0
        self.shared = False
        """Whether another run was seen on them."""
        self._since, self._sharing, self._guard = time.perf_counter(), 1, threading.Lock()
        self._gpus = [provenance.gpu_id(device) or device for device in devices if device.startswith("cuda")]
        self._marks: list[tuple[Path, int]] = []
        self._end = threading.Event()

    def __enter__(self) -> Occupancy:
        if self._gpus:
            try:
                folder().mkdir(mode=0o700, exist_ok=True)
                self._marks = [_mark(gpu) for gpu in self._gpus]
            except (OSError, ImportError):  # no room, another's folder, or a system without such locks
                return self
            self._look()
            self._thread = threading.Thread(target=self._watch, daemon=True, name="occupancy")
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.shared = self.shared  # type: ignore[attr-defined]  # the other may have gone when the cause is sought
        if self._marks:
            self._end.set()
            self._thread.join()
        self.so_far()
        for path, handle in self._marks:
            path.unlink(missing_ok=True)
            os.close(handle)

    def so_far(self) -> float:
        """`part` until now."""
        with self._guard:
            now = time.perf_counter()
            self.part += (now - self._since) / self._sharing
            self._since = now
            return self.part

    def _watch(self) -> None:
        while not self._end.wait(EVERY):
            self._look()

    def _look(self) -> None:
        own = {path for path, _ in self._marks}
        others = max(sum(_held(path) for path in folder().glob(f"{gpu}.*") if path not in own) for gpu in self._gpus)
        self.so_far()
        self._sharing = 1 + others
        self.shared |= others > 0


def _mark(gpu: str) -> tuple[Path, int]:
    """A new mark and the open file that holds its lock; it gets its name once it is locked, so that none is free."""
    import fcntl

    name = uuid.uuid4().hex
    new = folder() / f".{name}"
    handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    return new.rename(folder() / f"{gpu}.{name}"), handle


def _held(path: Path) -> bool:
    """Whether the process of a mark lives; the mark of one that does not is removed."""
    import fcntl

    try:
        handle: Any = os.open(path, os.O_RDWR)
    except OSError:  # its run has just ended
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    path.unlink(missing_ok=True)
    return False
