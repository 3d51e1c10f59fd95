"""Files of submitted embeddings: every format, every list of ids, and what is wrong with them in one line."""

from __future__ import annotations

import contextlib
import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from benchmark.submissions import reading
from benchmark.utils.errors import UserError

IDS = [f"c{c}/{i}.png" for c in (5, 4, 6) for i in range(4)]
X = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float32)


def test_every_format_reads_the_same(tmp_path):
    ids, x = IDS, X
    np.savez(tmp_path / "a.npz", embeddings=x, ids=ids)
    np.save(tmp_path / "b.npy", x)
    (tmp_path / "b.txt").write_text("".join(f"./{name}\tc4\t0\n" for name in ids))
    save_file({"embeddings": torch.from_numpy(x)}, tmp_path / "c.safetensors", metadata={"ids": json.dumps(ids)})
    save_file({"embeddings": torch.from_numpy(x)}, tmp_path / "d.safetensors")
    (tmp_path / "ids.lst").write_text("\n".join(ids))
    read = [reading.read(tmp_path / name) for name in ("a.npz", "b.npy", "c.safetensors")]
    read.append(reading.read(tmp_path / "d.safetensors", tmp_path / "ids.lst"))
    for sent in read:
        assert sent.ids == tuple(ids)
        np.testing.assert_array_equal(sent.embeddings, x)
    assert len({sent.hash for sent in read}) == 1


@pytest.mark.parametrize("wide", [True, False])
def test_parquet(tmp_path, wide):
    pytest.importorskip("pyarrow")
    ids, x = IDS, X
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(6)]) if wide else pd.DataFrame({"embedding": list(x)})
    frame.insert(0, "image", ids)
    frame.to_parquet(tmp_path / "a.parquet")
    sent = reading.read(tmp_path / "a.parquet")
    assert sent.ids == tuple(ids)
    np.testing.assert_array_equal(sent.embeddings, x)


def test_parquet_without_its_library_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for library in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        reading.read(tmp_path / "a.parquet")


@pytest.mark.parametrize(("name", "content", "message"), [
    ("mine.npz", b"no archive", "cannot read"),
    ("mine.npy", b"", "cannot read"),
    ("mine.safetensors", b"12345678{", "cannot read"),
    ("mine.csv", b"1,2", "none of .npz"),
])
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        reading.read(tmp_path / name)


def test_ids_of_bytes_that_are_no_text(tmp_path):
    np.savez(tmp_path / "mine.npz", embeddings=np.eye(2), ids=np.array(["café.jpg".encode("latin-1"), b"b.jpg"]))
    with pytest.raises(UserError, match=r"mine\.npz: the id b'caf.xe9\.jpg' is not UTF-8"):
        reading.read(tmp_path / "mine.npz")


def test_equal_embeddings_are_noted():
    x = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    (note,) = reading.check(x, list("abcd"))
    assert note.startswith("only 3 of 4 embeddings are different")


