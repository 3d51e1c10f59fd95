"""Is a pack what it says? Every number is made again from its outcomes, and these from embeddings where it has some.

Nothing in a pack is trusted: names lead nowhere, sizes are looked at before a file is read, arrays are numbers only,
and a record must be, key by key, the one that follows from the ladder, the card and the outcomes.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmark.data.task import Side
from benchmark.submissions import pack, pack_folder, reading
from benchmark.submissions.evaluate import EMBEDDINGS
from benchmark.submissions.pack import PACK, RE_EMBEDDED
from benchmark.submissions.pack_folder import FILE, LARGEST, Refused
from benchmark.utils.errors import is_user_error
from reports import records
from reports.safe_text import one_line
from reports.storage import queries
from reports.storage.json_text import from_json
from reports.storage.queries import PartResults, QueryResults
from splits import pinning
from splits.pinning import Pinned

CHANGED = 0.001
"""The share of queries whose first hit may differ when embeddings are searched again: ties at the last bit."""


def problems(folder: Path, name: str | None = None) -> list[str]:
    """What of a pack does not hold, one line each; empty where all follows. Nothing is written."""
    name = name or folder.resolve().name  # `.` has none
    try:
        facts = pack_folder.facts(folder, name)
        pinned = _ladder(facts)
        cells = _cells(facts, pinned)
    except Refused as error:
        return [one_line(f"{name}: {error}")]
    found = []
    for (split, seed), files in sorted(cells.items()):
        try:
            _cell(folder, facts, pinned, split, seed, files)
        except Exception as error:
            if not isinstance(error, (Refused, ValueError, OSError, KeyError, TypeError)) and not is_user_error(error):
                raise
            found.append(one_line(f"{name}, split {split}, seed {seed}: {error}", 400))
    return found + _twins(folder, facts)


def _ladder(facts: dict[str, Any]) -> Pinned:
    """The pinned ladder that a pack is of; refuses one that is not here, is another or cannot be checked."""
    name, hash = facts["ladder"].get("name"), facts["ladder"].get("hash")
    if name not in pinning.names():
        raise Refused(f"its ladder '{one_line(str(name), 60)}' is not pinned here; there are: "
                      f"{', '.join(pinning.names())}")
    pinned = pinning.get(name)
    if set(facts["ladder"]) != {"name", "hash"} or hash != pinned.hash:
        raise Refused(f"its {name} has the hash {one_line(str(hash), 16)}, that of this board is {pinned.hash[:12]}: "
                      "another ladder")
    if pinned.open:
        raise Refused(f"{name} leaves the classes of {', '.join(pinned.open)} open: outcomes on it cannot be checked")
    return pinned


def _cells(facts: dict[str, Any], pinned: Pinned) -> dict[tuple[int, int], set[str]]:
    """The files of every split and seed; refuses what is not complete."""
    cells: dict[tuple[int, int], set[str]] = {}
    for entry in facts["files"]:
        match = FILE.fullmatch(entry)
        assert match is not None
        cells.setdefault((int(match[1]), int(match[2])), set()).add(match[3])
    wanted = {records.RECORD, queries.NAME} | ({EMBEDDINGS} if facts["level"] == RE_EMBEDDED else set())
    for (split, seed), files in cells.items():
        if files != wanted:
            raise Refused(f"split {split}, seed {seed} has {', '.join(sorted(files))}; a pack that is "
                          f"{facts['level']} has {', '.join(sorted(wanted))}")
    ids, seeds = {split.id for split in pinned.splits}, sorted({seed for _, seed in cells})
    missing = sorted({(split, seed) for split in ids for seed in seeds} ^ set(cells))
    if missing or not cells:
        split, seed = missing[0] if missing else (1, 0)
        raise Refused(f"split {split}, seed {seed} is {'missing' if split in ids else f'not on {pinned.name}'}: every "
                      f"split of {pinned.name} is there once for every seed")
    return cells


def _cell(folder: Path, facts: dict[str, Any], pinned: Pinned, split: int, seed: int, files: set[str]) -> None:
    """Refuses a split and seed whose record does not follow from the outcomes, or these from the embeddings."""
    home = folder / f"{split}-s{seed}"
    rung = pinned.ladder.split(split)
    _refuse_oversized(home / queries.NAME, rung.test_images)
    raw = (home / queries.NAME).read_bytes()
    results = queries.load(home / queries.NAME)
    place = next(i for i, one in enumerate(pinned.splits) if one.id == split)
    if results.classes is None or pinning.test_digest(results.classes.tolist(), results.labels,
                                                      results.counted) != pinned.queries[place]:
        raise Refused(f"the queries are not those of {pinned.name}: their classes, their order or which of them count "
                      "are others")
    _refuse_other_parts(results, pinned)
    _refuse_impossible(results, rung.test_images)
    made = {key: facts[key] for key in ("version", "date")}
    follows = pack.record_of(pinned, split, seed, facts["card"], results, raw, facts["level"], made)
    stored = records.read(home)
    for path, one, other in _unlike(stored, follows):
        raise Refused(f"its record says {path} = {one_line(repr(one), 60)}, from the outcomes follows "
                      f"{one_line(repr(other), 60)}")
    if EMBEDDINGS in files:
        _refuse_other_embeddings(home / EMBEDDINGS, results, rung.test_images, pinned)


def _refuse_oversized(path: Path, images: int) -> None:
    """Refuses an archive that would not be small once it is unpacked."""
    try:
        with zipfile.ZipFile(path) as file:
            entries = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Refused(f"{queries.NAME} is damaged ({error})") from None
    known = {f"{start}{key}.npy" for start in ("", "part_") for key in ("first_hit", "ap_r", "ap_1000")} | {
        "counted.npy", "labels.npy", "classes.npy", "part.npy", "part_names.npy"}
    for entry in entries:
        most = 1 << 24 if entry.filename in ("classes.npy", "part_names.npy") else 8 * images + 4096
        if entry.filename not in known or entry.file_size > most:
            raise Refused(f"{queries.NAME} holds '{one_line(entry.filename, 60)}' of {entry.file_size:,} bytes; "
                          f"outcomes of {images:,} images have at most {most:,} each")
    if len({entry.filename for entry in entries}) != len(entries):
        raise Refused(f"{queries.NAME} holds an array twice")


def _refuse_other_parts(results: QueryResults, pinned: Pinned) -> None:
    """Refuses results by dataset where the ladder is of no union, or of queries whose classes are of another one."""
    members, parts = pinned.parameters.get("members"), results.parts
    if parts is None:
        return
    if not members or parts.names.tolist() != list(members):
        raise Refused(f"the outcomes are of the datasets {one_line(', '.join(map(str, parts.names.tolist())), 60)}; "
                      f"{pinned.name} has {', '.join(members or ['none'])}")
    classes = [] if results.classes is None else results.classes.tolist()
    owners = [str(name).partition("/")[0] for name in classes]
    if len(owners) <= results.labels.max(initial=0) or not set(owners) <= set(members) or not np.array_equal(
            parts.part, np.array([list(members).index(owner) for owner in owners])[results.labels]):
        raise Refused("the outcomes put queries in other datasets than their classes are of")


def _refuse_impossible(results: QueryResults, images: int) -> None:
    """Refuses outcomes that no search can have: ranks beyond the gallery, precision that the first hit forbids.

    With R images to be found, map@r sums P_r h_r over the ranks up to R and map@1000 over those up to 1000, divided by
    R or at most 1000; `_bounds` says between what the first hit leaves these.
    """
    n, here = len(results.labels), results.counted
    if not set(results.precision) >= set(queries.PRECISION):
        raise Refused(f"the outcomes lack {', '.join(sorted(set(queries.PRECISION) - set(results.precision)))}")
    galleries: list[QueryResults | PartResults] = [results, *([] if results.parts is None else [results.parts])]
    for searched in galleries:  # the whole one, that of each dataset
        first = searched.first_hit
        if n == 0 or first.min() < 0 or first.max() >= images:
            raise Refused(f"the first hit of a query lies at rank {int(first.max(initial=0))} of {images}")
        if n != images:  # where queries and gallery differ the one does not tell the other
            continue
        f, found = first[here], np.bincount(results.labels)[results.labels][here] - 1
        for measure, last in (("map@r", found), ("map@1000", np.minimum(f + found - 1, min(1000, n - 1)))):
            least, most = _bounds(f, last) / (found if measure == "map@r" else np.minimum(found, 1000))
            precision, room = searched.precision[measure][here], 1.01 / queries.FULL
            wrong = np.flatnonzero((precision < least - room) | (precision > most + room))
            if len(wrong):
                i = int(wrong[0])
                raise Refused(f"{len(wrong)} outcomes are impossible, such as a first hit at rank {int(f[i])} of "
                              f"{int(found[i])} images to be found with an average precision ({measure}) of "
                              f"{precision[i]:.4f}")


def _bounds(f: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The least and the greatest sum_{r<=last} P_r h_r, (2, n), where the first hit lies at rank f; 0 for f > last.

    It is 1 / f where nothing else is found, and sum_{r=f}^last (r - f + 1) / r where all further ranks hit, which is
    (last - f + 1) - (f - 1) (H_last - H_{f-1}) with the harmonic numbers H.

    >>> _bounds(np.array([1, 2, 0, 4]), np.array([3, 3, 3, 3])).round(3).tolist()
    [[1.0, 0.5, 0.0, 0.0], [3.0, 1.167, 0.0, 0.0]]
    """
    inside, first = (f >= 1) & (f <= last), np.maximum(f, 1)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, max(first.max(initial=1), last.max(initial=1)) + 1))])
    most = (last - first + 1) - (first - 1) * (harmonic[last] - harmonic[first - 1])
    return np.where(inside, [1 / first, most], 0)


