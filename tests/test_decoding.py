"""How images are decoded: as torchvision does it, and rightly where a file is odd."""

from __future__ import annotations

import io
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data.contents import contents
from benchmark.data.loader import Loader
from benchmark.data.store import kept, open_store
from benchmark.data.transform import Transform
from benchmark.overview.faults import look_at
from benchmark.utils.errors import UserError
from tests.pictures import index_of, picture


def test_pixels_are_those_of_torchvision_resize(photos: Path, tmp_path: Path) -> None:
    from torchvision import transforms as T

    index = index_of(photos)
    store = open_store(index, tmp_path / "cache", progress=False)
    assert len(store) == len(index)
    for i, path in enumerate(index.paths):
        original = Image.open(photos / path).convert("RGB")
        expected = T.Resize(256)(original) if min(original.size) > 256 else original
        np.testing.assert_array_equal(store.image(i), np.asarray(expected))
        assert tuple(store.originals[i]) == (original.height, original.width)
    assert store.nbytes == sum(store.image(i).size for i in range(len(store)))
    store.verify()


def test_a_protocol_that_resizes_to_more_has_larger_images(photos: Path, tmp_path: Path) -> None:
    from torchvision import transforms as T

    index, cache = index_of(photos), tmp_path / "cache"
    usual, large = (open_store(index, cache, shorter=shorter, progress=False) for shorter in (64, 288))
    assert usual.folder == open_store(index, cache, progress=False).folder != large.folder
    assert large.folder == open_store(index, cache, shorter=288, progress=False).folder
    for i, path in enumerate(index.paths):
        original = Image.open(photos / path).convert("RGB")
        expected = T.Resize(288)(original) if min(original.size) > 288 else original
        np.testing.assert_array_equal(large.image(i), np.asarray(expected))
    assert sorted(map(min, large.sizes.tolist())) == [64, 100, 256, 257, 288, 288]
    assert kept(index, cache).folder == usual.folder  # type: ignore[union-attr]
    shutil.rmtree(usual.folder)
    assert kept(index, cache) is None
    assert contents(index, cache) == large.contents


