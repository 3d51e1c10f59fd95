"""The command line: quick help, and one clear line with exit code 2 for every mistake of a user."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from benchmark.cli import cli, main
from benchmark.runs import planned
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from tests import tiny_sweep

ROOT = Path(__file__).parent.parent


def oodml(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", "from benchmark.cli import main; main()", *arguments], cwd=cwd or ROOT,
                          capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The one line that a refused call prints; in this process, where any other error is one of the test."""

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(list(arguments))
        error = capsys.readouterr().err
        assert caught.value.code == 2, error
        lines = [line for line in error.splitlines() if line and not line.startswith(("Usage:", "Try "))]
        assert len(lines) == 1, error
        return lines[0]

    return call


@pytest.fixture(scope="module")
def work(tiny_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the ladder of glyphs-mini."""
    return Path(shutil.copytree(tiny_base, tmp_path_factory.mktemp("work") / "work"))


HEAVY = ("torch", "timm", "pandas", "matplotlib", "scipy", "faiss", "sklearn")


def every_command(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield words
    for name in group.list_commands(click.Context(group)):
        inner = group.get_command(click.Context(group), name)
        yield from every_command(inner, (*words, name)) if isinstance(inner, click.Group) else [(*words, name)]


def test_help_imports_nothing_heavy() -> None:
    """What makes help slow is importing the libraries of training and drawing; so no command may load them.

    One process asks every command in turn: the first that loads one is named.
    """
    commands = list(every_command(cli))
    told = refuse_to_import(set(HEAVY), [[*words, "--help"] for words in commands])
    for words in commands:
        assert re.search(rf"^Usage: {' '.join(['oodml', *words])}\b", told, re.MULTILINE), words


def refuse_to_import(modules: set[str], commands: list[list[str]]) -> str:
    """What commands print in turn in one process, none of which may load these; the first that does is named."""
    code = ("import sys; from benchmark.cli import cli\n"
            f"for words in {commands!r}:\n"
            "    try: cli.main(words, prog_name='oodml')\n"
            "    except SystemExit as done: assert not done.code, words\n"
            f"    loaded = {modules!r} & set(sys.modules)\n"
            "    assert not loaded, (words, loaded)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_needs_no_torch_imports_none(tiny: Workspace) -> None:
    """These answer within a second; importing torch alone takes two. The first that loads it is named."""
    planned.save_plan(tiny, tiny_sweep.jobs(tiny), "oodml run")  # so that `status` has something to count
    here = ["--work", str(tiny.root)]
    ladder = ["--dataset", "glyphs-mini", *here]
    commands = [["status", *here], ["methods"], ["methods", "--tag", "modern"], ["methods", "show", "s2sd"],
                ["plan", "--methods", "all", *ladder], ["plan", "--methods", "s2sd", *ladder, "--set", "epochs=3"],
                ["run", "--methods", "margin", *ladder, "--dry-run"], ["protocols"],
                ["protocols", "show", "oodml"], ["studies"], ["datasets", *here], ["datasets", "show", "cub", *here],
                ["splits", "show", *ladder],
                ["splits", "verify", str(tiny.splits / "glyphs-mini.json"), *here]]
    refuse_to_import({"torch", "timm", "torchvision", "pandas", "scipy", "matplotlib.figure"}, commands)


def test_lists_need_no_numpy() -> None:
    """What only names things answers in the time that Python itself takes."""
    refuse_to_import({"numpy", "PIL"}, [["protocols"], ["protocols", "show", "oodml"], ["studies"], ["methods"]])


def test_refusals_need_no_torch_and_leave_no_folder(tmp_path: Path) -> None:
    """A mistyped name, a file that is not there: told at once, a method before a ladder that is missing too."""
    margni, glyfs = ["--dataset", "glyphs", "--methods", "margni"], ["--dataset", "glyfs", "--methods", "margin"]
    commands = {(name, *words): f"'{wrong}'"
                for name in ("run", "tune", "fewshot", "wise", "ensemble")
                for words, wrong in ((margni, "margni"), (glyfs, "glyfs"))}
    commands |= {("run", "--study", "demmo"): "'demmo'",
                 **{(name, "--dataset", "glyphs", "--methods", "margin", "--work", "a/b"): "glyphs has no ladder"
                    for name in ("run", "fewshot", "wise")},
                 ("ensemble", "--dataset", "glyphs", "--methods", "margin"): "glyphs is not a union",
                 ("ensemble", "--dataset", "glyphs-union", "--methods", "margin"): "no method of 'margin'",
                 ("evaluate", "--embeddings", "no.npz", "--dataset", "glyfs"): "'glyfs'",
                 ("evaluate", "--embeddings", "no.npz", "--dataset", "glyphs", "--card", "no.toml"): "no.toml",
                 ("submit", "mine"): "no results of 'mine'", ("inspect", "nowhere"): "nowhere is not the folder",
                 ("inspect",): "there is no folder"}
    code = ("import sys; from benchmark.cli import main\n"
            f"for words in {list(commands)!r}:\n"
            "    try: main(list(words))\n"
            "    except SystemExit as done: assert done.code == 2, words\n"
            "    assert not {'torch', 'timm'} & set(sys.modules), words")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    for line, (words, said) in zip(done.stderr.splitlines(), commands.items(), strict=True):
        assert said in line, words
    assert not list(tmp_path.iterdir())


def test_embeddings_that_are_not_there_are_told_before_torch_is_imported(work: Path) -> None:
    code = ("import sys; from benchmark.cli import main\n"
            f"try: main(['evaluate', '--embeddings', 'no.npz', '--dataset', 'glyphs-mini', '--work', {str(work)!r}])\n"
            "except SystemExit: print('torch' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n"
    assert done.stderr == ("oodml: there is no file no.npz; --embeddings names a file, in which {split} and {seed} "
                           "stand for the numbers of each split and seed; --split ID scores one split alone\n")


def test_what_follows_runs_is_refused_before_torch_where_there_are_none(work: Path) -> None:
    """The ladder is there; a split that it lacks, and runs that were never made, are told at once."""
    commands = {(name, "--dataset", "glyphs-mini", "--methods", "margin", "--splits", splits, "--work", str(work)): said
                for name in ("fewshot", "wise")
                for splits, said in (("all", "no finished run of margin on glyphs-mini (splits: all)"), ("99", "99"))}
    code = ("import sys; from benchmark.cli import main\n"
            f"for words in {list(commands)!r}:\n"
            "    try: main(list(words))\n"
            "    except SystemExit as done: assert done.code == 2, words\n"
            "    assert not {'torch', 'timm'} & set(sys.modules), words")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for line, (words, said) in zip(done.stderr.splitlines(), commands.items(), strict=True):
        assert said in line, words


def test_the_leaderboard_imports_no_more_than_it_needs() -> None:
    """scipy.stats alone takes most of a second, as long as pandas or matplotlib, which pages are made with."""
    code = ("import sys, scipy.special\n"  # that of scipy 1.13 imports scipy.linalg itself
            "own = set(sys.modules)\n"
            "import benchmark.board.leaderboard, reports.terminal\n"
            "print({'torch', 'timm', 'sklearn', 'scipy.stats', 'scipy.optimize', 'scipy.linalg'} & "
            "(set(sys.modules) - own))")
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize(("words", "told"), [
    ("run --methods margn --dataset glyphs-mini", "unknown method 'margn' (did you mean 'margin'"),
    ("run --methods margin --dataset glyph", "unknown dataset 'glyph' (did you mean 'glyphs'"),
    ("run --methods margin --dataset glyphs --protocol demmo", "unknown protocol 'demmo' (did you mean 'demo'"),
    ("splits build --dataset glyphs-mini --backbone resnt50", "unknown backbone 'resnt50' (did you mean 'resnet50"),
    ("protocols demo", "did you mean `oodml protocols show demo`?); `oodml protocols` lists all"),
    ("protocols demmo", "(did you mean 'demo'?); `oodml protocols show NAME` shows one by its name, `oodml pro"),
    ("methods margn", "did you mean 'margin' or 'r-margin'?); `oodml methods show NAME`"),
    ("datasets cbu", "did you mean 'cub'?); `oodml datasets show NAME`"),
    ("studies oodml-cbu", "did you mean 'oodml-cub'?); `oodml studies show NAME`"),
    ("splits cub@v1", "did you mean `oodml splits show cub@v1`?); `oodml datasets` lists all"),
    ("splits bild", "there is no command 'bild' (did you mean 'build'?)"),
    ("records pak", "there is no command 'pak' (did you mean 'pack'?)"), ("datasts", "did you mean 'datasets'?)"),
    ("splits verify cub", "there is no file cub; give a manifest by its path: "),
])
def test_an_unknown_name_is_refused_with_the_near_one(refused: Callable[..., str], tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch, words: str, told: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert told in refused(*words.split())


def test_a_mistake_ends_a_process_with_code_2_and_without_a_traceback(tmp_path: Path) -> None:
    done = oodml("splits", "show", "--dataset", "glyph", "--work", str(tmp_path))
    assert done.returncode == 2
    assert "glyphs" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dataset_without_a_ladder_says_which_command_makes_it(refused: Callable[..., str], tmp_path: Path) -> None:
    line = refused("run", "--methods", "margin", "--dataset", "glyphs-mini", "--work", str(tmp_path))
    assert "oodml splits build --dataset glyphs-mini" in line


@pytest.mark.parametrize(("content", "words"), [("{", "glyphs-mini.json"), ('{"schema": 99}', "glyphs-mini.json")])
def test_a_broken_manifest_is_named(refused: Callable[..., str], tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "splits").mkdir()
    (tmp_path / "splits" / "glyphs-mini.json").write_text(content)
    assert words in refused("run", "--methods", "margin", "--dataset", "glyphs-mini", "--work", str(tmp_path))


def test_a_manifest_whose_classes_were_changed_by_hand_is_refused(refused: Callable[..., str], work: Path,
                                                                  tmp_path: Path) -> None:
    (tmp_path / "splits").mkdir()
    text = (work / "splits" / "glyphs-mini.json").read_text()
    (tmp_path / "splits" / "glyphs-mini.json").write_text(text.replace('"iteration": 0', '"iteration": 1', 1))
    assert "hash" in refused("splits", "show", "--dataset", "glyphs-mini", "--work", str(tmp_path))


def test_an_unwritable_folder_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = refused("splits", "build", "--dataset", "glyphs-mini", "--work", str(tmp_path / "file" / "work"))
    assert "cannot write" in line
    assert "--work" in line


@pytest.mark.parametrize(("change", "words"), [
    ("epoch=3", "did you mean 'epochs'"), ("margin.bta=1", "did you mean 'beta'"), ("epochs", "KEY=VALUE"),
    ("=3", "KEY=VALUE"), ("margin.beta=high", "margin.beta"), ("arcface.scale=3", "not among the methods"),
])
def test_a_wrong_set_is_explained(refused: Callable[..., str], work: Path, change: str, words: str) -> None:
    line = refused("run", "--methods", "margin", "--dataset", "glyphs-mini", "--set", change, "--work", str(work))
    assert words in line


def test_splits_are_shown_verified_and_exported(work: Path, tmp_path: Path) -> None:
    shown = oodml("splits", "show", "glyphs-mini", "--work", str(work))
    assert shown.stdout == oodml("splits", "show", "--dataset", "glyphs-mini", "--work", str(work)).stdout
    pinned = oodml("splits", "show", "cub@v1").stdout
    assert pinned == oodml("splits", "show", "--ladder", "cub@v1").stdout
    assert "made by `oodml splits use cub@v1`\n" in pinned
    assert "another ladder" not in pinned, "it was built by the suite's rule"
    assert "two datasets are named" in oodml("splits", "show", "cub", "--dataset", "glyphs-mini").stderr
    assert "default" in shown.stdout
    assert "i.i.d." in shown.stdout
    manifest = work / "splits" / "glyphs-mini.json"
    assert oodml("splits", "verify", str(manifest), "--work", str(work)).returncode == 0
    done = oodml("splits", "export", "glyphs-mini", "--split", "1", "--out", str(tmp_path), "--work",
                 str(work))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "glyphs-mini-1.csv").read_text().splitlines()
    assert len(lines) == 481
    (tmp_path / "glyphs-mini-1.json").write_bytes(manifest.read_bytes())  # the ladder of another dataset, by its name
    done = oodml("splits", "export", "glyphs-mini", "--split", "1", "--out", str(tmp_path), "--work", str(work),
                 "--format", "json")
    assert "is the ladder of glyphs-mini-1, which stays" in done.stderr
    assert (tmp_path / "glyphs-mini-1.json").read_bytes() == manifest.read_bytes()


def test_a_run_is_done_once_and_reported(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("run", "--methods", "margin", "--dataset", "glyphs-mini", "--splits", "1", "--seeds", "1",
                 "--jobs", "1", "--set", "steps_per_epoch=2", "--work", str(work))
    first = oodml(*arguments)
    assert first.returncode == 0, first.stdout + first.stderr
    records = list(work.glob("runs/glyphs-mini/1/margin/*/record.json"))
    assert len(records) == 1
    written = records[0].stat().st_mtime_ns
    main(list(arguments))
    assert "1 done, 0 running" in capsys.readouterr().out
    assert records[0].stat().st_mtime_ns == written
    main(["report", "--work", str(work)])
    assert (work / "leaderboard" / "index.html").exists()
    told = capsys.readouterr().out
    assert "Recall@1 of each method on the default split of glyphs-mini" in told, "one rung is no ladder"


@pytest.mark.skipif(not hasattr(os, "pipe2"), reason="needs a pipe that nobody reads")
@pytest.mark.parametrize("words", [["methods"], ["splits", "use"], ["studies"]])
def test_a_reader_that_went_away_ends_a_command_as_any_other_program(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", "oodml", *words], stdout=writing, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_leaderboard_is_there_for_a_reader_of_its_first_line(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    records = Path(__file__).parent.parent / "reports" / "data" / "records" / "glyphs"
    done = subprocess.run([sys.executable, "-m", "oodml", "report", "--records", str(records), "--dataset",
                           "glyphs-arrows", "--out", str(tmp_path / "site")], stdout=writing, stderr=subprocess.PIPE,
                          text=True, check=False)
    os.close(writing)
    assert "Traceback" not in done.stderr
    assert (tmp_path / "site" / "index.html").is_file()


def test_tables_are_cut_to_a_terminal_and_whole_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("name", "what"), ("margin", "A long line. " * 10)]
    assert list(columns(rows))[1].endswith("A long line.")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "30")
    assert [len(line) for line in columns(rows)] == [12, 30]
