"""`oodml studies`: which studies there are, and the file of one."""

from __future__ import annotations

import click


@click.group(invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the studies, or show the file of one."""
    from benchmark.config import study as studies

    if context.invoked_subcommand is None:
        for name in studies.names():
            click.echo(f"{name:22} {studies.summary(name)}")
            if items := studies.fills(name):
                click.echo(f"{'':22} fills {', '.join(items)}")
        click.echo("\n`oodml plan --study NAME` says what one costs, `oodml run --study NAME` runs it; a .toml file of "
                   "your own is given by its path.")


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """The file of a study: its parts, and what follows them."""
    from benchmark.config import study as studies
    from benchmark.config import toml

    click.echo(toml.text(studies.path_of(name)), nl=False)
