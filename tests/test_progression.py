"""The swaps and removals in pinned ladders: they lead to the rungs, and change nothing that results are known by."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmark import ladders
from benchmark.ladders import figures, pinned
from benchmark.utils.workspace import Workspace
from splits import SplitError, manifest, pinning
from tests import tiny_runs

RECORDS = Path(ladders.__file__).parents[2] / "reports" / "data" / "records"
HASHES = {"cub@v1": "04bf772e981abd2bf0f37ca00bdb037119cf56dafa6cecfda9bb8b16a2ce32a7",
          "glyphs@v1": "7f2d48f9b6eae19b6240dfc7c643f18b3df3da973a76b7715f4a6529cd062d20",
          "glyphs@v2": "a62c7bc8ae256da479683bc745bdff3a0150ff67e02fef88bd2e7c0b5751088a"}
"""As they were before these ladders had their steps; records and submissions name them."""


@pytest.mark.parametrize("name", HASHES)
def test_a_ladder_is_known_by_the_same_hash_as_without_its_steps(name: str) -> None:
    fixed = pinning.get(name)
    assert fixed.progression
    assert fixed.hash == replace(fixed, progression=()).hash == HASHES[name]


@pytest.mark.parametrize("name", HASHES)
def test_the_steps_lead_from_the_default_split_to_every_rung(name: str) -> None:
    """Classes are moved by hand, step by step: reverse steps and swaps begin at the default split, removals at the
    best swap."""
    fixed = pinning.get(name)
    sizes = dict(zip(fixed.classes, fixed.counts))
    default = next(split for split in fixed.splits if split.kind == "default")
    best = max((s for s in fixed.progression if s.kind == "swap" and s.kept), key=lambda step: step.iteration)
    sides = {("default", 0): (set(default.train), set(default.test))}
    for kind in ("reverse", "swap", "removal"):
        train, test = map(set, sides["default", 0] if kind != "removal" else sides["swap", best.iteration])
        steps = sorted((s for s in fixed.progression if s.kind == kind), key=lambda step: abs(step.iteration))
        assert [abs(step.iteration) for step in steps] == list(range(1, len(steps) + 1))
        for step in steps:
            left, right = set(step.moved_train), set(step.moved_test)
            assert left <= train
            assert right <= test
            train, test = ((train - left, test - right) if kind == "removal" else
                           (train - left | right, test - right | left))
            sides[kind, step.iteration] = train, test
    assert len(sides) == len(fixed.progression)
    for step in fixed.progression:
        train, test = sides[step.kind, step.iteration]
        assert (step.train_classes, step.test_classes) == (len(train), len(test))
        assert (step.train_images, step.test_images) == (sum(map(sizes.get, train)), sum(map(sizes.get, test)))  # type: ignore[arg-type]
    found = {(step.kind, step.iteration): step for step in fixed.progression}
    for split in fixed.splits:
        step = found[split.kind, split.iteration]
        assert sides[split.kind, split.iteration] == (set(split.train), set(split.test))
        assert (step.frd, step.frd_class_means_released) == (split.frd, split.frd_class_means_released)


def test_the_steps_are_those_of_the_manifest_that_has_them_too() -> None:
    built = manifest.load(RECORDS / "photos" / "splits" / "cub.json")
    assert pinning.get("cub@v1").progression == built.progression


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, Path]:
    root = tmp_path_factory.mktemp("progression")
    workspace = tiny_runs.workspace(root / "work")
    _, written = pinned.pin("glyphs-mini@v1", workspace, root / "out")
    return workspace, written[0]


def test_what_is_pinned_anew_keeps_its_steps(made: tuple[Workspace, Path], tmp_path: Path) -> None:
    workspace, path = made
    built = ladders.load(workspace, "glyphs-mini")
    assert built.progression
    assert pinning.load(path).progression == built.progression
    other = Workspace.at(tmp_path, workspace.data)
    pinned.use(str(path), other)
    assert ladders.load(other, "glyphs-mini").progression == built.progression


@pytest.mark.parametrize("change", [
    lambda facts: facts["progression"][0].__setitem__(2, 1.0), lambda facts: facts["progression"].pop(),
    lambda facts: facts.pop("progression_hash"), lambda facts: facts.update(progression="none"),
    lambda facts: facts["progression"][0].append(1), lambda facts: facts["progression"][0].__setitem__(4, "0-99999")])
def test_changed_steps_are_refused(made: tuple[Workspace, Path], tmp_path: Path, change: object) -> None:
    facts = json.loads(made[1].read_text())
    change(facts)  # type: ignore[operator]
    (tmp_path / made[1].name).write_text(json.dumps(facts))
    with pytest.raises(SplitError) as caught:
        pinning.load(tmp_path / made[1].name)
    assert "\n" not in str(caught.value)


def test_a_file_without_steps_is_read(made: tuple[Workspace, Path], tmp_path: Path) -> None:
    facts = json.loads(made[1].read_text())
    for key in ("progression", "progression_hash"):
        del facts[key]
    (tmp_path / made[1].name).write_text(json.dumps(facts))
    assert pinning.load(tmp_path / made[1].name) == replace(pinning.load(made[1]), progression=())


def test_a_manifest_from_before_has_its_figure(tmp_path: Path) -> None:
    """The published manifest of glyphs@v2 was written when pinned ladders had no steps."""
    workspace = Workspace.at(tmp_path)
    before = replace(manifest.load(RECORDS / "glyphs" / "splits" / "glyphs.json"), progression=())
    ladders.save(before, workspace)
    (drawn,) = figures.draw("glyphs", workspace, tmp_path / "out", umap=False, seed=0)
    assert drawn.name == "glyphs-progression.svg"
    for other in ({"name": "glyphs@v2", "hash": "0" * 64}, {"name": "glyphs@v9"}, {"name": ["x"]}, "glyphs@v2", None):
        unlike = replace(before, made={"pinned": other})
        assert pinned.with_progression(unlike) == unlike


def test_the_curve_is_told_before_the_slow_figures_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, said = Workspace.at(tmp_path), list[str]()
    ladders.save(manifest.load(RECORDS / "glyphs" / "splits" / "glyphs.json"), workspace)
    monkeypatch.setattr("benchmark.ladders.features.frozen_features", lambda *_, **__: pytest.fail("; ".join(said)))
    with pytest.raises(pytest.fail.Exception, match=r"^wrote \S+glyphs-progression.svg; UMAPs .* --no-umap leaves"):
        figures.draw("glyphs", workspace, tmp_path / "out", umap=True, seed=0, tell=said.append)
