"""`oodml run`: trains methods on the rungs of datasets."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Any

import click

from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace, workspace_options


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds what `run` and `plan` have in common: which cells, and what they may use."""
    for option in reversed((
        click.option("--study", metavar="NAME", help="A study of the suite, or the path of a .toml file; the other "
                                                     "options change it."),
        click.option("--methods", "chosen", metavar="LIST",
                     help="Names, globs, tag:NAME, all; a leading minus takes away. See `oodml methods`."),
        click.option("--dataset", "chosen_datasets", multiple=True, metavar="LIST",
                     help="Datasets whose ladders are run, with commas between them. May be repeated. See "
                          "`oodml datasets`."),
        click.option("--protocol", help="How to train [default: the dataset's own]. See `oodml protocols`."),
        click.option("--splits", metavar="IDS", help="Rungs, such as 1,3-5, or `default` [default: all]."),
        click.option("--seeds", type=click.IntRange(1), help="Number of seeds [default: the protocol's]."),
        click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
                     help="Change a key of the protocol or, as METHOD.KEY=VALUE, a method's setting. May be repeated."),
        click.option("--backbones", "--backbone", metavar="LIST",
                     help="Other backbones than the protocol's; `generic` and `capacity` are lists of several."),
        click.option("--weights", "weights_file", help="Weights of the backbone: safetensors, a torch state dict, a "
                     "finished run's folder, or `scratch` for none."),
        click.option("--batches", help="Another batch sampler than the method's own."),
        click.option("--precision", type=click.Choice(["fp32", "bf16", "auto"]), help="Arithmetic of the network."),
        click.option("--no-compile", is_flag=True, help="Do not compile the network."),
        click.option("--plugin", "plugins", multiple=True,
                     help="A Python file that registers methods; it is run: load only what you trust."),
        click.option("--jobs", type=click.IntRange(1),
                     help="Worker processes on a CPU [default: one a core, at most 4]; on a cluster: cells at a time."),
        click.option("--per-gpu", type=click.IntRange(1), default=1, show_default=True,
                     help="Cells at a time on one GPU."),
        click.option("--budget", metavar="TIME",
                     help="Such as 12h or 90m: one seed of everything first; when the time is over, no new cell starts "
                          "and running ones stop as after Ctrl-C."),
        click.option("--executor", default="local", show_default=True, help="local, ray or slurm."),
        click.option("--ray-address", help="Address of a Ray cluster [default: one is started on this machine]."),
        click.option("--slurm", multiple=True, metavar="KEY=VALUE",
                     help="A parameter of the Slurm job array, such as partition=gpu or time=24:00:00. May be "
                          "repeated."),
        click.option("--retry-failed", is_flag=True, help="Also try cells again that failed earlier."),
        click.option("--calibrate", is_flag=True,
                     help="With plan or --dry-run: measure a few steps of each kind of cell."),
    )):
        command = option(command)
    return command


