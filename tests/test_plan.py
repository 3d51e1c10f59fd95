"""The identity of a run, the order of runs, and what is left out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import methods
from benchmark import ladders
from benchmark.commands.run import seconds_of
from benchmark.config import narrowing, protocol
from benchmark.config.plan import Overrides, changes
from benchmark.config.spec import RunSpec, differences
from benchmark.ladders import rungs
from benchmark.runs.job import Resources, SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from methods.backbones import create
from methods.samplers import batches
from tests import tiny_sweep


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return tiny_sweep.workspace(tmp_path_factory.mktemp("work"))


def specs(made: Workspace, methods: str = "margin", **given: object) -> list[RunSpec]:
    return [job.spec for job in tiny_sweep.jobs(made, methods, **given)]


def test_identity_is_what_a_run_depends_on(made: Workspace) -> None:
    (one,) = specs(made, seeds=1)
    assert specs(made, seeds=1)[0].identity == one.identity
    others = [specs(made, seeds=2)[1], specs(made, "arcface", seeds=1)[0], specs(made, splits="2", seeds=1)[0],
              specs(made, seeds=1, set={"lr": 0.5})[0], specs(made, seeds=1, set={"margin.beta": 0.5})[0],
              dataclasses.replace(one, weights="other"), dataclasses.replace(one, dataset_hash="other")]
    assert len({one.identity, *(other.identity for other in others)}) == 1 + len(others)


def test_identity_survives_json_and_the_rungs_number(made: Workspace) -> None:
    (one,) = specs(made, seeds=1, set={"scale": "0.5,1.0", "milestones": "1,2"})
    again = RunSpec.of(json.loads(json.dumps(one.facts())))
    assert again.identity == one.identity
    assert dataclasses.replace(one, split=7).identity == one.identity


@pytest.mark.parametrize(("overrides", "identity"), [
    ({}, "7581e02e2c1b9bcaad956664281a271e58e6bf87c176f57d4ca6d38b6675fb4e"),
    ({"scale": "0.5,1", "milestones": "1,2", "flip": "0", "clustering": "last", "precision": "fp32",
      "validation": "true", "clip_norm": "2"}, "eb6a677c5c69e02c5496818cdccbf838673593003c0c9f041069c47d2ab21926"),
    ({"augmentation": "big", "lr": ".5", "epochs": "7", "batches": "spc-4"},
     "b88b8b3221a9a4c61e51d41821308e4730cf1081c018fb855bdeb4bffdce3c46"),
])
def test_identities_are_those_of_runs_made_before_the_protocol_was_typed(tmp_path: Path, overrides: dict[str, str],
                                                                         identity: str) -> None:
    (tmp_path / "mine.toml").write_text('backbone="conv4"\ndim=8\nepochs=3\nbatch_size=4\nlr=0.1\nweight_decay=0.0\n')
    own = protocol.load(str(tmp_path / "mine.toml"), dataset="toy", method="margin", overrides=overrides)
    spec = RunSpec("toy", "d" * 8, 2, "s" * 8, "puma:margin", {"prompts": 20, "rate": 1}, {"beta": 1.2, "miner": "x"},
                   own, "w", 3)
    assert spec.identity == identity
    (tmp_path / "spec.json").write_text(json.dumps(spec.facts()))
    again = RunSpec.read(tmp_path)
    assert again is not None
    assert (again.identity, again.protocol) == (identity, own)
    assert "seeds" not in spec.facts()["protocol"]
    (tmp_path / "spec.json").write_text(json.dumps({**spec.facts(), "mood": "good"}))
    assert RunSpec.read(tmp_path) is None


def test_what_changed_is_named(made: Workspace) -> None:
    (one,) = specs(made, seeds=1)
    (two,) = specs(made, seeds=1, set={"lr": 0.5, "margin.beta": 0.9})
    assert differences(one, two) == ["lr 0.002 -> 0.5", "beta 1.2 -> 0.9"]
    assert differences(one, RunSpec.of(json.loads(json.dumps(one.facts())))) == []


def test_one_seed_of_everything_comes_first(made: Workspace) -> None:
    found = specs(made, "margin,arcface", splits="all", seeds=3)
    rungs = len(ladders.load(made, "glyphs-mini").splits)
    assert len(found) == 2 * rungs * 3
    assert [spec.seed for spec in found] == sorted(spec.seed for spec in found)
    assert {(spec.method, spec.split) for spec in found[:2 * rungs]} == {(m, s + 1) for m in ("margin", "arcface")
                                                                         for s in range(rungs)}


def test_breadth_goes_over_datasets(tmp_path: Path) -> None:
    made = tiny_sweep.workspace(tmp_path, ("glyphs-mini", "glyphs-armenian"))
    study = tiny_sweep.study("margin", datasets=("glyphs-mini", "glyphs-armenian"))
    deep = [(job.spec.dataset, job.spec.seed) for job in gather(study, SweepOptions(made)).jobs]
    limited = SweepOptions(made, resources=Resources(seconds=3600))
    wide = [(job.spec.dataset, job.spec.seed) for job in gather(study, limited).jobs]
    assert deep == [("glyphs-mini", 0), ("glyphs-mini", 1), ("glyphs-armenian", 0), ("glyphs-armenian", 1)]
    assert wide == [("glyphs-mini", 0), ("glyphs-armenian", 0), ("glyphs-mini", 1), ("glyphs-armenian", 1)]


def test_default_split_by_name(made: Workspace) -> None:
    (one,) = specs(made, splits="default", seeds=1)
    assert one.split_hash == ladders.load(made, "glyphs-mini").default.hash


def test_seeds_are_the_protocols_unless_said(made: Workspace) -> None:
    assert len(specs(made, seeds=None)) == 1
    assert len(specs(made, seeds=None, protocol="revisiting")) == 5


def test_some_splits_may_have_more_seeds_than_others(made: Workspace) -> None:
    def seeds(**changes: Any) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for spec in specs(made, **{"splits": "all", "seeds": 1, "more_seeds": {"1,3": 2, "2-3": 3}, **changes}):
            found.setdefault(spec.split, []).append(spec.seed)
        return found

    assert seeds() == {1: [0, 1], 2: [0, 1, 2], 3: [0, 1, 2]}
    assert seeds(more_seeds={"1,3": 2}) == {1: [0, 1], 2: [0], 3: [0, 1]}
    assert seeds(more_seeds={"all": 2}) == {split: [0, 1] for split in (1, 2, 3)}
    assert seeds(more_seeds={"default": 2})[ladders.load(made, "glyphs-mini").default.id] == [0, 1]
    assert seeds(seeds=2, more_seeds={"1": 1})[1] == [0, 1], "never fewer"
    study = tiny_sweep.study("margin", seeds=1, splits="all", more_seeds={"1": 3})
    (part,) = narrowing.changed(study, made.splits, seeds=2).parts
    assert (part.seeds, part.more_seeds) == (2, {}), "--seeds is for all splits"
    with pytest.raises(UserError, match=r'more_seeds = \{ "1,9" = 2 \}: glyphs-mini has no split 9; --seeds says'):
        seeds(more_seeds={"1,9": 2})
    with pytest.raises(UserError, match=r"more_seeds 1;3: write numbers"):
        seeds(more_seeds={"1;3": 2})
    default = ladders.load(made, "glyphs-mini").default.id
    assert seeds(splits="default", more_seeds={"1,9": 2}) == {default: [0, 1] if default == 1 else [0]}, (
        "a ladder that is not built has the default split alone")


def test_what_trains_nothing_has_one_seed(made: Workspace) -> None:
    def counted(**changes: Any) -> list[tuple[str, int]]:
        return [(spec.method, spec.seed) for spec in specs(made, "margin,frozen,random", seeds=2, **changes)]

    assert counted(backbones="efficientnet_lite0") == [("margin", 0), ("frozen", 0), ("random", 0), ("margin", 1)]
    several = [(name, seed) for seed in (0, 1) for name in ("margin", "frozen", "random")]
    assert counted(backbones="conv4") == several, "conv4 begins with weights drawn by the seed"


def test_one_seed_may_be_planned_without_those_before_it(made: Workspace) -> None:
    study = tiny_sweep.study("margin,arcface", seeds=3)
    assert [job.spec.seed for job in gather(study, SweepOptions(made), seeds=[20_000]).jobs] == [20_000] * 2


def test_a_step_on_a_dataset_that_the_study_does_not_run_is_told_before_any_run(made: Workspace) -> None:
    study = tiny_sweep.study("margin", after=({"step": "wise", "datasets": ["glyphs-mini", "glyphs-mimi"]},))
    with pytest.raises(UserError, match=r"study tiny: the step wise is on glyphs-mimi \(did you mean 'glyphs-mini'.*"
                                        r"the runs are on glyphs-mini: name one of these"):
        gather(study, SweepOptions(made))


def test_methods_that_do_not_fit_the_backbone_are_listed(made: Workspace) -> None:
    study = tiny_sweep.study("margin,vpt,lora", seeds=1, backbones="conv4,efficientnet_lite0")
    found = gather(study, SweepOptions(made))
    assert {job.spec.method for job in found.jobs} == {"margin"}
    assert len(found.left_out) == 2, "one line a reason"
    assert all(line.startswith("left out on glyphs-mini: vpt, lora: ") for line in found.left_out)


def test_variations_and_backbones_are_cells_of_their_own(made: Workspace) -> None:
    found = specs(made, seeds=1, vary={"dim": (8, 16), "batch_size": (12,)})
    assert [(spec.protocol.dim, spec.protocol.batch_size) for spec in found] == [(16, 24), (8, 24), (16, 12)]
    labels = [job.label for job in tiny_sweep.jobs(made, "margin", seeds=1, vary={"dim": (8, 16), "batch_size": (12,)})]
    assert [label.partition("(")[2] for label in labels] == [
        "batch_size 24, dim 16)", "batch_size 24, dim 8)", "batch_size 12, dim 16)"], "no two are called alike"
    found = specs(made, seeds=1, backbones="conv4,efficientnet_lite0")
    assert [spec.protocol.backbone for spec in found] == ["conv4", "efficientnet_lite0"]


def test_one_weights_file_is_not_for_two_backbones(made: Workspace) -> None:
    with pytest.raises(UserError, match="OODML_WEIGHTS"):
        gather(tiny_sweep.study(backbones="conv4,resnet18"), SweepOptions(made, weights_file="some.pth"))


def test_an_unknown_change_is_refused() -> None:
    with pytest.raises(UserError, match=r"--set epoch=3: .*did you mean 'epochs'"):
        Overrides.of({"epoch": 3})


@pytest.mark.parametrize(("changes", "match"), [
    ({"batches": "spc2"}, "unknown batch sampler 'spc2'.*did you mean 'spc-2'"),
    ({"augmentation": "bas"}, "unknown augmentation 'bas'.*did you mean 'base'"),
    ({"size": 17}, "crop size 17"),
    ({"backbone": "resnet5"}, "unknown backbone 'resnet5'"),
])
def test_what_a_worker_would_not_understand_is_refused_before_any_cell_runs(made: Workspace, changes: dict[str, Any],
                                                                            match: str) -> None:
    with pytest.raises((UserError, methods.MethodError), match=match):
        specs(made, set=changes)


@pytest.mark.parametrize(("method", "changes", "match"), [
    ("triplet-random", {"triplet-random.miner": "hardest"}, "triplet.miner 'hardest' is unknown"),
    ("diva", {"dim": 30}, "diva cuts the embedding into 4 equal parts"),
    ("diva:arcface", {"epochs": 2}, "its base must be a triplet objective"),
])
def test_settings_that_do_not_go_together_are_refused_too(made: Workspace, method: str, changes: dict[str, Any],
                                                          match: str) -> None:
    with pytest.raises(methods.MethodError, match=match):
        specs(made, method, set=changes)


@pytest.mark.parametrize("dim", [1, 2, 3, 5, 7, 30, 511])
def test_every_objective_of_the_suite_takes_any_dim(dim: int) -> None:
    """A plan that changes the dim alone does not try it on them."""
    for name in methods.names():
        entry = methods.get(name)
        if entry.is_objective:
            entry.cls(entry.settings(), 12, dim)


def test_a_plug_in_s_objective_is_tried_with_the_dim(made: Workspace) -> None:
    with tiny_sweep.registry_as_before():
        @methods.register("even", family="test")
        class Even(methods.Objective):
            """It halves embeddings."""

            def __init__(self, settings: Any, classes: int, dim: int) -> None:
                super().__init__(settings, classes, dim)
                if dim % 2:
                    raise methods.MethodError(f"{dim} is odd")

        assert specs(made, "even", set={"dim": 8})
        with pytest.raises(methods.MethodError, match="9 is odd"):
            specs(made, "even", set={"dim": 9})


def test_what_cannot_be_built_without_memory_is_left_to_the_run(made: Workspace) -> None:
    """A plug-in may read a number off a weight, or want more than two classes."""
    with tiny_sweep.registry_as_before():
        @methods.register("reads-a-weight", family="test")
        class Reads(methods.Objective):
            """It reads its own weight."""

            def __init__(self, settings: Any, classes: int, dim: int) -> None:
                super().__init__(settings, classes, dim)
                assert classes > 2
                self.first = torch.ones(1).item()

        assert specs(made, "reads-a-weight", set={"dim": 8})


def test_what_was_changed_of_a_protocol_is_known_of_the_suite_s_own(made: Workspace, tmp_path: Path) -> None:
    """A setting that differs by dataset is no change; of a file of one's own only the name is kept."""
    (plain,) = specs(made, "margin", seeds=1)
    assert "protocol.lr" in changes(plain)
    assert "protocol.decay" not in changes(plain)
    assert not [key for key in changes(plain) if key.startswith("settings")]
    (other,) = specs(made, "margin", seeds=1, set={"margin.beta": 0.9})
    assert changes(other).items() - changes(plain).items() == {("settings.beta", 0.9)}
    assert changes(dataclasses.replace(plain, protocol=dataclasses.replace(plain.protocol, name="mine"))) == {}


