"""Folders as datasets are published: sides without class folders, classes with sides, folders called images."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmark import cli, datasets
from benchmark.data.task import Side
from benchmark.datasets import DatasetIndex, reading
from benchmark.datasets.folder import empty_classes
from benchmark.utils.errors import UserError
from tests import layouts
from tests.test_folders import filled

ASIDE = "no folder for each class: "


def classes_of(index: DatasetIndex) -> dict[str, set[str]]:
    """The folders that the images of each class lie in."""
    return {name: {path.rpartition("/")[0] for path, label in zip(index.paths, index.labels) if label == number}
            for number, name in enumerate(index.classes)}


@pytest.mark.parametrize("images", ["images", "Images", "img"])
def test_tiny_imagenet_is_the_classes_of_its_training_side(tmp_path: Path, images: str) -> None:
    index = filled(tmp_path / "tiny", *(f"train/n0{i}/{images}" for i in range(4)), f"val/{images}", f"test/{images}")
    assert classes_of(index) == {f"n0{i}": {f"train/n0{i}/{images}"} for i in range(4)}
    assert (index.train_classes, index.test_classes) == (("n00", "n01"), ("n02", "n03"))
    assert index.note == (f"test and val have {ASIDE}they are left aside, and the 4 classes of train are halved by "
                          "name")
    assert empty_classes(tmp_path / "tiny") == []


def test_a_side_without_class_folders_is_left_aside(tmp_path: Path) -> None:
    """As competitions have it: the labels of the test images are not given out."""
    index = filled(tmp_path / "kaggle", *(f"Train/{name}" for name in "abcd"), "Test")
    assert classes_of(index) == {name: {f"Train/{name}"} for name in "abcd"}
    assert (index.train_classes, index.test_classes) == (("a", "b"), ("c", "d"))
    assert index.note == f"Test has {ASIDE}it is left aside, and the 4 classes of Train are halved by name"
    grouped = filled(tmp_path / "grouped", "train/x/a", "train/x/b", "train/y/c", "train/y/d", "test")
    assert grouped.classes == ("x/a", "x/b", "y/c", "y/d")
    assert grouped.note.startswith("train: a class is each of the 4 inner folders, such as x/a: ")
    assert f"test has {ASIDE}it is left aside" in grouped.note


@pytest.mark.parametrize("test", ["test", "test/images"])
def test_a_side_without_class_folders_takes_no_other_s_place(tmp_path: Path, test: str) -> None:
    index = filled(tmp_path / "net", *(f"{side}/{name}" for side in ("train", "val") for name in "abcd"), test)
    assert classes_of(index) == {name: {f"train/{name}", f"val/{name}"} for name in "abcd"}
    assert "train and val have the same classes" in index.note
    assert index.note.endswith(f"; test has {ASIDE}it is left aside")
    apart = filled(tmp_path / "apart", "train/a", "train/b", "val/c", "val/d", test)
    assert (apart.train_classes, apart.test_classes) == (("a", "b"), ("c", "d"))
    assert apart.note == f"test has {ASIDE}it is left aside"


def test_a_training_side_without_class_folders_is_refused(tmp_path: Path) -> None:
    for name, test in (("yolo", "val/images"), ("other", "val/c")):
        with pytest.raises(UserError, match=r"train has images, but no folder for each class; put .* \(csv:PATH\)"):
            filled(tmp_path / name, "train/images", test)


def test_folders_called_images_around_classes_and_classes_called_train_are_read_as_before(tmp_path: Path) -> None:
    index = filled(tmp_path / "in", "train/images/a", "train/images/b", "test/images/c", "test/images/d")
    assert (index.train_classes, index.test_classes) == (("images/a", "images/b"), ("images/c", "images/d"))
    traffic = filled(tmp_path / "traffic", "bus", "car", "train", "train/freight", "test")
    assert traffic.classes == ("bus", "car", "test", "train")


@pytest.mark.parametrize("below", ["", "/images", "/Img"])
def test_a_class_with_a_training_and_a_test_folder_is_one_class(tmp_path: Path, below: str) -> None:
    index = filled(tmp_path / "mine", *(f"k{i}/{side}{below}" for i in range(4) for side in ("train", "test")),
                   f"k4/train{below}")
    assert classes_of(index) == {**{f"k{i}": {f"k{i}/train{below}", f"k{i}/test{below}"} for i in range(4)},
                                 "k4": {f"k4/train{below}"}}
    assert index.note == ("a class is each of the 5 folders around test and train, such as k0: the images of these are "
                          "put together")
    grouped = filled(tmp_path / "grouped", *(f"g/k{i}/{side}{below}" for i in range(4) for side in ("train", "val")))
    assert grouped.classes == ("g/k0", "g/k1", "g/k2", "g/k3")
    sides = filled(tmp_path / "sides", *(f"{side}/{side}{i}/{inner}{below}" for side in ("train", "test")
                                         for i in range(2) for inner in ("Train", "Val")))
    assert (sides.train_classes, sides.test_classes) == (("train0", "train1"), ("test0", "test1"))
    other = filled(tmp_path / "other", *(f"{name}{below}" for name in ("rail/train", "rail/tram", "road/bus")))
    assert other.classes == (f"rail/train{below}", f"rail/tram{below}", f"road/bus{below}")


def test_a_class_of_which_only_one_side_has_a_folder_called_images_is_one_class(tmp_path: Path) -> None:
    index = filled(tmp_path / "mine", *(f"k{i}/train/images" for i in range(4)), *(f"k{i}/test" for i in range(3)))
    assert classes_of(index) == {**{f"k{i}": {f"k{i}/train/images", f"k{i}/test"} for i in range(3)},
                                 "k3": {"k3/train/images"}}


@pytest.mark.parametrize("below", ["", "/images"])
def test_the_two_sides_of_a_single_class_are_not_taken_for_classes(tmp_path: Path, below: str) -> None:
    """Nor is its folder said to be the one that was meant."""
    with pytest.raises(UserError, match="/one: only the class 'k0'; a dataset needs at least two classes"):
        filled(tmp_path / "one", f"k0/train{below}", f"k0/test{below}")


def test_what_is_taken_for_a_class_on_each_side_is_told_and_what_is_not_used(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "shop"
    index = filled(root, "train/bags/a", "train/bags/b", "test/hats/c", "test/hats/d", "val/hats/e")
    assert (index.train_classes, index.test_classes) == (("bags/a", "bags/b"), ("hats/c", "hats/d"))
    first, second, third = index.note.split("; ")
    assert first == ("train: a class is each of the 2 inner folders, such as bags/a: the folder around them has no "
                     "images of its own")
    assert second.startswith("test: a class is each of the 2 inner folders, such as hats/c: ")
    assert third == "val is not used, only train and test are"
    cli.main(["splits", "build", "--default-only", "--dataset", f"folder:{root}", "--work", str(tmp_path / "work")])
    assert f"note: {index.note}" in capsys.readouterr().out


@pytest.mark.parametrize("folders", [("train/a", "train/b", "test/c"), ("a", "b", "c")])
def test_one_test_class_is_refused_as_it_is_always_found(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                                         folders: tuple[str, ...]) -> None:
    root = tmp_path / "few"
    index = filled(root, *folders)
    where = ["--dataset", f"folder:{root}", "--work", str(tmp_path / "work")]
    for command in (["splits", "build", "--default-only"], ["run", "--methods", "margin", "--backbone", "conv4",
                                                            "--splits", "default"]):
        with pytest.raises(SystemExit) as ended:
            cli.main([*command, *where])
        assert ended.value.code == 2
        assert "the only test class is 'c'" in (told := capsys.readouterr().err)
        assert "Recall@1 100 % for every network" in told
        assert "take at least four classes, two a side" in told
    assert not list((tmp_path / "work").glob("splits/*.json"))
    assert "at least two test classes are needed" in Side.of(index, ("c",)).unmatched
    assert Side.of(index, ("b", "c")).unmatched == ""


def test_a_split_of_one_test_class_that_is_there_already_is_refused_before_training(
        tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "few"
    filled(root, "train/a", "train/b", "test/c")
    where = ["--dataset", f"folder:{root}", "--work", str(tmp_path / "work")]
    with monkeypatch.context() as earlier:  # built by a version that did not refuse it
        earlier.setattr("benchmark.ladders.building.one_class", lambda test: "")
        cli.main(["splits", "build", "--default-only", *where])
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--methods", "margin", "--backbone", "conv4", *where])
    assert ended.value.code == 2
    assert "split 1 of " in (told := capsys.readouterr().err)
    assert "the only test class is 'c'" in told
    assert not list((tmp_path / "work").glob("runs/*/*"))


def test_a_class_folder_that_cannot_be_read_is_not_left_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a test side whose class folders are locked would pass for one without any."""
    root = tmp_path / "mine"
    filled(root, "train/a", "train/b", "test")
    (root / "test" / "locked").mkdir()
    walk = reading.os.walk

    def locked(folder: Path, onerror=None, **how):
        if Path(folder).name == "locked" and onerror:
            onerror(PermissionError(13, "Permission denied", str(folder)))
        return walk(folder, onerror=onerror, **how)

    monkeypatch.setattr(reading.os, "walk", locked)
    with pytest.raises(reading.Unreadable, match=r"cannot read .*locked"):
        datasets.load(f"folder:{root}", tmp_path)


