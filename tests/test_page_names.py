"""Pages of datasets whose names are in any script: readable files, each its own, and links that lead there."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote, unquote, urljoin
from urllib.request import urlopen

import pytest

from reports import records, site
from reports.analysis.results import Results
from reports.html.markup import LONGEST, slugs
from reports.storage.paths import is_plain
from tests.sample_records import make_record

NFD = unicodedata.normalize("NFD", "Vögel")
NAMES = ["鳥", "Vögel", NFD, "हिन्दी", "Straße", "STRASSE", "鳥" * 66]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for number, name in enumerate(NAMES):
        for method in ("margin", "frozen"):
            records.write(folder / "runs" / f"{number}-{method}", make_record(name, 1, method))
    frame, lost = records.scan(folder / "runs")
    return site.build(Results(frame), lost, folder / "site", url="https://example.org/board").parent


@pytest.fixture(scope="module")
def server(built: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *told: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    Thread(target=serving.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{serving.server_port}/"
    serving.shutdown()
    serving.server_close()


def test_every_dataset_has_a_page_with_its_name(built: Path) -> None:
    files = {path.stem for path in (built / "dataset").iterdir()}
    assert len(files) == len(NAMES)
    assert {"鳥", "हिन्दी"} <= files
    assert sum(name.startswith("Vögel-") for name in files) == 2, "one form of ö, told apart by a hash"
    assert {name.rpartition("-")[0] for name in files} >= {"Straße", "STRASSE"}


def test_files_fit_every_file_system(built: Path) -> None:
    files = [path.relative_to(built).as_posix() for path in built.rglob("*") if path.name != ".oodml-site.json"]
    assert all(is_plain(part) for file in files for part in file.split("/"))
    assert all(unicodedata.is_normalized("NFC", file) for file in files)
    assert len({file.casefold() for file in files}) == len(files)
    assert all(len(name.encode()) <= LONGEST + 7 for name in slugs(NAMES).values())
    assert not any("unnamed" in file for file in files)


def test_links_lead_to_pages_and_files_on_a_server_too(built: Path, server: str) -> None:
    addresses: set[str] = set()
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        place = quote(page.relative_to(built).as_posix())
        assert f'<link rel="canonical" href="https://example.org/board/{place}">' in text
        for link in re.findall(r' (?:href|src)="([^"]*)"', text):
            assert link.isascii(), (place, link)
            target, _, anchor = link.partition("#")
            if link.startswith(("https:", "data:")):
                continue
            there = (page.parent / unquote(target)).resolve() if target else page
            assert there.is_file(), (place, link)
            if anchor and "=" not in anchor:
                assert f'id="{unquote(anchor)}"' in there.read_text(encoding="utf-8"), (place, link)
            if "%" in target:
                addresses.add(urljoin(server + place, target))
    assert len(addresses) > 2 * len(NAMES)
    for address in sorted(addresses):
        assert urlopen(address).status == 200
