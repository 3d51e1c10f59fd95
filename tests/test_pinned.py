"""Pinned ladders: what is pinned is read, a copy that differs is told image by image, and Croissant readers agree."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from benchmark import datasets, ladders
from benchmark.commands.splits import command as splits_command
from benchmark.ladders import pinned
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from splits import SplitError, croissant, manifest, pinning
from splits.manifest import Split
from splits.union import EIGHT, STANDARD_FOUR
from tests import layouts, tiny_runs

NAMES = pinning.names()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, pinning.Pinned, Path]:
    """A ladder of glyphs-mini, pinned into a folder of its own."""
    root = tmp_path_factory.mktemp("pinned")
    workspace = tiny_runs.workspace(root / "work")
    fixed, written = pinned.pin("glyphs-mini@v1", workspace, root / "out", note="For tests.")
    assert [path.name for path in written] == [
        f"glyphs-mini@v1{ending}" for ending in (".json", ".croissant.jsonld", ".md")]
    return workspace, fixed, written[0]


@pytest.mark.parametrize("name", NAMES)
def test_every_pinned_ladder_is_sound_and_its_descriptions_are_its_own(name: str, tmp_path: Path) -> None:
    fixed = pinning.get(name)
    assert fixed.name == name
    assert sum(fixed.counts) >= max(split.train_images + split.test_images for split in fixed.splits)
    sizes = dict(zip(fixed.classes, fixed.counts))
    for split in fixed.splits:
        assert sum(sizes[c] for c in split.train) == split.train_images
        assert sum(sizes[c] for c in split.test) == split.test_images
    here = pinning.FOLDER / f"{name}.json"
    (tmp_path / here.name).write_bytes(here.read_bytes())
    for path in croissant.write(fixed, tmp_path):
        assert path.read_text() == (pinning.FOLDER / path.name).read_text(), f"write {path.name} anew"
    pinning.save(fixed, tmp_path / here.name)
    assert (tmp_path / here.name).read_bytes() == here.read_bytes()
    assert here.stat().st_size < 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_croissant_is_read_by_its_own_library(name: str) -> None:
    reader = pytest.importorskip("mlcroissant")
    path = pinning.FOLDER / f"{name}.croissant.jsonld"
    facts = json.loads(path.read_text())
    assert facts["distribution"][0]["sha256"] == hashlib.sha256(
        (pinning.FOLDER / f"{name}.json").read_bytes()).hexdigest()
    dataset = reader.Dataset(jsonld=path)
    assert not dataset.metadata.issues.errors
    fixed = pinning.get(name)
    rungs = list(dataset.records("rungs"))
    assert [rung["rungs/id"] for rung in rungs] == [split.id for split in fixed.splits]
    if fixed.splits[0].frd is not None:
        assert [rung["rungs/frd"] for rung in rungs] == pytest.approx([split.frd for split in fixed.splits])
    assert [one["classes/name"].decode() for one in dataset.records("classes")] == list(fixed.classes)


def test_the_published_runs_stand_on_the_pinned_ladder() -> None:
    fixed = pinning.get("glyphs@v2")
    published = Path(ladders.__file__).parents[2] / "reports/data/records/glyphs/splits/glyphs.json"
    assert pinning.same(fixed, manifest.load(published))


def test_what_is_pinned_is_used(made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path) -> None:
    workspace, fixed, path = made
    other = Workspace.at(tmp_path, workspace.data)
    index, ladder = pinned.use(str(path), other)
    assert ladder.made["pinned"] == {"name": "glyphs-mini@v1", "hash": fixed.hash}
    assert ladders.load(other, "glyphs-mini", index).splits == ladders.load(workspace, "glyphs-mini").splits
    assert fixed.queries[0] == by_hand(index, ladder.splits[0])
    assert pinned.use(str(path), other)[1] == ladder, "twice is once"
    assert pinned.named(str(path), None, other) == "glyphs-mini"
    with pytest.raises(UserError, match="not of cub"):
        pinned.named(str(path), "cub", other)


def by_hand(index: datasets.DatasetIndex, split: ladders.Split) -> str:
    """The hash of a test side's queries by another road than `Side`."""
    labels = [split.test.index(index.classes[i]) for i in index.labels if index.classes[i] in split.test]
    counted = [i for i, label in enumerate(labels) if labels.count(label) > 1]
    facts = {"classes": list(split.test), "counted": counted, "labels": labels}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def test_another_ladder_stays_unless_asked(made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path) -> None:
    workspace, fixed, path = made
    other = Workspace.at(tmp_path, workspace.data)
    ladder = ladders.load(workspace, "glyphs-mini")
    ladders.save(replace(ladder, splits=ladder.splits[:1]), other)
    before = ladders.path_of(other, "glyphs-mini").read_bytes()
    with pytest.raises(UserError, match="--replace"):
        pinned.use(str(path), other)
    assert ladders.path_of(other, "glyphs-mini").read_bytes() == before
    pinned.use(str(path), other, replace_other=True)
    assert len(ladders.load(other, "glyphs-mini").splits) == len(fixed.splits)


