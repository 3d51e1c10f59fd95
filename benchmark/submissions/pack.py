"""A submission as a small folder: its card, the outcome of every query, hashes, and embeddings if wanted.

PACK/pack.json says what it is and lists its files with their hashes; PACK/SPLIT-sSEED/ holds the record of one split
and seed, `queries.npz` and, if wanted, `embeddings.npy`. A record holds what follows from outcomes and card alone, so
that whoever has the pack can make every number of it again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmark.submissions import card as cards
from benchmark.submissions.evaluate import EMBEDDINGS
from benchmark.submissions.submitted import facts
from benchmark.utils import leftovers, provenance
from benchmark.utils.errors import UserError
from reports import records
from reports.storage import queries
from reports.storage.queries import QueryResults
from splits import pinning
from splits.pinning import Pinned

SCHEMA = 1
PACK = "pack.json"
RECOMPUTED, RE_EMBEDDED = "recomputed", "re-embedded"


def scores_of(results: QueryResults) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """The scores that follow from the outcomes of queries: over all, and of a union's parts each in its own gallery."""
    whole = _means(results.first_hit, results.precision, results.counted)
    parts = results.parts
    if parts is None:
        return whole, {}
    domains = {}
    for number, name in enumerate(parts.names.tolist()):
        here = results.counted & (parts.part == number)
        domains[name] = _means(parts.first_hit, parts.precision, here) if here.any() else {}
    return whole, domains


def _means(first: np.ndarray, precision: dict[str, np.ndarray], here: np.ndarray) -> dict[str, float]:
    from benchmark.metrics.retrieval import KS  # with torch, which takes seconds: what is refused is refused before

    hits = {f"recall@{k}": float(((first > 0) & (first <= k))[here].mean()) for k in KS}
    return hits | {measure: float(values[here].mean()) for measure, values in precision.items()}


def record_of(pinned: Pinned, split: int, seed: int, card: dict[str, str], results: QueryResults, raw: bytes,
              level: str, made: dict[str, Any]) -> dict[str, Any]:
    """The record of one split and seed of a pack: all of it follows from the ladder, the card and the outcomes."""
    rung = pinned.ladder.split(split)
    scores, domains = scores_of(results)
    count = int(results.counted.sum())
    identity = pinning.digest({"ladder": pinned.hash, "split": rung.hash, "name": card["method"], "seed": seed,
                               "queries": hashlib.sha256(raw).hexdigest()})
    return {
        "schema": records.SCHEMA,
        **facts(card["method"], seed, rung, pinned.ladder, pinned.dataset_hash, identity=identity,
                backbone=card["backbone"], summary=f"Submitted, {level}.", papers=[card["paper"]]),
        "scores": {"last": scores}, "domains": domains, "chosen_epochs": {}, "structure": {}, "curve": [],
        "queries": {"count": count, "left_out": len(results.counted) - count}, "cost": {},
        "provenance": {**made, "level": level, "card": card, "overrides": {}}}


def write(out: Path, runs: Path, *, name: str, ladder: str | None = None, card: Path | None = None,
          embeddings: bool = False, check: Callable[[Path, str], list[str]] = lambda folder, name: []) -> Path:
    """Makes a pack of what `oodml evaluate` recorded of a method, whole or not at all; `check` says what is wrong."""
    frame = _of_one_ladder(runs, name, ladder)
    pinned = _pinned(frame, name)
    frame = frame.sort_values("date", kind="stable").drop_duplicates(["split", "seed"], keep="last")
    told = cards.read(card) if card is not None else _card(frame["path"].tolist())
    if told["method"] != name:
        raise UserError(f"{card or 'the card of the results'} is of '{told['method']}', not of '{name}'; give "
                        "the card of this method with --card FILE")
    cards.name(name)
    _check_whole(frame, pinned, name)
    if out.exists():
        raise UserError(f"{out} is there already; give another folder, or delete it")
    if out.resolve().name != name:
        raise UserError(f"a pack is called as its method: give a folder named {name}")
    leftovers.remove([out.parent], out.name)
    temporary = leftovers.unfinished(out)
    level = RE_EMBEDDED if embeddings else RECOMPUTED
    try:
        temporary.mkdir(parents=True)
        _fill(temporary, pinned, told, frame[["path", "split", "seed"]].values.tolist(), level)
        problems = check(temporary, name)
        if problems:
            raise UserError("\n".join([f"nothing was written: {problems[0]}", *problems[1:20]]))
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return out


