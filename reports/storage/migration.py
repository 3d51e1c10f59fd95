"""How records of earlier versions are read: a chain of steps, each from one version of the schema to the next.

A record is brought to today's version in memory whenever it is read; its file stays as it was written. A key that may
be absent needs no new version. Whoever renames a key, takes one away or changes what one means adds a step here.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

from reports import ReportError


class IncompatibleRecord(ReportError):
    """A record of a version that this one does not know."""


def _named_alike(record: dict[str, Any]) -> dict[str, Any]:
    """1 to 2: an ensemble of M's dataset-specific models is `ensemble:M`, as studies called it; the command called it
    `specific-M`.
    """
    method = record.get("method")
    if not isinstance(method, dict) or "ensemble" not in (method.get("tags") or ()):
        return record
    return {**record, "method": {**method, "name": str(method.get("name")).replace("specific-", "ensemble:", 1)}}


STEPS: tuple[Callable[[dict[str, Any]], dict[str, Any]], ...] = (_named_alike,)
"""The step at place i leads from version i + 1 to version i + 2."""
SCHEMA = 1 + len(STEPS)


def current(record: dict[str, Any]) -> dict[str, Any]:
    """The record as today's version would have written it; `IncompatibleRecord` where it is newer, or of no version.

    >>> current({"schema": 1, "method": {"name": "specific-margin", "tags": ["ensemble"]}})
    {'schema': 2, 'method': {'name': 'ensemble:margin', 'tags': ['ensemble']}}
    """
    version = record.get("schema")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise IncompatibleRecord(f"the record has schema {version!r}, which no version of oodml has written")
    if version > SCHEMA:
        raise IncompatibleRecord(f"the record has schema {version}, this version of oodml reads 1 to {SCHEMA}: "
                                 "update oodml")
    for step in STEPS[version - 1:]:
        record = step(record)
    return {**record, "schema": SCHEMA}


@lru_cache(maxsize=1024)
def overrides_of(source: str, command: str) -> dict[str, list[Any]] | None:
    """{key: [None, value]} that the command of a run changed, for records from before they told; None where a study
    may have, or no command is known.

    All runs of a sweep have one command, and a shell's words take long to find.

    >>> overrides_of("run", "oodml run --protocol oodml --set epochs=30"), overrides_of("run", "")
    ({'epochs': [None, '30']}, None)
    """
    if source != "run":
        return {}
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if "run" not in words[:2] or any(word.partition("=")[0] == "--study" for word in words):
        return None
    pairs = [word.removeprefix("--set=") for before, word in pairwise(["", *words])
             if before == "--set" or word.startswith("--set=")]
    return {key: [None, value] for key, _, value in (pair.partition("=") for pair in pairs)}
