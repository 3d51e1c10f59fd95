"""The control of a ladder, whose test classes stay: the builder, its command, and the page with both curves."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmark import cli, datasets, ladders
from benchmark.commands.splits import building
from benchmark.config import study as studies
from benchmark.ladders import figures, rungs
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis.results import Results
from reports.html import dataset_pages
from reports.html.extras import Extras
from splits import SplitError, manifest, pinning
from splits.fixed_test import fixed_test_ladder
from splits.frechet import frechet_distance
from splits.ladder import build_ladder, default_rung
from splits.manifest import Ladder
from tests.sample_records import identity, make_record, some_pages, write_sample

CLASSES = [f"c{i:02d}" for i in range(24)]


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), rng.integers(4, 9, 24))
    return rng.normal(0, 2, (24, 5))[labels] + rng.normal(0, 0.5, (len(labels), 5)), labels


@pytest.fixture(scope="module")
def ladder(images: tuple[np.ndarray, np.ndarray]) -> Ladder:
    return build_ladder(*images, CLASSES[:12], CLASSES[12:], classes=CLASSES, dataset="made-up", iid_draws=2)


def test_the_figure_of_a_control_is_not_one_of_swapping(ladder: Ladder, images: tuple[np.ndarray, np.ndarray]) -> None:
    control = fixed_test_ladder(ladder, *images, CLASSES, rungs=4)
    heads = [[axes.get_xlabel() for axes in figures.progression(one).axes] for one in (ladder, control)]
    assert heads == [["iterations of class swapping", "iterations of class removal"],
                     ["choices of training classes, nearest first"]]


def test_only_the_training_classes_move(ladder: Ladder, images: tuple[np.ndarray, np.ndarray]) -> None:
    """Every split against classes sorted by hand and the distance of its images computed from scratch."""
    features, labels = images
    control = fixed_test_ladder(ladder, features, labels, CLASSES, rungs=4)
    fixed = ladder.splits[-1].test
    assert {split.test for split in control.splits} == {fixed}
    means = {name: features[labels == i].mean(axis=0) for i, name in enumerate(CLASSES)}
    centre = np.mean([means[name] for name in fixed], axis=0)
    near = sorted(set(CLASSES) - set(fixed), key=lambda name: float(np.linalg.norm(means[name] - centre)))
    half = len(near) // 2
    windows = [set(near[i:i + half]) for i in range(len(near) - half + 1)]
    assert [windows.index(set(split.train)) for split in control.splits] == [s.iteration for s in control.splits]
    assert control.splits[0].iteration == 0
    distances = [split.frd for split in control.splits]
    assert distances == sorted(distances)
    assert len(set(distances)) == len(distances) > 2
    for split in control.splits:
        sides = [features[np.isin(labels, [CLASSES.index(name) for name in side])] for side in (split.train, fixed)]
        assert split.frd == pytest.approx(frechet_distance(*sides), rel=1e-6)
        assert (split.train_images, split.test_images) == tuple(map(len, sides))
        assert set(split.validation) < set(split.train)
    assert max(step.frd for step in control.progression) == distances[-1]


def test_the_order_of_classes_changes_nothing(ladder: Ladder, images: tuple[np.ndarray, np.ndarray]) -> None:
    features, labels = images
    turned = fixed_test_ladder(ladder, features, 23 - labels, CLASSES[::-1], rungs=4)
    assert turned.hash == fixed_test_ladder(ladder, features, labels, CLASSES, rungs=4).hash


def test_a_ladder_without_distances_or_classes_to_move_is_refused(
        ladder: Ladder, images: tuple[np.ndarray, np.ndarray]) -> None:
    features, labels = images
    with pytest.raises(SplitError, match="several splits with distances"):
        fixed_test_ladder(default_rung(labels, CLASSES[:12], CLASSES[12:], classes=CLASSES), features, labels, CLASSES)
    control = fixed_test_ladder(ladder, features, labels, CLASSES)
    with pytest.raises(SplitError, match="fixed already"):
        fixed_test_ladder(control, features, labels, CLASSES)
    few = np.isin(labels, range(4))
    small = build_ladder(features[few], labels[few], CLASSES[:2], CLASSES[2:4], classes=CLASSES[:4], iid_draws=0)
    with pytest.raises(SplitError, match="takes at least four"):
        fixed_test_ladder(small, features[few], labels[few], CLASSES[:4])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def frozen(name: str, workspace: Workspace, backbone: str | None = None, *_: object) -> tuple[Any, Any, Any]:
        index = datasets.load(name, workspace.data)
        features = np.random.default_rng(0).normal(size=(len(index), 6)) + index.labels[:, None] % 9
        return index, features, {"backbone": backbone or "efficientnet_lite0"}

    monkeypatch.setattr("benchmark.ladders.features.frozen_features", frozen)

    def build(work: str, *options: str) -> Ladder:
        cli.main(["splits", "build", "--dataset", "glyphs-mini", *options, "--work", str(tmp_path / work)])
        return ladders.load(Workspace.at(tmp_path / work), "glyphs-mini")

    whole = build("ladder")
    control = build("control", "--fixed-test", "--rungs", "4")
    named = build("named", "--fixed-test", str(tmp_path / "ladder" / "splits" / "glyphs-mini.json"), "--rungs", "4")
    assert named.splits == control.splits
    assert {split.test for split in control.splits} == {whole.splits[-1].test}
    words = shlex.split(control.made["command"])
    assert "--fixed-test" in words
    assert build("again", *words[5:]).hash == control.hash
    assert manifest.load(tmp_path / "control" / "splits" / "glyphs-mini.json").hash == control.hash
    cli.main(["splits", "show", "--dataset", "glyphs-mini", "--work", str(tmp_path / "control")])
    assert "fixed-test" in capsys.readouterr().out
    for options in (("ladder", "--fixed-test"), ("control",)):
        with monkeypatch.context() as patch:
            patch.setattr(ladders, "build", lambda *_, **__: pytest.fail("refused after hours of features"))
            with pytest.raises(SystemExit):
                build(*options)
        assert "a working folder of its own" in capsys.readouterr().err
    for options, message in [(("other", "--fixed-test", "--default-only"), "default split alone"),
                             (("other", "--fixed-test", "nowhere.json"), "there is no such file")]:
        with pytest.raises(SystemExit):
            build(*options)
        assert message in capsys.readouterr().err
    assert ladders.load(Workspace.at(tmp_path / "ladder"), "glyphs-mini").hash == whole.hash


def test_a_study_of_the_control_refuses_the_ladder(ladder: Ladder, images: tuple[np.ndarray, np.ndarray]) -> None:
    control = fixed_test_ladder(ladder, *images, CLASSES, rungs=4)
    assert rungs.chosen("fixed-test", control) == control.splits
    with pytest.raises(UserError, match="--fixed-test --work DIR"):
        rungs.chosen("fixed-test", ladder)
    assert studies.load("photos-fixed-test").parts[0].splits == "fixed-test"


def test_a_study_names_the_ladder_that_it_is_meant_for(tiny: Workspace, tmp_path: Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is none, and where there is an ordinary one; on another dataset the options of its own do not hold.

    By an ordinary ladder, which was suggested before, the study would be refused once more.
    """
    file = tmp_path / "own.toml"
    file.write_text('summary = "A control."\ndatasets = ["glyphs"]\nmethods = "margin"\nprotocol = "demo"\n'
                    'splits = "fixed-test"\nladder = "--fixed-test glyphs@v2 --rungs 5"\n')

    def told(*words: str) -> str:
        with pytest.raises(SystemExit) as caught:
            cli.main([*words, "--study", str(file)])
        assert caught.value.code == 2
        return capsys.readouterr().err

    none, ordinary = ["--work", str(tmp_path / "none")], ["--work", str(tiny.root)]
    for command in ("run", "tune"):
        said = told(command, *none)
        assert f"`oodml splits build --dataset glyphs --fixed-test glyphs@v2 --rungs 5 {shlex.join(none)}`" in said
        assert "splits use" not in said, "pinned ladders are ordinary ones"
    assert "`oodml splits build --dataset glyphs-mini --fixed-test --work DIR`" in told("run", "--dataset",
                                                                                        "glyphs-mini", *ordinary)
    file.write_text(file.read_text().replace('["glyphs"]', '["glyphs-mini"]'))
    for command in ("run", "tune"):
        said = told(command, *ordinary)
        assert "`oodml splits build --dataset glyphs-mini --fixed-test glyphs@v2 --rungs 5 --work DIR`" in said
    file.write_text('summary = "Of a pinned one."\ndatasets = ["glyphs"]\nmethods = "margin"\nladder = "glyphs@v1"\n')
    said = told("run", *none)
    assert f"take it with `oodml splits use glyphs@v1 {shlex.join(none)}`" in said
    assert "splits build" not in said, "whose splits of the same numbers are others"


