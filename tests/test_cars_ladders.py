"""The released ladder of Cars beside the one that the suite builds: what the page says, from their manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import spearmanr

from splits import manifest
from splits.manifest import Ladder, Split

ROOT = Path(__file__).parent.parent
LADDERS = ROOT / "reports" / "data" / "ladders"


@pytest.fixture(scope="module")
def released() -> Ladder:
    return manifest.load(LADDERS / "cars-released.json")


@pytest.fixture(scope="module")
def built() -> Ladder:
    return manifest.load(LADDERS / "cars-built.json")


def row(head: str) -> list[str]:
    page = (ROOT / "docs" / "pages" / "results_in_detail.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {head}")]
    return [cell for cell in (part.strip() for part in line.strip("| ").split("|")[1:]) if cell]


def in_words(values: object, digits: int = 1) -> list[str]:
    return [f"{value:.{digits}f}" for value in values]  # type: ignore[attr-defined]


def test_both_ladders_are_measured_with_the_network_that_was_trained(released: Ladder, built: Ladder) -> None:
    records = manifest.load(ROOT / "reports/data/records/photos/splits/cars.json")
    assert [(split.train, split.test) for split in released.splits] == [
        (split.train, split.test) for split in records.splits]
    for ladder in (released, built):
        assert ladder.features["backbone"] == "resnet50_v1"
        assert ladder.dataset_hash == records.dataset_hash


def test_distances(released: Ladder, built: Ladder) -> None:
    assert built.iid is not None
    random_halves = f"{built.iid['mean']:.1f}"
    assert row("released ladder, measured here") == [*in_words(split.frd for split in released.splits), random_halves]
    assert row("the same at equal n") == in_words(split.frd_equal_n for split in released.splits)
    assert row("own ladder") == [*in_words(split.frd for split in built.splits), random_halves]
    assert row("its distance at equal n") == in_words(split.frd_equal_n for split in built.splits)
    smallest = min(min(split.train_images, split.test_images) for split in released.splits)
    assert smallest == 5034


def test_overlap_and_order_of_moves(released: Ladder, built: Ladder) -> None:
    def alike(one: Split, two: Split) -> float:
        sides = [(set(one.train), set(two.train)), (set(one.test), set(two.test))]
        return sum(len(a & b) / len(a | b) for a, b in sides) / 2

    best = [max(alike(one, two) for two in built.splits) for one in released.splits]
    assert row("overlap of the released rung") == in_words(best, 2)

    first = released.splits[0]
    other = {name: "test" if name in first.train else "train" for name in sorted((*first.train, *first.test))}
    on_rung = [min((split.id for split in released.splits if name in getattr(split, side)), default=9)
               for name, side in other.items()]
    swaps = [step for step in built.progression if step.kind == "swap"]
    at_swap = [min((step.iteration for step in swaps if name in (*step.moved_train, *step.moved_test)),
                   default=swaps[-1].iteration + 1) for name in other]
    assert f"{spearmanr(on_rung, at_swap).statistic:.2f}" == "0.94"


def test_how_far_the_default_split_is_from_random_halves(built: Ladder) -> None:
    assert built.iid is not None
    hardest = max(step.frd for step in built.progression if step.kind == "swap" and step.kept)
    nearest, default = built.iid["mean"], built.splits[0].frd
    assert default is not None
    assert f"{(default - nearest) / (hardest - nearest):.2f}" == "0.10"
