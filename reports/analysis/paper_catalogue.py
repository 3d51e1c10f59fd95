"""Every table and figure of the four papers, one file a paper in `data/papers/`, in the paper's own order."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAPERS = ("oodml", "revisiting", "crt", "uml")
RELEASED = "released"
"""What single methods' own papers print; and the protocol that has their recipes."""


@dataclass(frozen=True)
class Item:
    """A table or figure: where its numbers are, and where it is shown or what makes it if no study does."""

    paper: str
    name: str
    section: str
    title: str
    file: str = ""
    """The CSV in `data/published/` with what is printed; none for what has no numbers or is not transcribed."""
    where: dict[str, Any] = field(default_factory=dict)
    """The rows of the file: column -> the value or values that it has there."""
    page: str = ""
    """The page of the site that shows it."""
    command: str = ""
    """What makes it, if no study does."""
    note: str = ""
    """Why there are no numbers, or what differs here."""

    @property
    def key(self) -> str:
        """The name by which a study says that it fills the item."""
        return f"{self.paper}: {self.name}"


@dataclass(frozen=True)
class Catalogue:
    """The items of one paper, and the backbone of its tables where they name no other."""

    paper: str
    backbone: str
    note: str
    items: tuple[Item, ...]
    epoch: str = "last"
    """The epoch whose scores its tables print; `best-test` chooses by the test set."""


@cache
def load(paper: str) -> Catalogue:
    """The catalogue of a paper.

    >>> load("crt").items[3].key, load("crt").items[3].file
    ('crt: Table 1', 'crt_structure')
    """
    text = resources.files("reports").joinpath(f"data/papers/{paper}.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    return Catalogue(paper, content["backbone"], content["note"],
                     tuple(Item(paper, **item) for item in content.get("item", ())),
                     content.get("epoch", "last"))


def item_keys() -> list[str]:
    """All items of all papers, as `PAPER: Table N`."""
    return [item.key for paper in PAPERS for item in load(paper).items]
