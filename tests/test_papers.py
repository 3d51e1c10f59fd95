"""The pages of the papers: what they print is what the CSV files hold, what is ours is what the records hold."""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import statistics
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import click
import pandas as pd
import pytest
from click.testing import CliRunner

import methods
from benchmark import cli
from benchmark.commands import report
from benchmark.commands.studies import command as studies_command
from benchmark.config import study as studies
from benchmark.config.plan import Overrides, fitting
from benchmark.utils.errors import UserError
from methods import backbones
from reports import records
from reports.analysis import factors, paper_catalogue, paper_numbers, paper_tables, papers
from reports.analysis.results import Results
from reports.html import analysis_pages, paper_pages
from reports.html.rendering import Site
from tests.sample_records import make_record

PUBLISHED = Path(paper_tables.__file__).parents[1] / "data" / "published"
COUNTS = {"oodml": {"Table": 1, "Figure": 7, "Supplement Table": 8, "Supplement Figure": 8},
          "revisiting": {"Table": 9, "Figure": 12}, "crt": {"Table": 10, "Figure": 3},
          "uml": {"Table": 12, "Figure": 10}}
"""As many as the papers number."""


def item(key: str) -> paper_catalogue.Item:
    return next(one for one in paper_catalogue.load(key.split(":")[0]).items if one.key == key)


def test_the_catalogue_has_every_table_and_figure_once() -> None:
    expected = [f"{paper}: {kind} {number}" for paper, kinds in COUNTS.items() for kind, count in kinds.items()
                for number in range(1, count + 1)]
    assert Counter(paper_catalogue.item_keys()) == Counter(expected)
    assert set(paper_catalogue.PAPERS) == set(paper_tables.PAPERS)
    option = next(parameter for parameter in report.command.params if parameter.name == "paper")
    assert set(option.type.choices) == set(paper_catalogue.PAPERS)


@pytest.mark.parametrize("key", paper_catalogue.item_keys())
def test_what_has_no_numbers_or_no_study_says_why(key: str) -> None:
    one = item(key)
    filled = key in studies.filled_by() or one.command
    assert one.title
    assert one.section
    assert one.file or one.note or one.command
    if one.file:
        assert filled
    elif not filled:
        assert "nothing to be run" in one.note


def numbers(file: str, where: dict[str, Any]) -> Counter[str]:
    """The numbers of an item by another road: pandas, as text."""
    frame = pd.read_csv(PUBLISHED / f"{file}.csv", dtype=str)
    for column, value in where.items():
        frame = frame[frame[column].isin([str(one) for one in (value if isinstance(value, list) else [value])])]
    columns = [name for name in ("value", "ags", "fid") if name in frame][:1] or ["cub", "cars", "sop", "inshop"]
    return Counter(text for name in columns for text in frame[name].dropna())


class Page(HTMLParser):
    """The texts of a page by table and class of their span."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.table, self.kind = "", ""
        self.texts: dict[tuple[str, str], list[str]] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.table = facts.get("id") or "" if tag == "table" else self.table
        self.kind = facts.get("class") or "" if tag == "span" else self.kind if tag == "br" else ""

    def handle_endtag(self, tag: str) -> None:
        self.kind = ""

    def handle_data(self, data: str) -> None:
        if self.kind:
            self.texts.setdefault((self.table, self.kind), []).append(data.strip())


def record(dataset: str, split: int, method: str, seed: int, score: float, protocol: str, backbone: str,
           domains: dict[str, float] | None = None, **settings: Any) -> dict[str, Any]:
    """A record of one of the papers' protocols; `settings` are what was changed, `epochs=30` or `METHOD_KEY`."""
    made = make_record(dataset, split, method, seed, score, domains)
    made["scores"]["best-test"] = dict(made["scores"]["last"])
    own = {key: value for key, value in settings.items() if key not in ("batches", "dim", "epochs")}
    made["protocol"] = {"name": protocol, "epochs": 200, "batches": "spc-2", "dim": 128} | {
        key: value for key, value in settings.items() if key not in own}
    made["method"]["settings"] |= own
    made["backbone"] = {"name": backbone, "weights": "imagenet"}
    made["provenance"]["overrides"] = {key if key not in own else f"{method}.{key}": [0, value]
                                       for key, value in settings.items()}
    facts = f"{dataset} {split} {method} {seed} {protocol} {backbone} {settings}"
    made["identity"] = hashlib.sha256(facts.encode()).hexdigest()
    return made


