"""`oodml submit`: makes a pack of one's own results for a pull request, and checks packs."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.commands import workspace_options
from benchmark.utils.workspace import Workspace
from reports.wording import byte_size


@click.command()
@click.argument("packs", nargs=-1, required=True, metavar="PACK", type=click.Path(path_type=Path))
@click.option("--check", "checked", is_flag=True,
              help="Check packs instead: recompute every score, refuse what does not follow. Writes nothing.")
@click.option("--ladder", metavar="NAME@VERSION", help="The pinned ladder, where there are results on several.")
@click.option("--card", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="What is submitted, as TOML or YAML [default: the card given to `oodml evaluate`].")
@click.option("--embeddings", is_flag=True,
              help="Put the embeddings in as well (`oodml evaluate --keep`); scores are then checked against them.")
@workspace_options
def command(workspace: Workspace, packs: tuple[Path, ...], checked: bool, ladder: str | None, card: Path | None,
            embeddings: bool) -> None:
    """Make the folder PACK of what `oodml evaluate` recorded of the method of that name, for a pull request.

    It goes to reports/data/submissions/ and holds the card, the outcome of every query, and hashes. With --check every
    score is computed again from the outcomes, and these from the embeddings where a pack has some.
    """
    if checked:
        _check(packs)
        return
    from benchmark.submissions import check as pack_check
    from benchmark.submissions import pack

    if len(packs) > 1:
        raise click.UsageError("one PACK at a time is made; --check takes several")
    path = pack.write(packs[0], workspace.runs, name=packs[0].resolve().name, ladder=ladder, card=card,
                      embeddings=embeddings, check=pack_check.problems)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    click.echo(f"wrote {path} ({byte_size(size)}); `oodml submit --check {path}` checks it as the board will")


def _check(packs: tuple[Path, ...]) -> None:
    from benchmark.submissions import check as pack_check

    wrong = 0
    for path in packs:
        found = pack_check.problems(path)
        wrong += len(found)
        for line in found or [f"{path.resolve().name}: sound"]:
            click.echo(line)
    raise SystemExit(1 if wrong else 0)
