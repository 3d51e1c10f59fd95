"""What each (protocol, dataset, method) resolves to, against the values that the papers and released codes print."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import methods
from benchmark.config import overrides, plan
from benchmark.config.plan import Overrides
from benchmark.config.spec import RunSpec
from benchmark.runs import recording
from benchmark.training import train
from methods import Method
from methods.checks import example


def resolved(protocol: str, dataset: str, method: str) -> RunSpec:
    """The spec that a study would run, without a dataset behind it."""
    entry, plain = methods.get(method), Overrides()
    return RunSpec(dataset, "", 1, "", method, plan._settings(entry, dataset, protocol, plain),
                   plan.base_settings(entry, dataset, protocol, plain),
                   plan.load_protocol(protocol, dataset, method, plain), "", 0)


def built(spec: RunSpec) -> Method:
    """The method of a spec on the conformance suite's small network."""
    entry = methods.get(spec.method)
    torch.manual_seed(0)
    settings = {**spec.settings, **getattr(entry.cls, "example_settings", {})}
    small = dataclasses.replace(spec, settings=settings, protocol=dataclasses.replace(spec.protocol, dim=example.DIM))
    return small.build(getattr(entry.cls, "example_backbone", example.Small)(), example.CLASSES)


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
    ("oodml", "cub", "subcenter-arcface"): 5e-4,  # as arcface, from which it differs by its centres alone
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
    old = dataclasses.replace(spec, settings=settings)
    assert built(old).objective.settings == built(spec).objective.settings
    assert old.identity == spec.identity
    assert plan.changes(old) == plan.changes(spec) == {}

    spec = resolved("uml", "uml", "linear-emb")
    base = {key: value for key, value in spec.base_settings.items() if key != "proxy_rate"} | {"proxy_lr": 0.3}
    old = dataclasses.replace(spec, settings={**spec.settings, "proxy_rate": 1 / 0.3}, base_settings=base)
    assert built(old).objective.settings.proxy_rate == pytest.approx(1e4)
    assert old.identity != spec.identity
    assert "proxy_lr" in old.base_settings  # the spec itself stays as it was written


