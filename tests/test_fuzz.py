"""Every reader answers a damaged file with what it could read or with one line for its user, never with a traceback.

`make fuzz` tries more: FUZZ inputs for each reader, from the seed FUZZ_SEED.
"""

from __future__ import annotations

import io
import json
import os
import random
import tarfile
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from benchmark import datasets
from benchmark.config import protocol, study, toml
from benchmark.config.spec import RunSpec
from benchmark.data import keras_weights, store, weights
from benchmark.runs import planned
from benchmark.submissions import reading
from benchmark.training import checkpoint
from benchmark.utils.errors import UserError, is_user_error
from benchmark.utils.files import GrowingFile
from benchmark.utils.workspace import Workspace
from reports import packing, records
from reports.analysis import fewshot, study_progress
from reports.html import extras
from reports.storage import by_class, queries
from splits import manifest
from splits.manifest import Ladder, Split
from tests.mutator import Damage, damaged_bytes, damaged_json, damaged_lines, damaged_tar
from tests.sample_records import make_record

INPUTS = int(os.environ.get("FUZZ", "85"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))


@dataclass(frozen=True)
class Reader:
    """A sound file, how it is damaged, and who reads it; `make` puts what belongs to it into a folder."""

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]
    damage: Damage = damaged_json


def _scan(folder: Path) -> None:
    """Records as a report takes them: what is sound is shown, what is not is listed with its cause."""
    frame, lost = records.scan(folder)
    assert len(frame) + len(lost)
    assert all(isinstance(cause, str) and len(cause) <= 1001 for cause in lost["cause"].dropna())
    frame.to_csv(io.StringIO())
    "".join(map(str, frame.to_dict("records"))).encode()


def _run(folder: Path) -> None:
    records.write(folder / "glyphs" / "1" / "margin" / "s0-0", make_record())


def _pack(folder: Path) -> None:
    _run(folder / "runs")
    records.write_failure(folder / "runs" / "glyphs" / "2" / "diva" / "s0-0", {"cause": "loss became nan"})
    packing.pack([folder / "runs"], folder / "pack")


def _study(folder: Path) -> None:
    rows = pd.DataFrame([{"dataset": "glyphs", "method": "margin", "protocol": "demo", "backbone": "conv4", "runs": 3,
                          "splits": "0123456789ab", "given": '{"epochs": 2}'}])
    study_progress.write(folder, study_progress.StudyProgress("mine", "A study.", "oodml run", rows))


def _inspection(folder: Path) -> None:
    (folder / "inspect").mkdir()
    (folder / "inspect" / "a.png").write_bytes(b"x")
    shot = {"id": 1, "image": "a.png", "class": "a"}
    rows = [{"query": shot, "neighbours": [shot | {"right": True, "similarity": 1.0}]}]
    (folder / "inspect" / "inspection.json").write_text(json.dumps({
        "schema": 1, "run": "x", "side": 112, "lead": "", "files": ["a.png"], "galleries": [
            {"kind": "k", "title": "t", "note": "n", "neighbours": 1, "rows": rows}],
        "figures": [{"title": "f", "file": "a.png", "caption": "c", "heads": ["a"], "rows": [["b", 1.0]]}]}))


def _ladder(folder: Path) -> None:
    rungs = [Split(i, "swap", 0, (f"a{i}",), ("b",), (), 1, 1, 1.0, 1.0) for i in (1, 2)]
    manifest.save(Ladder("cub", "d", {}, {"seed": 0}, tuple(rungs)), folder / "cub.json")


def _queries(folder: Path) -> None:
    queries.QueryResults(np.array([1, 0, 2]), np.ones(3, bool), np.array([0, 1, 0]), np.array(["a", "b"])).save(
        folder / queries.NAME)


def _classes(folder: Path) -> None:
    (folder / by_class.SUMMED).write_text('{"side": {"classes": ["a", "b"], "queries": [3, 4]}, "hits": "12"}')


def _fewshot(folder: Path) -> None:
    from tests.test_report_studies import write_fewshot

    _run(folder)
    write_fewshot(folder / "glyphs" / "1" / "margin" / "s0-0", 0.5, 0.6)


def _cub(folder: Path) -> None:
    root = folder / "CUB_200_2011"
    root.mkdir()
    (root / "images.txt").write_text("1 a/1.jpg\n2 b/2.jpg\n")
    (root / "image_class_labels.txt").write_text("1 1\n2 2\n")
    (root / "classes.txt").write_text("1 a\n2 b\n")


