"""The sweeps that were started here: their plans, where their runs stand, and what changed since."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmark.config.spec import RunSpec, differences, told_apart
from benchmark.runs.job import Job, RunContext
from benchmark.runs.status import KINDS, RunState, look
from benchmark.utils import provenance
from benchmark.utils.errors import UserError, near
from benchmark.utils.files import write_json
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from methods.registry import code as source_code
from reports import records
from reports.safe_text import one_line
from reports.wording import counted

SCHEMA = 1

FEW = 3
"""Lines about methods whose code changed; where there are more, one line that counts them names this many methods."""


@dataclass(frozen=True)
class Planned:
    """A sweep that was started here: its command and its runs."""

    command: str
    jobs: tuple[Job, ...]
    study: str = ""
    """The name of the study that it is of; '' where it is of none, and where an earlier version wrote it down."""


def save_plan(workspace: Workspace, jobs: Iterable[Job], command: str, study: str = "") -> Path:
    """Write down the runs of a sweep, for `oodml status`; of several plans the newest has the highest number.

    Returns:
        The path of the plan. An earlier one of the same runs is replaced.
    """
    runs = [{"spec": job.spec.facts(), "dataset": job.context.dataset,
             "weights_file": job.context.weights_file, "plugins": list(job.context.plugins)} for job in jobs]
    folder = workspace.plans
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256("".join(sorted(job.spec.identity for job in jobs)).encode()).hexdigest()[:12]
    number = max(map(_number, folder.glob("[0-9]*-*.json")), default=0) + 1
    path = folder / f"{number:06d}-{name}.json"
    write_json(path, {"schema": SCHEMA, "command": command, "study": study, "cells": runs})
    for old in folder.glob(f"[0-9]*-{name}.json"):  # now that there is another, and none that is newer still
        if _number(old) < number:
            old.unlink(missing_ok=True)
    return path


def _number(plan: Path) -> int:
    return int(plan.name.partition("-")[0])


def plans(workspace: Workspace, damaged: list[str] | None = None) -> Iterator[Planned]:
    """The sweeps that were started here, the newest first; what cannot be read is named in `damaged`."""
    for path in sorted(workspace.plans.glob("[0-9]*-*.json"), reverse=True):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise UserError(f"{path} is of another version of oodml (schema {content['schema']}, this one reads "
                                f"{SCHEMA}): use that version, or move the file away and start the sweep again")
            yield Planned(content["command"], tuple(
                Job(RunSpec.of(run["spec"]), RunContext(run["dataset"], workspace.root.absolute(),
                                                        workspace.data.absolute(), weights_file=run["weights_file"],
                                                        plugins=tuple(run["plugins"]))) for run in content["cells"]),
                str(content.get("study", "")))
        except FileNotFoundError:  # just replaced by a newer one
            continue
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # cut while it was written, or of a version with other specs: the runs themselves remain
            if damaged is not None:
                damaged.append(f"{path} cannot be read ({one_line(str(error), 200)}): its sweep is not counted here; "
                               "the command that started it writes it anew")


@dataclass(frozen=True)
class PlannedRun:
    """A planned run, its state and the command that planned it."""

    spec: RunSpec
    folder: Path
    state: RunState
    command: str


def survey(workspace: Workspace, datasets: Collection[str] = (), study: str = "",
           verbose: bool = False) -> tuple[list[PlannedRun], list[str]]:
    """The runs of all sweeps started here, and what changed since, one line each; damaged files of sweeps too.

    Of several sweeps that plan the same dataset, split, method and seed the newest counts. With `datasets` only
    the runs on these, with a `study`, by its name or its file, those of its sweeps; a UserError where there are none.
    `verbose`: methods of changed code are named one by one, however many there are.
    """
    owner: dict[tuple[Any, ...], int] = {}
    found: dict[str, tuple[Job, str]] = {}
    study = study_name(study)
    of_studies: dict[str, set[str]] = {}
    changes: Counter[str] = Counter()
    damaged: list[str] = []
    for number, planned in enumerate(plans(workspace, damaged)):
        for job in planned.jobs:
            of_studies.setdefault(planned.study, set()).add(job.spec.identity)
            if owner.setdefault(job.spec.table_cell, number) == number:
                found.setdefault(job.spec.identity, (job, planned.command))
    if found:
        _check_known("dataset", datasets, {job.spec.dataset for job, _ in found.values()}, workspace)
        _check_known("study", [study] * bool(study), {*of_studies} - {""}, workspace)
    runs = {identity: PlannedRun(job.spec, job.folder, look(job.folder), command)
            for identity, (job, command) in found.items()
            if (not datasets or job.spec.dataset in datasets)
            and (not study or identity in of_studies[study])}
    for run in runs.values():
        for before in earlier(run.spec, run.folder, set(found)):
            changes[f"{run.spec.dataset}, {run.spec.method}: {'; '.join(differences(before, run.spec))}"] += 1
    return list(runs.values()), [*damaged, *code_changes(runs.values(), "oodml status", verbose), *(
        f"changed {text} ({counted(count, 'earlier run is', 'earlier runs are')} kept)"
        for text, count in sorted(changes.items()))]


def _check_known(option: str, wanted: Collection[str], known: Collection[str], workspace: Workspace) -> None:
    """A UserError where something that is asked for is not among the sweeps started here."""
    for name in wanted:
        if name not in known:
            raise UserError(f"--{option} {name}: no sweep in {workspace.root} has runs of it{near(name, known)}; there "
                            f"are runs of: {', '.join(sorted(known)) or 'none'}")


def study_name(text: str) -> str:
    """The name of a study that was given by its name or by the path of its file."""
    return Path(text).stem if text.endswith(".toml") else text


def code_changes(runs: Iterable[PlannedRun], command: str, verbose: bool = False) -> list[str]:
    """Where the files of one of the suite's own methods differ from those that made its finished runs.

    A record tells the hash of the files or, if it is older, the commit they were of. Where these are more than a `FEW`
    lines, as after a change of a file that all methods share, there is one that counts them, unless `verbose`.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    own = cache(lambda method: {path.relative_to(source_code.FOLDER.parent).as_posix()
                                for path in source_code.files_of(method)})
    code = cache(source_code.source_hash)
    for run in runs:
        spec, state = run.spec, run.state
        if state.kind == "done" and not spec.code and code(spec.method):
            changed = ", ".join(sorted(own(spec.method) & provenance.changed_since(state.commit)))
            if state.code != code(spec.method) if state.code else changed:
                counts[spec.dataset, spec.method, changed] += 1
    if len(counts) > FEW and not verbose:
        names = sorted({method for _, method, _ in counts})
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        return [f"code changed since {counts.total()} finished runs of {counted(len(names), 'method')} were made "
                f"({', '.join(names[:FEW])}{more}); --redo runs anew, `{command} --verbose` lists them"]
    return [f"{dataset}, {method}: code changed since {counted(count, 'finished run was', 'finished runs were')} made"
            f"{f' ({changed})' if changed else ''}; --redo runs anew"
            for (dataset, method, changed), count in sorted(counts.items())]


