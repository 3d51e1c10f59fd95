"""The conformance suite over every registered method, and the register itself."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

import methods
from methods import MethodError, registry
from methods.backbones import names, skeleton
from methods.checks import CHECKS, example
from methods.registry import declared

ISSUED = """
contrastive triplet-random triplet-semihard triplet-softhard triplet quadruplet genlifted npair angular histogram snr
margin margin-b06 multisimilarity supcon proxynca proxynca++ proxyanchor softtriple normsoftmax arcface cosface
curricularface r-contrastive r-margin r-margin-b12 r-triplet r-snr hyp triplet-xbm multisimilarity-xbm manifold-mixup
manifold-mixup-triplet manifold-mixup-margin frozen random
"""
PLUGIN = '''
from __future__ import annotations
from dataclasses import dataclass
import torch
from methods import Objective, register, setting

@register("my-pairs", family="ranking", cite="@misc{me}")
class Pairs(Objective):
    """Squares of distances.

        L = mean d_ap^2
    """
    @dataclass(frozen=True)
    class Settings:
        weight: float = setting(1.0, "me")

    def forward(self, embeddings, labels):
        same = labels[:, None] == labels[None, :]
        squared = torch.cdist(embeddings, embeddings, compute_mode="donot_use_mm_for_euclid_dist").square()
        return self.settings.weight * ((squared * same).sum() / same.sum()
                                       - (squared * ~same).sum() / (~same).sum().clamp(min=1))
'''


def test_what_the_source_declares_is_what_importing_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands without torch go by it, up to the identity of a run: every fact and every setting must be the same."""
    files = [f"methods.{path.stem}" for path in sorted(declared.FOLDER.glob("*.py"))]
    for module in files:
        importlib.import_module(module)
    imported = {name: entry for name, entry in registry._ENTRIES.items() if registry.ours(entry)}
    monkeypatch.setattr(registry, "_ENTRIES", {})
    for words, cls in (one for module in files for one in declared.registered(module)):
        registry.register(*words.args, **words.keywords)(cls)
    read = dict(registry._ENTRIES)
    facts = ("name", "family", "papers", "tags", "cite", "trains", "default_base", "defaults", "summary",
             "is_objective", "batches")
    assert set(read) == set(imported)
    for name, entry in read.items():
        real = imported[name]
        assert hasattr(entry.declared, "read_off_source")
        assert entry.cls is real.declared
        assert [getattr(entry, fact) for fact in facts] == [getattr(real, fact) for fact in facts]
        fields = [[(f.name, f.type, f.default, f.metadata) for f in dataclasses.fields(one.declared.Settings)]
                  for one in (entry, real)]
        assert fields[0] == fields[1]
        for dataset in ("cub", "sop"):
            assert vars(entry.settings(dataset)) == vars(real.settings(dataset))
        assert entry.misfit("conv4") == real.misfit("conv4")


def test_the_file_of_a_name_is_found_without_reading_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    registry.discover()
    entries = {name: entry for name, entry in registry._ENTRIES.items() if registry.ours(entry)}
    assert registry._homes() == {name: entry.declared.__module__ for name, entry in entries.items()}
    monkeypatch.setattr(registry, "_ENTRIES", {})
    monkeypatch.setattr(registry, "_discovered", False)
    registry._look_up.cache_clear()
    monkeypatch.setattr(registry, "discover", lambda: pytest.fail("every file is read"))
    monkeypatch.delitem(sys.modules, "torch")  # what is not imported is read
    assert registry.get("arcface").declared.__module__ == "methods.arcface"
    assert set(registry._ENTRIES) == {"arcface"}
    registry._look_up.cache_clear()


@pytest.mark.parametrize("backbone", sorted(names.NOT_VIT))
def test_what_fits_a_backbone_is_told_by_its_name_as_by_the_network(backbone: str) -> None:
    for name in ("s2sd", "crt", "puma", "vpt"):
        assert methods.get(name).misfit(backbone) == methods.get(name).misfit(skeleton(backbone))


