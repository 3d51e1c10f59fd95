"""Checkpoints survive anything: whole, atomic, pruned."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from types import SimpleNamespace

import pytest
import torch

from benchmark.training import checkpoint

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def parts(device: str = "cpu") -> dict:
    layer = torch.nn.Linear(3, 2, device=device)
    optimiser = torch.optim.Adam([{"params": [layer.weight], "name": "a"}, {"params": [layer.bias], "lr": 0.5}])
    layer(torch.ones(1, 3, device=device)).sum().backward()
    optimiser.step()
    bank = {"places": torch.arange(5), "seen": torch.tensor([True, False]), "empty": torch.zeros(0, 2)}
    return {"method": layer.state_dict(), "optimiser": optimiser.state_dict(), "sampler": bank}


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a.cpu(), b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def save(folder, tensors: dict, state: dict) -> None:
    folder.mkdir(exist_ok=True)
    with closing(checkpoint.Saver(folder)) as saver:
        saver.save(tensors, state)


@pytest.mark.parametrize("device", DEVICES)
def test_everything_comes_back_as_it_was(tmp_path, device: str) -> None:
    with closing(checkpoint.Saver(tmp_path)) as saver:
        for epoch in (2, 3):  # the second one is fetched into the room of the first
            saved = parts(device)
            saver.save(saved, {"epoch": epoch, "history": {"images": 12}}, whole=True)
    tensors, state = checkpoint.load(tmp_path)
    assert same(saved, tensors)
    assert state == {"epoch": 3, "history": {"images": 12}}


def test_only_the_newest_stays_and_a_half_written_one_is_never_read(tmp_path) -> None:
    for epoch in (1, 2, 10):
        save(tmp_path, parts(), {"epoch": epoch})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00010"]
    unfinished = tmp_path / ".oodml.checkpoint.1"  # there is such a process: numbers are given again
    unfinished.mkdir()
    (unfinished / "tensors.safetensors").write_bytes(b"cut")
    assert checkpoint.load(tmp_path)[1]["epoch"] == 10
    (tmp_path / ".oodml.queries.npz.123-4").touch()  # left by a kill in the middle of writing
    (tmp_path / ".mine").touch()
    checkpoint.remove(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".mine"]
    assert checkpoint.load(tmp_path) is None


def test_epochs_are_ordered_as_numbers(tmp_path) -> None:
    save(tmp_path, parts(), {"epoch": 99_999})
    save(tmp_path / "other", parts(), {"epoch": 100_000})
    (tmp_path / "other" / "checkpoint-100000").rename(tmp_path / "checkpoint-100000")
    (tmp_path / "other").rmdir()
    (tmp_path / "checkpoint-of-mine").mkdir()
    assert checkpoint.load(tmp_path)[1]["epoch"] == 100_000
    save(tmp_path, parts(), {"epoch": 100_001})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-100001"]


def test_training_goes_on_while_the_disk_is_slow(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile is left out; what must be whole waits; what is saved is what was, not what is."""
    gate = threading.Event()
    real = checkpoint.save_file
    monkeypatch.setattr(checkpoint, "save_file", lambda *given: (gate.wait(10), real(*given)))
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    with closing(checkpoint.Saver(tmp_path)) as saver:
        saver.save({"method": layer.state_dict()}, {"epoch": 1})
        with torch.no_grad():
            layer.weight.zero_()
        saver.save({"method": layer.state_dict()}, {"epoch": 2})
        gate.set()
    tensors, state = checkpoint.load(tmp_path)
    assert state["epoch"] == 1
    assert torch.equal(tensors["method"]["weight"], before)
    with closing(checkpoint.Saver(tmp_path)) as saver:
        saver.save({"method": layer.state_dict()}, {"epoch": 3})
        saver.save({"method": layer.state_dict()}, {"epoch": 4}, whole=True)
        assert checkpoint.load(tmp_path)[1]["epoch"] == 4


def test_checkpoints_take_at_most_a_tenth_of_the_time(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(checkpoint, "time", clock)
    real = checkpoint.save_file

    def slow(*given) -> None:
        clock.now += 2
        real(*given)

    monkeypatch.setattr(checkpoint, "save_file", slow)
    with closing(checkpoint.Saver(tmp_path)) as saver:
        for epoch, now in enumerate((100.0, 110.0, 119.9, 120.0, 121.0), start=1):
            clock.now = now
            saver.save(parts(), {"epoch": epoch}, whole=epoch == 5)
            saver.settle()
            assert checkpoint.load(tmp_path)[1]["epoch"] == (1, 1, 1, 4, 5)[epoch - 1]


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_who_may_read_one_file_may_read_all(tmp_path, umask: int) -> None:
    """Several users of a group share a folder, and each goes on with the runs of others."""
    before = os.umask(umask)
    try:
        save(tmp_path, parts(), {"epoch": 1})
        checkpoint.save_weights(tmp_path / "weights.safetensors", {"w": torch.zeros(3)}, "conv4")
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}


def test_a_full_disk_is_told_and_leaves_the_old_checkpoint(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, parts(), {"epoch": 1})

    def full(copies: dict, path, metadata=None) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    saver = checkpoint.Saver(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        saver.save(parts(), {"epoch": 2}, whole=True)
    with pytest.raises(OSError, match="No space left"):
        saver.close()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00001"]
    assert checkpoint.load(tmp_path)[1]["epoch"] == 1


def test_the_order_in_memory_is_no_part_of_it(tmp_path) -> None:
    layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    save(tmp_path, {"method": layer.state_dict()}, {"epoch": 1})
    other = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    other.load_state_dict(checkpoint.load(tmp_path)[0]["method"])
    assert torch.equal(layer.weight, other.weight)
    assert other.weight.is_contiguous(memory_format=torch.channels_last)
