"""The pages of a parquet file by their headers: how large each becomes in memory, before any is unpacked.

Read here and not by pyarrow, which tells nothing of pages, and whose `metadata.row_group(0).column(0)` ends the whole
process where a damaged file gives a column what its type cannot have (26.0: an exception that nobody catches).
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmark.utils.errors import UserError

LARGEST = 1 << 29
"""Bytes of a page that is read. Most writers make pages of 1 MB; a few kilobytes can unpack to 2 GB."""
_DICTIONARY = 2
_DAMAGES = (LookupError, ValueError, TypeError, AttributeError, RecursionError, struct.error)
"""What reading damaged bytes ends in."""


class Chunk(NamedTuple):
    """Where the pages of one column in one group of rows lie."""

    start: int
    end: int


class Group(NamedTuple):
    """A group of rows; its chunks are in the order of the schema's columns."""

    rows: int
    chunks: tuple[Chunk, ...]


class Page(NamedTuple):
    """What the header of a page says."""

    size: int
    """In memory."""
    rows: int
    dictionary: bool


def groups(file: Path | str) -> tuple[Group, ...]:
    """The groups of rows that the end of a file lists."""
    with _mapped(file) as content:
        try:
            footer, _ = _struct(content, len(content) - 8 - int.from_bytes(content[-8:-4], "little"))
            return tuple(Group(_number(one[3]), tuple(_chunk(part[3]) for part in one[1])) for one in footer[4])
        except _DAMAGES:
            raise UserError(f"{file} cannot be read as a parquet file (its list of columns is damaged); fetch it "
                            "again") from None


def _chunk(facts: dict[int, Any]) -> Chunk:
    start, dictionary = _number(facts[9]), facts.get(11)
    if dictionary is not None and 0 < _number(dictionary) < start:  # some writers say 0 where there is none
        start = dictionary
    return Chunk(start, start + _number(facts[7]))


def _number(value: Any) -> int:
    """The value, where it is a number of bytes or rows."""
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no number of bytes or rows")
    return value


def pages(file: Path | str, chunk: Chunk) -> Iterator[Page]:
    """The pages of a column in a group of rows; they end where a header cannot be read, as for whoever reads them."""
    at, end = chunk
    with _mapped(file) as content:
        while at < end:
            try:
                header, at = _struct(content, at)
                size, packed = _number(header[2]), _number(header[3])
                rows = _number((header.get(5) or header.get(8) or {}).get(1, 0))
                page = Page(size, rows, header[1] == _DICTIONARY)
            except _DAMAGES:
                return
            yield page
            at += packed


@contextlib.contextmanager
def _mapped(file: Path | str) -> Iterator[mmap.mmap]:
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


def _struct(content: Any, at: int) -> tuple[dict[int, Any], int]:
    """A structure of Thrift's compact protocol as {field: value}, and where it ends.

    Texts, and lists of anything but structures, are of no use here: they are None.
    """
    fields: dict[int, Any] = {}
    field = 0
    while (head := content[at]) != 0:
        at += 1
        if head >> 4:
            field += head >> 4
        else:
            field, at = _integer(content, at)
        fields[field], at = _value(content, at, head & 15)
    return fields, at + 1


def _value(content: Any, at: int, kind: int) -> tuple[Any, int]:
    if kind in (1, 2):
        return kind == 1, at
    if kind == 3:
        return content[at], at + 1
    if kind in (4, 5, 6):
        return _integer(content, at)
    if kind == 7:
        return struct.unpack_from("<d", content, at)[0], at + 8
    if kind == 8:
        count, at = _plain(content, at)
        return None, at + count
    if kind in (9, 10):
        count, inner = content[at] >> 4, content[at] & 15
        at += 1
        if count == 15:
            count, at = _plain(content, at)
        if inner in (1, 2):  # a byte each; they may be said to be more than can be counted one by one
            return None, at + count
        values = []
        for _ in range(count):
            value, at = _value(content, at, inner)
            if inner == 12:
                values.append(value)
        return values if inner == 12 else None, at
    if kind == 12:
        return _struct(content, at)
    raise ValueError(f"no header has a value of kind {kind}")


def _plain(content: Any, at: int) -> tuple[int, int]:
    """A variable-length integer without a sign."""
    value = shift = 0
    while content[at] & 128:
        value |= (content[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
    return value | content[at] << shift, at + 1


def _integer(content: Any, at: int) -> tuple[int, int]:
    value, at = _plain(content, at)
    return value >> 1 ^ -(value & 1), at
