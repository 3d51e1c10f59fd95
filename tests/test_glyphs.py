"""The embedded dataset: which characters, which images, and that every machine draws the same bytes."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from scipy.spatial.distance import cdist

from benchmark import datasets
from benchmark.datasets import _glyph_drawing as drawing
from benchmark.datasets import _glyph_outlines as outlines
from benchmark.datasets import glyphs
from benchmark.overview.baseline import raw_pixel_recall

FONTS = "52a1bbe8790bfe496387502fddfeeb3fef399f91db578cc9912c8a5cb76c37fc"
GOLDEN = {
    ("DejaVuSans", "A", 0): "5aa611b617d0517f00217cfae605ee5e5f71aa9fab125c3786236bda8131e95e",
    ("DejaVuSerif-BoldItalic", "Ж", 1): "a77c195d9577778feb37e54c0e4f818f20fcd7905017015e1248b62fe4423fc8",
    ("DejaVuSansMono-Oblique", "∑", 0): "11f471364a1a2c78399e6307379f06ec2023ed8f383d22b0f62d227020866254",
    ("DejaVuSerif", "╬", 1): "87588e574e5c03ba08c073e3ee7bac13a00ac3bcf9c6fe992df93d2b2e5e4808",
}
SIZES = {"latin": 161, "greek": 32, "cyrillic": 55, "armenian": 37, "georgian": 33, "arrows": 29, "math": 72,
         "shapes": 126}
NOWHERE = Path("no-such-folder")


def same_fonts() -> None:
    if outlines.fonts_hash() != FONTS:
        pytest.skip(f"matplotlib ships other DejaVu files here ({outlines.fonts_hash()[:8]} instead of {FONTS[:8]})")


@pytest.fixture(scope="module")
def whole() -> datasets.DatasetIndex:
    return datasets.load("glyphs", NOWHERE)


@pytest.fixture(scope="module")
def mini() -> datasets.DatasetIndex:
    return datasets.load("glyphs-mini", NOWHERE)


@pytest.fixture(scope="module")
def others() -> datasets.DatasetIndex:
    return datasets.load("glyphs-others", NOWHERE)


def test_golden_images() -> None:
    same_fonts()
    computed = {key: hashlib.sha256(drawing.draw(key[0], ord(key[1]), key[2]).tobytes()).hexdigest() for key in GOLDEN}
    assert computed == GOLDEN


def test_another_process_draws_the_same_bytes_in_another_order(mini: datasets.DatasetIndex) -> None:
    chosen = range(0, len(mini), 37)
    script = ("import pickle, sys, hashlib\n"
              "index = pickle.load(sys.stdin.buffer)\n"
              f"for i in reversed({chosen!r}): print(hashlib.sha256(index.open(i).tobytes()).hexdigest())\n")
    out = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(mini), capture_output=True, check=True)
    here = [hashlib.sha256(mini.open(i).tobytes()).hexdigest() for i in reversed(chosen)]
    assert out.stdout.decode().split() == here
    assert len(set(here)) == len(here)


@pytest.mark.parametrize("face", ["DejaVuSans", "DejaVuSerif-BoldItalic", "DejaVuSansMono-Oblique", "STIXGeneral"])
@pytest.mark.parametrize("character", ["A", "g", "Ж", "Ø", "ƛ", "∑", "⊕", "◆"])
def test_the_filled_outline_is_what_freetype_draws(face: str, character: str) -> None:
    """Pillow's FreeType at sixteen times the size, averaged down, is the oracle."""
    edges = outlines.outline(face, ord(character))
    extent = np.ptp(edges.reshape(-1, 2), axis=0).max() * drawing.EM / outlines.UNITS_PER_EM
    em = 2000 / 2048 if face.startswith("STIX") else 1.0  # twice its 1,000 units
    size = 16 * drawing.EM * em * min(1.0, drawing.ROOM / extent)
    font = ImageFont.truetype(str(outlines.folder() / f"{face}.ttf"), round(size),
                              layout_engine=ImageFont.Layout.BASIC)
    large = Image.new("L", (1600, 1600))
    ImageDraw.Draw(large).text((300, 300), character, 255, font=font)
    left, top, right, bottom = large.getbbox()
    room = 16 * drawing.SIDE
    corner = ((room - right + left) // 2, (room - bottom + top) // 2)
    canvas = Image.new("L", (room, room))
    canvas.paste(large.crop((left, top, right, bottom)), corner)
    expected = np.asarray(canvas, float).reshape(drawing.SIDE, 16, drawing.SIDE, 16).mean(axis=(1, 3)) / 255
    computed = drawing.coverage(edges) / 4096
    assert np.abs(computed - expected).sum() < 0.06 * expected.sum()


def test_rotation_turns_counterclockwise_and_shift_moves_right_and_down() -> None:
    bar = outlines.outline("DejaVuSans", ord("|"))
    rows, columns = np.nonzero(drawing.coverage(bar, angle=30))
    assert columns[rows < 24].mean() < columns[rows > 40].mean(), "an upright bar turned to the left leans left on top"
    still, moved = (np.argwhere(drawing.coverage(bar, shift=shift)).mean(axis=0) for shift in ((0.0, 0.0), (4.0, 2.0)))
    assert moved - still == pytest.approx([2, 4], abs=0.3)


def test_characters_drawn_alike_are_one_class_named_by_the_first(whole: datasets.DatasetIndex) -> None:
    assert glyphs.coincide(ord("A"), ord("Α"))
    assert glyphs.coincide(ord("A"), ord("А"))
    assert "U+0041" in whole.classes
    assert not {"U+0391", "U+0410", "U+0430", "U+03BF"} & set(whole.classes)
    assert {"U+0393", "U+0416"} <= set(whole.classes), "Gamma and Zhe have no Latin twin"


def test_the_kept_list_is_what_comparing_the_drawings_gives() -> None:
    same_fonts()
    assert glyphs.characters() == glyphs._glyph_characters.chosen() == glyphs._compared()


def test_no_two_classes_coincide() -> None:
    """Every pair in one upright bold serif drawing by brute force; those alike there must differ in another face."""
    codes = [code for family in glyphs.characters().values() for code in family]
    drawn = np.stack([drawing.coverage(outlines.outline("DejaVuSerif-Bold", code)).ravel() for code in codes])
    ink = drawn.sum(axis=1)
    share = cdist(drawn, drawn, "cityblock") / np.maximum(ink[:, None], ink)
    pairs = [(codes[i], codes[j]) for i, j in np.argwhere(share <= 0.05) if i < j]
    assert [pair for pair in pairs if glyphs.coincide(*pair)] == []


def test_others_hold_no_class_of_glyphs_and_none_twice(whole: datasets.DatasetIndex,
                                                       others: datasets.DatasetIndex) -> None:
    """Every pair in one upright bold serif drawing, whose blocks of pixels differ at most as much as its pixels."""
    assert not set(whole.classes) & set(others.classes)
    codes = [int(name[2:], 16) for name in (*whole.classes, *others.classes)]
    drawn = np.stack([drawing.coverage(outlines.outline("DejaVuSerif-Bold", code)) for code in codes]).astype(float)
    ink = drawn.sum(axis=(1, 2))
    blocks = drawn.reshape(len(codes), 16, 4, 16, 4).sum(axis=(2, 4)).reshape(len(codes), -1)
    share = cdist(blocks, blocks, "cityblock") / np.maximum(ink[:, None], ink)
    pairs = [(i, j) for i, j in np.argwhere(share <= 0.05) if i < j and np.abs(drawn[i] - drawn[j]).sum()
             <= 0.05 * max(ink[i], ink[j])]
    assert [(codes[i], codes[j]) for i, j in pairs if glyphs.coincide(codes[i], codes[j])] == []


def test_others_are_for_pretraining(whole: datasets.DatasetIndex, others: datasets.DatasetIndex) -> None:
    names = set(others.classes)
    assert {"U+0030", "U+0040", "U+00C4", "U+1E02", "U+20AC"} <= names, "digits, signs and accented letters are there"
    assert not {"U+0391", "U+0410", "U+2126"} & names, "what is drawn as a class of glyphs is not"
    assert not {"U+00B2", "U+2081", "U+2501", "U+25AA"} & names, "nor what is another in weight or size"
    assert list(others.classes) == sorted(others.classes, key=lambda name: int(name[2:], 16))
    assert not set(others.train_classes) & set(others.test_classes)
    assert set(others.train_classes) | set(others.test_classes) == names
    assert 0.04 < len(others.test_classes) / len(names) < 0.06
    assert set(np.bincount(others.labels)) == {24}
    assert datasets.get("glyphs-others").embedded
    assert datasets.get("glyphs-others").protocol == "pretrain"
    same_fonts()
    assert (len(names), len(others)) == (1233, 29592)


def test_stix_shares_neither_characters_nor_typefaces_with_glyphs(whole: datasets.DatasetIndex,
                                                                  others: datasets.DatasetIndex) -> None:
    stix = datasets.load("glyphs-stix", NOWHERE)
    assert not set(stix.classes) & set(whole.classes)
    assert set(stix.classes) < set(others.classes)
    faces = {path.split("/")[2].rpartition("-")[0] for path in stix.paths}
    assert faces == set(outlines.STIX)
    assert not {path.split("/")[0] for path in stix.paths} & {path.split("/")[0] for path in whole.paths}
    assert np.asarray(stix.open(5)).std() > 10


def test_the_uneven_union_has_seventeen_latin_images_for_one_of_an_arrow() -> None:
    union, even = (datasets.load(f"glyphs-{name}", NOWHERE) for name in ("uneven", "union"))
    assert union.classes != even.classes
    train = np.isin(union.labels, [union.classes.index(name) for name in union.train_classes])
    assert union.domains is not None
    images = np.bincount(union.domains[train])
    assert images.max() / images.min() == pytest.approx(5760 / 336)
    assert images.max() / images.min() > 15


def test_families_are_disjoint_and_of_very_different_sizes() -> None:
    same_fonts()
    sizes = {family: len(codes) for family, codes in glyphs.characters().items()}
    assert sizes == SIZES
    assert max(sizes.values()) > 5 * min(sizes.values())
    everything = [code for codes in glyphs.characters().values() for code in codes]
    assert len(everything) == len(set(everything)) == 545


def test_index_of_all(whole: datasets.DatasetIndex) -> None:
    assert list(whole.classes) == sorted(whole.classes, key=lambda name: int(name[2:], 16))
    half = len(whole.classes) // 2
    assert whole.train_classes == whole.classes[:half]
    assert whole.test_classes == whole.classes[half:]
    assert len(set(whole.paths)) == len(whole.paths) == 24 * len(whole.classes)
    assert set(np.bincount(whole.labels)) == {24}
    for i in range(0, len(whole), 101):
        version, name, drawn = whole.paths[i].split("/")
        assert version == f"v{drawing.RENDERER}-{outlines.fonts_hash()[:8]}"
        assert name == whole.classes[whole.labels[i]]
        face, _, number = drawn.rpartition("-")
        expected = drawing.draw(face, int(name[2:], 16), int(number))
        assert np.array_equal(np.asarray(whole.open(i)), expected)


def test_mini_images_are_rgb_and_inked(mini: datasets.DatasetIndex) -> None:
    assert len(mini) == 480
    assert len(mini.classes) == 40
    for i in range(len(mini)):
        image = np.asarray(mini.open(i))
        assert image.shape == (64, 64, 3)
        assert image.dtype == np.uint8
        grey = image.astype(float).mean(axis=2)
        ground = np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]]))
        dark = (grey < ground - 50).sum()
        assert 20 < dark < 64 * 64 / 2, mini.paths[i]


