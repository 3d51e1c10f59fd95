"""What commands print as a reader would write it: sizes, plurals, numbers, gains, and hints at mistyped names."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

import methods
from benchmark import datasets, ladders
from benchmark.cli import main
from benchmark.config import protocol, study
from benchmark.utils import errors
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.tables.table import Column, Table
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
    def named(what: Any, name: str = "", *_: Any, **__: Any) -> None:
        raise UserError(f"asked for {name or what[0]}")

    monkeypatch.setattr("benchmark.ladders.distances.cross", lambda names, *_, **__: named(names))
    monkeypatch.setattr("benchmark.ladders.distances.compare_backbones", lambda *_, **__: None)
    monkeypatch.setattr("benchmark.ladders.figures.comparison_text", str)
    monkeypatch.setattr("benchmark.ladders.figures.comparison", named)
    for words, meant in ((["cross", "--datasets", "own"], splittable),
                         (["compare", "own", "--backbones", "a,b"], "own")):
        with pytest.raises(SystemExit):
            main(["splits", *words, "--work", str(work)])
        assert capsys.readouterr().err.endswith(f"asked for {meant}\n")


def test_a_ladder_that_others_get_names_no_folder_of_this_machine(splittable: str, tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path / "work")
    ladder = ladders.build(splittable, workspace, default_only=True)
    assert str(tmp_path) in ladder.made["command"]
    assert str(tmp_path) not in str(ladders.published(ladder).facts())
    assert "folder:own" in ladders.published(ladder).made["command"]


def test_a_hint_at_a_missing_ladder_names_the_working_folder_and_pinned_ladders(
        splittable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("OODML_WORK", raising=False)
    work = tmp_path / "elsewhere"
    for name, hints in ((splittable, [f"`oodml splits build --dataset {splittable} --work {work}`"]),
                        ("glyphs", [f"`oodml splits build --dataset glyphs --work {work}`",
                                    f"`oodml splits use glyphs@v2 --work {work}`"])):
        with pytest.raises(SystemExit) as ended:
            main(["plan", "--methods", "margin", "--dataset", name, "--work", str(work)])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert [hint for hint in hints if hint not in said] == []
        assert ("splits use" in said) == (name == "glyphs")


def test_a_manifest_of_one_s_own_dataset_is_checked_without_naming_its_folder(
        splittable: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["splits", "build", "--dataset", splittable, "--default-only", "--work", str(tmp_path / "work")])
    with pytest.raises(SystemExit) as ended:
        main(["splits", "verify", str(tmp_path / "work" / "splits" / "own.json"), "--work", str(tmp_path / "other")])
    assert ended.value.code == 0
    assert "own.json: sound" in capsys.readouterr().out


def test_a_pinned_ladder_of_one_s_own_dataset_is_used_by_others(splittable: str, tmp_path: Path,
                                                                capsys: pytest.CaptureFixture[str]) -> None:
    """Pinned by its name, and taken in another working folder, where its name alone says nothing."""
    main(["splits", "build", "--dataset", splittable, "--default-only", "--work", str(tmp_path / "work")])
    main(["splits", "pin", "own@v1", "--out", str(tmp_path / "pins"), "--work", str(tmp_path / "work")])
    words = ["splits", "use", str(tmp_path / "pins" / "own@v1.json"), "--work", str(tmp_path / "theirs")]
    shutil.copytree(tmp_path / "own", tmp_path / "other")
    for more, why in (([], "--dataset folder:PATH"), (["--dataset", f"folder:{tmp_path / 'other'}"], "called 'other'")):
        with pytest.raises(SystemExit):
            main([*words, *more])
        assert why in capsys.readouterr().err
    main([*words, "--dataset", splittable])
    assert "all 4 images of own are those of own@v1" in capsys.readouterr().out
    main(["splits", "show", "own", "--work", str(tmp_path / "theirs")])
    assert f"--dataset {splittable}" in capsys.readouterr().out
    (tmp_path / "own" / "one" / "1.png").rename(tmp_path / "own" / "one" / "2.png")
    with pytest.raises(SystemExit):
        main([*words, "--dataset", splittable])
    assert "2 differences; nothing was written" in capsys.readouterr().err
