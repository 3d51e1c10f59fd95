"""The embedded data: characters in the twelve DejaVu faces that matplotlib ships. A class is a character.

Which characters: those that all twelve faces have, in the Unicode ranges of `FAMILIES`, letters of the five scripts
and symbols of the three symbol families, without

* characters with a Unicode decomposition (accented letters, ligatures, struck-out operators): made of others;
* symbols called HEAVY or SMALL: what differs from another symbol in weight or size alone cannot be told from it
  across light and bold faces drawn at different sizes;
* blanks and near-empty glyphs: less than `LEAST_INK` of the picture inked in the first face; combining marks
  are neither letters nor symbols;
* characters whose drawings coincide with an earlier one's (`coincide`): Latin A, Greek Alpha and Cyrillic A are one
  class, named by the first in code-point order, in whose family it stays.

Classes stand in code-point order; the default split trains on the first half and tests on the second, as CUB does.
With matplotlib 3.11's fonts `glyphs` has 545 classes and 13,080 images; on its default test half nearest raw pixels
reach Recall@1 0.17 and frozen EfficientNet-Lite0 features 0.30 (`oodml datasets show glyphs` measures both).

`glyphs-others` is for pretraining: all further characters of the twelve faces, so that a backbone may learn what
drawn characters look like without a class of `glyphs`. It has letters, digits, punctuation and symbols of every range,
accented letters too (which hold a plain one of `glyphs`), without those that coincide with a class of `glyphs` or with
each other, nor those that are another character in another weight or size: symbols called HEAVY or SMALL, superscripts
and subscripts. Every twentieth class is for testing. With the same fonts it has 1,233 classes and 29,592 images.
`glyphs-stix` has those of them that the four STIX faces also have, in these: neither a character nor a typeface of
`glyphs`, so that what is pretrained on it leaves more to be learnt: 386 classes and 9,264 images.

`glyphs-uneven` is `glyphs-union` with six drawings a face of the Latin letters, instead of two: its largest dataset has
17 times the training images of its smallest, as the eight datasets of UML differ.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmark.datasets import Counts, Dataset, _glyph_characters
from benchmark.datasets._glyph_drawing import RENDERER, SIDE, coverage, draw
from benchmark.datasets._glyph_outlines import FACES, STIX, fonts_hash, outline, shared_characters
from benchmark.datasets.index import DatasetIndex

FAMILIES: dict[str, tuple[tuple[int, int], ...]] = {
    "latin": ((0x0041, 0x024F),),
    "greek": ((0x0391, 0x03C9),),
    "cyrillic": ((0x0400, 0x045F),),
    "armenian": ((0x0531, 0x0556),),
    "georgian": ((0x10D0, 0x10F0),),
    "arrows": ((0x2190, 0x21AF),),
    "math": ((0x2200, 0x22FF),),
    "shapes": ((0x2500, 0x257F), (0x25A0, 0x25FF)),
}
"""The Unicode ranges of each family, both ends included."""
SYMBOLS = frozenset({"arrows", "math", "shapes"})
LEAST_INK = 0.015
TOLERANCE = 0.05
"""Two drawings coincide if they differ by at most this share of the ink of the heavier."""
MEMBERS = tuple(f"glyphs-{family}" for family in FAMILIES)
UNEVEN = ("glyphs-latin-many", *MEMBERS[1:])
DRAWINGS, MANY = 2, 6
MINI_CLASSES = 5
"""Classes of each family in `glyphs-mini`."""
RESIZED = ("<super>", "<sub>", "<font>", "<noBreak>")
"""Unicode decompositions of characters that are another one in another size or style."""
HELD_OUT = 20
"""Every so many-th class of `glyphs-others` is for testing."""
CLASSES = {
    "glyphs": (272, 273), "glyphs-mini": (20, 20), "glyphs-union": (270, 275), "glyphs-others": (1172, 61),
    "glyphs-latin": (80, 81), "glyphs-greek": (16, 16), "glyphs-cyrillic": (27, 28), "glyphs-armenian": (18, 19),
    "glyphs-georgian": (16, 17), "glyphs-arrows": (14, 15), "glyphs-math": (36, 36), "glyphs-shapes": (63, 63),
    "glyphs-latin-many": (80, 81), "glyphs-uneven": (270, 275), "glyphs-stix": (367, 19),
}
"""Training and test classes with matplotlib 3.11's fonts, so that listing the datasets compares no drawings."""