@pytest.mark.parametrize(("folders", "meant"), [
    (("sub/train/a", "sub/train/b", "sub/test/c", "sub/test/d"), "sub"),
    (("sub/Train/a", "sub/Train/b", "sub/Val/a", "sub/Val/b", "docs"), "sub"),
    (("sub/train/a", "sub/train/b", "sub/test"), "sub"),
    (("x/y/training/a", "x/y/training/b", "x/y/testing/c"), "x/y"),
    (("p/train/a", "p/test/b", "q/train/a", "q/test/b"), "p (one of 2 such folders; union:folder:A,"),
])
def test_a_folder_around_the_two_sides_is_refused_with_the_one_that_has_them(
        tmp_path: Path, folders: tuple[str, ...], meant: str) -> None:
    """Else images of the test side would be trained on, as its classes stand first by name."""
    root = tmp_path / "above"
    with pytest.raises(UserError) as refused:
        filled(root, *folders)
    assert str(refused.value).startswith(f"{root}: the folders of the training and the test side lie further in, ")
    assert f"; give folder:{root}/{meant}" in str(refused.value)


def test_a_folder_around_or_inside_the_class_folders_is_refused_with_the_one_that_has_them(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"all images are of one class, 'sub' \(did you mean folder:.*/above/sub\?\)"):
        filled(tmp_path / "above", "sub", "sub/a", "sub/b")
    filled(tmp_path / "flat", "a", "b")
    filled(tmp_path / "deep", "a/images", "b/images")
    filled(tmp_path / "sides", "train/a", "train/b", "test/c", "test/d")
    for given, meant in (("flat/a", "flat"), ("deep/a", "deep"), ("sides/train/a", "sides"), ("sides/test/c", "sides")):
        with pytest.raises(UserError, match=rf"\(did you mean folder:.*/{meant}\?\)"):
            datasets.load(f"folder:{tmp_path / given}", tmp_path)
    (tmp_path / "alone").mkdir()
    with pytest.raises(UserError, match="but no folder for each class; put"):
        filled(tmp_path / "alone" / "flat", ".")


def test_the_layouts_are_read_alike_whatever_stray_files_lie_beside(tmp_path: Path) -> None:
    root = tmp_path / "kaggle"
    index = filled(root, *(f"train/{name}" for name in "abcd"), "test")
    (root / "sample_submission.csv").touch()
    layouts.picture(root / "train" / "._a.png", 1)
    (root / "valid").mkdir()
    assert datasets.load(f"folder:{root}", root).hash == index.hash
