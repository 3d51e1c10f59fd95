"""Finished runs on disk: which there are, and their trained methods as they were."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import methods
from benchmark import datasets, ladders
from benchmark.config.plan import split_of
from benchmark.config.protocol import Protocol
from benchmark.config.spec import RunSpec
from benchmark.data import contents, weights
from benchmark.data.store import ImageStore, open_store
from benchmark.data.task import Side, Task, learnt
from benchmark.datasets import DatasetIndex
from benchmark.ladders import rungs
from benchmark.utils.errors import UserError
from benchmark.utils.files import write_json
from benchmark.utils.workspace import ENVIRONMENT, SPEC, Workspace
from methods import backbones
from reports import records
from splits.manifest import Ladder

if TYPE_CHECKING:  # torch takes seconds: what is refused is refused before
    from torch import Tensor

    from benchmark.data.loader import Loader
    from methods import Method

UNTRAINED = ("frozen",)
"""Methods that need no kept weights: they are their backbone."""


@dataclass(frozen=True)
class Finished:
    """A run with a record, and with the trained method's weights beside it where these were kept."""

    folder: Path
    spec: RunSpec

    @classmethod
    def at(cls, folder: Path) -> Finished:
        """The run in a folder."""
        spec = RunSpec.read(folder)
        if spec is None and not (folder / SPEC).exists():
            raise UserError(f"{folder} has a record alone, unpacked or copied, and no weights: nothing can be computed "
                            "from it; run it again in a new folder (--work DIR)")
        if spec is None:
            raise UserError(f"{folder / 'spec.json'} cannot be read: it is damaged or of another version of oodml; use "
                            "that version, or move the folder away")
        return cls(folder, spec)

    @property
    def has_weights(self) -> bool:
        """Whether the trained method's weights lie beside the record."""
        return (self.folder / weights.RUN).is_file()

    @property
    def kept(self) -> bool:
        """Whether the method is there as it was: its weights were kept, or nothing in it was trained."""
        return self.has_weights or self.spec.method in UNTRAINED

    @property
    def protocol(self) -> Protocol:
        return self.spec.protocol

    @property
    def dataset(self) -> str:
        """The dataset as the user named it, such as folder:PATH; its name where an older run kept no more."""
        try:
            return str(json.loads((self.folder / ENVIRONMENT).read_text(encoding="utf-8"))["dataset"])
        except (OSError, ValueError, KeyError, TypeError):
            return self.spec.dataset

    @property
    def frozen_at_hand(self) -> bool:
        """Whether it is the frozen backbone and its pretrained weights are at hand, from which it is made again."""
        return (self.spec.method == "frozen" and self.spec.weights != weights.SCRATCH
                and not self.has_weights
                and weights.identify(self.protocol.backbone, None) == self.spec.weights)

    def _same_files(self, index: DatasetIndex, contents: str) -> bool:
        """Whether list and files are those of the run; `contents` is not asked for where either is not known."""
        return index.hash == self.spec.dataset_hash and (not self.spec.contents or contents in ("", self.spec.contents))

    def fits(self, index: DatasetIndex, ladder: Ladder, contents: str = "") -> bool:
        """Whether the dataset still has the files and the ladder the classes that the run saw."""
        return (self._same_files(index, contents)
                and any((rung.id, rung.hash) == (self.spec.split, self.spec.split_hash) for rung in ladder.splits))

    def task(self, index: DatasetIndex, ladder: Ladder, contents: str = "") -> Task:
        """What the run was trained and measured on, if the dataset still has the same files."""
        if not self._same_files(index, contents):
            raise UserError(f"{self.folder} was made from other files than {index.name} has now; run it again")
        return Task.of(index, split_of(ladder, self.spec), hold_out=self.protocol.validation)

    def rebuild(self, classes: int) -> Method:
        """The trained method, which saw this many classes, in evaluation mode on the CPU; nothing in it trains."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self.has_weights:
            return self.start(classes)
        backbone = backbones.create(self.protocol.backbone, frozen_norm=self.protocol.frozen_norm)
        method = self.spec.build(backbone, classes)
        try:
            method.load_state_dict(load_file(self.folder / weights.RUN))
        except (RuntimeError, OSError, SafetensorError) as error:
            raise UserError(f"{self.folder / weights.RUN} is damaged or does not fit {self.spec.method}: "
                            f"{str(error).splitlines()[0]}; run it again") from None
        return method.eval().requires_grad_(False)

    def start(self, classes: int) -> Method:
        """The method as it was before its first step, if the weights of its backbone are still those."""
        import torch

        from benchmark.runs import ready

        with torch.random.fork_rng(devices=()):
            return ready.start(self.spec, weights_file(self.folder), classes).eval().requires_grad_(False)

    def images(self, index: DatasetIndex, workspace: Workspace) -> ImageStore:
        """The decoded images of any dataset, as large as its protocol looks at them."""
        return open_store(index, workspace.cache, shorter=self.protocol.decoded_side)

    def ready(self, classes: int, store: ImageStore, device: str) -> tuple[Method, Loader]:
        """The trained method on a device, and what brings it these `images` as its protocol wants them."""
        from benchmark.data.loader import Loader
        from benchmark.runs.ready import transform_of

        method = self.rebuild(classes).to(device)
        return method, Loader(store, transform_of(self.protocol, method), device)

    def embed(self, side: Side, index: DatasetIndex, workspace: Workspace, device: str) -> Tensor:
        """What the trained method makes of images of any dataset, its own or another."""
        from benchmark.training import train

        split = split_of(ladders.load(workspace, self.spec.dataset), self.spec)
        method, loader = self.ready(len(learnt(split, self.protocol.validation)), self.images(index, workspace), device)
        return train.embed(method, loader, side.ids, self.protocol, device)

    def write_beside(self, name: str, schema: int, **content: Any) -> None:
        """Write a JSON file beside the record: of which run it is, and then its content."""
        spec = self.spec
        write_json(self.folder / name, {"schema": schema, "run": spec.identity, "dataset": spec.dataset,
                                        "split": spec.split, "method": spec.method, "seed": spec.seed, **content})


@dataclass(frozen=True)
class FinishedRuns:
    """Finished runs on one dataset, with its images and its ladder, both of which they fit."""

    index: DatasetIndex
    ladder: Ladder
    runs: list[Finished]


def weights_file(folder: Path) -> str | None:
    """The file of one's own weights that a run began with, if it had one."""
    try:
        file = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8")).get("weights_file")
        return None if file is None else str(file)
    except (OSError, ValueError, AttributeError):
        return None


