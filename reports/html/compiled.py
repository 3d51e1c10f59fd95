"""Templates as code, kept from one report to the next: to compile them takes longer than to fill all pages in."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.metadata import version
from importlib.util import cache_from_source
from pathlib import Path

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

from reports.storage import paths


class Compiled(BytecodeCache):
    """Compiled templates lie among Python's compiled modules, under its rules: none where it keeps none.

    One is compiled anew when its source or the version of Python is another, which jinja2 sees to, and when the version
    of jinja2 or the options of the environment are.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        with suppress(OSError), _file(bucket).open("rb") as file:
            bucket.load_bytecode(file)

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):  # an installation that its user may not write to
                _file(bucket).parent.mkdir(parents=True, exist_ok=True)
                paths.write(_file(bucket), bucket.bytecode_to_string())

    def get_bucket(self, environment: Environment, name: str, filename: str | None, source: str) -> Bucket:
        options = (version("jinja2"), environment.autoescape, environment.trim_blocks,
                   environment.lstrip_blocks, environment.keep_trailing_newline, environment.optimized)
        return super().get_bucket(environment, name, filename, f"{options}{source}")


def _file(bucket: Bucket) -> Path:
    return Path(cache_from_source(str(Path(__file__).with_name(f"template-{bucket.key[:16]}.py"))))
