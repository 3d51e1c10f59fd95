"""What each (protocol, dataset, method) resolves to, against the values that the papers and released codes print."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import methods
from benchmark.config import plan
from benchmark.config.plan import Overrides, RunSpec
from benchmark.training import train
from methods import Method
from tests import conformance


def resolved(protocol: str, dataset: str, method: str) -> RunSpec:
    """The spec that a study would run, without a dataset behind it."""
    entry, plain = methods.get(method), Overrides()
    return RunSpec(dataset, "", 1, "", method, plan._settings(entry, dataset, protocol, plain),
                   plan.base_settings(entry, dataset, protocol, plain),
                   plan.load_protocol(protocol, dataset, method, plain).identity(), "", 0)


def built(spec: RunSpec) -> Method:
    """The method of a spec on the conformance suite's small network."""
    entry = methods.get(spec.method)
    torch.manual_seed(0)
    settings = {**spec.settings, **getattr(entry.cls, "example_settings", {})}
    small = RunSpec(**{**vars_of(spec), "settings": settings, "protocol": {**spec.protocol, "dim": conformance.DIM}})
    return small.build(getattr(entry.cls, "example_backbone", conformance.Small)(), conformance.CLASSES)


def vars_of(spec: RunSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in RunSpec.__dataclass_fields__}


# (protocol, dataset, method): absolute rate of the objective's own parameter, and where it is printed
RATES = {
    # Revisiting DML, appendix A.1 ("learning rate of the boundary is set to 0.0005"), at lr 1e-5
    ("revisiting", "cub", "margin"): 5e-4, ("revisiting", "sop", "margin-b06"): 5e-4,
    ("revisiting", "cars", "r-margin"): 5e-4, ("revisiting", "sop", "r-margin-b12"): 5e-4,
    ("revisiting", "cub", "manifold-mixup-margin"): 5e-4,
    ("revisiting", "cub", "arcface"): 5e-4,      # appendix A.1: centres at 0.0005
    ("revisiting", "cub", "proxynca"): 5e-4,     # released code: 50 times lr
    ("revisiting", "cub", "softtriple"): 1e-5,   # appendix A.1: "proxy learning rate is set to 0.00001"
    ("revisiting", "cub", "normsoftmax"): 1e-5,  # appendix A.1
    ("revisiting", "sop", "normsoftmax"): 2e-3,  # released run for SOP
    # ooDML, released runs, at lr 1e-5
    ("oodml", "cub", "margin"): 5e-4, ("oodml", "sop", "r-margin"): 5e-4, ("oodml", "cub", "arcface"): 5e-4,
    ("oodml", "cub", "proxyanchor"): 0.02,       # 2000 times lr
    ("oodml", "cub", "uniform-prior"): 5e-4,
    # UML, appendix A: proxies at 1e4 times lr, which is 3e-5 in full tuning and 1e-4 in parameter-efficient tuning
    ("uml", "uml", "proxyanchor"): 0.3, ("uml", "cub", "cosface"): 0.3, ("uml", "cub", "arcface"): 0.3,
    ("uml", "uml", "curricularface"): 0.3, ("uml", "uml", "softtriple"): 0.3, ("uml", "uml", "proxynca++"): 0.3,
    ("uml", "uml", "puma"): 1.0, ("uml", "uml", "puma:proxyanchor"): 1.0, ("uml", "uml", "linear-emb"): 1.0,
    # this suite's own protocols: the papers' ratio at their own lr, 3e-4 and 1e-4 for the parameter-efficient
    ("glyphs", "glyphs", "margin"): 50 * 3e-4, ("glyphs", "glyphs", "r-margin"): 50 * 3e-4,
    ("glyphs", "glyphs", "arcface"): 50 * 3e-4, ("glyphs", "glyphs", "cosface"): 50 * 3e-4,
    ("glyphs", "glyphs", "curricularface"): 50 * 3e-4, ("glyphs", "glyphs", "normsoftmax"): 3e-4,
    ("glyphs", "glyphs", "proxynca"): 50 * 3e-4, ("glyphs", "glyphs", "proxyanchor"): 2000 * 3e-4,
    ("glyphs", "glyphs", "softtriple"): 100 * 3e-4,  # Qian et al. 2019, released code: .01 at 1e-4
    ("glyphs", "glyphs", "linear-emb"): 50 * 1e-4,
    ("demo", "glyphs", "margin"): 5e-4, ("demo", "glyphs", "arcface"): 0.01, ("demo", "glyphs", "proxyanchor"): 0.01,
    ("pretrain", "glyphs-others", "normsoftmax"): 0.005,
}


@pytest.mark.parametrize("cell", RATES, ids="-".join)
def test_loss_parameters_train_at_the_papers_rates(cell: tuple[str, str, str]) -> None:
    """By what the optimiser is given, not by the settings."""
    spec = resolved(*cell)
    protocol = plan.load_protocol(*cell, Overrides())
    own = [group["lr"] for group in train.groups_of(built(spec), protocol) if group["name"].startswith("objective.")]
    assert own
    assert own == pytest.approx([RATES[cell]] * len(own))


def test_every_objective_with_parameters_of_its_own_is_in_the_table() -> None:
    rated = {cell[2].rpartition(":")[2] for cell in RATES}
    rated |= {entry.base.name for entry in map(methods.get, rated) if entry.base is not None}
    own = {name for name in methods.names() if methods.get(name).base is None
           and any("_rate" in field for field in methods.get(name).cls.Settings.__dataclass_fields__)}  # type: ignore[attr-defined]
    assert own <= rated


@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_another_lr_keeps_the_ratio(factor: float) -> None:
    method = built(resolved("revisiting", "cub", "margin"))
    beta, = (group for group in method.groups(factor * 1e-5, 0.0) if group["name"] == "objective.beta")
    assert beta["lr"] == pytest.approx(factor * 5e-4)


def test_specs_with_absolute_rates_are_still_built() -> None:
    """As runs of earlier versions hold them: `beta_lr`, `proxy_lr`, and a factor for proxies in `puma`."""
    spec = resolved("oodml", "cub", "margin")
    settings = {key: value for key, value in spec.settings.items() if key != "beta_rate"} | {"beta_lr": 5e-4}
    old = RunSpec(**{**vars_of(spec), "settings": settings})
    assert built(old).objective.settings == built(spec).objective.settings

    spec = resolved("uml", "uml", "linear-emb")
    base = {key: value for key, value in spec.base_settings.items() if key != "proxy_rate"} | {"proxy_lr": 0.3}
    old = RunSpec(**{**vars_of(spec), "settings": {**spec.settings, "proxy_rate": 1 / 0.3}, "base_settings": base})
    assert built(old).objective.settings.proxy_rate == pytest.approx(1e4)
    assert old.identity != spec.identity
    assert "proxy_lr" in old.base_settings  # the spec itself stays as it was written
