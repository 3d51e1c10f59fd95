"""`oodml protocols`: which protocols there are, and every key of one with its meaning and its source."""

from __future__ import annotations

from typing import Any

import click

from benchmark.commands import Group
from benchmark.utils.terminal import columns, value_text


def _names() -> list[str]:
    from benchmark.config import protocol

    return protocol.names()


@click.group(cls=Group, names=_names, lister="oodml protocols", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the protocols, or show one with every key, its value, its meaning and where the value comes from."""
    from benchmark.config import protocol

    if context.invoked_subcommand is None:
        for line in columns([(name, protocol.summary(name)) for name in protocol.names()]):
            click.echo(line)
        click.echo("\n`oodml protocols show NAME` explains every key; `oodml run --set KEY=VALUE` changes one; "
                   "a .toml file of your own is given by its path.")


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """Every key of a protocol (or of a .toml file): value, meaning, source."""
    from benchmark.config import protocol

    lines, summary = list(protocol.explain(name)), protocol.summary(name)
    click.echo(protocol.path_of(name).stem + (f": {summary}" if summary else ""))
    table = None
    for line in lines:
        if line.table != table:
            table = line.table
            kind, _, owner = table.partition(".")
            what = "{1} on {0}".format(*owner.split(".")) if kind == "both" else f"{kind} {owner}"
            click.echo(f"\nfor {what}:" if table else "")
        click.echo(f"  {line.key:16} {_text(line.value):22} {line.meaning}")
        if line.source and line.source != "default":
            click.echo(f"  {'':16} {'':22} source: {line.source}")
    click.echo("\nKeys without a source have the suite's default.")


def _text(value: Any) -> str:
    return "not given" if value is None else value_text(value) or ("none" if value == () else '""')
