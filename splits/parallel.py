"""How many distances, and how many threads in one, work at a time: what fills a GPU, and what a small matrix needs."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")
AT_ONCE = 4
"""Eigenvalues of a 2048 x 2048 matrix are many small steps, between which a GPU waits."""


def in_parallel(work: Iterable[Callable[[], Result]], device: str | None) -> Iterator[Result]:
    """What these functions return, in their order.

    On a GPU `AT_ONCE` of them run at a time, each in a thread and a stream of its own, so that up to as many more are
    taken from `work` than asked for; no tensor that one of them makes is to leave it. On a CPU they run one
    by one as they are asked for.

    >>> list(in_parallel((lambda n=n: n * n for n in range(4)), "cpu"))
    [0, 1, 4, 9]
    """
    if device is None or device == "cpu":
        yield from (task() for task in work)
        return
    _start(device)
    pool = ThreadPoolExecutor(AT_ONCE)
    own = threading.local()
    ahead: deque[Future[Result]] = deque()
    try:
        for task in work:
            ahead.append(pool.submit(_in_stream, own, task, device))
            if len(ahead) > AT_ONCE:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def in_one_thread() -> Iterator[None]:
    """In here linear algebra on the CPU uses one thread; not to be entered by two threads at a time.

    Of matrices with a few hundred rows every step is so short that threads mostly wait for each other, and they wait by
    computing: eigenvalues of a 200 x 200 matrix cost 20 times as much on 2 cores, and worse on 16; two runners on
    one machine took minutes for the spectra of a few hundred classes.
    """
    torch = sys.modules.get("torch")  # it has threads of its own
    before = torch.get_num_threads() if torch else 0
    with _libraries().limit(limits=1, user_api="blas"):
        try:
            if torch:
                torch.set_num_threads(1)
            yield
        finally:
            if torch:
                torch.set_num_threads(before)


@cache
def _libraries() -> Any:
    import scipy.linalg  # noqa: F401 (it has a library of its own, which must be there to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _start(device: str) -> None:
    """Loads the linear algebra of a GPU, which fails where two threads do it at the same moment."""
    import torch

    torch.linalg.cholesky(torch.ones(1, 1, device=device))


def _in_stream(own: Any, task: Callable[[], Result], device: str) -> Result:
    import torch

    if not hasattr(own, "stream"):
        own.stream = torch.cuda.Stream(device)
    # what it works with was made in the stream of whoever asks
    own.stream.wait_stream(torch.cuda.default_stream(device))
    with torch.cuda.stream(own.stream):
        return task()
