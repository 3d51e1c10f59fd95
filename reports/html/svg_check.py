"""Which drawings of others may be published: an SVG that only draws, and loads nothing.

A browser runs what stands in an SVG where someone opens it by itself. So it is read as a browser reads it, as XML, and
has to keep to lists of what figures of matplotlib and of `reports.figures` are made of: what is not there is refused.
"""

from __future__ import annotations

import re
from typing import Any
from xml.parsers import expat

LARGEST, _DEEPEST = 1 << 24, 100
"""Bytes of a drawing, and how deep its elements are nested; ours have some hundred thousand, ten deep."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SVG, _XLINK, _XML = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http://www.w3.org/XML/1998/namespace"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_ABOUT = frozenset({_RDF, "http://creativecommons.org/ns#", "http://purl.org/dc/elements/1.1/"})
"""Namespaces of what matplotlib tells of a figure in its `metadata`; nothing of it is drawn or followed."""
_DOCTYPE = ("svg", "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd", "-//W3C//DTD SVG 1.1//EN", 0)
"""The one that matplotlib writes; browsers do not load it. The last number: it declares nothing itself."""
_ELEMENTS = frozenset(f"{_SVG} {name}" for name in _words(
    "svg g defs path circle ellipse rect line polyline polygon text tspan title desc metadata style use image marker "
    "clipPath pattern linearGradient radialGradient stop symbol"))
_ATTRIBUTES = _words(
    "id class style type version role lang x y x1 y1 x2 y2 cx cy r rx ry dx dy fx fy d points width height viewBox "
    "preserveAspectRatio transform overflow display visibility opacity color fill fill-opacity fill-rule stroke "
    "stroke-width stroke-opacity stroke-dasharray stroke-dashoffset stroke-linecap stroke-linejoin stroke-miterlimit "
    "paint-order vector-effect shape-rendering image-rendering text-rendering font-family font-size font-style "
    "font-weight font-stretch font-variant text-anchor text-decoration dominant-baseline alignment-baseline "
    "baseline-shift letter-spacing word-spacing textLength lengthAdjust rotate clip-path clip-rule clipPathUnits "
    "marker marker-start marker-mid marker-end markerUnits markerWidth markerHeight refX refY orient patternUnits "
    "patternContentUnits patternTransform gradientUnits gradientTransform offset stop-color stop-opacity")
_PLAIN = _words("id class role d points")
"""Attributes that no style is read from, as those of `data-` and `aria-`: a name may hold brackets."""
_PICTURE = re.compile(r"data:image/(?:png|jpeg);base64,[A-Za-z0-9+/=\s]*")
_WORD = re.compile(r"[\w-]*$")
_LONGEST = 20
"""Letters before a bracket that are looked at: more than any function here has."""
_OWN_URL = re.compile(r"""\(\s*(["']?)#[^"'()\\\s]+\1\s*\)""")
_FUNCTIONS = _words("rgb rgba hsl hsla var calc matrix translate translatex translatey rotate scale scalex scaley "
                    "skewx skewy")


class _Refused(Exception):
    pass


def fault(content: bytes) -> str:
    """Why an SVG may not be published; empty where it may.

    >>> fault(b'<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0" fill="url(#a)"/></svg>')
    ''
    >>> fault(b'<svg xmlns="http://www.w3.org/2000/svg"><script/></svg>')
    "it has the element 'script', which no figure needs"
    """
    if len(content) > LARGEST:
        return f"it has {len(content):,} bytes, more than {LARGEST:,}"
    if b"\0" in content:
        return "it is not in UTF-8"
    try:
        content.decode("utf-8")  # the parser would also take UTF-16
        _Reader().parser.Parse(content, True)
    except _Refused as refused:
        return str(refused)
    except (expat.ExpatError, ValueError) as error:
        return f"it is no XML in UTF-8 ({error})"
    return ""


class _Reader:
    """Looks at every part of a drawing as it is parsed; raises _Refused at the first that may not be there."""

    def __init__(self) -> None:
        # the encoding is set here, not taken from the file: what a browser reads as another one is refused
        self.parser: Any = expat.ParserCreate("utf-8", namespace_separator=" ")
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self._declaration
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self.parser.SkippedEntityHandler = self._entity
        self.parser.ProcessingInstructionHandler = self._instruction
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.path: list[str] = []
        self.rules: list[str] = []

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() != "utf-8":
            raise _Refused(f"it says that it is in {encoding[:40]!r}, not UTF-8")

    def _doctype(self, *doctype: Any) -> None:
        if doctype != _DOCTYPE:
            raise _Refused("it has a DOCTYPE other than that of SVG 1.1")

    def _entity(self, *_: Any) -> None:
        raise _Refused("it has an entity of its own")

    def _instruction(self, target: str, data: str) -> None:
        raise _Refused(f"it has the processing instruction {target[:40]!r}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, local = name.rpartition(" ")
        told = space in _ABOUT and f"{_SVG} metadata" in self.path
        if not (told or name in _ELEMENTS) or (not self.path and name != f"{_SVG} svg"):
            raise _Refused(f"it has the element {local[:40]!r}, which no figure needs")
        self.path.append(name)
        if len(self.path) > _DEEPEST:
            raise _Refused(f"its elements are nested more than {_DEEPEST} deep")
        for key, value in attributes.items():
            if not (told and key.startswith(f"{_RDF} ")):
                _attribute(local, key, value)

    def _end(self, name: str) -> None:
        self.path.pop()
        if name == f"{_SVG} style":
            _style("".join(self.rules))
            self.rules = []

    def _text(self, text: str) -> None:
        if f"{_SVG} style" in self.path:
            self.rules.append(text)


def _attribute(element: str, key: str, value: str) -> None:
    space, _, local = key.rpartition(" ")
    if local == "href" and space in ("", _XLINK):
        inside = value.startswith("#") and element in ("use", "linearGradient", "radialGradient", "pattern")
        if not inside and not (element == "image" and _PICTURE.fullmatch(value)):
            raise _Refused(f"it has a link to {value[:60]!r} in {element!r}")
    elif (space, local) == (_XML, "space") or (not space and (key in _PLAIN or key.startswith(("data-", "aria-")))):
        return
    elif key not in _ATTRIBUTES:
        raise _Refused(f"it has the attribute {local[:40]!r} in {element!r}, which no figure needs")
    else:
        _style(value)


def _style(text: str) -> None:
    """Refuses a style that could load something: only what lies in the drawing itself is named, and by plain signs."""
    if "\\" in text or "@" in text:  # an escape hides a word from us, and each rule with @ may load another file
        raise _Refused(f"it has a style with \\ or @: {text[:60]!r}")
    place = text.find("(")
    while place >= 0:
        name = _WORD.findall(text[max(0, place - _LONGEST):place])[0].lower()
        if not (_OWN_URL.match(text, place) if name == "url" else name in _FUNCTIONS):
            raise _Refused(f"it has a style with {(name + text[place:])[:60]!r}")
        place = text.find("(", place + 1)
