"""`oodml diff`: what two folders of results have in common, and where they differ."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="diff")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@click.option("--against", multiple=True, type=click.Path(exists=True, path_type=Path), metavar="PUBLISHED",
              help="Folder of published records or packs: say where the pack A (`oodml submit`) would stand among them "
                   "all, as Markdown. May be repeated.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric that is compared.")
@click.option("--tolerance", type=click.FloatRange(0), default=0.0, show_default=True,
              help="Points by which a score may differ and still count as the same.")
@click.option("--format", "form", default="text", show_default=True,
              type=click.Choice(["text", "csv", "md", "latex", "json"]), help="csv and json hold the cells alone.")
def command(a: Path, b: Path | None, against: tuple[Path, ...], metric: str, tolerance: float, form: str) -> None:
    """Compare the results in the folders A and B cell by cell: what only one has, what changed, what may be the cause.

    A folder is a working folder or any folder of run records. Exit code 1 if they differ, 0 if not.
    """
    from reports import records
    from reports.analysis import differences
    from reports.tables import formats

    if against:
        _against(against, a, metric)
        return
    if b is None:
        raise click.UsageError("give two folders A and B, or a PACK and --against PUBLISHED")
    for folder in (a, b):
        _refuse_version(folder)
    homes = [folder / "runs" if (folder / "runs").is_dir() else folder for folder in (a, b)]
    sides = []
    for home in homes:
        frame, lost = records.scan_checked([home])
        sides.append(frame)
        for cause in lost.loc[lost["state"] == "damaged", "cause"]:
            click.echo(f"left out: {cause}", err=True)
    changed = differences.cells(sides[0], sides[1], metric, tolerance / 100)
    if form in ("csv", "json"):
        click.echo(formats.render(differences.cell_table(changed, metric), form), nl=False)
    else:
        means = differences.boards(sides[0], sides[1], metric, tolerance / 100)
        if len(means):
            click.echo(f"AGS of {metric}\n\n{formats.render(differences.board_table(means, metric), form)}")
        if len(changed):
            click.echo(f"Cells\n\n{formats.render(differences.cell_table(changed, metric), form)}")
        click.echo(differences.summary(changed, differences.shared(sides[0], sides[1])))
    if len(changed):
        raise SystemExit(1)


def _refuse_version(path: Path) -> None:
    """A UserError for the name of a version of the board: it has hashes of its records, its tag has the records."""
    from benchmark.board.versions import NAME
    from benchmark.utils.errors import UserError

    name = path.name.removesuffix(".json")
    if NAME.fullmatch(name) and not path.is_dir():
        records = "reports/data/records/photos"
        raise UserError(f"{path} is a version of the board, no folder of records: `git worktree add ../{name} {name}` "
                        f"checks out what it was cut from, `oodml diff ../{name}/{records} {records}` compares that "
                        "with the records here")


def _against(published: tuple[Path, ...], pack: Path, metric: str) -> None:
    """Where a pack would stand, after it was checked."""
    from benchmark.board.results import results_of
    from benchmark.submissions import check as pack_check
    from benchmark.utils.errors import UserError
    from reports import records
    from reports.analysis import study_progress
    from reports.analysis.submission import standing

    problems = pack_check.problems(pack)
    if problems:
        raise UserError("\n".join(problems))
    name = pack.resolve().name
    frame, _ = records.scan_checked([*published, pack])
    # the pack may lie among the published ones, or be the next version of one of them
    own = frame["path"].map(lambda path: pack.resolve() in Path(path).resolve().parents)
    frame = frame[own | (frame["method"] != name) | (frame["source"] != "submitted")].drop_duplicates("identity")
    ladders = sorted(set(frame.loc[frame["method"] == name, "ladder_name"].dropna()))
    results = results_of(frame, study_progress.read(published, []), ladders=ladders)
    click.echo(standing(results, name, metric))
