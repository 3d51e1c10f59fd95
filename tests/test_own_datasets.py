"""Datasets of one's own: folders, lists and unions of datasets."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from benchmark import cli, datasets
from benchmark.data import decoding, store
from benchmark.datasets.folder import own_name
from benchmark.datasets.union import unite_indexes
from benchmark.ladders import features
from benchmark.runs import worker
from benchmark.runs.job import SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from splits import SplitError
from tests import layouts, tiny_sweep

QUICK = ["--shots", "2", "--episodes", "1", "--iterations", "1", "--device", "cpu"]
PLUGIN = '''
from methods import register
from methods.margin import Margin

@register("mine-too", family="ranking", cite="@misc{mine, title={Mine}}")
class Mine(Margin):
    "A margin of one's own."
'''


def test_images_of_all_kinds_open(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    place = tmp_path / "mixed" / "a class"
    layouts.picture(place / "1 gray.JPG", 1, "L", format="JPEG")
    layouts.picture(place / "2 cmyk.jpg", 2, "CMYK")
    layouts.picture(place / "3 rgba.png", 3, "RGBA")
    layouts.picture(place / "4 turned.jpeg", 4, exif=exif)
    layouts.picture(tmp_path / "mixed" / "b" / "5.webp", 5)
    index = datasets.load(f"folder:{tmp_path / 'mixed'}", tmp_path)
    assert [index.open(i).mode for i in range(4)] == ["L", "CMYK", "RGBA", "RGB"]
    upright = [ImageOps.exif_transpose(index.open(i)).convert("RGB").size for i in range(5)]
    assert upright == [(24, 18), (24, 18), (24, 18), (18, 24), (24, 18)]


def test_order_depends_on_neither_file_system_nor_locale(tmp_path):
    names = ["b", "a", "Z", "ä", "É", "10", "9"]
    for name in names:
        for file in ("b.jpg", "B.jpg", "_.jpg"):
            layouts.picture(tmp_path / "mine" / name / file, name + file)
    index = datasets.load(f"folder:{tmp_path / 'mine'}", tmp_path)
    assert index.classes == ("10", "9", "Z", "a", "b", "É", "ä")
    assert index.train_classes == ("10", "9", "Z", "a")
    assert index.paths[:3] == ("10/B.jpg", "10/_.jpg", "10/b.jpg")


def test_a_folder_with_train_and_test(tmp_path):
    for side, name in (("train", "z"), ("train", "y"), ("test", "a")):
        layouts.picture(tmp_path / "My data.v2" / side / name / "1.jpg", name)
    index = datasets.load(f"folder:{tmp_path / 'My data.v2'}", tmp_path)
    assert (index.name, index.train_classes, index.test_classes) == ("My-data-v2", ("y", "z"), ("a",))
    assert index.paths == ("test/a/1.jpg", "train/y/1.jpg", "train/z/1.jpg")
    assert index.note == ""
    layouts.picture(tmp_path / "My data.v2" / "test" / "z" / "1.jpg", "again")
    with pytest.raises(UserError, match="class 'z' lies in both"):
        datasets.load(f"folder:{tmp_path / 'My data.v2'}", tmp_path)


def test_own_names_never_hide_a_built_in_dataset(tmp_path):
    for name in "ab":
        layouts.picture(tmp_path / "cub" / name / "1.jpg", name)
    assert datasets.load(f"folder:{tmp_path / 'cub'}", tmp_path).name == "own-cub"


@pytest.mark.parametrize(("folder", "name"), [("鳥", "鳥"), ("Vo\u0308gel ☃ 2", "V\u00f6gel-2"), ("con", "own-con"),
                                              ("☃", "own")])
def test_a_dataset_keeps_letters_of_any_script_and_is_never_a_device(folder: str, name: str) -> None:
    """Else the datasets of all who write otherwise than in Latin letters would be called alike."""
    assert own_name(Path(folder)) == name


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_list_may_be_written_as_spreadsheets_do(mark: str, encoding: str, tmp_path: Path) -> None:
    """"Unicode text" of Excel, and what a Windows shell redirects to a file, is UTF-16."""
    lines = ["path,label", "a.jpg,x", "b.jpg,x", "c.jpg,é", "d.jpg,é", ""]
    path = tmp_path / "list.csv"
    path.write_bytes("\r\n".join(lines).replace(",", mark).encode(encoding))
    assert datasets.load(f"csv:{path}", tmp_path).classes == ("x", "é")


def test_a_list_with_all_columns(tmp_path):
    path = layouts.snap("\ufeffpath, label, split, domain, role\r\n"
                'b/1.jpg,"Ram C/V, van",train,cars,\r\nb/2.jpg,jay,test,birds,query\r\n'
                "b/./3.jpg,jay,test,birds,gallery\r\nb/4.jpg,jay,test,cars,\r\n", tmp_path / "own list.csv")
    index = datasets.load(f"csv:{path}", tmp_path)
    assert index.name == "own-list"
    assert index.classes == ("birds/jay", "cars/Ram C/V, van", "cars/jay")
    assert index.train_classes == ("cars/Ram C/V, van",)
    assert index.paths == ("b/2.jpg", "b/3.jpg", "b/1.jpg", "b/4.jpg")
    assert index.roles.tolist() == ["query", "gallery", "", ""]
    assert [index.domain_names[d] for d in index.domains] == ["birds", "birds", "cars", "cars"]


def test_a_list_without_a_split_is_halved_within_each_domain(tmp_path):
    lines = [f"{d}{c}.jpg,{c},{d}" for d in ("x", "y") for c in "abc"]
    both = layouts.snap("\n".join(["path,label,domain", *lines]), tmp_path / "both.csv")
    index = datasets.load(f"csv:{both}", tmp_path)
    assert index.train_classes == ("x/a", "x/b", "y/a", "y/b")
    plain = datasets.load(f"csv:{layouts.snap('path,label@q.jpg,2@p.jpg,10'.replace('@', chr(10)), both)}", tmp_path)
    assert (plain.train_classes, plain.test_classes, plain.domains) == (("10",), ("2",), None)


@pytest.mark.parametrize(("content", "message"), [
    ("", "lacks the columns path and label"),
    ("path,label\n", "no images"),
    ("path,lable\na.jpg,1\n", "did you mean 'label'"),
    ("path,label,label\na.jpg,1,3\nb.jpg,2,4\n", "has the column 'label' twice"),
    ("path,label\n../a.jpg,1\nb.jpg,2\n", r"names '../a.jpg', outside"),
    ("path,label\na/../../b.jpg,1\nb.jpg,2\n", "outside"),
    ("path,label\n/etc/passwd,1\nb.jpg,2\n", "relative"),
    ("path,label\nC:/b.jpg,1\nb.jpg,2\n", "relative"),
    ("path,label\na\\b.jpg,1\nb.jpg,2\n", "forward slashes"),
    ("path,label\na.jpg\0,1\nb.jpg,2\n", "no file can be called|NUL"),  # Python 3.10 reads no such list
    ("path,label\na.jpg,1\n./a.jpg,2\n", "names 'a.jpg' twice"),
    ("path,label\na.jpg,\nb.jpg,2\n", "line 2: label is ''"),
    ("path,label\na.jpg,1,2\n", "line 2: more fields"),
    ("path,label\na.jpg,1\nb.jpg,1\n", "only the class '1'"),
    ("path,label,split\na.jpg,1,train\nb.jpg,1,test\n", "class '1' is on both sides"),
    ("path,label,split\na.jpg,1,train\nb.jpg,2,train\n", "on one side"),
    ("path,label,split\na.jpg,1,val\n", "split is 'val'; it must be train or test"),
    ("path,label,split,role\na.jpg,1,train,query\nb.jpg,2,test,\n", "only test images"),
    ("path,label,domain\na.jpg,b/c,a\nb.jpg,c,a/b\n", "line 3: domain is 'a/b'; it must have no '/'"),
])
def test_mistakes_in_a_list(tmp_path, content, message):
    path = layouts.snap(content, tmp_path / "list.csv")
    with pytest.raises(UserError, match=message) as caught:
        datasets.load(f"csv:{path}", tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_union_keeps_classes_apart_and_opens_the_right_images(tmp_path):
    layouts.cub(tmp_path / "cub")
    layouts.inshop(tmp_path / "inshop")
    for name in ("001.Bird_1_1", "x"):
        layouts.picture(tmp_path / "own" / name / "1.jpg", name)
    index = datasets.load(f"union:cub, inshop,folder:{tmp_path / 'own'}", tmp_path)
    members = [datasets.load(name, tmp_path) for name in ("cub", "inshop", f"folder:{tmp_path / 'own'}")]
    assert index.name == "union-cub-inshop-own"
    assert index.domain_names == ("cub", "inshop", "own")
    assert len(set(index.classes)) == sum(len(member.classes) for member in members)
    assert {"cub/001.Bird_1_1", "own/001.Bird_1_1"} <= set(index.classes)
    assert datasets.present("union:cub,inshop", tmp_path)
    place = 0
    again = pickle.loads(pickle.dumps(index))
    for number, member in enumerate(members):
        for i in range(len(member)):
            assert index.paths[place] == f"{member.name}/{member.paths[i]}"
            assert index.classes[index.labels[place]] == f"{member.name}/{member.classes[member.labels[i]]}"
            assert index.domains[place] == number
            assert index.roles[place] == ("" if member.roles is None else member.roles[i])
            assert np.array_equal(np.asarray(again.open(place)), np.asarray(member.open(i)))
            place += 1
    assert place == len(index)
    assert again.hash == index.hash
    assert set(index.train_classes) == {f"{m.name}/{c}" for m in members for c in m.train_classes}
    (tmp_path / "inshop" / "Img" / members[1].paths[0]).unlink()
    assert not datasets.present("union:cub,inshop", tmp_path)
    with pytest.raises(SplitError, match="stands twice"):
        unite_indexes("twice", [members[0], members[0]])
    with pytest.raises(UserError, match="itself a union"):
        datasets.load("union:uml-4,cub", tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="names with these characters need a POSIX file system")
def test_class_names_with_odd_characters(tmp_path):
    for name in ("a, b", "100%", "#1", "naïve"):
        layouts.picture(tmp_path / "odd" / name / "1.jpg", name)
    assert datasets.load(f"folder:{tmp_path / 'odd'}", tmp_path).classes == ("#1", "100%", "a, b", "naïve")


def ran(home: Path, name: str) -> Workspace:
    """A working folder with a run on the default split of a dataset."""
    made = tiny_sweep.workspace(home / "work", (name,))
    (job,) = tiny_sweep.jobs(made, "margin", datasets=(name,), splits="default", seeds=1, set={"epochs": 1})
    worker.run(job.spec, job.context)
    return made


def own_folder(home: Path) -> str:
    for name in "abcdefgh":
        for i in range(6):
            layouts.picture(home / "mine" / name / f"{i}.png", f"{name}{i}")
    return f"folder:{home / 'mine'}"


def own_list(home: Path) -> str:
    own_folder(home)
    lines = [f"mine/{name}/{i}.png,{name}" for name in "abcdefgh" for i in range(6)]
    return f"csv:{layouts.snap(chr(10).join(['path,label', *lines]), home / 'listed.csv')}"


def own_union(home: Path) -> str:
    return f"union:glyphs-arrows,{own_folder(home)}"


@pytest.mark.parametrize(("make", "name"), [
    (own_folder, "mine"), (own_list, "listed"), (own_union, "union-glyphs-arrows-mine")])
def test_every_command_after_a_run_finds_it(tmp_path, capsys, make, name):
    given = make(tmp_path)
    work = ran(tmp_path, given)
    (folder,) = (work.runs / name).glob("*/margin/*")
    assert str(tmp_path) not in (folder / "spec.json").read_text()
    where = ["--work", str(work.root)]
    cli.main(["fewshot", "--dataset", given, "--splits", "default", *QUICK, *where])
    assert "1 run adapted" in capsys.readouterr().out
    assert set(json.loads((folder / "fewshot.json").read_text())["shots"]) == {"2"}
    cli.main(["inspect", str(folder), "--no-umap", "--queries", "2", "--device", "cpu", *where])
    seen = json.loads((folder / "inspect" / "inspection.json").read_text())
    shown = {row["query"]["class"].removeprefix("mine/") for part in seen["galleries"] for row in part["rows"]}
    assert shown <= {*"efgh", *datasets.load("union:glyphs-arrows", tmp_path).test_classes}
    assert len(list((work.leaderboard / "inspect").glob("*.html"))) == 1
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        cli.main(["splits", "verify", str(work.splits / f"{name}.json"), "--dataset", given, *where])
    assert ended.value.code == 0
    assert "sound" in capsys.readouterr().out


def test_a_random_network_measures_the_same_distances_each_time(tmp_path):
    given = own_folder(tmp_path)
    found = [features.frozen_features(given, Workspace.at(tmp_path / home), backbone="conv4", device="cpu")[1]
             for home in "ab"]
    assert np.array_equal(*found)
    assert np.ptp(found[0]) > 0


def test_weights_that_are_missing_are_told_before_all_images_are_decoded(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OODML_TIMES", "1")
    given, words = own_folder(tmp_path), ["--weights", str(tmp_path / "none.pth"), "--work", str(tmp_path)]
    monkeypatch.setattr(decoding, "CHUNK", 4)
    monkeypatch.setattr(store, "CHUNK", 4)
    decode = decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda *image: time.sleep(0.1) or decode(*image))
    monkeypatch.setattr(store, "cores", lambda: 1)
    with pytest.raises(SystemExit):
        cli.main(["splits", "build", "--dataset", given, "--backbone", "conv4", *words])
    told = capsys.readouterr().err
    assert "none.pth: no such file" in told
    assert "] decode the images: " in told
    assert not list(tmp_path.glob("cache/images-*/pixels.bin"))


def test_images_that_moved_since_are_named_anew(tmp_path, capsys):
    work = ran(tmp_path, own_folder(tmp_path))
    (folder,) = work.runs.glob("*/*/*/*")
    words = ["inspect", str(folder), "--no-umap", "--only", "--device", "cpu", "--work", str(work.root)]
    shutil.move(tmp_path / "mine", tmp_path / "elsewhere" / "mine")

    def refused(*more: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, *more])
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert "--dataset folder:PATH" in refused()
    env = json.loads((folder / "env.json").read_text())
    del env["dataset"]  # as older versions wrote it
    (folder / "env.json").write_text(json.dumps(env))
    message = refused()
    assert "unknown dataset 'mine'" in message
    assert "--dataset folder:PATH" in message
    moved = f"folder:{tmp_path / 'elsewhere' / 'mine'}"
    cli.main([*words, "--dataset", moved])
    assert "looked into" in capsys.readouterr().out
    layouts.picture(tmp_path / "elsewhere" / "mine" / "h" / "new.png", "new")
    tiny_sweep.workspace(work.root, (moved,))
    assert "from other files than mine has now" in refused("--dataset", moved)
    with pytest.raises(SystemExit):
        cli.main(["fewshot", "--dataset", moved, *QUICK, "--work", str(work.root)])
    assert f"no finished run of all on {moved}" in capsys.readouterr().err


def test_an_ensemble_over_a_folder_by_a_method_of_one_s_own(tmp_path, capsys):
    mine, plugin = own_folder(tmp_path), tmp_path / "plugin.py"
    plugin.write_text(PLUGIN)
    union = f"union:glyphs-arrows,{mine}"
    made = tiny_sweep.workspace(tmp_path / "work", ("glyphs-arrows", mine, union))
    words = ["ensemble", "--dataset", union, "--methods", "mine-too", "--device", "cpu", "--work", str(made.root)]
    study = tiny_sweep.study("mine-too", datasets=("glyphs-arrows", mine), splits="default", seeds=1, set={"epochs": 1})
    with tiny_sweep.registry_as_before():
        jobs = gather(study, SweepOptions(made, plugins=(str(plugin),))).jobs
        worker.run(jobs[0].spec, jobs[0].context)
        with pytest.raises(SystemExit):
            cli.main([*words, "--plugin", str(plugin)])
        assert "default split of mine; `oodml run --methods mine-too --dataset folder:PATH" in capsys.readouterr().out
        worker.run(jobs[1].spec, jobs[1].context)
    with pytest.raises(SystemExit):
        cli.main(words)
    assert "mine-too" in capsys.readouterr().err
    with tiny_sweep.registry_as_before():
        cli.main([*words, "--plugin", str(plugin)])
    (path,) = made.runs.glob("union-*/*/ensemble@mine-too/*/record.json")
    assert set(json.loads(path.read_text())["domains"]) == {"glyphs-arrows", "mine"}


def test_a_dataset_without_a_ladder_does_not_keep_the_next_from_its_own(tmp_path, capsys):
    for name in "ab":
        layouts.picture(tmp_path / "few" / name / "1.png", name)
    few, mine = f"folder:{tmp_path / 'few'}", own_folder(tmp_path)
    words = ["splits", "build", "--backbone", "conv4", "--weights", "scratch", "--device", "cpu", "--work",
             str(tmp_path / "work")]
    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--dataset", few, "--dataset", mine])
    assert ended.value.code == 2
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert "at least four classes" in told.err
    assert few in last
    assert mine not in last
    assert (tmp_path / "work" / "splits" / "mine.json").is_file()
    with pytest.raises(SystemExit):
        cli.main([*words, "--dataset", few])
    assert "at least four classes" in capsys.readouterr().err


def test_an_odd_rung_iteration_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["splits", "build", "--dataset", "glyphs-mini", "--rung-iterations", "0,b", "--work", str(tmp_path)])
    assert ended.value.code == 2
    assert "'b' is no iteration" in capsys.readouterr().err


def test_a_dataset_of_one_s_own_knows_how_it_was_asked_for(tmp_path):
    for given in (own_folder(tmp_path), own_list(tmp_path), own_union(tmp_path)):
        assert datasets.load(given, tmp_path).typed == given
    assert datasets.load("glyphs-arrows", tmp_path).typed == "glyphs-arrows"


def test_folders_that_systems_make_are_no_classes(tmp_path):
    for name in ("a", "b", "c", "d"):
        layouts.picture(tmp_path / "mine" / name / "1.png", name)
    before = datasets.load(f"folder:{tmp_path / 'mine'}", tmp_path)
    for name in ("lost+found", "__MACOSX", "@eaDir", ".thumbnails"):
        layouts.picture(tmp_path / "mine" / name / "1.png", name)
    assert datasets.load(f"folder:{tmp_path / 'mine'}", tmp_path).classes == before.classes == ("a", "b", "c", "d")


def test_a_list_may_have_other_columns_and_absolute_paths(tmp_path: Path) -> None:
    for name in ("a/1.jpg", "b/2.jpg", "b/3.jpg"):
        layouts.picture(tmp_path / "far" / name, name)
    (tmp_path / "lists").mkdir()
    file = tmp_path / "lists" / "mine.csv"
    file.write_text("photographer,path,label,note\n" + "".join(
        f"me,{tmp_path / 'far' / name},{name[0]},x\n" for name in ("a/1.jpg", "b/2.jpg", "b/3.jpg")))
    index = datasets.load(f"csv:{file}", tmp_path)
    assert (index.root, index.paths) == (tmp_path / "far", ("a/1.jpg", "b/2.jpg", "b/3.jpg"))
    assert index.open(2).size == (24, 18)
    file.write_text("path,label,splits\na.jpg,a,train\n")
    with pytest.raises(UserError, match=r"column 'splits' \(did you mean 'split'"):
        datasets.load(f"csv:{file}", tmp_path)


def test_an_archive_that_is_not_unpacked_is_named(tmp_path: Path) -> None:
    (tmp_path / "CUB_200_2011.tgz").touch()
    with pytest.raises(UserError, match=r"but CUB_200_2011\.tgz is: unpack it there, `tar xf"):
        datasets.load("cub", tmp_path)
