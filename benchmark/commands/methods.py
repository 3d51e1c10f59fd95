"""`oodml methods`: which methods there are, what each is and where its settings come from, checks, the toy figure."""

from __future__ import annotations

import inspect
from pathlib import Path

import click

from benchmark.commands import Group, plugin_option
from benchmark.utils.terminal import columns
from reports.wording import counted


def _names() -> list[str]:
    import methods

    return methods.names()


@click.group(cls=Group, names=_names, lister="oodml methods", invoke_without_command=True)
@plugin_option
@click.option("--tag", default=None, help="Only methods with this tag, family or paper.")
@click.pass_context
def command(context: click.Context, plugins: tuple[str, ...], tag: str | None) -> None:
    """List the methods, or show one with its formula, settings and citation."""
    _load(plugins)
    if context.invoked_subcommand is None:
        _table(tag)


def _load(plugins: tuple[str, ...]) -> None:
    if plugins:  # for the help of what follows nothing heavy may be imported
        import methods

        for plugin in plugins:
            methods.load_plugin(plugin)


def _table(tag: str | None) -> None:
    import methods
    from benchmark.utils.errors import UserError, near

    listed = [methods.get(name) for name in methods.names(tag)]
    if not listed:
        raise UserError(f"no method has the tag '{tag}'{near(str(tag), methods.tags())}; `oodml methods` lists all "
                        "with their families and papers")
    rows = [("name", "family", "papers", "trains", "what it is")]
    rows += [(entry.name, entry.family, " ".join(entry.papers) or "-",
              f"{entry.trains} ({entry.default_base})" if entry.default_base else entry.trains, entry.summary)
             for entry in listed]
    for line in columns(rows):
        click.echo(line)
    click.echo(f"\n{counted(len(listed), 'method')}. `oodml methods show NAME` has the formula, the "
               "settings with their sources and the citation; NAME:BASE puts a method that builds on an objective on "
               "another one.")


@command.command()
@click.argument("name")
@plugin_option
def show(name: str, plugins: tuple[str, ...]) -> None:
    """Formula, settings with their sources, difference from the protocols' defaults, and BibTeX of one method."""
    import methods
    from benchmark.config import explained

    _load(plugins)
    entry = methods.get(name)
    click.echo(f"{entry.name}  ({entry.family}; {', '.join((*entry.papers, *entry.tags)) or 'no paper'})\n")
    click.echo(inspect.cleandoc(entry.declared.__doc__ or "") + "\n")
    click.echo(f"trains: {entry.trains}")
    click.echo(f"batches: {entry.batches}\n")
    told = [[*explained.settings(entry)]]
    if entry.base is not None:
        told.append([f"on the objective {entry.base.name}: {entry.base.summary}", *explained.settings(entry.base)])
    for lines in filter(None, [*told, [*explained.space(entry)], [*explained.against_protocols(entry)]]):
        click.echo("\n".join(lines) + "\n")
    if entry.cite:
        click.echo(entry.cite)


@command.command()
@click.argument("targets", nargs=-1, required=True, metavar="FILE|NAME...")
@click.option("--traceback", "whole", is_flag=True, help="Show where in the code each failed check stopped.")
def check(targets: tuple[str, ...], whole: bool) -> None:
    """Put methods through the conformance suite: those that a Python FILE registers (it is run), or by NAME.

    One line for each check; the exit code is 1 if one failed. NAME may be a list, a glob, tag:X or all.
    """
    import traceback

    import methods
    from methods.checks import check_method

    names = [name for target in targets for name in (
        methods.load_plugin(target) if target.endswith(".py") or Path(target).is_file() else methods.select(target))]
    failed = 0
    for name in dict.fromkeys(names):
        for result in check_method(methods.get(name)):
            title = result.check.replace("_", " ")
            click.echo(f"ok    {name}: {title}" if result.passed else f"FAIL  {name}: {title}: {result.reason}")
            if whole and result.error is not None:
                click.echo("".join(traceback.format_exception(result.error)))
            failed += not result.passed
    click.echo(f"{failed} failed" if failed else "all passed")
    if failed:
        raise click.exceptions.Exit(1)


@command.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("toy.png"), show_default=True,
              help="Where the figure goes; the ending (.png, .svg, .pdf) says how.")
@click.option("--p", type=click.FloatRange(0, 1), default=0.4, show_default=True,
              help="Probability of a switched tuple.")
@click.option("--seed", default=0, show_default=True, help="Start of the networks and order of the points.")
def toy(out: Path, p: float, seed: int) -> None:
    """Draw the 2-d examples of Revisiting DML: embeddings with and without rho-regularisation, singular values.

    Drawn are no switching, the p = 0.001 of its appendix E, and --p. The printed p changes nothing that can be seen:
    it switches 5 of the 4,800 tuples of a training. Over 10 seeds, a training line of the vertical example has length
    .0010 without it and .0010 with it (contrastive loss, as printed), .057 and .055 (margin loss); with p = 0.4 it has
    .0048 and .278.
    """
    from benchmark.training import toy as examples
    from benchmark.training import toy_figure
    from benchmark.utils.errors import UserError

    if out.suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"{out}: the figure can be .png, .svg or .pdf")
    shares = tuple(dict.fromkeys((0.0, examples.PRINTED, p)))
    outcomes = {}
    for name in examples.EXAMPLES:
        for objective in examples.OBJECTIVES:
            trained = {q: examples.train(name, q, objective=objective, seed=seed) for q in shares}
            outcomes[name, objective] = trained
            click.echo(f"{name:9} {objective:12} " + "; ".join(
                f"p = {q:g}: second singular value {float(one.spectrum[1]):.3f}, length of a training line "
                f"{one.spread:.4f}, gap between test lines {one.gap:.4f}" for q, one in trained.items()))
    toy_figure.draw(outcomes, out)
    click.echo(f"wrote {out}")
