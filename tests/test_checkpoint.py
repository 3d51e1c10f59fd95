"""Checkpoints survive anything: whole, atomic, pruned."""

from __future__ import annotations

import torch

from benchmark import checkpoint


def parts() -> dict:
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam([{"params": [layer.weight], "name": "a"}, {"params": [layer.bias], "lr": 0.5}])
    layer(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    return {"method": layer.state_dict(), "optimiser": optimiser.state_dict(), "sampler": {}}


def same(a, b) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_everything_comes_back_as_it_was(tmp_path) -> None:
    saved = parts()
    checkpoint.save(tmp_path, saved, {"epoch": 3, "history": {"images": 12}})
    tensors, state = checkpoint.load(tmp_path)
    assert same(saved, tensors)
    assert state == {"epoch": 3, "history": {"images": 12}}


def test_only_the_newest_stays_and_a_half_written_one_is_never_read(tmp_path) -> None:
    for epoch in (1, 2, 10):
        checkpoint.save(tmp_path, parts(), {"epoch": epoch})
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-00010"]
    unfinished = tmp_path / ".checkpoint-99"
    unfinished.mkdir()
    (unfinished / "tensors.safetensors").write_bytes(b"cut")
    assert checkpoint.load(tmp_path)[1]["epoch"] == 10
    checkpoint.remove(tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert checkpoint.load(tmp_path) is None
