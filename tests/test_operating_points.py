"""What a record keeps of all pairs, against the measures one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmark.metrics import operating_points, thresholds
from benchmark.metrics.operating_points import survey
from benchmark.utils.errors import UserError
from reports.storage.operating_points import LEVELS, RATES, rate_at
from tests import exact_thresholds as exact


def clouds(seed: int, spread: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
    """Points around a centre for each class, classes of different size and width."""
    random, count, classes, dim = np.random.default_rng(seed), 400, 12, 16
    labels = random.choice(classes, size=count, p=random.dirichlet(np.full(classes, 5.0)))
    centres = random.normal(size=(classes, dim))
    widths = random.uniform(0.6, 1.4, classes) * spread
    return centres[labels] + widths[labels, None] * random.normal(size=(count, dim)), labels


@pytest.fixture(scope="module")
def near() -> tuple[np.ndarray, np.ndarray, dict]:
    x, y = clouds(0)
    return x, y, survey(x, y)


@pytest.mark.parametrize("chunk", [1, 7, 400])
def test_blocks_change_nothing(near: tuple, chunk: int) -> None:
    x, y, found = near
    again = survey(x, y, chunk=chunk)
    assert again.keys() == found.keys()
    for key, value in found.items():  # products of blocks of another shape are rounded another way
        assert again[key] == pytest.approx(value, abs=2.5 / operating_points.HALF), key


def test_thresholds_at_every_level_keep_to_it(near: tuple) -> None:
    x, y, found = near
    table = thresholds.Pairs(x, y)
    similar = (table.x @ table.x.T).numpy()[np.triu_indices(len(x), 1)]
    same = (y[:, None] == y)[np.triu_indices(len(x), 1)]
    assert (found["positives"], found["negatives"]) == (same.sum(), (~same).sum())
    step = 1 / operating_points.HALF
    for level, accept, reject in zip(LEVELS, found["negative"], found["positive"]):
        assert (similar[~same] >= accept).mean() <= level < (similar[~same] >= accept - 1.01 * step).mean()
        assert (similar[same] < reject).mean() <= level < (similar[same] < reject + 1.01 * step).mean()


def test_against_the_exact_measures(near: tuple) -> None:
    x, y, found = near
    assert list(operating_points.fixed_thresholds(found).values()) == pytest.approx(exact.thresholds_at(x, y), abs=4e-5)
    assert list(found["tar"].values()) == pytest.approx(exact.tar_at_far(x, y), abs=2e-4)
    assert found["opis"] == pytest.approx(exact.opis(x, y, *exact.thresholds_at(x, y, (1e-1, 1e-2))), rel=0.01)
    assert found["r_auroc"] == pytest.approx(exact.r_auroc(x, y), abs=1e-9)
    recall, accepted = exact.open_set_recall(x, y)
    assert found["recall@1"] == recall
    assert found["open_recall@1"] == {f"{rate:g}": value for rate, value in zip(RATES, accepted)}


def test_drift_from_what_two_records_keep_is_that_of_all_pairs(near: tuple) -> None:
    found = near[2]
    x, y = clouds(5, spread=1.3)
    far = survey(x, y, fixed=operating_points.fixed_thresholds(found))
    for rate in RATES:
        threshold = found["negative"][LEVELS.index(rate)]
        ((accepts, rejects),) = exact.error_rates(x, y, [threshold])
        assert rate_at(threshold, far["negative"], accepts=True) == pytest.approx(accepts, rel=0.03)
        assert rate_at(threshold, far["positive"], accepts=False) == pytest.approx(rejects, rel=0.01)
        kept = far["validation"][f"{rate:g}"]
        assert (kept["false_accepts"], kept["false_rejects"]) == pytest.approx((accepts, rejects), abs=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_thresholds_kept_to_six_digits_stand_for_their_step_of_the_grid(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = random.normal(size=(60, 3)), np.arange(60) % 5
    table = thresholds.Pairs(x, y)
    step = ((table.x @ table.x.T + 1) * operating_points.HALF).numpy()[np.triu_indices(60, 1)].astype(int)
    same = (y[:, None] == y)[np.triu_indices(60, 1)]
    kept = survey(x, y)["negative"]
    found = survey(x, y, fixed={str(at): value for at, value in enumerate(kept)})["validation"]
    for at, value in enumerate(kept):
        edge = round((value + 1) * operating_points.HALF)
        assert found[str(at)]["false_accepts"] == pytest.approx((step[~same] >= edge).mean(), abs=1e-12)
        assert found[str(at)]["false_rejects"] == pytest.approx((step[same] < edge).mean(), abs=1e-12)


def test_held_out_classes_without_a_pair_cost_nothing_of_the_test_side() -> None:
    x, y = clouds(3)
    expected = survey(x, y)
    for labels in (np.zeros(5), np.arange(5)):
        assert operating_points.of_run(torch.from_numpy(x), y, (torch.eye(5), labels)) == expected
    assert set(operating_points.of_run(torch.eye(5), np.zeros(5))) == {"note"}


def test_the_range_of_opis_from_a_part_of_the_images(near: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, found = near
    monkeypatch.setattr(operating_points, "SAMPLE", 200)
    assert survey(x, y)["opis"] == pytest.approx(found["opis"], rel=0.1)


def test_collapsed_and_perfect_embeddings() -> None:
    y = np.arange(60) % 6
    collapsed = survey(np.ones((60, 4)), y)
    assert collapsed["tar"] == {"0.01": 0.0, "0.001": 0.0}
    assert collapsed["recall@1"] == 0.0
    perfect = survey(np.eye(6)[y], y)
    assert perfect["tar"] == {"0.01": 1.0, "0.001": 1.0}
    assert perfect["opis"] == 0.0
    assert perfect["open_recall@1"] == {"0.01": 1.0, "0.001": 1.0}


def test_rates_beyond_what_is_kept() -> None:
    kept = [0.5 - level for level in LEVELS]
    assert rate_at(0.9, kept, accepts=True) == 0.0
    assert rate_at(-0.9, kept, accepts=True) == 1.0
    assert rate_at(-0.9, [-0.5 + level for level in LEVELS], accepts=False) == 0.0


def test_no_pair_is_told() -> None:
    with pytest.raises(UserError, match="no two of the 5 images are of one class"):
        survey(np.eye(5), np.arange(5))
    with pytest.raises(UserError, match="all 5 images are of one class"):
        survey(np.eye(5), np.zeros(5))
