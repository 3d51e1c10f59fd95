"""`oodml methods`: which methods there are, what each is and where its settings come from, checks, the toy figure."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmark.commands import Group, plugin_option
from benchmark.utils.terminal import columns, value_text
from reports.wording import counted

if TYPE_CHECKING:
    from methods import Entry


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

    _load(plugins)
    entry = methods.get(name)
    click.echo(f"{entry.name}  ({entry.family}; {', '.join((*entry.papers, *entry.tags)) or 'no paper'})\n")
    click.echo(inspect.cleandoc(entry.declared.__doc__ or "") + "\n")
    click.echo(f"trains: {entry.trains}")
    click.echo(f"batches: {entry.batches}\n")
    _settings(entry)
    if entry.base is not None:
        click.echo(f"on the objective {entry.base.name}: {entry.base.summary}")
        _settings(entry.base)
    _space(entry)
    _against_protocols(entry)
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


def _settings(entry: Entry) -> None:
    """One line for each setting: value, datasets and protocols that differ, source."""
    import dataclasses

    from benchmark.config import protocol

    fields = dataclasses.fields(entry.declared.Settings)  # type: ignore[attr-defined]
    changed = {name: protocol.settings_of(name, entry) for name in protocol.names()}
    own = entry.settings()
    if not fields:
        click.echo("no settings\n")
        return
    click.echo(f"settings (--set {entry.name}.{fields[0].name}=VALUE):")
    for field in fields:
        differing = {**field.metadata.get("per_dataset", {}), **{
            f"protocol {name}": there[field.name] for name, there in changed.items() if field.name in there}}
        others = ", ".join(f"{name} {value_text(value)}" for name, value in differing.items())
        value = value_text(getattr(own, field.name)) + (f" ({others})" if others else "")
        click.echo(f"  {field.name:18} {value:42} {field.metadata.get('source', '')}")
    click.echo()


def _space(entry: Entry) -> None:
    """What `oodml tune` searches."""
    from benchmark.config import search

    if entry.trains != "nothing":
        click.echo("searched by `oodml tune`:\n"
                   f"  {'lr':28} the protocol's / {search.LR_FACTOR:g} to x {search.LR_FACTOR:g}, log-uniform")
        for key, values in entry.space().items():
            click.echo(f"  {key:28} {search.described(values)}")
        click.echo()


def _against_protocols(entry: Entry) -> None:
    """What the method does otherwise than each protocol's general keys say, or says by its own rates."""
    from benchmark.config import protocol

    lines = []
    for name in protocol.names():
        general = protocol.load(name)
        special = protocol.load(name, method=entry.name, tags=entry.kinds)
        changes = [f"{key} {value_text(value)} instead of {value_text(getattr(general, key))}"
                   for key, value in vars(special).items() if value != getattr(general, key)]
        objective = entry.objective
        if objective is not None:
            there = vars(objective.settings(**protocol.settings_of(name, objective)))
            own = vars(entry.settings(**protocol.settings_of(name, entry)))
            rates = {key: value for key, value in entry.as_trained({**own, **there}).items()
                     if key.endswith("_rate") and key in there}
            changes += [f"{key} {value_text(value)} times lr: {value_text(value * special.lr)}"
                        for key, value in rates.items() if value != 1]
        if special.batches and special.batches != entry.batches:
            changes.append(f"the protocol's batches {special.batches} replace {entry.batches}")
        lines.append(f"  {name:12} {'; '.join(changes) or 'its defaults'}")
    click.echo("against the protocols' defaults:\n" + "\n".join(lines) + "\n")


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
    from benchmark.utils.errors import UserError
    from methods.parts import toy as examples

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
    _draw(outcomes, out)
    click.echo(f"wrote {out}")


def _draw(outcomes: dict[tuple[str, str], dict[float, Any]], out: Path) -> None:
    """One row for each example and objective: the data, the embedding for each p, the singular values."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from methods.parts import toy as examples

    def scatter(axis: Any, dots: Any, crosses: Any, labels: Any, others: Any) -> None:
        axis.scatter(*dots.T, c=labels, cmap="tab10", vmin=0, vmax=9, s=14, marker="o")
        axis.scatter(*crosses.T, c=others + 4, cmap="tab10", vmin=0, vmax=9, s=14, marker="x")

    rows, shares = len(outcomes), len(next(iter(outcomes.values())))
    figure, axes = plt.subplots(rows, shares + 2, figsize=(3.25 * (shares + 2), 3.2 * rows), squeeze=False,
                                layout="constrained")
    for row, ((name, objective), trained) in zip(axes, outcomes.items()):
        known, unknown = examples.EXAMPLES[name]()
        scatter(row[0], known.points, unknown.points, known.labels, unknown.labels)
        row[0].set_title(f"{name}: training (dots), test (crosses)")
        for axis, (p, outcome) in zip(row[1:], trained.items()):
            # the test lines on a wider circle, so that neither hides the other
            scatter(axis, outcome.train, 1.15 * outcome.test, known.labels, unknown.labels)
            title = f"{objective}, switching with p = {p:g}" if p else objective
            axis.set(title=title, xlim=(-1.3, 1.3), ylim=(-1.3, 1.3), aspect="equal")
        width = 0.8 / shares
        for number, (p, outcome) in enumerate(trained.items()):
            shift = (number - (shares - 1) / 2) * width
            row[-1].bar([1 + shift, 2 + shift], outcome.spectrum.tolist(), width, label=f"p = {p:g}")
        row[-1].set(title="singular values, training", xticks=[1, 2])
        row[-1].legend()
    figure.savefig(out, dpi=150)
    plt.close(figure)
