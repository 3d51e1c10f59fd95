"""Pages beside the boards: structure, few-shot, backbones, samplers, comparison, extras, names of files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from reports import exports, records, site
from reports.analysis import comparison, correlations, factors, fewshot, spectra, transfer
from reports.analysis.results import Results
from reports.figures import comparisons
from reports.html import analysis_pages, dataset_pages, markup
from reports.html.extras import Extras
from reports.tables.table import Table
from tests.sample_records import make_record, some_pages, write_sample


def test_structure_is_correlated_within_datasets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    measures, scores = rng.random(12), rng.random(12)
    for i, (measure, score) in enumerate(zip(measures, scores)):
        record = make_record("glyphs", 1 + i % 5, f"m{i}", 0, float(score))
        record["structure"] = {"test": {"density": float(measure)}}
        records.write(tmp_path / str(i), record)
        other = make_record("cars", 1 + i % 5, f"m{i}", 0, float(score) * 0.01)
        other["structure"] = {"test": {"density": float(measure) + 5}}
        records.write(tmp_path / f"c{i}", other)
    points = correlations.cells(records.collect(tmp_path))
    table = correlations.structure_table(points)
    assert table is not None
    row = table.frame.set_index(["measure", "side"]).loc[("density", "test")]
    assert row["name"] == "Embedding space density π_ratio"  # as Revisiting DML calls it
    assert correlations.structure_table(points, released=True) is None
    expected = stats.spearmanr(measures, scores).statistic
    assert row["recall@1:all"] == pytest.approx(expected)
    first = np.arange(12) % 5 == 0
    assert row["recall@1:default"] == pytest.approx(stats.spearmanr(measures[first], scores[first]).statistic)
    assert (row["all:cells"], row["default:cells"]) == (24, 6)
    matrix = correlations.metric_matrix(points)
    assert matrix.at["Recall@1", "mAP@1000"] == pytest.approx(1)


def test_both_sides_are_correlated_split_by_split_and_fitted_within_splits(tmp_path: Path) -> None:
    """Against scipy and numpy on the plain lists of each split."""
    rng = np.random.default_rng(1)
    drawn = {split: rng.random((7, 3)) for split in (1, 2)}
    for split, rows in drawn.items():
        for i, (train, test, score) in enumerate(rows):
            record = make_record("glyphs", split, f"m{i}", 0, float(score))
            record["structure"] = {"train": {"rho": float(train)}, "test": {"rho": 9 * float(test) + split}}
            records.write(tmp_path / f"{split}-{i}", record)
    points = correlations.cells(records.collect(tmp_path))
    table = correlations.split_table(points, "recall@1")
    assert table is not None
    heads = {column.key: column for column in table.columns}
    assert heads["structure:train:rho"].head == "ρ, train"
    assert heads["structure:train:rho"].about.startswith("Spectral decay of the training embeddings: KL(U ‖ S)")
    for split, (train, test, score) in ((split, rows.T) for split, rows in drawn.items()):
        row = table.frame.set_index("split").loc[split]
        assert row["structure:train:rho"] == pytest.approx(stats.spearmanr(train, score).statistic)
        assert row["structure:test:rho"] == pytest.approx(stats.spearmanr(test, score).statistic)
        assert row["cells"] == 7
    columns = ["recall@1", "structure:test:rho"]
    fitted = correlations.normalised(points, columns)
    for split, (_, test, score) in ((split, rows.T) for split, rows in drawn.items()):
        here = fitted[fitted["split"] == split].sort_values("method")
        np.testing.assert_allclose(here["structure:test:rho"], (test - test.min()) / np.ptp(test))
        np.testing.assert_allclose(here["recall@1"], (score - score.min()) / np.ptp(score))
    drawing = comparisons.scatters(fitted.rename(columns={"structure:test:rho": "rho"}), ["rho"], "recall@1", "s", "S")
    without = comparisons.scatters(fitted.assign(rho=np.nan), ["rho"], "recall@1", "s", "S")
    assert drawing.count("<path") > without.count("<path")


def test_spectra_of_records_are_drawn_beside_those_of_their_variants(tmp_path: Path) -> None:
    for method, height in (("margin", 0.5), ("r-margin", 0.3), ("arcface", 0.4)):
        for seed in (0, 1):
            record = make_record("glyphs", 2, method, seed, 0.2 + height)
            record["split"]["kind"] = "default"
            for side in ("train", "test"):
                record["structure"][side] |= {"spectrum": [[1, height + 0.1 * seed], [4, 0.1]],
                                              "spectrum_class": [[1, 0.9]]}
            records.write(tmp_path / "runs" / f"{method}-{seed}", record)
    write_sample(tmp_path / "runs" / "old", {"proxyanchor": 0.6}, ("cars",), seeds=1, union=False)
    results = Results(records.collect(tmp_path / "runs"))
    (panel,) = spectra.panels(results.runs, "recall@1")
    assert (panel.dataset, {curve.method for curve in panel.curves}) == ("glyphs", {"margin", "r-margin"})
    first = next(c for c in panel.curves if (c.method, c.side, c.kind) == ("r-margin", "train", "spectrum"))
    assert (first.ranks, first.values) == ((1, 4), (pytest.approx(0.35), 0.1))
    files = some_pages(results, analysis_pages.structural)
    page = files["structure.html"]
    assert "Training embeddings" in page
    assert "Test embeddings" in page
    assert "<h3>glyphs</h3>" in page
    assert "$" not in files["figures/spectra-glyphs.svg"]  # powers of ten are numbers, not formulas
    assert "data/structure-splits.csv" in files


def write_fewshot(folder: Path, zero: float, few: float) -> None:
    content = {"schema": 1, "shots": {"2": {"episodes": 10, "zero": {"recall@1": {"mean": zero}},
                                            "few": {"recall@1": {"mean": few}}}}}
    (folder / "fewshot.json").write_text(json.dumps(content))


def write_cross(folder: Path, targets: dict[str, tuple[float, float | None]]) -> None:
    """A `cross.json` as studies leave it: for each target the score and, if any, that of the frozen backbone."""
    content = {"schema": 1, "run": "x", "dataset": "glyphs", "split": 1, "method": "margin", "seed": 0, "targets": {
        name: {"test": "t", "images": 100, "scores": {"recall@1": score, "map@1000": score / 2},
               "floor": None if floor is None else {"backbone": "resnet50", "scores": {
                   "recall@1": floor, "map@1000": floor / 2}}} for name, (score, floor) in targets.items()}}
    (folder / "cross.json").write_text(json.dumps(content))


def test_transfer_to_other_datasets(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs", "cars"), seeds=2, union=False)
    for i, folder in enumerate(sorted((tmp_path / "runs" / "glyphs" / "1" / "margin").iterdir())):
        write_cross(folder, {"cars": (0.30 + 0.02 * i, 0.25), "birds": (0.1, None)})
    for folder in sorted((tmp_path / "runs" / "cars" / "1" / "s2sd").iterdir()):
        write_cross(folder, {"glyphs": (0.2, 0.25)})
    results = Results(records.collect(tmp_path / "runs"))
    found = transfer.collect(results.runs)
    table = transfer.table(found, results.runs, "glyphs", "recall@1").frame.set_index("method")
    assert table.at["margin", "target:cars"] == pytest.approx(0.31)
    assert table.at["margin", "target:cars:std"] == pytest.approx(np.std([0.3, 0.32], ddof=1))
    assert table.at["margin", "target:cars:gain"] == pytest.approx(0.06)
    assert table.at["frozen", "target:cars"] == 0.25
    assert np.isnan(table.at["frozen", "target:birds"])
    own = results.runs.query("dataset == 'glyphs' and split == 1 and method == 'margin'")["recall@1"].mean()
    assert table.at["margin", "own"] == pytest.approx(own)
    matrix = transfer.matrix(found, results.runs, "recall@1").frame.set_index("trained")
    assert matrix.at["glyphs", "target:cars"] == pytest.approx(0.31)
    assert matrix.at["cars", "target:glyphs"] == pytest.approx(0.2)
    assert matrix.at["glyphs", "target:glyphs"] == pytest.approx(own)
    assert matrix["above"].tolist()[:2] == ["0/1", "1/1"]
    assert matrix.at["nothing (frozen)", "target:glyphs"] == 0.25
    assert "Trained on cars" in some_pages(results, analysis_pages.across)["cross.html"]
    (folder / "cross.json").write_text('{"schema": 9}')
    with pytest.warns(UserWarning, match="schema 1"):
        assert len(transfer.collect(results.runs)) < len(found)


def test_few_shot_gain(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"margin": 0.6, "s2sd": 0.7}, ("glyphs",), seeds=2, union=False)
    for i, folder in enumerate(sorted((tmp_path / "runs" / "glyphs" / "1" / "margin").iterdir())):
        write_fewshot(folder, 0.5, 0.6 + 0.02 * i)
    results = Results(records.collect(tmp_path / "runs"))
    cells = fewshot.cells(results.fewshot, "recall@1", 2)
    assert cells["gain"].tolist() == pytest.approx([0.11])
    assert cells["gain:std"].tolist() == pytest.approx([np.std([0.1, 0.12], ddof=1)])
    board = results.ags("recall@1", "demo").rows.set_index("method")
    assert board.at["margin", "fewshot"] == pytest.approx(0.11)
    assert np.isnan(board.at["s2sd", "fewshot"])
    assert exports.export(results, "fewshot", "csv").count("\n") == 3
    assert "+11.0" in some_pages(results, analysis_pages.few_shot)["fewshot.html"]


def test_backbones_and_samplers_stand_side_by_side(tmp_path: Path) -> None:
    for backbone, score in (("conv4", 0.4), ("resnet50", 0.6)):
        record = make_record("glyphs", 1, "margin", 0, score, backbone={"name": backbone, "weights": None})
        records.write(tmp_path / "runs" / backbone, record)
    for sampler, score in (("spc-4", 0.45), ("fr", 0.5)):
        record = make_record("glyphs", 1, "arcface", 0, score, protocol={"name": "demo", "batches": sampler})
        records.write(tmp_path / "runs" / sampler, record)
    results = Results(records.collect(tmp_path / "runs"))
    (table,) = factors.backbones(results, "recall@1")
    assert table.frame[["method", "variant:conv4", "variant:resnet50"]].to_dict("records") == [
        {"method": "margin", "variant:conv4": 0.4, "variant:resnet50": 0.6}]
    (table,) = factors.samplers(results, "recall@1")
    assert table.frame.loc[0, ["variant:fr", "variant:spc-4"]].tolist() == [0.5, 0.45]
    files = some_pages(results, analysis_pages.varied)
    assert "Backbones" in files["backbones.html"]
    assert "spc-4" in files["samplers.html"]


def test_wins_ties_and_losses_add_up(tmp_path: Path) -> None:
    write_sample(tmp_path, {"margin": 0.6, "s2sd": 0.7, "arcface": 0.61}, ("glyphs",), seeds=2, union=False,
                 queries=True)
    results = Results(records.collect(tmp_path))
    labels = ["s2sd", "arcface", "margin"]
    found = comparison.cells(results, labels, "recall@1")
    assert [cell["split"] for cell in found] == ["1", "2", "3", "4", "5"]
    table = comparison.versus(found, labels).frame
    for i in range(3):
        for j in range(3):
            if i != j:
                ours = [int(part) for part in table.loc[i, f"against{j}"].split("/")]
                theirs = [int(part) for part in table.loc[j, f"against{i}"].split("/")]
                assert ours == theirs[::-1]
                assert sum(ours) == 5
    assert [table.loc[i, f"against{i}"] for i in range(3)] == ["–"] * 3
    fewer = comparison.of_rows(found, [2, 0])
    assert [cell["scores"] for cell in fewer] == [[cell["scores"][2], cell["scores"][0]] for cell in found]
    assert comparison.versus(fewer, ["margin", "s2sd"]).frame.loc[0, "against1"] == table.loc[2, "against0"]
    cells, errors = results.rung_errors("glyphs", 3, "recall@1")
    at = {label: i for i, label in enumerate(cells["label"])}
    half = errors.pair_half_widths()[at["s2sd"], at["margin"]]
    assert comparison.half_width(found[2], 0, 2) == pytest.approx(half, abs=5e-5)


def test_rows_are_offered_for_comparison_while_their_intervals_have_room(tmp_path: Path,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervals count where both rows have a score: those of another dataset cost nothing."""
    for method, datasets in (("a", "glyphs"), ("b", "glyphs"), ("c", "glyphs"), ("x", "cars"), ("y", "cars")):
        records.write(tmp_path / method, make_record(datasets, 1, method, 0, 0.5))
    results = Results(records.collect(tmp_path))
    assert comparison.offered(results, "recall@1", "abcxyz") == (list("abcxy"), 0)
    monkeypatch.setattr(comparison, "MOST", 3)
    assert comparison.offered(results, "recall@1", "abcxyz") == (list("abcx"), 1)
    assert comparison.offered(results, "recall@1", "abxyc") == (list("abxy"), 1)


