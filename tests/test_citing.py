"""`oodml export --format bib`: what a paper cites, each entry once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import methods
from benchmark.commands.export import command as export
from reports import citing, records
from reports.analysis.results import Results
from tests.sample_records import make_record

PUBLISHED = Path(__file__).parent.parent / "reports" / "data" / "records"


def entries(text: str) -> dict[str, str]:
    """The entries by their keys, as a reader of braces finds them."""
    found = {}
    for start in re.finditer(r"^@\w+\{([^,\s]+),", text, re.MULTILINE):
        depth = 0
        for end in range(start.start(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0 and text[end] == "}":
                break
        assert start[1] not in found
        found[start[1]] = text[start.start():end + 1]
    return found


def plain(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("folder", ["photos", "glyphs"])
def test_every_method_of_the_published_records_is_cited_once(folder: str) -> None:
    results = Results(records.collect(PUBLISHED / folder), with_published=False)
    text = citing.bibliography(results.runs)
    found = entries(text)
    assert {"oodml2026", "milbich2021characterizing"} < set(found)
    assert len(re.findall("^@", text, re.MULTILINE)) == len(found), "nothing of an entry stands outside of it"
    trained = results.runs[~results.runs["baseline"]]
    for name, cite in zip(trained["base_method"], trained["cite"]):
        for entry in entries(cite).values():
            assert plain(entry) in map(plain, found.values()), name
    named = {name for line in re.findall(r"^% (.*)$", text, re.MULTILINE) for name in line.split(", ")}
    assert named == set(trained["base_method"])


def test_entries_of_one_key_are_the_same() -> None:
    cites: dict[str, set[str]] = {}
    for name in methods.names():
        for key, entry in entries(methods.get(name).cite or "").items():
            cites.setdefault(key, set()).add(plain(entry))
    assert {key: texts for key, texts in cites.items() if len(texts) > 1} == {}


def test_odd_citations_leave_the_file_whole(tmp_path: Path) -> None:
    cites = {"at": "@misc{a,\n note={see\n@home}}", "indented": "  @misc{b, title={B}} @misc {c, title={C}}",
             "ladder": "@inproceedings{milbich2021characterizing, title={Again}}",
             "recall@k": "@misc{a,\n note={other}}"}
    for name, cite in cites.items():
        record = make_record("glyphs", 1, name)
        record["method"]["cite"] = cite
        records.write(tmp_path / "glyphs" / "1" / name.replace("@", "-") / "s0-0", record)
    text = citing.bibliography(Results(records.collect(tmp_path), with_published=False).runs)
    assert text.count("{") == text.count("}")
    assert "% at, recall at k\n@misc{a,\n note={see\n@home}}\n" in text
    assert "% indented\n@misc{b, title={B}}\n\n% indented\n@misc {c, title={C}}\n" in text
    assert text.count("milbich2021characterizing") == 1


def test_what_has_no_citation_is_named(tmp_path: Path) -> None:
    for name, cite in (("mine", None), ("odd", "see my page"), ("margin", "@misc{me, title={Me}}")):
        record = make_record("glyphs", 1, name)
        record["method"]["cite"] = cite
        records.write(tmp_path / "glyphs" / "1" / name / "s0-0", record)
    done = CliRunner().invoke(export, ["--records", str(tmp_path), "--format", "bib"])
    assert done.exit_code == 0, done.output
    assert done.stdout.endswith("% margin\n@misc{me, title={Me}}\n\n% without a citation: mine, odd\n")
    refused = CliRunner().invoke(export, ["--records", str(tmp_path), "--format", "bib", "--columns", "ags"])
    assert "--format bib makes no table with --columns" in refused.stderr
