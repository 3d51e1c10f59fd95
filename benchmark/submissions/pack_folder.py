"""What lies in the folder of a pack, looked at before any of it is believed: its files, pack.json, their hashes."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any

from benchmark.submissions import card as cards
from benchmark.submissions import pack
from benchmark.submissions.evaluate import EMBEDDINGS
from benchmark.submissions.pack import PACK, RE_EMBEDDED, RECOMPUTED
from benchmark.utils.errors import is_user_error
from benchmark.utils.files import sha256
from reports import records
from reports.safe_text import one_line
from reports.storage import packed, queries
from reports.storage.json_text import from_json

FILE = re.compile(r"([1-9][0-9]{0,3})-s(0|[1-9][0-9]{0,9})/(record\.json|queries\.npz|embeddings\.npy)")
"""One name for each split and seed: 1-s00 beside 1-s0 would hold a record that nobody checks."""
LARGEST = {PACK: 1 << 20, records.RECORD: 1 << 18, queries.NAME: 1 << 24, EMBEDDINGS: 1 << 31}
"""Bytes of each kind of file."""
MOST = 2000
"""Files of a pack."""
KEYS: dict[str, Any] = {"schema": int, "name": str, "ladder": dict, "level": str, "version": str, "date": str,
                        "card": dict, "files": dict}
"""The keys of pack.json, and of what kind each is."""


class Refused(Exception):
    """What is wrong with a pack, in one line."""


def facts(folder: Path, name: str) -> dict[str, Any]:
    """What pack.json says, once it is known to tell of just the files that are there."""
    there = _files(folder)
    told = _told(folder / PACK)
    _check(told, name)
    odd = [entry for entry in told["files"] if not FILE.fullmatch(entry)]
    if odd:
        raise Refused(f"{PACK} lists '{odd[0]}', which does not lie in the pack")
    listed = {PACK, *told["files"]}
    if listed != there:
        unlike = sorted(listed ^ there)[0]
        raise Refused(f"'{unlike}' is {'listed but not there' if unlike in listed else 'there but not listed'}")
    for entry, wanted in told["files"].items():
        if sha256(folder / entry) != wanted:
            raise Refused(f"'{entry}' is not the file whose hash is listed; make the pack again with `oodml submit`")
    return told


def _files(folder: Path) -> set[str]:
    """The files of a pack, all of them plain, of a name that packs have and no larger than such are."""
    if not folder.is_dir() or folder.is_symlink():
        raise Refused(f"there is no folder {folder}; give that which `oodml submit` wrote")
    if not os.path.lexists(folder / PACK):
        raise Refused(_no_pack(folder))
    there: set[str] = set()
    for root, folders, files in os.walk(folder):
        for entry in (*folders, *files):
            path = os.path.join(root, entry)
            found, inside = os.lstat(path), os.path.relpath(path, folder).replace(os.sep, "/")
            if stat.S_ISDIR(found.st_mode):
                continue
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"'{inside}' is no plain file; put the file itself there")
            if inside != PACK and not FILE.fullmatch(inside):
                raise Refused(f"'{inside}' does not belong into a pack; take it out")
            most = LARGEST[os.path.basename(inside)]
            if found.st_size > most:
                raise Refused(f"'{inside}' has {found.st_size:,} bytes; at most {most:,} are taken")
            there.add(inside)
            if len(there) > MOST:
                raise Refused(f"it has more than {MOST:,} files, which no pack has; `oodml submit` makes one")
    return there


def _no_pack(folder: Path) -> str:
    """What a folder without pack.json is instead, and what to do with it.

    Told before its files are looked at, of which the first would be said not to belong into a pack.
    """
    if inside := sorted(path.parent.name for path in folder.glob(f"*/{PACK}")):
        names = one_line(", ".join(inside), 200)
        return f"this is a folder of packs ({names}), not a pack; give these: `oodml submit --check {folder}/*/`"
    if any(path for depth in ("*", "*/*", "*/*/*") for path in folder.glob(depth + packed.ENDING)):
        return ("this is a folder of packed records (`oodml records pack`), not a pack; `oodml report --records "
                f"{folder}` ranks them, and `oodml submit` makes a pack of what `oodml evaluate` recorded")
    return f"there is no {PACK}; give the folder that `oodml submit` wrote, whole"


def _told(path: Path) -> dict[str, Any]:
    """What stands in pack.json: the keys of this version, each of its kind."""
    try:
        told = from_json(path.read_bytes())
    except ValueError as error:
        raise Refused(f"{PACK} is damaged ({error})") from None
    if not isinstance(told, dict) or set(told) != set(KEYS) or not all(
            isinstance(told[key], kind) for key, kind in KEYS.items()):
        raise Refused(f"{PACK} must have just the keys {', '.join(KEYS)}, each of its kind")
    if told["schema"] != pack.SCHEMA:
        raise Refused(f"{PACK} is of schema {told['schema']}, this version reads {pack.SCHEMA}: update oodml")
    return told


def _check(told: dict[str, Any], name: str) -> None:
    """Refuses a card that is none, another name than the folder's, a level, date or version that cannot be."""
    try:
        cards.check(told["card"], f"card in {PACK}")
    except Exception as error:
        if not is_user_error(error):
            raise
        raise Refused(str(error)) from None
    if not told["name"] == told["card"]["method"] == name:
        raise Refused(f"folder, {PACK} and card name it '{name}', '{told['name']}' and '{told['card']['method']}'")
    if told["level"] not in (RECOMPUTED, RE_EMBEDDED):
        raise Refused(f"its level is '{told['level']}'; there are {RECOMPUTED} and {RE_EMBEDDED}")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["date"]) or not re.fullmatch(
            r"[\w.+-]{1,40}", told["version"]):
        raise Refused(f"its date '{one_line(told['date'], 40)}' or its version '{one_line(told['version'], 40)}' is "
                      "none that `oodml submit` writes")