def test_ladders_of_studies_are_pinned_or_can_be_built() -> None:
    meant = {(part.datasets, part.ladder) for name in studies.names() for part in studies.load(name).parts}
    built = {ladder: building.build.make_context("build", ["--dataset", *names, *shlex.split(ladder)]).params
             for names, ladder in meant if ladder.startswith("-")}
    pinned = {ladder for names, ladder in meant if ladder in pinning.names(list(names))}
    assert {ladder for _, ladder in meant} == {"", *built, *pinned}
    (options,) = built.values()
    assert (options["fixed_test"], options["rungs"], options["backbone"]) == ("cub@v1", 5, "resnet50_v1")
    results = Path(__file__).parent.parent / "docs" / "pages" / "results.md"
    assert next(iter(built)) in " ".join(results.read_text(encoding="utf-8").split()), "as the published control"


def test_the_page_shows_both_curves(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6, "arcface": 0.5, "frozen": 0.2}, ("glyphs",), 2, union=False)
    rungs = [[1, 190.0], [2, 300.0], [3, 410.0]]
    scores = {"margin": (0.61, 0.58, 0.56), "frozen": (0.18, 0.18, 0.18)}
    for method, falling in scores.items():
        for (split, frd), score in zip(rungs, falling):
            record = make_record("glyphs", split, method, 0, score)
            record["split"] |= {"kind": "fixed-test", "frd": frd, "ladder": rungs, "hash": f"{split + 8:x}" * 64}
            record |= {"identity": identity(f"{split}{method}")}
            records.write(tmp_path / "fixed" / "glyphs" / str(split) / method / "s0", record)
    both = Results(records.collect([tmp_path / "runs", tmp_path / "fixed"]))
    alone = Results(records.collect(tmp_path / "runs"))
    assert both.notes == alone.notes
    assert both.ags("recall@1", "demo").wide().equals(alone.ags("recall@1", "demo").wide())
    section = _page(both).split("the test classes change too")[1].split("</section>")[0]
    drawn = re.findall(r'data-method="([^"]+)"[^>]*data-y="([^"]+)"', section)
    assert [method.split(" ")[0] for method, _ in drawn].count("margin") == 2
    assert "61 58 56" in [ys for _, ys in drawn]
    assert "18 18 18" in [ys for _, ys in drawn]
    assert "arcface" not in section
    assert "The same test classes" not in _page(alone)
    fixed = Results(records.collect(tmp_path / "fixed"))  # without the ladder, a ladder like any other
    assert fixed.ladders == {"glyphs": tuple((i, frd) for i, frd in rungs)}


