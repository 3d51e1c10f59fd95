"""The headers of pages of a parquet file, damaged ones too: one that cannot be read ends the pages."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmark.datasets.parquet_pages import Page, pages

SOUND = bytes.fromhex("15 00 15 c8 01 15 00 2c 15 06 00 00")
"""A page of data of 100 bytes and 3 rows, by the letters of Thrift's compact protocol, that packs to none."""


def read(path: Path, content: bytes) -> list[Page]:
    path.write_bytes(content)
    return list(pages(path, SimpleNamespace(data_page_offset=0, has_dictionary_page=False,
                                            total_compressed_size=len(content))))


@pytest.mark.parametrize("damaged", [
    pytest.param("15 00 18 01 78 15 00 2c 15 06 00 00", id="a size that is a text"),
    pytest.param("15 00 17 0000000000000440 15 00 2c 15 06 00 00", id="a size that is a fraction"),
    pytest.param("15 00 15 c8 01 17 0000000000000440 2c 15 06 00 00", id="packed bytes that are a fraction"),
    pytest.param("15 00 15 c8 01 15 00 2c 17 0000000000000440 00 00", id="rows that are a fraction"),
    pytest.param("15 00 17 00", id="a fraction that the file ends in"),
    pytest.param("19 f1 ffffffffffffffff7f 00", id="more truths than can be counted"),
    pytest.param("00", id="nothing")])
def test_pages_end_at_a_damaged_header(tmp_path: Path, damaged: str) -> None:
    assert read(tmp_path / "a", SOUND + bytes.fromhex(damaged)) == [Page(100, 3, False)]
