"""Ladders on disk: built from a dataset, saved, found again, pinned, drawn; and which of its rungs a text means."""

from benchmark.ladders.building import build, command, import_released, made_by, of_union, published
from benchmark.ladders.saved import (
    load,
    of_other_files,
    path_of,
    present,
    refuse_other_kind,
    refuse_to_replace,
    save,
    verify,
)
from benchmark.ladders.showing import table

__all__ = ["build", "command", "import_released", "load", "made_by", "of_other_files", "of_union", "path_of", "present",
           "published", "refuse_other_kind", "refuse_to_replace", "save", "table", "verify"]