def seconds_of(text: str | None) -> float | None:
    """Seconds of a length of time.

    >>> seconds_of("1h30m"), seconds_of("90m"), seconds_of(None)
    (5400.0, 5400.0, None)
    """
    if text is None:
        return None
    found = re.fullmatch("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in "dhms"), text.strip())
    if not found or not any(found.groups()):
        raise UserError(f"--budget {text}: write a time such as 12h, 90m or 1d12h")
    return sum(float(part or 0) * unit for part, unit in zip(found.groups(), (86400, 3600, 60, 1)))


def study_of(arguments: dict[str, Any]) -> Any:
    """The study that the options name or describe; takes its options out of `arguments`."""
    from benchmark.config import study

    given = {"methods": arguments.pop("chosen"), "protocol": arguments.pop("protocol"),
             "splits": arguments.pop("splits"), "seeds": arguments.pop("seeds"),
             "backbones": arguments.pop("backbones")}
    # the colon of `union:a,b` begins a list of its own
    named = (name for text in arguments.pop("chosen_datasets")
             for name in ([text] if ":" in text else filter(None, text.split(","))))
    given["datasets"] = tuple(dict.fromkeys(named)) or None
    changes = _pairs("--set", arguments.pop("changes"), "epochs=3, or METHOD.KEY=VALUE for a method's own setting")
    for key in ("batches", "precision"):
        value = arguments.pop(key)
        if value:
            changes[key] = value
    if arguments.pop("no_compile"):
        changes["compile"] = "no"
    name = arguments.pop("study")
    if name is None:
        for key, option in (("methods", "--methods"), ("datasets", "--dataset")):
            if not given[key]:
                raise UserError(f"say what to run: {option} is missing (or give a --study)")
        part = study.Part(given["datasets"], given["methods"])
        return study.Study(",".join(given["datasets"]), (part,)).changed(**given, set=changes)
    return study.load(name).changed(**given, set=changes)


def _pairs(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """The KEY=VALUE texts of an option that may be repeated."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {text}: write KEY=VALUE, such as {example}")
        found[key] = value
    return found


def resources_of(arguments: dict[str, Any]) -> Any:
    """What the sweep may use; takes its options out of `arguments`."""
    from benchmark.runs.job import Resources

    slurm = _pairs("--slurm", arguments.pop("slurm"), "partition=gpu")
    return Resources(jobs=arguments.pop("jobs"), per_gpu=arguments.pop("per_gpu"),
                     seconds=seconds_of(arguments.pop("budget")), slurm=slurm,
                     ray_address=arguments.pop("ray_address"))


def show(workspace: Workspace, arguments: dict[str, Any]) -> None:
    """What `plan` and `run --dry-run` do."""
    from benchmark.runs import executors, matrix, sweep

    executors.get(arguments.pop("executor"))
    study, resources = study_of(arguments), resources_of(arguments)
    places = matrix.Places(workspace, arguments["weights_file"], arguments["plugins"])
    sweep.show(matrix.gather(study, places, breadth=resources.seconds is not None), places, resources,
               calibrate=arguments["calibrate"], retry_failed=arguments["retry_failed"])


@click.command()
@sweep_options
@click.option("--dry-run", is_flag=True, help="Only say what would be done and what it costs, as `oodml plan`.")
@workspace_options
def command(workspace: Workspace, dry_run: bool, **arguments: Any) -> None:
    """Train methods on every rung of the ladders of datasets; what is done already is skipped.

    A run that was stopped goes on from its last checkpoint, saved between epochs. Ctrl-C once finishes an epoch that
    has at most 10 s left, its evaluation included, and saves it; a longer one is left. Twice ends at once (exit code
    130; 75 after SIGTERM, a cluster's warning). Cells that failed are left alone until --retry-failed.
    """
    if dry_run:
        show(workspace, arguments)
        return
    if arguments.pop("calibrate"):
        raise UserError("--calibrate belongs to `oodml plan` or --dry-run")
    from benchmark.runs import sweep
    from benchmark.runs.matrix import Places

    study, resources = study_of(arguments), resources_of(arguments)
    places = Places(workspace.writable(), arguments["weights_file"], arguments["plugins"])
    outcome = sweep.run(study, places, executor=arguments["executor"], resources=resources,
                        retry_failed=arguments["retry_failed"], command=shlex.join(["oodml", *sys.argv[1:]]))
    if study.after:
        from benchmark.posthoc import steps  # brings much along that most sweeps do not need

        steps.follow_all(study, outcome, workspace, click.echo)
    if outcome.submitted:
        click.echo(f"{outcome.submitted} cells are with the cluster now; `oodml status` tells how they fare"
                   + ("; when they are done, the same command does the rest of the study" if study.after else ""))
    if outcome.lacking:
        click.echo(f"{outcome.lacking} cells wait for the weights that are missing")
    if outcome.failed:
        click.echo(f"{len(outcome.failed)} cells failed; `oodml status` tells why and how to try again")
    if outcome.interrupted:
        click.echo("Stopped. The same command goes on from here.")
        raise SystemExit(outcome.interrupted)
    if outcome.ended:
        click.echo(f"Ended early: {outcome.ended}. The same command goes on from here.")
    if outcome.failed or outcome.lacking or (outcome.ended and "--budget" not in outcome.ended):
        raise SystemExit(1)
