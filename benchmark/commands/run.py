"""`oodml run`: trains methods on the rungs of datasets."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from benchmark.commands import columns_option, listed, plugin_option, weights_option, workspace_options
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports.wording import counted

if TYPE_CHECKING:  # they bring torch along, and help must be quick
    from benchmark.config.study import Study
    from benchmark.runs.job import SweepOptions, SweepResult


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that `run`, `plan` and `tune` have in common: which runs, and what they may use."""
    for option in reversed((
        click.option("--study", metavar="NAME", help="A study of the suite, or the path of a .toml file. Methods, "
                     "datasets and backbones of its own that are named, in whatever way, narrow it to them; other "
                     "options change it."),
        click.option("--methods", metavar="LIST",
                     help="Names, globs, tag:NAME, all; a leading minus takes away. See `oodml methods`."),
        click.option("--dataset", "datasets", multiple=True, metavar="LIST",
                     help="Datasets whose ladders are run, with commas between them. May be repeated. See "
                          "`oodml datasets`."),
        click.option("--ladder", "ladders", multiple=True, metavar="NAME@VERSION",
                     help="A pinned ladder instead of a dataset: checks the local copy against it, image by image. May "
                          "be repeated. See `oodml splits use`."),
        click.option("--protocol", help="How to train [default: the dataset's own]. See `oodml protocols`."),
        click.option("--splits", metavar="IDS", help="Rungs, such as 1,3-5, or `default`, or `fixed-test` for those "
                     "of a control [default: all]."),
        click.option("--seeds", type=click.IntRange(1, 10_000), help="Number of seeds [default: the protocol's]."),
        click.option("--set", "changes", multiple=True, metavar="KEY=VALUE",
                     help="Change a key of the protocol or, as METHOD.KEY=VALUE, a method's setting. May be repeated."),
        click.option("--backbones", "--backbone", metavar="LIST",
                     help="Other backbones than the protocol's: names, NETWORK=FILE for weights of one's own, "
                          "NETWORK@mean, @gem, @max, @meanmax or @token for another pooling, @max-ln for one with a "
                          "layer norm; `generic`, `capacity` and `foundation` are lists of several."),
        weights_option,
        click.option("--batches", help="Another batch sampler than the method's own."),
        click.option("--precision", type=click.Choice(["fp32", "tf32", "bf16", "auto"]),
                     help="Arithmetic of the network. bf16 is the fastest on a GPU; tf32 is what most published code "
                          "has, float32 with products of ten bits; fp32 is exact and on a GPU the slowest, as TF32 is "
                          "off. auto: bf16 on a GPU that has it, else fp32 [default: the protocol's]."),
        click.option("--no-compile", is_flag=True, help="Do not compile the network."),
        plugin_option,
        click.option("--jobs", type=click.IntRange(1),
                     help="Worker processes on a CPU [default: one a core, at most 4], which share its cores; the last "
                          "bits of a score follow the threads of a run, which its record names. On a cluster: runs at "
                          "a time."),
        click.option("--per-gpu", metavar="N", default="1", show_default=True,
                     help="Runs at a time on one GPU, under NVIDIA's MPS where it may be started; `auto`: more while "
                          "all together get faster and memory lasts."),
        click.option("--gpus-per-run", type=click.IntRange(1), default=1, show_default=True,
                     help="GPUs of this machine that share every batch of a run; its results are those of one GPU but "
                          "for rounding."),
        click.option("--budget", metavar="TIME",
                     help="Such as 12h or 90m: one seed of everything first; when the time is over, no new run starts "
                          "and running ones stop as after Ctrl-C."),
        click.option("--executor", default="local", show_default=True, help="local, ray or slurm."),
        click.option("--ray-address", help="Address of a Ray cluster [default: one is started on this machine]."),
        click.option("--slurm", multiple=True, metavar="KEY=VALUE",
                     help="A parameter of the Slurm job array, such as partition=gpu or time=24:00:00. May be "
                          "repeated."),
        click.option("--runs-per-job", type=click.IntRange(1), default=1, show_default=True,
                     help="Runs that a job of Slurm does, --per-gpu at a time: it starts, compiles and loads images "
                          "once, which for short runs takes as long as they do."),
        click.option("--retry-failed", is_flag=True, help="Also try runs again that failed earlier."),
        click.option("--redo", is_flag=True,
                     help="Run finished and failed runs anew; their old records are kept aside in their folders."),
    )):
        command = option(command)
    return command


