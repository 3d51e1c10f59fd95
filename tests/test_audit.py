"""The audit finds the published aggregates that do not follow, and none in our own exports."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from benchmark.commands.audit import command
from reports import ReportError, exports, records
from reports.analysis import audit
from reports.analysis.results import Results
from tests.sample_records import write_sample


@pytest.fixture(scope="module")
def findings() -> pd.DataFrame:
    return audit.audit()


def test_published_ags(findings: pd.DataFrame) -> None:
    ags = findings[findings["kind"] == "AGS"]
    assert ags["verdict"].value_counts()["follows"] == 44
    wrong = ags[ags["verdict"] == "does not follow"].set_index("where")
    assert wrong["recomputed"].round(2).to_dict() == {"cars, Recall@1, diva": 78.68, "cars, mAP@1000, diva": 28.18}
    assert wrong["printed"].to_dict() == {"cars, Recall@1, diva": 78.6, "cars, mAP@1000, diva": 27.9}
    assert ags["verdict"].str.startswith("incomplete").sum() == 2


def test_published_harmonic_means(findings: pd.DataFrame) -> None:
    universal = findings[findings["where"].str.startswith("table 2, universal-full")]
    assert len(universal) == 9
    assert (universal["verdict"] == "does not follow").sum() == 8
    anchor = universal[universal["where"].str.contains("proxyanchor")].iloc[0]
    assert (anchor["printed"], round(anchor["recomputed"], 2)) == (71.0, 77.99)
    specific = findings[findings["where"].str.startswith("table 2, dataset-specific")]
    assert (specific["verdict"] == "follows").all()


def test_a_finding_names_the_paper_and_how_far_it_is_off(findings: pd.DataFrame) -> None:
    table = audit.audit_table(findings)
    assert "verdict" not in {column.key for column in table.columns}  # it is the same in every row
    rows = table.frame.set_index(["paper", "where", "kind"])
    anchor = rows.loc[("UML", "table 2, universal-full, proxyanchor, Recall@1", "harmonic mean")]
    assert anchor["off"] == pytest.approx(71.0 - anchor["low"])
    assert (table.frame["off"].abs() > 0).all()
    assert (audit.audit_table(findings, everything=True).frame.query("verdict == 'follows'")["off"].abs() < 0.06).all()


def test_rounding_is_taken_into_account(tmp_path: Path) -> None:
    """Parts 0.4 and 0.6 printed as 0 and 1 allow harmonic means from 0 to 1.5 times two thirds; 2 is out of reach."""
    for claim, verdict in (("0", "follows"), ("1", "follows"), ("2", "does not follow")):
        path = tmp_path / f"{claim}.csv"
        path.write_text(f"method,dataset,value\nm,a,0\nm,b,1\nm,harmonic,{claim}\n")
        assert audit.audit([path])["verdict"].tolist() == [verdict]


def test_ags_bounds_hold_whatever_was_rounded() -> None:
    import numpy as np
    rng = np.random.default_rng(0)
    fids, scores = [8.6, 14.3, 32.2, 63.3, 123.0], [83.9, 83.0, 81.3, 75.6, 64.8]
    low, high = audit.ags_bounds(fids, scores, 0.05, 0.05)
    for _ in range(300):
        x = fids + rng.uniform(-0.05, 0.05, 5)
        y = scores + rng.uniform(-0.05, 0.05, 5)
        area = float(np.sum(np.diff(x) * (y[1:] + y[:-1]) / 2) / (x[-1] - x[0]))
        assert low - 1e-4 <= area <= high + 1e-4


def test_our_own_exports_follow(tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", {"frozen": 0.2, "margin": 0.66, "s2sd": 0.73}, seeds=2)
    results = Results(records.collect(tmp_path / "runs"))
    files = []
    for name in ("ags", "ladder", "uml"):
        files.append(tmp_path / f"{name}.csv")
        files[-1].write_text(exports.export(results, name, "csv"))
    findings = audit.audit(files)
    assert set(findings["kind"]) == {"AGS", "harmonic mean", "arithmetic mean"}
    assert (findings["verdict"] == "follows").all()
    spoiled = pd.read_csv(files[0])
    spoiled.loc[0, "ags"] += 1e-5
    spoiled.to_csv(files[0], index=False)
    assert (audit.audit(files)["verdict"] == "does not follow").sum() == 1


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot read"):
        audit.audit([tmp_path / "none.csv"])
    path = tmp_path / "plain.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ReportError, match="nothing to recompute"):
        audit.audit([path])
    path.write_text("dataset,method,ags\ncub,m,60\n")
    with pytest.raises(ReportError, match="file of its scores"):
        audit.audit([path])
    for wrong in ("abc", "inf", "1e400", "9" * 400, "6_0"):
        path.write_text(f"dataset,method,ags\ncub,m,60\ncub,n,{wrong}\n")
        with pytest.raises(ReportError, match=r"plain\.csv, row 2: '.* in the column ags is no number"):
            audit.audit([path])
    path.write_text("dataset,method\nharmonic,m\n")
    with pytest.raises(ReportError, match="nothing to recompute"):
        audit.audit([path])
    (tmp_path / "broken.csv.gz").write_bytes(b"\x1f\x8b no archive")
    with pytest.raises(ReportError, match="cannot read"):
        audit.audit([tmp_path / "broken.csv.gz"])


def test_distances_may_be_called_otherwise_in_one_of_two_ladders(tmp_path: Path) -> None:
    rows = [f"{{}},m,{split},{10 * split},{70 - split}" for split in (1, 2, 3)]
    for dataset, heads in (("cars", "dataset,method,split,fid,value"), ("cub", "dataset,method,split,frd,score")):
        (tmp_path / f"{dataset}.csv").write_text("\n".join([heads, *(row.format(dataset) for row in rows)]))
    (tmp_path / "ags.csv").write_text("dataset,method,ags\ncars,m,68\ncub,m,68\n")
    found = audit.audit([tmp_path / f"{name}.csv" for name in ("cars", "cub", "ags")])
    assert [*found["verdict"]] == ["follows"] * 2


def test_the_command_lists_what_does_not_follow() -> None:
    result = CliRunner().invoke(command, [])
    assert result.exit_code == 0, result.output
    assert "44 of 46" in result.output
    assert "77.99" in result.output
    assert len(re.findall(r" table 2, universal-full", result.output)) == 8
