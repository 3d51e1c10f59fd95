"""Finished runs on disk: which there are, and their trained methods as they were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import load_file

import methods
from benchmark.errors import UserError
from benchmark.plan import RunSpec
from benchmark.protocol import Protocol
from benchmark.worker import WEIGHTS
from benchmark.workspace import Workspace
from methods import Method
from methods.parts.backbones import create


@dataclass(frozen=True)
class Finished:
    """A run with a record and the trained method's weights beside it."""

    folder: Path
    spec: RunSpec

    @property
    def protocol(self) -> Protocol:
        return Protocol(**self.spec.protocol)

    def rebuild(self, classes: int) -> Method:
        """The trained method, which saw this many classes, in evaluation mode on the CPU; nothing in it trains."""
        entry, protocol = methods.get(self.spec.method), self.protocol
        base = entry.base.settings(**self.spec.base_settings) if entry.base is not None else None
        method = entry.build(create(protocol.backbone, frozen_norm=protocol.frozen_norm), classes, protocol.dim,
                             entry.settings(**self.spec.settings), base)
        try:
            method.load_state_dict(load_file(self.folder / WEIGHTS))
        except (RuntimeError, OSError) as error:
            raise UserError(f"{self.folder / WEIGHTS} does not fit {self.spec.method}: {str(error).splitlines()[0]}; "
                            "run it again") from None
        return method.eval().requires_grad_(False)


def find(workspace: Workspace, dataset: str, chosen: str = "all", splits: list[int] | None = None,
         seed: int | None = None) -> Iterator[Finished]:
    """The finished runs on a dataset by methods, rungs and seed; those without kept weights are left out."""
    names = set(methods.select(chosen)) if chosen != "all" else None
    for record in sorted((workspace.runs / dataset).glob("*/*/*/record.json")):
        folder = record.parent
        if not (folder / WEIGHTS).is_file():
            continue
        spec = RunSpec(**json.loads((folder / "spec.json").read_text()))
        if ((names is None or spec.method in names) and (splits is None or spec.split in splits)
                and seed in (None, spec.seed)):
            yield Finished(folder, spec)
