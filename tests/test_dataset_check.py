"""What `oodml datasets check` says is wrong with a dataset, found by breaking sound ones in known ways."""

from __future__ import annotations

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from benchmark import datasets
from benchmark.commands.datasets import command
from benchmark.datasets import Counts
from benchmark.overview.faults import CHUNK, examine
from benchmark.utils.signals import block_signals
from tests import layouts


def check(name: str, data: Path, *options: str):
    return CliRunner().invoke(command, ["check", name, "--data", str(data), "--jobs", "1", *options])


@pytest.fixture
def own(tmp_path) -> Path:
    """Four classes of three images; a and b are trained on."""
    for name in "abcd":
        for i in range(3):
            layouts.picture(tmp_path / "own" / name / f"{i}.jpg", name + str(i))
    return tmp_path / "own"


def findings(own: Path) -> dict[str, Any]:
    report = examine(datasets.load(f"folder:{own}", own), jobs=1)
    kinds = ("missing", "unreadable", "extra", "duplicates", "single", "counts", "empty", "loose", "unread", "hidden")
    return {kind: getattr(report, kind) for kind in kinds if getattr(report, kind)}


def test_a_sound_dataset(own):
    layouts.litter(own)
    assert findings(own) == {}
    result = check(f"folder:{own}", own)
    assert result.exit_code == 0, result.output
    assert "sound; 6 images of 2 classes to train on, 6 of 2 to test on" in result.output


def test_images_of_every_mode_are_sound(own):
    exif = Image.Exif()
    exif[0x0112] = 8
    for i, (mode, suffix) in enumerate([("L", "JPG"), ("CMYK", "jpg"), ("RGBA", "png"), ("LA", "png")]):
        layouts.picture(own / "a" / f"m{i}.{suffix}", i, mode, format={"jpg": "JPEG"}.get(suffix.lower(), suffix))
    layouts.picture(own / "a" / "turned.jpg", 9, exif=exif)
    assert findings(own) == {}


