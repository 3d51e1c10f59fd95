"""Annotation files of MATLAB: read as scipy reads them, and refused where they are damaged."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from benchmark.datasets import matlab
from benchmark.datasets.reading import mat
from benchmark.utils.errors import UserError
from tests.mutator import damaged_bytes

KIND = [("relative_im_path", object), ("class", object), ("box", object)]
CONTENT: dict[str, Any] = {
    "annotations": np.array([("ims/1.jpg", 1, np.eye(2)), ("ims/ä.jpg", 300, 0.5), ("x", -2, [])], KIND),
    "names": np.array(["Ram C/V", "Überwagen", "x"], object), "labels": np.arange(7.0), "one": 5, "word": "text",
    "table": np.arange(6, dtype=np.uint16).reshape(2, 3), "bytes": np.array([200, 3], np.uint8)}


def plain(value: Any) -> Any:
    """Nested lists of numbers and texts, as far as two readers must agree."""
    value = np.asarray(value)
    if value.dtype.names:
        return {name: plain(value[name]) for name in value.dtype.names}
    return [plain(one) for one in value] if value.dtype == object and value.ndim else value.tolist()


@pytest.fixture(params=[False, True], ids=["plain", "compressed"])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    savemat(tmp_path / "annotations.mat", CONTENT, do_compression=request.param)
    return tmp_path / "annotations.mat"


def test_everything_is_read_as_scipy_reads_it(file: Path) -> None:
    expected = loadmat(file, squeeze_me=True)
    found = matlab.load(file, set(CONTENT))
    assert set(found) == set(CONTENT)
    for name, value in found.items():
        assert plain(value) == plain(expected[name]), name
    assert set(matlab.load(file, {"labels", "absent"})) == {"labels"}


def test_the_other_byte_order(tmp_path: Path) -> None:
    """Made by hand: 1 x 3 numbers, big-endian."""
    inner = struct.pack(">IIII", 6, 8, 6, 0) + struct.pack(">IIii", 5, 8, 1, 3) + struct.pack(">HH4s", 2, 1, b"ab\0\0")
    inner += struct.pack(">IIddd", 9, 24, 1.0, 2.0, 3.5)
    path = tmp_path / "big.mat"
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\1\0MI" + struct.pack(">II", 14, len(inner)) + inner)
    assert matlab.load(path, {"ab"})["ab"].tolist() == [1.0, 2.0, 3.5]


def test_damage_is_one_line_and_never_the_end_of_the_process(tmp_path: Path) -> None:
    """Of files damaged like these, one in seventy ended the process when scipy read it."""
    savemat(tmp_path / "sound.mat", CONTENT)
    raw, path = (tmp_path / "sound.mat").read_bytes(), tmp_path / "damaged.mat"
    refused = 0
    for seed in range(1500):
        path.write_bytes(damaged_bytes(raw, random.Random(seed)))
        try:
            matlab.load(path, set(CONTENT))
        except ValueError as error:
            refused += "\n" not in str(error)
    assert refused > 1000
    path.write_bytes(raw[:300])
    with pytest.raises(UserError, match=r"damaged.mat cannot be read as a MATLAB file .*; unpack it again"):
        mat(path, "annotations", name="cars")


def test_what_is_not_of_this_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "new.mat"
    for head, why in ((b"\x89HDF\r\n\x1a\n", "MATLAB 7.3"), (b"", "header"), (b"x" * 200, "header")):
        path.write_bytes(head)
        with pytest.raises(ValueError, match=why):
            matlab.load(path, {"a"})
    bomb = struct.pack("<II", 15, 40) + bytes(40)
    path.write_bytes(b"MATLAB 5.0".ljust(124) + b"\0\1IM" + bomb)
    with pytest.raises(ValueError, match="compressed bytes are damaged"):
        matlab.load(path, {"a"})
