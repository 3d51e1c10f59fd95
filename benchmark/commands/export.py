"""`oodml export`: a table of the finished runs as CSV, LaTeX, Markdown, JSON, text or LaTeX macros."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.utils.workspace import Workspace, workspace_options


@click.command(name="export")
@click.option("--table", "name", default="ags", show_default=True,
              type=click.Choice(["ags", "ladder", "uml", "recall", "fewshot", "thresholds", "frozen", "wise",
                                 "structure", "runs"]),
              help="Which table.")
@click.option("--format", "form", default="csv", show_default=True,
              type=click.Choice(["csv", "latex", "md", "json", "text", "macros"]),
              help="Scores are fractions in csv and json, percent elsewhere.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric that is aggregated.")
@click.option("--records", "folders", multiple=True, type=click.Path(path_type=Path),
              help="Folder of run records, loose or packed; may be given several times [default: WORK/runs].")
@click.option("--datasets", help="Only these datasets, separated by commas.")
@click.option("--published", type=click.Choice(["shown", "ranked", "hidden"]), default="hidden", show_default=True,
              help="Rows from papers on the boards of the same datasets: shown without a rank, ranked, or left out.")
@click.option("--ladder", "ladders", multiple=True, metavar="NAME@VERSION",
              help="Runs on this pinned ladder of its dataset [default: on the newest]. May be repeated.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File [default: standard output].")
@workspace_options
def command(workspace: Workspace, name: str, form: str, metric: str, folders: tuple[Path, ...], datasets: str | None,
            published: str, ladders: tuple[str, ...], out: Path | None) -> None:
    """Write one table of the finished runs, ready to be pasted into a paper."""
    from benchmark.config import overrides
    from benchmark.data import pinned
    from reports import exports, records
    from reports.analysis.results import Results

    frame, _ = records.scan_checked(folders or (workspace.runs,), datasets.split(",") if datasets else None)
    results = Results(frame, with_published=published != "hidden", rank_published=published == "ranked",
                      derive=overrides.of_run, pinned=pinned.known(frame["dataset"]), ladders=ladders)
    text = exports.export(results, name, form, metric)
    if out is None:
        click.echo(text, nl=False)
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        click.echo(f"wrote {out}")
