"""A sweep: from the words of `oodml run` to finished records."""

from __future__ import annotations

import sys

import click

import methods
from benchmark import datasets, images, ladders
from benchmark import protocol as protocols
from benchmark.errors import UserError
from benchmark.executors import Outcome, local
from benchmark.plan import Overrides, RunSpec, plan
from benchmark.progress import Progress
from benchmark.worker import Context
from benchmark.workspace import Workspace


def run(workspace: Workspace, *, chosen: str, dataset: str, protocol: str | None = None, splits: str | None = None,
        seeds: int | None = None, changes: tuple[str, ...] = (), backbone: str | None = None,
        weights_file: str | None = None, batches: str | None = None, plugins: tuple[str, ...] = (),
        jobs: int | None = None) -> Outcome:
    """Plan the cells, do those that are not done, say how it went."""
    for plugin in plugins:
        methods.load_plugin(plugin)
    names = methods.select(chosen)
    given = datasets.get(dataset)
    overrides = Overrides.parse(changes)
    overrides.protocol.update({key: value for key, value in (("backbone", backbone), ("batches", batches)) if value})
    name = protocol or given.protocol
    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index)
    count = seeds or protocols.load(name, dataset=index.name, overrides=overrides.protocol).seeds
    specs = plan(ladder, index.hash, names, protocol=name, seeds=range(count),
                 splits=parse_ids(splits) if splits else None, overrides=overrides, weights_file=weights_file)
    missing = [spec for spec in specs if not (spec.folder(workspace) / "record.json").exists()]
    click.echo(f"{dataset}: {len(names)} methods, {len(ladder.splits)} rungs, {count} seeds by protocol {name}: "
               f"{len(specs)} runs, {len(specs) - len(missing)} done already")
    if not missing:
        return Outcome()
    images.prepare(index, workspace.cache)
    context = Context(dataset, workspace.root.absolute(), workspace.data.absolute(), weights_file=weights_file,
                      plugins=plugins)
    progress = Progress(len(missing), sum(_epochs(spec) for spec in missing))
    try:
        return local.execute(missing, context, local.devices(jobs), progress)
    except KeyboardInterrupt:
        return Outcome(interrupted=True)
    finally:
        progress.close()
        sys.stdout.flush()


def parse_ids(text: str) -> list[int]:
    """Rungs from a list of numbers and ranges.

    >>> parse_ids("1,3-5")
    [1, 3, 4, 5]
    """
    ids: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            raise UserError(f"--splits {text}: write numbers and ranges such as 1,3-5")
        ids += range(int(first), int(last or first) + 1)
    return ids


def _epochs(spec: RunSpec) -> int:
    return int(spec.protocol["epochs"])
