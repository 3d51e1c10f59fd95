"""Packs: every number of a sound one is made again, and what does not follow is refused in one line."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchmark import datasets
from benchmark.cli import cli
from benchmark.ladders import pinned
from benchmark.submissions import check as pack_check
from benchmark.submissions import pack
from benchmark.submissions.evaluate import evaluate_ladder
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from reports.storage import queries
from splits import pinning
from tests import tiny_runs
from tests.birds import CARD
from tests.sample_records import identity

HTML = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """`work`, the packs `one/mine` of outcomes and `two/mine` with embeddings, on a pinned ladder of three rungs."""
    root = tmp_path_factory.mktemp("packs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinning, "FOLDER", root / "pinned")
        workspace = tiny_runs.workspace(root / "work")
        pinned.pin("glyphs-mini@v1", workspace, root / "pinned")
        pinned.use("glyphs-mini@v1", workspace)
        index = datasets.load("glyphs-mini", workspace.data)
        random = np.random.default_rng(0)
        for seed in (0, 1):
            x = random.normal(size=(len(index.classes), 8))[index.labels] + random.normal(size=(len(index), 8))
            np.savez(root / f"mine-{seed}.npz", embeddings=x.astype(np.float32), ids=index.paths)
        card = {key: HTML for key in CARD} | {"method": "mine", "code": f"https://example.org/{HTML}"}
        (root / "card.toml").write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in card.items()))
        evaluate_ladder(workspace, embeddings=str(root / "mine-{seed}.npz"), dataset="glyphs-mini", seeds=(0, 1),
                        card=root / "card.toml", device="cpu", keep=True)
        for folder, with_embeddings in (("one", False), ("two", True)):
            (root / folder).mkdir()
            pack.write(root / folder / "mine", workspace.runs, name="mine", embeddings=with_embeddings)
        yield root


def test_a_sound_pack_says_so_and_its_scores_are_those_of_the_embeddings(
        home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, level in (("one", "recomputed"), ("two", "re-embedded")):
        assert pack_check.problems(home / folder / "mine") == []
        frame = records.collect(home / folder)
        own = records.collect(home / "work" / "runs")
        assert set(frame["level"]) == {level}
        assert set(frame["ladder_name"]) == {"glyphs-mini@v1"}
        keys = ["split", "seed"]
        a, b = (part.set_index(keys).sort_index() for part in (frame, own))
        assert a.index.equals(b.index)
        for measure, room in (("recall@1", 1e-12), ("recall@8", 1e-12), ("map@r", 1e-5), ("map@1000", 1e-5)):
            np.testing.assert_allclose(a[measure], b[measure], atol=room)
    size = sum(path.stat().st_size for path in (home / "one").rglob("*") if path.is_file())
    assert size < 100_000
    result = CliRunner().invoke(cli, ["submit", "--check", str(home / "one" / "mine")])
    assert (result.exit_code, result.output) == (0, "mine: sound\n")
    monkeypatch.chdir(home / "one" / "mine")
    assert CliRunner().invoke(cli, ["submit", "--check", "."]).output == "mine: sound\n"


def mended(folder: Path) -> None:
    """Lists the hashes of the files as they are now, as a forger would."""
    facts = json.loads((folder / "pack.json").read_text())
    there = [path for path in folder.rglob("*") if path.is_file() and path.name != "pack.json"]
    facts["files"] = {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in there}
    (folder / "pack.json").write_text(json.dumps(facts))


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def outcomes(folder: Path, change: Callable[[dict[str, np.ndarray]], Any], record: bool = False) -> None:
    """Changes the arrays of one cell; with `record` its record is made to follow."""
    path = folder / "1-s0" / "queries.npz"
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    np.savez_compressed(path, **arrays)
    if record:
        facts = json.loads((folder / "pack.json").read_text())
        made = {key: facts[key] for key in ("version", "date")}
        follows = pack.record_of(pinning.get("glyphs-mini@v1"), 1, 0, facts["card"], queries.load(path),
                                 path.read_bytes(), facts["level"], made)
        records.write(folder / "1-s0", follows)


def embeddings(folder: Path, change: Callable[[np.ndarray], np.ndarray]) -> None:
    path = folder / "1-s0" / "embeddings.npy"
    np.save(path, change(np.load(path)))


def nan(x: np.ndarray) -> np.ndarray:
    x[0, 0] = np.nan
    return x


def better(arrays: dict[str, np.ndarray]) -> None:
    arrays["first_hit"][:] = 1
    for name in ("ap_r", "ap_1000"):
        arrays[name][:] = 65535


def headed(folder: Path, head: bytes) -> None:
    """Embeddings whose head says something else."""
    path = folder / "1-s0" / "embeddings.npy"
    start = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    path.write_bytes(start + path.read_bytes()[len(start):])


def twice(folder: Path, name: str) -> None:
    """A second folder for split 1 and seed 0, with a record of its own."""
    shutil.copytree(folder / "1-s0", folder / name)
    edit(folder / name / "record.json", lambda facts: facts.update(seed=7, scores={"last": {"recall@1": 1.0}}))


def with_parts(arrays: dict[str, np.ndarray]) -> None:
    """Impossible outcomes of a plain dataset that say to be of a union."""
    arrays["ap_r"].fill(65535)
    arrays.update({f"part_{name}": arrays[name] for name in ("first_hit", "ap_r", "ap_1000")},
                  part=np.zeros(len(arrays["labels"]), np.uint8), part_names=np.array(["x"]))


def bomb(folder: Path) -> None:
    with zipfile.ZipFile(folder / "1-s0" / "queries.npz", "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("part_first_hit.npy", bytes(40_000_000))


def sparse(folder: Path) -> None:
    os.truncate(folder / "1-s0" / "embeddings.npy", 10_000_000_000)


def pickled(folder: Path) -> None:
    arrays = {"labels": np.array([{"a": 1}] * 3, dtype=object)}
    np.savez(folder / "1-s0" / "queries.npz", **arrays)


def linked(folder: Path) -> None:
    (folder / "1-s0" / "queries.npz").unlink()
    (folder / "1-s0" / "queries.npz").symlink_to("/etc/passwd")


BAD: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "NaN": ("two", lambda p: embeddings(p, nan), "NaN or infinite"),
    "fewer embeddings": ("two", lambda p: embeddings(p, lambda x: x[1:]), "the test side has"),
    "cut embeddings": ("two", lambda p: os.truncate(p / "1-s0" / "embeddings.npy", 500), "not as long"),
    "fewer outcomes": ("one", lambda p: outcomes(p, lambda a: a.update(first_hit=a["first_hit"][1:])), "labels"),
    "shuffled labels": ("one", lambda p: outcomes(p, lambda a: a.update(labels=a["labels"][::-1])), "not those of"),
    "shuffled embeddings": ("two", lambda p: embeddings(p, lambda x: x[::-1].copy()), "do not follow from the embed"),
    "another ladder": ("one", lambda p: edit(p / "pack.json", lambda f: f["ladder"].update(hash="0" * 64)),
                       "another ladder"),
    "unknown ladder": ("one", lambda p: edit(p / "pack.json", lambda f: f["ladder"].update(name="../x@v1")),
                       "not pinned here"),
    "invented outcomes": ("two", lambda p: outcomes(p, better, record=True), "do not follow from the embeddings"),
    "impossible outcomes": ("one", lambda p: outcomes(p, lambda a: a["ap_r"].fill(65535), record=True), "impossible"),
    "impossible mAP@1000": ("one", lambda p: outcomes(p, lambda a: a["ap_1000"].fill(65535), record=True),
                            r"impossible.*\(map@1000\)"),
    "parts of no union": ("one", lambda p: outcomes(p, with_parts, record=True), "datasets x; .* has none"),
    "a split twice": ("one", lambda p: twice(p, "1-s00"), "'1-s00/.*' does not belong"),
    "a split twice in other digits": ("one", lambda p: twice(p, "1-s\u0660"), "does not belong"),
    "a head cut short": ("two", lambda p: headed(p, b"{'shape': (240, 8, }"), "not an array"),
    "a deep head": ("two", lambda p: headed(p, b"-" * 3000 + b"1"), "not an array"),
    "a rank beyond": ("one", lambda p: outcomes(p, lambda a: a.update(first_hit=a["first_hit"] + np.uint16(999))),
                      "lies at rank"),
    "a better score": ("one", lambda p: edit(p / "1-s0" / "record.json", lambda f: f["scores"]["last"].update(
        {"recall@1": 0.99})), "scores.last.recall@1 = 0.99"),
    "an own score": ("one", lambda p: edit(p / "1-s0" / "record.json", lambda f: f["scores"]["last"].update(nmi=0.9)),
                     "scores.last.nmi"),
    "run here": ("one", lambda p: edit(p / "1-s0" / "record.json", lambda f: f.update(source="run")), "source = 'run'"),
    "not a fraction": ("one", lambda p: edit(p / "1-s0" / "record.json", lambda f: f["scores"]["last"].update(
        {"recall@1": 7.0})), "scores.last.recall@1"),
    "another level": ("one", lambda p: edit(p / "pack.json", lambda f: f.update(level="re-embedded")),
                      "embeddings.npy"),
    "10 GB of zeros": ("two", sparse, "bytes; at most"),
    "zeros that unpack": ("one", bomb, "40,000,000 bytes"),
    "objects": ("one", pickled, "first_hit|objects|bytes"),
    "a link": ("one", linked, "no plain file"),
    "another file": ("one", lambda p: (p / "1-s0" / "run.py").write_text("1"), "does not belong"),
    "a missing split": ("one", lambda p: shutil.rmtree(p / "1-s0"), "every split"),
    "HTML as name": ("one", lambda p: edit(p / "pack.json", lambda f: f["card"].update(method=HTML)), "no name"),
    "a field too long": ("one", lambda p: edit(p / "pack.json", lambda f: f["card"].update(paper="x" * 9999)),
                         "1 to 300"),
    "script as address": ("one", lambda p: edit(p / "pack.json", lambda f: f["card"].update(code="javascript:x")),
                          "https://"),
    "one more key": ("one", lambda p: edit(p / "pack.json", lambda f: f.update(more=1)), "just the keys"),
    "no JSON": ("one", lambda p: (p / "pack.json").write_text("{"), "damaged"),
    "deep JSON": ("one", lambda p: (p / "pack.json").write_text("[" * 100_000), "damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_follow_is_refused(home: Path, tmp_path: Path, name: str) -> None:
    folder, change, words = BAD[name]
    shutil.copytree(home / folder / "mine", tmp_path / "mine")
    change(tmp_path / "mine")
    if name not in ("10 GB of zeros", "a link", "no JSON", "deep JSON"):
        mended(tmp_path / "mine")
    before = {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")}
    found = pack_check.problems(tmp_path / "mine")
    assert len(found) == 1, found
    assert re.search(words, found[0]), found
    assert "\n" not in found[0]
    assert "mine" in found[0]
    assert {path: path.lstat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("entry", ["/etc/passwd", "../x/queries.npz", "1-s0/../../queries.npz", "1-s0\\queries.npz"])
def test_a_path_that_leads_out(home: Path, tmp_path: Path, entry: str) -> None:
    shutil.copytree(home / "one" / "mine", tmp_path / "mine")
    edit(tmp_path / "mine" / "pack.json", lambda facts: facts["files"].update({entry: "0" * 64}))
    (line,) = pack_check.problems(tmp_path / "mine")
    assert "does not lie in the pack" in line


def test_a_file_that_was_changed_and_two_packs_of_one_name(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "one" / "mine", tmp_path / "mine")
    shutil.copytree(home / "one" / "mine", tmp_path / "MINE")
    assert ["called the same" in line for line in pack_check.problems(tmp_path / "mine")] == [True]
    other = tmp_path / "MINE"
    edit(other / "pack.json", lambda facts: facts.update(name="other"))
    assert ["same outcomes" in line for line in pack_check.problems(tmp_path / "mine")] == [True]
    shutil.rmtree(other)
    outcomes(tmp_path / "mine", lambda arrays: arrays["first_hit"].fill(1))
    (line,) = pack_check.problems(tmp_path / "mine")
    assert "not the file whose hash is listed" in line


def test_a_folder_that_is_no_pack_says_what_it_is(home: Path, tmp_path: Path) -> None:
    """Told of the folder and not of the first file in it: packs, packed records, a pack without its head."""
    shutil.copytree(home / "one" / "mine", tmp_path / "mine")
    (tmp_path / "README.md").write_text("Packs.")
    (line,) = pack_check.problems(tmp_path)
    assert f"this is a folder of packs (mine), not a pack; give these: `oodml submit --check {tmp_path}/*/`" in line
    packed = Path(records.__file__).parent / "data/records"
    for folder in (packed / "glyphs", packed):
        (line,) = pack_check.problems(folder)
        assert "this is a folder of packed records" in line, line
    (tmp_path / "mine" / "pack.json").unlink()
    (tmp_path / "mine" / "notes.txt").write_text("Mine.")
    assert "there is no pack.json" in pack_check.problems(tmp_path / "mine")[0]


def test_the_bounds_of_average_precision_are_those_of_all_orders() -> None:
    """Every way in which 3 images to be found can lie among 7 ranks."""
    sums: dict[tuple[int, int], list[float]] = {}
    for ranks in itertools.combinations(range(1, 8), 3):
        for last in (3, min(ranks[0] + 2, 6)):
            sums.setdefault((ranks[0], last), []).append(sum((i + 1) / r for i, r in enumerate(ranks) if r <= last))
    f, last = np.array(list(sums)).T
    least, most = pack_check._bounds(f, last)
    np.testing.assert_allclose(most, [max(values) for values in sums.values()])
    assert all(low <= min(values) + 1e-12 for low, values in zip(least, sums.values()))


def test_the_card_of_the_newest_results_counts(home: Path, tmp_path: Path) -> None:
    """A result that was superseded since, without a card or with another, has no say."""
    runs = tmp_path / "runs"
    shutil.copytree(home / "work" / "runs", runs)
    for change in (lambda facts: facts.pop("card"), lambda facts: facts["card"].update(paper="old")):
        (cell,) = runs.glob("*/8/mine/s1-*")
        old = shutil.copytree(cell, cell.with_name("s1-ffffffff"))
        edit(old / "record.json", lambda facts: facts.update(identity="f" * 64))
        edit(old / "record.json", lambda facts: facts["provenance"].update(date="2001-01-01T00:00:00Z"))
        edit(old / "record.json", lambda facts, change=change: change(facts["provenance"]))
        made = pack.write(tmp_path / "mine", runs, name="mine")
        assert json.loads((made / "pack.json").read_text())["card"]["paper"] == HTML
        shutil.rmtree(made)
        shutil.rmtree(old)


def test_a_seed_may_be_any_number(home: Path, tmp_path: Path) -> None:
    workspace = Workspace.at(shutil.copytree(home / "work", tmp_path / "work"), home / "data")
    shutil.copy(home / "mine-0.npz", tmp_path / "other.npz")
    card = (home / "card.toml").read_text().replace('"mine"', '"other"')
    (tmp_path / "card.toml").write_text(card)
    evaluate_ladder(workspace, embeddings=str(tmp_path / "other.npz"), dataset="glyphs-mini", seeds=(20240131,),
                    card=tmp_path / "card.toml", device="cpu")
    made = pack.write(tmp_path / "other", workspace.runs, name="other", check=pack_check.problems)
    assert (made / "1-s20240131").is_dir()


def test_nothing_is_written_where_something_is_missing(home: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(home / "work" / "runs", runs)
    with pytest.raises(UserError, match="no results of 'other', but of mine,"):
        pack.write(tmp_path / "other", runs, name="other")
    shutil.rmtree(next(runs.glob("*/1/mine/s0-*")))
    with pytest.raises(UserError, match=r"lacks split 1 \(seed 0\)"):
        pack.write(tmp_path / "mine", runs, name="mine")
    with pytest.raises(UserError, match="named mine"):
        pack.write(tmp_path / "others", home / "work" / "runs", name="mine")
    with pytest.raises(UserError, match="there already"):
        pack.write(home / "one" / "mine", home / "work" / "runs", name="mine")
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_a_pack_stands_among_the_runs_and_breaks_no_page(home: Path, tmp_path: Path) -> None:
    """Beside runs of the same backbone on the same ladder: its rank, its card, and what a bot would say of it."""
    runs = tmp_path / "runs"
    for path in (home / "one" / "mine").rglob("record.json"):
        record = json.loads(path.read_text())
        for method, less in (("margin", -0.1), ("arcface", 0.1)):
            scores = {key: float(np.clip(value + less, 0, 1)) for key, value in record["scores"]["last"].items()}
            facts = {"source": "run", "identity": identity(f"{method}-{path.parent.name}"), "scores": {"last": scores},
                     "protocol": {"name": "demo"}, "provenance": {"date": "2026-01-01T00:00:00Z", "overrides": {}},
                     "method": record["method"] | {"name": method, "family": "f", "trains": "network", "papers": []}}
            records.write(runs / f"{method}-{path.parent.name}", record | facts)
    arguments = ["diff", "--against", str(runs), str(home / "one" / "mine")]
    said = CliRunner().invoke(cli, arguments)
    assert said.exit_code == 0, said.output + repr(said.exception)
    assert "| rank among 3 on" in said.output
    records.write(runs / "alone", record | facts | {"identity": identity("alone"), "protocol": {"name": "glyphs"}})
    assert CliRunner().invoke(cli, arguments).output.count("###") == 1, "a board without another rank says nothing"
    shutil.rmtree(runs / "alone")
    assert "recomputed" in said.output
    assert "<script" not in said.output
    site = tmp_path / "site"
    words = ["report", "--records", str(runs), "--records", str(home / "one"), "--out", str(site), "--work",
             str(tmp_path / "work")]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output + repr(shown.exception)
    pages = {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}
    assert not [name for name, text in pages.items() if "<script>alert" in text or "<img src=x" in text]
    assert '>mine</a> <span class="badge">recomputed</span>' in pages["index.html"]
    assert pages["index.html"].count('id="ladder-') == 1, "one board, not one of its own"
    order = re.findall(r">(arcface|mine|margin)</a>", pages["index.html"].partition('id="ladder-')[2])
    assert order[:3] == ["arcface", "mine", "margin"]
    assert re.search("<h2[^>]*>Card", pages["method/mine-submitted.html"])
    for name in ("recomputed", "re-embedded", "run here", "reported"):
        assert f'<span class="badge">{name}</span>' in pages["about.html"]


def test_workspace_is_not_needed_to_check(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets, "load", lambda *_: pytest.fail("the dataset was read"))
    assert pack_check.problems(home / "two" / "mine") == []
    assert not list(tmp_path.iterdir())
    assert Workspace.at().root == Path("work")


PUBLISHED = sorted((Path(records.__file__).parent / "data/submissions").glob("*/"))


@pytest.mark.slow
@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.name)
def test_a_published_pack_is_sound(path: Path) -> None:
    assert not pack_check.problems(path)
