"""What every method must pass, whoever wrote it: a check is a function of its entry that raises AssertionError."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator

import numpy as np
import torch
from torch import Tensor

from methods import Entry
from methods.checks.example import LR, SIDE, WEIGHT_DECAY, build, glyphs, losses_at, optimise, stepped, trained

FAMILIES = {"ranking", "proxy", "classification", "regularised", "hyperbolic", "memory", "mixup", "floor", "auxiliary",
            "aggregation", "parameter-efficient"}
Check = Callable[[Entry], None]


def check_is_described(entry: Entry) -> None:
    """Docstring with a formula, a family, a source for every setting, BibTeX for everything that is trained."""
    assert entry.summary, "the class has no docstring"
    assert entry.family in FAMILIES, f"family '{entry.family}' is none of {', '.join(sorted(FAMILIES))}"
    for field in dataclasses.fields(entry.cls.Settings):  # type: ignore[attr-defined]
        assert field.metadata.get("source"), f"setting '{field.name}' has no source: use methods.setting(...)"
    assert entry.family == "floor" or "@" in entry.cite, "no citation"


def check_loss_falls(entry: Entry) -> None:
    """Twenty-five steps on one batch of glyphs lower the loss of that batch."""
    if not trained(entry):
        return
    images, labels = glyphs()
    method = build(entry)
    before = losses_at(method, images, labels, 8).mean()
    optimise(method, images, labels, 25, lr=3 * LR)
    after = losses_at(method, images, labels, 8).mean()
    assert after < before, f"the loss rose from {before:.4f} to {after:.4f}"


def check_gradients_are_finite(entry: Entry) -> None:
    """In float32 and under bf16 autocast."""
    if not trained(entry):
        return
    images, labels = glyphs()
    for autocast in (False, True):
        method = build(entry).train()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss, embeddings = stepped(method, images, labels)
        loss.backward()
        assert loss.dtype == torch.float32
        assert torch.isfinite(loss)
        assert torch.isfinite(embeddings).all()
        for name, parameter in method.named_parameters():
            assert parameter.grad is None or torch.isfinite(parameter.grad).all(), f"gradient of {name}"


def check_embeddings_are_normalised(entry: Entry) -> None:
    """One unit vector for each image, the same for an image whatever else is in its batch."""
    images, _ = glyphs()
    method = build(entry).eval()
    with torch.no_grad():
        embeddings = method.embed(images)
        alone = torch.cat([method.embed(images[i:i + 1]) for i in range(4)])
    assert embeddings.dtype == torch.float32
    assert embeddings.ndim == 2
    assert len(embeddings) == len(images)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(len(images)))
    torch.testing.assert_close(alone, embeddings[:4], rtol=1e-4, atol=1e-5)


def check_the_right_parameters_move(entry: Entry) -> None:
    """Each trainable parameter is in one group and moves; nothing else does."""
    images, labels = glyphs()
    method = build(entry)
    before = {name: parameter.detach().clone() for name, parameter in method.named_parameters()}
    grouped = [id(p) for group in method.groups(LR, WEIGHT_DECAY) for p in group["params"]]
    assert len(grouped) == len(set(grouped)), "a parameter is in two groups"
    wanted = {name for name, parameter in method.named_parameters() if id(parameter) in grouped}
    assert wanted == {name for name, parameter in method.named_parameters() if parameter.requires_grad}
    if wanted:
        optimise(method, images, labels, 3)
    else:
        method.train()
        stepped(method, images, labels)
    after = dict(method.named_parameters())
    assert not (late := set(after) - set(before)), f"{named(late)} came while it trained: make it in __init__"
    moved = {name for name, parameter in after.items() if not torch.equal(parameter, before[name])}
    assert not (strays := moved - wanted), (f"{named(strays)} moved though no group has it: what a method itself moves "
                                            "is a buffer (methods.layers.momentum.Momentum keeps such a copy)")
    assert not (still := wanted - moved), f"{named(still)} did not move though a group has it"


def named(parameters: Collection[str]) -> str:
    """Parameters by the first of their names.

    >>> named({"b", "a"}), named({"a"})
    ('a and 1 more', 'a')
    """
    return min(parameters) + (f" and {len(parameters) - 1} more" if len(parameters) > 1 else "")


def check_learning_rates(entry: Entry) -> None:
    """The network has the protocol's rate and decay, what the objective owns has its own rate and no decay."""
    method = build(entry)
    groups = method.groups(LR, WEIGHT_DECAY)
    for group in groups:
        if group["name"] in ("backbone", "head"):
            assert group["weight_decay"] == WEIGHT_DECAY
        if group["name"].startswith("objective."):
            rates = method.objective.rates()
            assert group["lr"] == rates.get(group["name"].removeprefix("objective."), 1.0) * LR
            assert group["weight_decay"] == 0
    own = {name for name, _ in method.objective.named_parameters()}
    assert set(method.objective.rates()) <= own, "rates() names a parameter that is not there"
    for holder in (method.settings, method.objective.settings):
        for name, value in vars(holder).items() if holder is not None else ():
            if name.endswith("_rate") and not isinstance(value, bool):
                assert any(group["lr"] == value * LR for group in groups), f"no group has the rate {name}"


