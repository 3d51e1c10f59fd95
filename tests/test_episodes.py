"""Few-shot parts: right sizes, disjoint, the same whatever the order of images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from splits import SplitError
from splits.episodes import few_shot_episodes, released_episodes, training_subset

NAMES = ["a", "b", "c", "d"]


def data(sizes: list[int]) -> tuple[list[str], np.ndarray]:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return [f"{NAMES[c]}/{i}.jpg" for i, c in enumerate(labels)], labels


@settings(max_examples=30)
@given(st.lists(st.integers(1, 14), min_size=4, max_size=4), st.integers(0, 99))
def test_episodes(sizes: list[int], seed: int) -> None:
    images, labels = data(sizes)
    found = list(few_shot_episodes(images, labels, NAMES, ["b", "d"], seed=seed))
    assert [(e.shots, e.number) for e in found] == [(k, n) for k in (2, 5, 10) for n in range(10)]
    for e in found:
        large = [c for c in (1, 3) if sizes[c] > e.shots]
        assert e.too_small == tuple(NAMES[c] for c in (1, 3) if sizes[c] <= e.shots)
        assert not set(e.support) & set(e.query)
        assert sorted([*e.support, *e.query]) == [i for i, c in enumerate(labels) if c in large]
        assert (np.bincount(labels[e.support], minlength=4)[large] == e.shots).all()


def test_episodes_differ_but_repeat_and_do_not_hang_on_order_or_other_classes() -> None:
    images, labels = data([12, 13, 14, 15])
    found = list(few_shot_episodes(images, labels, NAMES, ["b", "d"]))
    assert len({tuple(e.support) for e in found}) == 30
    assert [tuple(e.support) for e in few_shot_episodes(images, labels, NAMES, ["b", "d"], seed=1)] != [
        tuple(e.support) for e in found]
    order = np.random.default_rng(0).permutation(len(images))
    again = list(few_shot_episodes([images[i] for i in order], labels[order], NAMES, ["d", "b"]))
    for one, two in zip(found, again):
        assert set(one.support) == set(order[two.support])
        assert set(one.query) == set(order[two.query])
    alone = list(few_shot_episodes(images, labels, NAMES, ["d"]))
    for one, two in zip(found, alone):
        assert set(two.support) <= set(one.support)


def test_each_image_is_drawn_about_equally_often() -> None:
    images, labels = data([0, 20, 0, 0])
    drawn = np.zeros(20)
    for e in few_shot_episodes(images, labels, NAMES, ["b"], shots=[5], episodes=400):
        drawn[e.support] += 1
    assert drawn.sum() == 2000
    assert np.abs(drawn - 100).max() < 5 * np.sqrt(400 * 0.25 * 0.75)


@pytest.mark.parametrize("sizes", [[20, 20, 20, 20], [1, 3, 7, 40]])
def test_training_subsets_are_nested_and_use_no_image_twice(sizes: list[int]) -> None:
    images, labels = data(sizes)
    before: set[int] = set()
    for k in (1, 2, 4, 8, 16):
        found = training_subset(images, labels, NAMES, ["a", "b", "c"], k)
        chosen = set(found.images)
        assert len(chosen) == len(found.images)
        assert np.bincount(labels[found.images], minlength=4).tolist() == [*(min(k, s) for s in sizes[:3]), 0]
        assert found.too_small == tuple(name for name, s in zip("abc", sizes) if s < k)
        assert before <= chosen
        before = chosen


def test_bad_input() -> None:
    images, labels = data([3, 3, 3, 3])
    with pytest.raises(SplitError, match="one entry an image"):
        training_subset(images[1:], labels, NAMES, ["a"], 1)
    with pytest.raises(SplitError, match="'z' of the split is not"):
        training_subset(images, labels, NAMES, ["z"], 1)
    with pytest.raises(SplitError, match="at least 1"):
        list(few_shot_episodes(images, labels, NAMES, ["a"], shots=[0]))


def test_released_episodes_by_class_and_file() -> None:
    """Cars as the authors have it (class folders) and as the devkit has it (two folders, a name in both)."""
    episodes = {"1": {"a": ["3.jpg", "1_2.jpg"], "b": ["2.jpg", "1.jpg"]},
                "0": {"a": ["1.jpg", "2.jpg"], "b": ["1.jpg"]}}
    merged = ["a/1.jpg", "a/1_2.jpg", "a/2.jpg", "a/3.jpg", "b/1.jpg", "b/2.jpg", "b/7.jpg"]
    devkit = ["cars_train/1.jpg", "cars_test/1.jpg", "cars_test/2.jpg", "cars_train/3.jpg", "cars_train/1.jpg",
              "cars_test/2.jpg", "cars_train/7.jpg"]
    labels = np.array([0, 0, 0, 0, 1, 1, 1])
    wanted = [{0, 2, 4}, {1, 3, 4, 5}]
    for images in (merged, devkit):
        first, second = released_episodes(episodes, images, labels, ["a", "b"], 2)
        assert (first.number, second.number, first.shots) == (0, 1, 2)
        for episode, support in zip((first, second), wanted):
            assert set(episode.support.tolist()) == support
            assert set(episode.query.tolist()) == set(range(7)) - support


def test_released_episodes_without_their_files() -> None:
    with pytest.raises(SplitError, match=r"1 of 2 files of the released episodes are not here, such as a/9_2\.jpg"):
        released_episodes({"0": {"a": ["9.jpg", "9_2.jpg"]}}, ["a/9.jpg"], np.array([0]), ["a"], 2)
    with pytest.raises(SplitError, match="name classes and no files"):
        released_episodes({"0": [3, 4]}, ["a/9.jpg"], np.array([0]), ["a"], 2)  # type: ignore[dict-item]
