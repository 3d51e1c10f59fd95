"""Processes that the suite starts do not run the user's script again."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def own_children() -> Iterator[None]:
    """While it lasts, processes that are started import `oodml` where they would run the script that started them.

    A script without `if __name__ == "__main__":` would otherwise begin again in each of them. They need nothing of it.
    """
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main["__spec__"] = importlib.util.find_spec("oodml")
    main.pop("__file__", None)
    try:
        yield
    finally:
        main.update(before)
