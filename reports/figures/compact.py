"""Drawings of matplotlib in less than half the bytes; what is seen stays the same."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_G, _DEFS, _PATH, _USE, _TEXT = (_SVG + tag for tag in ("g", "defs", "path", "use", "text"))
_HREF = f"{_XLINK}href"
_NAMED = re.compile(r"(?<=url\(#)[^)]*|(?<=^#).*")
_HANDED_DOWN = ("fill", "stroke", "font", "text-anchor")
"""What a group hands down to its parts, by its first letters."""
_SEVERAL = 3
"""Marks in a row that are worth a group or a path of their own."""


def compact(drawn: str, name: str) -> str:
    """An SVG with short paths, without groups and names that say nothing; marks that look alike share their looks.

    Names begin with `name`, so that several drawings can stand on a page. Coordinates are to a hundredth of a point,
    which is finer than any screen. A style element goes: `* {...}` would mean the whole page.

    >>> compact('<svg xmlns="http://www.w3.org/2000/svg"><g id="a"><path id="b" d="M 1.004 2 L 3 2"/></g></svg>', "x")
    '<svg xmlns="http://www.w3.org/2000/svg"><path d="M1 2H3" /></svg>'
    """
    ElementTree.register_namespace("", _SVG[1:-1])
    ElementTree.register_namespace("xlink", _XLINK[1:-1])
    root = ElementTree.fromstring(drawn)
    for element in root.iter():
        _tidy(element)
    _rename(root, name)
    _flatten(root)
    _draw_at_corners(root, name)
    _share_looks(root)
    return ElementTree.tostring(root, encoding="unicode")


def path(d: str) -> str:
    """A path in few characters: H and V for straight steps, one letter for several of a kind.

    >>> path("M 0.25 10.004 L 5 10 L 5 -2.5 L 7 -3 L 8 0 z")
    'M.25 10H5V-2.5L7-3 8 0z'
    """
    written, before, place = "", "", ["", ""]
    for letter, rest in re.findall(r"([A-Za-z])([^A-Za-z]*)", d):
        numbers = [_short(number) for number in rest.split()]
        told = numbers
        if letter == "L" and numbers[1] == place[1]:
            letter, told = "H", numbers[:1]
        elif letter == "L" and numbers[0] == place[0]:
            letter, told = "V", numbers[1:]
        written += f" {' '.join(told)}" if letter + before in ("LL", "LM", "CC") else letter + " ".join(told)
        before, place = letter, numbers[-2:] or ["", ""]
    return written.replace(" -", "-")


@cache
def _short(number: str) -> str:
    return re.sub(r"^(-?)0\.", r"\1.", f"{round(float(number), 2) + 0.0:.2f}".rstrip("0").rstrip("."))


def _tidy(element: Element) -> None:
    """No space between elements, and short attributes."""
    element.tail = None
    if element.tag != _TEXT:
        element.text = None
    for key, value in list(element.items()):
        if key == "d":
            element.set(key, path(value))
        elif key == "style":
            element.set(key, _written(_declared(value)))
        elif key in ("x", "y", "width", "height", "transform"):
            element.set(key, re.sub(r"-?\d+\.\d+", lambda number: _short(number[0]), value))
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]


def _declared(style: str) -> dict[str, str]:
    pairs = (each.partition(":") for each in style.split(";") if each.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _written(declared: dict[str, str]) -> str:
    return ";".join(f"{key}:{value}" for key, value in declared.items())


def _used(root: Element) -> set[str]:
    return {name for element in root.iter() for value in element.attrib.values() for name in _NAMED.findall(value)}


def _rename(root: Element, name: str) -> None:
    """Short names for what others refer to, none for the rest."""
    names = {old: f"{name}-{number}" for number, old in enumerate(sorted(_used(root)))}
    for element in root.iter():
        own = element.attrib.pop("id", "")
        for key, value in list(element.items()):
            element.set(key, _NAMED.sub(lambda found: names[found[0]], value))
        if own in names:
            element.set("id", names[own])


def _flatten(parent: Element) -> None:
    """Groups that say nothing give way to their parts, and what draws nothing goes."""
    kept: list[Element] = []
    for child in parent:
        _flatten(child)
        if child.tag == _G and not child.attrib:
            kept += child
            continue
        empty = child.tag in (_G, _DEFS) and not len(child)
        unseen = child.tag == _PATH and child.get("style") == "fill:none"
        if not empty and not unseen and child.tag != f"{_SVG}style":
            kept.append(child)
    parent[:] = kept


def _runs(parent: Element, key: Callable[[Element], Any]) -> list[tuple[Any, list[Element]]]:
    """The children that follow each other and have the same key, where these are several."""
    runs = [(one, list(marks)) for one, marks in itertools.groupby(parent, key)]
    return [(one, marks) for one, marks in runs if one is not None and len(marks) >= _SEVERAL]


def _replace(parent: Element, marks: list[Element], *others: Element) -> None:
    place = list(parent).index(marks[0])
    parent[place:place + len(marks)] = others


def _draw_at_corners(root: Element, name: str) -> None:
    """Marks of one shape in a row become one path, which draws the shape at each of its corners."""
    shapes = {element.get("id"): element for element in root.iter() if element.tag == _PATH}
    number = itertools.count()
    for parent in list(root.iter()):
        for looks, marks in _runs(parent, lambda mark: mark.attrib | {"x": "", "y": ""} if mark.tag == _USE else None):
            shape, own = shapes[looks[_HREF][1:]], f"{name}-m{next(number)}"
            marker = Element(f"{_SVG}marker", {"id": own, "overflow": "visible", "markerUnits": "userSpaceOnUse",
                                               "style": looks.get("style", "")})
            marker.append(Element(_PATH, {key: value for key, value in shape.items() if key != "id"}))
            corners = " ".join(f"{mark.get('x')} {mark.get('y')}" for mark in marks).replace(" -", "-")
            clip = {"clip-path": looks["clip-path"]} if "clip-path" in looks else {}
            line = Element(_PATH, {"d": f"M{corners}", "style": f"fill:none;marker:url(#{own})"} | clip)
            _replace(parent, marks, marker, line)
    used = _used(root)
    for parent in list(root.iter()):
        if parent.tag == _DEFS:
            parent[:] = [child for child in parent if child.get("id") in used]
    _flatten(root)


def _share_looks(root: Element) -> None:
    """Marks of one kind in a row get from a group what they have in common: how they look, and are clipped."""
    for parent in list(root.iter()):
        if parent.tag == _DEFS:
            continue
        for (_, clip), marks in _runs(parent, lambda mark: (mark.tag, mark.get("clip-path"))
                                      if mark.tag in (_PATH, _USE, _TEXT) else None):
            looks = [_declared(mark.get("style", "")) for mark in marks]
            shared = dict(set.intersection(*(set(look.items()) for look in looks)))
            shared = {key: shared[key] for key in looks[0] if key in shared and key.startswith(_HANDED_DOWN)}
            if not shared and not clip:
                continue
            group = Element(_G, {"clip-path": clip} if clip else {})
            if shared:
                group.set("style", _written(shared))
            _replace(parent, marks, group)
            for mark, look in zip(marks, looks):
                rest = {key: value for key, value in look.items() if key not in shared}
                mark.attrib = {key: value for key, value in mark.items() if key not in ("style", "clip-path")} | (
                    {"style": _written(rest)} if rest else {})
                group.append(mark)
