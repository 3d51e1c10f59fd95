"""`oodml export --table ladder --format pgfplots`: a figure in LaTeX has the numbers of the table."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.export import command as export
from reports import ReportError, exports, records
from reports.analysis.results import Results
from reports.figures.drawing import MARKERS
from reports.figures.pgfplots import MARKS, ladder_figure
from tests.sample_records import write_sample

PLOT = re.compile(r"\\addplot\[(hue\w+), (mark=.*?)\] coordinates \{(.*)\};\n\\addlegendentry\{(.*)\}")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    runs = write_sample(tmp_path_factory.mktemp("work") / "runs",
                        {"frozen": 0.23, "margin": 0.66, "s2sd": 0.73, "a_b": 0.7}, ("cars", "glyphs"), seeds=2)
    return Results(records.collect(runs), with_published=False)


def points(text: str) -> list[tuple[float, float, float]]:
    found = re.findall(r"\(([\d.]+|nan), ([\d.]+|nan)\)(?: \+- \(0, ([\d.]+)\))?", text)
    return [(float(x), float(y), float(half or 0)) for x, y, half in found]


def test_every_number_is_that_of_the_table(results: Results) -> None:
    figures = exports.export(results, "ladder", "pgfplots").split("\n\n")
    assert len(figures) == 2
    for dataset, figure in zip(("cars", "glyphs"), figures):
        cells = results.cells(dataset, "recall@1")
        plots = {name: points(coordinates) for _, _, coordinates, name in PLOT.findall(figure)}
        assert list(plots) == ["s2sd", r"a\_b", "margin", "frozen"], "the best first, baselines last"
        for name, found in plots.items():
            curve = cells[cells["method"] == name.replace("\\", "")].sort_values("frd")
            expected = np.column_stack([curve["frd"], 100 * curve["score"], 100 * curve["std"].fillna(0)])
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=0.0051)


def test_the_figure_is_sound_latex(results: Results) -> None:
    figure = exports.export(results, "ladder", "pgfplots")
    assert figure.isascii()
    code = "\n".join(line for line in figure.splitlines() if not line.startswith("%"))
    for opening, closing in ("{}", "[]", "()"):
        assert code.count(opening) == code.count(closing)
    used = {colour for colour, *_ in PLOT.findall(figure)}
    assert used == set(re.findall(r"\\definecolor\{(hue\w+)\}\{HTML\}\{[0-9A-F]{6}\}", figure))
    assert set(MARKS) == {*MARKERS, ""}


def test_a_line_is_broken_where_splits_are_missing(results: Results) -> None:
    cells = results.cells("glyphs", "recall@1")
    splits = cells.drop_duplicates("split").sort_values("frd")["split"].tolist()
    without = cells[(cells["method"] != "margin") | cells["split"].isin([splits[0], splits[-1]])]
    lines = {name: coordinates for *_, coordinates, name in PLOT.findall(ladder_figure(without, "glyphs", "recall@1"))}
    assert [pd.isna(x) for x, *_ in points(lines["margin"])] == [False, True, False]
    assert "nan" not in lines["s2sd"]


def test_frozen_networks_are_told_apart() -> None:
    published = Path(__file__).parent.parent / "reports" / "data" / "records" / "frozen"
    results = Results(records.collect(published), with_published=False)
    looks = [(colour, look) for colour, look, *_ in PLOT.findall(
        ladder_figure(results.cells("cub", "recall@1"), "cub", "recall@1"))]
    assert len(set(looks)) == len(looks) == 4


def test_other_tables_are_no_figures(results: Results, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="--table ladder"):
        exports.export(results, "ags", "pgfplots")
    runs = write_sample(tmp_path / "runs", {"margin": 0.66}, ("glyphs",), seeds=1, union=False)
    refused = CliRunner().invoke(export, ["--records", str(runs), "--table", "ladder", "--format", "pgfplots",
                                          "--columns", "ags"])
    assert "--format pgfplots makes no table with --columns" in refused.stderr
