"""Formulas as docstrings write them, `L = 1/b sum_{(a,p,n)} [d_ap - d_an + gamma]_+`, as MathML for the pages.

Browsers draw MathML themselves, so the pages need no script and no network.

    name_x, name_{...}, name^x     subscript and superscript; sum, max, min and mean carry theirs below
    phi, lambda, ...               Greek letters; other words of several letters stay upright
    phi*, z', m+                   a mark directly behind a name
    in, not in, !=, <=, <-, ~, .   the usual signs; `r x D` between braces is a product
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

GREEK = {name: chr(code) for name, code in {
    "alpha": 0x3B1, "beta": 0x3B2, "gamma": 0x3B3, "delta": 0x3B4, "epsilon": 0x3B5, "theta": 0x3B8, "lambda": 0x3BB,
    "mu": 0x3BC, "nu": 0x3BD, "pi": 0x3C0, "rho": 0x3C1, "sigma": 0x3C3, "tau": 0x3C4, "phi": 0x3C6, "psi": 0x3C8,
    "Gamma": 0x393, "Sigma": 0x3A3,
}.items()}
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "<-": "←", "->": "→", "~": "∼", ".": "·", "-": "−", "*": "∗"}
BELOW = {"sum", "max", "min", "mean"}
TOKEN = re.compile(r"(?P<space>\s+)|(?P<word>[A-Za-z]+)|(?P<number>\d+(?:\.\d+)?)|(?P<sign><=|>=|!=|<-|->|.)", re.S)
SCRIPT = re.compile(r"[A-Za-z0-9]+(?:,[A-Za-z0-9]+)*|-[A-Za-z0-9]+|[+-]")


def mathml(text: str) -> str:
    """The formula as a MathML element, with the text itself for readers that do not see it.

    >>> print(mathml("d_ap"))
    <math display="block" alttext="d_ap"><mrow><msub><mi>d</mi><mi mathvariant="italic">ap</mi></msub></mrow></math>
    """
    return f'<math display="block" alttext="{escape(" ".join(text.split()))}">{_row(text)}</math>'


def _row(text: str, inner: bool = False) -> str:
    parts: list[str] = []
    before = ""
    for atom, space in _atoms(text, inner):
        if space > 2:
            parts.append('<mspace width="2em"/>')
        elif space and before not in ("", "<mo>") and atom[:4] != "<mo>":
            parts.append('<mspace width="0.3em"/>')
        parts.append(atom)
        before = atom[:4]
    return f"<mrow>{''.join(parts)}</mrow>"


def _atoms(text: str, inner: bool) -> Iterator[tuple[str, int]]:
    """Each name or sign with its scripts, and how many spaces stood before it."""
    text = re.sub(r"(?<!as) in\b", " ∈", re.sub(r"\bnot in\b", "∉", text))
    if inner:
        text = re.sub(r"(?<=\w) x (?=\w)", " × ", text)
    place = space = 0
    while place < len(text):
        found = TOKEN.match(text, place)
        assert found is not None
        place = found.end()
        if found["space"]:
            space = len(found[0])
            continue
        if found["sign"] == "{":  # a set; groups of scripts are read below
            yield "<mo>{</mo>", space
            space = 0
            continue
        base = _symbol(found)
        below, above, place = _scripts(text, place, bool(found["word"]))
        yield _with_scripts(base, below, above, found[0] in BELOW), space
        space = 0


def _symbol(found: re.Match[str]) -> str:
    if found["number"]:
        return f"<mn>{found[0]}</mn>"
    if found["word"] == "sum":
        return "<mo>∑</mo>"
    if found["word"]:
        return f"<mi>{GREEK.get(found[0], found[0])}</mi>"
    fence = ' stretchy="false" lspace="0" rspace="0"' if found[0] in "|[]()'" else ""
    return f"<mo{fence}>{escape(SIGNS.get(found[0], found[0]))}</mo>"


def _scripts(text: str, place: int, name: bool) -> tuple[str, str, int]:
    """What stands below and above a symbol that ends at `place`, and where that ends."""
    below = above = ""
    if name and (mark := re.compile(r"[*']+|[+-](?=[\s,)|}\]]|$)").match(text, place)):
        above, place = _mark(mark[0]), mark.end()
    while place + 1 < len(text) and text[place] in "_^":
        where, place = text[place], place + 1
        if text[place] in "{(":
            end = _closing(text, place)
            group = text[place + 1:end] if text[place] == "{" else text[place:end + 1]
            made, place = _row(group, inner=True), end + 1
        else:
            short = SCRIPT.match(text, place)
            if short is None:
                break
            made, place = _short(short[0]), short.end()
        if where == "_":
            below = made
        else:
            above += made
        if (prime := re.compile(r"'+").match(text, place)) is not None:
            above, place = above + _mark(prime[0]), prime.end()
    return below, f"<mrow>{above}</mrow>" if above.count("<m") > 1 else above, place


def _mark(text: str) -> str:
    return f"<mo>{text.replace(chr(39), '′').replace('*', '∗').replace('-', '−')}</mo>"


def _short(text: str) -> str:
    if text in GREEK:
        return f"<mi>{GREEK[text]}</mi>"
    if text in "+-":
        return _mark(text)
    if text[0] == "-":
        return f"<mrow><mo>−</mo>{_short(text[1:])}</mrow>"
    return f"<mn>{text}</mn>" if text.isdigit() else f'<mi mathvariant="italic">{text}</mi>'


def _closing(text: str, start: int) -> int:
    """Where the bracket that opens at `start` closes."""
    pair, depth = {"{": "{}", "(": "()"}[text[start]], 0
    for place in range(start, len(text)):
        depth += (text[place] == pair[0]) - (text[place] == pair[1])
        if depth == 0:
            return place
    raise ValueError(f"a bracket is not closed: {text}")


def _with_scripts(base: str, below: str, above: str, limits: bool) -> str:
    over, under = ("munderover", "munder") if limits else ("msubsup", "msub")
    if below and above:
        return f"<{over}>{base}{below}{above}</{over}>"
    return f"<{under}>{base}{below}</{under}>" if below else f"<msup>{base}{above}</msup>" if above else base
