"""Pixels, runs and ladders follow what the files of a dataset contain, not their names or their place."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from benchmark import cli, datasets, ladders
from benchmark.commands.datasets import command
from benchmark.config.spec import RunSpec
from benchmark.data import contents, decoding, weights
from benchmark.data.decoding import CHUNK
from benchmark.data.store import open_store
from benchmark.runs import forecast, recording, renumbering, status, sweep, worker
from benchmark.runs.job import Job, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils import provenance
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records, selection
from tests import tiny_sweep
from tests.sample_records import make_record


def photos(root: Path, shade: int, classes: str = "abcd", each: int = 2) -> Path:
    """Class folders of small pictures; another shade gives other pixels in files of the same names and sizes."""
    for number, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            Image.new("RGB", (12, 10), (shade, 9 * number, i)).save(root / name / f"{i}.bmp")
    return root


def jobs(work: Path, folder: Path) -> list[Job]:
    options = SweepOptions(Workspace.at(work))
    return gather(tiny_sweep.study("margin", datasets=(f"folder:{folder}",), seeds=1), options).jobs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Job]:
    """(working folder, images, its finished run)."""
    root = tmp_path_factory.mktemp("contents")
    work, images = root / "work", photos(root / "one" / "birds", 10)
    ladders.save(ladders.build(f"folder:{images}", Workspace.at(work), default_only=True), Workspace.at(work))
    (job,) = jobs(work, images)
    worker.run(job.spec, job.context)
    return work, images, job


def test_other_images_of_the_same_names_are_another_run(trained: tuple[Path, Path, Job], tmp_path: Path) -> None:
    work, images, job = trained
    record = records.read(job.folder)
    assert record["contents"] == job.spec.contents != ""
    other = photos(tmp_path / "birds", 200)
    index, before = (datasets.load(f"folder:{folder}", tmp_path) for folder in (other, images))
    assert index.hash == before.hash
    assert [os.path.getsize(file) for file in index.files] == [os.path.getsize(file) for file in before.files]
    (another,) = jobs(work, other)
    assert another.spec.identity != job.spec.identity
    assert not another.done
    pixels = [open_store(one, work / "cache", progress=False) for one in (before, index)]
    assert [one.image(0)[0, 0, 0] for one in pixels] == [10, 200]
    with pytest.raises(UserError, match="changed after this run was planned"):
        worker.run(dataclasses.replace(another.spec, contents="another"), another.context)


def test_a_copy_elsewhere_is_the_same_run_and_is_not_decoded_again(
        trained: tuple[Path, Path, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, images, job = trained
    copied = Path(shutil.copytree(images, tmp_path / "birds", copy_function=shutil.copyfile))
    monkeypatch.setattr(decoding, "decode", None)
    (again,) = jobs(work, copied)
    assert again.spec.identity == job.spec.identity
    assert again.done
    index = datasets.load(f"folder:{copied}", tmp_path)
    assert open_store(index, work / "cache", progress=False).contents == job.spec.contents


def test_runs_of_an_earlier_version_stand_for_their_files_alone(
        trained: tuple[Path, Path, Job], tmp_path: Path) -> None:
    """A run whose spec names no contents, as before: done for those files, not for others."""
    made, images, job = trained
    work = tmp_path / "work"
    shutil.copytree(made / "splits", work / "splits")
    former = dataclasses.replace(job.spec, contents="")
    folder = former.folder(Workspace.at(work))
    shutil.copytree(job.folder, folder)
    (folder / "spec.json").write_text(json.dumps(former.facts()))
    index = datasets.load(f"folder:{images}", tmp_path)
    decoded = work / "cache" / f"images-birds-{index.hash[:8]}"
    shutil.copytree(open_store(index, made / "cache", progress=False).folder, decoded)

    (other,) = jobs(work, photos(tmp_path / "other" / "birds", 200))
    assert not other.done, "its pixels are not those that were decoded"
    (same,) = jobs(work, images)
    assert same.done
    assert same.spec.identity == former.identity
    shutil.rmtree(work / "cache")
    assert not jobs(work, photos(tmp_path / "third" / "birds", 90))[0].done, "the files are written down by now"
    assert jobs(work, images)[0].done


def test_what_was_decoded_before_a_broken_file_serves_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "many", 5, "ab", CHUNK)
    broken = root / "b" / "7.bmp"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:40])
    index = datasets.load(f"folder:{root}", tmp_path)
    with pytest.raises(UserError, match=r"b/7\.bmp"):
        open_store(index, tmp_path / "cache", jobs=1, progress=False)
    broken.write_bytes(whole)
    decode, decoded = decoding.decode, []
    monkeypatch.setattr(decoding, "decode", lambda index, i, shorter: decoded.append(i) or decode(index, i, shorter))
    open_store(index, tmp_path / "cache", jobs=1, progress=False).verify()
    assert min(decoded) == CHUNK


def test_times_that_an_archive_set_tell_nothing(tmp_path: Path) -> None:
    """Two archives unpack to files of the same names, sizes and times, or one is unpacked over the other."""
    shades = []
    for folder, shade in (("one/birds", 10), ("two/birds", 200), ("one/birds", 90)):
        root = photos(tmp_path / folder, shade)
        for file in root.rglob("*.bmp"):
            os.utime(file, ns=(0, 0))
        index = datasets.load(f"folder:{root}", tmp_path)
        shades.append(open_store(index, tmp_path / "cache", progress=False).image(0)[0, 0, 0])
    assert shades == [10, 200, 90]


def test_a_change_that_keeps_size_and_times_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a disk that loses bytes."""
    monkeypatch.setattr(contents, "stamp", lambda index: index.hash)
    root = photos(tmp_path / "mine", 30)
    words = [f"folder:{root}", "--work", str(tmp_path / "work"), "--jobs", "1"]
    assert CliRunner().invoke(command, ["prepare", *words]).exit_code == 0
    before = CliRunner().invoke(command, ["check", *words])
    assert before.exit_code == 0
    assert "hash of the files' contents: " in before.output
    for word, code in (("check", 1), ("prepare", 0)):
        file = root / "c" / "1.bmp"
        found = file.stat()
        file.write_bytes(bytes(255 - byte if i > 60 else byte for i, byte in enumerate(file.read_bytes())))
        os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns))
        told = CliRunner().invoke(command, [word, *words])
        assert told.exit_code == code
        assert "c/1.bmp" in told.output
        assert "size and time of change are the same" in told.output
        assert CliRunner().invoke(command, ["prepare", *words]).exit_code == 0
    index = datasets.load(f"folder:{root}", tmp_path)
    assert not contents.changed_silently(index, tmp_path / "work" / "cache")


