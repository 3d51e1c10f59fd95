"""The batch samplers: sizes, uniqueness, coverage, and that the embedded ones come closer to the big batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from methods import MethodError
from methods.samplers import batches, by_embedding
from methods.samplers.by_label import ClassTable

LABEL_SAMPLERS = ("spc-2", "spc-4", "spc-8", "spc-r", "random")


def frechet(x: np.ndarray, y: np.ndarray) -> float:
    """By the matrix square root, as it is written in the papers."""
    a, b = np.cov(x.T), np.cov(y.T)
    root = scipy.linalg.sqrtm(a @ b).real
    return float(np.sum((x.mean(0) - y.mean(0)) ** 2) + np.trace(a + b - 2 * root))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def make(name: str, labels: torch.Tensor, size: int, dim: int = 4) -> batches.BatchSampler:
    sampler = batches.create(name, labels, size, distance=frechet)
    if sampler.needs_bank:
        sampler.start(F.normalize(torch.randn(len(labels), dim, generator=generator(5)), dim=1))  # as methods embed
    return sampler


def uneven() -> torch.Tensor:
    """40 classes of 2 to 12 images, shuffled."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), random.integers(2, 13, 40))
    return torch.from_numpy(random.permutation(labels))


@pytest.mark.parametrize("name", batches.NAMES)
def test_an_epoch_is_floor_n_over_b_batches_of_different_images(name: str) -> None:
    labels = uneven()
    sampler = make(name, labels, 16)
    epoch = list(sampler.epoch(generator()))
    assert len(epoch) == len(sampler) == len(labels) // 16
    for ids in epoch:
        assert ids.dtype == torch.long
        assert len(ids) == 16
        if name not in ("spc-4", "spc-8", "spc-2-released"):
            assert len(set(ids.tolist())) == 16


@pytest.mark.parametrize("n", [2, 4, 8])
def test_spc_has_b_over_n_classes_with_n_different_images_where_there_are(n: int) -> None:
    labels = uneven()
    for ids in make(f"spc-{n}", labels, 32).epoch(generator(1)):
        classes, counts = torch.unique(labels[ids], return_counts=True)
        assert len(classes) == 32 // n
        assert (counts == n).all()
        for c in classes:
            images = ids[labels[ids] == c]
            assert len(set(images.tolist())) == min(n, int((labels == c).sum()))


def test_spc_released_draws_classes_and_images_with_replacement() -> None:
    """As datasampler/class_random_sampler.py of ooDML: `random.choice` of classes, then of the images of each."""
    labels, slots = uneven(), 28
    sizes = torch.bincount(labels)
    batch = [ids for seed in range(40) for ids in make("spc-2-released", labels, 2 * slots).epoch(generator(seed))]
    pairs = torch.stack(batch).unflatten(1, (slots, 2))
    assert (labels[pairs[..., 0]] == labels[pairs[..., 1]]).all()
    different = np.mean([len(np.unique(labels[ids])) for ids in batch])
    assert different == pytest.approx(40 * (1 - (1 - 1 / 40)**slots), rel=0.02)
    drawn = torch.bincount(labels[pairs[..., 0]].flatten(), minlength=40).numpy()
    assert scipy.stats.chisquare(drawn).pvalue > 1e-4
    of_each = torch.bincount(pairs.flatten(), minlength=len(labels)).numpy()
    assert scipy.stats.chisquare(of_each, 2 * drawn.sum() / 40 / sizes[labels].numpy()).pvalue > 1e-4
    twice = (pairs[..., 0] == pairs[..., 1]).double().mean().item()
    assert twice == pytest.approx((1 / sizes.double()).mean().item(), rel=0.15)


def test_spc_draws_classes_uniformly_and_images_of_a_class_uniformly() -> None:
    """Chi-square at level 1e-4, seed 2. Classes of one batch exclude each other: less scatter, not more."""
    labels = torch.tensor([0] * 2 + [1] * 6 + [2] * 3 + [3] * 9 + [4] * 4 + [5] * 2)
    table = ClassTable(labels)
    source = generator(2)
    drawn = torch.cat([table.batch(4, 2, source) for _ in range(3000)])
    per_class = torch.bincount(labels[drawn])
    assert scipy.stats.chisquare(per_class.numpy()).pvalue > 1e-4
    for c in range(6):
        assert scipy.stats.chisquare(torch.bincount(drawn)[labels == c].numpy()).pvalue > 1e-4


