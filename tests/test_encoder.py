"""`oodml.evaluate`: an encoder of one's own on a ladder, against a search image by image."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import oodml
from benchmark import datasets, ladders
from benchmark.data.store import open_store
from benchmark.submissions.evaluate import evaluate_ladder
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from reports.storage.operating_points import RATES
from splits.ladder import build_ladder
from tests import tiny_sweep

ROOT = Path(__file__).parent.parent


class Pixels:
    """Eight by eight pixels as they are."""

    def __init__(self) -> None:
        self.seen = 0

    def encode(self, images: list[Any]) -> np.ndarray:
        self.seen += len(images)
        return np.stack([np.asarray(image.resize((8, 8))).ravel() / 255 - 0.5 for image in images])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tiny_sweep.workspace(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def result(made: Workspace) -> Any:
    return oodml.evaluate(Pixels(), "glyphs-mini", work=made.root, record="my-pixels")


def test_a_script_without_a_guard_decodes_in_several_processes(tmp_path: Path) -> None:
    images, names = tmp_path / "images", [f"{number:02d}" for number in range(40)]
    for name in names:
        (images / name).mkdir(parents=True)
        for number in range(16):  # as many as are decoded by more than one process
            Image.new("RGB", (8, 8), (6 * int(name), 5 * number, 100)).save(images / name / f"{number}.png")
    workspace = Workspace.at(str(tmp_path / "work"))
    index = datasets.load(f"folder:{images}", workspace.data)
    rng = np.random.default_rng(0)
    ladders.save(build_ladder(rng.normal(size=(len(index), 4)), index.labels, names[:20], names[20:],
                              classes=index.classes, removal=False, dataset=index.name, dataset_hash=index.hash),
                 workspace)
    script = tmp_path / "script.py"
    script.write_text(f"""print("begins")
import numpy, oodml
class Encoder:
    def encode(self, images):
        return numpy.stack([numpy.asarray(image).mean(axis=(0, 1)) for image in images])
print(oodml.evaluate(Encoder(), "folder:{images}", work="{workspace.root}"))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, cwd=tmp_path,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begins") == 1


def test_every_rung_is_scored_from_one_pass(made: Workspace) -> None:
    pixels = Pixels()
    oodml.evaluate(pixels, "glyphs-mini", work=made.root, batch=50)
    index = datasets.load("glyphs-mini", made.data)
    tested = {i for split in ladders.load(made, "glyphs-mini", index).splits for i in index.of_classes(split.test)}
    assert pixels.seen == len(tested)


def test_scores_are_those_of_the_nearest_image(made: Workspace, result: Any) -> None:
    index = datasets.load("glyphs-mini", made.data)
    store, ladder = open_store(index, made.cache), ladders.load(made, "glyphs-mini", index)
    assert list(result.scores) == [split.id for split in sorted(ladder.splits, key=lambda split: split.frd or 0.0)]
    for split in ladder.splits:
        ids = index.of_classes(split.test)
        x = Pixels().encode([Image.fromarray(store.image(int(i))) for i in ids]).astype(np.float64)
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        table = x @ x.T
        np.fill_diagonal(table, -2)
        labels = np.asarray(index.labels)[ids]
        hits = labels[table.argmax(1)] == labels
        assert result.scores[split.id]["recall@1"] == pytest.approx(hits.mean(), abs=5e-3)
    frd = [frd for frd in result.frd.values() if frd is not None]
    assert result.ags["recall@1"] == pytest.approx(oodml.ags(frd, [s["recall@1"] for s in result.scores.values()]))
    assert "AGS" in str(result)
    assert f"{100 * result.ags['recall@1']:.2f}" in str(result)


def test_records_are_made_on_the_device_that_was_asked_for_and_say_the_same(
        made: Workspace, result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def evaluate(*arguments: Any, device: str | None, **named: Any) -> Any:
        asked.append(device)
        return evaluate_ladder(*arguments, device=device, **named)

    monkeypatch.setattr("benchmark.submissions.encoder.evaluate_ladder", evaluate)
    recorded = oodml.evaluate(Pixels(), "glyphs-mini", work=made.root, splits="1-2", record="here", device="cpu")
    plain = oodml.evaluate(Pixels(), "glyphs-mini", work=made.root, splits="1-2", device="cpu")
    assert asked == ["cpu"]
    assert (len(recorded.records), len(plain.records)) == (2, 0)
    for split, scores in plain.scores.items():
        assert recorded.scores[split] == pytest.approx(scores)
        assert recorded.thresholds[split]["tar"] == pytest.approx(plain.thresholds[split]["tar"])
    assert [*recorded.scores] == [*recorded.frd] == [split for split in result.scores if split in (1, 2)]


def test_a_name_that_is_none_is_refused_before_anything_is_encoded(made: Workspace) -> None:
    with pytest.raises(UserError, match="'margin' is a method of this suite"):
        oodml.evaluate(object(), "glyphs-mini", work=made.root, record="margin")  # type: ignore[arg-type]


def test_drift_and_records(made: Workspace, result: Any) -> None:
    nearest = next(iter(result.scores))
    accepts, _ = result.drift(0.01)[nearest]
    assert accepts == pytest.approx(0.01, rel=0.02)
    with pytest.raises(UserError, match=r"kept at rates such as 0\.01 and 0\.001"):
        result.drift(0.0123)
    assert len(result.records) == len(result.scores)
    for split, path in zip(result.scores, result.records):
        record = records.read(path)
        assert (record["method"]["name"], record["source"], record["split"]["id"]) == ("my-pixels", "submitted", split)
        assert record["scores"]["last"]["recall@1"] == pytest.approx(result.scores[split]["recall@1"])
        assert record["thresholds"]["tar"] == pytest.approx(result.thresholds[split]["tar"])
    assert RATES == (0.01, 0.001)


class Bad:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def encode(self, images: list[Any]) -> Any:
        return self.answer(len(images))


@pytest.mark.parametrize(("answer", "said"), [
    (lambda n: torch.full((n, 4), torch.nan), "NaN or infinite numbers for image .* of glyphs-mini"),
    (lambda n: np.ones(n), r"shape \(64,\) for 64 images; one row of numbers an image"),
    (lambda n: np.ones((n - 1, 3)), r"shape \(63, 3\) for 64 images"),
    (lambda n: [["a"]] * n, "one row of numbers an image"),
    (lambda n: [[1, 2]] * (n - 1) + [[1]], "no table .* one row of numbers an image"),
    (lambda n: 1e300 * np.eye(n), "NaN or infinite numbers for image .* in single precision"),
    (lambda n: 1e-300 * np.eye(n), "zeros alone for image .* in single precision"),
    (lambda n: np.eye(n)[::-1] * (np.arange(n) > 0), r"zeros alone for image .* of glyphs-mini \(1 of 64"),
])
def test_a_bad_answer_is_one_line(made: Workspace, answer: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        oodml.evaluate(Bad(answer), "glyphs-mini", work=made.root, splits="1")


def test_bad_questions_are_one_line(made: Workspace, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a int has no encode\(images\)"):
        oodml.evaluate(3, "glyphs-mini", work=made.root)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="has no ladder yet"):
        oodml.evaluate(Pixels(), "glyphs-mini", work=tmp_path)
    with pytest.raises(UserError, match="at least one image"):
        oodml.evaluate(Pixels(), "glyphs-mini", work=made.root, batch=0)
