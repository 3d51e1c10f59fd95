"""Headers within a parquet file that are damaged: one of a page ends the pages, one at the file's end is an error."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from benchmark.datasets import parquet as reader
from benchmark.datasets.parquet_pages import Chunk, Group, Page, groups, pages
from benchmark.utils.errors import UserError

SOUND = bytes.fromhex("15 00 15 c8 01 15 00 2c 15 06 00 00")
"""A page of data of 100 bytes and 3 rows, in Thrift's compact protocol, that packs to none."""
ROWS = 10


def shard(path: Path, *, rows: int = ROWS) -> Path:
    raw = io.BytesIO()
    Image.new("L", (2, 2)).save(raw, "PNG")
    images = [{"bytes": raw.getvalue(), "path": f"{i}.png"} for i in range(rows)]
    pq.write_table(pa.table({"image": images, "label": [i % 2 for i in range(rows)]}), path, row_group_size=4)
    return path


@pytest.mark.parametrize("damaged", [
    pytest.param("15 00 18 01 78 15 00 2c 15 06 00 00", id="a size that is a text"),
    pytest.param("15 00 17 0000000000000440 15 00 2c 15 06 00 00", id="a size that is a fraction"),
    pytest.param("15 00 15 c8 01 17 0000000000000440 2c 15 06 00 00", id="packed bytes that are a fraction"),
    pytest.param("15 00 15 c8 01 15 00 2c 17 0000000000000440 00 00", id="rows that are a fraction"),
    pytest.param("15 00 15 c8 01 15 01 2c 15 06 00 00", id="fewer packed bytes than none"),
    pytest.param("15 00 17 00", id="a fraction that the file ends in"),
    pytest.param("19 f1 ffffffffffffffff7f 00", id="more truths than can be counted"),
    pytest.param("00", id="nothing")])
def test_pages_end_at_a_damaged_header(tmp_path: Path, damaged: str) -> None:
    content = SOUND + bytes.fromhex(damaged)
    (tmp_path / "a").write_bytes(content)
    assert list(pages(tmp_path / "a", Chunk(0, len(content)))) == [Page(100, 3, False)]


def test_groups_are_those_that_pyarrow_tells_of(tmp_path: Path) -> None:
    file = shard(tmp_path / "a.parquet")
    expected = []
    for group in map((facts := pq.ParquetFile(file).metadata).row_group, range(facts.num_row_groups)):
        parts = [group.column(i) for i in range(group.num_columns)]
        starts = [part.dictionary_page_offset if part.has_dictionary_page else part.data_page_offset for part in parts]
        expected.append(Group(group.num_rows, tuple(
            Chunk(start, start + part.total_compressed_size) for start, part in zip(starts, parts))))
    assert [group.rows for group in expected] == [4, 4, 2]
    assert groups(file) == tuple(expected)


def test_a_damaged_end_of_a_file_is_one_line_for_the_user(tmp_path: Path) -> None:
    """Whichever byte is another: groups or a UserError."""
    sound = shard(tmp_path / "a.parquet").read_bytes()
    refused = []
    for at in range(len(sound) - 8 - int.from_bytes(sound[-8:-4], "little"), len(sound) - 4):
        (tmp_path / "a.parquet").write_bytes(sound[:at] + bytes([sound[at] ^ 0x1c]) + sound[at + 1:])
        try:
            groups(tmp_path / "a.parquet")
        except UserError as error:
            refused.append(str(error))
    assert set(refused) == {f"{tmp_path}/a.parquet cannot be read as a parquet file (its list of columns is damaged); "
                            "fetch it again"}
    assert len(refused) > 10


def test_a_column_whose_type_is_damaged_does_not_end_the_process(tmp_path: Path) -> None:
    """Texts whose type is changed to whole numbers: pyarrow's own description of such a column aborts."""
    file = shard(tmp_path / "a.parquet")
    sound = file.read_bytes()
    assert sound.count(b"\x15\x0c\x25\x02\x18\x04path") == 1
    file.write_bytes(sound.replace(b"\x15\x0c\x25\x02\x18\x04path", b"\x15\x04\x25\x02\x18\x04path"))
    with contextlib.suppress(UserError):  # of pyarrow 15, which opens no such file
        assert reader._values(file, "label", "labels") == [i % 2 for i in range(ROWS)]
