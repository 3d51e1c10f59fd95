"""Distances several at a time: the same in the same order, and not much more than was asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from splits import parallel
from splits.ladder import build_ladder
from splits.sides import Vectors


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads as on a GPU, without one."""
    monkeypatch.setattr(parallel, "_start", lambda device: None)
    monkeypatch.setattr(parallel, "_in_stream", lambda own, one, device: one())


def test_order_concurrency_and_an_early_end(pretended: None) -> None:
    together = threading.Barrier(parallel.AT_ONCE)
    taken: list[int] = []

    def work() -> Iterator[Callable[[], int]]:
        for n in range(100):
            taken.append(n)
            yield lambda n=n: (together.wait(5) if n < parallel.AT_ONCE else time.sleep(0.01 * (n % 3))) or n  # type: ignore[misc]

    found = parallel.in_parallel(work(), "cuda")
    assert [next(found) % 100 for _ in range(10)][parallel.AT_ONCE:] == list(range(parallel.AT_ONCE, 10))
    found.close()  # type: ignore[attr-defined]
    assert len(taken) <= 10 + parallel.AT_ONCE


def test_an_error_is_raised_where_its_turn_is(pretended: None) -> None:
    found = parallel.in_parallel([lambda: 1, lambda: 1 // 0, lambda: 3], "cuda")
    assert next(found) == 1
    with pytest.raises(ZeroDivisionError):
        next(found)


@pytest.mark.parametrize("options", [{}, {"iterations": 2}, {"rerank": True, "guard": 1}])
def test_a_ladder_is_the_same_with_several_distances_at_once(pretended: None, options: dict[str, Any],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.repeat(np.arange(16), 12)
    x = np.random.default_rng(0).normal(size=(192, 6)) + 2 * np.random.default_rng(1).normal(size=(16, 6))[labels]
    names = [f"{c:02d}" for c in range(16)]

    def ladder() -> Any:
        return build_ladder(x, labels, names[:8], names[8:], classes=names, iid_draws=3, reverse=True, **options)

    alone = ladder()
    in_parallel, threads = parallel.in_parallel, set()

    def with_threads(work: Any, device: str | None) -> Iterator[Any]:
        noted = (lambda task=task: (threads.add(threading.get_ident()), task())[1] for task in work)  # type: ignore[misc]
        return in_parallel(noted, "cuda")

    for module in ("splits.swap", "splits.iid", "splits.ladder"):
        monkeypatch.setattr(f"{module}.in_parallel", with_threads)
    assert ladder() == alone
    assert threading.get_ident() not in threads


def test_rows_stay_on_a_cpu() -> None:
    vectors = Vectors.grouped(np.ones((4, 2), np.float32), np.array([0, 0, 1, 1]), 2, "cpu")
    assert vectors.placed() is vectors


def test_small_matrices_use_one_thread_and_large_ones_all_of_them() -> None:
    from threadpoolctl import threadpool_info

    def threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    before, own = threads(), torch.get_num_threads()
    with parallel.in_one_thread():
        assert threads() == {1}
        assert torch.get_num_threads() == 1
    assert (threads(), torch.get_num_threads()) == (before, own)