def check_state_travels_in_a_checkpoint(entry: Entry) -> None:
    """After some steps, the state loaded into a fresh copy gives the same loss and the same next parameters."""
    images, labels = glyphs()
    method = build(entry)
    if trained(entry):
        optimise(method, images, labels, 3)
    twin = build(entry, seed=5)
    twin.load_state_dict(copy.deepcopy(method.state_dict()))
    with torch.no_grad():
        assert torch.equal(method.eval().embed(images), twin.eval().embed(images))
    if trained(entry):
        assert optimise(method, images, labels, 2, seed=9) == optimise(twin, images, labels, 2, seed=9)


def degenerate() -> Iterator[tuple[str, Tensor, Tensor]]:
    """Batches that hold no pair, no triplet or no difference, each with what it is."""
    images, _ = glyphs()
    alike = images[:1].expand(6, -1, -1, -1).contiguous()
    yield "a single class", images[:6], torch.zeros(6, dtype=torch.long)
    yield "one image of each class", images[:6], torch.arange(6)
    yield "identical images of two classes", alike, torch.tensor([0, 0, 0, 1, 1, 1])
    yield "identical images of one class", alike, torch.zeros(6, dtype=torch.long)
    yield "two images", images[:2], torch.zeros(2, dtype=torch.long)
    yield "black images", torch.zeros(4, 3, SIDE, SIDE), torch.tensor([0, 0, 1, 1])


def check_degenerate_batches(entry: Entry) -> None:
    """No crash and nothing that is not a number, in the loss or in any gradient."""
    for what, images, labels in degenerate():
        method = build(entry).train()
        loss = stepped(method, images, labels).loss
        assert torch.isfinite(loss), f"{what}: the loss is {loss.item()}"
        if trained(entry):
            loss.backward()
            for name, parameter in method.named_parameters():
                assert parameter.grad is None or torch.isfinite(parameter.grad).all(), f"{what}: gradient of {name}"


def check_one_training_class(entry: Entry) -> None:
    """A training set of a single class is no reason to fall over."""
    method = build(entry, classes=1).train()
    images, _ = glyphs()
    assert torch.isfinite(stepped(method, images[:4], torch.zeros(4, dtype=torch.long)).loss)


def check_order_in_the_batch_does_not_matter(entry: Entry) -> None:
    """The same loss for the shuffled batch; where mining draws at random, the same mean within five standard errors."""
    images, labels = glyphs()
    method = build(entry)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(3))
    few = losses_at(method, images, labels, 3)
    if np.ptp(few) < 1e-6 * max(1.0, abs(few[0])):
        shuffled = losses_at(method, images[order], labels[order], 1)
        assert math.isclose(few[0], shuffled[0], rel_tol=1e-4, abs_tol=1e-5)
        return
    first, second = (losses_at(method, images[o], labels[o], 40, seed)
                     for o, seed in ((torch.arange(len(labels)), 1000), (order, 2000)))
    error = math.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    assert abs(first.mean() - second.mean()) < 5 * error, f"{first.mean():.4f} against {second.mean():.4f}"


def check_seeds_reproduce(entry: Entry) -> None:
    """Two runs from one seed end with the same parameters, bit for bit."""
    images, labels = glyphs()
    states = []
    for _ in range(2):
        method = build(entry)
        if trained(entry):
            optimise(method, images, labels, 3)
        states.append(method.state_dict())
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name


CHECKS: dict[str, Check] = {name.removeprefix("check_"): check for name, check in list(globals().items())
                            if name.startswith("check_")}
"""Every check by its name, in the order of this file."""
