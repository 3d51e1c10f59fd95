"""`oodml splits build` and `import`: how a ladder comes to be."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click

from benchmark.commands import columns_option, workspace_options
from benchmark.commands.splits.options import feature_options, ladder_options, replace_option
from benchmark.utils.errors import UserError, is_user_error
from benchmark.utils.phases import timed
from benchmark.utils.workspace import Workspace
from reports.wording import counted


def _iterations(text: str) -> list[int | str]:
    """
    >>> _iterations("-10,0,R22")
    [-10, 0, 'R22']
    """
    parts = [part.strip() for part in text.split(",")]
    wrong = [part for part in parts if not re.fullmatch(r"-?\d+|R\d+", part)]
    if wrong:
        raise click.UsageError(f"'{wrong[0]}' is no iteration: --rung-iterations takes numbers, and R with a number "
                               "for removal, as in -10,0,6,R22")
    return [part if part.startswith("R") else int(part) for part in parts]


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--dataset", multiple=True,
              help="A dataset, as NAME is; may be repeated [default: every dataset that is present].")
@click.option("--rung-iterations", metavar="LIST",
              help="Take the splits of these iterations: -10,0,6,R22 (R: removal).")
@click.option("--default-only", is_flag=True, help="The default split alone: no features, no distance.")
@click.option("--fixed-test", is_flag=False, flag_value="", default=None, metavar="[LADDER]",
              help="A control in which only the training classes move: every split has the test classes of the "
                   "ladder's hardest one, and equally many training classes. LADDER: a manifest or NAME@VERSION "
                   "[default: the ladder built without this option]. Needs a working folder of its own (--work).")
@replace_option
@ladder_options
@feature_options
@workspace_options
@columns_option
def build(workspace: Workspace, names: tuple[str, ...], dataset: tuple[str, ...], rung_iterations: str | None,
          replace: bool, **options: Any) -> None:
    """Build the ladder of a dataset, its splits from easy to hard, by swapping and removing classes.

    Of several datasets, one that gets no ladder does not keep the others from theirs.
    """
    from benchmark import datasets, ladders

    workspace.writable()
    names = tuple(dict.fromkeys(datasets.source(name, workspace.splits) for name in (*names, *dataset)))
    if not names:
        names = tuple(name for name in datasets.names() if not name.endswith(":") and name != "glyphs-mini"
                      and datasets.get(name).ladder and not datasets.get(name).members
                      and datasets.present(name, workspace.data))
    chosen = _iterations(rung_iterations) if rung_iterations else None
    failed = []
    for name in names:
        click.echo(f"{name}: building the ladder")
        try:
            if ":" in name and (note := datasets.load(name, workspace.data).note):
                click.echo(f"{name}: note: {note}")
            if warning := ladders.of_other_files(name, workspace, replace):
                click.echo(f"{name}: warning: {warning}", err=True)
            if not replace:
                ladders.refuse_other_kind(name, options["fixed_test"] is not None, workspace)
            ladder = ladders.build(name, workspace, rung_iterations=chosen, progress=_tell, **options)
            if not replace:
                ladders.refuse_to_replace(ladder.dataset, ladder, workspace)
            path = ladders.save(ladder, workspace)
        except Exception as error:
            if len(names) == 1 or not is_user_error(error):
                raise
            failed.append(name)
            click.echo(f"{name}: {error}", err=True)
            continue
        click.echo(ladders.table(ladder))
        click.echo(f"wrote {path}")
        made = ladder.dataset
    if names and len(failed) < len(names):
        named = [*(["--backbone", options["backbone"]] if options.get("backbone") else []), "--methods", "all"]
        click.echo(_next(made, named, workspace))
    if failed:
        raise UserError(f"no ladder was made for {', '.join(failed)}; the cause of each stands above")


def _next(dataset: str, words: list[str], workspace: Workspace) -> str:
    return (f"Next: `oodml run --dataset {dataset} {shlex.join(words)}{workspace.option()}` trains every method on it; "
            "`oodml plan` with the same words says what that costs")


def _tell(step: Any) -> None:
    if step.iteration % 10 == 0:
        with timed(f"report {step.kind} {step.iteration}"):
            click.echo(f"  {step.kind} {step.iteration}: distance {step.frd:.2f} over images, "
                       f"{step.frd_class_means_released:.2f} over class means")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--dataset", required=True)
@replace_option
@workspace_options
def import_(workspace: Workspace, file: Path, dataset: str, replace: bool) -> None:
    """Take over a split file released with the ooDML paper; nothing in it is run."""
    from benchmark import ladders

    imported = ladders.import_released(file, dataset, workspace.writable())
    for one, several, names in (("class is", "classes are", imported.missing_classes),
                                ("file of few-shot episodes is", "files of few-shot episodes are",
                                 imported.missing_files)):
        if names:
            click.echo(f"{counted(len(names), one, several)} not in the local copy of {dataset}: {', '.join(names[:5])}"
                       f"{' ...' if names[5:] else ''}")
    if imported.missing_files:
        click.echo("  runs do not need them; where a split lacks some, `oodml fewshot` draws its support images by a "
                   "seed")
    click.echo(ladders.table(imported.ladder))
    if imported.missing_classes:
        raise UserError(f"nothing was written, as runs would miss these classes; complete the copy of {dataset}, or "
                        "rename its class folders as the file has them")
    if not replace:
        ladders.refuse_to_replace(imported.ladder.dataset, imported.ladder, workspace)
    click.echo(f"wrote {ladders.save(imported.ladder, workspace)}")
    click.echo(_next(imported.ladder.dataset, ["--methods", "all"], workspace))