DISTANCE = {"cutoff": 0.5}  # Revisiting DML, appendix A.2 (lambda)
REVISITING: dict[str, dict[str, Any]] = {  # appendix A.1, the same on every dataset
    "contrastive": {"margin": 1.0, **DISTANCE},
    "triplet": {"margin": 0.2, "miner": "distance", **DISTANCE},
    "triplet-random": {"margin": 0.2, "miner": "random"},
    "triplet-semihard": {"margin": 0.2, "miner": "semihard"},
    "triplet-softhard": {"margin": 0.2, "miner": "softhard"},
    "genlifted": {"margin": 1.0, "nu": 0.005},
    "npair": {"nu": 0.005},
    "angular": {"alpha": 45.0, "weight": 2.0, "nu": 0.005},
    "arcface": {"scale": 16.0, "margin": 0.5},
    "margin": {"beta": 1.2, "margin": 0.2, **DISTANCE},
    "margin-b06": {"beta": 0.6, "margin": 0.2, **DISTANCE},
    "multisimilarity": {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "epsilon": 0.1},
    "proxynca": {"scale": 3.0},  # released code
    "quadruplet": {"margin1": 1.0, "margin2": 0.5, **DISTANCE},
    "snr": {"margin": 0.2, "nu": 0.005, **DISTANCE},
    "softtriple": {"centres": 2, "scale": 8.0, "tau": 0.2, "delta": 0.01, "gamma": 0.1},
    "normsoftmax": {"temperature": 0.05},
    "histogram": {},  # by dataset, below
    "r-contrastive": {"margin": 1.0}, "r-triplet": {"margin": 0.2}, "r-snr": {"margin": 0.2},
    "r-margin": {"beta": 0.6, "margin": 0.2}, "r-margin-b12": {"beta": 1.2, "margin": 0.2},
    "manifold-mixup": {"alpha": 2.0}, "manifold-mixup-triplet": {"alpha": 2.0},  # appendix F
    "manifold-mixup-margin": {"alpha": 2.0},
    "frozen": {}, "random": {},
}
BY_DATASET: dict[tuple[str, str], dict[str, Any]] = {
    ("cub", "histogram"): {"nodes": 65}, ("cars", "histogram"): {"nodes": 65}, ("sop", "histogram"): {"nodes": 11},
    # tables 4, 5 and 6: p in the names of the rows
    ("cub", "r-contrastive"): {"p": 0.4}, ("cub", "r-margin"): {"p": 0.4}, ("cub", "r-margin-b12"): {"p": 0.35},
    ("cub", "r-snr"): {"p": 0.3}, ("cub", "r-triplet"): {"p": 0.4},
    **{("cars", name): {"p": 0.35} for name in ("r-contrastive", "r-margin", "r-margin-b12", "r-snr", "r-triplet")},
    **{("sop", name): {"p": 0.15} for name in ("r-contrastive", "r-margin", "r-margin-b12", "r-snr", "r-triplet")},
}
# ooDML, released runs (OOD-Study_ZeroShot.sh); of S2SD and DiVA the base objective after a stroke
OODML: dict[str, dict[str, dict[str, Any]]] = {
    "margin": {name: {"beta": 1.2, "margin": 0.2, "cutoff": 0.5} for name in ("cub", "cars", "sop")},
    "multisimilarity": {name: {"alpha": 2.0, "beta": 40.0, "threshold": 0.5, "epsilon": 0.1}
                        for name in ("cub", "cars", "sop")},
    "arcface": {name: {"scale": 16.0, "margin": 0.5} for name in ("cub", "cars", "sop")},
    "proxyanchor": {name: {"alpha": 32.0, "delta": 0.1} for name in ("cub", "cars", "sop")},
    "r-margin": {"cub": {"beta": 0.6, "p": 0.4}, "cars": {"beta": 0.6, "p": 0.35}, "sop": {"beta": 0.9, "p": 0.15}},
    "uniform-prior": {"cub": {"weight": 0.2, "every": 10, "hidden": 100},
                      "cars": {"weight": 0.2, "every": 10, "hidden": 100},
                      "sop": {"weight": 0.02, "every": 200, "hidden": 50}},
    "uniform-prior/base": {name: {"beta": 1.2} for name in ("cub", "cars", "sop")},
    "diva": {"cub": {"decorrelation": 1500.0, "shared": 0.3, "selfsimilarity": 0.3, "intra": 0.3, "keys": 30 * 108},
             "cars": {"decorrelation": 100.0, "shared": 0.15, "selfsimilarity": 0.15, "intra": 0.15, "keys": 30 * 108},
             "sop": {"decorrelation": 150.0, "shared": 0.2, "selfsimilarity": 0.2, "intra": 0.2, "keys": 70 * 108}},
    "diva/base": {name: {"beta": 1.2} for name in ("cub", "cars", "sop")},
    "s2sd": {"cub": {"weight": 50.0, "feature_weight": 50.0, "pool": True, "delay": 0},
             "cars": {"weight": 50.0, "feature_weight": 50.0, "pool": True, "delay": 0},
             "sop": {"weight": 5.0, "feature_weight": 5.0, "pool": False, "delay": 1000}},
    "s2sd/base": {"cub": {"beta": 0.6, "p": 0.4}, "cars": {"beta": 0.6, "p": 0.3}, "sop": {"beta": 0.9, "p": 0.0}},
}
# UML: appendix A (s and m of CurricularFace), else the defaults in losses.py of the released code
UML: dict[str, dict[str, Any]] = {
    "curricularface": {"scale": 32.0, "margin": 0.3}, "proxyanchor": {"alpha": 32.0, "delta": 0.1},
    "cosface": {"scale": 64.0, "margin": 0.35}, "arcface": {"scale": 64.0, "margin": 0.5},
    "softtriple": {"centres": 10, "scale": 20.0, "gamma": 0.1, "delta": 0.01},
    "multisimilarity": {"alpha": 2.0, "beta": 50.0, "threshold": 0.5},
    "multisimilarity-xbm": {"alpha": 2.0, "beta": 50.0, "threshold": 0.5, "size": 4096},
    "margin": {"beta": 1.2, "margin": 0.2, "beta_rate": 0.0},  # the library's default does not learn beta
    "hyp": {"temperature": 0.1, "curvature": 0.1, "radius": 2.3},
    "puma": {"bottleneck": 128, "keep": 0.5, "prompts": 20, "length": 8},  # section 5.1
}
CRT = {"cub": 0.1, "cars": 0.1, "sop": 0.9, "inshop": 0.9}  # section 4: weight of the second branch