def _embeddings(folder: Path) -> None:
    np.savez(folder / "e.npz", embeddings=np.ones((2, 3), np.float32), ids=np.array(["a", "b"]))
    save_file({"embeddings": torch.ones(2, 3)}, folder / "e.safetensors", metadata={"ids": '["a", "b"]'})
    np.save(folder / "e.npy", np.ones((2, 3), np.float32))
    pq.write_table(pa.table({"id": ["a", "b"], "embedding": [[1.0, 2.0], [3.0, 4.0]]}), folder / "e.parquet")
    (folder / "e.txt").write_text("a\nb\n")
    (folder / "ids.json").write_text('[{"image": "a", "class": "x"}, {"image": "b", "class": "y"}]')
    (folder / "ids.csv").write_text("image,class\na,x\nb,y\n")
    torch.save({"state_dict": {"a.weight": torch.ones(2)}}, folder / "w.pth")


def _keras(folder: Path) -> None:
    from tests.test_keras_weights import write_model

    write_model(folder, {"conv1/kernel": np.ones((1, 1, 3, 2), np.float32), "conv1/bias": np.ones(2, np.float32)})


def _saved(folder: Path) -> None:
    with closing(checkpoint.Saver(folder)) as saver:
        saver.save({"method": {"w": torch.ones(3)}}, {"epoch": 1, "history": {"steps": 3}}, whole=True)


def _unsummed(folder: Path) -> None:
    """As earlier versions left a checkpoint: its readers see every damage."""
    _saved(folder)
    (folder / "checkpoint-00001" / checkpoint.SUMS).unlink()


