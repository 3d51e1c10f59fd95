"""The runs that a study asks for, as the leaderboard reads them: how far it is, and which of its rows are one board."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmark.config.spec import RunSpec
from benchmark.config.study import Study
from reports.analysis import progress
from reports.analysis.progress import DIGITS, KEYS, StudyProgress
from reports.storage import paths


def by(study: Study, specs: Iterable[RunSpec], given: str = "") -> StudyProgress:
    """What a study asks for with these runs, by dataset, method, protocol and backbone; `given`: its name or file."""
    facts = [(spec.dataset, spec.method, spec.protocol.name, spec.protocol.backbone, spec.identity[:DIGITS])
             for spec in specs]
    rows = pd.DataFrame(facts, columns=[*KEYS, "identities"])
    return StudyProgress(study.name, study.summary, f"oodml run --study {given or study.name}", _counted(rows))


def keep(study: Study, specs: Iterable[RunSpec], given: str, work: Path) -> None:
    """Puts these runs of a study among those that a working folder knows of it: a command may ask for a part of it."""
    if not paths.is_plain(study.name):
        return
    asked = by(study, specs, given)
    before = [one.rows for one in progress.read([work], []) if one.name == study.name and "identities" in one.rows]
    rows = pd.concat([*before, asked.rows], ignore_index=True)
    progress.write(work, replace(asked, rows=_counted(rows)))


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    """One row for each dataset, method, protocol and backbone with all its identities, each once, and their number."""
    known = rows.groupby(KEYS, sort=False)["identities"].agg(" ".join).map(lambda text: dict.fromkeys(text.split()))
    return pd.DataFrame({"runs": known.map(len), "identities": known.map(" ".join)}).reset_index()