def differing(settings: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    return {key: settings.get(key) for key, value in wanted.items() if settings.get(key) != value}


@pytest.mark.parametrize("dataset", ["cub", "cars", "sop"])
def test_revisiting_has_the_settings_of_its_appendix(dataset: str) -> None:
    assert set(REVISITING) == {name for name in methods.names() if "revisiting" in methods.get(name).papers}
    for name, wanted in REVISITING.items():
        settings = resolved("revisiting", dataset, name).settings
        assert not differing(settings, {**wanted, **BY_DATASET.get((dataset, name), {})}), name


@pytest.mark.parametrize("dataset", ["cub", "cars", "sop"])
def test_oodml_has_the_settings_of_its_released_runs(dataset: str) -> None:
    assert {name.partition("/")[0] for name in OODML} == set(methods.names("oodml-study"))
    for name, wanted in OODML.items():
        spec = resolved("oodml", dataset, name.partition("/")[0])
        assert not differing(spec.base_settings if "/" in name else spec.settings, wanted[dataset]), name


def test_s2sd_on_another_objective_or_under_another_protocol_has_that_one_s_settings() -> None:
    """The table is of the usual base on that dataset alone, and `--set` stands above it."""
    assert resolved("oodml", "cars", "r-margin").settings["p"] == 0.35
    assert resolved("oodml", "cars", "s2sd:r-triplet").base_settings["p"] == 0.35
    assert resolved("revisiting", "cars", "s2sd").base_settings["p"] == 0.35
    changed = Overrides(methods={"r-margin": {"p": "0.1", "limit": "1.4"}})
    base = plan.base_settings(methods.get("s2sd"), "cars", "oodml", changed)
    assert (base["p"], base["limit"], base["released_divisor"]) == (0.1, 1.4, True)


@pytest.mark.parametrize("dataset", ["cub", "cars", "sop", "uml"])
def test_only_diva_and_s2sd_have_the_released_balance_and_only_under_oodml(dataset: str) -> None:
    """What the network's own losses are weighed against: triplets with an active pair, at any distance."""
    for name in methods.names():
        if methods.get(name).base is not None or "released_divisor" in resolved("oodml", dataset, name).settings:
            spec = resolved("oodml", dataset, name)
            used = spec.base_settings or spec.settings
            wanted = (True, 2.0) if name in ("diva", "s2sd") else (False, 1.4)
            if "released_divisor" in used:
                assert (used["released_divisor"], used["limit"]) == wanted, name
    for method in ("diva", "s2sd"):
        assert built(resolved("oodml", dataset, method)).objective.settings.released_divisor
        assert not resolved("revisiting", dataset, method).base_settings["released_divisor"]
    assert not resolved("oodml", dataset, "diva:margin-b06").base_settings["released_divisor"]
    assert resolved("oodml", dataset, "diva").settings["limit"] == 1.4  # of L_self, the method's own


def test_all_boundaries_of_s2sd_train_at_the_network_s_rate() -> None:
    """Released code: those of the source and of every target, whatever lr is; at 50 times that with `own_beta_rate`."""
    spec = resolved("oodml", "cub", "s2sd")
    for own, rate in ((False, 1e-5), (True, 5e-4)):
        method = built(dataclasses.replace(spec, settings={**spec.settings, "own_beta_rate": own}))
        rates = {group["name"]: group["lr"] for group in train.groups_of(method, spec.protocol)}
        betas = {name: lr for name, lr in rates.items() if name.endswith(".beta")}
        assert set(betas) == {"objective.beta", *(f"targets.{i}.objective.beta" for i in range(len(method.targets)))}
        assert list(betas.values()) == pytest.approx([rate] * len(betas))
        assert rates["backbone"] == rates["head"] == rates["targets"] == 1e-5


def test_the_record_of_s2sd_holds_the_rate_at_which_its_boundaries_train() -> None:
    """The spec, by which a run is known, stays as it was; records of either kind do not differ from the file."""
    spec = resolved("oodml", "cub", "s2sd")
    assert spec.base_settings["beta_rate"] == 50.0
    facts = recording.method_facts(spec, built(spec))
    assert facts["settings"]["beta_rate"] == 1.0
    protocol = spec.protocol.identity()
    for kept in (facts["settings"], {**spec.settings, **spec.base_settings}):
        assert overrides.of_run(protocol, "s2sd", "cub", kept) == {}
    at_its_own = {**facts["settings"], "own_beta_rate": True, "beta_rate": 50.0}
    assert set(overrides.of_run(protocol, "s2sd", "cub", at_its_own) or {}) == {"s2sd.own_beta_rate", "s2sd.beta_rate"}


@pytest.mark.parametrize("dataset", ["uml", "uml-4", "cub", "inshop"])
def test_uml_has_the_settings_of_its_released_code(dataset: str) -> None:
    for name, wanted in UML.items():
        assert not differing(resolved("uml", dataset, name).settings, wanted), name
        if name != "puma":  # and the same under PUMA
            assert not differing(resolved("uml", dataset, f"puma:{name}").base_settings, wanted), name


@pytest.mark.parametrize("dataset", CRT)
def test_crt_has_the_settings_of_its_section_4(dataset: str) -> None:
    spec = resolved("crt", dataset, "crt")
    assert not differing(spec.settings, {"weight": 1.0, "consistency": 0.9, "wide_weight": CRT[dataset],
                                         "prototypes": 49, "wide_prototypes": 64, "wide_dim": 1024})
    assert spec.protocol.batch_size == (80 if dataset in ("cub", "cars") else 180)


@pytest.mark.parametrize("loss", ["triplet", "multisimilarity"])
def test_table_8_of_uml_differs_by_the_memory_alone(loss: str) -> None:
    """With a memory that never joins, the objective with one is the objective without, in value and in gradient.

    Under UML the memory's term takes the place of the batch's, as in its released code.
    """
    torch.manual_seed(0)
    labels = torch.arange(6).repeat_interleave(4)
    points = torch.nn.functional.normalize(torch.randn(24, 8), dim=1).requires_grad_()
    both = []
    for name, changes in ((loss, {}), (f"{loss}-xbm", {"start": 10**9})):
        entry = methods.get(name)
        objective = entry.cls(entry.settings(**{**resolved("uml", "uml", name).settings, **changes}), 6, 8)
        value = objective(points, labels)
        both.append((value, *torch.autograd.grad(value, points)))
    torch.testing.assert_close(both[0][0], both[1][0])
    # the gradient along the sphere: a distance and a cosine differ by a part along the radius, which is lost
    along = [gradient - (gradient * points).sum(1, keepdim=True) * points for _, gradient in both]
    torch.testing.assert_close(*along, rtol=1e-4, atol=1e-6)
    specs = [resolved("uml", "uml", f"puma:{name}") for name in (loss, f"{loss}-xbm")]
    assert specs[0].protocol == specs[1].protocol
    assert specs[1].base_settings["memory_alone_released"]


def test_the_triplets_of_uml_are_those_of_the_library() -> None:
    """The released code's own calls: batch-hard triplets, cosine similarities, the library's margin and mean."""
    from pytorch_metric_learning import distances, losses, miners

    torch.manual_seed(1)
    labels = torch.arange(5).repeat_interleave(3)
    points = torch.nn.functional.normalize(torch.randn(15, 6), dim=1)
    released = losses.TripletMarginLoss(distance=distances.CosineSimilarity())
    entry = methods.get("triplet")
    ours = entry.cls(entry.settings(**resolved("uml", "uml", "triplet").settings), 5, 6)
    torch.testing.assert_close(ours(points, labels), released(points, labels, miners.BatchHardMiner()(points, labels)))


def test_a_switch_that_came_later_leaves_runs_without_it_the_same() -> None:
    plain = resolved("revisiting", "cub", "triplet").settings
    assert not {"cosine", "active"} & set(plain)
    assert {"cosine", "active"} <= set(resolved("uml", "cub", "triplet").settings)


@pytest.mark.parametrize(("cell", "backbone", "head"), [
    # UML, released code: the last layer at 10 times lr in both regimes, additions too
    (("uml", "uml", "cosface"), 3e-5, 3e-4), (("uml", "cub", "triplet"), 3e-5, 3e-4),
    (("uml", "uml", "linear-emb"), None, 1e-3), (("uml", "uml", "puma"), None, 1e-3),
    # ooDML and Revisiting DML: one rate for the network
    (("oodml", "cub", "margin"), 1e-5, 1e-5), (("revisiting", "sop", "margin"), 1e-5, 1e-5),
    (("crt", "cub", "crt"), 3e-5, 3e-5), (("glyphs", "glyphs", "margin"), 3e-4, 3e-4),
])
def test_the_network_trains_at_the_papers_rates(cell: tuple[str, str, str], backbone: float | None,
                                                head: float) -> None:
    protocol = plan.load_protocol(*cell, Overrides())
    rates = {group["name"]: group["lr"] for group in train.groups_of(built(resolved(*cell)), protocol)}
    assert rates.get("backbone") == (None if backbone is None else pytest.approx(backbone))
    assert rates["head"] == pytest.approx(head)


def test_a_run_at_one_rate_is_the_run_that_it_was() -> None:
    """`head_rate` came later: at 1 it is not part of a run's identity."""
    assert "head_rate" not in resolved("oodml", "cub", "margin").protocol.identity()
    assert resolved("uml", "cub", "cosface").protocol.identity()["head_rate"] == 10


# as the version before multiples of lr computed them, without a dataset, split and weights
IDENTITIES = {
    ("oodml", "cub", "margin"): "103a3cc118c3f6d1",
    ("oodml", "sop", "r-margin"): "88abfcc8fee278b4",
    ("oodml", "cars", "arcface"): "aea5b2da5102c4a3",
    ("oodml", "cub", "proxyanchor"): "c936b5d0e2373a3e",
    ("oodml", "cub", "uniform-prior"): "b731ab066eff85bf",
    ("oodml", "cub", "multisimilarity"): "351c16d0d060af1a",
    ("demo", "glyphs", "arcface"): "455116bf5db1d61a",
    ("demo", "glyphs", "margin"): "f2ff20c7fa9510b9",
    ("crt", "cub", "crt"): "6986f8b549382a85",
}


@pytest.mark.parametrize("cell", IDENTITIES, ids="-".join)
def test_runs_that_train_as_before_keep_their_identity(cell: tuple[str, str, str]) -> None:
    assert resolved(*cell).identity.startswith(IDENTITIES[cell])


@pytest.mark.parametrize("cell", [("glyphs", "glyphs", "margin"), ("glyphs", "glyphs", "triplet"),
                                  ("revisiting", "cub", "triplet"),
                                  ("uml", "cub", "cosface"), ("oodml", "cars", "s2sd"), ("oodml", "cub", "s2sd"),
                                  ("oodml", "cub", "diva")], ids="-".join)
def test_runs_that_train_otherwise_are_other_runs(cell: tuple[str, str, str]) -> None:
    """A rate, a length, a frozen norm, a last layer and a base objective that differ from before."""
    before = {("glyphs", "glyphs", "margin"): "3b0315096b9ad72d", ("glyphs", "glyphs", "triplet"): "bb1aaf7d417ff9d4",
              ("revisiting", "cub", "triplet"): "356edec91c0602af",
              ("uml", "cub", "cosface"): "bd78d7695611cd0d", ("oodml", "cars", "s2sd"): "0142ed7b9a208f15",
              ("oodml", "cub", "s2sd"): "f409c4fdee680616", ("oodml", "cub", "diva"): "93496ba8f33f8c2a"}
    assert not resolved(*cell).identity.startswith(before[cell])