def test_names_that_would_share_a_file_do_not(tmp_path: Path) -> None:
    found = markup.slugs(["s2sd:margin", "s2sd-margin", "S2SD-margin", "other"])
    assert len({name.lower() for name in found.values()}) == 4
    for method in ("s2sd:margin", "s2sd-margin"):
        records.write(tmp_path / "runs" / method.replace(":", "@"), make_record("glyphs", 1, method, 0, 0.5))
    out = site.build(Results(records.collect(tmp_path / "runs")), records.scan(tmp_path / "runs")[1],
                     tmp_path / "site").parent
    pages = {page.name: page.read_text() for page in (out / "method").iterdir()}
    assert len(pages) == 2
    assert {("s2sd:margin</h1>" in text) for text in pages.values()} == {True, False}
    text = exports.export(Results(records.collect(tmp_path / "runs")), "recall", "md")
    assert "s2sd:margin" in text


def test_figures_of_splits_are_taken_along(tmp_path: Path) -> None:
    records.write(tmp_path / "runs" / "a", make_record())
    splits = tmp_path / "splits"
    splits.mkdir()
    (splits / "glyphs-progression.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    (splits / "glyphs-umap.png").write_bytes(b"\x89PNG\r\n")
    files = some_pages(Results(records.collect(tmp_path / "runs")),
                       lambda site: dataset_pages.ladder(site, "glyphs", Extras(splits)))
    for name in ("glyphs-progression.svg", "glyphs-umap.png"):
        assert f"../figures/{name}" in files["dataset/glyphs.html"]
        assert files[f"figures/{name}"] == (splits / name).read_bytes()


def test_backbones_and_samplers_are_not_averaged_over_one_another(tmp_path: Path) -> None:
    """Two backbones, each with its own sampler and another; a third protocol setting is a row of its own."""
    scores = {("conv4", "", 3): 0.4, ("conv4", "fr", 3): 0.5, ("resnet50", "", 3): 0.7, ("resnet50", "fr", 3): 0.9,
              ("conv4", "", 9): 0.6, ("conv4", "fr", 9): 0.55}
    for (backbone, sampler, epochs), score in scores.items():
        for method in ("margin", "arcface", "triplet")[:3 if (sampler, epochs) == ("", 3) else 1]:
            protocol = {"name": "demo", "epochs": epochs} | ({"batches": sampler} if sampler else {})
            made = make_record("glyphs", 1, method, 0, score, protocol=protocol,
                               backbone={"name": backbone, "weights": None})
            records.write(tmp_path / f"{backbone}-{sampler}-{epochs}-{method}", made)
    results = Results(records.collect(tmp_path))

    def found(table: Table, keys: list[str], names: list[str]) -> dict[tuple[str, ...], list[float]]:
        assert [column.key for column in table.columns] == ["method", *keys, *(f"variant:{name}" for name in names)]
        return {tuple(row[key] for key in ("method", *keys)): [row[f"variant:{name}"] for name in names]
                for row in table.rows}

    (table,) = factors.backbones(results, "recall@1")
    ours = found(table, ["study"], ["conv4", "resnet50"])
    assert ours.pop(("arcface", "demo")) == ours.pop(("triplet", "demo")) == [0.4, 0.7]
    assert ours == {("margin", "demo"): [0.4, 0.7], ("margin", "demo[batches=fr]"): [0.5, 0.9]}
    (table,) = factors.samplers(results, "recall@1")
    assert found(table, ["study", "backbone"], ["fr", "own"]) == {
        ("margin", "demo", "conv4"): [0.5, 0.4], ("margin", "demo", "resnet50"): [0.9, 0.7],
        ("margin", "demo[epochs=9]", "conv4"): [0.55, 0.6]}