def test_every_difference_has_a_line(made: tuple[Workspace, pinning.Pinned, Path]) -> None:
    workspace, fixed, _ = made
    index = datasets.load("glyphs-mini", workspace.data)
    whole = (index.classes, index.labels, index.paths)
    assert list(pinning.differences(fixed, *whole)) == []
    assert list(pinning.differences(fixed, index.classes, index.labels[1:], index.paths[1:])) == [
        f"image '{index.paths[0]}' of class '{index.classes[0]}' is missing here"]
    labels = index.labels.copy()
    labels[0] = 1
    assert list(pinning.differences(fixed, index.classes, labels, index.paths)) == [
        f"image '{index.paths[0]}' is of class '{index.classes[1]}' here and of class '{index.classes[0]}' in "
        "glyphs-mini@v1"]
    more = (index.classes, np.append(index.labels, 0), (*index.paths, "new.png"))
    assert list(pinning.differences(fixed, *more)) == [
        f"image 'new.png' of class '{index.classes[0]}' is not in glyphs-mini@v1"]
    renamed = (("other", *index.classes[1:]), index.labels, index.paths)
    lines = list(pinning.differences(fixed, *renamed))
    count = fixed.counts[0]
    assert lines[:2] == [f"class '{index.classes[0]}' with {count} images is not here",
                         f"class 'other' with {count} images is not in glyphs-mini@v1"]
    moved = (index.classes, index.labels[1:], tuple(f"x/{path}" for path in index.paths[1:]))
    assert list(pinning.differences(fixed, *moved, layouts=True)) == [
        f"class '{index.classes[0]}' has {count - 1} images here and {count} in glyphs-mini@v1"]
    assert len(list(pinning.differences(fixed, *moved))) == 2 * len(index) - 1


def test_a_copy_that_lacks_images_is_taken_if_asked_and_not_as_the_pinned_one(tmp_path: Path) -> None:
    for name, sizes in {"whole": (3, 4, 3, 5), "fewer": (3, 3, 3, 4), "gone": (3, 4, 3), "more": (3, 3, 3, 6)}.items():
        layouts.cub(tmp_path / name / "cub", sizes, draw=False)
    whole, fewer, gone, more = (Workspace.at(tmp_path / f"{name}-work", tmp_path / name)
                                for name in ("whole", "fewer", "gone", "more"))
    ladders.save(ladders.build("cub", whole, default_only=True), whole)
    fixed, (path, *_) = pinned.pin("cub@v9", whole, tmp_path)
    with pytest.raises(UserError, match=r"2 differences.*or do without: .*--incomplete"):
        pinned.use(str(path), fewer)
    for other in (gone, more):  # a class without images, images that are not pinned
        with pytest.raises(UserError, match="put back what is named here:") as refused:
            pinned.use(str(path), other, incomplete=True)
        assert "--incomplete" not in str(refused.value)
    arguments = ["use", str(path), "--work", str(fewer.root), "--data", str(fewer.data)]
    told = CliRunner().invoke(splits_command, [*arguments, "--incomplete"], catch_exceptions=False).output
    assert "without 2 images of cub@v9, so results do not count as on it; wrote" in told
    index, ladder = pinned.use(str(path), fewer, incomplete=True)
    assert (ladder.dataset_hash, "pinned" in ladder.made) == (index.hash, False)
    assert [(split.hash, split.train_images, split.test_images) for split in ladder.splits] == [
        (split.hash, 6, 7) for split in fixed.splits]
    assert ladders.verify(ladders.path_of(fewer, "cub"), fewer) == []
    with pytest.raises(UserError, match="already: name the dataset, cub, and not the ladder"):
        pinned.named(str(path), None, fewer)
    _, there = pinned.use(str(path), whole, incomplete=True)
    assert there.made["pinned"]["hash"] == fixed.hash, "nothing is missing here"


