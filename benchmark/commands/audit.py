"""`oodml audit`: recompute every aggregate of a table and list those that do not follow from their values."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="audit")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Show the aggregates that follow too.")
@click.option("--format", "form", default="text", show_default=True,
              type=click.Choice(["text", "csv", "md", "latex", "json"]))
def command(files: tuple[Path, ...], everything: bool, form: str) -> None:
    """Recompute the aggregates in CSV FILES, by default in the papers' tables that come with oodml.

    A ladder file has the columns dataset, metric, method, split, fid (or frd), value (or score); a file of claims
    has dataset, metric, method, ags; a union file has the rows `harmonic` or `arithmetic` in its column dataset.
    `oodml export --table ladder`, `ags` and `uml` write such files.
    """
    from reports.analysis import audit
    from reports.tables import formats

    findings = audit.audit(files or None)
    click.echo(formats.render(audit.audit_table(findings, everything), form), nl=False)
    if form == "text":
        click.echo("\n" + "\n".join(audit.summary(findings)))
