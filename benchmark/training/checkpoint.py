"""The state of a run between two epochs: one folder of safetensors and JSON, written beside and swapped in."""

from __future__ import annotations

import json
import shutil
import time
import warnings
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmark.data.weights import BACKBONE
from benchmark.utils import leftovers
from benchmark.utils.files import flush, whole
from reports.safe_text import one_line

NAME, DAMAGED, SUMS = "checkpoint", ".damaged-checkpoint", "sums.json"
SHARE = 0.1
"""Most of a run's time that checkpoints are written in: copying, hashing and flushing take from what trains beside."""
Kind = tuple[torch.dtype, torch.device]


class Saver:
    """Writes the checkpoints of one run in a thread, so that training does not wait for the disk.

    Training waits only until everything is copied where it lies, on a GPU for some milliseconds. A checkpoint that
    comes while the last one is still being written, or so soon after it that writing would take more than `SHARE` of
    the time, is left out, unless it must be `whole`: then the call comes back when it is on the disk. An error in the
    thread is raised by the next call.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._thread = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._pinned: dict[Kind, Tensor] = {}
        self._next = 0.0

    def save(self, tensors: dict[str, dict[str, Any]], state: dict[str, Any], whole: bool = False) -> None:
        """Keep a run as it is now; `tensors` maps a part's name (method, optimiser, sampler) to its state dict."""
        if self._writing is not None and (whole or self._writing.done()):
            self._writing.result()
            self._writing = None
        if self._writing is None and (whole or time.monotonic() >= self._next):
            flat: dict[str, Tensor] = {}
            plan = {part: _flatten(value, part, flat) for part, value in tensors.items()}
            self._writing = self._thread.submit(self._write, Packed(flat), {"state": state, "plan": plan})
        if whole and self._writing is not None:
            self._writing.result()

    def settle(self) -> None:
        """Come back when nothing is being written: while a CUDA graph is captured no other thread may touch the GPU."""
        if self._writing is not None:
            self._writing.result()

    def close(self) -> None:
        """Wait for the thread; after this nothing is left to be written."""
        self._thread.shutdown()
        if self._writing is not None:
            self._writing.result()

    def _write(self, packed: Packed, content: dict[str, Any]) -> None:
        """A kill at any moment leaves the old checkpoint or the new one, never half of one."""
        began = time.monotonic()
        for left, _ in leftovers.within(self.folder, NAME):
            shutil.rmtree(left, ignore_errors=True)
        fresh = leftovers.unfinished(self.folder / NAME)
        fresh.mkdir()  # without parents: where the run's folder was removed meanwhile, it is not made again
        try:
            _save_tensors(packed.on_host(self._pinned), fresh / "tensors.safetensors")
            (fresh / "state.json").write_text(json.dumps(content))
            (fresh / SUMS).write_text(json.dumps({path.name: _sum(path) for path in fresh.iterdir()}))
            for path in fresh.iterdir():
                flush(path)
        except BaseException:
            # a full disk has no room for half a checkpoint
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        # Epochs are in the names: two renames could lose both, one new name and a late delete cannot.
        target = self.folder / _name(content["state"]["epoch"])
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
        flush(self.folder)
        for old in _by_epoch(self.folder)[:-1]:
            shutil.rmtree(old, ignore_errors=True)
        self._next = began + (time.monotonic() - began) / SHARE


class Packed:
    """Copies of tensors, one run of memory for all of a kind: hundreds of small transfers would hold up training."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._names: dict[Kind, list[str]] = {}
        for name, value in tensors.items():
            self._names.setdefault((value.dtype, value.device), []).append(name)
        self._shapes = {name: value.shape for name, value in tensors.items()}
        self._runs = {kind: torch.cat([tensors[name].detach().reshape(-1) for name in names])
                      for kind, names in self._names.items()}
        gpu = next((device for _, device in self._runs if device.type == "cuda"), None)
        self._copied = torch.cuda.current_stream(gpu).record_event() if gpu else None

    def on_host(self, pinned: dict[Kind, Tensor]) -> dict[str, Tensor]:
        """All of them in main memory, fetched beside what the GPU does meanwhile; `pinned` is room that is kept."""
        runs = dict(self._runs)
        if self._copied is not None:
            with torch.cuda.stream(torch.cuda.Stream(self._copied.device)):
                self._copied.wait()
                for kind, run in self._runs.items():
                    if run.is_cuda:
                        if kind not in pinned or len(pinned[kind]) != len(run):
                            pinned[kind] = torch.empty_like(run, device="cpu", pin_memory=True)
                        runs[kind] = pinned[kind].copy_(run, non_blocking=True)
                torch.cuda.current_stream().synchronize()
        return {name: piece.view(self._shapes[name]) for kind, names in self._names.items()
                for name, piece in zip(names, runs[kind].split([self._shapes[name].numel() for name in names]))}


def save_weights(path: Path, state: dict[str, Tensor], backbone: str) -> None:
    """A trained method as safetensors with the name of its backbone, all of it or nothing."""
    with whole(path) as part:
        _save_tensors({key: value.detach().cpu().contiguous().clone() for key, value in state.items()}, part,
                      {BACKBONE: backbone})
        flush(part)


def _save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """As safetensors, for those to read who may read the other files: the library lets nobody but the user."""
    path.touch()
    mode = path.stat().st_mode
    save_file(tensors, path, metadata)
    if path.stat().st_mode != mode:
        path.chmod(mode)


def load(folder: Path) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The newest checkpoint that can be read as (state dicts by part, state), or None; damaged ones are set aside."""
    while (path := _newest(folder)) is not None:
        try:
            _check_sums(path)
            content = json.loads((path / "state.json").read_text(encoding="utf-8"))
            flat = load_file(path / "tensors.safetensors")
            tensors = {part: _restore(plan, flat) for part, plan in content["plan"].items()}
            if path.name != _name(content["state"]["epoch"]):
                raise ValueError(f"it says that it is of epoch {content['state']['epoch']}")
            return tensors, content["state"]
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, SafetensorError, ValueError, KeyError,
                TypeError, AttributeError, RecursionError) as error:  # another OSError may pass
            set_aside(folder, _reason(error))
    return None