def test_a_pinned_file_is_verified_and_is_no_manifest(
        made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path) -> None:
    workspace, fixed, path = made
    given = ["verify", "--work", str(workspace.root), "--data", str(workspace.data)]
    told = CliRunner().invoke(splits_command, [*given, str(path)])
    assert (told.exit_code, told.output) == (0, f"{path}: sound\n")
    shorter = replace(fixed, name="glyphs-mini@v2", counts=(fixed.counts[0] - 1, *fixed.counts[1:]), images=None,
                      splits=tuple(replace(split, train_images=split.train_images - (fixed.classes[0] in split.train),
                                           test_images=split.test_images - (fixed.classes[0] in split.test))
                                   for split in fixed.splits))
    pinning.save(shorter, tmp_path / "glyphs-mini@v2.json")
    told = CliRunner().invoke(splits_command, [*given, str(tmp_path / "glyphs-mini@v2.json")])
    assert told.exit_code == 1
    assert "NOT sound" in told.output
    assert f"class '{fixed.classes[0]}' has {fixed.counts[0]} images here" in told.output
    with pytest.raises(SplitError, match="is a pinned ladder"):
        manifest.load(path)
    assert f"`oodml splits use {path.name}` checks" in path.with_suffix(".md").read_text(), "it is known by its file"


def test_any_ids_are_read_as_they_were_pinned(tmp_path: Path) -> None:
    """Also those of a class without images, with spaces, and such as look like a list of others."""
    ids = (("1 a", "1 b"), ("['1 a',", "'1 b']"), ("1 a/x.jpg", "1 b/x.jpg"), (), ("é,\n\"", "日本"), ("alone",))
    names, counts = tuple("abcdef"), tuple(map(len, ids))
    rung = Split(1, "default", 0, ("a", "b", "d"), ("c", "e", "f"), (), 4, 5, 1.0, None)
    fixed = pinning.Pinned("any@v1", "any", "", names, counts, ids, (rung,), ("",))
    pinning.save(fixed, tmp_path / "any@v1.json")
    assert pinning.load(tmp_path / "any@v1.json") == fixed


@pytest.mark.parametrize("change", [
    lambda facts: facts["splits"][0].update(frd=1.0), lambda facts: facts["classes"][0].update(images=3),
    lambda facts: facts.update(name="glyphs-mini@v2"), lambda facts: facts["splits"][0].update(train="0-9999999"),
    lambda facts: facts.update(schema=9), lambda facts: facts.pop("classes"),
    lambda facts: facts["classes"][1].update(ids=["", "", 99]), lambda facts: facts["splits"][0].update(test="x"),
    lambda facts: facts["splits"][1].update(train_images=1), lambda facts: facts["splits"][1].update(test_images=1)])
def test_a_changed_file_is_refused_in_one_line(made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path,
                                               change: object) -> None:
    facts = json.loads(made[2].read_text())
    change(facts)  # type: ignore[operator]
    (tmp_path / "glyphs-mini@v1.json").write_text(json.dumps(facts))
    with pytest.raises(SplitError) as caught:
        pinning.get(str(tmp_path / "glyphs-mini@v1.json"))
    assert "\n" not in str(caught.value)