@pytest.mark.parametrize("source", [
    "from torch import nn\nSIZE = nn.Module\n@register('x', family='y', trains=SIZE)\nclass X: pass",
    "@register(NOWHERE, family='y')\nclass X: pass",
    "import numpy\n@register(numpy.array(1), family='y')\nclass X: pass",
    "class Y: pass\n@register('x', family='y')\nclass X(Y.Inner): pass",
])
def test_source_that_is_not_plain_is_to_be_imported(source: str, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mine.py").write_text(source)
    monkeypatch.setattr(declared, "FOLDER", tmp_path / "methods")
    declared._source.cache_clear()
    with pytest.raises(ValueError, match=r"methods\.mine"):
        list(declared.registered("methods.mine"))
    declared._source.cache_clear()


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", methods.names())
def test_conformance(name: str, check: str) -> None:
    CHECKS[check](methods.get(name))


def test_all_methods_of_the_four_papers_are_there() -> None:
    assert set(ISSUED.split()) <= set(methods.names())
    study = set(methods.names("oodml-study"))
    assert {"margin", "multisimilarity", "arcface", "proxyanchor", "r-margin"} <= study
    assert study <= {"margin", "multisimilarity", "arcface", "proxyanchor", "r-margin", "uniform-prior", "diva", "s2sd"}


def test_values_of_the_papers_by_dataset() -> None:
    assert methods.get("r-margin").settings("cub").p == 0.4
    assert methods.get("r-margin").settings("sop") == dataclasses.replace(
        methods.get("r-margin").settings(), p=0.15, beta=0.9)
    assert methods.get("r-margin-b12").settings("cub").p == 0.35
    assert methods.get("r-snr").settings("cub").p == 0.3
    assert methods.get("histogram").settings("sop").nodes == 11
    assert methods.get("normsoftmax").settings("sop").proxy_rate == 200
    assert methods.get("margin-b06").settings("cub").beta == 0.6
    assert methods.get("proxyanchor").settings().proxy_rate == 2000
    assert methods.get("margin").settings("cub", beta="0.9").beta == 0.9


def test_selection() -> None:
    assert methods.select("margin*") == ["margin", "margin-b06"]
    assert "histogram" not in methods.select("all,-histogram")
    assert set(methods.select("tag:regularised")) == {"r-contrastive", "r-margin", "r-margin-b12", "r-triplet", "r-snr"}
    assert methods.get("manifold-mixup:triplet").base.name == "triplet"  # type: ignore[union-attr]


@pytest.mark.parametrize(("text", "says"), [
    ("marginn", "did you mean 'margin'"), ("tag:nothing", "matches no method"), ("margin:triplet", "takes no base"),
    ("manifold-mixup:frozen", "not an objective"), ("margin,-margin", "leaves no method")])
def test_mistakes_in_the_selection_are_named(text: str, says: str) -> None:
    with pytest.raises(MethodError, match=says):
        methods.select(text)


def test_mistakes_in_settings_are_named() -> None:
    with pytest.raises(MethodError, match="did you mean 'beta'"):
        methods.get("margin").settings(betta=1)
    with pytest.raises(MethodError, match=r"margin\.beta = 'wide': .*number"):
        methods.get("margin").settings(beta="wide")
    with pytest.raises(MethodError, match="there are distance"):
        example.build(dataclasses.replace(methods.get("triplet"), defaults=(("miner", "best"),)))
    entry = methods.get("triplet-xbm")
    small = entry.build(example.Small(), example.CLASSES, example.DIM, entry.settings(size=4))
    with pytest.raises(MethodError, match="smaller than a batch"):
        small.step(*example.glyphs())


def test_a_count_that_is_written_as_an_amount_is_whole_and_an_amount_stays_as_it_is_written() -> None:
    """So is a number of a protocol's file: a run with 10.0 centres failed, and an identity tells 1 from 1.0."""
    for name in methods.names():
        entry = methods.get(name)
        counts = {field.name: field.default for field in dataclasses.fields(entry.declared.Settings)
                  if type(field.default) is int}
        typed = vars(entry.settings(**{key: float(value) for key, value in counts.items()}))
        assert {key: repr(typed[key]) for key in counts} == {key: repr(value) for key, value in counts.items()}
    entry = methods.get("softtriple")
    assert [repr(entry.settings(scale=scale).scale) for scale in (20, 20.0, "20")] == ["20", "20.0", "20.0"]
    loss, *_ = example.losses_at(example.build(entry, centres=2.0), *example.glyphs(), draws=1)
    assert loss == example.losses_at(example.build(entry, centres=2), *example.glyphs(), draws=1)[0]


def test_a_plugin_cannot_take_the_name_of_another_method(tmp_path: Path) -> None:
    file = tmp_path / "thief.py"
    file.write_text(PLUGIN.replace("my-pairs", "margin").replace("class Pairs", "class Margin"), encoding="utf-8")
    with pytest.raises(MethodError, match="registered twice"):
        methods.load_plugin(file)
    with pytest.raises(MethodError, match="no such file"):
        methods.load_plugin(tmp_path / "absent.py")
    file.write_text("", encoding="utf-8")
    with pytest.raises(MethodError, match="registers no method"):
        methods.load_plugin(file)
