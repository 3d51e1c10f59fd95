"""A name means one dataset: the folder whose ladder was built, and never a built-in one's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oodml
from benchmark import cli, datasets, ladders
from benchmark.runs import tune
from benchmark.runs.job import SweepOptions
from benchmark.runs.trials import TuneOptions
from benchmark.utils.workspace import Workspace
from reports import packing, records
from reports.storage.paths import is_plain
from splits import manifest
from tests import layouts, tiny_sweep
from tests.sample_records import make_record

BUILD = ["--backbone", "conv4", "--device", "cpu"]


def pictures(folder: Path, classes: str = "abcd", salt: str = "") -> str:
    """A dataset of two images a class."""
    for name in classes:
        for i in range(2):
            layouts.picture(folder / name / f"{i}.png", f"{salt}{name}{i}")
    return f"folder:{folder}"


def packed_run(folder: Path) -> Path:
    """A folder of packed records with one run."""
    records.write(folder / "runs" / "one", make_record("cars", 1, "margin", 0, 0.5))
    packing.pack([folder / "runs"], folder / "pack")
    return folder / "pack"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command says that refuses."""
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_dataset_of_ones_own_is_read_by_the_name_it_has_in_outputs(tmp_path: Path,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    birds = pictures(tmp_path / "birds")
    cli.main(["splits", "build", "--dataset", birds, "--default-only", "--work", str(tmp_path)])
    capsys.readouterr()
    cli.main(["splits", "export", "--dataset", "birds", "--work", str(tmp_path)])
    assert "birds-1.csv" in capsys.readouterr().out
    folder = tmp_path / "splits"
    assert (datasets.source("birds", folder), datasets.source("cub", folder)) == (birds, "cub")
    shutil.copy(folder / "birds.json", folder / "other.json")
    assert datasets.source("other", folder) == "other", "that is the ladder of birds"
    (folder / "birds.json").write_text("[" * 5000)
    assert datasets.source("birds", folder) == "birds"


class Mean:
    """The mean colour of an image."""

    def encode(self, images: list[Any]) -> np.ndarray:
        return np.stack([np.asarray(image).mean((0, 1)) for image in images])


def test_a_search_and_an_encoder_find_it_by_any_name_as_a_run_does(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    birds, made = pictures(tmp_path / "birds", "abcdefghijklmnop"), Workspace.at(tmp_path / "work")
    ladders.save(ladders.build(birds, made, default_only=True), made)
    monkeypatch.chdir(tmp_path)
    study = tiny_sweep.study("margin", datasets=("birds", "folder:birds", birds), splits="default")
    (search,) = tune._searches(study, TuneOptions(1), SweepOptions(made), print)
    assert search.part.datasets == (birds,)
    scores = [oodml.evaluate(Mean(), name, work=made.root, device="cpu").scores for name in study.parts[0].datasets]
    assert scores[0] == scores[1] == scores[2]


def test_a_manifest_does_not_turn_a_built_in_name_into_another_dataset(tmp_path: Path) -> None:
    cli.main(["splits", "build", "--dataset", pictures(tmp_path / "birds"), "--default-only", "--work", str(tmp_path)])
    folder = tmp_path / "splits"
    facts = json.loads((folder / "birds.json").read_text())
    (folder / "cub.json").write_text(json.dumps(facts | {"dataset": "cub"}))
    assert datasets.source("cub", folder) == "cub"


@pytest.mark.parametrize("name", ["cub", "fish"])
def test_unpacking_leaves_out_a_ladder_under_another_name(name: str, tmp_path: Path,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["splits", "build", "--dataset", pictures(tmp_path / "birds"), "--default-only", "--work", str(tmp_path)])
    pack = packed_run(tmp_path)
    (pack / "splits").mkdir()
    for stem in ("birds", name):
        shutil.copy(tmp_path / "splits" / "birds.json", pack / "splits" / f"{stem}.json")
    cli.main(["records", "unpack", str(pack), "--work", str(tmp_path / "new")])
    assert f"{name}.json is a ladder of another dataset, birds" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "new" / "splits").iterdir()] == ["birds.json"]


def test_unpacking_takes_all_ladders_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["splits", "build", "--dataset", pictures(tmp_path / "birds"), "--default-only", "--work", str(tmp_path)])
    pack = packed_run(tmp_path)
    (pack / "splits").mkdir()
    for stem in ("a\x1b[31m", "birds"):
        shutil.copy(tmp_path / "splits" / "birds.json", pack / "splits" / f"{stem}.json")
    assert "\x1b" not in refused(["records", "unpack", str(pack), "--work", str(tmp_path / "new")], capsys)
    assert not (tmp_path / "new" / "splits").exists()


