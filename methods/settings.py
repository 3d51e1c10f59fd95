"""The settings of methods: how one is declared, and the error of a choice that is none. Nothing here needs torch."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class MethodError(ValueError):
    """A mistake in the choice of a method or of its settings, worded for its user."""

    user_error = True


def near(name: str, options: Iterable[str]) -> str:
    """A hint at the names that were probably meant, ready to stand behind the wrong one; as `reports` has it.

    >>> near("margn", ["margin", "arcface"])
    " (did you mean 'margin'?)"
    """
    def bare(text: str) -> str:
        return re.sub("[-_ ]", "", text.lower())

    alike = {option: difflib.SequenceMatcher(None, bare(name), bare(option)).ratio() for option in options}
    ranked = sorted((option for option in alike if alike[option] >= 0.5), key=lambda option: -alike[option])[:3]
    # others beside the nearest only where they are about as near
    meant = [option for option in ranked if alike[option] >= max(0.7, alike[ranked[0]] - 0.1)] or ranked[:1]
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""


def setting(default: Any, source: str, *, later: bool = False, search: tuple[float, float] | list[Any] | None = None,
            **per_dataset: Any) -> Any:
    """One hyper-parameter: its default, where that comes from, and the values of datasets that differ.

    What differs under a protocol stands in the protocol's file, `[settings.NAME]`. A switch that a published method
    gets `later` does not count while it is at its default: runs from before it are the same runs.

    `search` is what `oodml tune` draws it from: `(low, high)`, log-uniform, in whole numbers if both are whole, or a
    list of choices.

    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     p: float = setting(0.2, "Revisiting DML, appendix", sop=0.15)
    >>> Settings().p, dataclasses.fields(Settings)[0].metadata["per_dataset"]
    (0.2, {'sop': 0.15})
    """
    if isinstance(search, list):
        fit = len(search) > 1
    else:
        fit = search is None or (isinstance(search, tuple) and len(search) == 2 and 0 < search[0] < search[1])
    if not fit:
        raise MethodError(f"search={search!r}: write (low, high) with 0 < low < high, or a list of two values or more")
    return dataclasses.field(default=default, metadata={"source": source, "per_dataset": per_dataset, "later": later,
                                                        "search": search})


@dataclass(frozen=True)
class NoSettings:
    """For a method without hyper-parameters."""
