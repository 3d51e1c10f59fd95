"""`oodml export`: a table of the finished runs in many formats; badges, and files for the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

import click

from benchmark.commands import ladders_option, own_names, published_option, records_option, workspace_options
from benchmark.utils.workspace import Workspace


@click.command(name="export")
@click.option("--table", "name", default="ags", show_default=True,
              type=click.Choice(["ags", "ladder", "uml", "recall", "fewshot", "thresholds", "frozen", "wise",
                                 "structure", "tuning", "trials", "runs", "queries"]),
              help="Which table.")
@click.option("--format", "form", default="csv", show_default=True,
              type=click.Choice(["csv", "latex", "md", "json", "text", "macros", "parquet", "pgfplots", "bib"]),
              help="Scores are fractions in csv, json and parquet, percent elsewhere; parquet needs --out; pgfplots "
                   "draws the curves of --table ladder, bib has the methods' BibTeX.")
@click.option("--to", "place", type=click.Choice(["huggingface", "badges"]),
              help="Instead, in the folder --out: evaluation files of models, or badges with rank and AGS.")
@click.option("--hub", default="oodml", show_default=True, metavar="NAME",
              help="With --to huggingface: the organisation below which the datasets are named.")
@click.option("--methods", "chosen", default="all", show_default=True, metavar="LIST",
              help="Only runs of these, as if there were no others: names, globs; a leading minus takes away. Rows of "
                   "papers stay.")
@click.option("--columns", default="all", show_default=True, metavar="LIST",
              help="Columns by their headings and in this order, such as rank,method,ags; globs; a leading minus takes "
              "away.")
@click.option("--metric", default="recall@1", show_default=True, help="The metric that is aggregated.")
@records_option
@click.option("--dataset", "--datasets", "datasets", metavar="LIST", help="Only these, with commas between them.")
@published_option("hidden")
@ladders_option
@click.option("--out", type=click.Path(path_type=Path), help="File [default: standard output]; with --to, a folder.")
@workspace_options
def command(workspace: Workspace, name: str, form: str, place: str | None, hub: str, chosen: str,
            columns: str, metric: str, folders: tuple[Path, ...], datasets: str | None, published: str,
            ladders: tuple[str, ...], out: Path | None) -> None:
    """Write one table of the finished runs, ready to be pasted into a paper or read by other programs."""
    if out is None and (place or form == "parquet"):
        raise click.UsageError(f"{f'--to {place}' if place else '--format parquet'} needs --out")
    if columns != "all" and (place or form in ("macros", "pgfplots", "bib")):
        raise click.UsageError(f"{f'--to {place}' if place else f'--format {form}'} makes no table with --columns")
    from benchmark.board.results import results_of
    from reports import exports, records, sharing
    from reports.analysis import study_progress, tuning
    from reports.picking import picked
    from reports.tidy import tidy_table

    named = own_names(datasets, workspace)
    if name in ("tuning", "trials") and not place:
        searches = tuning.read(folders or (workspace.root,))
        here = [one for one in searches if datasets is None or one["dataset"] in (named or ())]
        if chosen != "all" and here:
            kept = picked(chosen, {one["method"]: [one["method"]] for one in here}, "method")
            here = [one for one in here if one["method"] in kept]
        _put(exports.searched(here, name, form, columns), out)
        return
    frame, _ = records.scan_checked(folders or (workspace.runs,), named)
    studies = study_progress.read(folders or (workspace.root,), [])
    results = results_of(frame, studies, published=published, ladders=ladders)
    if chosen != "all":
        runs = results.with_controls()  # in which a method is called by its settings, too
        kept = picked(chosen, {full: [full, name] for full, name in zip(runs["method"], runs["base_method"])}, "method")
        frame = frame[frame["identity"].isin(runs.loc[runs["method"].isin(kept), "identity"])]
        results = results_of(frame, studies, published=published, ladders=ladders)
    for note in results.set_aside:
        click.echo(f"note: {note}", err=True)
    if published != "hidden" and (why := exports.without_papers(results, name, place or form, metric)):
        click.echo(f"note: {why}", err=True)
    if place and out:
        rows = tidy_table(results, "ags", metric)
        files = sharing.badges(rows, results.labels) if place == "badges" else \
            sharing.huggingface(rows, results.labels, hub)
        click.echo(f"wrote {sharing.write(files, out)} files below {out}")
        return
    if form == "parquet" and out is not None:
        sharing.write_parquet(tidy_table(results, name, metric, columns), _file(out))
        click.echo(f"wrote {out}")
        return
    _put(exports.export(results, name, form, metric, columns), out)


def _file(out: Path) -> Path:
    """A file that can be written, its folder made."""
    if out.is_dir():
        raise click.UsageError(f"--out {out} is a folder; name a file in it")
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _put(text: str, out: Path | None) -> None:
    """A table to standard output or into a file."""
    if out is None:
        click.echo(text, nl=False)
        return
    _file(out).write_text(text, encoding="utf-8")
    click.echo(f"wrote {out}")
