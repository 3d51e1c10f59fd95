"""The pages of a parquet file by their headers: how large each becomes in memory, before any is unpacked."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

LARGEST = 1 << 29
"""Bytes of a page that is read. Most writers make pages of 1 MB; a few kilobytes can unpack to 2 GB."""
_DICTIONARY = 2


class Page(NamedTuple):
    """What the header of a page says."""

    size: int
    """In memory."""
    rows: int
    dictionary: bool


def pages(file: Path | str, facts: Any) -> Iterator[Page]:
    """The pages of a column in a group of rows; they end where a header cannot be read, as for whoever reads them.

    `facts` are the column's in the metadata of the group (`pyarrow.parquet.ColumnChunkMetaData`).
    """
    starts = [facts.data_page_offset, *([facts.dictionary_page_offset] if facts.has_dictionary_page else [])]
    at = min(start for start in starts if start is not None)
    end = at + facts.total_compressed_size
    with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        while at < end:
            try:
                header, at = _struct(content, at)
                kind, size, packed = header[1], header[2], header[3]
                own = header.get(5) or header.get(8) or {}
                rows = own.get(1, 0)
                if not all(isinstance(number, int) for number in (size, packed, rows)) or packed < 0 or rows < 0:
                    return
            except (LookupError, ValueError, TypeError, AttributeError, RecursionError, struct.error):
                return
            yield Page(size, rows, kind == _DICTIONARY)
            at += packed


def _struct(content: Any, at: int) -> tuple[dict[int, Any], int]:
    """A structure of Thrift's compact protocol as {field: value}, and where it ends."""
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
    if kind == 8:  # texts are of no use here
        count, at = _plain(content, at)
        return None, at + count
    if kind in (9, 10):
        count, inner = content[at] >> 4, content[at] & 15
        at += 1
        if count == 15:
            count, at = _plain(content, at)
        if inner in (1, 2):  # a byte each; they may be said to be more than can be counted one by one
            return None, at + count
        for _ in range(count):
            _, at = _value(content, at, inner)
        return None, at
    if kind == 12:
        return _struct(content, at)
    raise ValueError(f"no header of a page has a value of kind {kind}")


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
