"""How numbers and names are written for a reader: the same way in tables, on pages and in messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def duration(seconds: float) -> str:
    """Seconds in the unit a reader would choose.

    >>> duration(41.3), duration(190), duration(5400), duration(400_000)
    ('41 s', '3.2 min', '1.5 h', '4.6 d')
    """
    for size, unit in ((86400 * 2, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / (86400 if unit == 'd' else size):.1f} {unit}"
    return f"{seconds:.0f} s"


def minus(text: str) -> str:
    """A number with the sign that is a minus, where a hyphen stood.

    >>> minus("-0.5"), minus("+2"), minus("1e-05")
    ('−0.5', '+2', '1e−05')
    """
    return text.replace("-", "−")


def decimal(value: float, digits: int, signed: bool = False) -> str:
    """A number as tables and pages show it; one that rounds to zero is zero and has no sign.

    >>> decimal(-1.26, 1), decimal(-0.04, 1), decimal(0.04, 1, signed=True), decimal(2, 1, signed=True)
    ('−1.3', '0.0', '0.0', '+2.0')
    """
    rounded = round(value, digits) + 0.0  # -0.0 + 0.0 is 0.0
    return minus(f"{rounded:{'+' if signed and rounded else ''},.{digits}f}")


def probability(p: float) -> str:
    """A p-value as papers print it, with how it compares.

    >>> probability(0.0625), probability(7e-22)
    ('= 0.062', '< 0.0001')
    """
    return "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def byte_size(count: float) -> str:
    """Bytes in the unit a reader would choose, of a thousand each.

    >>> [byte_size(count) for count in (0, 1, 912, 21_540, 999_999, 3_400_000, 139e9, 2.5e12)]
    ['0 bytes', '1 byte', '912 bytes', '21.5 KB', '1 MB', '3.4 MB', '139 GB', '2.5 TB']
    """
    for unit in ("bytes", "KB", "MB", "GB"):
        if float(f"{count:.3g}") < 1000:
            return counted(round(count), "byte") if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def counted(count: int, one: str, several: str = "") -> str:
    """So many of something; `several` where the plural is more than another ending.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class"), counted(2, "gallery"), counted(3, "day")
    ('1 image', '1,200 images', '0 classes', '2 galleries', '3 days')
    >>> counted(1, "file has", "files have"), counted(2, "file has", "files have")
    ('1 file has', '2 files have')
    """
    if count == 1:
        return f"1 {one}"
    if not several:
        several = (f"{one[:-1]}ies" if re.search("[^aeiou]y$", one) else
                   f"{one}es" if re.search("(s|x|ch|sh)$", one) else f"{one}s")
    return f"{count:,} {several}"


def number(value: float) -> str:
    """A setting or a measure: exact where that takes a few digits, else to four of them.

    >>> number(1 / 6), number(1e-5), number(0.125), number(1200000.0), number(3), number(-0.0)
    ('0.1667', '1e-05', '0.125', '1200000', '3', '0')
    """
    exact = f"{value + 0:.7g}"
    return exact if float(exact) == value else f"{value:.4g}"


def distance(frd: float) -> str:
    """A Fréchet distance as axes and heads of columns write it.

    >>> distance(8.64), distance(99.96), distance(123.4)
    ('8.6', '100', '123')
    """
    return f"{frd:.0f}" if frd >= 99.95 else f"{frd:.1f}"


METRICS = {"recall": "Recall", "map": "mAP", "map@r": "MAP@R", "r-precision": "R-precision", "nmi": "NMI", "f1": "F1"}
"""What papers call them; MAP@R is Musgrave et al.'s."""


def metric_name(metric: str) -> str:
    """A metric as papers write it.

    >>> [metric_name(one) for one in ("recall@1", "map@1000_released", "map@r", "nmi", "accuracy")]
    ['Recall@1', 'mAP@1000, released code', 'MAP@R', 'NMI', 'accuracy']
    """
    name = metric.removesuffix("_released")
    kind, at, k = name.partition("@")
    return (METRICS.get(name) or METRICS.get(kind, kind) + at + k) + (", released code" if name != metric else "")


def near(name: str, options: Iterable[str]) -> str:
    """A hint at the names that were probably meant, ready to stand behind the wrong one.

    >>> near("glyph", ["glyphs", "cub"]), near("margi", ["margin", "margins", "cub"]), near("met", ["frozen"])
    (" (did you mean 'glyphs'?)", " (did you mean 'margin' or 'margins'?)", '')
    """
    def bare(text: str) -> str:
        return re.sub("[-_ ]", "", text.lower())

    alike = {option: difflib.SequenceMatcher(None, bare(name), bare(option)).ratio() for option in options}
    ranked = sorted((option for option in alike if alike[option] >= 0.5), key=lambda option: -alike[option])[:3]
    # others beside the nearest only where they are about as near
    meant = [option for option in ranked if alike[option] >= max(0.7, alike[ranked[0]] - 0.1)] or ranked[:1]
    return f" (did you mean {' or '.join(map(repr, meant))}?)" if meant else ""
