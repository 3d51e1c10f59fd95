"""Decoding once: the stored pixels, resuming, bad files and full disks."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark.data.decoding import CHUNK, killed_processes
from benchmark.data.store import ImageStore, open_store
from benchmark.datasets.index import DatasetIndex
from benchmark.overview.faults import examine
from benchmark.utils import files
from benchmark.utils.errors import UserError
from tests.pictures import Drawing, Fatal, drawn, index_of, prepare_slowly


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
    with pytest.raises(UserError, match="was killed"), killed_processes(index):
        raise BrokenPipeError  # as where it was killed before it could read what it shall do
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
