"""Variables of a MATLAB 5 file (`save -v6` and `-v7`), every length held against the bytes that are there.

scipy's reader is compiled and trusts the lengths in a file: one of a damaged file can end the whole process. What
annotation files have is read here: numbers, text, cells and structures. The format is MathWorks' "MAT-File Level 5".
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
"""miINT8 ... miUINT64: the type of stored numbers."""
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
MATRIX, COMPRESSED = 14, 15
CELL, STRUCT, CHAR, NUMERIC = 1, 2, 4, range(6, 16)
"""mxCELL_CLASS and so on: what a matrix is."""
LARGEST = 1 << 30
"""Bytes of a variable; the largest official annotation file has 16 MB."""
DEEPEST = 16


def load(path: Path, wanted: set[str]) -> dict[str, Any]:
    """The wanted variables of a file, singleton dimensions squeezed out; a ValueError where it is damaged.

    A structure is an array with a field of objects for each of its own, cells are an array of objects, text is `str`.
    """
    raw = path.read_bytes()
    if raw[:8] == b"\x89HDF\r\n\x1a\n" or raw[:10] == b"MATLAB 7.3":
        raise ValueError("it is of MATLAB 7.3, the official file is of an earlier format")
    if len(raw) < 128 or raw[126:128] not in (b"IM", b"MI"):
        raise ValueError("its header is not that of MATLAB 5")
    order = "<" if raw[126:128] == b"IM" else ">"
    found: dict[str, Any] = {}
    at = 128
    while at < len(raw) and len(found) < len(wanted):
        reader = _Reader(raw, order)
        kind, start, end, at = reader.element(at, len(raw))
        if kind == COMPRESSED:
            reader = _Reader(_inflated(raw[start:end]), order)
            kind, start, end, _ = reader.element(0, len(reader.raw))
        if kind == MATRIX and start < end:
            _, _, name, _ = reader.head(start, end)
            if name in wanted:
                found[name] = reader.matrix(start, end)
    return found


def _inflated(packed: bytes) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(packed, LARGEST)
    except zlib.error as error:
        raise ValueError(f"its compressed bytes are damaged: {error}") from None
    if not stream.eof:
        raise ValueError("its compressed bytes are cut, or too many")
    return plain


class _Reader:
    """Elements of a run of bytes: a tag, which tells kind and length, and what it stands before."""

    def __init__(self, raw: bytes, order: str) -> None:
        self.raw, self.order = raw, order
        self.words = struct.Struct(f"{order}II")

    def element(self, at: int, limit: int) -> tuple[int, int, int, int]:
        """(kind, where its content begins, where that ends, where the next element begins)."""
        if at + 8 > limit:
            raise ValueError("it is cut")
        kind, count = self.words.unpack_from(self.raw, at)
        if kind >> 16:  # up to four bytes stand within the tag
            kind, count = kind & 0xFFFF, kind >> 16
            if count > 4:
                raise ValueError("a tag has a wrong length")
            return kind, at + 4, at + 4 + count, at + 8
        start, end = at + 8, at + 8 + count
        if end > limit:
            raise ValueError("a length reaches beyond its end")
        return kind, start, end, end if kind == COMPRESSED else min(start + -(-count // 8) * 8, max(limit, end))

    def head(self, start: int, end: int) -> tuple[int, tuple[int, ...], str, int]:
        """(class, dimensions, name, where the content begins) of a matrix."""
        _, first, last, at = self.element(start, end)
        if last - first != 8:
            raise ValueError("the flags of an array are damaged")
        flags = self.words.unpack_from(self.raw, first)[0]
        _, first, last, at = self.element(at, end)
        if (last - first) % 4 or not 8 <= last - first <= 128:
            raise ValueError("the dimensions of an array are damaged")
        sizes = struct.unpack_from(f"{self.order}{(last - first) // 4}i", self.raw, first)
        if min(sizes) < 0:
            raise ValueError("the dimensions of an array are damaged")
        _, first, last, at = self.element(at, end)
        if flags & 0x800:
            raise ValueError("complex numbers are not read")
        return flags & 0xFF, sizes, self.raw[first:last].decode("latin-1"), at

    def matrix(self, start: int, end: int, depth: int = 0) -> Any:
        """Numbers, text, cells or a structure, squeezed."""
        if start == end:
            return np.zeros(0)
        if depth > DEEPEST:
            raise ValueError("its cells are nested too deeply")
        kind, sizes, _, at = self.head(start, end)
        count = math.prod(sizes)
        if kind in NUMERIC:
            return self._numbers(at, end, sizes, count)
        if kind == CHAR:
            return self._text(at, end, sizes, count)
        if kind not in (CELL, STRUCT):
            raise ValueError(f"an array is of class {kind}, which is not read")
        fields = [""]
        if kind == STRUCT:
            fields, at = self._fields(at, end)
        if count * len(fields) * 8 > end - at:  # each has a tag
            raise ValueError("it has fewer cells than it says")
        values = np.empty((count, len(fields)), object)
        for i in range(count):
            for j in range(len(fields)):
                inner, first, last, at = self.element(at, end)
                if inner != MATRIX:
                    raise ValueError("a cell is no array")
                values[i, j] = self.matrix(first, last, depth + 1)
        if kind == CELL:
            return values[:, 0].reshape(sizes, order="F").squeeze()
        table = np.empty(count, [(name, object) for name in fields])
        for j, name in enumerate(fields):
            table[name] = values[:, j]
        return table.reshape(sizes, order="F").squeeze()

    def _numbers(self, at: int, end: int, sizes: tuple[int, ...], count: int) -> Any:
        kind, first, last, _ = self.element(at, end)
        if kind not in NUMBERS or (last - first) != count * np.dtype(NUMBERS[kind]).itemsize:
            raise ValueError("an array has another number of values than it says")
        values = np.frombuffer(self.raw, f"{self.order}{NUMBERS[kind]}", count, first)
        return values[0] if count == 1 else values.reshape(sizes, order="F").squeeze()

    def _text(self, at: int, end: int, sizes: tuple[int, ...], count: int) -> Any:
        kind, first, last, _ = self.element(at, end) if count else (2, at, at, at)
        if kind not in TEXT:
            raise ValueError("a text is of an unknown kind")
        coding = TEXT[kind] + ("-le" if self.order == "<" else "-be") * (kind in (4, 17, 18))
        text = self.raw[first:last].decode(coding)  # a UnicodeDecodeError is a ValueError
        if len(text) != count:
            raise ValueError("a text has another length than it says")
        rows, columns = sizes[0], count // sizes[0] if sizes[0] else 0
        lines = [text[row::rows] for row in range(rows)] if columns else [""]
        return lines[0].rstrip(" ") if len(lines) == 1 else np.array(lines, object)

    def _fields(self, at: int, end: int) -> tuple[list[str], int]:
        _, first, last, at = self.element(at, end)
        length = int.from_bytes(self.raw[first:last], "little" if self.order == "<" else "big")
        _, first, last, at = self.element(at, end)
        if not 0 < length <= 64 or (last - first) % length:
            raise ValueError("the fields of a structure are damaged")
        parts = [self.raw[i:i + length].split(b"\0")[0].decode("latin-1") for i in range(first, last, length)]
        if not parts or "" in parts or len(set(parts)) < len(parts):
            raise ValueError("the fields of a structure are damaged")
        return parts, at