def test_a_row_of_the_control_is_the_ladders_of_the_same_length(tmp_path: Path) -> None:
    """Named by itself, a control of 40 epochs alone would be called as the ladder's row of 200 is."""
    long, short = ({"name": "demo", "epochs": epochs, "batch": 112, "lr": 0.001} for epochs in (200, 40))
    given = {"provenance": make_record()["provenance"] | {"overrides": {"epochs": [200, 40]}}}
    for split in (1, 2):
        for protocol, score, changed in ((long, 0.8, {}), (short, 0.7, given)):
            record = make_record("glyphs", split, "margin", 0, score, protocol=protocol, **changed)
            records.write(tmp_path / f"{split}-{protocol['epochs']}", record)
        record = make_record("glyphs", split, "frozen", 0, 0.2, protocol=long)
        records.write(tmp_path / f"{split}-frozen", record)
        for method, epochs, score in (("margin", 40, 0.6), ("margin", 20, 0.5), ("frozen", 20, 0.1)):
            fixed = make_record("glyphs", split, method, 0, score, protocol=short | {"epochs": epochs}, **given)
            fixed["split"] |= {"kind": "fixed-test", "frd": 100.0 * split, "ladder": [[1, 100.0], [2, 200.0]],
                               "hash": f"{split + 8:x}" * 64}
            fixed |= {"identity": identity(f"{split}{method}{epochs}")}
            records.write(tmp_path / "fixed" / f"{split}-{method}-{epochs}", fixed)
    results = Results(records.collect(tmp_path))
    assert sorted(results.labels.values()) == ["frozen", "margin · demo", "margin · demo, 40 epochs"]
    control = results.fixed_test_cells("glyphs", "recall@1")
    assert dict(zip(control["label"], control["score"])) == {"frozen": 0.1, "margin · demo, 40 epochs": 0.6}
    assert "2 runs with fixed test classes are set aside: no single row of the ladder has their settings." in \
        results.notes


def test_of_rows_with_several_rates_the_control_is_that_of_its_own(tmp_path: Path) -> None:
    usual = {"name": "demo", "lr": 0.1, "epochs": 2}
    for split, kind in ((1, "default"), (2, "swap"), (1, "fixed-test"), (2, "fixed-test")):
        for rate, score in ((0.1, 0.6), (0.5, 0.7)):
            if kind == "fixed-test" and rate > 0.1:
                continue
            record = make_record("glyphs", split, "margin", 0, score, protocol=usual | {"lr": rate})
            record["provenance"]["overrides"] = {"lr": [0.1, rate]} if rate > 0.1 else {}
            record["identity"] = identity(f"{split}{kind}{rate}")
            if kind == "fixed-test":
                record["split"] |= {"kind": kind, "frd": 100.0 * split, "ladder": [[1, 100.0], [2, 200.0]],
                                    "hash": f"{split + 8:x}" * 64}
            records.write(tmp_path / f"{split}-{kind}-{rate}", record)
    results = Results(records.collect(tmp_path))
    assert sorted(results.runs["protocol"].unique()) == ["demo", "demo[lr=0.5]"]
    assert results.fixed_test_cells("glyphs", "recall@1")["protocol"].unique().tolist() == ["demo"]
    assert not results.set_aside


def _page(results: Results) -> str:
    return str(some_pages(results, lambda site: dataset_pages.ladder(site, "glyphs", Extras()))["dataset/glyphs.html"])
