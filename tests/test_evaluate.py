"""Submitted embeddings: every file format, every check, and the record that comes of it."""

from __future__ import annotations

import json
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from safetensors.torch import save_file

from benchmark import datasets, submission
from benchmark.cli import cli
from benchmark.errors import UserError
from benchmark.outcomes import load as load_outcomes
from reports import records
from splits.manifest import Ladder, Split, save


@pytest.fixture
def birds(tmp_path):
    """A folder of 8 classes with 5 small images each, and a ladder of two rungs for it."""
    for c in range(8):
        (tmp_path / "birds" / f"c{c}").mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (2, 2), (c, i, 0)).save(tmp_path / "birds" / f"c{c}" / f"{i}.png")
    names = tuple(f"c{c}" for c in range(8))
    splits = (Split(1, "default", 0, names[:4], names[4:], (), 20, 20, 1.5, 0.5),
              Split(2, "swap", 3, names[4:], names[:4], (), 20, 20, 2.5, 1.5))
    files = datasets.load(f"folder:{tmp_path / 'birds'}", tmp_path).hash
    save(Ladder("birds", files, {}, {}, splits), tmp_path / "work" / "splits" / "birds.json")
    return tmp_path


def sent(train=False, seed=0):
    """Random embeddings in an order of their own, and the images they belong to."""
    random = np.random.default_rng(seed)
    ids = [f"c{c}/{i}.png" for c in range(0 if train else 4, 8) for i in range(5)]
    order = random.permutation(len(ids))
    return [ids[i] for i in order], random.normal(size=(len(ids), 6)).astype(np.float32)


def run(birds, file, *more):
    return CliRunner().invoke(cli, ["evaluate", "--embeddings", str(file), "--dataset", f"folder:{birds / 'birds'}",
                                    "--split", "1", "--work", str(birds / "work"), "--device", "cpu", *more],
                              catch_exceptions=True)


