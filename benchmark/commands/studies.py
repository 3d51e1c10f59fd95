"""`oodml studies`: which studies there are, and the file of one."""

from __future__ import annotations

import click

from benchmark.commands import Group
from benchmark.utils.terminal import columns


def _names() -> list[str]:
    from benchmark.config import study as studies

    return studies.names()


@click.group(cls=Group, names=_names, lister="oodml studies", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the studies, or show the file of one."""
    from benchmark.config import study as studies

    if context.invoked_subcommand is None:
        rows = []
        for name in studies.names():
            rows.append((name, studies.summary(name)))
            if items := studies.fills(name):
                rows.append(("", f"fills {', '.join(items)}"))
        for line in columns(rows):
            click.echo(line)
        click.echo("\n`oodml plan --study NAME` says what one costs, `oodml run --study NAME` runs it; a .toml file of "
                   "your own is given by its path.")


@command.command()
@click.argument("name")
def show(name: str) -> None:
    """The file of a study: its parts, and what follows them."""
    from benchmark.config import study as studies
    from benchmark.config import toml

    click.echo(toml.text(studies.path_of(name)), nl=False)
    studies.load(name)
