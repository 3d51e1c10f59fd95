"""Damaged and hostile files of every kind that was met: one line says what is wrong, and the rest goes on."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import time
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from scipy.io import savemat

import methods
from benchmark import cli, datasets
from benchmark.board import leaderboard, versions
from benchmark.config import protocol, study
from benchmark.data import store, weights
from benchmark.ladders import rungs
from benchmark.runs.executors.pool import Worker, WorkerPool
from benchmark.submissions import card as cards
from benchmark.submissions import reading
from benchmark.training import checkpoint
from benchmark.utils import bugs
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import ReportError, packing, records, terminal
from reports.analysis import audit, study_progress
from reports.analysis.results import Results
from reports.figures import drawing
from splits import SplitError, manifest, official, pinning
from tests.sample_records import make_record, write_sample
from tests.test_fuzz import READERS

SAMPLE = {"margin": 0.6, "s2sd": 0.7}


@pytest.mark.parametrize("change", [
    {"structure": {"test": [1, 2]}}, {"structure": [1]}, {"structure": {"test": "a"}}, {"dataset": "\ud800"},
    {"dataset": "a\0b"}, {"curve": ["a"]}, {"curve": [{"epoch": "x"}]}, {"seed": 10**40}, {"cost": None},
    {"provenance": {"overrides": [1]}}, {"method": {"name": "x"}}, {"split": None},
    {"scores": {"last": {"recall@1": 7}}}, {"structure": {"test": {"rho": True}}},
    {"structure": {"test": {"rho": 10**30}}}, {"structure": {"test": {"rho": "a"}}},
    {"protocol": {"name": "demo", "epochs": math.nan}}, {"protocol": {"name": "x" * 240}},
    {"backbone": {"name": "x" * 3000, "weights": None}}, {"backbone": {"name": "conv4", "weights": "x" * 3000}},
], ids=lambda change: str(change)[:60])
def test_an_odd_record_is_listed_and_the_others_are_shown(change: dict[str, Any], tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", SAMPLE, ("glyphs",), seeds=1, union=False)
    (runs / "odd").mkdir()
    (runs / "odd" / "record.json").write_text(json.dumps(make_record() | change))
    frame, lost = records.scan(runs)
    assert len(frame) == 10
    (row,) = lost.to_dict("records")
    assert row["state"] == "damaged"
    assert "record.json" in row["cause"]


@pytest.mark.parametrize("raw", [b"", b"[" * 100_000, b'{"a": ' * 100_000, b"\xff", b"null", b"3", b'"x"'])
def test_files_that_are_no_records_are_listed(raw: bytes, tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", SAMPLE, ("glyphs",), seeds=1, union=False)
    for name in ("record.json", "failures.jsonl", "margin.runs.jsonl"):
        (runs / name).mkdir()
        (runs / name / name).write_bytes(raw)
    os.mkfifo(runs / "glyphs" / "margin.runs.jsonl")
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "mine.json").write_bytes(raw)
    frame, lost = records.scan(runs)
    assert len(frame) == 10
    assert len(lost) >= 2
    damaged: list[Any] = []
    assert study_progress.read([tmp_path], damaged) == []
    assert len(damaged) == 1
    assert "mine.json" in terminal.summary(Results(frame), lost) + str(damaged[0])


def test_a_record_without_its_steps_is_shown(tmp_path: Path) -> None:
    """Steps are asked for where dataset-specific models are to be compared with a network of equal length."""
    record = make_record(score=0.5)
    records.write(tmp_path / "only", record | {"cost": record["cost"] | {"steps": None}})
    frame, lost = records.scan(tmp_path)
    assert "50.0" in terminal.summary(Results(frame), lost)


def test_damaged_queries_leave_the_report_whole(tmp_path: Path) -> None:
    """The run keeps its score; only what is made of single queries does without it, and says so."""
    runs = write_sample(tmp_path / "runs", SAMPLE, ("glyphs",), seeds=1, union=False, queries=True)
    broken = next(runs.rglob("queries.npz"))
    broken.write_bytes(b"PK\x03\x04 cut")
    frame, lost = records.scan(runs)
    with pytest.warns(UserWarning, match=re.escape(str(broken))):
        assert broken.parent.parent.name in terminal.summary(Results(frame), lost)
    with pytest.warns(UserWarning, match=re.escape(str(broken))):
        content = packing.archive(frame)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(tmp_path)
    assert set(records.collect(tmp_path / "records")["identity"]) == set(frame["identity"])


def test_names_with_dollars_are_no_formulas() -> None:
    with drawing.drawing("x"):
        figure = Figure()
        figure.text(0.5, 0.5, "$\\frac{x$ $gl_^y$")
        assert "$gl_^y$" in drawing.svg(figure, "x", "$\\frac{x$", "$_^$")


def test_splits_and_seeds_are_refused_before_they_are_counted_out(capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    for text in ("1-999999999", "9" * 5000, "1-1e9"):
        with pytest.raises(UserError, match="ranges"):
            rungs.numbers(text)
    with pytest.raises(SystemExit) as refused:
        cli.main(["plan", "--dataset", "glyphs-mini", "--methods", "margin", "--seeds", "1000000000"])
    assert refused.value.code == 2
    assert "10000" in capsys.readouterr().err
    with pytest.raises(UserError, match="10000"):
        protocol.load("demo", overrides={"seeds": "1000000000"})
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("text", ["a = " + "[" * 3000, "a." * 3000 + "a = 1", "epochs = inf", "epochs = nan",
                                  "epochs = 1e400", "epochs = 99999999999999999999", "epochs = " + "9" * 5000,
                                  'protocol = "a\\u0000b"'])
def test_odd_toml_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(text)
    for load in (protocol.load, study.load):
        with pytest.raises(UserError):
            load(str(tmp_path / "mine.toml"))


def images(folder: Path) -> Path:
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (8, 8)).save(folder / name / f"{i}.png")
    return folder


def test_class_folders_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    folder = images(tmp_path / "own")
    os.rename(folder / "b", os.fsencode(folder) + b"/caf\xe9")
    with pytest.raises(UserError, match="not UTF-8"):
        datasets.load(f"folder:{folder}", tmp_path)


def test_a_named_pipe_among_images_is_named_and_not_waited_for(tmp_path: Path) -> None:
    folder = images(tmp_path / "own")
    os.mkfifo(folder / "b" / "2.png")
    index = datasets.load(f"folder:{folder}", tmp_path)
    with pytest.raises(UserError, match=r"2\.png: it is no plain file"):
        store.open_store(index, tmp_path / "cache", jobs=1, progress=False)


@pytest.mark.parametrize("read", [cards.read, reading.read, official.import_released, manifest.load, pinning.load,
                                  versions.differences, lambda path: audit.audit([path])])
def test_a_named_pipe_is_refused_and_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises((UserError, SplitError, ReportError), match=r"no plain file|there is no file"):
        read(tmp_path / "pipe.toml")


@pytest.mark.parametrize("value", ["inf", "nan", "1e999"])
def test_a_setting_that_is_no_finite_number_is_refused(value: str) -> None:
    with pytest.raises(methods.MethodError, match=r"margin\.beta = .*: input should be a finite number"):
        methods.get("margin").settings(beta=value)


def test_a_field_of_csv_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text('path,label\n"' + "x" * (csv.field_size_limit() + 1) + '",a\n')
    with pytest.raises(UserError, match="131072"):
        datasets.load(f"csv:{tmp_path}/mine.csv", tmp_path)


@pytest.mark.parametrize("labels", [[1.0, np.nan, 2.0], [1.5, 2.0], [np.inf, 1.0]])
def test_labels_that_are_no_numbers_are_refused(labels: list[float], tmp_path: Path) -> None:
    (tmp_path / "flowers").mkdir()
    savemat(tmp_path / "flowers" / "imagelabels.mat", {"labels": np.array([labels])})
    with pytest.raises(UserError, match="class number"):
        datasets.load("flowers", tmp_path)


@pytest.mark.parametrize("content", [torch.ones(3), [1, 2], {}, {"a": 1}, {1: torch.ones(1)}, {"state_dict": {}}])
def test_weights_that_are_no_state_dict_are_refused(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UserError, match="no state dict"):
        weights.read(tmp_path / "w.pth")
    for odd in ("", "  ", str(tmp_path), str(tmp_path / "absent")):
        with pytest.raises(UserError, match="weights"):
            weights.identify("resnet18", odd)


def test_the_end_of_a_file_is_no_ctrl_d(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    READERS["store"].make(tmp_path)
    (tmp_path / "geometry.npy").write_bytes(b"")
    with pytest.raises(UserError, match="damaged"):
        store.ImageStore(tmp_path)

    def ended(*arguments: Any, **more: Any) -> None:
        raise cli.click.exceptions.Abort from EOFError("cut")

    monkeypatch.setattr(cli.cli, "main", ended)
    with pytest.raises(SystemExit) as left:
        cli.main([])
    assert left.value.code == 1
    assert "EOFError: cut" in capsys.readouterr().err
    monkeypatch.setenv(bugs.DEBUG, "1")
    with pytest.raises(EOFError, match="cut"):
        cli.main([])


def test_a_worker_is_started_again_where_its_server_died(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class Started:
        def __init__(self, **more: Any) -> None:
            pass

        def start(self) -> None:
            calls.append(1)
            if len(calls) < fails:
                raise EOFError

    class Processes:
        Process = Started

        @staticmethod
        def get_start_method() -> str:
            return "spawn"

        @staticmethod
        def RawValue(*arguments: Any) -> None:
            return None

        @staticmethod
        def Pipe() -> tuple[Any, Any]:
            return io.BytesIO(), io.BytesIO()

    pool = WorkerPool.__new__(WorkerPool)
    monkeypatch.setattr(pool, "processes", Processes, raising=False)
    monkeypatch.setattr(pool, "threads", 1, raising=False)
    monkeypatch.setattr(pool, "stopping", None, raising=False)
    monkeypatch.setattr(pool, "watch", type("Watch", (), {"stale": 12.0}), raising=False)
    fails = 2
    assert isinstance(pool._spawn(), Worker)
    fails = 99
    with pytest.raises(UserError, match="could be started"):
        pool._spawn()


def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_it_taken(tmp_path: Path) -> None:
    for epoch in (1, 2):
        (tmp_path / str(epoch)).mkdir()
        with closing(checkpoint.Saver(tmp_path / str(epoch))) as saver:
            saver.save({"method": {"w": torch.full((3,), float(epoch))}}, {"epoch": epoch, "history": {}}, whole=True)
    os.rename(tmp_path / "1" / "checkpoint-00001", tmp_path / "2" / "checkpoint-00001")
    newest = tmp_path / "2" / "checkpoint-00002" / "tensors.safetensors"
    raw = newest.read_bytes()
    newest.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))  # one bit, which safetensors takes
    with pytest.warns(UserWarning, match="set aside"):
        tensors, state = checkpoint.load(tmp_path / "2")  # type: ignore[misc]
    assert state["epoch"] == 1
    assert tensors["method"]["w"].tolist() == [1.0] * 3
    (tmp_path / "2" / "checkpoint-00001" / "state.json").write_text("{")
    with pytest.warns(UserWarning, match="set aside"):
        assert checkpoint.load(tmp_path / "2") is None
    checkpoint.remove(tmp_path / "2")
    assert list((tmp_path / "2").iterdir()) == []


def test_a_damaged_ladder_is_listed(tmp_path: Path) -> None:
    made = Workspace.at(str(tmp_path))
    write_sample(made.runs, {"margin": 0.7}, ("glyphs",), union=False)
    assert "damaged" not in set(leaderboard.collect(made).lost["state"])
    made.splits.mkdir()
    (made.splits / "glyphs.json").write_text('{"dataset": "glyphs", "spl')
    (made.splits / "glyphs-1.json").write_text("[]")  # a list that was exported
    (made.root / "tune").mkdir()
    (made.root / "tune" / "mine.json").write_text('{"schema": 1, "searches": [{"trials": 3}]}')
    lost = leaderboard.collect(made).lost
    assert lost["state"].tolist() == ["damaged"] * 2
    assert "mine.json" in lost["cause"].iloc[0]
    assert "glyphs.json" in lost["cause"].iloc[1]
