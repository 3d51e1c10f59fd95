"""Decoding once: the stored pixels, resuming, bad files and full disks."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import pickle
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data.augment import Transform
from benchmark.data.contents import contents
from benchmark.data.decoding import CHUNK
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, kept, open_store
from benchmark.datasets.index import DatasetIndex
from benchmark.overview.faults import examine, look_at
from benchmark.utils import files
from benchmark.utils.errors import UserError
from tests.pictures import Drawing, Fatal, drawn, index_of, picture, prepare_slowly


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    root = tmp_path / "photos"
    root.mkdir()
    for k, (height, width) in enumerate([(300, 451), (513, 290), (64, 64), (100, 700), (256, 256), (257, 1100)]):
        picture(rng, height, width).save(root / f"{k}.JPG", quality=92)
    return root


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


def test_second_call_decodes_nothing_and_store_pickles(photos: Path, tmp_path: Path) -> None:
    index = index_of(photos)
    first = open_store(index, tmp_path / "cache", progress=False)
    shutil.rmtree(photos)
    again = open_store(index, tmp_path / "cache", progress=False)
    for other in (again, pickle.loads(pickle.dumps(first)), ImageStore(first.folder)):
        assert other.hash == first.hash
        np.testing.assert_array_equal(other.image(3), first.image(3))


def test_number_of_processes_does_not_matter(tmp_path: Path) -> None:
    index = drawn(3 * CHUNK + 5)
    one = open_store(index, tmp_path / "one", jobs=1, progress=False)
    two = open_store(index, tmp_path / "two", jobs=2, progress=False)
    assert one.hash == two.hash
    assert (one.folder / "pixels.bin").read_bytes() == (two.folder / "pixels.bin").read_bytes()


def test_what_is_raised_between_chunks_ends_the_work_and_keeps_it(tmp_path: Path) -> None:
    index, calls = drawn(5 * CHUNK), iter([None, None, KeyError("told")])  # before the first chunk, and after each

    def between() -> None:
        if (error := next(calls)) is not None:
            raise error

    with pytest.raises(KeyError, match="told"):
        open_store(index, tmp_path, jobs=2, progress=False, between=between)
    part = next(tmp_path.glob("*-part"))
    assert (part / "pixels.part.journal").read_bytes().count(b"\n") == 2
    assert not list(part.glob("chunk-*"))
    (part / "chunk-512").write_bytes(b"left by a call that was killed")
    assert open_store(index, tmp_path, jobs=2, progress=False).hash == open_store(index, tmp_path / "b", jobs=1,
                                                                                  progress=False).hash
    assert not list(part.glob("chunk-*"))


def test_hash_follows_the_pixels(photos: Path, tmp_path: Path) -> None:
    index = index_of(photos)
    before = open_store(index, tmp_path / "a", progress=False).hash
    pixels = np.asarray(Image.open(photos / "2.JPG")).copy()
    Image.fromarray(255 - pixels).save(photos / "2.JPG")
    assert open_store(index, tmp_path / "b", progress=False).hash != before


def test_resumes_after_sigkill(tmp_path: Path) -> None:
    count = 4 * CHUNK + 9
    code = (f"from pathlib import Path\nfrom tests.pictures import prepare_slowly\n"
            f"prepare_slowly({count}, Path({str(tmp_path / 'cache')!r}))")
    child = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1])
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline and child.poll() is None:
        marks = list(tmp_path.glob("cache/*/*.journal"))
        if marks and marks[0].read_bytes().count(b"\n") >= 2:
            break
        time.sleep(0.005)
    child.send_signal(signal.SIGKILL)
    child.wait()
    part = next(tmp_path.glob("cache/*/pixels.part"))
    with part.open("ab") as half_written:
        half_written.write(b"torn")
    drawing = Drawing()
    resumed = open_store(drawn(count, drawing), tmp_path / "cache", jobs=1, progress=False)
    whole = open_store(drawn(count), tmp_path / "whole", jobs=1, progress=False)
    assert resumed.hash == whole.hash
    assert drawing.count <= count - 2 * CHUNK + 64
    resumed.verify()


def test_a_process_that_is_killed_is_told_and_what_is_decoded_is_kept(tmp_path: Path) -> None:
    index = drawn(4 * CHUNK, Fatal())
    for decode in (lambda: open_store(index, tmp_path, jobs=2, progress=False), lambda: examine(index, jobs=2)):
        with pytest.raises(UserError, match=r"of 'drawn' was killed, .* `oodml datasets prepare drawn --jobs 1`"):
            decode()
    assert not list(tmp_path.glob("*-part/chunk-*"))
    assert len(open_store(index, tmp_path, jobs=1, progress=False)) == 4 * CHUNK


def test_damaged_piece_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "grown"
    growing = files.GrowingFile(path)
    for piece in (b"one", b"two", b"three"):
        growing.append(piece)
    growing.close()
    damaged = bytearray(path.read_bytes())
    damaged[4] ^= 1
    path.write_bytes(damaged)
    again = files.GrowingFile(path)
    assert [p["end"] for p in again.pieces] == [3]
    again.append(b"two")
    again.finish(tmp_path / "final")
    assert (tmp_path / "final").read_bytes() == b"onetwo"
    assert [p.name for p in tmp_path.iterdir()] == ["final"]


def test_two_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=prepare_slowly, args=(200, tmp_path)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
        assert process.exitcode == 0
    store = open_store(drawn(200), tmp_path, progress=False)
    store.verify()
    assert store.hash == open_store(drawn(200), tmp_path / "alone", progress=False).hash


@pytest.mark.parametrize(("content", "why"), [(b"", "cannot identify"), (b"\xff\xd8\xff not a jpeg", "cannot identify"),
                                              (None, "no such file"), ("cut", "truncated")])
def test_bad_image_is_named(photos: Path, tmp_path: Path, content: bytes | str | None, why: str) -> None:
    index = index_of(photos)
    good = (photos / "3.JPG").read_bytes()
    if content is None:
        (photos / "3.JPG").unlink()
    else:
        (photos / "3.JPG").write_bytes(content if isinstance(content, bytes) else good[:len(good) // 2])
    with pytest.raises(UserError, match=why) as caught:
        open_store(index, tmp_path / "cache", progress=False)
    assert str(photos / "3.JPG") in str(caught.value)
    assert "oodml datasets check toy" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("cache/*/pixels.bin"))
    (photos / "3.JPG").write_bytes(good)
    open_store(index, tmp_path / "cache", progress=False).verify()


def test_an_image_that_is_too_large_is_told_so(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50_000)  # twice as many are refused
    with pytest.raises(UserError, match=r"0\.JPG: it has more pixels than Pillow opens; save it smaller"):
        open_store(index_of(photos), tmp_path / "cache", jobs=1, progress=False)


def test_empty_dataset(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images"):
        open_store(drawn(0), tmp_path)
    assert not list(tmp_path.iterdir())


def test_refuses_when_the_disk_is_too_small(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(UserError, match=r"needs about \d[\d.]* MB in .*, where 1 KB are free"):
        open_store(index_of(photos), tmp_path / "cache", progress=False)


def test_disk_fills_up_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = drawn(CHUNK + 1)
    appended = files.GrowingFile.append

    def full(self: files.GrowingFile, piece: bytes, *known: str, **facts: object) -> None:
        if self.pieces:
            with files.disk_errors(self.path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        appended(self, piece, *known, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(files.GrowingFile, "append", full)
        with pytest.raises(UserError, match="disk is full"):
            open_store(index, tmp_path, jobs=1, progress=False)
    open_store(index, tmp_path, jobs=1, progress=False).verify()


def test_damaged_store_is_refused(tmp_path: Path) -> None:
    store = open_store(drawn(3), tmp_path, progress=False)
    file = store.folder / "pixels.bin"
    content = bytearray(file.read_bytes())
    content[100] ^= 255
    file.write_bytes(content)
    with pytest.raises(UserError, match="have changed on disk"):
        ImageStore(store.folder).verify()
    content[100] ^= 255
    file.write_bytes(content)
    ImageStore(store.folder).verify()
    # the law of random crops would be another
    np.save(store.folder / "geometry.npy", store.geometry + np.array([0, 0, 1, 0]))
    with pytest.raises(UserError, match=r"sizes of the decoded images .* have changed on disk"):
        ImageStore(store.folder).verify()
    file.write_bytes(content[:-1])
    with pytest.raises(UserError, match="damaged"):
        ImageStore(store.folder)
    with pytest.raises(UserError, match="no decoded images"):
        ImageStore(tmp_path / "nowhere")


@pytest.mark.parametrize(("name", "content"), [("pixels.bin", b"cut"), ("geometry.npy", b""), ("store.json", b"{")])
def test_damaged_store_is_made_anew(name: str, content: bytes, tmp_path: Path) -> None:
    before = open_store(drawn(3), tmp_path, progress=False)
    (before.folder / name).write_bytes(content)
    with pytest.warns(UserWarning, match="are damaged, and are decoded anew"):
        after = open_store(drawn(3), tmp_path, progress=False)
    after.verify()
    assert after.hash == before.hash


def test_names_that_are_no_file_names(tmp_path: Path) -> None:
    index = DatasetIndex(**{**vars(drawn(2)), "name": "folder:/some/where else"})
    store = open_store(index, tmp_path, progress=False)
    assert store.folder.parent == tmp_path
    assert store.folder.name == f"images-folder_some_where_else-{index.hash[:8]}"


def test_who_waits_for_a_lock_says_for_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entered = threading.Event()

    def wait() -> None:
        with files.alone(tmp_path / "lock", "the features of cub"):
            entered.set()

    with files.alone(tmp_path / "lock", "the features of cub"):
        other = threading.Thread(target=wait)
        other.start()
        assert not entered.wait(1.5)
    assert entered.wait(5)
    other.join()
    assert capsys.readouterr().err == "waiting for another process, which makes the features of cub\n"
