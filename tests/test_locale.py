"""Locales of other encodings than UTF-8: tables are written all the same, and no name of a file is misread."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmark import cli, datasets
from benchmark.utils.errors import UserError
from benchmark.utils.terminal import Harmless


@pytest.mark.parametrize(("encoding", "shown"), [("latin-1", "- 2 ± 3 \\u4e00"), ("ascii", "- 2 +- 3 \\u4e00"),
                                                 ("utf-8", "− 2 ± 3 一")])
def test_what_a_terminal_cannot_have_is_spelt(encoding: str, shown: str) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, newline="")
    assert Harmless(stream).write("− 2 ± 3 一\n") == 10
    stream.flush()
    assert raw.getvalue().decode(encoding) == shown + "\n"


def test_names_that_the_locale_has_misread_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """As Latin-1 the same folder would be another dataset, and a sound path would be said not to be UTF-8."""
    for name in ("aé", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "images" / name / "1.png")
    assert datasets.load(f"folder:{tmp_path / 'images'}", tmp_path).classes == ("aé", "b")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    with pytest.raises(UserError, match=r"the name 'aé.*iso8859-1.*PYTHONUTF8=1"):
        datasets.load(f"folder:{tmp_path / 'images'}", tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["status", "--work", os.fspath(tmp_path / "é")])
    (line,) = capsys.readouterr().err.splitlines()
    assert "by this locale" in line
    assert "PYTHONUTF8=1" in line
