"""`python -m tests.bench [NAME...] [--device cuda]`: runs the files bench_NAME.py here and prints one table.

Each has a function `measure(device)` that yields rows.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil

from tests import bench


def main() -> None:
    found = [m.name.removeprefix("bench_") for m in pkgutil.iter_modules(bench.__path__) if m.name.startswith("bench_")]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*found, []], help="what to measure (default: all)")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    print(f"{'what':58} {'ours':>12} {'other':>12} {'ratio':>7} {'aim':>6}  against")
    for name in arguments.names or found:
        for row in importlib.import_module(f"tests.bench.bench_{name}").measure(arguments.device):
            other = "" if row.other is None else f"{row.other:.4g}"
            ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
            target = "" if row.target is None else f"{row.target:g}"
            print(f"{row.name:58} {row.ours:>10.4g} {row.unit:1.1} {other:>12} {ratio:>7} {target:>6}  {row.against}",
                  flush=True)


if __name__ == "__main__":
    main()