def test_the_hash_of_before_is_taken_where_all_files_are_gone_and_not_where_some_are(tmp_path: Path) -> None:
    root, cache = photos(tmp_path / "birds", 10), tmp_path / "cache"
    index = datasets.load(f"folder:{root}", tmp_path)
    before = open_store(index, cache, progress=False).contents
    for name in ("a/0.bmp", "d/1.bmp"):  # the first and the last
        (root / name).unlink()
    assert contents.contents(index, cache) != before
    shutil.rmtree(root)
    assert contents.contents(index, cache) == before


def test_a_ladder_that_runs_stand_on_is_replaced_when_asked_for(
        trained: tuple[Path, Path, Job], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = Path(shutil.copytree(trained[0], tmp_path / "work"))
    path = work / "splits" / "birds.json"
    kept = path.read_bytes()
    words = ["splits", "build", "--default-only", "--dataset", f"folder:{trained[1]}", "--work", str(work)]
    cli.main(words)  # the same ladder again is no loss
    other = [*words[:-3], f"folder:{photos(tmp_path / 'birds', 10, 'abcdef')}", *words[-2:]]
    with pytest.raises(SystemExit) as ended:
        cli.main(other)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "1 run stands in" in told
    assert "--replace" in told
    assert path.read_bytes() == kept
    cli.main([*other, "--replace"])
    assert path.read_bytes() != kept
    (aside,) = (work / "splits" / "replaced").iterdir()
    assert aside.read_bytes() == kept


def test_a_rung_that_got_another_number_keeps_its_runs(trained: tuple[Path, Path, Job], tmp_path: Path) -> None:
    work = Path(shutil.copytree(trained[0], tmp_path / "work"))
    workspace = Workspace.at(work)
    ladder = ladders.load(workspace, f"folder:{trained[1]}")
    default = ladder.splits[0]
    other = dataclasses.replace(default, kind="swap", train=default.test, test=default.train, validation=())
    ladder = dataclasses.replace(ladder, splits=(other, dataclasses.replace(default, id=2)))
    ladders.save(ladder, workspace)
    (job,) = gather(tiny_sweep.study("margin", datasets=(f"folder:{trained[1]}",), splits="2", seeds=1),
                    SweepOptions(workspace)).jobs
    assert not job.done
    lines: list[str] = []
    forecast.show(tiny_sweep.study("margin", datasets=(f"folder:{trained[1]}",), splits="2", seeds=1),
               SweepOptions(workspace), lines.append)
    assert lines[0].splitlines()[-1].split() == ["all", "1", "0", "0", "0", "0"], "as `oodml run` will find it"
    assert renumbering.take_over(job)
    assert status.look(job.folder).kind == "done"
    assert recording.refresh(job.folder, ladder)
    assert records.read(job.folder)["split"]["id"] == 2
    assert (read := RunSpec.read(job.folder)) is not None
    assert (read.split, read.identity) == (2, job.spec.identity)
    assert records.read(work / trained[2].folder.relative_to(trained[0].absolute()))["split"]["id"] == 1
    assert not renumbering.take_over(job)
    earlier = work / trained[2].folder.relative_to(trained[0].absolute())
    assert (earlier / weights.RUN).samefile(job.folder / weights.RUN)
    assert not (earlier / "log.jsonl").samefile(job.folder / "log.jsonl"), "which a run that is done anew adds to"


def test_a_ladder_of_other_images_is_told(trained: tuple[Path, Path, Job], tmp_path: Path) -> None:
    made = Workspace.at(shutil.copytree(trained[0], tmp_path / "work"))
    name = f"folder:{trained[1]}"
    ladder = ladders.load(made, name)
    for built, count in ((trained[2].spec.contents, 0), ("0" * 64, 1)):
        path = ladders.save(dataclasses.replace(ladder, features={"contents": built}), made)
        matrix = gather(tiny_sweep.study("margin", datasets=(name,), seeds=1), SweepOptions(made))
        assert len(matrix.warnings) == len(ladders.verify(path, made, name)) == count
    assert "of other images than its files contain now" in matrix.warnings[0]


def test_runs_on_other_files_than_the_newest_are_set_aside(tmp_path: Path) -> None:
    def made(seed: int, **changes: Any) -> None:
        records.write(tmp_path / str(seed), make_record("cub", 1, "margin", seed=seed, **changes))

    made(0)
    made(1, contents="a" * 64)
    made(2, contents="b" * 64)
    runs, notes = selection.select(records.collect(tmp_path))
    assert sorted(runs["seed"]) == [0, 2]
    assert any("1 run on other files of cub" in note and "`oodml run`" in note for note in notes)


def test_runs_on_the_files_of_before_are_shown_again_by_their_command(trained: tuple[Path, Path, Job],
                                                                      tmp_path: Path) -> None:
    """Also where they are done already: nothing of them is trained, and they count from then on."""
    made = Workspace.at(shutil.copytree(trained[0], tmp_path / "work"))
    changed = make_record(trained[2].spec.dataset, 1, "arcface", seed=0, contents="b" * 64)
    changed["provenance"]["date"] = "2100-01-01T00:00:00Z"
    records.write(made.runs / trained[2].spec.dataset / "1" / "arcface" / "s0-00000000", changed)
    shown = [set(selection.select(records.collect(made.runs))[0]["method"])]
    for _ in range(2):
        lines: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(provenance, "now", lambda: "2100-01-02T00:00:00Z")
            sweep.run(tiny_sweep.study("margin", datasets=(f"folder:{trained[1]}",), splits="1", seeds=1),
                      SweepOptions(made), lines.append)
        shown.append(set(selection.select(records.collect(made.runs))[0]["method"]))
        told = [line for line in lines if "had other files than lie there now" in line]
        assert len(told) == (len(shown) == 2), "once"
    assert shown == [{"arcface"}, {"margin"}, {"margin"}]


def test_drawn_images_have_no_contents_and_keep_their_identity(tmp_path: Path) -> None:
    index = datasets.load("glyphs-mini", tmp_path)
    assert contents.contents(index, tmp_path) == ""
    assert not list(tmp_path.iterdir())