def recall_at_1(ids, x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    hits = []
    for i, name in enumerate(ids):
        nearest = max((j for j in range(len(ids)) if j != i), key=lambda j: x[i] @ x[j])
        hits.append(ids[nearest].split("/")[0] == name.split("/")[0])
    return np.mean(hits)


def test_the_record_of_a_submission(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "mine.npz", "--seed", "3", "--clusters", "--backbone", "vit")
    assert result.exit_code == 0, result.output + repr(result.exception)
    assert "normalised before the search" in result.output
    (path,) = (birds / "work" / "runs" / "birds" / "1" / "mine").glob("s3-*/record.json")
    record = records.read(path)
    assert (record["source"], record["method"]["name"], record["backbone"]["name"]) == ("submitted", "mine", "vit")
    assert record["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1(ids, x))
    assert 0 <= record["scores"]["last"]["nmi"] <= 1
    assert 0 <= record["scores"]["last"]["f1"] <= 1
    assert record["provenance"]["kmeans"] == "faiss"
    assert record["queries"] == {"count": 20, "left_out": 0}
    assert record["split"]["ladder"] == [[1, 1.5], [2, 2.5]]
    assert list(record["structure"]) == ["test"]
    found = load_outcomes(path.with_name("queries.npz"))
    assert found.hits(1).mean() == pytest.approx(recall_at_1(ids, x))
    assert found.labels.tolist() == sorted(found.labels.tolist())
    frame = records.collect(birds / "work" / "runs")
    assert frame["source"].tolist() == ["submitted"]


def test_the_same_embeddings_in_another_order_are_the_same_submission(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    assert run(birds, birds / "mine.npz").exit_code == 0
    np.savez(birds / "mine.npz", embeddings=x[::-1], ids=ids[::-1])
    assert run(birds, birds / "mine.npz").exit_code == 0
    assert len(list(birds.glob("work/runs/birds/1/mine/*/record.json"))) == 1


def test_training_embeddings_are_measured_where_all_are_there(birds):
    ids, x = sent(train=True)
    np.savez(birds / "both.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "both.npz")
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/both/*/record.json")
    assert set(records.read(path)["structure"]) == {"train", "test"}


def test_every_format_reads_the_same(tmp_path):
    ids, x = sent()
    np.savez(tmp_path / "a.npz", embeddings=x, ids=ids)
    np.save(tmp_path / "b.npy", x)
    (tmp_path / "b.txt").write_text("".join(f"./{name}\tc4\t0\n" for name in ids))
    save_file({"embeddings": torch.from_numpy(x)}, tmp_path / "c.safetensors", metadata={"ids": json.dumps(ids)})
    save_file({"embeddings": torch.from_numpy(x)}, tmp_path / "d.safetensors")
    (tmp_path / "ids.lst").write_text("\n".join(ids))
    read = [submission.read(tmp_path / name) for name in ("a.npz", "b.npy", "c.safetensors")]
    read.append(submission.read(tmp_path / "d.safetensors", tmp_path / "ids.lst"))
    for found in read:
        assert found.ids == tuple(ids)
        np.testing.assert_array_equal(found.embeddings, x)
    assert len({found.hash for found in read}) == 1


@pytest.mark.parametrize("wide", [True, False])
def test_parquet(tmp_path, wide):
    pytest.importorskip("pyarrow")
    ids, x = sent()
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(6)]) if wide else pd.DataFrame({"embedding": list(x)})
    frame.insert(0, "image", ids)
    frame.to_parquet(tmp_path / "a.parquet")
    found = submission.read(tmp_path / "a.parquet")
    assert found.ids == tuple(ids)
    np.testing.assert_array_equal(found.embeddings, x)


def test_a_parquet_file_goes_all_the_way(birds):
    pytest.importorskip("pyarrow")
    ids, x = sent()
    pd.DataFrame({"path": ids, "embedding": list(x)}).to_parquet(birds / "mine.parquet")
    result = run(birds, birds / "mine.parquet")
    assert result.exit_code == 0, result.output + repr(result.exception)
    (path,) = birds.glob("work/runs/birds/1/mine/*/record.json")
    assert records.read(path)["scores"]["last"]["recall@1"] == pytest.approx(recall_at_1(ids, x))
    (birds / "cut.parquet").write_bytes((birds / "mine.parquet").read_bytes()[:-9])
    assert "cannot read" in str(run(birds, birds / "cut.parquet").exception)
    for frame in (pd.DataFrame({"path": ids, "embedding": [row[:i % 3 + 1] for i, row in enumerate(x)]}),
                  pd.DataFrame({"path": ids, "embedding": ids}), pd.DataFrame({"path": ids})):
        frame.to_parquet(birds / "cut.parquet")
        assert isinstance(run(birds, birds / "cut.parquet").exception, UserError)


def test_parquet_without_its_library_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for library in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        submission.read(tmp_path / "a.parquet")


def broken(change):
    ids, x = sent()
    return change(list(ids), x.copy())


@pytest.mark.parametrize(("change", "message"), [
    (lambda ids, x: (ids[1:], x[1:]), "1 of 20 test images have no embedding"),
    (lambda ids, x: ([f"images/{name}" for name in ids], x), "ids such as 'images/c4/0.png'"),
    (lambda ids, x: ([*ids, "c9/0.png"], np.vstack([x, x[:1]])), "no images of this split, such as 'c9/0.png'"),
    (lambda ids, x: ([*ids, ids[4]], np.vstack([x, x[:1]])), "comes twice"),
    (lambda ids, x: (ids[1:], x), "20 embeddings but 19 ids"),
    (lambda ids, x: (ids, np.where(np.arange(20)[:, None] == 3, np.nan, x)), "1 embeddings hold NaN"),
    (lambda ids, x: (ids, np.where(np.arange(20)[:, None] == 3, 0, x)), "1 embeddings are all zero"),
    (lambda ids, x: (ids, x[:, :, None]), "one row an image"),
    (lambda ids, x: (ids, x[:, :0]), "one row an image"),
    (lambda ids, x: (ids, x.astype(str)), "one row an image"),
])
def test_what_is_wrong_is_said_in_one_line(birds, change, message):
    ids, x = broken(change)
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    result = run(birds, birds / "mine.npz")
    assert isinstance(result.exception, UserError), result.output
    assert message in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not list(birds.glob("work/runs/**/record.json"))


@pytest.mark.parametrize(("name", "content", "message"), [
    ("mine.npz", b"no archive", "cannot read"),
    ("mine.npy", b"", "cannot read"),
    ("mine.safetensors", b"12345678{", "cannot read"),
    ("mine.csv", b"1,2", "none of .npz"),
])
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        submission.read(tmp_path / name)


def test_missing_files_names_and_rungs(birds):
    ids, x = sent()
    assert "there is no file" in str(run(birds, birds / "none.npz").exception)
    np.save(birds / "mine.npy", x)
    assert "--ids FILE" in str(run(birds, birds / "mine.npy").exception)
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    assert "a method of this suite" in str(run(birds, birds / "mine.npz", "--name", "multisimilarity").exception)
    assert "is no name" in str(run(birds, birds / "mine.npz", "--name", "../x").exception)
    assert "has no split 7" in str(run(birds, birds / "mine.npz", "--split", "7").exception)


def test_equal_embeddings_are_noted():
    x = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]
    (note,) = submission.check(x, list("abcd"))
    assert note.startswith("only 3 of 4 embeddings are different")


def test_a_ladder_of_other_files_is_refused(birds):
    ids, x = sent()
    np.savez(birds / "mine.npz", embeddings=x, ids=ids)
    Image.new("RGB", (2, 2)).save(birds / "birds" / "c0" / "new.png")
    done = run(birds, birds / "mine.npz")
    assert isinstance(done.exception, UserError)
    assert "built from other files" in str(done.exception)