def on_default(runs: Iterable[Finished], workspace: Workspace) -> list[Finished]:
    """Those that were trained on the default split of their dataset, as its ladder has it now."""
    runs = list(runs)
    defaults = {name: ladders.load(workspace, name).default.hash for name in {run.spec.dataset for run in runs}}
    return [run for run in runs if run.spec.split_hash == defaults[run.spec.dataset]]


def find(workspace: Workspace, dataset: str, chosen: str = "all", splits: list[int] | None = None,
         untrained: bool = False) -> Iterator[Finished]:
    """The finished runs on a dataset by methods and rungs; those without kept weights are left out.

    With `untrained` also those that need none, since nothing was trained.

    `dataset` is the name in the index: `mine` for folder:PATH/mine.
    """
    names = set(methods.select(chosen)) if chosen != "all" else None
    for folder in _folders(workspace, dataset):
        frozen = untrained and folder.parent.name in UNTRAINED and (folder / SPEC).is_file()
        if not frozen and not (folder / weights.RUN).is_file():
            continue
        run = Finished.at(folder)
        if (names is None or run.spec.method in names) and (splits is None or run.spec.split in splits):
            yield run


def matching(workspace: Workspace, dataset: str, chosen: str = "all", splits: str = "all",
             runs: Iterable[Finished] | None = None, untrained: bool = False) -> FinishedRuns:
    """The finished runs of these methods and splits, or of `runs`, that the dataset and its ladder still fit.

    A UserError where there is no ladder, no such split or no such run. `dataset` is as the user names it, `splits` as
    for `oodml run`, `untrained` as for `find`.
    """
    index = datasets.load(dataset, workspace.data)
    ladder = ladders.load(workspace, dataset, index)
    wanted = rungs.ids(splits, ladder)
    able = list(find(workspace, index.name, chosen, wanted, untrained=untrained) if runs is None else runs)
    content = contents.contents(index, workspace.cache) if able else ""  # it may read every file
    if fitting := [run for run in able if run.fits(index, ladder, content)]:
        return FinishedRuns(index, ladder, fitting)
    command = f"oodml run --dataset {dataset} --methods {chosen} --splits {splits}"
    if untrained:
        _refuse_without_weights(without_weights(workspace, index.name, chosen, wanted), command)
    elif chosen != "all" and set(methods.select(chosen)) <= set(UNTRAINED):
        raise UserError(f"{chosen} trains nothing, so its runs keep no weights: name methods that train")
    raise UserError(f"no finished run of {chosen} on {dataset} (splits: {splits}) with kept weights in "
                    f"{workspace.runs}: `{command}` makes them")


def without_weights(workspace: Workspace, dataset: str, chosen: str = "all",
                    splits: list[int] | None = None) -> dict[Path, str]:
    """The finished runs that `find` leaves out: their folders, each with the name of its protocol."""
    names = set(methods.select(chosen)) if chosen != "all" else None
    protocols = {}
    for folder in _folders(workspace, dataset):
        if (folder / weights.RUN).is_file():
            continue
        record = records.read(folder)  # beside an unpacked record lies no spec
        if (names is None or record["method"]["name"] in names) and (splits is None or record["split"]["id"] in splits):
            protocols[folder] = str(record["protocol"]["name"])
    return protocols


def _refuse_without_weights(bare: dict[Path, str], command: str) -> None:
    """A UserError if there are finished runs without weights, by folder and protocol: they must be run elsewhere."""
    if not bare:
        return
    protocols = sorted(set(bare.values()))
    why = "" if any((folder / SPEC).exists() for folder in bare) else ", since only records were unpacked"
    again = " and ".join(f"`{command} --protocol {name} --work DIR`" for name in protocols)
    raise UserError(f"{len(bare)} finished run{'s have' if len(bare) > 1 else ' has'} no kept weights{why}; run "
                    f"{'them' if len(bare) > 1 else 'it'} again in a new folder: {again}")


def _folders(workspace: Workspace, dataset: str) -> list[Path]:
    return sorted(record.parent for record in (workspace.runs / dataset).glob(f"*/*/*/{records.RECORD}"))