def test_random_covers_the_training_set() -> None:
    labels = uneven()[:160]
    seen = torch.cat(list(make("random", labels, 16).epoch(generator())))
    assert sorted(seen.tolist()) == list(range(160))


@pytest.mark.parametrize("name", batches.NAMES)
def test_every_image_comes_up_in_time(name: str) -> None:
    labels = uneven()
    sampler = make(name, labels, 32)
    seen: set[int] = set()
    for epoch in range(60):
        for ids in sampler.epoch(generator(epoch)):
            seen |= set(ids.tolist())
            if sampler.needs_bank:
                # as training does: the bank moves on
                sampler.remember(ids, torch.randn(len(ids), 4, generator=generator(epoch)))
        if len(seen) == len(labels):
            return
    assert len(seen) == len(labels)


def test_spc_r_ends_with_a_partner() -> None:
    labels = torch.arange(50).repeat(3)
    for ids in make("spc-r", labels, 12).epoch(generator()):
        assert labels[ids[-1]] in labels[ids[:-1]]
        assert len(set(ids.tolist())) == 12


def test_spc_r_where_no_class_has_a_second_image() -> None:
    ids = next(iter(make("spc-r", torch.arange(9), 4).epoch(generator())))
    assert len(set(ids.tolist())) == 4


@settings(max_examples=60)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 50), st.sampled_from(batches.NAMES))
def test_any_labels_and_sizes_give_batches(labels: list[int], size: int, name: str) -> None:
    sampler = make(name, torch.tensor(labels), size)
    epoch = list(sampler.epoch(generator()))
    assert len(epoch) == max(1, len(labels) // min(size, len(labels)))
    for ids in epoch:
        assert 1 <= len(ids) <= min(size, len(labels))
        assert ((ids >= 0) & (ids < len(labels))).all()


@pytest.mark.parametrize("name", batches.NAMES)
def test_a_seed_reproduces_and_another_differs(name: str) -> None:
    labels = uneven()

    def run(seed: int) -> list[list[int]]:
        sampler = make(name, labels, 16)
        out = []
        for ids in sampler.epoch(generator(seed)):
            out.append(ids.tolist())
            sampler.remember(ids, torch.randn(16, 4, generator=generator(len(out))))
        return out

    assert run(3) == run(3)
    assert run(3) != run(4)


def clustered() -> tuple[torch.Tensor, torch.Tensor]:
    """1,500 images of 100 classes whose embeddings lie around class centres of very unequal spread."""
    labels = torch.arange(100).repeat_interleave(15)
    source = generator(9)
    centres = torch.randn(100, 8, generator=source) * torch.rand(100, 1, generator=source) * 3
    points = centres[labels] + 0.3 * torch.randn(1500, 8, generator=source)
    return labels, torch.nn.functional.normalize(points, dim=1)


def gaps(name: str, measure: str) -> tuple[float, float]:
    """Mean measure between the batch and all images: of this sampler, and of SPC-2."""
    labels, points = clustered()
    x = points.double().numpy()
    reference = scipy.spatial.distance.pdist(x[::5])

    def gap(ids: torch.Tensor) -> float:
        mine = x[ids.numpy()]
        if measure == "cover":
            return float(np.linalg.norm(x[:, None] - mine[None], axis=2).min(1).max())
        if measure == "distances":
            return float(scipy.stats.wasserstein_distance(scipy.spatial.distance.pdist(mine), reference))
        return frechet(mine, x)

    sampler = batches.create(name, labels, 40, distance=frechet)
    sampler.start(points)
    plain = batches.create("spc-2", labels, 40)
    ours = [gap(ids) for ids in list(sampler.epoch(generator(1)))[:25]]
    other = [gap(ids) for ids in list(plain.epoch(generator(1)))[:25]]
    return float(np.mean(ours)), float(np.mean(other))


@pytest.mark.parametrize(("name", "measure"), [("gc", "cover"), ("ddm", "distances"), ("frd", "frechet")])
def test_embedded_samplers_come_closer_than_random_by_their_own_measure(name: str, measure: str) -> None:
    ours, random = gaps(name, measure)
    assert ours < 0.95 * random


def test_the_best_candidate_is_the_one_chosen() -> None:
    big = torch.randn(200, 3, generator=generator(1))
    candidates = [torch.randperm(200, generator=generator(i))[:30] for i in range(10)]
    x = big.double().numpy()

    high = scipy.spatial.distance.pdist(x).max()
    costs = []
    for c in candidates:
        heights = [np.histogram(scipy.spatial.distance.pdist(s), 50, (0, high))[0] for s in (x[c.numpy()], x)]
        middles = (np.arange(50) + 0.5) * high / 50
        costs.append(scipy.stats.wasserstein_distance(middles, middles, *heights))
    assert by_embedding.match_distances(big, candidates) == int(np.argmin(costs))


@pytest.mark.parametrize("dim", [3, 64])
def test_frechet_matching_in_the_candidates_span_is_exact(dim: int) -> None:
    """The costs that are compared, in few or in more dimensions than images, against the formula in all of them."""
    big = torch.randn(200, dim, generator=generator(1)) * torch.linspace(0.1, 2, dim) + 0.5
    candidates = [torch.randperm(200, generator=generator(i))[:30] for i in range(10)]
    x = big.double().numpy()
    asked: list[float] = []

    def slow(a: np.ndarray, b: np.ndarray) -> float:
        asked.append(float(a.shape[1]))
        return frechet(a, b)

    costs = [frechet(x[c.numpy()], x) for c in candidates]
    assert by_embedding.match_frechet(slow)(big, candidates) == int(np.argmin(costs))
    order = sorted(range(10), key=lambda i: costs[i])
    for one, other in itertools.pairwise(order):
        assert by_embedding.match_frechet(slow)(big, [candidates[other], candidates[one]]) == 1
    assert set(asked) == {min(dim, 29)}


def test_farthest_first_by_brute_force() -> None:
    points = torch.randn(30, 3, generator=generator(4))
    x = points.double().numpy()
    chosen = [7]
    while len(chosen) < 30:
        nearest = np.linalg.norm(x[:, None] - x[chosen][None], axis=2).min(1)
        nearest[chosen] = -1
        chosen.append(int(nearest.argmax()))
    assert list(by_embedding.farthest_first(points, 7)) == chosen
    assert sorted(by_embedding.farthest_first(torch.ones(5, 2))) == list(range(5))


@pytest.mark.parametrize("name", ["gc", "ddm", "frd"])
def test_a_batch_may_be_larger_than_the_usual_big_batch(name: str) -> None:
    sampler = make(name, torch.arange(1100).repeat(2), 2 * by_embedding.BIG)
    (ids,) = sampler.epoch(generator())
    assert len(set(ids.tolist())) == len(ids) == 2 * by_embedding.BIG


def test_gc_keeps_a_positive_for_every_image_where_there_is_one() -> None:
    labels, points = clustered()
    sampler = batches.create("gc", labels, 40)
    sampler.start(points)
    for ids in list(sampler.epoch(generator()))[:5]:
        _, counts = torch.unique(labels[ids], return_counts=True)
        assert counts.min() >= 2


def test_the_bank_remembers_and_travels_in_a_checkpoint() -> None:
    labels, points = clustered()
    sampler = batches.create("ddm", labels, 40)
    with pytest.raises(MethodError, match="start"):
        next(iter(sampler.epoch(generator())))
    with pytest.raises(MethodError, match="1500"):
        sampler.start(points[:3])
    sampler.start(points)
    new = torch.zeros(3, 8)
    sampler.remember(torch.tensor([5, 7, 5]), new)
    assert not sampler.bank[[5, 7]].any()
    assert torch.equal(sampler.bank[6], points[6])
    twin = batches.create("ddm", labels, 40)
    twin.load_state_dict(sampler.state_dict())
    assert [i.tolist() for i in twin.epoch(generator(1))] == [i.tolist() for i in sampler.epoch(generator(1))]


def test_an_epoch_can_be_left_early() -> None:
    labels, points = clustered()
    sampler = batches.create("gc", labels, 40)
    sampler.start(points)
    for _ in sampler.epoch(generator()):
        break
    assert len(list(sampler.epoch(generator()))) == 37


def test_mistakes_are_named() -> None:
    with pytest.raises(MethodError, match="there are spc-2"):
        batches.create("spc-x", torch.zeros(4, dtype=torch.long), 2)
    with pytest.raises(MethodError, match="Fréchet"):
        batches.create("frd", torch.zeros(4, dtype=torch.long), 2)
    with pytest.raises(MethodError, match="no training images"):
        batches.create("spc-2", torch.zeros(0, dtype=torch.long), 2)