def test_union_is_made_of_the_families() -> None:
    union = datasets.load("glyphs-union", NOWHERE)
    assert union.domain_names == tuple(f"glyphs-{family}" for family in glyphs.FAMILIES)
    start = 0
    for position, name in enumerate(union.domain_names):
        family = datasets.load(name, NOWHERE)
        here = np.flatnonzero(union.domains == position)
        assert np.array_equal(here, np.arange(start, start + len(family)))
        assert [union.classes[label] for label in union.labels[here]] == [
            f"{name}/{family.classes[label]}" for label in family.labels]
        assert len(family.test_classes) - len(family.train_classes) in (0, 1)
        middle = start + len(family) // 2
        assert union.open(middle).tobytes() == family.open(middle - start).tobytes()
        start += len(family)
    assert start == len(union)


@pytest.mark.parametrize("name", glyphs.CLASSES)
def test_counts_are_known_without_reading(name: str) -> None:
    same_fonts()
    index = datasets.load(name, NOWHERE)
    train = [index.classes[label] in set(index.train_classes) for label in index.labels]
    assert datasets.get(name).counts == datasets.Counts(sum(train), len(index.train_classes), len(train) - sum(train),
                                                        len(index.test_classes))


@pytest.mark.parametrize("name", ["glyphs", "glyphs-mini", "glyphs-union", *glyphs.MEMBERS])
def test_all_are_embedded_and_for_the_demo(name: str) -> None:
    dataset = datasets.get(name)
    assert dataset.embedded
    assert dataset.protocol == "demo"


def test_raw_pixel_recall_by_distances(mini: datasets.DatasetIndex) -> None:
    images = [np.asarray(mini.open(i))[::4, ::4] for i in range(len(mini))]
    test = [i for i in range(len(mini)) if mini.classes[mini.labels[i]] in mini.test_classes]
    pixels = np.stack([images[i].ravel() for i in test]).astype(float)
    far = cdist(pixels, pixels)
    np.fill_diagonal(far, np.inf)
    hits = mini.labels[test][far.argmin(axis=1)] == mini.labels[test]
    store = SimpleNamespace(image=images.__getitem__)
    assert raw_pixel_recall(mini, store) == pytest.approx(hits.mean())
    assert raw_pixel_recall(mini, store, queries=2) == pytest.approx(hits[[0, -1]].mean())
