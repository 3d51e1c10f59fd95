"""What the command line makes of a study, however names are written: the study's own narrow it, others replace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import methods
from benchmark import datasets, ladders
from benchmark.commands.run import study_of
from benchmark.config import naming, narrowing
from benchmark.config import study as studies
from benchmark.config.study import Part, Study
from benchmark.runs.job import SweepOptions
from benchmark.runs.matrix import gather
from benchmark.utils.workspace import Workspace
from methods import backbones, registry
from tests import layouts, tiny_sweep

PLUGIN = '''from methods import Objective, register
@register("of-a-plugin", family="ranking")
class Mine(Objective):
    """A loss of one's own."""
    def forward(self, embeddings, labels):
        return embeddings.sum()
'''


def changed(study: Study, **changes: Any) -> Study:
    return narrowing.changed(study, Path("no/ladders"), **changes)


def test_the_command_line_changes_a_study() -> None:
    other = changed(studies.load("uml-8"), seeds=2, datasets=("glyphs",), methods=None, set={"epochs": "1"})
    assert {part.seeds for part in other.parts} == {2}
    assert {part.datasets for part in other.parts} == {("glyphs",)}
    assert other.parts[1].methods == studies.load("uml-8").parts[1].methods
    assert all(part.set["epochs"] == "1" for part in other.parts)


def cells(study: Study) -> set[tuple[str, str, str | None, str]]:
    """What a study runs: dataset, method, backbone, and the settings of the part."""
    return {(dataset, method, backbone, str(part.set)) for part in study.parts for dataset in part.datasets
            for method in methods.select(part.methods)
            for backbone in (backbones.select(part.backbones) if part.backbones else [None])}


@pytest.mark.parametrize("changes", [
    {"datasets": ("cub",)}, {"datasets": ("cub", "union:cub,cars,dogs,flowers")}, {"methods": "margin"},
    {"methods": "margin,triplet"}, {"backbones": "resnet50_v1"},
    {"datasets": ("dogs",), "methods": "margin", "backbones": "efficientnet_lite0"}])
def test_naming_what_a_study_has_narrows_it(changes: dict[str, Any]) -> None:
    """Every cell that is left is one of the study's own, and has a name that was given."""
    whole = studies.load("photos-union")
    named = {0: set(changes.get("datasets", ())), 1: set(filter(None, changes.get("methods", "").split(","))),
             2: set(filter(None, changes.get("backbones", "").split(",")))}
    expected = {cell for cell in cells(whole) if all(not names or cell[at] in names for at, names in named.items())}
    assert cells(changed(whole, **changes)) == expected
    assert 0 < len(expected) < len(cells(whole))


def test_the_backbone_of_a_protocol_is_named_too_and_others_replace() -> None:
    glyphs = studies.load("glyphs")
    assert [part.backbones for part in changed(glyphs, backbones="efficientnet_lite0").parts] == [None, None]
    assert [part.backbones for part in changed(glyphs, backbones="efficientnet_lite2").parts] == ["efficientnet_lite2"]
    assert {part.backbones for part in changed(glyphs, backbones="resnet50").parts} == {"resnet50"}
    assert {part.methods for part in changed(glyphs, methods="no-such,margin").parts} == {"no-such,margin"}
    both = changed(studies.load("uml-8"), datasets=("cub",), methods="puma")  # which the part on cub lacks
    assert [(part.datasets, part.methods) for part in both.parts] == [(("cub",), "puma")]


def test_what_follows_the_runs_is_on_the_datasets_that_are_left() -> None:
    few, cross = studies.load("fewshot"), studies.load("cross")
    assert changed(few, seeds=1).after == few.after
    assert changed(few, methods="puma:proxyanchor").after == (), "which no part on these datasets has"
    assert [step["datasets"] for step in changed(few, datasets=("glyphs", "folder:mine")).after] == [
        ["glyphs", "folder:mine"]], "they take the place of the study's"
    assert changed(cross, datasets=("cub", "cars")).after == cross.after


@pytest.mark.parametrize("typed", ["folder:birds", "folder:./birds/", "folder:birds/../birds", "folder:{}/birds",
                                   "folder:link", "folder:elsewhere/birds", "birds"])
def test_a_folder_is_one_dataset_however_its_path_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                             typed: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "abcd":
        for i in range(2):
            layouts.picture(tmp_path / "birds" / name / f"{i}.png", f"{name}{i}")
    (tmp_path / "link").symlink_to("birds", target_is_directory=True)
    (tmp_path / "elsewhere").symlink_to(".", target_is_directory=True)
    made = Workspace.at("work")
    ladders.save(ladders.build("folder:birds", made, default_only=True), made)
    typed = typed.format(tmp_path)
    steps = [{"step": "wise", "datasets": [name]} for name in ("birds", "glyphs-mini")]
    study = Study("mine", (Part(("folder:birds",), "margin", splits="default"), Part(("glyphs-mini",), "triplet")),
                  tuple(steps))
    own = narrowing.changed(study, made.splits, datasets=(typed,))
    assert (own.parts, own.after) == (study.parts[:1], study.after[:1])
    other = narrowing.changed(study, made.splits, datasets=("glyphs-mini",))
    assert (other.parts, other.after) == (study.parts[1:], study.after[1:]), "the step on the folder is gone with it"
    same = Study("mine", own.parts, ({"step": "wise", "datasets": [typed]},))
    assert gather(same, SweepOptions(made), seeds=[0]).jobs, "the step is on the dataset of the runs"
    assert datasets.meant(typed, made.splits) == f"folder:{tmp_path.resolve()}/birds"


def test_lists_of_datasets_may_have_spaces() -> None:
    union = Study("mine", (Part(("union:cub,dogs",), "margin"), Part(("cub",), "triplet")))
    assert changed(union, datasets=("union:cub, dogs",)).parts == union.parts[:1]
    assert datasets.meant("parquet:a@label=x+image=y", Path()) == datasets.meant("parquet:a@image=y+label=x", Path())


@pytest.mark.parametrize(("typed", "left"), [
    ("puma:curricularface", ["puma"]), ("puma", ["puma"]), ("puma:tri*", ["puma:triplet,puma:triplet-xbm"]),
    ("puma:*,-*:t*,-*-xbm", ["puma:margin,puma:multisimilarity,puma:supcon,puma:proxyanchor,puma:proxynca++,"
                             "puma:softtriple,puma:cosface,puma:arcface"])])
def test_a_method_on_its_usual_objective_and_globs_mean_the_study_s_own(typed: str, left: list[str]) -> None:
    assert [part.methods for part in changed(studies.load("uml-8"), methods=typed).parts] == left


def test_tags_and_all_mean_combinations_of_the_study_too() -> None:
    study = Study("mine", (Part(("uml",), "all,puma:margin"), Part(("uml",), "puma:triplet")))
    assert changed(study, methods="all") == study
    tagged = {name for part in changed(study, methods="tag:uml").parts for name in part.methods.split(",")}
    assert tagged == {*methods.names("uml"), "puma:margin", "puma:triplet"}


def test_an_empty_list_is_not_the_whole_study(tiny: Workspace) -> None:
    with pytest.raises(methods.MethodError, match="leaves no method to run"):
        gather(narrowing.changed(tiny_sweep.study(), tiny.splits, methods=""), SweepOptions(tiny))


def test_settings_of_methods_that_are_left_out_go_with_them(tiny: Workspace) -> None:
    study = tiny_sweep.study("margin,triplet,s2sd:margin", seeds=1, plain=False, set={"triplet.margin": 0.3},
                             vary={"s2sd:margin.temperature": (0.5,), "margin.beta": (0.6,), "dim": (8,)})
    whole = gather(study, SweepOptions(tiny)).jobs
    for name in ("margin", "triplet", "s2sd:margin"):
        some = gather(narrowing.changed(study, tiny.splits, methods=name), SweepOptions(tiny)).jobs
        assert {job.spec.identity for job in some} == {
            job.spec.identity for job in whole if job.spec.method == name}, name
    (arcface, smaller) = gather(narrowing.changed(study, tiny.splits, methods="arcface"), SweepOptions(tiny)).jobs
    assert (arcface.spec.protocol.dim, smaller.spec.protocol.dim) == (16, 8), "nor do those of others stay behind"


def test_methods_of_a_plug_in_narrow_a_study_that_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    methods.names()
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    (tmp_path / "own_loss.py").write_text(PLUGIN)
    (tmp_path / "mine.toml").write_text('datasets = ["cub"]\n[[part]]\nmethods = "margin,of-a-plugin"\n'
                                        '[[part]]\nmethods = "margin"\n')
    given: dict[str, Any] = dict.fromkeys(("protocol", "splits", "seeds", "backbones", "batches", "precision"))
    given |= {"study": str(tmp_path / "mine.toml"), "datasets": (), "changes": (), "no_compile": False,
              "plugins": (str(tmp_path / "own_loss.py"),)}
    study = study_of(Workspace.at(tmp_path), methods="of-a-plugin", **given)
    assert [part.methods for part in study.parts] == ["of-a-plugin"]
    assert len(study_of(Workspace.at(tmp_path), methods="margin", **given).parts) == 2


@pytest.mark.parametrize(("typed", "left"), [
    ("resnet50.tv_in1k", ["resnet50"]), ("resnet50", ["resnet50"]),
    ("vit_small_patch16_224.augreg_in21k_ft_in1k@mean", ["vit_small@mean"]),
    ("resnet50=weights/mine.pth", ["resnet50=weights/mine.pth"]), ("resnet50:mine", ["resnet50=weights/mine.pth"]),
    ("resnet50={}/weights/../weights/mine.pth", ["resnet50=weights/mine.pth"]),
    ("resnet50.tv_in1k:mine,resnet18", ["resnet50=weights/mine.pth,resnet18"]), ("test_vit", ["test_vit.r160_in1k"]),
    ("resnet50=other/mine.pth", ["resnet50=other/mine.pth"] * 2), ("resnet50@gem", ["resnet50@gem"] * 2)])
def test_a_backbone_is_one_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str,
                                                 left: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study("mine", (Part(("cub",), "margin", backbones="resnet50,vit_small@mean"),
                           Part(("cub",), "margin", backbones="resnet50=weights/mine.pth,resnet18,test_vit.r160_in1k")))
    parts = changed(study, backbones=typed.format(tmp_path)).parts
    assert [part.backbones for part in parts] == left
    assert naming.backbones_meant("resnet50@mean") != naming.backbones_meant("resnet50"), "another row of the tables"


def test_the_backbone_that_runs_have_is_narrowed_to_wherever_it_is_said() -> None:
    """In `set`, in `vary`, in the protocol of a dataset or for one method; each was taken for the protocol's before."""
    ablation = studies.load("crt-ablation")  # set = { backbone = "mit_b1" }, and the protocol has mit_b2
    assert changed(ablation, backbones="mit_b1") == ablation
    assert {part.backbones for part in changed(ablation, backbones="mit_b2").parts} == {"mit_b2"}
    varied = studies.load("revisiting-parameters")
    for part in changed(varied, backbones="googlenet").parts:
        assert list(part.variations()) == [{"backbone": "googlenet"}]
    for part in changed(varied, backbones="resnet50").parts:
        assert len([*part.variations()]) == len([*varied.parts[0].variations()]) - 2
    demo = studies.load("demo")
    assert changed(demo, backbones="conv4").parts == demo.parts[1:], "its frozen network is another"
    assert changed(demo, backbones="efficientnet_lite0").parts == demo.parts[:1]
    each = Study("mine", (Part(("cub", "glyphs"), "margin"), Part(("cub",), "triplet", backbones="vit_small")))
    assert [(part.datasets, part.methods) for part in changed(each, backbones="resnet50").parts] == [
        (("cub",), "margin")], "glyphs have a protocol with another network"
    other = changed(studies.load("glyphs"), protocol="oodml", backbones="efficientnet_lite0")
    assert {part.backbones for part in other.parts} == {"efficientnet_lite0"}, "not that of the other protocol"


def test_without_a_study_nothing_is_narrowed(tmp_path: Path) -> None:
    given: dict[str, Any] = dict.fromkeys(("study", "splits", "seeds", "batches", "precision"))
    study = study_of(Workspace.at(tmp_path), **given, datasets=("glyphs",), methods="frozen,margin", protocol="demo",
                     backbones="conv4", changes=("epochs=1",), no_compile=True)
    assert study.parts == (Part(("glyphs",), "frozen,margin", "demo", backbones="conv4",
                                set={"epochs": "1", "compile": "no"}),)
