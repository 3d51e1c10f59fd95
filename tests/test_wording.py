"""What commands print as a reader would write it: sizes, plurals, numbers, gains, and hints at mistyped names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

import methods
from benchmark import datasets
from benchmark.cli import main
from benchmark.config import protocol, study
from benchmark.data import ladders
from benchmark.utils import errors
from benchmark.utils.workspace import Workspace
from reports.tables.boards import Column, Table
from splits import pinning


@pytest.fixture
def own(tmp_path: Path) -> str:
    """A dataset of two classes, of one image each."""
    for name, shade in (("one", 30), ("two", 200)):
        (tmp_path / "own" / name).mkdir(parents=True)
        Image.new("RGB", (20, 10), (shade, 0, 0)).save(tmp_path / "own" / name / "1.png")
    return f"folder:{tmp_path / 'own'}"


@pytest.fixture
def splittable(own: str, tmp_path: Path) -> str:
    """The same with two classes more: a default split has at least two test classes."""
    for name, shade in (("three", 90), ("four", 150)):
        (tmp_path / "own" / name).mkdir()
        Image.new("RGB", (20, 10), (shade, 0, 0)).save(tmp_path / "own" / name / "1.png")
    return own


def test_a_small_dataset_is_not_said_to_take_nothing(own: str, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    main(["datasets", "prepare", own, "--work", str(tmp_path / "work")])
    assert re.search(r"2 images decoded, 1\.2 KB in", capsys.readouterr().out), "2 images of 20 x 10 x 3 bytes"


def test_one_of_a_kind_is_no_plural(own: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["datasets", "show", own, "--work", str(tmp_path / "work")])
    assert "found: 1 image of 1 class to train on" in capsys.readouterr().out


def test_settings_have_a_sensible_precision(capsys: pytest.CaptureFixture[str]) -> None:
    for name in methods.names():
        main(["methods", "show", name])
    out = capsys.readouterr().out
    assert not re.search(r"\d\.\d{9}", out)
    assert "0.1667" in out
    main(["protocols", "show", "oodml"])
    assert re.search(r"\blr +1e-05 ", capsys.readouterr().out), "what is exact stays so"


@pytest.mark.parametrize(("gain", "shown"), [(-0.0001, "0.0"), (0.0, "0.0"), (0.0004, "0.0"), (-0.0006, "−0.1"),
                                             (0.012, "+1.2")])
def test_a_gain_of_nothing_has_no_sign(gain: float, shown: str) -> None:
    table = Table("t", "t", (Column("gain", "Gain", "gain"),), pd.DataFrame({"gain": [gain]}))
    assert table.text(table.rows[0], table.columns[0]) == shown


def test_versions_of_the_board_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    main(["board"])
    assert "`oodml board cut v2026.1" in capsys.readouterr().out
    home = tmp_path / "reports" / "data" / "boards"
    home.mkdir(parents=True)
    facts = {"oodml": "0.1.0", "folders": [], "records": {"a": "1"}, "tables": {"b": "2", "c": "3"}, "pages": ""}
    for name, text in (("v2026.10", json.dumps(facts)), ("v2026.2", "{"), ("notes", "{}")):
        (home / f"{name}.json").write_text(text)
    main(["board"])
    out = capsys.readouterr().out
    assert out.index("v2026.2 ") < out.index("v2026.10 "), "in the order in which they were cut"
    assert "1 file of records, 2 tables" in out
    assert "damaged" in out
    assert "notes" not in out
    assert "`oodml board check VERSION`" in out
    with pytest.raises(SystemExit) as ended:
        main(["board", "check", "v2026.11"])
    assert ended.value.code == 2
    assert "did you mean 'v2026.10'" in capsys.readouterr().err


def test_both_libraries_hint_alike() -> None:
    known = [*methods.names(), *datasets.names(), *protocol.names(), *study.names()]
    for name in ("margn", "Proxy_Anchor", "cubb", "odml", "x", "", "glyphs-mni", "uml5"):
        assert methods.near(name, known) == errors.near(name, known)


@pytest.mark.parametrize(("words", "meant"), [
    (["statsu"], "status"), (["methods", "show", "Proxy_Anchr"], "proxyanchor"),
    (["methods", "--tag", "rankin"], "ranking"),
    (["plan", "--methods", "tag:rankin", "--dataset", "glyphs-mini"], "ranking"),
    (["datasets", "show", "carss"], "cars"), (["protocols", "show", "odml"], "oodml"),
    (["studies", "show", "oodml-cbu"], "oodml-cub"), (["splits", "show", "cub@v9"], "cub@v1"),
    (["splits", "show", "--ladder", "cars@oodml"], "cars@ooDML"), (["splits", "use", "glyph@v1"], "glyphs@v1"),
    (["report", "--metric", "recal@1"], "recall@1"), (["export", "--metric", "map@100"], "map@1000"),
    (["report", "--dataset", "glphs"], "glyphs"), (["report", "--ladder", "glyphs@v3"], "glyphs@v2"),
])
def test_a_mistyped_name_is_told_with_the_nearest(words: list[str], meant: str, tmp_path: Path,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    records = pinning.FOLDER.parents[1] / "reports" / "data" / "records" / "glyphs"
    more = ["--records", str(records), "--work", str(tmp_path)] if words[0] in ("report", "export") else []
    with pytest.raises(SystemExit) as ended:
        main([*words, *more])
    assert ended.value.code == 2
    assert re.search(rf"did you mean .*'{re.escape(meant)}'", capsys.readouterr().err)


def test_a_dataset_of_one_s_own_has_one_name_wherever_it_is_called_from(
        splittable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Built by a relative path; then by its name, and by other spellings of the path, from elsewhere."""
    work = tmp_path / "work"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "link").symlink_to(tmp_path / "own")
    for shade in range(2, 5):
        for name in ("one", "two", "three", "four"):
            picture = Image.new("RGB", (20, 10), (50 * shade, 0, ord(name[1])))
            picture.save(tmp_path / "own" / name / f"{shade}.png")
    main(["splits", "build", "--dataset", "folder:./own/", "--default-only", "--work", str(work)])
    assert "Next: `oodml run --dataset own" in capsys.readouterr().out
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    shown = set()
    for called in ("own", splittable, f"{splittable}/", "folder:~/own", "folder:../own", "folder:../else/../own/",
                   "folder:../link"):
        main(["splits", "show", called, "--work", str(work)])
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1
    for what, said in (("show", "8 images of 2 classes"), ("check", "sound"), ("prepare", "16 images decoded")):
        main(["datasets", what, "own", "--work", str(work)])
        assert said in capsys.readouterr().out


def test_a_ladder_that_others_get_names_no_folder_of_this_machine(splittable: str, tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path / "work")
    ladder = ladders.build(splittable, workspace, default_only=True)
    assert str(tmp_path) in ladder.made["command"]
    assert str(tmp_path) not in str(ladders.published(ladder).facts())
    assert "folder:own" in ladders.published(ladder).made["command"]
