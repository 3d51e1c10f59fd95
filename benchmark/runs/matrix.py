"""The matrix of a study: its runs in the order in which they are done, their states, and what cannot be done."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

import methods
from benchmark import datasets, ladders
from benchmark.config import protocol as protocols
from benchmark.config.naming import backbone_with_file
from benchmark.config.plan import Overrides, fitting, plan
from benchmark.config.spec import RunSpec, told_apart
from benchmark.config.study import Part, Study
from benchmark.data import contents
from benchmark.data.store import fits_earlier
from benchmark.data.task import Side
from benchmark.datasets import DatasetIndex
from benchmark.datasets.reading import NotThere
from benchmark.ladders import origin, rungs
from benchmark.runs import status
from benchmark.runs.job import Job, RunContext, SweepOptions
from benchmark.runs.planned import PlannedRun
from benchmark.runs.status import RunState
from benchmark.utils.errors import UserError, near
from benchmark.utils.files import write_json
from benchmark.utils.workspace import Workspace
from methods import backbones
from reports.storage import paths
from splits.manifest import Ladder, Split


@dataclass
class Matrix:
    """The runs of a study in the order in which they are done, and what of it cannot be done."""

    jobs: list[Job] = field(default_factory=list)
    states: dict[str, RunState] = field(default_factory=dict)
    """State by identity."""
    ladders: dict[str, Ladder] = field(default_factory=dict)
    """By dataset, as they are now."""
    indexes: dict[str, DatasetIndex] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Lines for the user: methods that cannot be done, and why."""
    warnings: list[str] = field(default_factory=list)
    """Lines for the user: what to know of ladders."""

    def of(self, *kinds: str) -> list[Job]:
        """The runs in a state of one of these kinds."""
        return [job for job in self.jobs if self.states[job.spec.identity].kind in kinds]

    def split(self, spec: RunSpec) -> Split:
        """The rung of one of its runs."""
        return self.ladders[spec.dataset].split(spec.split)

    @property
    def remarks(self) -> list[str]:
        """What the user should know of it, one line each."""
        return [*(f"warning: {line}" for line in self.warnings), *self.left_out]

    @property
    def planned(self) -> list[PlannedRun]:
        """Its runs with their states, as `runs.planned` lists and compares them."""
        return [PlannedRun(job.spec, job.folder, self.states[job.spec.identity], "") for job in self.jobs]


def check_names(study: Study, plugins: Iterable[str]) -> None:
    """Run plug-ins, then tell of a mistyped method or protocol, which is before a ladder is asked for."""
    for plugin in plugins:
        methods.load_plugin(plugin)
    for part in study.parts:
        methods.select(part.methods)
        if part.protocol:
            protocols.path_of(part.protocol)


def gather(study: Study, options: SweepOptions, seeds: Sequence[int] | None = None) -> Matrix:
    """The runs of a study with their states; `seeds`: these, instead of the first of each part.

    Dataset by dataset, so that its images stay in memory, and within one a seed of everything first; where the time is
    limited, a seed of everything of all datasets first. A dataset that cannot be read is a UserError (`NotThere` where
    nothing else is wrong than that some are not there), and so is a step of the study on a dataset that it has no runs
    on.
    """
    check_names(study, options.plugins)
    found = _Gathered(study, options, seeds)
    for part in study.parts:
        for name in part.datasets:
            found.add(part, name)
    if found.problems:
        kind = UserError if UserError in found.problems.values() else NotThere
        raise kind("\n".join(found.problems))
    _check_steps(study, options.workspace, found.contents)
    matrix = found.matrix
    matrix.left_out = [f"left out on {dataset}: {', '.join(names)}: {reason}"
                       for (dataset, reason), names in found.unfit.items()]
    labels = told_apart(job.spec for job in found.jobs.values())
    matrix.jobs = _in_order([replace(job, told=labels[identity]) for identity, job in found.jobs.items()],
                            by_dataset=options.resources.seconds is None)
    matrix.states = {job.spec.identity: status.look(job.folder) for job in matrix.jobs}
    return matrix