def _of_one_ladder(runs: Path, name: str, ladder: str | None) -> pd.DataFrame:
    """The results of a method on the pinned ladder that is asked for, or on the only one that it has results on."""
    frame, _ = records.scan(runs)
    frame = frame[frame["ladder_name"].notna()]
    others = ", ".join(sorted(set(frame.loc[frame["source"] == "submitted", "method"])))
    frame = frame[frame["method"] == name]
    there = sorted(set(frame["ladder_name"]))
    if ladder is not None and there and ladder not in there:
        raise UserError(f"'{name}' has no results on {ladder}, but on {', '.join(there)}")
    if ladder is not None:
        frame = frame[frame["ladder_name"] == ladder]
    if frame.empty or frame["ladder_name"].nunique() > 1:
        raise UserError(f"'{name}' has results on {', '.join(there)}; say which to submit with --ladder" if there else
                        f"there are no results of '{name}'{others and f', but of {others},'} on a pinned ladder below "
                        f"{runs}; `oodml evaluate --ladder NAME@VERSION --name {name}` makes them")
    return frame


def _pinned(frame: pd.DataFrame, name: str) -> Pinned:
    """The ladder that these results are on, as it comes with this version."""
    on = str(frame["ladder_name"].iloc[0])
    if on not in pinning.names():
        raise UserError(f"{on} is a ladder of your own: a pack is checked, and shown on the board, on those that come "
                        f"with oodml: {', '.join(pinning.names())}")
    pinned = pinning.get(on)
    if set(frame["ladder_hash"]) != {pinned.hash}:
        raise UserError(f"the results of '{name}' are on another {pinned.name} than this version has; "
                        f"`oodml evaluate --ladder {pinned.name} --name {name}` evaluates again")
    return pinned


def _check_whole(frame: pd.DataFrame, pinned: Pinned, name: str) -> None:
    missing = [f"{split.id} (seed {seed})" for seed in sorted(set(frame["seed"])) for split in pinned.splits
               if not ((frame["split"] == split.id) & (frame["seed"] == seed)).any()]
    if missing:
        raise UserError(f"a pack has every split of {pinned.name} for every seed; '{name}' lacks split "
                        f"{', '.join(missing[:5])}{' ...' if missing[5:] else ''}; `oodml evaluate --ladder "
                        f"{pinned.name} --name {name}` scores them")


def _card(paths: Sequence[str]) -> dict[str, str]:
    """The card that the newest records carry."""
    told = [records.read(path)["provenance"].get("card") for path in paths]
    if not all(told):
        raise UserError("there is no card; give one with --card FILE (TOML or YAML: " + ", ".join(cards.KEYS) + ")")
    return cards.check(told[-1], "the card of the results")


def _fill(folder: Path, pinned: Pinned, card: dict[str, str], runs: list[list[Any]], level: str) -> None:
    made = {"version": provenance.facts()["version"], "date": provenance.now()}
    files: dict[str, str] = {}
    for path, split, seed in runs:
        home = f"{split}-s{seed}"
        (folder / home).mkdir()
        source = Path(path)
        if not (source / queries.NAME).is_file():
            raise UserError(f"{source} holds no {queries.NAME}; a pack needs the outcome of every query: "
                            "evaluate again")
        contents = {queries.NAME: (source / queries.NAME).read_bytes()}
        if level == RE_EMBEDDED:
            if not (source / EMBEDDINGS).is_file():
                raise UserError(f"{source} holds no embeddings; evaluate again with --keep, or leave --embeddings out")
            contents[EMBEDDINGS] = (source / EMBEDDINGS).read_bytes()
        results = queries.load(source / queries.NAME)
        record = record_of(pinned, split, seed, card, results, contents[queries.NAME], level, made)
        records.write(folder / home, record)
        contents[records.RECORD] = (folder / home / records.RECORD).read_bytes()
        for name, raw in contents.items():
            (folder / home / name).write_bytes(raw)
            files[f"{home}/{name}"] = hashlib.sha256(raw).hexdigest()
    facts = {"schema": SCHEMA, "name": card["method"], "ladder": {"name": pinned.name, "hash": pinned.hash},
             "level": level, **made, "card": card, "files": dict(sorted(files.items()))}
    (folder / PACK).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
