"""Tuning: as many configurations for each method, chosen on held-out training classes, then run on the test ladder.

Each trial is an ordinary run with the protocol's key `validation`, in a working folder of its own, `WORK/tune`: the
board shows what was chosen, not what was tried. A choice reads the trials' validation scores and nothing else.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import methods
from benchmark import datasets, ladders
from benchmark.config import protocol as protocols
from benchmark.config import search
from benchmark.config.plan import Overrides, fitting, load_protocol
from benchmark.config.spec import RunSpec
from benchmark.config.study import Part, Study
from benchmark.data.task import learnt
from benchmark.ladders import rungs
from benchmark.runs import sweep
from benchmark.runs.job import HEADLINE, SweepOptions, SweepResult
from benchmark.runs.matrix import check_names, run_contents, with_files
from benchmark.runs.trials import Search, TuneOptions, read_scores
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.terminal import Tell
from benchmark.utils.workspace import Workspace
from reports import records
from reports.analysis import tuned_ags, tuning
from reports.storage.paths import short
from reports.wording import counted
from splits.manifest import Ladder, Split


def run(study: Study, tuned: TuneOptions, options: SweepOptions, echo: Tell = click.echo) -> tuple[SweepResult, Path]:
    """Search, choose, and run what was chosen on the test ladder; what is done already is kept.

    Args:
        study: the methods, datasets, protocol, and the rungs and seeds of the test.
        tuned: budget and sampler.
        options: where and with what, as for `oodml run`.
        echo: prints a line for the user.

    Returns:
        How the last sweep ended, and the file that says what was tried and chosen.
    """
    if tuned.trials < 1:
        raise UserError(f"--trials {tuned.trials}: at least 1, the default configuration; 20 are a usual budget")
    began = time.monotonic()
    searches = _searches(study, tuned, options, echo)
    inner = trial_workspace(options.workspace)
    path = inner.root / f"{_file_name(study.name)}.json"
    result = SweepResult()
    rounds = search.rounds(tuned.trials, tuned.sampler)
    for known, count in zip([0, *rounds], rounds):
        for one in searches:
            one.extend(count, tuned)
        parts = tuple(part for one in searches for part in one.parts(known))  # earlier ones are over: --redo is once
        result = sweep.run(Study(f"{study.name}, trials", parts), _left(replace(options, workspace=inner), began), echo)
        read_scores(searches, inner)
        _write(path, study, [_entry(one, tuned, options.workspace) for one in searches], options)
        if not all(one.over for one in searches):
            _check_planned((trial.spec.identity for one in searches for trial in one.trials[known:]), result)
            failed = _tell_unfinished(searches, tuned, inner, echo)
            if options.redo:
                echo("the runs on the test ladder are as they were before --redo; without it they are kept")
            if failed and not (result.interrupted or result.ended or result.submitted):
                result.ended = f"{failed} trials failed"
            return result, path
    chosen = {id(one): trial for one in searches if (trial := one.choice()) is not None}
    if not chosen:
        raise UserError(f"every trial diverged, so nothing is chosen; `oodml status --work {inner.root}` tells more")
    result = SweepResult()
    if not tuned.choose_only:
        final = [replace(one.part, splits=",".join(str(split.id) for split in one.tested), seeds=one.seeds,
                         set={**one.part.set, **configuration})
                 for one in searches if id(one) in chosen
                 for configuration in [chosen[id(one)].set, *([{}] if tuned.compare else [])]]
        result = sweep.run(Study(f"{study.name}, tuned", tuple(final)), _left(options, began), echo)
    entries = [_entry(one, tuned, options.workspace) for one in searches]
    _write(path, study, entries, options)
    for line in [*tuning.lines(entries), *tuned_ags.lines(entries, tuning.load(path))]:
        echo(line)
    return result, path


def trial_workspace(workspace: Workspace) -> Workspace:
    """The working folder of the trials: its own runs and plans, the images and ladders of the other."""
    root = (workspace.root / tuning.FOLDER).absolute()
    root.mkdir(parents=True, exist_ok=True)
    for name in ("cache", "splits"):
        getattr(workspace, name).mkdir(parents=True, exist_ok=True)
        if not (root / name).is_symlink():  # relative, so that the working folder can be moved
            (root / name).symlink_to(Path("..", name), target_is_directory=True)
    return Workspace(root, workspace.data)


def _file_name(study: str) -> str:
    """What a study is called, often by its datasets, as the name of a file.

    >>> _file_name("folder:/my data/鳥,cub"), _file_name("folder:/my data/魚,cub")
    ('folder-my-data-鳥,cub', 'folder-my-data-魚,cub')
    """
    return short(re.sub(r"[^\w.,+-]+", "-", unicodedata.normalize("NFC", study)))


def _searches(study: Study, tuned: TuneOptions, options: SweepOptions, echo: Tell) -> list[Search]:
    """A search for each method, dataset and split that chooses: each once, also where parts of the study repeat it."""
    check_names(study, options.plugins)
    searches: dict[tuple[str, ...], Search] = {}
    for part in study.parts:
        part = _on_one_backbone(part, study.name)
        for dataset in (datasets.resolved(name, options.workspace.splits) for name in part.datasets):
            for one in _of_dataset(dataset, part, tuned, options, echo):
                searches.setdefault((one.ladder.dataset, one.method, one.protocol, str(one.split.id),
                                     str(one.weights_file), str(sorted(one.part.set.items()))), one)
    if not searches:
        raise UserError(f"{study.name}: no method is left to tune")
    return list(searches.values())


def _on_one_backbone(part: Part, study: str) -> Part:
    """The part with its backbone among what is set; one with a file of its weights stays named beside that."""
    chosen = with_files(part.backbones) if part.backbones else {}
    if part.vary or len(chosen) > 1:
        raise UserError(f"{study}: one protocol and one backbone are tuned at a time: leave out `vary`, and "
                        "name one backbone with --backbone")
    name, file = next(iter(chosen.items()), (None, None))
    return replace(part, backbones=part.backbones if file else None, more_seeds={},
                   set={**part.set, **({"backbone": name} if name else {})})


def _of_dataset(dataset: str, part: Part, tuned: TuneOptions, options: SweepOptions, echo: Tell) -> Iterator[Search]:
    """The searches of a part on one dataset: of each method one for all rungs, or one for each."""
    index = datasets.load(dataset, options.workspace.data)
    ladder = ladders.load(options.workspace, dataset, index, part.splits == "default", part.needs)
    content, of_trials = (run_contents(index, where) for where in (options.workspace,
                                                                   trial_workspace(options.workspace)))
    tested = list(rungs.chosen(part.splits, ladder, part.needs))
    chosen_on = [(ladder.default, tested)] if tuned.choose_on == "default" else [(split, [split]) for split in tested]
    name, overrides = part.protocol or datasets.get(dataset).protocol, Overrides.of(part.set)
    seeds = part.seeds or protocols.load(name, dataset=index.name, overrides=overrides.protocol).seeds
    (file,) = with_files(part.backbones).values() if part.backbones else [None]
    for method in _tunable(part, index.name, name, overrides, echo):
        entry = methods.get(method)
        space = search.space_of(entry, load_protocol(name, index.name, method, overrides).lr, part.set, part.search)
        if not space:
            raise UserError(f"{method}: --set fixes all that could be searched; leave lr to the search")
        # a part names one method, so that settings of the others are not its
        own = {key: value for key, value in part.set.items()
               if key.rpartition(".")[0] in ("", method, entry.base.name if entry.base else "")}
        for split, rest in chosen_on:
            _check_held_out(split, ladder)
            yield Search(dataset=dataset, method=method, protocol=name, ladder=ladder, index_hash=index.hash,
                         part=replace(part, datasets=(dataset,), methods=method, set=own), contents=content,
                         trial_contents=of_trials, weights_file=file or options.weights_file, split=split, tested=rest,
                         seeds=seeds, space=space)


def _tunable(part: Part, dataset: str, protocol: str, overrides: Overrides, echo: Tell) -> Iterator[str]:
    """The methods of a part that train something and fit the backbone that they would get."""
    names = methods.select(part.methods)
    bases = {entry.base.name for entry in map(methods.get, names) if entry.base is not None}
    if unused := set(overrides.methods) - set(names) - bases:
        raise UserError(f"--set names {', '.join(sorted(unused))}, which is not among the methods to tune")
    fit, unfit = fitting(names, dataset, protocol, overrides)
    for method, reason in unfit.items():
        echo(f"left out on {dataset}: {method}: {reason}")
    for method in fit:
        if methods.get(method).trains == "nothing":
            echo(f"left out: {method} trains nothing, so there is nothing to tune")
        else:
            yield method


def _check_held_out(split: Split, ladder: Ladder) -> None:
    kept = learnt(split, hold_out=True)
    if len(split.validation) < 2 or len(kept) < 2:
        raise UserError(f"split {split.id} of {ladder.dataset} cannot be tuned on: of its {len(split.train)} training "
                        f"classes {len(split.validation)} are held out and {len(kept)} left to train on, and each "
                        "needs two; build a ladder with more training classes (`oodml splits build`)")


def _check_planned(trials: Iterable[str], result: SweepResult) -> None:
    """A UserError where a trial is none of the runs of the sweep that was to do it: it would never be over."""
    runs = {job.spec.identity for job in result.jobs}
    if strange := sum(trial not in runs for trial in trials):
        raise UserError(f"{counted(strange, 'trial')} of this search cannot be found among its runs: the images or the "
                        "ladder were changed meanwhile; the same command goes on with them as they are now")


def _tell_unfinished(searches: list[Search], tuned: TuneOptions, inner: Workspace, echo: Tell) -> int:
    """Say how many trials are over and how many failed: a choice without them would favour other methods."""
    trials = [trial for one in searches for trial in one.trials]
    failed = [trial for trial in trials if trial.state == "failed"]
    why = f"; {len(failed)} failed, the first: {failed[0].cause}; --retry-failed tries them again" if failed else ""
    echo(f"{sum(trial.over for trial in trials)} of {tuned.trials * len(searches)} trials are over, and nothing is "
         f"chosen before all are{why}; `oodml status --work {inner.root}` shows them")
    return len(failed)


def _left(options: SweepOptions, began: float) -> SweepOptions:
    """The options with what is left of `--budget`."""
    seconds = options.resources.seconds
    if seconds is None:
        return options
    return replace(options, resources=replace(options.resources, seconds=max(1.0, seconds - time.monotonic() + began)))


def _write(path: Path, study: Study, entries: list[dict[str, Any]], options: SweepOptions) -> None:
    """Put what was tried and chosen into the file; searches of other commands that it holds stay."""
    kept = {tuning.key(entry): entry for entry in tuning.load(path)} if path.is_file() else {}
    for entry in entries:  # those of before do not say their weights, and are done anew by now
        kept.pop(tuning.key({**entry, "weights": tuning.UNSAID}), None)
        kept[tuning.key(entry)] = entry
    write_json(path, {"schema": tuning.SCHEMA, "study": study.name, "command": options.command,
                      "searches": list(kept.values())})


def _entry(one: Search, tuned: TuneOptions, workspace: Workspace) -> dict[str, Any]:
    """What the file says of a search."""
    choice, default, held = one.choice(), one.trials[0], set(one.split.validation)
    spec = default.spec
    scores = [] if choice is None else [
        {"split": split.id, "frd": split.frd, "seed": seed,
         "tuned": _test_score(one.spec(choice.set, split.id, seed), workspace),
         "default": _test_score(one.spec({}, split.id, seed), workspace)}
        for split in one.tested for seed in range(one.seeds)]
    return {
        "dataset": spec.dataset, "method": one.method, "protocol": spec.protocol.name,
        "backbone": spec.protocol.backbone, "weights": spec.weights, "fixed": one.part.set, "metric": HEADLINE,
        "split": one.split.id, "choose_on": tuned.choose_on, "split_hash": one.split.hash,
        "ladder": [[rung.id, rung.frd] for rung in one.ladder.splits if rung.frd is not None],
        "held_out": len(held), "learnt": len(learnt(one.split, hold_out=True)),
        "tested_held_out": {str(split.id): len(held & set(split.test)) for split in one.tested},
        "sampler": tuned.sampler, "seed": tuned.seed, "budget": tuned.trials, "space": one.space,
        "trials": [{"number": trial.number, "set": trial.set, "state": trial.state, "score": trial.score,
                    "cause": trial.cause, "run": trial.spec.identity} for trial in one.trials],
        "choice": None if choice is None else choice.number, "chosen": None if choice is None else choice.set,
        "default_score": default.score, "score": None if choice is None else choice.score,
        "test": scores, "test_gain": tuning.gain_on_test(scores)[0]}


def _test_score(spec: RunSpec, workspace: Workspace) -> float | None:
    folder = spec.folder(workspace)
    return float(records.read(folder)["scores"]["last"][HEADLINE]) if (folder / records.RECORD).exists() else None