def _in_order(jobs: Collection[Job], by_dataset: bool) -> list[Job]:
    """A seed of everything first, dataset by dataset or of all datasets."""
    places = {dataset: place for place, dataset in enumerate(dict.fromkeys(job.spec.dataset for job in jobs))}
    return sorted(jobs, key=lambda job: (places[job.spec.dataset] if by_dataset else 0, job.spec.seed))


@dataclass
class _Gathered:
    """What is known of a study's runs so far."""

    study: Study
    options: SweepOptions
    seeds: Sequence[int] | None
    matrix: Matrix = field(default_factory=Matrix)
    jobs: dict[str, Job] = field(default_factory=dict)
    """By identity: parts may ask for the same run."""
    contents: dict[str, str] = field(default_factory=dict)
    """What the files of each dataset contain, `run_contents`."""
    problems: dict[str, type[UserError]] = field(default_factory=dict)
    unfit: dict[tuple[str, str], dict[str, None]] = field(default_factory=dict)
    """The methods that fit no backbone they would get, by (dataset, reason)."""

    def add(self, part: Part, name: str) -> None:
        """The runs of a part on one of its datasets."""
        options, splits = self.options, self.options.workspace.splits
        dataset = datasets.resolved(name, splits)
        try:
            index, ladder = self.opened(dataset, datasets.meant(name, splits) not in self.with_ladders, part.needs)
        except (UserError, OSError) as error:
            self.problems[str(error)] = NotThere if isinstance(error, NotThere) else UserError
            return
        context = RunContext(dataset, options.workspace.root.absolute(), options.workspace.data.absolute(),
                             weights_file=options.weights_file and _absolute(options.weights_file),
                             plugins=tuple(map(_absolute, options.plugins)), command=options.command)
        if dataset not in self.contents:
            self.contents[dataset] = run_contents(index, options.workspace)
            if stale := origin.of_other_images(ladder, index, options.workspace):
                self.matrix.warnings.append(stale)
        specs = self.specs(part, dataset, index, ladder, context.weights_file)
        for spec, file in specs:
            self.jobs.setdefault(spec.identity, Job(spec, replace(context, weights_file=file)))
        for split in {spec.split for spec, _ in specs}:
            if why := Side.of(index, ladder.split(split).test).unmatched:
                told = f"split {split} of {dataset}: {why}; nothing could be measured, add images"
                self.problems[told] = UserError

    @cached_property
    def with_ladders(self) -> set[str]:
        """The datasets of which more than the default split is asked for."""
        return {datasets.meant(name, self.options.workspace.splits) for part in self.study.parts
                if part.splits != "default" for name in part.datasets}

    def opened(self, dataset: str, default_only: bool, needs: str) -> tuple[DatasetIndex, Ladder]:
        """A dataset and its ladder, read once."""
        if dataset not in self.matrix.indexes:
            self.matrix.indexes[dataset] = datasets.load(dataset, self.options.workspace.data)
        index = self.matrix.indexes[dataset]
        ladder = ladders.load(self.options.workspace, dataset, index, default_only, needs)
        self.matrix.ladders[index.name] = ladder
        return index, ladder

    def specs(self, part: Part, dataset: str, index: DatasetIndex, ladder: Ladder,
              weights_file: str | None) -> list[tuple[RunSpec, str | None]]:
        """The runs of a part on one dataset, each with the file of its weights if one was given."""
        name = part.protocol or datasets.get(dataset).protocol
        chosen = with_files(part.backbones) if part.backbones else {None: None}
        if weights_file and (len(chosen) > 1 or any(chosen.values())):
            raise UserError("--weights is the file of one backbone; for several put them into a folder, each named "
                            "like its timm tag, and set OODML_WEIGHTS to that folder")
        made = []
        for backbone, own in chosen.items():
            file = own or weights_file
            for changes in part.variations():
                overrides = Overrides.of({**part.set, **changes, **({"backbone": backbone} if backbone else {})})
                count = part.seeds or protocols.load(name, dataset=index.name, overrides=overrides.protocol).seeds
                names, reasons = fitting(methods.select(part.methods), index.name, name, overrides)
                for method, reason in reasons.items():
                    self.unfit.setdefault((index.name, reason), {})[method] = None
                asked = (_seeds(part, ladder, count) if self.seeds is None else
                         {split.id: self.seeds for split in ladder.splits})
                planned = plan(ladder, index.hash, names, protocol=name, seeds=sorted(set().union(*asked.values())),
                               splits=rungs.ids(part.splits, ladder, part.needs), overrides=overrides,
                               weights_file=file, contents=self.contents[dataset])
                made += [(spec, file) for spec in planned if spec.seed in asked[spec.split]]
        return made


