"""`oodml board`: versions of the leaderboard that can be cited and built again."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.commands import Group
from benchmark.utils.terminal import columns

HOME = Path("reports/data/boards")


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the versions of the leaderboard that papers can cite; cut one, or check that it still follows from its
    records.
    """
    if context.invoked_subcommand is None:
        _table()


def _table() -> None:
    from benchmark.board import versions

    rows = [versions.summary(path) for path in versions.files(HOME)]
    for line in columns([("version", "made by", "what it is made of"), *rows] if rows else []):
        click.echo(line)
    if rows:
        click.echo("\n`oodml board check VERSION` builds one again and says what differs; `oodml board cut VERSION "
                   "--records FOLDER` makes the next.")
    else:
        click.echo(f"no version of the leaderboard was cut in {HOME} yet; `oodml board cut v2026.1 --records FOLDER` "
                   "makes one of packed records (`oodml records pack`), `oodml report` shows the leaderboard as it is")


@command.command()
@click.argument("name", metavar="VERSION")
@click.option("--records", "folders", multiple=True, required=True, help="Folder of packed records. May be repeated.",
              type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--to", "home", default=HOME, show_default=True, type=click.Path(path_type=Path, file_okay=False),
              help="Where the file of the version goes.")
def cut(name: str, folders: tuple[Path, ...], home: Path) -> None:
    """Write down what the version v2026.1 (for example) is made of: hashes of its records, tables and pages."""
    from benchmark.board import versions

    click.echo(f"wrote {versions.cut(name, folders, home)}")


@command.command()
@click.argument("names", nargs=-1, required=True, metavar="VERSION...")
def check(names: tuple[str, ...]) -> None:
    """Build versions again from their records; the exit code is 1 where a record or a table differs.

    VERSION is one of those that `oodml board` lists, or the path of its file.
    """
    from benchmark.board import versions

    wrong = False
    for path in [versions.find(version, HOME) for version in names]:
        lines, same_pages = versions.differences(path)
        wrong |= bool(lines)
        if lines and lines[0].startswith("records: "):
            lines.append(f"it was cut from other records than these: check out its tag, {path.stem}, to build it")
        for line in lines:
            click.echo(f"{path.stem}: {line}")
        if not lines:
            click.echo(f"{path.stem}: every table is byte for byte as it was cut"
                       + (", and so is every page" if same_pages else "; pages differ, as the suite has changed"))
    raise SystemExit(1 if wrong else 0)
