"""`oodml board`: versions of the leaderboard that can be cited and built again."""

from __future__ import annotations

from pathlib import Path

import click

HOME = Path("reports/data/boards")


@click.group()
def command() -> None:
    """Cut a version of the leaderboard that papers can cite, or check that one still follows from its records."""


@command.command()
@click.argument("name", metavar="VERSION")
@click.option("--records", "folders", multiple=True, required=True, help="Folder of packed records. May be repeated.",
              type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--to", "home", default=HOME, show_default=True, type=click.Path(path_type=Path, file_okay=False),
              help="Where the file of the version goes.")
def cut(name: str, folders: tuple[Path, ...], home: Path) -> None:
    """Write down what the version v2026.1 (for example) is made of: hashes of its records, tables and pages."""
    from benchmark.posthoc import board_version

    click.echo(f"wrote {board_version.cut(name, folders, home)}")


@command.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
def check(files: tuple[Path, ...]) -> None:
    """Build versions again from their records; the exit code is 1 where a record or a table differs."""
    from benchmark.posthoc import board_version

    wrong = False
    for path in files:
        lines, same_pages = board_version.differences(path)
        wrong |= bool(lines)
        if lines and lines[0].startswith("records: "):
            lines.append(f"it was cut from other records than these: check out its tag, {path.stem}, to build it")
        for line in lines:
            click.echo(f"{path.stem}: {line}")
        if not lines:
            click.echo(f"{path.stem}: every table is byte for byte as it was cut"
                       + (", and so is every page" if same_pages else "; pages differ, as the suite has changed"))
    raise SystemExit(1 if wrong else 0)
