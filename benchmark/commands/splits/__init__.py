"""`oodml splits`: builds, shows, checks, compares and pins ladders of splits."""

from __future__ import annotations

import click

from benchmark.commands import Group
from benchmark.commands.splits.building import build, import_
from benchmark.commands.splits.distances import compare, cross, measure
from benchmark.commands.splits.pinning import pin, use
from benchmark.commands.splits.showing import export, plot, show, verify


def _names() -> list[str]:
    """Datasets, whose ladders are shown, and pinned ladders."""
    from benchmark import datasets
    from splits import pinning

    return [*datasets.names(), *pinning.names()]


@click.group(cls=Group, names=_names, lister="oodml datasets")
def command() -> None:
    """Build, show, plot, check, import and export ladders of splits.

    A ladder holds several train/test splits of the classes of one dataset, from easy to hard: the Fréchet distance
    between train and test images rises from one to the next. Each of these splits is called a rung.
    """


for subcommand in (build, show, plot, verify, export, import_, measure, use, pin, cross, compare):
    command.add_command(subcommand)
