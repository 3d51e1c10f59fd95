"""One lock a run, in the run's own folder, so that runners which share nothing but a file system never do it twice.

`lock.1`, `lock.2`, ... are the generations of a run's lock and the highest one holds. A generation is taken by
creating its file exclusively, which is atomic on network file systems too; only its owner ever writes to it
and none is removed before the run is done. The owner counts its heartbeats in the file. Whoever waits takes the
next generation once that count has stood still for `STALE` seconds of the waiter's own running time: clocks of two
machines are never compared and a clock that jumps does no harm. An owner that finds a higher generation has lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

STALE = float(os.environ.get("OODML_STALE_SECONDS", "90"))
"""Seconds without a heartbeat after which an owner counts as gone."""
BEAT = STALE / 12
LOST = 70
"""Exit code of a process whose run was taken over."""
RELEASED = "released"
_WIDTH = 16


@dataclass(frozen=True)
class Holder:
    """One generation of a lock as it was read: the count of its heartbeats and who wrote it."""

    number: int
    beat: str
    facts: dict[str, Any]
    age: float
    """Seconds since the last heartbeat by the wall clock: to be shown, never to decide by."""

    @property
    def released(self) -> bool:
        """Whether the owner has given the run up."""
        return self.beat == RELEASED

    @property
    def gone(self) -> bool:
        """Whether the owner is known to be dead: a process of this very machine that does not run any more."""
        return self.facts.get("machine") == machine() and _born(self.facts.get("pid", 0)) != self.facts.get("born")

    @property
    def owner(self) -> str:
        """The process and its machine, for messages."""
        return f"process {self.facts.get('pid', '?')} on {self.facts.get('host', 'an unknown host')}"


def newest(folder: Path) -> Holder | None:
    """The highest generation of a run's lock, if any."""
    numbers = [int(path.suffix[1:]) for path in folder.glob("lock.*") if path.suffix[1:].isdigit()]
    if not numbers:
        return None
    path = folder / f"lock.{max(numbers)}"
    try:
        # opened, not only looked at: a network file system checks for newer content when a file is opened
        with path.open(encoding="utf-8") as stream:
            beat, _, rest = stream.read().partition("\n")
            age = time.time() - os.fstat(stream.fileno()).st_mtime
        facts = json.loads(rest)
    except (OSError, ValueError):  # just created and not yet written, or just removed
        beat, facts, age = "", {}, 0.0
    return Holder(max(numbers), beat.strip(), facts if isinstance(facts, dict) else {}, age)


@dataclass
class Watch:
    """Looks at locks again and again, and knows for how long each count of heartbeats has stood still."""

    stale: float = field(default_factory=lambda: STALE)
    clock: Callable[[], float] = time.monotonic
    _seen: dict[Any, tuple[Any, float, float]] = field(default_factory=dict)

    def still(self, key: Any, token: Any) -> bool:
        """Whether `token` has not changed for `stale` seconds of looking.

        A look adds at most a sixth of that: a watcher that was itself stopped has seen nothing in the meantime.
        """
        now = self.clock()
        before, waited, last = self._seen.get(key, (None, 0.0, now))
        waited = waited + min(now - last, self.stale / 6) if before == token else 0.0
        self._seen[key] = (token, waited, now)
        return waited >= self.stale

    def forget(self, key: Any) -> None:
        """Start over with a key."""
        self._seen.pop(key, None)

    def free(self, folder: Path) -> int | None:
        """The generation after which the run may be taken now (0: it was never held), None while it is held."""
        holder = newest(folder)
        if holder is None:
            return 0
        if holder.released or holder.gone or self.still(folder, (holder.number, holder.beat)):
            return holder.number
        return None


class Lock:
    """A run that this process holds."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.path = folder / f"lock.{number}"
        self.beats = 0

    @classmethod
    def take(cls, folder: Path, after: int) -> Lock | None:
        """The generation that follows `after`, or None where another process was first."""
        lock = cls(folder, after + 1)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(lock.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return None
        facts = {"host": socket.gethostname(), "machine": machine(), "pid": os.getpid(), "born": _born(os.getpid())}
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(f"{0:<{_WIDTH}}\n{json.dumps(facts)}\n")
        except OSError:  # a full disk: a lock without an owner would be waited for
            lock.path.unlink(missing_ok=True)
            raise
        return lock

    def beat(self) -> bool:
        """Count one heartbeat; False if the run was taken over or its folder is gone."""
        self.beats += 1
        return self._mark(str(self.beats))

    def release(self) -> None:
        """Give the run up undone; the next one need not wait."""
        self._mark(RELEASED)

    def done(self) -> None:
        """Remove every generation: the record is there, and whoever takes a lock looks for it first."""
        for path in self.folder.glob("lock.*"):
            path.unlink(missing_ok=True)

    def _mark(self, text: str) -> bool:
        if (self.folder / f"lock.{self.number + 1}").exists():
            return False
        try:
            with self.path.open("r+", encoding="utf-8") as stream:
                stream.write(f"{text:<{_WIDTH}}")
        except FileNotFoundError:
            return False
        except OSError:  # a full or absent disk: the count stands still and others take the run over
            return True
        return True


def end_process() -> None:
    """Ends this process at once: what it does is another's by now, so that nothing of it may be written any more."""
    os._exit(LOST)


class Heartbeat(threading.Thread):
    """A thread that beats for a process and for the run it holds, until either is lost: then it calls `on_lost`.

    `counter` is shared with a watching parent. A main thread that has used no processor time for `hung`
    seconds (waiting for a lock, a dead child, a file server) gets no heartbeat any more, so that it is replaced.
    """

    def __init__(self, counter: Any = None, *, watch_parent: bool = False, beat: float | None = None,
                 hung: float = 1800, on_lost: Callable[[], None] = end_process) -> None:
        super().__init__(daemon=True, name="heartbeat")
        self.counter = counter
        self.on_lost = on_lost
        self.lock: Lock | None = None
        self.busy = False
        self._beat = BEAT if beat is None else beat
        self._parent = os.getppid() if watch_parent else None
        self._used, self._since, self._hung = 0.0, time.monotonic(), hung
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(self._beat):
            if self._parent is not None and os.getppid() != self._parent:
                self.on_lost()
                return
            if not self._moving():
                continue
            if self.counter is not None:
                self.counter.value += 1
            lock = self.lock
            if lock is not None and not lock.beat() and self.lock is lock:
                self.on_lost()
                return

    def stop(self) -> None:
        self._end.set()
        self.join()

    def _moving(self) -> bool:
        used, now = _main_thread_seconds(), time.monotonic()
        if not self.busy or used is None or used - self._used > 1e-4:
            self._used, self._since = used or 0.0, now
        return now - self._since < self._hung


def _main_thread_seconds() -> float | None:
    """Processor time of the main thread, where the system measures it."""
    identity = threading.main_thread().ident
    if identity is None or not hasattr(time, "pthread_getcpuclockid"):
        return None
    with contextlib.suppress(OSError):
        return time.clock_gettime(time.pthread_getcpuclockid(identity))
    return None


@cache
def machine() -> str:
    """A name of this machine, its boot and its process namespace, different from all others; empty where unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _born(pid: int) -> str | None:
    """When a process of this machine started, in its own unit; None if there is none, or where that is unknown."""
    try:
        # the second field, the name, may hold spaces and brackets: count from the last bracket
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    except (OSError, ValueError, IndexError):
        return None
