"""Packs on a union: the results of each dataset are those of its own queries, and follow from the embeddings too."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmark.ladders import pinned
from benchmark.submissions import check, pack
from benchmark.submissions.evaluate import evaluate_ladder
from benchmark.utils.workspace import Workspace
from reports import records
from reports.storage import queries
from splits import pinning
from tests.birds import CARD
from tests.test_packs import mended

LADDER = "glyphs-union@v1"
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packs `one/mine` of outcomes and `two/mine` with embeddings."""
    root = tmp_path_factory.mktemp("packs")
    workspace = Workspace.at(root / "work", root / "data").writable()
    index, _ = pinned.use(LADDER, workspace)
    random = np.random.default_rng(0)
    x = random.normal(size=(len(index.classes), 8))[index.labels] + random.normal(size=(len(index), 8))
    np.savez(root / "mine.npz", embeddings=x.astype(np.float32), ids=index.paths)
    card = {**CARD, "method": "mine"}
    (root / "card.toml").write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in card.items()))
    evaluate_ladder(workspace, embeddings=str(root / "mine.npz"), dataset="glyphs-union",
                    card=root / "card.toml", device="cpu", keep=True)
    for folder, with_embeddings in (("one", False), ("two", True)):
        (root / folder).mkdir()
        pack.write(root / folder / "mine", workspace.runs, name="mine", embeddings=with_embeddings)
    return root


@pytest.mark.parametrize("folder", ["one", "two"])
def test_a_pack_on_a_union_is_sound(home: Path, folder: str) -> None:
    assert check.problems(home / folder / "mine") == []


def better(arrays: Arrays) -> None:
    arrays["part_first_hit"][:] = 1
    for name in ("part_ap_r", "part_ap_1000"):
        arrays[name][:] = 65535


@pytest.mark.parametrize(("folder", "change", "words"), [
    ("two", better, r"do not follow from the embeddings: .* of glyphs-\w+ is"),
    ("one", lambda a: a["part"].fill(0), "other datasets than their classes"),
    ("one", lambda a: a.update(part_names=a["part_names"][::-1]), "the outcomes are of the datasets glyphs-shapes, "),
    ("one", lambda a: a["part_ap_r"].fill(65535), r"impossible.*\(map@r\)"),
    ("one", lambda a: a["ap_1000"].fill(65535), r"impossible.*\(map@1000\)"),
    ("one", lambda a: a.update(part_first_hit=np.full(len(a["labels"]), 10**12)), "lies at rank 1000000000000"),
])
def test_forged_results_of_a_dataset_are_refused(home: Path, tmp_path: Path, folder: str,
                                                 change: Callable[[Arrays], None], words: str) -> None:
    """The record is made to follow from them, as a forger would."""
    mine = shutil.copytree(home / folder / "mine", tmp_path / "mine")
    path = mine / "1-s0" / "queries.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez_compressed(path, **arrays)
    facts = json.loads((mine / "pack.json").read_text())
    records.write(path.parent, pack.record_of(
        pinning.get(LADDER), 1, 0, facts["card"], queries.load(path), path.read_bytes(), facts["level"],
        {key: facts[key] for key in ("version", "date")}))
    mended(mine)
    (line,) = check.problems(mine)
    assert re.search(words, line), line