@pytest.mark.parametrize("change", [lambda raw: raw[:len(raw) // 2], lambda raw: raw[:-30],
                                    lambda raw: raw[:200] + bytes(40) + raw[240:]])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_that_is_cut_or_changed(tmp_path, save, change):
    save(tmp_path / "a.npz", embeddings=X, ids=IDS)
    (tmp_path / "a.npz").write_bytes(change((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(UserError, match="cannot read") as error:
        reading.read(tmp_path / "a.npz")
    assert "\n" not in str(error.value)


def test_bytes_changed_at_random_are_the_users_mistake_at_most(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", embeddings=X, ids=IDS)
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "z.txt").write_text("\n".join(IDS))
    save_file({"embeddings": torch.from_numpy(X)}, tmp_path / "a.safetensors", metadata={"ids": json.dumps(IDS)})
    random = np.random.default_rng(0)
    for name in ("a.npz", "a.npy", "a.safetensors"):
        whole = (tmp_path / name).read_bytes()
        for _ in range(150):
            raw = bytearray(whole)
            for at in random.integers(len(raw), size=2):
                raw[at] = random.integers(256)
            (tmp_path / f"z.{name[2:]}").write_bytes(raw)
            with contextlib.suppress(UserError):
                assert len(reading.read(tmp_path / f"z.{name[2:]}").ids) == 12


@pytest.mark.parametrize("ids", ["5", '"c4/0.png"', '{"a": 1}', "[1, 2]", "["])
def test_ids_in_metadata_are_a_list_of_strings(tmp_path, ids):
    save_file({"embeddings": torch.from_numpy(X)}, tmp_path / "a.safetensors", metadata={"ids": ids})
    with pytest.raises(UserError, match="cannot read"):
        reading.read(tmp_path / "a.safetensors")


def wide(**more):
    return pd.DataFrame({"image": IDS, **{f"d{i}": X[:, i] for i in range(6)}, **more})


@pytest.mark.parametrize(("frame", "column"), [
    (wide(score=range(12)), "score"), (wide(target=range(12), label=range(12)), "target"), (wide(d7=range(12)), "d7"),
    (wide(e0=range(12)), "e0"), (wide(split=["a"] * 12), "split"), (wide().drop(columns="d0"), "d1")])
def test_a_column_that_is_no_dimension_is_refused_by_name(tmp_path, frame, column):
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(UserError, match=f"column '{column}' is no dimension"):
        reading.read(tmp_path / "a.parquet")


def test_what_the_export_says_of_an_image_is_no_dimension(tmp_path):
    frame = wide(**{"class": ["a"] * 12, "label": range(12), "part": ["test"] * 12, "role": [""] * 12})
    frame[sorted(frame, reverse=True)].to_parquet(tmp_path / "a.parquet")
    np.testing.assert_array_equal(reading.read(tmp_path / "a.parquet").embeddings, X)
    plain = pd.DataFrame(X)
    plain["path"] = IDS
    plain.columns = plain.columns.map(str)
    plain.to_parquet(tmp_path / "b.parquet")
    np.testing.assert_array_equal(reading.read(tmp_path / "b.parquet").embeddings, X)


@pytest.mark.parametrize(("name", "write"), [
    ("ids.csv", lambda path: pd.DataFrame({"class": "a", "image": IDS}).to_csv(path, index=False)),
    ("ids.csv", lambda path: pd.DataFrame({"path": IDS}).to_csv(path, index=False, encoding="utf-8-sig")),
    ("ids.json", lambda path: pd.DataFrame({"image": IDS, "label": 0}).to_json(path, orient="records")),
    ("ids.json", lambda path: path.write_text(json.dumps(IDS))),
    ("ids.npy", lambda path: np.save(path, np.array(IDS))),
    ("ids.npy", lambda path: np.save(path, np.array(IDS, dtype="S"))),
    ("ids.lst", lambda path: path.write_text("\n".join(IDS), encoding="utf-8-sig")),
])
def test_every_list_of_ids(tmp_path, name, write):
    np.save(tmp_path / "a.npy", X)
    write(tmp_path / name)
    assert reading.read(tmp_path / "a.npy", tmp_path / name).ids == tuple(IDS)


@pytest.mark.parametrize(("name", "write", "message"), [
    ("ids.csv", lambda path: path.write_text("\n".join(IDS)), "no column id, ids, image, path.*; ids are txt"),
    ("ids.json", lambda path: path.write_text("5"), "no column id, ids, image, path"),
    ("ids.json", lambda path: path.write_text("[1, 2]"), "no column id, ids, image, path"),
    ("ids.json", lambda path: path.write_text("[{"), "cannot read"),
    ("ids.npy", lambda path: np.save(path, np.arange(12)), "int64 and no strings; ids are txt"),
    ("ids.npy", lambda path: np.save(path, np.array(IDS, dtype=object)), "save the ids as strings"),
    ("ids.txt", lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot read"),
    ("none.txt", lambda path: None, "one image path a line"),
])
def test_lists_that_are_none(tmp_path, name, write, message):
    np.save(tmp_path / "a.npy", X)
    write(tmp_path / name)
    with pytest.raises(UserError, match=message) as error:
        reading.read(tmp_path / "a.npy", tmp_path / name)
    assert "\n" not in str(error.value)


def test_where_ids_may_stand_is_said(tmp_path):
    np.savez(tmp_path / "a.npz", embeddings=X, paths=IDS)
    pd.DataFrame(X, index=IDS, columns=[f"d{i}" for i in range(6)]).to_parquet(tmp_path / "b.parquet")
    for name in ("a.npz", "b.parquet"):
        with pytest.raises(UserError, match="id, ids, image, path"):
            reading.read(tmp_path / name)
    np.savez(tmp_path / "c.npz", embeddings=X, ids=np.array(IDS, dtype=object))
    with pytest.raises(UserError, match="save the ids as strings"):
        reading.read(tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", vectors=X)
    with pytest.raises(UserError, match=r"d\.npz.*'embeddings'.*vectors"):
        reading.read(tmp_path / "d.npz")


def test_precision_is_no_part_of_a_submission():
    single, double = (reading.Submission(tuple(IDS), X.astype(kind)) for kind in (np.float32, np.float64))
    assert single.hash == double.hash
    assert reading.Submission(tuple(IDS), X.astype(np.float64) * (1 + 1e-12)).hash != double.hash


def test_a_folder_may_begin_with_a_space(tmp_path):
    ids = [f" c/{i}.png" for i in range(12)]
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.txt").write_text(" \r\n".join(ids))
    sent = reading.read(tmp_path / "a.npy")
    np.testing.assert_array_equal(reading.align(sent, ids, ids), X)


@pytest.mark.parametrize(("column", "vector"), [("file_name", "embeddings"), ("image", "features"), ("id", "vector")])
def test_columns_as_hugging_face_has_them(tmp_path, column, vector):
    images = [{"bytes": b"\x89PNG", "path": name} for name in IDS] if column == "image" else IDS
    pd.DataFrame({column: images, vector: list(X), "label": range(12)}).to_parquet(tmp_path / "a.parquet")
    sent = reading.read(tmp_path / "a.parquet")
    assert sent.ids == tuple(IDS)
    np.testing.assert_array_equal(sent.embeddings, X)
    pd.DataFrame({"image": [{"bytes": b""}] * 12, vector: list(X)}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(UserError, match="add a column 'id'"):
        reading.read(tmp_path / "b.parquet")