def calibrate_option(help: str) -> Callable[..., Any]:
    """Adds `--calibrate` to a command that shows what runs would cost."""
    return click.option("--calibrate", is_flag=True, help=help)


CHANGES = ("protocol", "changes", "batches", "precision", "no_compile")
"""Options by which runs are no longer those of their study, and neither are those of methods that it does not have
(`Study.other_methods`); others choose among them, add seeds, or are of the study on another dataset or backbone."""
SOME = ("methods", "datasets", "ladders", "splits", "backbones")
"""Options that choose some runs of a study."""


def seconds_of(text: str | None) -> float | None:
    """Seconds of a length of time.

    >>> seconds_of("1h30m"), seconds_of("90m"), seconds_of(None)
    (5400.0, 5400.0, None)
    """
    if text is None:
        return None
    match = re.fullmatch("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in "dhms"), text.strip())
    if not match or not any(match.groups()):
        raise UserError(f"--budget {text}: write a time such as 12h, 90m or 1d12h")
    return sum(float(part or 0) * unit for part, unit in zip(match.groups(), (86400, 3600, 60, 1)))


def study_of(workspace: Workspace, *, study: str | None, methods: str | None, datasets: Iterable[str],
             ladders: Iterable[str] = (), protocol: str | None, splits: str | None, seeds: int | None,
             backbones: str | None, changes: Iterable[str], batches: str | None, precision: str | None,
             no_compile: bool, plugins: Iterable[str] = (), **_: Any) -> Study:
    """The study that the options of the command line name or describe; pinned ladders are put in their place."""
    from benchmark.config import narrowing
    from benchmark.config import study as studies
    from benchmark.ladders import pinned
    from methods import load_plugin

    datasets = (*datasets, *(pinned.named(name, None, workspace) for name in ladders))

    names = (name for text in datasets for name in listed(text))
    fields: dict[str, Any] = {"methods": methods, "datasets": tuple(dict.fromkeys(names)) or None,
                              "protocol": protocol, "splits": splits, "seeds": seeds, "backbones": backbones}
    own = {"batches": batches, "precision": precision, "compile": "no" if no_compile else None}
    fields["set"] = {**_pairs("--set", changes, "epochs=3, or METHOD.KEY=VALUE for a method's own setting"),
                     **{key: value for key, value in own.items() if value}}
    if study is not None:
        for plugin in plugins:  # the study may have methods of theirs
            load_plugin(plugin)
        return narrowing.changed(studies.load(study), workspace.splits, **fields)
    for key, option in (("methods", "--methods"), ("datasets", "--dataset")):
        if not fields[key]:
            raise UserError(f"say what to run: {option} is missing (or give a --study)")
    part = studies.Part(**{key: value for key, value in fields.items() if value is not None})
    return studies.Study(",".join(fields["datasets"]), (part,))


def options_of(workspace: Workspace, *, weights_file: str | None, plugins: tuple[str, ...], executor: str,
               jobs: int | None, per_gpu: str, gpus_per_run: int, budget: str | None, ray_address: str | None,
               slurm: Iterable[str], runs_per_job: int, retry_failed: bool, redo: bool, calibrate: bool = False,
               study: str | None = None, **_: Any) -> SweepOptions:
    """The options of the command line that are not about the study, but for its name."""
    from benchmark.runs.job import Resources, SweepOptions
    from benchmark.runs.planned import study_name

    if gpus_per_run > 1 and executor != "local":
        raise UserError(f"--gpus-per-run {gpus_per_run} is of the GPUs of this machine: it needs --executor local")
    if per_gpu != "auto" and not (per_gpu.isdecimal() and 0 < int(per_gpu) < 1000):
        raise UserError(f"--per-gpu {per_gpu}: write a number of runs from 1 on, or auto")
    if per_gpu == "auto" and executor == "ray":
        raise UserError("--per-gpu auto watches the runs of one machine: it needs --executor local or slurm")
    if runs_per_job > 1 and executor != "slurm":
        raise UserError(f"--runs-per-job {runs_per_job} is of the jobs of Slurm: it needs --executor slurm")
    resources = Resources(jobs=jobs, per_gpu=0 if per_gpu == "auto" else int(per_gpu), gpus_per_run=gpus_per_run,
                          seconds=seconds_of(budget), ray_address=ray_address,
                          runs_per_job=runs_per_job, slurm=_pairs("--slurm", slurm, "partition=gpu"))
    return SweepOptions(workspace, weights_file, plugins, executor, resources, retry_failed, redo, calibrate,
                        command=_resuming(sys.argv[1:]), study=study_name(study or ""))


def _resuming(words: Iterable[str]) -> str:
    """The command as it goes on with its runs: with --redo it would set aside what it has done by then.

    >>> _resuming(["run", "--redo", "--study", "my studies/mine.toml"])
    "oodml run --study 'my studies/mine.toml'"
    """
    return shlex.join(["oodml", *(word for word in words if word != "--redo")])


def _pairs(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    """The KEY=VALUE texts of an option that may be repeated."""
    values = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UserError(f"{option} {text}: write KEY=VALUE, such as {example}")
        values[key] = value
    return values


def show(workspace: Workspace, arguments: dict[str, Any], verbose: bool = False) -> None:
    """What `plan` and `run --dry-run` do."""
    from benchmark.runs import forecast

    forecast.show(study_of(workspace, **arguments), options_of(workspace, **arguments), verbose=verbose)


@click.command()
@sweep_options
@calibrate_option("With --dry-run: measure a few steps of each kind of run.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done and what it costs, as `oodml plan`.")
@workspace_options
@columns_option
def command(workspace: Workspace, dry_run: bool, **arguments: Any) -> None:
    """Train methods on every rung of the ladders of datasets; what is done already is skipped.

    A run that was stopped resumes from its last checkpoint, saved between epochs. Ctrl-C once finishes an epoch that
    has at most 10 s left, its evaluation included, and saves it; a longer one is abandoned. Twice ends at once (exit
    code 130; 75 after SIGTERM, a cluster's warning). Runs that failed are left alone until --retry-failed.
    """
    if dry_run:
        show(workspace, arguments)
        return
    if arguments["calibrate"]:
        raise UserError("--calibrate belongs to `oodml plan` or --dry-run")
    from benchmark.runs import sweep

    study = study_of(workspace, **arguments)
    result = sweep.run(study, options_of(workspace.writable(), **arguments))
    if result.jobs and arguments["study"] and not (study.other_methods or any(arguments[key] for key in CHANGES)):
        from benchmark.board import study_progress

        study_progress.keep(study, (job.spec for job in result.jobs), arguments["study"], workspace.root,
                            whole=not any(arguments[key] for key in SOME))
    if study.after:
        from benchmark.posthoc import steps  # brings much along that most sweeps do not need

        steps.follow_all(study, result, workspace, click.echo)
    summarise(study, result, workspace, arguments["redo"])


def summarise(study: Study, result: SweepResult, workspace: Workspace, redo: bool = False) -> None:
    """Print what is left to do and the next command, and leave with the exit code of the sweep."""
    same = "same command without --redo" if redo else "same command"  # with it all would begin anew
    if result.submitted:
        click.echo(f"{counted(result.submitted, 'run is', 'runs are')} with the cluster now; `oodml status` "
                   "shows how far" + (f"; when all is done, the {same} does the rest of the study"
                                      if study.after else ""))
    waiting = result.lacking > 0 and not all(part.optional for part in study.parts)
    if result.lacking:
        what = ("run waits for the", "runs wait for the") if waiting else ("run was left out:", "runs were left out:")
        click.echo(f"{counted(result.lacking, *what)} weights that are missing")
    if result.failed:
        click.echo(f"{counted(len(result.failed), 'run')} failed; `oodml status` shows why and how to try again")
    if result.interrupted:
        click.echo(f"Stopped. The {same} resumes.")
        raise SystemExit(result.interrupted)
    if result.ended:
        click.echo(f"Ended early: {result.ended}. The {same} resumes.")
    if any(job.done for job in result.jobs):
        click.echo(f"Next: `oodml report{workspace.option()}` ranks the finished runs and makes the leaderboard")
    if result.failed or waiting or (result.ended and "--budget" not in result.ended):
        raise SystemExit(1)
