"""How results are cited: the suite with its records, the paper of the ladders and of AGS, each method's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from reports.analysis import run_tables
from reports.safe_text import one_line


def made_of(runs: pd.DataFrame) -> dict[str, str]:
    """The date, version and commit of the newest runs that tell them, else ''."""
    runs = runs.sort_values("date")
    commits = run_tables.made_with(runs.dropna(subset=["commit"]))
    return {"date": str(next(iter(runs["date"].dropna()[::-1]), ""))[:10],
            "version": next(iter(runs["version"].dropna()[::-1]), ""),
            "commit": commits.iloc[-1] if len(commits) else ""}


def suite(made: Mapping[str, Any]) -> str:
    """How the suite is cited: the records by date and commit, and the paper of the ladders and of AGS."""
    said = [f"records of {made['date']}" if made["date"] else "", f"version {made['version']}" if made["version"]
            else "", f"commit {made['commit']}" if made["commit"] else ""]
    year = made["date"][:4] or "2026"
    return f"""@misc{{oodml{year},
  title  = {{oodml: A benchmark suite and leaderboard for deep metric learning under distribution shift}},
  author = {{{{The oodml authors}}}},
  year   = {{{year}}},
  note   = {{{", ".join(part for part in said if part) or "software"}}}
}}
@inproceedings{{milbich2021characterizing,
  title     = {{Characterizing Generalization under Out-Of-Distribution Shifts in Deep Metric Learning}},
  author    = {{Milbich, Timo and Roth, Karsten and Sinha, Samarth and Schmidt, Ludwig and Ghassemi, Marzyeh and
               Ommer, Bj{{\\"o}}rn}},
  booktitle = {{Advances in Neural Information Processing Systems}},
  year      = {{2021}}
}}"""


def bibliography(runs: pd.DataFrame) -> str:
    """BibTeX of the suite and of the methods of these runs, each entry once, below the names of those that cite it."""
    own = suite(made_of(runs))
    told = _entries(own)
    found: dict[str, tuple[str, list[str]]] = {}
    without = []
    for name, cites in runs[~runs["baseline"].astype(bool)].groupby("base_method")["cite"]:
        entries = next(filter(None, (_entries(cite) for cite in cites if isinstance(cite, str))), {})
        for key, entry in entries.items():
            found.setdefault(key, (entry, []))[1].append(str(name))
        without += [] if entries else [str(name)]
    parts = [f"{_comment(', '.join(names))}\n{entry}" for key, (entry, names) in sorted(found.items())
             if key not in told]
    last = [_comment(f"without a citation: {', '.join(without)}")] if without else []
    return "\n\n".join([own, *parts, *last]) + "\n"


def _comment(text: str) -> str:
    """BibTeX passes over what is no entry, but takes every @ for the beginning of one."""
    return f"% {one_line(text).replace('@', ' at ')}"


def _entries(cite: str) -> dict[str, str]:
    """The entries of a citation by their keys: a method may build on two papers.

    >>> _entries("@misc{a, title={A}} @misc {b, title={B@C}}")
    {'a': '@misc{a, title={A}}', 'b': '@misc {b, title={B@C}}'}
    """
    found, start, depth = {}, -1, 0
    for i, letter in enumerate(cite):
        if letter == "@" and depth == 0:
            start = i
        depth += (letter == "{") - (letter == "}")
        if letter == "}" and depth == 0 and start >= 0:
            entry, start = cite[start:i + 1], -1
            if key := re.match(r"@\w+\s*\{\s*([^,\s}]+)\s*,", entry):
                found[key[1]] = entry
    return found
