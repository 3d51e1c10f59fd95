"""Names from records, packs, inspections and plug-ins lead nowhere but below their folder, and stay text everywhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import methods
from benchmark.board import leaderboard
from benchmark.cli import cli, main
from benchmark.commands.records import command
from benchmark.utils.terminal import Harmless
from benchmark.utils.workspace import Workspace
from reports import ReportError, exports, packing, records, site
from reports.analysis import study_progress
from reports.analysis.results import Results
from reports.html import extras
from reports.safe_text import one_line, printable
from reports.storage import by_class, packed, paths, queries
from reports.tables import formats
from reports.tables.table import Column, Table
from splits import manifest
from splits.manifest import Iteration, Ladder, Split
from tests.sample_records import make_record, write_sample

OUTSIDE = ["../../escaped", "/tmp/escaped-oodml", "..", ".", "a/../../b", "a\\b", "a\nb", "a\0b", "", ".hidden",
           "x" * 300, "\ud800", "a\x1b[2Jb", "a\uff0fb", "\u2024\u2024", "a:b*"]


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out_of_its_folder(name: str, tmp_path: Path) -> None:
    assert not paths.is_plain(name)
    for dataset, method, identity in ((name, "margin", "0" * 8), ("cub", name, "0" * 8), ("cub", "margin", f"/{name}")):
        with pytest.raises(ReportError) as refused:
            records.run_folder(tmp_path, dataset, 1, method, 0, identity)
        assert "\n" not in str(refused.value)
        assert "\x1b" not in str(refused.value)
        assert len(str(refused.value)) < 400
    with pytest.raises(ReportError):
        study_progress.write(tmp_path, study_progress.StudyProgress(name, "", "", pd.DataFrame()))
    with pytest.raises(methods.MethodError):
        methods.register(name, family="ranking")
    assert tree(tmp_path) == set()


def test_no_name_is_a_device() -> None:
    assert not any(map(paths.is_plain, ("CON", "nul.txt", "com1", "Lpt9.json")))
    assert all(map(paths.is_plain, ("contrastive", "null", "com10x", "mixup@margin", "été")))


def test_paths_below_a_folder_follow_links(tmp_path: Path) -> None:
    home = tmp_path / "site"
    (home / "method").mkdir(parents=True)
    (home / "out").symlink_to(tmp_path)
    (home / "pipe").parent.mkdir(exist_ok=True)
    os.mkfifo(home / "pipe")
    (home / "page.html").write_text("x")
    assert paths.below(home, "method/a.html") == home / "method" / "a.html"
    for bad in ("../a", "/etc/passwd", "out/a", "method/../../a", ".", "a\0b"):
        with pytest.raises(ReportError, match="does not lie below"):
            paths.below(home, bad)
    assert paths.is_own_file(home, "page.html")
    assert not any(paths.is_own_file(home, name) for name in ("pipe", "method", "absent", "out/site/../x", "../site"))


@pytest.mark.parametrize("changes", [{"dataset": "../../escaped"}, {"method": "../../../escaped"},
                                     {"dataset": "ABSOLUTE"}])
def test_packs_are_neither_unpacked_nor_packed_elsewhere(changes: dict[str, Any], tmp_path: Path) -> None:
    record = make_record()
    if "method" in changes:
        record["method"]["name"] = changes["method"]
    else:
        record |= {key: str(tmp_path / "escaped") if value == "ABSOLUTE" else value for key, value in changes.items()}
    (tmp_path / "from" / "glyphs").mkdir(parents=True)
    sound = make_record(method="s2sd")
    for name, content in (("a", sound), ("b", record)):
        curve: Any = {key: [point[key] for point in content["curve"]] for key in content["curve"][0]}
        text = packed.to_text([{"record": content | {"curve": curve}, "beside": {}}])
        (tmp_path / "from" / "glyphs" / f"{name}.runs.jsonl").write_text(text)
    before = tree(tmp_path)
    with pytest.raises(ReportError, match="cannot be the name of a file"):
        packing.unpack(tmp_path / "from", tmp_path / "deep" / "er" / "runs")
    assert tree(tmp_path) == before  # nor the sound one: a pack is taken whole or not
    with pytest.warns(UserWarning, match="cannot be the name of a file"):
        assert packing.pack([tmp_path / "from"], tmp_path / "deep" / "er" / "out")[1] == 1
    assert not any("escaped" in name for name in tree(tmp_path))


def test_a_pack_is_not_written_through_links(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1)
    (tmp_path / "out").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out" / "glyphs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReportError, match="does not lie below"):
        packing.pack([runs], tmp_path / "out")
    assert tree(tmp_path / "elsewhere") == set()


def test_ladders_and_studies_of_a_pack_are_its_own_files(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1)
    packing.pack([runs], tmp_path / "pack")
    (tmp_path / "secret").write_text("secret")
    for folder in ("splits", "studies"):
        (tmp_path / "pack" / folder).mkdir()
        (tmp_path / "pack" / folder / "mine.json").symlink_to(tmp_path / "secret")
    done = CliRunner().invoke(command, ["unpack", str(tmp_path / "pack"), "--work", str(tmp_path / "work")],
                              catch_exceptions=False)
    assert done.exit_code == 0
    assert not [path for path in (tmp_path / "work").rglob("mine.json")]


def inspected(folder: Path, **changes: Any) -> tuple[Path, Path]:
    """Runs one of which was looked into; (their folder, that of the run's pictures)."""
    runs = write_sample(folder / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1)
    home = next((runs / "glyphs" / "1" / "margin").iterdir()) / "inspect"
    home.mkdir()
    (home / "image-1.png").write_bytes(b"picture")
    shot = {"id": 1, "image": "image-1.png", "class": "a"}
    rows = [{"query": shot, "neighbours": [shot | {"right": True, "similarity": 1.0}]}]
    content = {"schema": 1, "run": "x", "side": 112, "lead": "", "files": ["image-1.png"], "figures": [], "galleries": [
        {"kind": "sampled", "title": "t", "note": "n", "neighbours": 1, "rows": rows}]}
    (home / "inspection.json").write_text(json.dumps(content | changes))
    return runs, home


SHOT = {"id": 1, "image": "../../../x.png", "class": "a"}


@pytest.mark.parametrize("changes", [
    {"files": ["../../../../../../secret"]}, {"files": ["SECRET"]}, {"files": ["image-1.png", "link.png"]},
    {"files": ["image-1.png", "inspection.json"]}, {"files": "image-1.png"}, {"galleries": {}}, {"lead": 3},
    {"lead": "\ud800"}, {"files": ["image-1.png", "huge.png"]},
    {"files": [["x"]]}, {"figures": [{"title": "a", "file": "../x.png", "caption": "c"}]}, {"files": ["pipe.png"]},
    {"galleries": [{"title": "t", "note": "", "neighbours": 1, "rows": [{"query": SHOT, "neighbours": []}]}]},
])
def test_an_inspection_takes_along_nothing_but_its_pictures(changes: dict[str, Any], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("never to be published")
    if changes.get("files") == ["SECRET"]:
        changes = {"files": [str(secret)]}
    runs, home = inspected(tmp_path, **changes)
    (home / "link.png").symlink_to(secret)
    os.mkfifo(home / "pipe.png")
    (home / "huge.png").touch()
    os.truncate(home / "huge.png", 1 << 40)
    with pytest.raises(ReportError, match="inspect"):
        extras.read_inspection(home / "inspection.json")
    (row,) = extras.damaged(records.scan(runs)[0]).to_dict("records")
    assert row["state"] == "damaged"
    assert "inspection.json" in row["path"]


def test_a_sound_inspection_is_shown_and_another_is_listed(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_text("never to be published")
    runs, home = inspected(tmp_path)
    other = next((runs / "glyphs" / "1" / "s2sd").iterdir()) / "inspect"
    shutil.copytree(home, other)
    text = (home / "inspection.json").read_text()
    away = "../" * len(other.parts) + f"{tmp_path}/secret.png"
    (other / "inspection.json").write_text(text.replace("image-1.png", away))
    frame, lost = records.scan(runs)
    index = site.build(Results(frame), lost, tmp_path / "site")
    pages = {str(path.relative_to(index.parent)): path.read_text("utf-8", "replace")
             for path in index.parent.rglob("*") if path.is_file()}
    assert pages["inspect/glyphs-1-margin-s0/image-1.png"] == "picture"
    assert [name for name in pages if name.startswith("inspect/") and "s2sd" in name] == []
    assert not any("never to be published" in text for text in pages.values())
    assert any("no picture beside it" in text for text in pages.values())
    told = CliRunner().invoke(cli, ["report", "--records", str(runs), "--out", str(tmp_path / "site")])
    assert re.search("^damaged: glyphs 1 s2sd: .*no picture beside it", told.output, re.M), told.output
    (home / "inspection.json").unlink()
    frame, lost = records.scan(runs)
    site.build(Results(frame), lost, tmp_path / "site")
    assert not (tmp_path / "site" / "inspect").exists(), "no empty folder stays behind"


@pytest.mark.parametrize("listing", [["../secret"], ["SECRET"], ["old.html", {"a": 1}, None], "old.html", {"x": 1},
                                     ["link/secret"], 3, ["a\0b"], ["method"], "[" * 100_000])
def test_a_site_deletes_only_its_own_pages(listing: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("kept")
    out = tmp_path / "site"
    (out / "method").mkdir(parents=True)
    (out / "old.html").write_text("old")
    (out / "link").symlink_to(tmp_path)
    if listing == ["SECRET"]:
        listing = [str(secret)]
    text = listing if isinstance(listing, str) and listing.startswith("[[") else json.dumps(listing)
    (out / ".oodml-site.json").write_text(text)
    site._write({"index.html": "new"}, out)
    assert secret.read_text() == "kept"
    assert (out / "old.html").exists() is (not (isinstance(listing, list) and "old.html" in listing))


@pytest.mark.parametrize("name", ["index.html", ".oodml-site.json"])
def test_pages_are_not_written_through_links_nor_into_pipes(name: str, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "site" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(ReportError, match="does not lie below"):
        site._write({"index.html": "new"}, tmp_path / "site")
    assert (tmp_path / "mine").read_text() == "mine"
    (tmp_path / "site" / name).unlink()
    os.mkfifo(tmp_path / "site" / name)
    with pytest.raises(ReportError, match="no plain file"):
        site._write({"index.html": "new"}, tmp_path / "site")


def test_what_lies_beside_records_is_read_only_there_and_at_a_sane_size(tmp_path: Path) -> None:
    """Links to files elsewhere and files of a terabyte are listed as damaged; the report shows the rest."""
    work = tmp_path / "work"
    runs = write_sample(work / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1)
    outside = tmp_path / "outside.json"
    outside.write_text('{"secret": 1}')
    first, second, *_ = sorted(path.parent for path in runs.rglob("record.json"))
    for folder in ("studies", "tune"):
        (work / folder).mkdir()
        (work / folder / "mine.json").symlink_to(outside)
        (work / folder / "huge.json").touch()
        os.truncate(work / folder / "huge.json", 1 << 40)
    (first / "record.json").unlink()
    (first / "record.json").symlink_to(outside)
    (second / "queries.npz").write_bytes(b"PK cut")
    (second / "classes.json").write_bytes(b"\xff[")
    for name in ("x.runs.jsonl", "failures.jsonl"):
        (runs / "glyphs" / name).touch()
        os.truncate(runs / "glyphs" / name, 1 << 40)
    board = leaderboard.collect(Workspace.at(work), [])
    causes = "\n".join(board.lost["cause"])
    assert len(board.lost) == 7, causes
    assert causes.count("bytes") == 6  # four of the studies and searches, both files of a terabyte
    assert "a link out of its folder" in causes
    with pytest.warns(UserWarning, match=r"queries\.npz is damaged"):
        assert packing.archive(board.results.runs)
    assert by_class.kept(second)
    (second / "queries.npz").unlink()
    assert not by_class.kept(second)


def test_queries_do_not_unpack_to_more_than_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / queries.NAME, first_hit=np.zeros(10**6, np.int8), labels=np.zeros(10**6, np.int8),
                        counted=np.zeros(125_000, np.uint8))
    assert len(queries.load(tmp_path / queries.NAME).labels) == 10**6
    monkeypatch.setattr(paths, "LARGEST", 10**5)
    with pytest.raises(ReportError, match="labels unpacks to more than 100,000 bytes"):
        queries.load(tmp_path / queries.NAME)


def test_figures_of_a_ladder_stay_in_their_folder(tmp_path: Path) -> None:
    """A manifest of a pack may name another dataset than its file does."""
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=1)
    packing.pack([runs], tmp_path / "pack")
    frame, _ = records.scan(tmp_path / "pack")
    rungs = [Split(i, "swap", 0, (f"a{i}",), ("b",), (), 1, 1, 1.0, 1.0) for i in (1, 2)]
    for dataset in ("glyphs", "../../escaped"):
        step = Iteration("swap", 1, 1.0, 1.0, ("a",), ("b",), 1, 1, 1, 1)
        ladder = Ladder(dataset, "d", {}, {}, tuple(rungs), (step,))
        manifest.save(ladder, tmp_path / "pack" / "splits" / "glyphs.json")
    with pytest.raises(ReportError, match="cannot be the name"):
        leaderboard.ladder_figures.draw("glyphs", Workspace.at(tmp_path / "pack"), tmp_path / "out", False, 0)
    (tmp_path / "secret").write_text("never to be published")
    (tmp_path / "pack" / "splits" / "glyphs-umap.png").symlink_to(tmp_path / "secret")
    board = leaderboard.collect(Workspace.at(tmp_path / "work"), [tmp_path / "pack"])
    board._draw(tmp_path / "figures")
    assert not (tmp_path / "figures" / "glyphs-umap.png").exists()
    assert len(frame)


EVIL = "=cmd|' /C calc'!A0 \\input{/etc/passwd} [x](javascript:alert(1)) <script> a|b\nnew \x1b[2J\r*x* `y`"


@pytest.fixture
def table() -> Table:
    frame = pd.DataFrame({"method": [EVIL, "-0.5", "margin", "@x"], "gain": [-0.5, 0.25, None, 0.1]})
    columns = Column("method", "=Method|"), Column("gain", "Gain", "number", digits=2)
    return Table("t", EVIL, columns, frame, note=EVIL)


def test_cells_of_csv_are_no_formulas_and_numbers_stay_numbers(table: Table, tmp_path: Path) -> None:
    text = formats.to_csv(table)
    (tmp_path / "t.csv").write_text(text)
    assert formats._harmless("\uff1d1+1").startswith("'")  # some spreadsheets take full-width signs, too
    back = pd.read_csv(tmp_path / "t.csv")
    assert back["gain"].dropna().tolist() == [-0.5, 0.25, 0.1]
    assert back["method"].tolist()[1:] == ["-0.5", "margin", "'@x"]
    assert back["method"][0].startswith("'=cmd")
    assert "\x1b" not in text
    assert "\r" not in text
    mixed = formats.csv_text(pd.DataFrame({"+a": [1.5, -2.5], "b": ["+1", "+x"], "c": [-1, "=x"]}).items())
    assert mixed == "'+a,b,c\n1.5,+1,-1\n-2.5,'+x,'=x\n"


def test_every_format_takes_names_for_text(table: Table) -> None:
    latex = formats.to_latex(table)
    assert not any(r"\input" in line for line in latex.splitlines() if not line.startswith("%"))
    assert r"\textbackslash{}input\{" in latex
    assert all(line.startswith(("%", "\\")) or line.endswith("\\\\") for line in latex.splitlines())
    markdown = formats.to_markdown(table)
    assert "<script>" not in markdown
    assert "[x](" not in markdown
    rows = markdown.splitlines()[:6]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)
    for form in formats.FORMATS:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", formats.render(table, form)), form
    assert json.loads(formats.to_json(table))["rows"][1]["gain"] == 0.25


def test_macros_hold_one_line_each(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6}, ("glyphs",), seeds=2)
    frame = records.scan(runs)[0].assign(method="x\n\\input{/etc/passwd}")
    text = exports.export(Results(frame, with_published=False), "ags", "macros")
    assert text
    assert all(re.match(r"\\newcommand\{\\oodml[A-Za-z]+\}\{[\d.]+\} % ", line) for line in text.splitlines())


def test_a_name_that_cannot_be_a_file_is_one_damaged_record(tmp_path: Path) -> None:
    runs = write_sample(tmp_path / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=1)
    count = packing.pack([runs], tmp_path / "pack")[1]
    first = next((runs / "glyphs").rglob("record.json"))
    first.write_text(first.read_text().replace(first.parents[1].name, "a/b"))
    file = tmp_path / "pack" / "glyphs" / "margin.runs.jsonl"
    entries = [json.loads(json.dumps(entry)) for entry in packed.read(file).values()]
    entries[1]["record"]["seed"] = -2**40
    file.write_text(packed.to_text(entries))
    for folder in (runs, tmp_path / "pack"):
        frame, lost = records.scan(folder)
        assert (len(frame), lost["state"].tolist()) == (count - 1, ["damaged"]), "the others of its file go on"


def test_a_protocol_or_backbone_has_a_name_that_a_figure_may_show() -> None:
    for part in ("protocol", "backbone"):
        record = make_record()
        record[part]["name"] = "x\x1b[2J"
        with pytest.raises(ReportError, match=f"the name of the {part} holds control characters"):
            records.check(record)


def test_control_characters_never_reach_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\tb\nc") == "a\tb\nc"
    assert one_line("\x9b31m\u202e" + "y" * 5000, 50).startswith("\\x9b31m\\u202eyy")
    with pytest.raises(SystemExit):
        main(["run", "--methods", "margin", "--dataset", "a\x1b[31m\x07\udcff", "--work", str(tmp_path)])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.err + shown.out
    assert "\\x07\\udcff" in shown.err
    with pytest.raises(SystemExit):
        main(["run", "--methods", "margin", "--dataset", "x" * 100_000, "--work", str(tmp_path)])
    assert len(capsys.readouterr().err) < 3000


def test_progress_bars_still_move(capsys: pytest.CaptureFixture[str]) -> None:
    stream = Harmless(sys.stdout)
    for text in ("\n", "\x1b[A", "\r  \r", "\rbar \x1b[31m\rx"):
        stream.write(text)
    assert capsys.readouterr().out == "\n\x1b[A\r  \r\rbar \\x1b[31m\\rx"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_stream_harms_nothing(closed: str, tmp_path: Path) -> None:
    root = Path(__file__).parent.parent
    done = subprocess.run(["sh", "-c", f'"{sys.executable}" -m benchmark.cli protocols {closed}'], cwd=root,
                          env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