@pytest.mark.parametrize("name", [*batches.NAMES, "spc-5"])
def test_every_batch_sampler_can_be_planned(made: Workspace, name: str) -> None:
    assert {spec.protocol.batches for spec in specs(made, set={"batches": name})} == {name}


@pytest.mark.parametrize("text", ["5-3", "3-", "-3", "1,2-1", "1 2", "", "1-2-3"])
def test_rungs_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="1,3-5"):
        rungs.numbers(text)


def test_all_missing_datasets_are_named_at_once(made: Workspace) -> None:
    with pytest.raises(UserError) as caught:
        gather(tiny_sweep.study(datasets=("cub", "cars")), SweepOptions(made))
    assert len(str(caught.value).splitlines()) >= 2


@pytest.mark.parametrize("text", ["", "12", "h", "3w", "1h 30"])
def test_odd_budgets_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="12h"):
        seconds_of(text)


def test_workers_that_stand_elsewhere_find_the_users_files(made: Workspace, tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    weights = methods.get("margin").build(create("conv4"), 2, 16).state_dict()
    save_file({key: value.contiguous() for key, value in weights.items()}, "some.safetensors")
    study = tiny_sweep.study("margin", seeds=1)
    context = gather(study, SweepOptions(made, "some.safetensors", command="oodml x")).jobs[0].context
    assert context.weights_file == str(tmp_path / "some.safetensors")
    assert context.command == "oodml x"
    scratch = gather(study, SweepOptions(made, weights_file="scratch"))
    assert scratch.jobs[0].context.weights_file == "scratch"


def test_values_of_a_study_are_those_of_the_command_line() -> None:
    of_study = Overrides.of({"frozen_norm": True, "lr": 1e-4, "milestones": [1, 2], "backbone": "x", "margin.beta": 1})
    assert of_study == Overrides.of({"frozen_norm": "true", "lr": "0.0001", "milestones": "1,2", "backbone": "x",
                                     "margin.beta": "1"})


def test_a_study_varies_methods_settings(made: Workspace) -> None:
    """One run for each value of the method it is of; the other methods of the part are run once."""
    study = tiny_sweep.study("margin,contrastive,uniform-prior", seeds=1, splits="default",
                             vary={"margin.beta": (0.3, 0.9)})
    jobs = gather(study, SweepOptions(made)).jobs
    assert len({job.label for job in jobs}) == len(jobs), "also those that differ in a setting of their base"
    found = [(job.spec.method, {**job.spec.settings, **job.spec.base_settings}.get("beta")) for job in jobs]
    assert sorted(found, key=str) == sorted([("contrastive", None), *(
        (name, beta) for name in ("margin", "uniform-prior") for beta in (1.2, 0.3, 0.9))], key=str)
    wrong = tiny_sweep.study("margin", seeds=1, vary={"margin.betta": (0.3,)})
    with pytest.raises(methods.MethodError, match="did you mean 'beta'"):
        gather(wrong, SweepOptions(made))