def test_damaged_images_are_named_with_their_cause(own):
    layouts.picture(own / "a" / "0.jpg", "large", size=(200, 200))
    whole = (own / "a" / "0.jpg").read_bytes()
    (own / "a" / "0.jpg").write_bytes(whole[:len(whole) // 2])
    (own / "b" / "1.jpg").write_bytes(b"")
    (own / "c" / "2.jpg").write_text("<html>404 Not Found</html>")
    png = layouts.picture(own / "d" / "3.png", "png", size=(64, 64)).read_bytes()
    (own / "d" / "3.png").write_bytes(png[:100])
    found = findings(own)
    assert set(found) == {"unreadable"}
    causes = found["unreadable"]
    assert set(causes) == {"a/0.jpg", "b/1.jpg", "c/2.jpg", "d/3.png"}
    assert "truncated" in causes["a/0.jpg"]
    assert (causes["b/1.jpg"], causes["c/2.jpg"]) == ("empty file", "no image")
    result = check(f"folder:{own}", own)
    assert result.exit_code == 1
    assert "4 images cannot be decoded" in result.output
    assert "expected tree" not in result.output, "the layout is right"


def test_duplicates_across_sides_by_content(own):
    (own / "c" / "copy.jpg").write_bytes((own / "a" / "1.jpg").read_bytes())
    with Image.open(own / "b" / "2.jpg") as image:
        image.save(own / "d" / "same pixels.png")
    (own / "a" / "same side.jpg").write_bytes((own / "a" / "2.jpg").read_bytes())
    assert findings(own) == {"duplicates": [("a/1.jpg", "c/copy.jpg"), ("b/2.jpg", "d/same pixels.png")]}
    assert "2 test images are training images too" in check(f"folder:{own}", own).output


def test_a_turned_copy_is_a_duplicate(own):
    exif = Image.Exif()
    exif[0x0112] = 3
    with Image.open(own / "a" / "0.jpg") as image:
        upright = image.convert("RGB")
    upright.rotate(180).save(own / "c" / "turned.png", exif=exif)
    assert findings(own) == {"duplicates": [("a/0.jpg", "c/turned.png")]}


def test_a_class_of_one_image(own):
    layouts.picture(own / "e" / "0.jpg", "alone")
    assert findings(own) == {"single": ["e"]}
    assert "classes of one image: 1, the first 'e'" in CliRunner().invoke(command, ["show", f"folder:{own}"]).output


def test_missing_and_extra_files_and_wrong_counts_of_an_official_layout(tmp_path):
    layouts.cub(tmp_path / "cub200")
    images = tmp_path / "cub200" / "images"
    index = datasets.load("cub", tmp_path)
    (images / index.paths[0]).unlink()
    layouts.picture(images / "001.Bird_1_1" / "more.JPG", 1, format="JPEG")
    layouts.picture(images / "201.Other" / "1.jpg", 2)
    layouts.litter(tmp_path)
    report = examine(index, Counts(5, 2, 6, 2), jobs=1)
    assert report.missing == [index.paths[0]]
    assert report.extra == ["001.Bird_1_1/more.JPG"]
    assert report.counts == ""
    assert not report.sound
    result = check("cub", tmp_path)
    assert result.exit_code == 1
    for line in ("5 images of 2 classes to train on, 6 of 2 to test on; official are 5,864 images of 100 classes",
                 f"1 listed image is not there: {index.paths[0]}", "image_class_labels.txt"):
        assert line in result.output


@pytest.mark.parametrize(("name", "folder", "write", "extra"), [
    ("cars", "cars196", layouts.cars, "car_ims/999999.jpg"),
    ("sop", "sop", layouts.sop, "bicycle_final/9_0.JPG"),
    ("inshop", "inshop", layouts.inshop, "Img/img/MEN/9.jpg"),
    ("flowers", "flowers", layouts.flowers, "jpg/image_99999.jpg"),
    ("aircraft", "aircraft", layouts.aircraft, "data/images/9.jpg"),
])
def test_extra_images_of_every_layout(tmp_path, name, folder, write, extra):
    write(tmp_path / folder)
    assert examine(datasets.load(name, tmp_path), jobs=1).extra == []
    layouts.picture(tmp_path / folder / extra, 1, format="JPEG")
    (found,) = examine(datasets.load(name, tmp_path), jobs=1).extra
    assert extra.endswith(found)


def test_absent_and_broken_datasets_fail_the_check_with_their_tree(tmp_path):
    result = check("sop", tmp_path)
    assert result.exit_code == 1
    assert "Ebay_train.txt" in result.output
    layouts.sop(tmp_path / "sop")
    (tmp_path / "sop" / "Ebay_train.txt").unlink()
    result = check("sop", tmp_path)
    assert result.exit_code == 1
    assert f"{tmp_path / 'sop' / 'Ebay_train.txt'} is missing" in result.output


def test_a_union_is_checked_through_its_members(tmp_path, own):
    layouts.cub(tmp_path / "cub")
    layouts.picture(tmp_path / "cub" / "images" / "004.Bird_4_4" / "new.jpg", 1)
    (own / "d" / "x.jpg").write_bytes((tmp_path / "cub/images/001.Bird_1_1/001.Bird_1_1_0000.jpg").read_bytes())
    (own / "c" / "0.jpg").unlink()
    index = datasets.load(f"union:cub,folder:{own}", tmp_path)
    (own / "c" / "1.jpg").unlink()
    (own / "c" / "2.jpg").write_bytes(b"")
    report = examine(index, jobs=1)
    assert report.unreadable == {"own/c/2.jpg": "empty file"}
    assert report.missing == ["own/c/1.jpg"]
    assert report.extra == ["cub/004.Bird_4_4/new.jpg"]
    assert report.duplicates == [("cub/001.Bird_1_1/001.Bird_1_1_0000.jpg", "own/d/x.jpg")]


def test_parallel_processes_find_the_same(tmp_path):
    for i in range(2 * CHUNK + 3):
        layouts.picture(tmp_path / "many" / f"c{i % 4}" / f"{i:04d}.jpg", i % 130, size=(8, 8))
    (tmp_path / "many" / "c1" / "0001.jpg").write_bytes(b"")
    index = datasets.load(f"folder:{tmp_path / 'many'}", tmp_path)
    (tmp_path / "many" / "c2" / "0002.jpg").unlink()
    done: list[int] = []
    apart = examine(index, jobs=2, progress=done.append)
    assert sum(done) == len(index)
    assert apart == examine(index, jobs=1)
    assert apart.missing == ["c2/0002.jpg"]
    assert apart.unreadable == {"c1/0001.jpg": "empty file"}
    assert apart.duplicates == [("c0/0000.jpg", "c2/0130.jpg")]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_files_changed_under_the_same_names_are_noticed(own, tmp_path, jobs):
    """Decoded once, then one picture replaced by another, one turned by its EXIF tag, and one saved without loss."""
    for i in range(CHUNK):
        layouts.picture(own / "d" / f"more{i}.png", i)
    Image.open(own / "a" / "1.jpg").save(own / "a" / "whole.png")
    name = f"folder:{own}"
    work = ["--work", str(tmp_path / "work"), "--jobs", jobs]
    prepared = CliRunner().invoke(command, ["prepare", name, "--data", str(own), *work], catch_exceptions=False)
    assert prepared.exit_code == 0, prepared.output
    assert CliRunner().invoke(command, ["check", name, "--data", str(own), *work]).exit_code == 0

    exif = Image.Exif()
    exif[0x0112] = 3
    layouts.picture(own / "b" / "2.jpg", "another")
    layouts.picture(own / "c" / "0.jpg", "c0", exif=exif)
    Image.open(own / "a" / "whole.png").save(own / "a" / "whole.png", compress_level=1)
    done = CliRunner().invoke(command, ["check", name, "--data", str(own), *work])
    assert done.exit_code == 1
    (line,) = [line for line in done.output.splitlines() if ": changed: " in line]
    assert "2 images" in line
    assert "b/2.jpg, c/0.jpg" in line
    assert CliRunner().invoke(command, ["prepare", name, "--data", str(own), *work]).exit_code == 0
    assert CliRunner().invoke(command, ["check", name, "--data", str(own), *work]).exit_code == 0


def test_a_copy_that_changed_on_disk_is_noticed_when_it_is_prepared_again(own, tmp_path):
    arguments = ["prepare", f"folder:{own}", "--data", str(own), "--work", str(tmp_path / "work"), "--jobs", "1"]
    assert CliRunner().invoke(command, arguments).exit_code == 0
    (pixels,) = (tmp_path / "work" / "cache").rglob("pixels.bin")
    content = bytearray(pixels.read_bytes())
    content[100] ^= 1
    pixels.write_bytes(content)
    assert "have changed on disk" in str(CliRunner().invoke(command, arguments).exception)


def test_what_of_a_folder_is_no_class_is_told(own):
    (own / "nothing").mkdir()
    layouts.snap("no JPEG", own / "phone" / "1.HEIC")
    assert findings(own) == {"empty": ["nothing (empty)", "phone (.heic)"], "unread": [".heic"]}
    result = check(f"folder:{own}", own)
    assert result.exit_code == 1
    assert "empty: 2 class folders" in result.output
    assert "nothing (empty), phone (.heic)" in result.output
    assert "PATH/CLASS/*.jpg" in result.output


def test_files_that_play_no_part_are_no_fault(own):
    layouts.picture(own / "preview.png", 1)
    layouts.snap("of whom", own / "a" / "about.txt")
    layouts.picture(own / "a" / ".old.jpg", 2)
    assert findings(own) == {"loose": ["preview.png"], "unread": [".txt"], "hidden": ["a/.old.jpg"]}
    result = check(f"folder:{own}", own)
    assert result.exit_code == 0
    for line in ("note: 1 image lies in no class folder and plays no part: preview.png", "not read as images: .txt",
                 "note: 1 hidden image, whose name begins with a dot, is not read: a/.old.jpg",
                 f"folder:{own}: sound"):
        assert line in result.output
    union = examine(datasets.load(f"union:glyphs-arrows,folder:{own}", own), jobs=1)
    assert (union.loose, union.unread, union.sound) == (["own/preview.png"], [".txt"], True)


def test_beside_train_and_test_nothing_is_read(tmp_path):
    for place in ("train/a", "train/b", "test/c", "val/d"):
        for i in range(2):
            layouts.picture(tmp_path / "own" / place / f"{i}.jpg", place + str(i))
    (tmp_path / "own" / "test" / "e").mkdir()
    assert findings(tmp_path / "own") == {"empty": ["test/e (empty)"], "loose": ["val/d/0.jpg", "val/d/1.jpg"]}


def test_a_class_folder_that_cannot_be_read_is_a_fault(own, monkeypatch):
    """As `chmod 000` makes it for all but the superuser."""
    scan = os.scandir

    def closed(place):
        if Path(place).name == "b":
            raise PermissionError(13, "Permission denied", str(place))
        return scan(place)

    monkeypatch.setattr(os, "scandir", closed)
    result = check(f"folder:{own}", own)
    assert result.exit_code == 1
    assert f"cannot read {own / 'b'}: Permission denied" in result.output


def test_a_list_of_one_s_own_may_select(own):
    lines = [f"own/{name}/{i}.jpg,{name}" for name in "abcd" for i in range(2)]
    path = layouts.snap("\n".join(["path,label", *lines]), own.parent / "some.csv")
    result = check(f"csv:{path}", own)
    assert result.exit_code == 0, result.output
    assert "remove" not in result.output
    (own / "b" / "1.jpg").unlink()
    result = check(f"csv:{path}", own)
    assert result.exit_code == 1
    assert ("1 listed image is not there: own/b/1.jpg (line 5); put back what is missing or take its lines out of the "
            "list" in result.output)
    assert "archive" not in result.output
    assert "expected tree" not in result.output, "one image does not make another layout"
    (own / "b" / "0.jpg").unlink()
    result = check(f"csv:{path}", own)
    assert "expected tree" in result.output, "a whole folder is not where the list says"


def heard(_: int) -> bool:
    return signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_processes_that_decode_do_not_hear_ctrl_c():
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        with block_signals(signal.SIGINT):
            found = pool.map(heard, range(2))
        assert list(found) == [False, False]
    assert heard(0)