def test_names_and_versions(made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path) -> None:
    workspace, _, path = made
    with pytest.raises(UserError, match="glyphs-mini@v2"):
        pinned.pin("glyphs-mini@v1", workspace, path.parent)
    for name in ("glyphs-mini", "../x@v1", "a b@v1", "@v1"):
        with pytest.raises(UserError, match="NAME@VERSION"):
            pinned.pin(name, workspace, tmp_path)
    with pytest.raises(UserError, match="glyphs-mini@v1"):
        pinned.pin("mini@v1", workspace, tmp_path, dataset="glyphs-mini")
    for name in ("nothing@v1", "../../x@v1", "/etc/passwd"):
        with pytest.raises(SplitError, match="no pinned ladder"):
            pinning.get(name)
    assert not list(tmp_path.iterdir())


def test_a_published_name_means_one_ladder(made: tuple[Workspace, pinning.Pinned, Path], tmp_path: Path,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of one's own, too: there `glyphs@v1` would silently be another than everyone else's."""
    workspace, fixed, path = made
    monkeypatch.setattr(pinning, "FOLDER", tmp_path / "published")
    pinning.FOLDER.mkdir()
    for version in ("v1", "v2"):
        pinning.save(replace(fixed, name=f"glyphs-mini@{version}"), pinning.FOLDER / f"glyphs-mini@{version}.json")
    same, _ = pinned.pin("glyphs-mini@v1", workspace, tmp_path / "same")
    assert same.hash == fixed.hash
    moved = [replace(split, frd=split.frd and split.frd * 1.01) for split in fixed.splits]
    changed = replace(fixed, splits=tuple(moved))
    pinning.save(changed, pinning.FOLDER / path.name)
    (tmp_path / "mine").mkdir()
    pinning.save(replace(changed, name="glyphs-mini@v3"), tmp_path / "mine" / "glyphs-mini@v3.json")
    arguments = ["pin", "glyphs-mini@v1", "--out", str(tmp_path / "mine"), "--work", str(workspace.root)]
    told = CliRunner().invoke(splits_command, arguments).exception
    assert isinstance(told, UserError)
    for words in ("glyphs-mini@v1 is a published ladder", changed.hash[:12], fixed.hash[:12], "as in glyphs-mini@v4"):
        assert words in str(told)
    assert [one.name for one in (tmp_path / "mine").iterdir()] == ["glyphs-mini@v3.json"]


def test_the_card_of_ones_own_ladder_names_the_command_that_works(tmp_path: Path) -> None:
    for name in "abcd":
        for i in range(2):
            layouts.picture(tmp_path / "fruit" / name / f"{i}.png", name + str(i))
    workspace, birds = Workspace.at(tmp_path / "work"), f"folder:{tmp_path / 'fruit'}"
    ladders.save(ladders.build(birds, workspace, default_only=True), workspace)
    _, (file, *_, card) = pinned.pin("fruit@v1", workspace, tmp_path / "out", dataset=birds)
    assert "`oodml splits use fruit@v1.json --dataset folder:PATH/fruit` checks a local copy" in card.read_text()
    assert "Source of the images: The images of the author of this ladder." in card.read_text()
    index, _ = pinned.use(str(file), Workspace.at(tmp_path / "other"), dataset=birds)
    assert len(index) == 8


@pytest.fixture(scope="module")
def half_named(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, datasets.DatasetIndex]:
    """(data, file, index) of four small datasets whose union is pinned but for the classes of one of them."""
    root = tmp_path_factory.mktemp("open")
    for name in ("cub", "cars", "sop", "inshop"):
        getattr(layouts, name)(root / "data" / name, draw=False)
    index = datasets.load("uml-4", root / "data")
    counts = np.bincount(index.labels)
    named = [i for i, name in enumerate(index.classes) if not name.startswith("sop/")]
    (whole,) = ladders.of_union(index, 0).splits
    sides = {side: tuple(c for c in getattr(whole, side) if not c.startswith("sop/")) for side in pinning.SIDES}
    images = {f"{side}_images": sum(int(counts[index.classes.index(c)]) for c in sides[side])
              for side in ("train", "test")}
    sizes = [len(index.classes) - len(named), int(counts.sum() - counts[named].sum())]
    fixed = pinning.Pinned("uml-4@v1", "uml-4", "", tuple(index.classes[i] for i in named),
                           tuple(counts[named].tolist()), None, (replace(whole, **sides, **images),), ("",),
                           parameters={"members": ["cub", "cars", "sop", "inshop"], "seed": 0, "open": {"sop": sizes}})
    pinning.save(fixed, root / "uml-4@v1.json")
    return root / "data", root / "uml-4@v1.json", index


def test_a_member_that_is_left_open_is_taken_from_the_local_copy(
        half_named: tuple[Path, Path, datasets.DatasetIndex], tmp_path: Path) -> None:
    data, path, index = half_named
    _, ladder = pinned.use(str(path), Workspace.at(tmp_path / "a", data))
    assert [(split.train, split.test) for split in ladder.splits] == [(index.train_classes, index.test_classes)]
    assert ladder.made["pinned"]["hash"] == pinning.load(path).hash
    other = Workspace.at(tmp_path / "b", data)
    ladders.save(ladders.build("uml-4", other), other)
    assert pinned.use(str(path), other)[1].splits == ladder.splits, "the ladder that was built here is the same one"
    fixed = pinning.load(path)
    first = next(i for i, label in enumerate(index.labels) if index.classes[label].startswith("sop/"))
    (line,) = pinned.differences(fixed, replace(index, labels=np.delete(index.labels, first),
                                                paths=index.paths[:first] + index.paths[first + 1:], roles=None,
                                                domains=np.delete(index.domains, first)))
    assert line.startswith("sop has")
    swapped = replace(index, train_classes=index.test_classes, test_classes=index.train_classes)
    assert pinned.differences(fixed, swapped)[0] == "other train classes than in uml-4@v1"
    assert "sop, whose" in croissant.summary(fixed)
    assert fixed.hash != replace(fixed, parameters={**fixed.parameters, "open": {}}).hash


@pytest.mark.parametrize(("name", "members"), [("uml-4@v1", STANDARD_FOUR), ("uml@v1", EIGHT)])
def test_the_published_unions_have_the_official_sizes(name: str, members: tuple[str, ...]) -> None:
    fixed = pinning.get(name)
    assert tuple(fixed.parameters["members"]) == members
    sizes = dict(zip(fixed.classes, fixed.counts))
    for member in members:
        official = datasets.get(member).counts
        assert official is not None
        if member in fixed.open:
            assert fixed.open[member] == [official.train_classes + official.test_classes,
                                          official.train_images + official.test_images]
            continue
        for side, classes, images in (("train", official.train_classes, official.train_images),
                                      ("test", official.test_classes, official.test_images)):
            own = [c for c in getattr(fixed.splits[0], side) if c.startswith(f"{member}/")]
            assert (len(own), sum(sizes[c] for c in own)) == (classes, images), (member, side)


def test_duplicates_of_a_union_are_those_of_equal_pixels_and_what_is_missing_is_none(tmp_path: Path) -> None:
    """White pictures, one lying and one standing: as many bytes, but two pictures."""
    for name in ("x", "y"):
        for group in "ab":
            for number, size in enumerate(((10, 20), (20, 10))):
                (tmp_path / name / group).mkdir(parents=True, exist_ok=True)
                Image.new("RGB", size, "white").save(tmp_path / name / group / f"{number}.png")
    union = datasets.load(f"union:folder:{tmp_path / 'x'},folder:{tmp_path / 'y'}", tmp_path)
    assert pinned.duplicates(union) == [[f"{name}/{group}/{number}.png" for name in "xy" for group in "ab"]
                                        for number in range(2)]
    for path in tmp_path.glob("x/*/0.png"):
        path.unlink()
    assert ["y/a/0.png", "y/b/0.png"] in pinned.duplicates(union)
