"""Processes that are started to share work end with the one that started them."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """In a process of a pool: ends it when its parent is gone, also by a kill; it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_after, args=(parent,), daemon=True, name="parent").start()


def _end_after(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)