def earlier(spec: RunSpec, folder: Path, known: set[str]) -> Iterator[RunSpec]:
    """Finished runs of the same dataset, split, method and seed with other settings, which no current plan contains."""
    for record in folder.parent.glob(f"s{spec.seed}-*/{records.RECORD}"):
        before = RunSpec.read(record.parent)
        if before is not None and before.table_cell == spec.table_cell and before.identity not in known:
            yield before


def table(runs: Iterable[PlannedRun]) -> str:
    """Counts of each state per dataset and method, and per backbone where there are several.

    A run whose record is damaged or of another version is not done and stands among the failed.
    """
    runs = list(runs)
    several = len({run.spec.protocol.backbone for run in runs}) > 1
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for run in runs:
        backbone = (run.spec.protocol.backbone,) if several else ()
        row = counts.setdefault((run.spec.dataset, run.spec.method, *backbone), Counter())
        row[run.state.kind if run.state.kind in KINDS else "failed"] += 1
        row["begun"] += run.state.begun and run.state.kind == "missing"
    total = sum(counts.values(), Counter())
    names = ("dataset", "method", *(["backbone"] if several else []))
    rows: list[tuple[str, ...]] = [(*names, *KINDS, "of which begun")]
    rows += [(*key, *(str(row[kind]) for kind in (*KINDS, "begun"))) for key, row in sorted(counts.items())]
    rows.append(("all", *[""] * (len(names) - 1), *(str(total[kind]) for kind in (*KINDS, "begun"))))
    return "\n".join(columns(rows, left=len(names)))


def failures(runs: Sequence[PlannedRun]) -> list[str]:
    """Each run without a result: its cause, what may help and the command that tries again."""
    lines, labels = [], told_apart(run.spec for run in runs)
    for run in runs:
        kind = run.state.kind
        if kind in ("failed", "damaged", "incompatible") or (run.state.text and kind == "missing"):
            lines.append(f"{labels[run.spec.identity]}: {run.state.text}")
            if run.state.remedy:
                lines.append(f"    may help: {run.state.remedy}")
            if kind in ("failed", "missing"):
                lines.append(f"    again: {retry(run.command) if kind == 'failed' else run.command}")
            lines.append(f"    {run.folder}")
    return lines


def retry(command: str) -> str:
    """The command that tries failed runs again."""
    return command if "--retry-failed" in command.split() else f"{command} --retry-failed"
