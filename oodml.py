"""What a researcher imports: `import oodml`, then `oodml.frechet_distance`, `oodml.retrieval`, `oodml.ags` and so on.

Each name is loaded when it is first used, so that importing this file needs neither torch nor pandas.

    splits      frechet_distance, build_ladder, load_ladder, save_ladder
    measures    retrieval; evaluate: an encoder of one's own on a ladder
    scores      ags, harmonic_mean
    records     collect
    runs        run(method, dataset, split, **settings) trains one and returns its record
    methods     register, create; `oodml.methods` has names(), get(name), Objective, setting and the rest

From here on `benchmark`, `methods`, `splits` and `reports` are the packages beside this file, whatever lies in the
folder that Python was started in. A project with a package of its own under one of these names cannot import both.

>>> harmonic_mean = __getattr__("harmonic_mean")
>>> round(harmonic_mean([0.5, 1.0]), 3)
0.667
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import methods
    from benchmark.metrics import retrieval
    from benchmark.runs.single import run
    from benchmark.submissions.encoder import evaluate
    from methods import create, register
    from reports.aggregate import ags, harmonic_mean
    from reports.records import collect
    from splits.frechet import frechet_distance
    from splits.ladder import build_ladder
    from splits.manifest import load as load_ladder
    from splits.manifest import save as save_ladder

__all__ = ["ags", "build_ladder", "collect", "create", "evaluate", "frechet_distance", "harmonic_mean", "load_ladder",
           "main", "methods", "register", "retrieval", "run", "save_ladder"]

ROOT = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ("benchmark", "methods", "splits", "reports")

SOURCES = {
    "ags": ("reports.aggregate", "ags"),
    "build_ladder": ("splits.ladder", "build_ladder"),
    "collect": ("reports.records", "collect"),
    "create": ("methods", "create"),
    "evaluate": ("benchmark.submissions.encoder", "evaluate"),
    "frechet_distance": ("splits.frechet", "frechet_distance"),
    "harmonic_mean": ("reports.aggregate", "harmonic_mean"),
    "load_ladder": ("splits.manifest", "load"),
    "methods": ("methods", ""),
    "register": ("methods", "register"),
    "retrieval": ("benchmark.metrics", "retrieval"),
    "run": ("benchmark.runs.single", "run"),
    "save_ladder": ("splits.manifest", "save"),
}
"""Where each public name is defined: the module and its name there; empty for the module itself."""


class OwnPackages(MetaPathFinder):
    """Finds our packages beside this file before the search path is asked.

    `python script.py`, `python -m` and notebooks put the user's folder first on the search path, where a folder of data
    called `splits` is enough to hide ours from an editable installation.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None,
                  ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [ROOT]) if fullname in PACKAGES else None


def _use_own_packages() -> None:
    """Put the finder first; an error if a package of the same name was imported from elsewhere before."""
    for name in PACKAGES:
        module = sys.modules.get(name)
        if module is None:
            continue
        own = os.path.join(ROOT, name)
        folders = list(getattr(module, "__path__", [])) or [getattr(module, "__file__", None) or "an unknown file"]
        if os.path.realpath(folders[0]) != os.path.realpath(own):
            raise ImportError(f"oodml needs its own package '{name}' ({own}), but a module of that name was imported "
                              f"from {folders[0]} before; rename that one, or use oodml in a process that does not "
                              "import it", name=name, path=folders[0])
    sys.meta_path.insert(0, OwnPackages())


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from benchmark import __version__

        return __version__
    if name not in SOURCES:
        raise AttributeError(f"module 'oodml' has no attribute '{name}'; it has {', '.join(__all__)}")
    module, attribute = SOURCES[name]
    value: Any = importlib.import_module(module)
    if attribute:
        value = getattr(value, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def main(arguments: list[str] | None = None) -> None:
    """The command `oodml`, also as `python -m oodml`; `arguments` default to those of the process."""
    try:
        from benchmark.cli import main
    except KeyboardInterrupt:
        sys.exit(130)
    main(arguments)


_use_own_packages()

if __name__ == "__main__":
    main()