def _unlike(one: Any, other: Any, path: str = "") -> Any:
    """Where two records differ, with both values; numbers may differ in their last digits."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*other, *one)):
            yield from _unlike(one.get(key), other.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other)):
            yield from _unlike(a, b, f"{path}.{i}")
    elif type(one) is float and type(other) is float:
        if not abs(one - other) <= 1e-9 * max(1.0, abs(other)):
            yield path, one, other
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield path, one, other


def _refuse_other_embeddings(path: Path, results: QueryResults, images: int, pinned: Pinned) -> None:
    """Refuses outcomes that do not follow from the embeddings of the test images."""
    from benchmark.runs.scoring import score

    shape, dtype, start = _header(path)
    if len(shape) != 2 or shape[0] != images or not 1 <= shape[1] <= 16384:
        raise Refused(f"{EMBEDDINGS} has the shape {shape}; the test side has {images:,} images")
    if path.stat().st_size != start + shape[0] * shape[1] * dtype.itemsize:
        raise Refused(f"{EMBEDDINGS} is not as long as its head says")
    if len(results.labels) != images:
        raise Refused(f"{pinned.dataset} has queries and gallery apart: the embeddings of such a pack are not checked "
                      "here, leave them out")
    table = np.load(path, allow_pickle=False)
    reading.check(table, [f"image {i}" for i in range(images)])
    domains, members = None, ()
    if results.parts is not None:
        domains, members = results.parts.part, tuple(results.parts.names.tolist())
    classes = tuple(map(str, [] if results.classes is None else results.classes.tolist()))
    side = Side(np.arange(images), results.labels, classes, None, domains)
    again = score(side, _tensor(table), members).queries
    different = int((again.first_hit != results.first_hit)[results.counted].sum())
    if different > CHANGED * max(1, results.counted.sum()):
        raise Refused(f"the outcomes do not follow from the embeddings: the first hit of {different:,} of "
                      f"{int(results.counted.sum()):,} queries lies elsewhere")
    ours, theirs = (_by_measure(*pack.scores_of(one)) for one in (again, results))
    apart = max(theirs, key=lambda measure: abs(ours[measure] - theirs[measure]))
    if abs(ours[apart] - theirs[apart]) > CHANGED:
        raise Refused(f"the outcomes do not follow from the embeddings: {apart} is {100 * ours[apart]:.2f} from these "
                      f"and {100 * theirs[apart]:.2f} from the outcomes")


def _by_measure(whole: dict[str, float], domains: dict[str, dict[str, float]]) -> dict[str, float]:
    """Scores over all and of each dataset of a union in one table."""
    return whole | {f"{measure} of {name}": value for name, own in domains.items() for measure, value in own.items()}


def _header(path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """(shape, kind, bytes before the numbers) of an .npy file, from its head alone; a ValueError where it is none."""
    with open(path, "rb") as file:
        head = io.BytesIO(file.read(4096))
    version = np.lib.format.read_magic(head)
    if version not in ((1, 0), (2, 0)):
        raise ValueError("not an array of numpy's format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, fortran, dtype = read(head)
    except Exception:  # Python's parser, which numpy hands it to, has a dozen kinds of errors
        raise ValueError("not an array of numpy's format") from None
    if dtype.hasobject or dtype.kind != "f" or fortran:
        raise ValueError(f"holds {dtype}{' by column' if fortran else ''}, not numbers row by row")
    return shape, dtype, head.tell()


def _tensor(table: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(table.astype(np.float64 if table.dtype == np.float64 else np.float32))


def _twins(folder: Path, facts: dict[str, Any]) -> list[str]:
    """Packs beside this one that have its name, or its very outcomes."""
    mine = {hash for entry, hash in facts["files"].items() if entry.endswith(queries.NAME)}
    found = []
    for other in sorted(folder.resolve().parent.glob(f"*/{PACK}")):
        if other.parent == folder.resolve() or other.is_symlink() or other.parent.name.startswith("."):
            continue
        try:
            theirs = from_json(other.read_bytes()) if other.stat().st_size <= LARGEST[PACK] else {}
            name, files = str(theirs["name"]), dict(theirs["files"])
        except (ValueError, KeyError, TypeError, OSError):
            continue  # it is refused by its own name
        if name.casefold() == facts["name"].casefold():
            found.append(f"{facts['name']}: {one_line(other.parent.name, 60)} beside it is called the same")
        elif mine & {hash for entry, hash in files.items() if str(entry).endswith(queries.NAME)}:
            found.append(f"{facts['name']}: {one_line(other.parent.name, 60)} beside it has the same outcomes")
    return found
