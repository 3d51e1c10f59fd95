"""Files that survive kill -9: written in one step, or piece by piece with a journal of the pieces' hashes."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmark.utils import leftovers
from benchmark.utils.errors import NO_ROOM, NoRoom, UserError

_BLOCK = 1 << 24


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns a full disk, or one that cannot be written, into one line that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise NoRoom(f"the disk is full while writing {path}: free some space or give another folder with "
                         "--work DIR, then run again; what is already there is kept") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UserError(f"cannot write {path}: {error.strerror}; give another folder with --work DIR") from None
        raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Another name to write to, which becomes `path` once all is written: a file is there whole or not at all."""
    part = leftovers.unfinished(path)
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, of any size."""
    content = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            content.update(block)
    return content.hexdigest()


@contextmanager
def alone(path: Path, what: str = "") -> Iterator[None]:
    """Holds a lock file, so that one process makes a thing at a time; one that must wait says `what` for on stderr."""
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(timeout=1 if what else -1)
    except Timeout:
        print(f"waiting for another process, which makes {what}", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def flush(path: Path) -> None:
    """Make sure that what was written to a file or folder survives a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, facts: dict[str, Any]) -> None:
    """Writes a JSON file in one step."""
    with disk_errors(path), whole(path) as part:
        part.write_text(json.dumps(facts, indent=1) + "\n")


class GrowingFile:
    """Pieces appended to `path` one after the other, each with a line in `path.journal`.

    A piece counts once its journal line is whole. Opening an interrupted file checks the hash of every piece
    and cuts off whatever does not agree, so that work goes on after the last good piece.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pieces: list[dict[str, Any]] = []
        self._journal_path = path.with_name(path.name + ".journal")
        with disk_errors(path):
            self._recover()
            self._data = path.open("ab", buffering=0)
            self._journal = self._journal_path.open("ab", buffering=0)
        self._thread = ThreadPoolExecutor(1)
        self._flushed: Future[None] = self._thread.submit(lambda: None)

    @property
    def size(self) -> int:
        """Bytes in whole pieces."""
        return self.pieces[-1]["end"] if self.pieces else 0

    def append(self, piece: bytes | memoryview, sha256: str = "", **facts: Any) -> None:
        """Adds a piece and marks it done, together with JSON facts about it; `sha256`, where its hash is known."""
        line = {"end": self.size + len(piece), "sha256": sha256 or hashlib.sha256(piece).hexdigest(), **facts}
        with disk_errors(self.path):
            view = memoryview(piece)
            while view:
                view = view[self._data.write(view):]
            self._journal.write(json.dumps(line).encode() + b"\n")
        self.pieces.append(line)
        if self._flushed.done():
            # the disk writes while the next pieces are made, and has little left to do at the end
            self._flushed = self._thread.submit(_flush, self._data)

    def finish(self, path: Path) -> None:
        """Gives the whole file its final name and drops the journal."""
        with disk_errors(path):
            os.fsync(self._data.fileno())
            self.close()
            os.replace(self.path, path)
            self._journal_path.unlink()

    def keep(self, count: int) -> None:
        """Forgets every piece after the first `count`."""
        self.pieces = self.pieces[:count]
        self._data.truncate(self.size)
        self._journal.truncate(0)
        self._journal.write(b"".join(json.dumps(piece).encode() + b"\n" for piece in self.pieces))

    def close(self) -> None:
        self._thread.shutdown()
        self._data.close()
        self._journal.close()

    def _recover(self) -> None:
        self.path.touch()
        self._journal_path.touch()
        good = 0
        with self.path.open("rb") as data:
            for line in self._journal_path.read_bytes().splitlines(keepends=True):
                piece = _parse(line)
                if piece is None or _hash(data, piece["end"] - self.size) != piece["sha256"]:
                    break
                self.pieces.append(piece)
                good += len(line)
        os.truncate(self.path, self.size)
        os.truncate(self._journal_path, good)


def _flush(data: Any) -> None:
    with suppress(OSError):  # whoever finishes the file meets the same error
        os.fsync(data.fileno())


def _parse(line: bytes) -> dict[str, Any] | None:
    """A journal line, or None where the process died while writing it."""
    try:
        piece = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(piece, dict) or type(piece.get("end")) is not int or "sha256" not in piece:
        return None
    return piece if piece["end"] >= 0 else None


def _hash(data: Any, count: int) -> str | None:
    """SHA-256 of the next bytes of an open file, None where there are fewer."""
    digest = hashlib.sha256()
    while count > 0:
        block = data.read(min(count, _BLOCK))
        if not block:
            return None
        digest.update(block)
        count -= len(block)
    return digest.hexdigest()