def _reason(error: Exception) -> str:
    """Why a checkpoint cannot be used, in words.

    >>> _reason(FileNotFoundError(2, "No such file", "run/checkpoint-00003/state.json")), _reason(KeyError("plan"))
    ('state.json is not there', 'it does not hold what runs write')
    """
    if isinstance(error, OSError):
        return f"{Path(str(error.filename)).name} is not there"
    told = isinstance(error, (SafetensorError, ValueError)) and not isinstance(error, json.JSONDecodeError)
    return str(error) if told else "it does not hold what runs write"


def _sum(path: Path) -> int:
    """CRC-32 of a file: a byte that a disk turned over would go on into the record."""
    found = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            found = zlib.crc32(block, found)
    return found


def _check_sums(path: Path) -> None:
    """A ValueError where a file is not as it was written; checkpoints of earlier versions do not say."""
    if (path / SUMS).exists():
        sums = json.loads((path / SUMS).read_text(encoding="utf-8"))
        for name in ("state.json", "tensors.safetensors"):
            if _sum(path / name) != sums[name]:
                raise ValueError(f"{name} is not as it was written")


def _newest(folder: Path) -> Path | None:
    return next(reversed(_by_epoch(folder)), None)


def _by_epoch(folder: Path) -> list[Path]:
    """The checkpoints of a run, newest last; what has no number for an epoch is none, and comes first."""
    def epoch(path: Path) -> int:
        number = path.name.removeprefix(f"{NAME}-")
        return int(number) if number.isdecimal() else -1

    return sorted(folder.glob(f"{NAME}-*"), key=epoch)


def _name(epoch: int) -> str:
    return f"{NAME}-{epoch:05d}"


def set_aside(folder: Path, why: str) -> None:
    """Takes the newest checkpoint out of use, so that a run goes on from the one before it or begins anew."""
    path = _newest(folder)
    if path is None:
        return
    aside = folder / path.name.replace(NAME, DAMAGED, 1)
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    warnings.warn(f"{path} is damaged ({one_line(why, 300)}) and was set aside: the run goes on from the checkpoint "
                  "before it or, where there is none, from its beginning", stacklevel=2)


def remove(folder: Path) -> None:
    """Delete the checkpoints of a finished run, also damaged ones, and what a kill left of unfinished files.

    However young these are: nobody else writes to the folder of a run that is held.
    """
    half = [path for path, _ in leftovers.within(folder)]
    for path in [*folder.glob(f"{NAME}-*"), *folder.glob(f"{DAMAGED}-*"), *half]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _flatten(value: Any, where: str, flat: dict[str, Tensor]) -> Any:
    """Tensors go to `flat` and leave their name; the rest stays as JSON that `_restore` reads back."""
    if isinstance(value, torch.Tensor):
        flat[where] = value
        return {"tensor": where}
    if isinstance(value, dict):
        return {"dict": [[key, _flatten(item, f"{where}.{key}", flat)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_flatten(item, f"{where}.{i}", flat) for i, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    return {"value": value}


def _restore(plan: Any, flat: dict[str, Tensor]) -> Any:
    ((kind, value),) = plan.items()
    if kind == "tensor":
        return flat[value]
    if kind == "dict":
        return {key: _restore(item, flat) for key, item in value}
    if kind in ("list", "tuple"):
        items = [_restore(item, flat) for item in value]
        return tuple(items) if kind == "tuple" else items
    return value