def _check_steps(study: Study, workspace: Workspace, known: Collection[str]) -> None:
    """A UserError where a step of the study is on none of the datasets `known`: now, not after days of training."""
    meant = partial(datasets.meant, splits=workspace.splits)
    for step in study.after:
        for name in step.get("datasets", ()):
            if meant(name) not in map(meant, known):
                raise UserError(f"study {study.name}: the step {step['step']} is on {name}{near(name, known)}, and no "
                                f"run is; the runs are on {', '.join(known)}: name one of these under [[after]], or "
                                f"add {name} to the datasets of a part")


def run_contents(index: DatasetIndex, workspace: Workspace) -> str:
    """What the files of a dataset contain, as the specs of its runs here name it; '' where images are drawn.

    Earlier versions did not name it. Where runs of theirs are of the same list, and as far as can be told of the same
    files, these and further runs on these files go on without; `runs/NAME/contents.json` says which files these are.
    """
    found = contents.contents(index, workspace.cache, progress=True)
    if not found:
        return ""
    claim = workspace.runs / paths.plain(index.name, "dataset") / "contents.json"
    if not claim.is_file():
        specs = map(RunSpec.read, claim.parent.glob("*/*/s*/"))
        if any(one and one.dataset_hash == index.hash and not one.contents for one in specs) \
                and fits_earlier(index, workspace.cache):
            write_json(claim, {"index": index.hash, "contents": found})
    try:
        claimed = json.loads(claim.read_text(encoding="utf-8"))
        return "" if (claimed["index"], claimed["contents"]) == (index.hash, found) else found
    except (OSError, ValueError, KeyError, TypeError):
        return found


def _seeds(part: Part, ladder: Ladder, usual: int) -> dict[int, Sequence[int]]:
    """The seeds of each split of the ladder in a part; the default split may be all of a ladder that is not built."""
    counts = {split.id: usual for split in ladder.splits}
    for text, more in part.more_seeds.items():
        for number in rungs.ids(text, ladder, option="more_seeds"):
            if number not in counts and part.splits == "default":
                continue
            if number not in counts:
                raise UserError(f'more_seeds = {{ "{text}" = {more} }}: {ladder.dataset} has no split {number}; '
                                "--seeds says for all splits how many")
            counts[number] = max(counts[number], more)
    return {number: range(count) for number, count in counts.items()}


def with_files(text: str) -> dict[str | None, str | None]:
    """The backbones of a list, each with the file of its weights where it was written NETWORK=FILE."""
    chosen: dict[str | None, str | None] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, file = backbone_with_file(entry)
        if not file:
            chosen |= dict.fromkeys(backbones.select(entry))
            continue
        if not Path(file).exists():
            raise UserError(f"--backbones {entry}: there is no file {file}; write NETWORK=FILE, such as "
                            "resnet50=weights/mine.safetensors")
        if name in chosen and chosen[name] != _absolute(file):
            raise UserError(f"--backbones: two files of {name.partition(':')[0]} are called {Path(file).stem}; rename "
                            "one of them")
        chosen |= {one: _absolute(file) for one in backbones.select(name)}
    return chosen or dict.fromkeys(backbones.select(text))


def _absolute(name: str) -> str:
    """A file by its whole path, as a `RunContext` has it; other names stay as they are."""
    return str(Path(name).absolute()) if Path(name).exists() else name