def _resumed(folder: Path) -> None:
    """A checkpoint is read or set aside, so that the run can go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert (checkpoint.load(folder) is None) == (not list(folder.glob("checkpoint-*")))


def _png(shade: int) -> bytes:
    raw = io.BytesIO()
    Image.new("L", (2, 2), shade).save(raw, "PNG")
    return raw.getvalue()


def _parquet(folder: Path) -> None:
    images = [{"bytes": _png(i), "path": f"{i}.png"} for i in range(4)]
    pq.write_table(pa.table({"image": images, "label": [0, 0, 1, 1]}), folder / "a.parquet")


def _tar(folder: Path) -> None:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for i in range(4):
            for ending, content in (("png", _png(i)), ("cls", b"%d" % (i // 2))):
                head = tarfile.TarInfo(f"{i}.{ending}")
                head.size = len(content)
                archive.addfile(head, io.BytesIO(content))


def _pictures(name: str) -> None:
    index = datasets.load(name, Path())
    for i in range(len(index)):
        with suppress(UserError):
            store.decode(index, i)


def _store(folder: Path) -> None:
    geometry = np.array([[2, 2, 2, 2]], np.int32)
    np.save(folder / "geometry.npy", geometry)
    (folder / "pixels.bin").write_bytes(bytes(12))
    (folder / "store.json").write_text(json.dumps(
        {"version": store.VERSION, "nbytes": 12, "hash": "h", "pieces": ["p"], "chunk": 128}))


def _opened(folder: Path) -> None:
    opened = store.ImageStore(folder)
    assert opened.image(0).shape[2] == 3


def _growing(folder: Path) -> None:
    with closing(GrowingFile(folder / "g")) as growing:
        growing.append(b"abc", rows=1)


def _plan(folder: Path) -> None:
    (folder / "plans").mkdir()
    spec = RunSpec("cub", "x", 1, "y", "margin", {"beta": 1.2}, {}, protocol.load("oodml"), "w", 0)
    cell = {"spec": spec.facts(), "dataset": "cub", "weights_file": None, "plugins": []}
    (folder / "plans" / "000001-abc.json").write_text(
        json.dumps({"schema": planned.SCHEMA, "command": "oodml run", "cells": [cell]}))
    (folder / "spec.json").write_text(json.dumps(spec.facts()))


def _toml(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "mine.toml").write_text(text)


def _listed(folder: Path) -> None:
    (folder / "mine.csv").write_text("path,label,split\na/1.jpg,x,train\nb/2.jpg,y,test\n")


STUDY = """summary = "s"
datasets = ["cub"]
methods = "margin"
seeds = 3
[set]
epochs = 2
[[after]]
step = "cross"
"""
PROTOCOL = toml.text(protocol.path_of("demo"))
READERS = {
    "record": Reader("glyphs/1/margin/s0-0/record.json", _run, _scan),
    "pack": Reader("pack/glyphs/margin.runs.jsonl", _pack, lambda folder: _scan(folder / "pack"), damaged_lines),
    "failures": Reader("pack/glyphs/failures.jsonl", _pack, lambda folder: _scan(folder / "pack"), damaged_lines),
    "failure": Reader("runs/glyphs/2/diva/s0-0/failure.json", _pack, _scan),
    "study progress": Reader("studies/mine.json", _study, lambda folder: study_progress.read([folder], [])),
    "inspection": Reader(extras.INSPECTION, _inspection, lambda folder: extras.read_inspection(
        folder / extras.INSPECTION)),
    "manifest": Reader("cub.json", _ladder, lambda folder: manifest.load(folder / "cub.json")),
    "queries": Reader(queries.NAME, _queries, by_class.summed, damaged_bytes),
    "classes": Reader(by_class.SUMMED, _classes, by_class.summed),
    "few-shot": Reader(f"glyphs/1/margin/s0-0/{fewshot.NAME}", _fewshot, lambda folder: fewshot.collect(
        records.scan(folder)[0])),
    "study": Reader("mine.toml", _toml(STUDY), lambda folder: study.load(str(folder / "mine.toml")), damaged_bytes),
    "protocol": Reader("mine.toml", _toml(PROTOCOL), lambda folder: protocol.load(str(folder / "mine.toml")),
                       damaged_bytes),
    "cub": Reader("CUB_200_2011/images.txt", _cub, lambda folder: datasets.load("cub", folder), damaged_bytes),
    "csv": Reader("mine.csv", _listed, lambda folder: datasets.load(f"csv:{folder}/mine.csv", folder), damaged_bytes),
    "npz": Reader("e.npz", _embeddings, lambda folder: reading.read(folder / "e.npz"), damaged_bytes),
    "npy": Reader("e.npy", _embeddings, lambda folder: reading.read(folder / "e.npy"), damaged_bytes),
    "safetensors": Reader("e.safetensors", _embeddings, lambda folder: reading.read(folder / "e.safetensors"),
                          damaged_bytes),
    "parquet embeddings": Reader("e.parquet", _embeddings, lambda folder: reading.read(folder / "e.parquet"),
                                 damaged_bytes),
    "ids": Reader("ids.json", _embeddings, lambda folder: reading.read(folder / "e.npy", folder / "ids.json")),
    "keras": Reader("model.json", _keras, keras_weights.read),
    "weights": Reader("w.pth", _embeddings, lambda folder: weights.read(folder / "w.pth"), damaged_bytes),
    "checkpoint state": Reader("checkpoint-00001/state.json", _unsummed, _resumed),
    "checkpoint": Reader("checkpoint-00001/tensors.safetensors", _unsummed, _resumed, damaged_bytes),
    "checkpoint sums": Reader(f"checkpoint-00001/{checkpoint.SUMS}", _saved, _resumed),
    "parquet": Reader("a.parquet", _parquet, lambda folder: _pictures(f"parquet:{folder}/a.parquet"), damaged_bytes),
    "tar": Reader("a.tar", _tar, lambda folder: _pictures(f"wds:{folder}/a.tar"), damaged_tar),
    "store": Reader("store.json", _store, _opened),
    "geometry": Reader("geometry.npy", _store, _opened, damaged_bytes),
    "journal": Reader("g.journal", _growing, lambda folder: GrowingFile(folder / "g").close(), damaged_json),
    "plan": Reader("plans/000001-abc.json", _plan, lambda folder: list(planned.plans(Workspace.at(folder)))),
    "spec": Reader("spec.json", _plan, RunSpec.read),
}


@pytest.mark.parametrize("name", READERS)
def test_no_reader_breaks_down(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    reader.make(tmp_path)
    sound = (tmp_path / reader.file).read_bytes()
    reader.read(tmp_path)
    for number in range(INPUTS):
        draw = random.Random(f"{SEED}-{name}-{number}")
        if not (tmp_path / reader.file).parent.is_dir():  # a damaged checkpoint was set aside
            reader.make(tmp_path)
        damaged = reader.damage(sound, draw)
        (tmp_path / reader.file).write_bytes(damaged)
        os.utime(tmp_path / reader.file, ns=(number + 1, number + 1))  # what is kept in memory is known by this
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                reader.read(tmp_path)
        except Exception as error:
            if not is_user_error(error):
                raise AssertionError(f"input {number} of {name}, seed {SEED}: {damaged[:2000]!r}") from error
