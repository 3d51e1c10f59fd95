"""Sharded datasets: parquet files of the hub's tools and WebDataset tar files, read where they lie."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from benchmark import cli, datasets
from benchmark.data.contents import contents
from benchmark.data.store import open_store
from benchmark.datasets import parquet as reader
from benchmark.overview.faults import examine
from benchmark.utils.errors import UserError
from tests.pictures import picture

NAMES = ["ant", "bee", "cat", "dog"]


def png(number: int) -> bytes:
    raw = io.BytesIO()
    picture(np.random.default_rng(number), 14 + number % 3, 20).save(raw, "PNG")
    return raw.getvalue()


def parquet(path: Path, labels: list[Any], first: int = 0, features: bool = True, rows: int = 3, **extra: Any) -> Path:
    """A shard as `datasets` writes it: images as structures, labels as numbers, their names in the metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": png(first + i), "path": f"{first + i}.png"} for i in range(len(labels))]
    table = pa.table({"image": images, "label": labels, **extra})
    if features:
        facts = {"image": {"_type": "Image"}, "label": {"names": NAMES, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": facts}})})
    pq.write_table(table, path, row_group_size=rows)
    return path


def tar(path: Path, samples: list[dict[str, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for number, sample in enumerate(samples):
            for ending, content in sample.items():
                head = tarfile.TarInfo(f"{number:04d}.{ending}")
                head.size = len(content)
                archive.addfile(head, io.BytesIO(content))
    return path


def pixels(raw: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(raw)).convert("RGB"))


def test_rows_of_several_shards_are_decoded_in_their_order(tmp_path: Path) -> None:
    parquet(tmp_path / "bugs" / "train-00000-of-00002.parquet", [1, 0, 1, 0, 1, 0, 1])
    parquet(tmp_path / "bugs" / "train-00001-of-00002.parquet", [2, 2, 3], first=7)
    index = datasets.load(f"parquet:{tmp_path / 'bugs'}", tmp_path)
    assert (index.name, index.classes, index.train_classes) == ("bugs", tuple(NAMES), ("ant", "bee"))
    assert index.labels.tolist() == [1, 0, 1, 0, 1, 0, 1, 2, 2, 3]
    assert index.paths[8] == "train-00001-of-00002.parquet#1"
    store = open_store(index, tmp_path / "cache", jobs=1, progress=False)
    for i in range(len(index)):
        np.testing.assert_array_equal(store.image(i), pixels(png(i)))
    assert examine(index, jobs=1).problems() == [
        "single: 1 class has one image, which has nothing to be matched with: dog; add images or remove the class"]
    parquet(tmp_path / "bugs" / "train-00001-of-00002.parquet", [2, 2, 3], first=20)
    again = datasets.load(f"parquet:{tmp_path / 'bugs'}", tmp_path)
    store = open_store(again, tmp_path / "cache", jobs=1, progress=False)
    np.testing.assert_array_equal(store.image(7), pixels(png(20)))


def test_sides_by_the_names_of_shards(tmp_path: Path) -> None:
    parquet(tmp_path / "apart" / "train-0.parquet", [2, 3])
    parquet(tmp_path / "apart" / "test-0.parquet", [0, 1])
    apart = datasets.load(f"parquet:{tmp_path / 'apart'}", tmp_path)
    assert (apart.train_classes, apart.test_classes) == (("cat", "dog"), ("ant", "bee"))
    parquet(tmp_path / "same" / "train-0.parquet", [0, 1])
    parquet(tmp_path / "same" / "validation-0.parquet", [0, 1])
    same = datasets.load(f"parquet:{tmp_path / 'same'}", tmp_path)
    assert (same.train_classes, same.test_classes) == (("ant",), ("bee",))
    assert "as for classification" in same.note
    parquet(tmp_path / "mixed" / "train-0.parquet", [0, 1])
    parquet(tmp_path / "mixed" / "test-0.parquet", [1, 2])
    with pytest.raises(UserError, match="shards of both sides"):
        datasets.load(f"parquet:{tmp_path / 'mixed'}", tmp_path)


def test_sides_by_the_folders_of_shards(tmp_path: Path) -> None:
    tar(tmp_path / "web@home" / "train" / "0.tar", [{"jpg": png(i), "cls": b"%d" % i} for i in (2, 3)])
    tar(tmp_path / "web@home" / "Val" / "0.tar", [{"jpg": png(i), "cls": b"%d" % i} for i in (0, 1)])
    index = datasets.load(f"wds:{tmp_path / 'web@home'}", tmp_path)
    assert (index.name, index.train_classes, index.test_classes) == ("web-home", ("2", "3"), ("0", "1"))


@pytest.mark.parametrize(("columns", "classes"), [("", ("0", "1")), ("@label=kind", ("a", "b"))])
def test_a_folder_with_an_at_in_its_name_is_found_from_every_folder(columns: str, classes: tuple[str, ...],
                                                                    tmp_path: Path,
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [{"jpg": png(i), "cls": b"%d" % (i % 2), "kind": b"ab"[i // 2:][:1]} for i in range(4)]
    tar(tmp_path / "set@v2" / "0.tar", samples)
    monkeypatch.chdir(tmp_path)
    whole = datasets.located(f"wds:set@v2{columns}")
    assert whole == f"wds:{tmp_path / 'set@v2'}{columns}"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert datasets.load(whole, tmp_path).classes == classes
    assert datasets.located("wds:set@v2") == "wds:set@v2"


def test_labels_that_only_look_like_numbers(tmp_path: Path) -> None:
    texts = ["--5", "\u00b2", "7"]
    file = tar(tmp_path / "a.tar", [{"jpg": png(i), "cls": text.encode()} for i, text in enumerate(texts)])
    assert sorted(datasets.load(f"wds:{file}", tmp_path).classes) == sorted(texts)


def test_images_that_a_shard_names_by_path_are_part_of_the_contents(tmp_path: Path) -> None:
    (tmp_path / "img").mkdir()
    for i in range(4):
        (tmp_path / "img" / f"{i}.png").write_bytes(png(i))
    images = [{"path": f"img/{i}.png" if i < 4 else "../x.png", "bytes": None} for i in range(5)]
    kind = pa.struct([("path", pa.string()), ("bytes", pa.binary())])
    pq.write_table(pa.table({"image": pa.array(images, kind), "label": [0, 0, 1, 1, 1]}), tmp_path / "a.parquet")
    index = datasets.load(f"parquet:{tmp_path / 'a.parquet'}", tmp_path)
    np.testing.assert_array_equal(np.asarray(index.open(2).convert("RGB")), pixels(png(2)))
    with pytest.raises(UserError, match="no image"):
        index.open(4)
    before = contents(index, tmp_path / "cache")
    (tmp_path / "img" / "2.png").write_bytes(png(9))
    assert contents(datasets.load(f"parquet:{tmp_path / 'a.parquet'}", tmp_path), tmp_path / "cache") != before


def test_columns_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = parquet(tmp_path / "one.parquet", [0, 1, 0, 1], features=False, species=["x", "x", "y", "y"])
    assert datasets.load(f"parquet:{file}", tmp_path).classes == ("0", "1")
    assert datasets.load(f"parquet:{file}@label=species", tmp_path).classes == ("x", "y")
    words = ["datasets", "check", f"parquet:{file}", "--work", str(tmp_path / "work"), "--jobs", "1"]
    cli.main([*words, "--columns", "label=species,image=image"])
    assert "sound; 2 images of 1 class to" in capsys.readouterr().out
    for columns, why in (("label=other", "has no column 'other'; there are image, label, species"),
                         ("lable=species", "did you mean 'label'")):
        with pytest.raises(UserError, match=why):
            datasets.load(f"parquet:{file}@{columns}", tmp_path)
    with pytest.raises(SystemExit):  # `tune` takes the columns, and then wants the ladder
        cli.main(["tune", "--methods", "margin", "--dataset", f"parquet:{file}", "--columns", "label=species",
                  "--work", str(tmp_path / "work")])
    assert f"parquet:{file}@label=species has no ladder yet" in capsys.readouterr().err
    cli.main(["datasets", "show", "cub", "--work", str(tmp_path / "elsewhere")])
    assert f"is not in {tmp_path / 'elsewhere' / 'data'}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["datasets", "check", "cub", "--columns", "label=x"])
    assert "--columns is for parquet:PATH" in capsys.readouterr().err


@pytest.mark.parametrize(("labels", "row"), [([0, None, 1], 1), ([0, 1, -1], 2)])
def test_a_missing_label_is_named_by_shard_and_row(tmp_path: Path, labels: list[Any], row: int) -> None:
    file = parquet(tmp_path / "birds" / "a.parquet", labels)
    with pytest.raises(UserError, match=rf"{file}, row {row}: its label is"):
        datasets.load(f"parquet:{tmp_path / 'birds'}", tmp_path)


def test_images_that_are_none_are_named_by_shard_and_row(tmp_path: Path) -> None:
    images = [{"bytes": png(0), "path": None}, {"bytes": b"no image", "path": None}, {"bytes": None, "path": None},
              {"bytes": png(3)[:60], "path": None}]
    (tmp_path / "odd").mkdir()
    pq.write_table(pa.table({"image": images, "label": ["a", "a", "b", "b"]}), tmp_path / "odd" / "s.parquet")
    index = datasets.load(f"parquet:{tmp_path / 'odd'}", tmp_path)
    assert set(examine(index, jobs=1).unreadable) == {"s.parquet#1", "s.parquet#2", "s.parquet#3"}
    with pytest.raises(UserError, match=r"s\.parquet#1: cannot identify image file; put"):
        open_store(index, tmp_path / "cache", jobs=1, progress=False)
    (tmp_path / "odd" / "s.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(UserError, match="cannot be read as a parquet file"):
        datasets.load(f"parquet:{tmp_path / 'odd'}", tmp_path)


def test_tar_shards(tmp_path: Path) -> None:
    tar(tmp_path / "shop" / "000.tar", [{"jpg": png(0), "cls": b"10"}, {"cls": b"9\n", "jpg": png(1)}])
    tar(tmp_path / "shop" / "001.tar", [{"png": png(2), "json": b'{"label": 9}'},
                                        {"png": png(3), "json": b'{"cls": 10}'}])
    index = datasets.load(f"wds:{tmp_path / 'shop'}", tmp_path)
    assert (index.name, index.classes, index.labels.tolist()) == ("shop", ("9", "10"), [1, 0, 0, 1])
    assert index.paths[3] == "001.tar#1 0001.png"
    store = open_store(index, tmp_path / "cache", jobs=1, progress=False)
    for i in range(4):
        np.testing.assert_array_equal(store.image(i), pixels(png(i)))
    assert examine(index, jobs=1).sound


def test_tar_shards_from_a_mac_and_labels_from_windows(tmp_path: Path) -> None:
    """`._0000.jpg` beside 0000.jpg holds no image; a mark of UTF-8 is no part of a label."""
    with tarfile.open(tmp_path / "mac.tar", "w") as archive:
        for number in range(4):
            for name, content in ((f"._{number:04d}.jpg", b"\0\5\x16\7"), (f"{number:04d}.jpg", png(number)),
                                  (f"__MACOSX/._{number:04d}.cls", b"x"),
                                  (f"{number:04d}.cls", b"\xef\xbb\xbf%d\r\n" % (number + 8))):
                head = tarfile.TarInfo(name)
                head.size = len(content)
                archive.addfile(head, io.BytesIO(content))
    index = datasets.load(f"wds:{tmp_path / 'mac.tar'}", tmp_path)
    assert index.classes == ("8", "9", "10", "11"), "numbers, in their order"
    assert [np.array_equal(pixels(png(i)), np.asarray(index.open(i).convert("RGB"))) for i in range(4)] == [True] * 4


def test_a_linked_folder_of_shards_is_a_side_too(tmp_path: Path) -> None:
    tar(tmp_path / "disk" / "0.tar", [{"jpg": png(i), "cls": b"%d" % i} for i in range(2)])
    tar(tmp_path / "shop" / "test" / "0.tar", [{"jpg": png(i), "cls": b"%d" % i} for i in range(2, 4)])
    (tmp_path / "shop" / "train").symlink_to(tmp_path / "disk")
    index = datasets.load(f"wds:{tmp_path / 'shop'}", tmp_path)
    assert (index.train_classes, index.test_classes) == (("0", "1"), ("2", "3"))


@pytest.mark.parametrize(("sample", "columns", "why"), [
    ({"jpg": b"x"}, "", r"a\.tar, sample 1 \(0001\.jpg\): it has no label"),
    ({"jpg": b"x", "json": b'{"other": 1}'}, "", "sample 1 .* no label"),
    ({"jpg": b"x", "cls": b"-1"}, "", r"sample 1 \(0001\.jpg\): its label is -1, kept secret"),
    ({"jpg": b"x", "json": b'{"label": -1}'}, "", "sample 1 .* label is -1"),
    ({"a.jpg": b"x", "b.jpg": b"y", "cls": b"1"}, "", "second image of its sample"),
    ({"jpg": b"x", "cls": b"1"}, "@label=kind", "neither a .cls file nor 'kind' in a .json"),
])
def test_odd_samples_are_named(tmp_path: Path, sample: dict[str, bytes], columns: str, why: str) -> None:
    good = {"jpg": png(0), "cls": b"0", "json": b'{"kind": "k"}'}
    tar(tmp_path / "t" / "a.tar", [good, sample])
    with pytest.raises(UserError, match=why):
        datasets.load(f"wds:{tmp_path / 't'}{columns}", tmp_path)


def test_labels_of_a_key_and_shards_that_are_none(tmp_path: Path) -> None:
    tar(tmp_path / "t" / "a.tar", [{"jpg": png(i), "cls": b"0", "json": b'{"kind": "%d"}' % (i % 2)} for i in range(4)])
    assert datasets.load(f"wds:{tmp_path / 't'}@label=kind", tmp_path).labels.tolist() == [0, 1, 0, 1]
    whole = (tmp_path / "t" / "a.tar").read_bytes()
    for content, why in ((whole[:700], "has no image|cannot be read|no label"),
                         (b"x" * 3000, "cannot be read as a tar"), (b"", "has no image|cannot be read")):
        (tmp_path / "t" / "a.tar").write_bytes(content)
        with pytest.raises(UserError, match=why):
            datasets.load(f"wds:{tmp_path / 't'}", tmp_path)
    (tmp_path / "t" / "a.tar").rename(tmp_path / "t" / "a.tar.gz")
    with pytest.raises(UserError, match=r"has no \.tar file; unpack a\.tar\.gz first"):
        datasets.load(f"wds:{tmp_path / 't'}", tmp_path)
    with pytest.raises(UserError, match="there is no file or folder"):
        datasets.load(f"wds:{tmp_path / 'nowhere'}", tmp_path)


@pytest.mark.parametrize(("kind", "link", "pax", "why"), [
    (tarfile.LNKTYPE, "0000.png", {}, "is a link"), (tarfile.SYMTYPE, "/etc/passwd", {}, "is a link"),
    (tarfile.REGTYPE, "", {"GNU.sparse.map": "0,0", "GNU.sparse.size": "0"}, "has holes"),
    (tarfile.REGTYPE, "", {"size": "-512"}, "negative size"),
    (tarfile.REGTYPE, "", {"path": "a\nb.png"}, r"a\\nb\.png"),
])
def test_odd_members_of_tar_shards_are_named(tmp_path: Path, kind: bytes, link: str, pax: dict[str, str],
                                             why: str) -> None:
    """Links would be left out in silence, holes read as pixels, and a negative size be followed backwards for ever."""
    path = tar(tmp_path / "a.tar", [{"png": png(i), "cls": b"%d" % i} for i in range(2)])
    with tarfile.open(path, "a", format=tarfile.PAX_FORMAT) as archive:
        head = tarfile.TarInfo("0009.png")
        head.type, head.linkname, head.pax_headers = kind, link, pax
        archive.addfile(head)
    with pytest.raises(UserError, match=why) as refused:
        datasets.load(f"wds:{path}", tmp_path)
    assert "\n" not in str(refused.value)


def test_a_long_label_that_is_named_often_is_kept_once(tmp_path: Path) -> None:
    """A kilobyte on disk, 20 GB if every row had its own."""
    rows = 20_000
    labels = pa.DictionaryArray.from_arrays(pa.array([0] * (rows - 2) + [1] * 2, pa.int32()), ["x" * 10**6, "b"])
    images = pa.array([{"bytes": b"", "path": None}] * rows)
    pq.write_table(pa.table({"image": images, "label": labels}), tmp_path / "a.parquet", store_schema=False)
    index = datasets.load(f"parquet:{tmp_path}/a.parquet", tmp_path)
    assert np.bincount(index.labels).tolist() == [2, rows - 2]


def repeated(path: Path, rows: int, **options: Any) -> Path:
    """A shard of a few kilobytes that names one image of a megabyte in each row, and one path."""
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    image = pa.array([{"bytes": png(0) + bytes(10**6), "path": "x" * 10**5}] * rows, kind)
    pq.write_table(pa.table({"image": image, "label": list(range(rows))}), path, compression="zstd", **options)
    return path


def test_of_an_image_that_is_repeated_one_is_in_memory(tmp_path: Path) -> None:
    file = repeated(tmp_path / "a.parquet", 300, dictionary_pagesize_limit=2**28)
    assert file.stat().st_size < 10**5
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        index = datasets.load(f"parquet:{file}", tmp_path)
        for i in (0, 299, 7, 7, 250):
            np.testing.assert_array_equal(np.asarray(index.open(i).convert("RGB")), pixels(png(0)))
        assert pool.max_memory() < 3 * 10**7, "300 MB if all were"
    finally:
        for opened in (reader._opened, reader._groups, reader._starts, reader._group):
            opened.cache_clear()  # what they hold lies in this pool
        pa.set_memory_pool(before)


def test_pages_are_those_that_the_shard_says(tmp_path: Path) -> None:
    """Their sizes and their headers' sum up to what the writer counted, and a page that is too large is named."""
    for number, options in enumerate([{"use_dictionary": False, "write_batch_size": 4},
                                      {"data_page_version": "2.0", "dictionary_pagesize_limit": 2**28},
                                      {"write_statistics": True, "write_page_index": True, "row_group_size": 7}]):
        file = repeated(tmp_path / f"{number}.parquet", 20, **options)
        facts = pq.ParquetFile(file).metadata
        assert [group.rows for group in reader.groups(file)] == ([20] if number < 2 else [7, 7, 6])
        for group, own in enumerate(reader.groups(file)):
            for column, chunk in zip(map(facts.row_group(group).column, range(3)), own.chunks, strict=True):
                found = list(reader.pages(file, chunk))
                headers = column.total_uncompressed_size - sum(page.size for page in found)
                assert 0 < headers < 300 * len(found)
                assert sum(page.rows for page in found) == facts.row_group(group).num_rows
                assert [page.dictionary for page in found].count(True) == column.has_dictionary_page


def test_a_page_that_is_too_large_is_named_by_shard_and_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmark.datasets.parquet.LARGEST", 6 * 10**6)
    groups = {"compression": "zstd", "row_group_size": 10, "use_dictionary": False, "write_batch_size": 1024}
    sizes = [10**3] * 10 + [10**6] * 10
    images = [{"bytes": png(i) + bytes(size)} for i, size in enumerate(sizes)]
    pq.write_table(pa.table({"image": images, "label": list(range(20))}), tmp_path / "a.parquet", **groups)
    index = datasets.load(f"parquet:{tmp_path / 'a.parquet'}", tmp_path)
    np.testing.assert_array_equal(np.asarray(index.open(9).convert("RGB")), pixels(png(9)))
    with pytest.raises(UserError, match=rf"{tmp_path}/a\.parquet, row 10: the page of 'image\.bytes' that begins there "
                                        "has 10 MB, more than the 6 MB"):
        index.open(12)
    with pytest.raises(UserError, match=r"cannot read image .*row 10: the page") as refused:
        open_store(index, tmp_path / "cache", jobs=1, progress=False)
    assert "\n" not in str(refused.value)
    large = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), ["x" * 10**7, "b"])
    pq.write_table(pa.table({"image": images[:2], "label": large}), tmp_path / "b.parquet", store_schema=False,
                   dictionary_pagesize_limit=2**28)
    with pytest.raises(UserError, match=r"b\.parquet, row 0: the dictionary of 'label'"):
        datasets.load(f"parquet:{tmp_path / 'b.parquet'}", tmp_path)


@pytest.mark.parametrize("facts", [b"[" * 100_000, b'{"info": {"features": {"label": {"names": 5}}}}'])
def test_odd_metadata_of_a_shard_is_no_metadata(tmp_path: Path, facts: bytes) -> None:
    table = pa.table({"image": [{"bytes": b"", "path": 5}] * 2, "label": [0, 1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": facts}), tmp_path / "a.parquet")
    assert datasets.load(f"parquet:{tmp_path}/a.parquet", tmp_path).classes == ("0", "1")


def test_names_of_classes_can_be_written(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", [0, 1], features=False)
    facts = {"label": {"names": ["\ud800", "b"], "_type": "ClassLabel"}}
    table = pq.read_table(path).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": facts}})})
    pq.write_table(table, path)
    with pytest.raises(UserError, match="not UTF-8"):
        datasets.load(f"parquet:{path}", tmp_path)
