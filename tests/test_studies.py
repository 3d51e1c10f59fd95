"""The studies that come with the suite, and what a wrong one is told."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import methods
from benchmark import datasets
from benchmark.commands.studies import command
from benchmark.config import protocol, search
from benchmark.config import study as studies
from benchmark.config.plan import Overrides, fitting
from benchmark.runs import cost
from benchmark.utils.errors import UserError
from methods import backbones
from methods.samplers import batches
from reports.analysis import paper_tables
from reports.analysis.paper_numbers import method_name
from splits.union import EIGHT

NAMES = ["capacity", "cross", "crt", "crt-ablation", "crt-backbones", "demo", "fewshot", "frozen", "generic", "glyphs",
         "glyphs-lengths", "glyphs-union", "oodml-all", "oodml-cars", "oodml-cub", "oodml-sop", "photos-cars",
         "photos-cars-gaps", "photos-cars-long", "photos-cub", "photos-cub-long", "photos-cub-released",
         "photos-fixed-test", "photos-union", "precision",
         "revisiting", "revisiting-floors", "revisiting-mixup", "revisiting-parameters", "revisiting-samplers",
         "revisiting-switch", "uml-4", "uml-8", "uml-ablation", "uml-backbones", "uml-specific"]


def test_all_are_there() -> None:
    assert studies.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_studies_of_the_suite_name_what_exists(name: str) -> None:
    study = studies.load(name)
    assert study.summary
    assert study.source
    for part in study.parts:
        chosen = backbones.select(part.backbones) if part.backbones else [None]
        for dataset in part.datasets:
            used = part.protocol or datasets.get(dataset).protocol
            for changes in part.variations():
                if "batches" in changes:
                    assert changes["batches"] in batches.NAMES
                for backbone in chosen:
                    given = {**part.set, **changes, **({"backbone": backbone} if backbone else {})}
                    overrides = Overrides.of(given)
                    protocol.load(used, dataset=dataset, overrides=overrides.protocol)
                    fitted, _ = fitting(methods.select(part.methods), dataset, used, overrides)
                    assert fitted
                    for method, settings in overrides.methods.items():
                        assert method in fitted
                        methods.get(method).settings(dataset, **settings)
    for step in study.after:
        if step["step"] == "ensemble":
            specific = {dataset for part in study.parts for dataset in part.datasets}
            assert set(datasets.get(step["union"]).members) <= specific


def test_the_papers_counts() -> None:
    assert len(methods.select(studies.load("oodml-cub").parts[0].methods)) == 8 + 1
    assert studies.load("uml-8").parts[-1].datasets == EIGHT
    assert len(list(studies.load("revisiting-samplers").parts[0].variations())) == 7
    specific = studies.load("uml-8").parts[-1]
    assert len(methods.select(specific.methods)) * len(specific.datasets) == 72


TRAINING = {"cub": 5864, "cars": 8054, "dogs": 10651, "flowers": 3493}
"""Images of the official training classes."""


@pytest.mark.parametrize(("name", "steps"), [("photos-union", 456), ("glyphs-union", 420)])
def test_dataset_specific_models_have_the_steps_of_the_union(name: str, steps: int, tmp_path: Path) -> None:
    """Only then they make an ensemble, and the comparison with one network for all is one of equal training."""
    study = studies.load(name)
    union, = (step["union"] for step in study.after if step["step"] == "ensemble")
    members = datasets.get(union).members or tuple(union.removeprefix("union:").split(","))
    for part in study.parts:
        for dataset in set(part.datasets) & {union, *members}:
            for method in methods.select(part.methods):
                changed = Overrides.of(part.set).protocol
                used = protocol.load(part.protocol or "", dataset=dataset, method=method, overrides=changed)
                if dataset.startswith("glyphs"):
                    index = datasets.load(dataset, tmp_path)
                    images = int(np.isin(index.labels, [index.classes.index(one) for one in index.train_classes]).sum())
                else:
                    images = sum(TRAINING[one] for one in (members if dataset == union else (dataset,)))
                assert used.epochs * cost.steps_an_epoch(used, images) == steps, (dataset, method)
                assert not [epoch for epoch in used.milestones if epoch < used.epochs], (dataset, method)


def printed(file: str, **where: object) -> set[str]:
    """The names in one column, `method`, of a published table as the suite calls them."""
    rows = paper_tables.read(file)
    for column, value in where.items():
        rows = rows[rows[column] == value]
    return {method_name(name).replace("+xbm", "-xbm") for name in rows["method"]}


def test_the_samplers_are_tried_under_every_objective_that_is_printed() -> None:
    assert set(methods.select(studies.load("revisiting-samplers").parts[0].methods)) == printed(
        "revisiting_batch_samplers", dataset="cub")


def test_tables_5_and_8_of_uml_are_measured_with_puma_and_table_2_without() -> None:
    universal, other_losses, specific = (set(methods.select(part.methods)) for part in studies.load("uml-8").parts)
    with_puma = {"puma" if name == "curricularface" else f"puma:{name}"
                 for name in printed("uml_results", table=5) | printed("uml_results", table=8)}
    assert with_puma == other_losses | {"puma"}
    assert printed("uml_results", table=2, setting="universal-full") <= universal
    assert printed("uml_results", table=2, setting="universal-peft") <= universal
    assert printed("uml_results", table=7) <= universal
    assert specific == printed("uml_results", table=2, setting="dataset-specific")
    assert not {"supcon", "proxynca++", "triplet-xbm", "multisimilarity-xbm"} & universal


def test_uml_4_is_table_10() -> None:
    universal, specific = (set(methods.select(part.methods)) for part in studies.load("uml-4").parts)
    assert universal == printed("uml_results", table=10, setting="vit-universal-128") | {"frozen"}
    assert specific == printed("uml_results", table=10, setting="vit-dataset-specific-128")


def test_the_demonstration_is_small_and_what_make_demo_runs() -> None:
    cells = {(dataset, method) for part in studies.load("demo").parts for dataset in part.datasets
             for method in methods.select(part.methods)}
    trained = ("margin", "multisimilarity", "arcface")
    assert cells == {("glyphs", "frozen"), *product(("glyphs", "glyphs-union"), trained)}
    assert {(part.protocol, part.splits, part.seeds) for part in studies.load("demo").parts} == {("demo", "all", None)}
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    assert re.findall(r"\$\(OODML\) run (.*)", recipe) == ["--study demo"]


@pytest.mark.parametrize(("text", "match"), [
    ('datasets = ["cub"]\nmethods = "margin"\nseed = 3', "did you mean 'seeds'"),
    ('datasets = ["cub"]', "study mine: missing methods"),
    ('methods = "margin"', "study mine: missing datasets"),
    ('[part]\ndatasets = ["cub"]\nmethods = "margin"', "two brackets"),
    ('datasets = "cub"\nmethods = "margin"', "datasets = 'cub': .*list"),
    ('datasets = ["cub"]\nmethods = "margin"\nseeds = 0', "seeds = 0: .*greater than or equal to 1"),
    ('datasets = ["cub"]\nmethods = "margin"\nseeds = true', "seeds = true: .*number"),
    ('datasets = ["cub"]\nmethods = "margin"\n[vary]\nbatchsize = [3]',
     r"must be a key of protocols, or METHOD.KEY \(did you mean 'batch_size'"),
    ('datasets = ["cub"]\nmethods = "margin"\nset = { epoch = 2 }',
     r"study mine: set.epoch must be a key of protocols, or METHOD.KEY \(did you mean 'epochs'"),
    ('datasets = ["cub"]\nmethods = "margin"\nset = { margin.beta = 3 }', 'study mine: .* "margin.beta" = VALUE'),
    ('datasets = ["cub"]\nmethods = "margin"\n[vary]\nmargin.beta = [3]', 'in quotes, "margin.beta" = '),
    ('datasets = ["cub"]\nmethods = "margin"\n[vary]\n"margin.beta" = 3', "vary.margin.beta = 3: .*list"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "ensembles"', "did you mean 'ensemble'"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nkind = "fewsht"',
     r"the key step, one of fewshot, cross, ensemble, wise, inspect, not None \(did you mean 'fewshot'\?\)"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = 3',
     "step, one of fewshot, cross, ensemble, wise, inspect, not 3"),
    ('datasets = ["cub"]\nmethods = "margin"\n[after]\nstep = "cross"', "two brackets"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "ensemble"', "takes union"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "wise"\ndatasets = "cub"', "must be a list of names"),
    ('datasets = ["cub"]\nmethods = ["margin", "frozen"]',
     'methods = .*: write one string with commas, methods = "margin,frozen"'),
    ('datasets = ["cub"]\nmethods = "margin"\nsplits = [1, 2]', 'one string with commas, splits = "1,2"'),
    ('datasets = ["cub"]\nmethods = "margin"\nepochs = 2\ncompile = true',
     "no key 'epochs', 'compile', .*write set = { epochs = 2, compile = true }"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "fewshot"',
     r'takes datasets, shots: datasets, shots are missing, such as datasets = \["cub"\], shots = \[2, 5\]'),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "fewshot"\ndatasets = ["cub"]', "shots is missing"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "fewshot"\ndatasets = ["cub"]\nshots = 2',
     "shots = 2 of the step fewshot must be a list of numbers"),
    ('datasets = ["cub"]\nmethods = "margin"\n[[after]]\nstep = "wise"\ndatasets = ["cub"]\ndataset = "cub"',
     r"takes datasets, not dataset \(did you mean 'datasets'"),
    ("datasets = [", "mine.toml is not valid TOML"),
])
def test_wrong_studies_are_told_what_is_wrong(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=match):
        studies.load(str(path))


def test_the_guide_lists_the_keys_of_every_step() -> None:
    guide = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()
    for step, keys in studies.STEPS.items():
        told = ", ".join(f"`{key} = {example}`" for key, example in keys.items())
        assert f"| `{step}` | {told or 'none'} |" in guide


def test_an_unknown_study_suggests_one() -> None:
    with pytest.raises(UserError, match="did you mean 'oodml-cub'"):
        studies.load("oodml-cup")


def test_the_command_lists_them_and_shows_one() -> None:
    listed = CliRunner().invoke(command).output
    assert all(f"{name} " in listed for name in NAMES)
    assert CliRunner().invoke(command, ["show", "uml-8"]).output == (studies.FOLDER / "uml-8.toml").read_text()


def test_a_study_may_say_what_is_searched(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    head = 'datasets = ["glyphs"]\nmethods = "margin,triplet"\n[search]\n'
    file.write_text(head + 'weight_decay = [1e-5, 1e-3]\n"margin.beta" = { choices = [0.6, 1.2] }\nlr = [0.1, 0.2]\n')
    (part,) = studies.load(str(file)).parts
    spaces = {name: search.space_of(methods.get(name), 1e-3, {}, part.search) for name in ("margin", "triplet")}
    assert spaces["margin"]["margin.beta"] == [0.6, 1.2]
    assert spaces["triplet"] == {"lr": (0.1, 0.2), "triplet.margin": (0.05, 0.5), "weight_decay": (1e-5, 1e-3)}
    assert 1e-5 <= search.draw(spaces["triplet"], 0, "triplet", 1)["weight_decay"] <= 1e-3
    for line in ("lr = [2, 1]", "lr = 3", "lr = { choices = [1] }", 'lr = ["a", "b"]'):
        file.write_text(head + line)
        with pytest.raises(UserError, match=r"search\.lr = .*write \[low, high\]"):
            studies.load(str(file))
    file.write_text(head + "weight_decai = [1, 2]")
    with pytest.raises(UserError, match="did you mean 'weight_decay'"):
        studies.load(str(file))
