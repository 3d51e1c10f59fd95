"""Records of earlier versions: read as today's, their files left as they are; newer ones refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from reports import records
from reports.storage import migration
from reports.storage.migration import IncompatibleRecord
from tests.sample_records import make_record


def ensemble(name: str, **changes: Any) -> dict[str, Any]:
    """A record as version 1 wrote it of dataset-specific models."""
    record = make_record("glyphs-union", domains={"latin": 0.5, "greek": 0.25}, schema=1)
    record["method"] = {**record["method"], "name": name, "tags": ["oodml", "ensemble"], **changes}
    return record


@pytest.mark.parametrize("name", ["specific-margin", "ensemble:margin"])
def test_both_names_of_an_ensemble_become_one_and_files_stay(tmp_path: Path, name: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(ensemble(name)))
    before = path.read_bytes()
    found = records.read(tmp_path)
    assert found["method"]["name"] == "ensemble:margin"
    assert found["schema"] == records.SCHEMA
    assert list(records.collect(tmp_path)["method"]) == ["ensemble:margin"]
    assert path.read_bytes() == before


def test_a_record_of_version_1_is_otherwise_the_same(tmp_path: Path) -> None:
    record = make_record(schema=1)
    (tmp_path / "record.json").write_text(json.dumps(record))
    assert records.read(tmp_path) == json.loads(json.dumps({**record, "schema": records.SCHEMA}))


def test_somebodys_own_name_is_kept() -> None:
    assert migration.current(ensemble("specific-mine", tags=["mine"]))["method"]["name"] == "specific-mine"


def test_steps_change_nothing_that_they_are_given() -> None:
    record = ensemble("specific-margin")
    before = copy.deepcopy(record)
    migration.current(record)
    assert record == before


@pytest.mark.parametrize("schema", [records.SCHEMA + 1, 0, -1, None, "1", True, 1.0])
def test_other_versions_are_refused_in_one_line(tmp_path: Path, schema: object) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(make_record() | {"schema": schema}))
    with pytest.raises(IncompatibleRecord) as error:
        records.read(tmp_path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    if schema == records.SCHEMA + 1:
        assert "update oodml" in str(error.value)


def test_todays_version_is_the_end_of_the_chain() -> None:
    assert len(migration.STEPS) + 1 == records.SCHEMA
    assert migration.current(make_record()) == make_record()
