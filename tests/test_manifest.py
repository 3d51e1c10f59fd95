"""Manifests: what is written is what is read, and what was tampered with or does not fit is refused."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmark.submissions import reading
from splits import SplitError
from splits.export import export
from splits.manifest import Iteration, Ladder, Split, check, load, save, validation_part, verify

EASY = Split(1, "default", 0, ("a", "b", "c"), ("d", "e", "ж"), ("b",), 6, 7, 1.5, 2.5)
HARD = Split(2, "swap", 3, ("a", "b", "e"), ("c", "d", "ж"), ("a",), 7, 6, 3.25, 4.5)
STEP = Iteration("swap", 1, 3.25, 4.5, ("c",), ("e",), 3, 3, 7, 6)
LADDER = Ladder("toy", "f" * 64, {"backbone": "pixels"}, {"seed": 0}, (EASY, HARD), (STEP,), {"mean": 0.1, "draws": 2})
PUBLISHED = Path(__file__).resolve().parents[1] / "reports" / "data" / "records"
CLASSES = ("a", "b", "c", "d", "e", "ж")
LABELS = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 5, 5])


def written(tmp_path: Path) -> Path:
    save(LADDER, tmp_path / "splits" / "toy.json")
    return tmp_path / "splits" / "toy.json"


def edited(path: Path, change: str, by: str, mend_hash: bool = False) -> Path:
    text = path.read_text(encoding="utf-8")
    assert change in text
    path.write_text(text.replace(change, by, 1), encoding="utf-8")
    if mend_hash:
        facts = json.loads(path.read_text(encoding="utf-8"))
        stated, _ = facts.pop("hash"), facts.pop("schema")
        fitting = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        path.write_text(path.read_text(encoding="utf-8").replace(stated, fitting), encoding="utf-8")
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert load(path) == LADDER
    assert load(path).hash == LADDER.hash == json.loads(path.read_text(encoding="utf-8"))["hash"]
    assert [p.name for p in path.parent.iterdir()] == ["toy.json"], "no temporary file stays"
    assert "ж" in path.read_text(encoding="utf-8"), "a person can read it"
    before = path.read_bytes()
    save(LADDER, path)
    assert path.read_bytes() == before


def test_how_it_was_made_is_kept_beside_the_hash(tmp_path: Path) -> None:
    """The hash of a manifest without it, written out here as versions before computed it, is that of one with it."""
    signed = replace(LADDER, made={"version": "9.9", "command": "oodml splits build --dataset toy"})
    before = json.loads(written(tmp_path).read_text(encoding="utf-8"))
    assert "made" not in before, "a ladder of which nothing is known is written as it always was"
    stated = before.pop("hash")
    before.pop("schema")
    assert stated == hashlib.sha256(json.dumps(before, sort_keys=True).encode()).hexdigest() == signed.hash
    save(signed, tmp_path / "signed.json")
    again = load(tmp_path / "signed.json")
    assert (again.made, again.hash, again) == (signed.made, LADDER.hash, LADDER)


@pytest.mark.parametrize("path", sorted(PUBLISHED.glob("*/splits/*.json")), ids=lambda path: "/".join(path.parts[-3:]))
def test_published_manifests_are_read_and_keep_their_hash(path: Path) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    stated, _ = facts.pop("hash"), facts.pop("schema")
    facts.pop("made", None)  # by whom it was made is outside the hash
    ladder = load(path)
    assert ladder.hash == stated == hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def test_a_change_by_hand_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match="hash does not match"):
        load(edited(written(tmp_path), "1.5", "1.25"))


def test_a_class_on_both_sides_is_noticed_even_with_a_fitting_hash(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match=r"split 1 has class 'd' in train and in test"):
        load(edited(written(tmp_path), '"train": [\n    "a"', '"train": [\n    "d"', mend_hash=True))


@pytest.mark.parametrize(("change", "by", "message"), [
    ('"schema": 1', '"schema": 99', "schema version 1"),
    ('"dataset": "toy"', '"datasett": "toy"', "misnames"),
    ('"kind": "default",\n', "", "misnames"),
    ("{", "[", "not a split manifest"),
])
def test_a_broken_manifest(tmp_path: Path, change: str, by: str, message: str) -> None:
    with pytest.raises(SplitError, match=message) as caught:
        load(edited(written(tmp_path), change, by))
    assert "\n" not in str(caught.value)
    assert "oodml splits build" in str(caught.value)


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for name in ("list.json", "bytes.json", "absent.json"):
        with pytest.raises(SplitError, match=name):
            load(tmp_path / name)


@pytest.mark.parametrize(("change", "message"), [
    ({"test": ("a", "d")}, "class 'a' in train and in test"),
    ({"validation": ("a", "z")}, "validates on class 'z'"),
    ({"train": ("a", "a", "b")}, "twice in train"),
    ({"test": ()}, "empty side"),
    ({"kind": "odd"}, "unknown kind 'odd'"),
    ({"id": 4}, "ids must be 1 to 1"),
    ({"frd": float("nan")}, "no finite number"),
])
def test_nothing_wrong_is_written(tmp_path: Path, change: dict[str, object], message: str) -> None:
    bad = replace(LADDER, splits=(replace(EASY, **change),))  # type: ignore[arg-type]
    with pytest.raises(SplitError, match=message):
        save(bad, tmp_path / "bad.json")
    assert not list(tmp_path.iterdir())
    with pytest.raises(SplitError, match="holds no split"):
        check(replace(LADDER, splits=()))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SplitError, match="cannot write"):
        save(LADDER, tmp_path / "file" / "toy.json")


def test_the_key_of_a_split_is_its_classes() -> None:
    same = replace(EASY, id=5, frd=9.0, train=("c", "a", "b"), iteration=7)
    assert same.hash == EASY.hash
    assert replace(EASY, validation=("a",)).hash != EASY.hash
    assert replace(EASY, train=EASY.test, test=EASY.train, validation=()).hash != replace(EASY, validation=()).hash


def test_a_split_that_is_not_there() -> None:
    assert LADDER.split(2) is HARD
    with pytest.raises(SplitError, match="no split 7; there are 1, 2"):
        LADDER.split(7)
    assert LADDER.default is EASY


def test_verify_against_the_dataset() -> None:
    assert verify(LADDER, CLASSES, LABELS, "f" * 64) == []
    assert verify(LADDER, CLASSES, LABELS[1:], "0" * 64) == [
        "made from dataset ffffffff, on disk is 00000000",
        "split 1: train should have 6 images, on disk are 5",
        "split 2: train should have 7 images, on disk are 6"]
    lacking = verify(LADDER, CLASSES[:5], LABELS[:-2])
    assert "split 1: test has class 'ж', not on disk" in lacking


@pytest.mark.parametrize("n", [2, 3, 62, 74, 86, 98])
def test_validation_is_a_quarter_as_in_the_released_files(n: int) -> None:
    train = [f"c{i}" for i in range(n)]
    held = validation_part(train, 0)
    assert len(held) == {2: 1, 3: 1, 62: 16, 74: 19, 86: 22, 98: 25}[n]
    assert [c for c in train if c in held] == list(held)
    assert set(validation_part(train[::-1], 0)) == set(held)
    if n > 50:
        assert set(validation_part(train, 1)) != set(held)


PATHS = [f'{CLASSES[c]}/im,"{i} .jpg' for i, c in enumerate(LABELS)]


@pytest.mark.parametrize("form", ["csv", "json", "txt"])
@pytest.mark.parametrize("hold_out", [False, True])
def test_exported_lists_hold_every_image_once(form: str, hold_out: bool) -> None:
    """By themselves they are what runs train on: validation classes are set apart where that is asked for."""
    text = "".join(export(HARD, PATHS, LABELS, CLASSES, form, hold_out=hold_out))
    if form == "csv":
        found = [tuple(r.values()) for r in csv.DictReader(io.StringIO(text))]
    elif form == "json":
        found = [tuple(map(str, r.values())) for r in json.loads(text)]
    else:
        found = [tuple(line.split("\t")) for line in text.splitlines()]
    expected = set()
    for path, label in zip(PATHS, LABELS):
        name = CLASSES[label]
        side = HARD.train if name in HARD.train else HARD.test
        part = "test" if side is HARD.test else "validation" if hold_out and name in HARD.validation else "train"
        expected.add((path, name, str(side.index(name)), part, ""))
    assert len(found) == len(LABELS)
    assert set(found) == expected


def test_exported_names_are_those_of_the_dataset_also_where_a_spreadsheet_sees_a_formula(tmp_path: Path) -> None:
    """Images are known by them again, and opened."""
    odd = {name: f"{mark}{name}" for name, mark in zip(CLASSES, "=+-@'\t")}
    split = replace(HARD, **{side: tuple(map(odd.__getitem__, getattr(HARD, side)))
                             for side in ("train", "test", "validation")})
    images = [f"{odd[CLASSES[c]]}/{i}.jpg" for i, c in enumerate(LABELS)]
    path = tmp_path / "ids.csv"
    path.write_text("".join(export(split, images, LABELS, list(odd.values()), "csv")), encoding="utf-8", newline="")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["image"], row["class"]) for row in rows} == {(image, odd[CLASSES[c]]) for image, c in
                                                              zip(images, LABELS)}
    np.save(tmp_path / "mine.npy", np.zeros((len(rows), 2)))
    assert set(reading.read(tmp_path / "mine.npy", path).ids) == set(images)


def test_export_keeps_roles_and_refuses_what_it_lacks() -> None:
    roles = np.array(["query", "gallery"] * 6 + ["query"])
    lines = list(export(EASY, PATHS, LABELS, CLASSES, "txt", roles))
    assert lines[0].endswith("\ttrain\tquery\n")
    with pytest.raises(SplitError, match="unknown format 'xml'"):
        next(export(EASY, PATHS, LABELS, CLASSES, "xml"))
    with pytest.raises(SplitError, match="the dataset lacks"):
        next(export(EASY, PATHS, LABELS, [*CLASSES[:5], "other"], "csv"))
    with pytest.raises(SplitError, match="take csv or json"):
        next(export(EASY, ["a\tb.jpg", *PATHS[1:]], LABELS, CLASSES, "txt"))
