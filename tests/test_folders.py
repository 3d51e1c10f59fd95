"""Folders of one's own: what is taken for a class, for a side and for a name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmark import cli, datasets
from benchmark.datasets.reading import images_under
from benchmark.utils.errors import UserError
from tests import layouts


def filled(root, *folders):
    """Two pictures in each folder; the index of all."""
    for folder in folders:
        for i in range(2):
            layouts.picture(root / folder / f"{i}.png", f"{folder}{i}")
    return datasets.load(f"folder:{root}", root)


def test_train_and_val_of_a_classification_split_are_put_together(tmp_path):
    index = filled(tmp_path / "net", *(f"{side}/{name}" for side in ("train", "val") for name in "abcd"))
    assert (index.classes, index.train_classes) == (("a", "b", "c", "d"), ("a", "b"))
    assert len(index) == 16
    assert "train and val have the same classes, as for classification" in index.note
    for first, second in (("Train", "Val"), ("training", "validation")):
        other = filled(tmp_path / first, *(f"{side}/{name}" for side in (first, second) for name in "abcd"))
        assert (other.classes, len(other)) == (index.classes, 16)
    apart = filled(tmp_path / "apart", "train/a", "train/b", "val/c")
    assert (apart.train_classes, apart.test_classes, apart.note) == (("a", "b"), ("c",), "")


def test_the_split_for_classification_is_known_by_its_numbers(tmp_path, monkeypatch, capsys):
    """As CUB's, in miniature: 8 and 8 images of all classes for classification, 6 and 10 for metric learning."""
    mini = replace(datasets.get("cub"), classification=(8, 8), counts=datasets.Counts(6, 2, 10, 2))
    monkeypatch.setitem(datasets._all(), "cub", mini)
    both = filled(tmp_path / "mine", *(f"{side}/{name}" for side in ("train", "test") for name in "abcd"))
    assert "train and test are the classification split of cub" in both.note
    assert "metric learning has 6 and 10 images" in both.note
    lines = [f"{side}/{name}/{i}.png,{name},{side}" for side in ("train", "test") for name in "abcd" for i in range(2)]
    listed = layouts.snap("\n".join(["path,label,split", *lines]), tmp_path / "mine" / "all.csv")
    with pytest.raises(UserError, match=r"\(4 such classes\), as in the classification split of cub"):
        datasets.load(f"csv:{listed}", tmp_path)
    filled(tmp_path / "halves", "train/a", "train/b", "train/b/more", *(f"test/{name}" for name in ("c", "d", "e")))
    for i in range(4):
        layouts.picture(tmp_path / "halves" / "test" / "e" / f"more{i}.png", i)
    cli.main(["datasets", "check", f"folder:{tmp_path / 'halves'}", "--work", str(tmp_path / "work")])
    assert "the numbers of images of the metric-learning split of cub" in capsys.readouterr().out
    truth = layouts.cub(tmp_path / "data" / "cub", (2, 2, 2, 2))
    assert len(truth) == 8
    with pytest.raises(SystemExit):
        cli.main(["datasets", "check", "cub", "--data", str(tmp_path / "data"), "--work", str(tmp_path / "work")])
    assert "(the training side of the split for classification alone)" in capsys.readouterr().out


def test_folders_around_class_folders_are_no_classes(tmp_path, capsys):
    index = filled(tmp_path / "shop", "bags/red", "bags/blue", "hats/red", "hats/high")
    assert index.classes == ("bags/blue", "bags/red", "hats/high", "hats/red")
    assert "each of the 4 inner folders, such as bags/blue" in index.note
    cli.main(["datasets", "check", f"folder:{tmp_path / 'shop'}", "--work", str(tmp_path / "work")])
    assert "note: a class is each of the 4 inner folders" in capsys.readouterr().out
    mixed = filled(tmp_path / "mixed", "bags", "bags/more", "hats")
    assert mixed.classes == ("bags", "hats")
    assert "each of the 2 outer folders" in mixed.note
    alone = filled(tmp_path / "alone", "a/pictures", "b/pictures")
    assert (alone.classes, alone.note) == (("a", "b"), "")
    assert filled(tmp_path / "one", "bags/red", "bags/blue").note.endswith(
        "the folder around them has no images of its own")


def test_images_without_class_folders_are_named(tmp_path):
    with pytest.raises(UserError, match=r"2 images, such as 0.png, but no folder for each class.*csv:PATH"):
        filled(tmp_path / "flat", ".")


def test_folders_called_images_have_the_name_of_the_one_around_them(tmp_path):
    names = [filled(tmp_path / place / "images", "x", "y").name for place in "ab"]
    assert names == ["a-images", "b-images"]
    lists = [layouts.snap("path,label\n1.jpg,a\n2.jpg,b\n", tmp_path / place / "list.csv") for place in "ab"]
    assert [datasets.load(f"csv:{path}", tmp_path).name for path in lists] == ["a-list", "b-list"]


def test_test_classes_of_one_image_each_are_refused_before_training(tmp_path, capsys):
    root = tmp_path / "few"
    filled(root, "train/a", "train/b", "test/c", "test/d")
    for name in "cd":
        (root / "test" / name / "1.png").unlink()
    where = ["--dataset", f"folder:{root}", "--work", str(tmp_path / "work")]
    cli.main(["splits", "build", "--default-only", *where])
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--methods", "margin", "--backbone", "conv4", *where])
    assert ended.value.code == 2
    assert "no test class has a second image to be found" in capsys.readouterr().err
    assert not list((tmp_path / "work").glob("runs/*/*"))


def test_links_to_class_folders_are_followed_wherever_they_lie(tmp_path):
    """A class that is a link must not vanish from among the others; one that leads back is none."""
    filled(tmp_path / "all", "a", "b", "c", "d")
    mine = tmp_path / "mine"
    filled(mine, "x/a", "y/c")
    for name, target in {"x/b": "all/b", "y/d": "all/d", "x/a/back": "mine", "y/c/around": "mine/x/a"}.items():
        (mine / name).symlink_to(tmp_path / target)
    (mine / "x" / "a" / "across").symlink_to(mine / "y" / "c")
    assert {path for path in images_under(mine / "x") if path.startswith("b/")} == {"b/0.png", "b/1.png"}
    assert images_under(mine / "x" / "a") == ["0.png", "1.png", "across/0.png", "across/1.png"]
    for link in ("x/a/back", "x/a/across", "y/c/around"):
        (mine / link).unlink()
    index = datasets.load(f"folder:{mine}", tmp_path)
    assert (index.classes, len(index)) == (("x/a", "x/b", "y/c", "y/d"), 8)
    assert [index.open(i).size for i in range(8)]


def test_a_file_and_a_folder_without_its_prefix_are_told_apart_from_what_is_not_there(tmp_path, monkeypatch):
    filled(tmp_path / "mine", "a", "b")
    with pytest.raises(UserError, match=r"0\.png' is a file; give folder:PATH"):
        datasets.load(f"folder:{tmp_path}/mine/a/0.png", tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="unknown dataset 'mine'; images in the folder mine are folder:mine;"):
        datasets.get("mine")
