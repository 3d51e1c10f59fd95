"""Options that several commands of `oodml splits` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from benchmark.commands import device_option, weights_option


def dataset_argument(needed: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the dataset whose ladder a command is about: NAME as in `oodml datasets show NAME`, or after --dataset.

    The function gets it as `dataset`.
    """
    def adding(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("name", required=False, metavar="NAME" if needed else "[NAME]")
        @click.option("--dataset", help="The dataset, as NAME is.")
        @functools.wraps(function)
        def with_it(*words: Any, name: str | None, dataset: str | None, **options: Any) -> Any:
            if name and dataset and name != dataset:
                raise click.UsageError(f"two datasets are named, {name} and {dataset}: give one")
            if needed and not (name or dataset):
                raise click.UsageError("name a dataset (`oodml datasets` lists them)")
            return function(*words, dataset=name or dataset, **options)

        return with_it

    return adding


def feature_options(function: Any) -> Any:
    for option in (
        device_option,
        weights_option,
        click.option("--backbone", help="Network whose features the distance uses "
                                        "[default: resnet50; efficientnet_lite0 for embedded data]."),
    ):
        function = option(function)
    return function


def ladder_options(function: Any) -> Any:
    for option in (
        click.option("--seed", type=int, default=0, help="Of the validation classes and the i.i.d. draws."),
        click.option("--rerank", is_flag=True, help="Rank anew after every single exchange."),
        click.option("--removal/--no-removal", default=True, help="Remove classes once swapping no longer helps.",
                     show_default=True),
        click.option("--reverse/--no-reverse", default=None,
                     help="Also splits easier than the default one [default: if that is far from i.i.d.]."),
        click.option("--iterations", type=click.IntRange(1), help="A fixed number of swap iterations."),
        click.option("--swaps", "swaps_per_iteration", type=click.IntRange(1), help="Classes exchanged an iteration."),
        click.option("--rungs", type=click.IntRange(2),
                     help="Number of rungs, the splits of the ladder [default: 8, or 9 with --reverse]."),
    ):
        function = option(function)
    return function


replace_option = click.option("--replace", is_flag=True, help="Replace a ladder that runs stand on; it is kept in "
                                                              "WORK/splits/replaced.")
out_option = click.option("--out", type=click.Path(file_okay=False, path_type=Path),
                          help="Folder [default: WORK/splits].")