def coincide(first: int, second: int) -> bool:
    """Whether two characters are drawn alike in every face.

    Both are rendered upright at the same size with their ink boxes centred, a and b: in each of the twelve faces
    sum |a - b| <= TOLERANCE * max(sum a, sum b).

    >>> coincide(ord("A"), 0x0391), coincide(ord("O"), ord("Q"))
    (True, False)
    """
    return all(_alike(face, first, second) for face in FACES)


def _alike(face: str, first: int, second: int) -> bool:
    p, q = outline(face, first), outline(face, second)
    if p.shape == q.shape and np.array_equal(p - p[0, [0, 1, 0, 1]], q - q[0, [0, 1, 0, 1]]):
        return True  # the same polygon, elsewhere: centred, the same drawing
    a, b = _upright(face, first), _upright(face, second)
    return bool(np.abs(a - b).sum() <= TOLERANCE * max(a.sum(), b.sum()))


@lru_cache(maxsize=1024)
def _upright(face: str, code: int) -> np.ndarray:
    return coverage(outline(face, code))


def _candidates() -> Iterable[tuple[str, int]]:
    for family, ranges in FAMILIES.items():
        kinds = {"Sm", "So", "Sk"} if family in SYMBOLS else {"Lu", "Ll", "Lo"}
        for code in shared_characters():
            character = chr(code)
            if not any(low <= code <= high for low, high in ranges):
                continue
            if unicodedata.category(character) not in kinds or unicodedata.decomposition(character):
                continue
            if not _heavy_or_small(character):
                yield family, code


def _heavy_or_small(character: str) -> bool:
    """Whether a symbol's name says that it differs from another one in weight or size; letters may be SMALL."""
    return (unicodedata.category(character).startswith("S")
            and not {"HEAVY", "SMALL"}.isdisjoint(unicodedata.name(character).split()))


def _distinct(candidates: Iterable[int], known: Iterable[int] = ()) -> list[int]:
    """The candidates with enough ink that coincide with nothing known and with no earlier candidate."""
    codes = list(known)
    chosen: list[int] = []
    sums = np.array([_rows(code) for code in codes], np.int64).reshape(-1, SIDE)
    inks = sums.sum(axis=1)
    for code in candidates:
        rows = _rows(code)
        if rows.sum() < LEAST_INK * 4096 * SIDE * SIDE:
            continue
        # sum |a - b| is at least what the inks, and what the sums of rows, differ by: few pairs need a closer look.
        allowed = TOLERANCE * np.maximum(inks, rows.sum())
        similar = np.flatnonzero(np.abs(inks - rows.sum()) <= allowed)
        similar = similar[np.abs(sums[similar] - rows).sum(axis=1) <= allowed[similar]]
        if not any(coincide(codes[i], code) for i in similar):
            chosen.append(code)
            codes.append(code)
            sums, inks = np.concatenate([sums, rows[None]]), np.append(inks, rows.sum())
    return chosen


def _rows(code: int) -> np.ndarray:
    return _upright(FACES[0], code).sum(axis=1)


@cache
def characters() -> dict[str, tuple[int, ...]]:
    """The code points of the classes of `glyphs`, family by family, each in rising order."""
    known = (_glyph_characters.FONTS, _glyph_characters.RENDERER)
    return _glyph_characters.chosen() if (fonts_hash()[:16], RENDERER) == known else _compared()


def _compared() -> dict[str, tuple[int, ...]]:
    """`characters`, from the drawings."""
    families = {code: family for family, code in _candidates()}
    chosen = _distinct(families)
    return {family: tuple(code for code in chosen if families[code] == family) for family in FAMILIES}


@cache
def other_characters() -> tuple[int, ...]:
    """The code points of the classes of `glyphs-others` in rising order."""
    known = sorted(code for codes in characters().values() for code in codes)
    return tuple(_distinct((code for code in shared_characters() if code not in known and _further(chr(code))), known))


def _further(character: str) -> bool:
    """Whether a character may be a class of `glyphs-others`."""
    return (unicodedata.category(character)[0] in "LNPS" and not _heavy_or_small(character)
            and not unicodedata.decomposition(character).startswith(RESIZED))


@dataclass(frozen=True)
class Drawings:
    """Draws image i of an index: class by class, within a class face by face, within a face drawing by drawing."""

    codes: tuple[int, ...]
    drawings: int
    faces: tuple[str, ...] = FACES

    def drawing(self, i: int) -> tuple[str, int, int]:
        """Face, code point and drawing number of image i."""
        rest, drawing = divmod(i, self.drawings)
        position, face = divmod(rest, len(self.faces))
        return self.faces[face], self.codes[position], drawing

    def __call__(self, i: int) -> Image.Image:
        return Image.fromarray(draw(*self.drawing(i)))