SCORES = {"margin": [0.64, 0.62, 0.66], "s2sd": [0.7]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three papers, and some that are other experiments than the tables'."""
    folder = tmp_path_factory.mktemp("runs")
    made = [record("cub", 1, method, seed, score, "revisiting", "resnet50")
            for method, scores in SCORES.items() for seed, score in enumerate(scores)]
    made += [record("cub", 1, "margin", 0, 0.11, "revisiting", "googlenet"),
             record("cub", 1, "margin", 0, 0.22, "oodml", "resnet50", epochs=30),
             record("cub", 1, "margin", 0, 0.33, "revisiting", "resnet50", batches="gc"),
             record("cub", 1, "arcface", 0, 0.44, "revisiting", "resnet50", epochs=30),
             record("cub", 1, "npair", 0, 0.55, "revisiting", "resnet50", scale=3)]
    parts = {name: 0.5 + 0.05 * place for place, name in enumerate(paper_numbers.PARTS["uml"])}
    made += [record("uml", 1, "puma", 0, 0.8, "uml", "vit_small", parts),
             record("uml", 1, "puma", 0, 0.9, "uml", "vit_small", parts, dim=512)]
    made += [record(name, 1, "curricularface", 0, score, "uml", "vit_small") for name, score in parts.items()]
    for number, one in enumerate(made):
        records.write(folder / str(number), one)
    return folder


@pytest.fixture(scope="module")
def results(runs: Path) -> Results:
    return Results(records.collect(runs))


def ours(results: Results, key: str, row: str, column: str) -> papers.Shown:
    filled = {one.item.key: one for one in papers.page(key.split(":")[0], results.runs, {})}[key]
    heads, rows = filled.grid()
    shown = dict(rows)[row][heads.index(column)]
    assert shown is not None
    return shown


def test_every_printed_number_is_on_its_page_and_no_other(results: Results) -> None:
    site = Site(results, pd.DataFrame())
    analysis_pages.papers(site)
    paper_pages.write(site, studies.filled_by())
    site.finish()
    files = {name: str(content) for name, content in site.files.items()}
    total = 0
    for paper in paper_catalogue.PAPERS:
        page = Page(files[f"paper/{paper}.html"])
        for filled in papers.page(paper, results.runs, {}):
            shown = Counter(page.texts.get((f"table-{filled.name}", "printed"), []))
            one = filled.item
            assert shown == (numbers(one.file, one.where) if one.file else Counter()), one.key
            total += shown.total()
            if one.file:
                table = pd.read_csv(io.StringIO(files[f"data/{filled.name}.csv"]))
                assert sorted(table["printed"]) == sorted(map(float, shown.elements()))
    assert total > 3000
    assert "oodml run --study revisiting-samplers" in files["paper/revisiting.html"]
    assert "ArcFace: epochs=30 (file: 0)" in files["paper/revisiting.html"]
    assert all(f'href="paper/{paper}.html"' in files["published.html"] for paper in paper_catalogue.PAPERS)


def test_ours_is_the_mean_of_the_seeds_on_the_same_dataset_network_and_protocol(results: Results) -> None:
    margin = ours(results, "revisiting: Table 4", "Margin (D, beta 1.2)", "recall@1")
    assert margin.ours.n == 3
    assert margin.ours.mean == pytest.approx(100 * statistics.mean(SCORES["margin"]))
    assert margin.ours.std == pytest.approx(100 * statistics.stdev(SCORES["margin"]))
    assert margin.difference == pytest.approx(64.0 - 63.09)
    assert not margin.ours.overrides
    assert not margin.missing
    assert ours(results, "revisiting: Table 4", "Quadruplet (D)", "recall@1").missing


def test_another_sampler_is_another_experiment_and_fewer_epochs_are_named(results: Results) -> None:
    assert ours(results, "revisiting: Table 7", "Margin (D) gc", "recall@1").ours.mean == pytest.approx(33.0)
    assert ours(results, "revisiting: Table 7", "Margin (D) spc-2", "recall@1").ours.n == 3
    assert ours(results, "revisiting: Table 7", "Margin (D) ddm", "recall@1").missing
    short = ours(results, "revisiting: Table 4", "ArcFace", "recall@1").ours
    assert (short.mean, short.overrides) == (pytest.approx(44.0), "epochs=30 (file: 0)")
    assert ours(results, "revisiting: Table 4", "Npair", "recall@1").missing


def test_unions_have_their_parts_their_whole_and_both_harmonic_means(results: Results) -> None:
    table = "uml: Table 2"
    parts = [0.5 + 0.05 * place for place in range(8)]
    harmonic = 100 * 8 / sum(1 / part for part in parts)
    assert ours(results, table, "universal-peft puma", "dogs").ours.mean == pytest.approx(75.0)
    assert ours(results, table, "universal-peft puma", "unified").ours.mean == pytest.approx(80.0)
    assert ours(results, table, "universal-peft puma", "harmonic").ours.mean == pytest.approx(harmonic)
    assert ours(results, table, "dataset-specific curricularface", "harmonic").ours.mean == pytest.approx(harmonic)
    assert ours(results, table, "dataset-specific curricularface", "aircraft").ours.mean == pytest.approx(85.0)
    assert ours(results, table, "dataset-specific curricularface", "unified").missing
    assert ours(results, "uml: Table 4", "vit-s-512 puma", "unified").ours.mean == pytest.approx(90.0)
    assert ours(results, "uml: Table 4", "vit-b-128 puma", "unified").missing


def test_few_shot_numbers_are_those_beside_the_runs_that_held_classes_out(tmp_path: Path) -> None:
    for seed, after in enumerate((0.7, 0.8)):
        for score, validation in ((after, True), (0.1, False)):
            made = record("cub", 1, "s2sd", seed, 0.6, "oodml", "resnet50")
            made["protocol"]["validation"] = validation
            made["provenance"]["overrides"] = {"validation": [False, True]} if validation else {}
            made["identity"] = hashlib.sha256(f"{seed} {validation}".encode()).hexdigest()
            folder = tmp_path / f"{seed}{validation}"
            records.write(folder, made)
            sides = {side: {"recall@1": {"mean": value}} for side, value in (("zero", 0.5), ("few", score))}
            look = {"episodes": 2, "zero": sides["zero"], "few": {"recall@1": {"mean": 0.9}}}  # counts for no paper
            (folder / "fewshot.json").write_text(json.dumps({
                "schema": 1, "shots": {"5": look}, "others": [{"shots": {"5": {"episodes": 10, **sides}}}]}))
    results = Results(records.collect(tmp_path))
    default = "recall@1 split 3"  # of the paper's ladder; there is none here, and the default split has the number 1
    row = ours(results, "oodml: Supplement Table 7", "5-shot adapted s2sd", default)
    assert (row.cell.printed, row.ours.n, row.ours.overrides) == ("68.77", 2, "")
    assert row.ours.mean == pytest.approx(75.0)
    before = ours(results, "oodml: Supplement Table 7", "5-shot before s2sd", default)
    assert before.ours.mean == pytest.approx(50.0)
    assert ours(results, "oodml: Supplement Table 7", "2-shot adapted s2sd", default).missing
    assert ours(results, "oodml: Supplement Table 7", "5-shot adapted s2sd", "recall@1 split 1").missing


def test_what_was_read_from_damaged_tables_agrees_with_what_stands_beside_it() -> None:
    """Before adaptation both numbers of shots see the same networks; UML's table 9 repeats a row of table 2."""
    frame = paper_tables.read("oodml_fewshot")
    assert len(frame) == 406
    assert set(frame.loc[frame["dataset"] == "cub", "split"]) == {1, 3, 4, 5, 6, 7, 8, 9}
    assert set(frame.loc[frame["dataset"] == "cars", "split"]) == {1, 2, 5, 7, 8}
    keys = ["dataset", "metric", "method", "split"]
    before, after = (frame[frame["use"] == use].set_index([*keys, "shots"])["value"] for use in ("zero", "few"))
    assert before.groupby(keys).agg(lambda both: both.max() - both.min()).max() < 3  # a slip of a digit would be ten
    assert (after - before).dropna().between(-1.5, 18).all()
    rises = before.groupby(["dataset", "metric", "method", "shots"]).diff()  # from split to split
    assert rises.max() < 3.2
    further, main = paper_tables.read("uml_further"), paper_tables.read("uml_results")
    both = (frame.query("table == @number and setting == 'dataset-specific' and method == 'proxyanchor'")
            for frame, number in ((further, 9), (main, 2)))
    row = [one.set_index("dataset")["value"] for one in both]
    assert row[0].to_dict() == {name: row[1][name] for name in row[0].index}
    parts = row[0].drop("harmonic")
    assert len(parts) == 8
    assert statistics.harmonic_mean(parts) == pytest.approx(row[0]["harmonic"], abs=0.06)


def planned(name: str) -> set[tuple[str, str, str, str]]:
    """(dataset, method, backbone, a changed setting or nothing) of all runs of a study."""
    cells: set[tuple[str, str, str, str]] = set()
    for part in studies.load(name).parts:
        paper = paper_catalogue.load(part.protocol or "")
        for backbone in backbones.select(part.backbones) if part.backbones else [paper.backbone]:
            for changes in part.variations():
                settings = {"backbone": backbone, **part.set, **changes}
                network = str(settings.pop("backbone"))
                for dataset in part.datasets:
                    chosen, _ = fitting(methods.select(part.methods), dataset, part.protocol or "",
                                        Overrides.of({**settings, "backbone": network}))
                    cells |= {(dataset, method, network, key) for method in chosen
                              for key in ["", *(f"{key}={value}" for key, value in settings.items())]}
    return cells


@pytest.mark.parametrize("key", [one for one in paper_catalogue.item_keys() if item(one).file])
def test_the_studies_of_a_table_run_every_number_of_it(key: str) -> None:
    names = studies.filled_by().get(key, [])
    if not names:
        assert item(key).command
        return
    there = set().union(*(planned(name) for name in names))
    usual = {"dim=128", "batches=spc-2", "crt.wide_prototypes=64"}
    for cell in paper_numbers.cells(item(key)):
        if cell.sought is None or cell.sought.place in ("ensemble", "members"):
            continue
        backbone = cell.sought.backbone or paper_catalogue.load(key.split(":")[0]).backbone
        asked = {f"{name}={value}" for name, value in cell.sought.settings} - usual
        for setting in asked or {""}:
            assert (cell.sought.dataset, cell.sought.method, backbone, setting) in there, cell


def test_a_study_names_tables_that_exist(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('datasets = ["cub"]\nmethods = "margin"\nfills = ["oodml: Figur 2"]')
    with pytest.raises(UserError, match="did you mean 'oodml: Figure 2'"):
        studies.load(str(path))
    path.write_text('datasets = ["cub"]\nmethods = "margin"\nfills = "oodml: Figure 2"')
    with pytest.raises(UserError, match="must be a list"):
        studies.load(str(path))
    assert "crt: Table 5" in CliRunner().invoke(studies_command).output


def test_the_command_says_how_far_a_paper_is(runs: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(report.command, ["--records", str(runs), "--out", str(tmp_path), "--paper", "uml"])
    assert said.exit_code == 0, said.output
    assert "Table 6    PUMA on larger networks: 10 of 40 numbers measured" in said.output
    assert "oodml run --study uml-specific" in said.output
    assert (tmp_path / "paper" / "uml.html").is_file()


def test_every_command_that_a_page_names_can_be_typed(results: Results) -> None:
    """Each is parsed as the command line would, with its capital words as they stand; studies are found."""
    named = {command for paper in paper_catalogue.PAPERS
             for one in papers.page(paper, results.runs, studies.filled_by())
             for command in one.commands}
    assert len(named) > 20
    for text in named:
        program, *words = shlex.split(text)
        assert program == "oodml"
        command, context = cli.cli, click.Context(cli.cli)
        while isinstance(command, click.Group) and words:
            name, command, words = command.resolve_command(context, words)
            assert command is not None, text
            context = click.Context(command, parent=context, info_name=name)
        parsed = command.make_context(command.name, words, parent=context.parent)
        if parsed.params.get("study"):
            assert studies.load(parsed.params["study"]).parts


def test_other_weights_are_named_the_best_epoch_is_held_against_it_and_orders_are_compared(tmp_path: Path) -> None:
    """Against a paper that prints the best epoch on the test set, that of ours; Kendall's tau by counting pairs."""
    frame = paper_tables.read("oodml_ladder")
    split = frame[frame["dataset"].eq("cars") & frame["metric"].eq("recall@1") & frame["split"].eq(1)]
    printed_scores = dict(zip(split["method"], split["value"].astype(float)))
    ours_scores = {name: 0.8 - 0.01 * place for place, name in enumerate(sorted(printed_scores))}
    for place, (method, score) in enumerate(ours_scores.items()):
        made = record("cars", 1, method, 0, score - 0.1, "oodml", "resnet50_v1")
        made["provenance"]["overrides"] = {"backbone": ["resnet50", "resnet50_v1"]}
        made["scores"]["best-test"] = {**made["scores"]["last"], "recall@1": score}
        records.write(tmp_path / str(place), made)
    results = Results(records.collect(tmp_path))
    filled = {one.item.key: one for one in papers.page("oodml", results.runs, {})}["oodml: Supplement Table 5"]
    measured = {one.cell.row[0]: one.ours for one in filled.shown if one.ours.n and one.cell.sought
                and one.cell.sought.metric == "recall@1"}
    assert {name: one.mean / 100 for name, one in measured.items()} == pytest.approx(ours_scores)
    assert {one.overrides for one in measured.values()} == {"backbone=resnet50_v1 (file: resnet50)"}
    pairs = [(a, b) for a in ours_scores for b in ours_scores if a < b]
    signs = [(printed_scores[a] - printed_scores[b]) * (ours_scores[a] - ours_scores[b]) for a, b in pairs]
    (agreement,) = [one for one in filled.agreement()[:8] if one]
    assert agreement[0] == pytest.approx(sum(1 if sign > 0 else -1 for sign in signs) / len(pairs))
    assert agreement[1] == pytest.approx(100 * statistics.mean(ours_scores.values())
                                         - statistics.mean(printed_scores.values()))


def test_settings_are_compared_all_else_alike(tmp_path: Path) -> None:
    """Figure 2 of Revisiting: relative to the protocol's value over methods; figure 7: values of one method's key."""
    scores = {"margin": {128: 0.5, 64: 0.4, 512: 0.6}, "triplet": {128: 0.4, 64: 0.36}}
    made = [record("cub", 1, method, 0, score, "revisiting", "resnet50", **({} if dim == 128 else {"dim": dim}))
            for method, values in scores.items() for dim, score in values.items()]
    made += [record("cub", 1, "r-margin", 0, 0.5 + p / 10, "revisiting", "resnet50", p=p) for p in (0.05, 0.5, 0.1)]
    # two keys, and another one: not compared
    made += [record("cub", 1, "margin", 0, 0.9, "revisiting", "resnet50", dim=64, epochs=30),
             record("cub", 1, "margin", 0, 0.2, "revisiting", "resnet50", batches="gc")]
    for number, one in enumerate(made):
        records.write(tmp_path / str(number), one)
    results = Results(records.collect(tmp_path))
    alone = Results(records.collect([tmp_path / "0", tmp_path / "1"]))  # one run of one value
    assert factors.relative(alone, "recall@1")[0].frame["value"].tolist() == ["64"]
    (table,) = factors.relative(results, "recall@1")
    rows = table.frame.query("key == 'dim'").set_index("value")
    assert rows.loc["64", "change"] == pytest.approx(((0.4 / 0.5 - 1) + (0.36 / 0.4 - 1)) / 2)
    assert rows.loc["512", "change"] == pytest.approx(0.2)
    assert rows["methods"].to_dict() == {"64": 2, "512": 1}
    tables = {one.caption.partition(" on ")[0]: one for one in factors.settings(results, "recall@1")}
    values = [column.head for column in tables["r-margin.p"].columns[-3:]]
    assert values == ["0.05", "0.1", "0.5"]
    (row,) = tables["r-margin.p"].rows
    assert [row[column.key] for column in tables["r-margin.p"].columns[-3:]] == pytest.approx([0.505, 0.51, 0.55])
    dims = {row["method"]: row for row in tables["dim"].rows}
    assert [dims["margin"][f"variant:{dim}"] for dim in (64, 128, 512)] == pytest.approx([0.4, 0.5, 0.6])
    assert set(dims) == {"margin", "triplet"}
