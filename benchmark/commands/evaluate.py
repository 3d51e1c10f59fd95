"""`oodml evaluate`: scores embeddings that other code made."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import click

from benchmark.commands import device_option, workspace_options
from benchmark.utils.terminal import columns
from benchmark.utils.workspace import Workspace
from reports.wording import counted

RETRIEVAL = ("recall@1", "recall@2", "recall@4", "recall@8", "map@1000", "map@r", "r-precision")
MEASURES = (*RETRIEVAL, "nmi", "f1")
OF_SEVERAL = ("recall@1", "map@1000", "map@r")
"""What the table of several splits has room for."""


@click.command()
@click.option("--embeddings", required=True, metavar="FILE",
              help="npz (embeddings, ids), npy or safetensors (with --ids), or parquet; {split} and {seed} in its name "
                   "stand for their numbers.")
@click.option("--ids", metavar="FILE",
              help="Image paths, a list as `oodml splits export` writes it (csv, json, txt), or npy of strings "
                   "[default: FILE.txt beside FILE.npy].")
@click.option("--dataset", help="Dataset the images are of. See `oodml datasets`.")
@click.option("--ladder", metavar="NAME@VERSION", help="A pinned ladder instead of a dataset. See `oodml splits use`.")
@click.option("--split", default="all", show_default=True, metavar="IDS",
              help="Rungs of its ladder, such as 1,3-5, `default`, or `all`: one file of all images is cut split by "
                   "split.")
@click.option("--name", help="What to call the method [default: as the card says, else the file's name].")
@click.option("--seed", "seeds", default="0", show_default=True, metavar="LIST",
              help="Seed the embeddings were trained with, or several such as 0-4.")
@click.option("--backbone", help="Backbone to show in reports [default: as the card says].")
@click.option("--card", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="What was submitted, as TOML or YAML: method, paper, code, backbone, ... `oodml submit` needs it.")
@click.option("--keep", is_flag=True, help="Keep the embeddings of test images beside each record, for `oodml submit`.")
@click.option("--clusters", "cluster", is_flag=True,
              help="Also NMI and F1 of a k-means clustering (slow on many classes).")
@device_option
@workspace_options
def command(workspace: Workspace, dataset: str | None, ladder: str | None, seeds: str, **arguments: Any) -> None:
    """Score embeddings made by any code on the splits of a ladder, and record them as submitted.

    The file must hold every test image of the split once (`oodml splits export` lists them) and may hold others of the
    dataset; with all training images the structure of the training embeddings is measured too. For a union the scores
    of its members and their harmonic mean follow those over its unified gallery.
    """
    from benchmark.ladders import pinned
    from benchmark.ladders.rungs import numbers
    from benchmark.submissions.evaluate import evaluate_ladder, summary

    name = pinned.named(ladder, dataset, workspace)
    results = evaluate_ladder(workspace.writable(), dataset=name, seeds=numbers(seeds, "--seed"), **arguments)
    if len(results) > 1:
        for note in _alike([list(one.notes) for one in results]):
            click.echo(f"note: {note}")
        for line in summary(results, OF_SEVERAL):
            click.echo(line)
        click.echo(_written([one.path for one in results]))
        return
    (result,) = results
    for note in result.notes:
        click.echo(f"note: {note}")
    for measure in MEASURES:
        if measure in result.scores:
            click.echo(f"{measure:12} {100 * result.scores[measure]:6.2f}")
    if result.domains:
        rows = {**result.domains, "harmonic mean": result.harmonic}
        cells = [(name, *(f"{100 * scores.get(measure, math.nan):.2f}" for measure in RETRIEVAL))
                 for name, scores in rows.items()]
        for line in columns([("", *RETRIEVAL), *cells], left=1):
            click.echo(line)
    click.echo(f"record: {result.path} (submitted)")
    click.echo(_beside(result.path))


def _written(paths: list[Path]) -> str:
    """Where the records of several splits lie, and how they are packed, which those on a pinned ladder alone can be."""
    from reports import records
    from splits import pinning

    home = paths[0].parents[3]  # below it SPLIT/METHOD/sSEED-HASH8; the name of a dataset of one's own is not its path
    pinned = records.read(paths[0])["split"].get("pinned")
    packs = "; `oodml submit PACK` packs them" if pinned and pinned.get("name") in pinning.names() else ""
    return f"{counted(len(paths), 'record')} in {home} (submitted){packs}"


def _alike(notes: list[list[str]]) -> list[str]:
    """The first of the notes that differ in their numbers alone, with how many results had one.

    >>> _alike([["3 of 9 images", "odd"], ["3 of 9 images"], ["4 of 9 images"]])
    ['3 of 9 images (alike on 2 more)', 'odd']
    """
    groups: dict[str, list[str]] = {}
    for one in notes:
        for key, note in {re.sub(r"\d+(\.\d+)?", "#", note): note for note in one}.items():
            groups.setdefault(key, []).append(note)
    return [same[0] + (f" (alike on {len(same) - 1} more)" if same[1:] else "") for same in groups.values()]


def _beside(path: Path) -> str:
    """What a record stands beside: rows of other methods on the same classes, with the mean Recall@1 of their seeds."""
    from reports import records

    own = records.read(path)
    runs, _ = records.scan(path.parents[2])
    others = runs[runs["split_hash"].eq(own["split"]["hash"]) & runs["method"].ne(own["method"]["name"])]
    scores: dict[str, list[float]] = {}
    for run in others.to_dict("records"):
        scores.setdefault(_row(run), []).append(run["recall@1"])
    if not scores:
        return f"compared with nothing yet: no other method was run on split {own['split']['id']} of {own['dataset']}"
    best = sorted(((sum(values) / len(values), name) for name, values in scores.items()), reverse=True)
    return (f"compared with {counted(len(best), 'row')} on split {own['split']['id']} of {own['dataset']}: recall@1 "
            + ", ".join(f"{name} {100 * score:.2f}" for score, name in best[:5])
            + (" ..." if best[5:] else "") + "; `oodml report` ranks them")


def _row(run: Mapping[Hashable, Any]) -> str:
    """A method as it was run: by which protocol, with what changed in it, and on which backbone."""
    changed = {key: values[-1] for key, values in (run["overrides"] or {}).items()
               if key not in ("backbone", "evaluate_every")}
    facts = [run["protocol"], *(f"{key}={value}" for key, value in sorted(changed.items())), run["backbone"]]
    return f"{run['method']} ({', '.join(facts)})"