def class_name(code: int) -> str:
    """The name of a character's class, fit for file names and CSV.

    >>> class_name(ord("A"))
    'U+0041'
    """
    return f"U+{code:04X}"


def _index(name: str, codes: tuple[int, ...], drawings: int = DRAWINGS, held_out: int | None = None,
           faces: tuple[str, ...] = FACES) -> DatasetIndex:
    """Tests on the second half of the classes, or on every `held_out`-th."""
    opener = Drawings(codes, drawings, faces)
    classes = tuple(class_name(code) for code in codes)
    per_class = len(faces) * drawings
    # Fonts and renderer are part of every image id: what they alter, no cache and no record takes for the same.
    stem = f"v{RENDERER}-{fonts_hash(faces)[:8]}"
    drawn = (opener.drawing(i) for i in range(len(codes) * per_class))
    test = classes[len(classes) // 2:] if held_out is None else classes[held_out - 1::held_out]
    return DatasetIndex(
        name=name,
        paths=tuple(f"{stem}/{class_name(code)}/{face}-{drawing}" for face, code, drawing in drawn),
        classes=classes,
        labels=np.repeat(np.arange(len(classes)), per_class),
        train_classes=tuple(name for name in classes if name not in test),
        test_classes=test,
        opener=opener,
    )


def _whole(_: Path) -> DatasetIndex:
    return _index("glyphs", tuple(sorted(code for codes in characters().values() for code in codes)))


def _mini(_: Path) -> DatasetIndex:
    spread = [codes[i * len(codes) // MINI_CLASSES] for codes in characters().values() for i in range(MINI_CLASSES)]
    return _index("glyphs-mini", tuple(sorted(spread)), drawings=1)


def _others(_: Path) -> DatasetIndex:
    return _index("glyphs-others", other_characters(), held_out=HELD_OUT)


def _stix(_: Path) -> DatasetIndex:
    there = set(shared_characters(STIX))
    return _index("glyphs-stix", tuple(code for code in other_characters() if code in there), MANY, HELD_OUT, STIX)


def _latin_many(_: Path) -> DatasetIndex:
    return _index("glyphs-latin-many", characters()["latin"], MANY)


def _family(family: str, _: Path) -> DatasetIndex:
    return _index(f"glyphs-{family}", characters()[family])


def _union(name: str, members: tuple[str, ...], data: Path) -> DatasetIndex:
    from benchmark.datasets.union import read_named

    return read_named(name, members, data)


def _dataset(name: str, title: str, read: Callable[[Path], DatasetIndex], drawings: int = DRAWINGS,
             **facts: Any) -> Dataset:
    train, test = CLASSES[name]
    images = len(FACES) * drawings
    return Dataset(name, title, read, _SOURCE, embedded=True, **{
        "protocol": "demo", "counts": Counts(train * images, train, test * images, test), **facts})


def _uneven_counts() -> Counts:
    sides = [(train * n, train, test * n, test) for name in UNEVEN for train, test in [CLASSES[name]]
             for n in [len(FACES) * (MANY if name == "glyphs-latin-many" else DRAWINGS)]]
    return Counts(*(sum(column) for column in zip(*sides)))


_SOURCE = "drawn from the DejaVu fonts that matplotlib ships (Bitstream Vera licence); nothing is downloaded"
DATASETS = (
    _dataset("glyphs", "drawn letters and symbols", _whole),
    _dataset("glyphs-mini", "five characters of each family, one drawing a face: for tests", _mini, drawings=1),
    *(_dataset(f"glyphs-{family}", f"the {family} of glyphs" if family in SYMBOLS else f"the {family.title()} letters "
               "of glyphs", partial(_family, family)) for family in FAMILIES),
    _dataset("glyphs-latin-many", "the Latin letters of glyphs, six drawings a face", _latin_many, drawings=MANY),
    _dataset("glyphs-union", "eight datasets of drawn letters and symbols",
             partial(_union, "glyphs-union", MEMBERS), members=MEMBERS),
    _dataset("glyphs-uneven", "eight datasets of drawn letters and symbols, the largest 17 times the smallest",
             partial(_union, "glyphs-uneven", UNEVEN), members=UNEVEN, counts=_uneven_counts()),
    _dataset("glyphs-others", "characters that are not in glyphs, to pretrain a backbone on", _others,
             protocol="pretrain", ladder=False),
    _dataset("glyphs-stix", "characters and typefaces that are not in glyphs, to pretrain a backbone on", _stix,
             protocol="pretrain", ladder=False),  # six drawings of four faces are as many as two of twelve
)