def test_evaluation_at_288_pixels_is_that_of_torchvision(photos: Path, tmp_path: Path) -> None:
    from torchvision import transforms as T

    index = index_of(photos)
    store = open_store(index, tmp_path, shorter=288, progress=False)
    loader = Loader(store, Transform.named("big", resize=288))
    found = loader.evaluate(torch.arange(len(index)))
    rule = T.Compose([T.Resize(288), T.CenterCrop(256), T.ToTensor(),
                      T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
    for i, path in enumerate(index.paths):
        original = Image.open(photos / path).convert("RGB")
        if min(original.size) > 288:  # smaller ones are enlarged by another library
            torch.testing.assert_close(found[i], rule(original), atol=0.02, rtol=0)


def test_odd_modes_and_orientation(tmp_path: Path) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    base = picture(np.random.default_rng(1), 40, 60)
    for mode in ("L", "1", "LA", "RGBA", "P"):
        base.convert(mode).save(root / f"{mode}.png")
    base.convert("CMYK").save(root / "cmyk.jpg")
    turned = Image.Exif()
    turned[0x0112] = 6
    base.save(root / "turned.jpg", exif=turned)
    index = index_of(root)
    store = open_store(index, tmp_path / "cache", progress=False)
    for i, path in enumerate(index.paths):
        if path == "turned.jpg":
            # Orientation 6: the camera was turned, rows of the file run down the right side.
            expected = np.rot90(np.asarray(Image.open(root / path)), -1)
        else:
            expected = np.asarray(Image.open(root / path).convert("RGB"))
        np.testing.assert_array_equal(store.image(i), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_odd_facts_beside_the_orientation_do_no_harm(tmp_path: Path, orientation: int) -> None:
    """A camera wrote the unit of its resolution as a text, which Pillow reads but cannot write again."""
    seen = np.asarray(picture(np.random.default_rng(1), 40, 60))
    # how the pixels lie in the file for each orientation, by the EXIF standard: where row 0 and column 0 are
    lies = {1: seen, 2: seen[:, ::-1], 3: seen[::-1, ::-1], 4: seen[::-1], 5: seen.transpose(1, 0, 2),
            6: np.rot90(seen), 7: seen[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(seen, -1)}[orientation]
    exif = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 2) + struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0) \
        + struct.pack(">HHI4s", 0x0128, 2, 2, b"2") + bytes(4)
    content = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(lies)).save(content, "JPEG", quality=100, subsampling=0)
    raw = content.getvalue()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "a.jpg").write_bytes(raw[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + raw[2:])
    store = open_store(index_of(tmp_path / "odd"), tmp_path / "cache", progress=False)
    assert tuple(store.originals[0]) == seen.shape[:2]
    assert np.abs(store.image(0).astype(int) - seen).mean() < 1


def test_deep_grey_images_keep_their_brightness(tmp_path: Path) -> None:
    """16 bits in every guise that Pillow opens them in, one turned by EXIF; 8 bits in a wide mode stay as they are."""
    root = tmp_path / "deep"
    root.mkdir()
    grey = np.random.default_rng(2).integers(0, 256, (30, 40))
    deep = (257 * grey + np.random.default_rng(3).integers(-128, 129, grey.shape)).clip(0, 65535)
    turned = Image.Exif()
    turned[0x0112] = 6
    Image.fromarray(deep.astype(np.uint16)).save(root / "a.png")
    Image.fromarray(deep.astype(np.uint16)).save(root / "b.tif")
    Image.fromarray(deep.astype(np.int32)).save(root / "c.tif")
    (root / "d.pgm").write_bytes(b"P5 40 30 65535\n" + deep.astype(">u2").tobytes())
    Image.fromarray(grey.astype(np.int32)).save(root / "e.tif")
    (root / "f.tif").write_bytes(big_endian_tiff(deep))
    Image.fromarray(np.rot90(deep).astype(np.uint16)).save(root / "g.png", exif=turned)
    index = index_of(root)
    assert {index.open(i).mode for i in range(len(index))} == {"I", "I;16", "I;16B"}
    store = open_store(index, tmp_path / "cache", progress=False)
    for i in range(len(index)):
        np.testing.assert_array_equal(store.image(i), np.repeat(grey[:, :, None], 3, axis=2), err_msg=index.paths[i])


def big_endian_tiff(grey: np.ndarray) -> bytes:
    """One strip of 16 bits, most significant byte first."""
    height, width = grey.shape
    tags = {256: width, 257: height, 258: 16, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 2 * grey.size}
    entries = b"".join(struct.pack(">HHII", tag, 4, 1, value) for tag, value in tags.items())
    return (struct.pack(">2sHI", b"MM", 42, 8 + 2 * grey.size) + grey.astype(">u2").tobytes()
            + struct.pack(">H", len(tags)) + entries + bytes(4))


@pytest.mark.parametrize("values", [np.linspace(0, 1, 12), np.linspace(0, 255, 12), np.arange(12) - 3,
                                    70_000 * np.arange(12)])
def test_an_image_whose_white_is_not_known_is_named(tmp_path: Path, values: np.ndarray) -> None:
    root = tmp_path / "odd"
    root.mkdir()
    kind = np.float32 if values.dtype.kind == "f" else np.int32
    Image.fromarray(values.reshape(3, 4).astype(kind)).save(root / "odd.tif")
    index = index_of(root)
    with pytest.raises(UserError, match="save it as 8 bit") as caught:
        open_store(index, tmp_path / "cache", progress=False)
    assert str(root / "odd.tif") in str(caught.value)
    assert "original file back" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "save it as 8 bit" in look_at(index, 0).cause