@pytest.mark.parametrize("classes", ["abcdefgh", "ijklmnop"])
def test_two_folders_of_one_name_do_not_take_each_other_s_ladder(classes: str, tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Neither where their files have other names, nor where the same names hold other images."""
    one = pictures(tmp_path / "x" / "images", "abcdefgh")
    two = pictures(tmp_path / "y" / "x" / "images", classes, "other")
    where = ["--work", str(tmp_path / "work")]
    for _ in range(2):
        cli.main(["splits", "build", "--dataset", one, *BUILD, *where])
    assert "warning" not in capsys.readouterr().err
    for words in (["splits", "build", *BUILD], ["splits", "show"], ["splits", "export"],
                  ["plan", "--methods", "margin", "--protocol", "demo"]):
        told = refused([*words, "--dataset", two, *where], capsys)
        assert f"x-images.json is the ladder of {one}, which is named 'x-images' as {two} is; rename one" in told
    cli.main(["splits", "build", "--dataset", two, "--replace", *BUILD, *where])
    assert f"is the ladder of {two}" in refused(["splits", "show", "--dataset", one, *where], capsys)


def test_a_dataset_may_be_moved_or_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = pictures(tmp_path / "x" / "images", "abcdefgh")
    where = ["--work", str(tmp_path / "work")]
    cli.main(["splits", "build", "--dataset", one, *BUILD, *where])
    shutil.copytree(tmp_path / "x", tmp_path / "y" / "x")
    cli.main(["splits", "show", "--dataset", f"folder:{tmp_path / 'y' / 'x' / 'images'}", *where])
    shutil.rmtree(tmp_path / "x")
    pictures(tmp_path / "y" / "x" / "images", "abcdefgh", "mended")
    cli.main(["splits", "show", "--dataset", f"folder:{tmp_path / 'y' / 'x' / 'images'}", *where])
    assert manifest.load(tmp_path / "work" / "splits" / "x-images.json").dataset == "x-images"


def test_embeddings_are_scored_on_a_pinned_ladder_of_ones_own(tmp_path: Path,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    """Named by its file, with or without the folder; a pack is for the ladders that come with the suite."""
    birds, work = pictures(tmp_path / "my birds" / "birds"), ["--work", str(tmp_path / "work")]
    cli.main(["splits", "build", "--dataset", birds, *BUILD, "--default-only", *work])
    cli.main(["splits", "pin", "birds@v1", "--dataset", birds, "--out", str(tmp_path / "pins"), *work])
    fixed = str(tmp_path / "pins" / "birds@v1.json")
    index = datasets.load(birds, tmp_path)
    np.savez(tmp_path / "mine.npz", embeddings=np.random.default_rng(0).normal(size=(len(index), 4)), ids=index.paths)
    own = ["--work", str(tmp_path / "fresh")]
    cli.main(["splits", "use", fixed, "--dataset", birds, *own])
    for where in ([], ["--dataset", birds], ["--dataset", "birds"]):
        capsys.readouterr()
        cli.main(["evaluate", "--ladder", fixed, *where, "--embeddings", str(tmp_path / "mine.npz"), *own])
        assert "(submitted)" in (said := capsys.readouterr().out)
        assert "oodml submit" not in said
    cli.main(["splits", "use", fixed, "--dataset", birds, *own])
    assert "1 finished run of birds in" in capsys.readouterr().out
    assert "is a ladder of birds, not of cub" in refused(
        ["evaluate", "--ladder", fixed, "--dataset", "cub", "--embeddings", str(tmp_path / "mine.npz"), *own], capsys)
    assert "birds@v1 is a ladder of your own" in refused(["submit", str(tmp_path / "mine"), *own], capsys)
    assert "no results on cub@v1, but on birds@v1" in refused(
        ["submit", str(tmp_path / "mine"), "--ladder", "cub@v1", *own], capsys)
    (tmp_path / "my birds" / "birds" / "a" / "0.png").unlink()
    told = refused(["splits", "use", fixed, "--dataset", birds, "--work", str(tmp_path / "third")], capsys)
    assert f"--work {tmp_path / 'third'} --dataset '{birds}' --incomplete`" in told
    (tmp_path / "birds").mkdir()
    assert "there is no file" in refused(["splits", "verify", str(tmp_path / "birds"), *own], capsys)


def test_names_too_long_for_a_file_are_cut_and_stay_apart(tmp_path: Path) -> None:
    members = [pictures(tmp_path / f"{'鳥' * 70} {'very long ' * 3}{i}", salt=str(i)) for i in range(2)]
    names = [datasets.load(name, tmp_path).name for name in (*members, f"union:{','.join(members)}")]
    assert len(set(names)) == 3
    assert all(is_plain(name) for name in names)
    assert names[2].startswith("union-鳥鳥")
    cli.main(["splits", "build", "--dataset", members[0], "--default-only", "--work", str(tmp_path)])
    assert datasets.source(names[0], tmp_path / "splits") == members[0]
