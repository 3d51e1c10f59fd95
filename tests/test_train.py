"""The training loop: rates, warm-up, what is logged, what is compiled, and how it ends badly."""

from __future__ import annotations

import itertools
import json
import logging
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmark.config.protocol import Protocol
from benchmark.data.loader import Loader
from benchmark.data.store import ImageStore, open_store
from benchmark.data.task import Side
from benchmark.data.transform import Transform
from benchmark.training import checkpoint, compiling, meter, train
from benchmark.training.distributed import World
from benchmark.training.meter import Diverged
from benchmark.utils.errors import UserError
from methods import Method, Objective
from methods.margin import Margin
from methods.samplers import batches
from tests.pictures import Drawing, drawn

PLAIN = Protocol(name="test", backbone="tiny", dim=4, epochs=3, batch_size=4, lr=0.01, weight_decay=0.0, size=8)


class Tiny(nn.Module):
    """A convolution, its batch norm and a pool."""

    name, dim, mean, std = "tiny", 6, (0.5,) * 3, (0.5,) * 3

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                                  nn.Flatten())

    def forward(self, images: Tensor) -> Tensor:
        return self.body(images)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return open_store(drawn(24, Drawing(height=12, width=12)), tmp_path_factory.mktemp("cache"), progress=False)


@pytest.fixture
def fit(store: ImageStore, tmp_path: Path) -> Any:
    """Trains a fresh method; gives it, its history and what was logged."""

    def call(protocol: Protocol = PLAIN, objective: Objective | None = None, folder: str = "run",
             **options: Any) -> SimpleNamespace:
        torch.manual_seed(0)
        labels = np.arange(24) // 3
        method = Method(Tiny(), objective or Margin(Margin.Settings(), 8, 4), 4)
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        events: list[dict[str, Any]] = []
        error = None
        history = None

        def evaluate() -> dict[str, Any]:
            method.eval()  # as a real one leaves it
            return {"test": {"recall@1": 0.5}}

        fields = {"seed": 0, "device": "cpu", "folder": place, "evaluate": evaluate, "report": events.append, **options}
        try:
            history = train.train(method, train.TrainContext(
                Side(np.arange(24), labels, tuple("abcdefgh")), Loader(store, Transform(size=8, resize=8)),
                batches.create("spc-2", torch.from_numpy(labels), 4), protocol, **fields))
        except (Diverged, train.Interrupted, RuntimeError) as caught:
            error = caught
        log = [json.loads(line) for line in (place / "log.jsonl").read_text().splitlines()]
        return SimpleNamespace(method=method, history=history, log=log, events=events, error=error, folder=place)

    return call


def of(log: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in log if line["event"] == event]


def test_milestones_act_on_every_group(fit: Any) -> None:
    done = fit(replace(PLAIN, epochs=5, milestones=(1, 3), decay=0.5))
    assert [line["lr"] for line in of(done.log, "epoch")] == pytest.approx([0.01, 0.005, 0.005, 0.0025, 0.0025])


def test_rates_fall_along_the_released_cosine(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against utils.cosine_scheduler of UML's released code, step by step."""
    rates: list[float] = []
    real = torch.optim.Adam.step
    monkeypatch.setattr(torch.optim.Adam, "step",
                        lambda self, *rest: (rates.append(self.param_groups[0]["lr"]), real(self, *rest))[1])
    fit(replace(PLAIN, epochs=3, cosine=0.1))
    iters = np.arange(len(rates))
    released = 0.1 + 0.5 * (1 - 0.1) * (1 + np.cos(np.pi * iters / len(iters)))
    assert rates == pytest.approx(0.01 * released)
    assert len(set(rates)) == len(rates) > 3
    assert "cosine" not in PLAIN.identity(), "a run without it is the run that it was before the key"


def test_in_warm_up_only_the_head_and_the_objective_move(fit: Any) -> None:
    torch.manual_seed(0)
    before = Method(Tiny(), Margin(Margin.Settings(), 8, 4), 4).state_dict()
    rested = fit(replace(PLAIN, epochs=1, warmup=1)).method.state_dict()
    moved = {name for name in before if not torch.equal(before[name], rested[name])}
    assert {"embedding.weight", "embedding.bias"} <= moved
    assert not moved & {"backbone.body.0.weight", "backbone.body.0.bias", "backbone.body.1.weight"}
    later = fit(replace(PLAIN, epochs=2, warmup=1), folder="later").method.state_dict()
    assert not torch.equal(before["backbone.body.0.weight"], later["backbone.body.0.weight"])


def test_gradients_are_clipped(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Tensor]] = []
    real = torch.optim.Adam.step

    def spy(self: Any, *arguments: Any) -> Any:
        seen.append([p.grad.clone() for group in self.param_groups for p in group["params"] if p.grad is not None])
        return real(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    fit(replace(PLAIN, epochs=1, clip_value=1e-3))
    assert max(float(grad.abs().max()) for step in seen for grad in step) <= 1e-3 + 1e-9
    seen.clear()
    fit(replace(PLAIN, epochs=1, clip_norm=1e-2), folder="norm")
    assert all(sum(float(grad.square().sum()) for grad in step) ** 0.5 <= 1e-2 + 1e-6 for step in seen)


def test_evaluated_every_few_epochs_and_at_the_end(fit: Any) -> None:
    done = fit(replace(PLAIN, epochs=5, evaluate_every=2))
    assert [entry["epoch"] for entry in done.history.epochs if "test" in entry] == [2, 4, 5]
    assert done.history.steps == 30
    assert done.history.images == 120


def test_the_log_and_the_progress(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "EVERY", 2)
    done = fit()
    assert "images" in of(done.log, "start")[0]["images"]
    assert [line["step"] for line in of(done.log, "steps")] == [2, 4, 6, 8, 10, 12, 14, 16, 18]
    for line in of(done.log, "steps") + of(done.log, "epoch"):
        assert {"loss", "lr", "images_per_second", "memory"} <= set(line)
        assert line["images_per_second"] > 0
    # between epochs the number of whole ones is told, so that a progress bar can count
    assert [event["epoch"] for event in done.events] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3]
    # and with each report the images since: of a run whose epochs are shorter than EVERY too
    assert sum(event.get("images", 0) for event in done.events) == done.history.images
    monkeypatch.setattr(meter, "EVERY", 50)
    assert [event["images"] for event in fit(folder="short").events[1:]] == [24, 24, 24]
    means = [np.mean([line["loss"] for line in of(done.log, "steps")[3 * e:3 * e + 3]]) for e in range(3)]
    assert means == pytest.approx([entry["loss"] for entry in done.history.epochs], rel=1e-4)


def test_a_line_of_the_log_is_of_one_step_where_its_loss_is_read_later(tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA, where the loss of a step is read some steps on: its rate and memory are of that step, too.

    Nothing is lost at the end of an epoch either.
    """
    class Event:
        def record(self) -> None: ...

        def synchronize(self) -> None: ...

    empty, now, told = torch.empty, [0], []
    monkeypatch.setattr(meter, "EVERY", 2)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory: empty(*size))
    monkeypatch.setattr(meter, "peak_memory", lambda device: 1000 * now[0])
    gauge = meter.Meter(tmp_path, "cpu", 1, 100, told.append)
    gauge.device = "cuda:0"
    for step in range(1, 7):
        now[0] = step
        gauge.add(torch.tensor(float(step)), 4, lr=step / 10)
        assert len(told) == max(0, step // 2 - 1), "the last reading waits for the next"
    assert gauge.end() == 3.5
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [[line[key] for key in ("step", "loss", "lr", "memory")] for line in lines] == [
        [102, 1.5, 0.2, 2000], [104, 3.5, 0.4, 4000], [106, 5.5, 0.6, 6000]]
    assert [event["images"] for event in told] == [8, 8, 8]
    assert gauge.unreported == 0


class Failing(Objective):
    """A loss that goes wrong at the n-th step."""

    def __init__(self, wrong: Any, step: int) -> None:
        super().__init__(None, 8, 4)
        self.wrong, self.left = wrong, step

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0:
            return self.wrong(embeddings)
        return embeddings.sum() * 0


def test_a_loss_that_is_not_a_number_ends_the_run_promptly(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "EVERY", 2)
    done = fit(objective=Failing(lambda x: x.sum() * float("nan"), 9))
    assert isinstance(done.error, Diverged)
    assert done.error.step == 10
    assert "epoch 2" in str(done.error)
    assert checkpoint.load(done.folder)[1]["epoch"] == 1


def test_any_error_knows_its_step(fit: Any) -> None:
    def broken(*x: Tensor) -> Any:
        raise RuntimeError("no")

    assert fit(objective=Failing(broken, 4)).error.step == 3
    assert fit(evaluate=broken, folder="evaluated").error.step == 6


def test_asked_to_stop_it_finishes_a_short_epoch_and_leaves_a_long_one(fit: Any,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    done = fit(should_stop=lambda: True)
    assert isinstance(done.error, train.Interrupted)
    assert checkpoint.load(done.folder)[1]["epoch"] == 1
    monkeypatch.setattr(train, "GRACE", 0.0)
    done = fit(should_stop=lambda: True, folder="long")
    assert "within epoch 1" in str(done.error)
    assert checkpoint.load(done.folder) is None


def test_asked_to_stop_it_counts_the_evaluation_that_is_due(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second epoch is evaluated for 5,000 s of a clock set forward; asked in the fourth, it leaves that one."""
    late, asked, now = 0.0, itertools.count(), time.perf_counter

    def evaluate() -> dict[str, Any]:
        nonlocal late
        late += 5000
        return {"test": {"recall@1": 0.5}}

    monkeypatch.setattr(train.time, "perf_counter", lambda: now() + late)
    monkeypatch.setattr(train, "GRACE", 1000.0)
    monkeypatch.setattr(checkpoint, "SHARE", 1.0)  # after every epoch, however short
    questions = 6 + 1  # after each of six steps, and after the epoch
    done = fit(replace(PLAIN, epochs=4, evaluate_every=2), evaluate=evaluate,
               should_stop=lambda: next(asked) >= 3 * questions)
    assert "within epoch 4" in str(done.error)
    assert checkpoint.load(done.folder)[1]["epoch"] in (2, 3)  # one that comes while another is written is left out


def test_compiled_or_not_it_is_the_same_state(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real tracer with the plain backend: same names, same numbers, batch norm's statistics too."""
    plain = fit(replace(PLAIN, warmup=1))
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    fast = fit(replace(PLAIN, warmup=1, compile="yes"), folder="fast")
    assert of(fast.log, "start")[0]["compile"] == "plain"
    expected, found = plain.method.state_dict(), fast.method.state_dict()
    assert list(expected) == list(found)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6, msg=name)
    tensors, _ = checkpoint.load(fast.folder)
    assert list(tensors["method"]) == list(expected)
    assert "forward" not in vars(fast.method.backbone)


def test_only_training_of_the_backbone_is_compiled(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[tuple[bool, bool]] = []

    def noting(forward: Any, **options: Any) -> Any:
        def call(images: Tensor) -> Tensor:
            modes.append((forward.__self__.training, next(forward.__self__.parameters()).requires_grad))
            return forward(images)

        return call

    monkeypatch.setattr(torch, "compile", noting)
    fit(replace(PLAIN, warmup=1, compile="yes"))
    assert modes == [(True, True)] * (compiling.TRIAL + 2 * 6)


def test_without_a_working_compiler_the_run_is_the_plain_one(fit: Any, monkeypatch: pytest.MonkeyPatch,
                                                             caplog: pytest.LogCaptureFixture) -> None:
    def broken(forward: Any, **options: Any) -> Any:
        def call(images: Tensor) -> Tensor:
            forward(images)  # moves the batch norm's statistics before it fails
            raise NotImplementedError("no compiler here")

        return call

    plain = fit()
    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.WARNING):
        other = fit(replace(PLAIN, compile="yes"), folder="other")
    assert "no compiler here" in caplog.text
    for name, value in plain.method.state_dict().items():
        assert torch.equal(other.method.state_dict()[name], value), name


@pytest.mark.parametrize(("compile_", "device", "steps", "batch", "views", "compiles", "expected"), [
    ("auto", "cpu", 10**6, 112, 1, True, ""), ("auto", "cuda:0", 10**4, 112, 1, True, "reduce-overhead"),
    ("auto", "cuda", 100, 112, 1, True, "graphs"), ("auto", "cuda", 10**4, 720, 1, True, "plain"),
    ("auto", "cuda", 10**4, 180, 2, True, "plain"), ("auto", "cuda", 10**4, 112, 1, False, ""),
    ("yes", "cuda", 10, 112, 1, True, "reduce-overhead"), ("yes", "cpu", 10, 112, 1, True, "plain"),
    ("no", "cuda", 10**6, 112, 1, True, ""), ("graphs", "cuda", 10**6, 112, 1, True, "graphs"),
    ("auto", "cuda", 10, 112, 1, True, ""), ("auto", "cuda", 100, 720, 1, True, ""),
    ("graphs", "cpu", 100, 8, 1, True, ""),
])
def test_what_is_compiled_and_how(compile_: str, device: str, steps: int, batch: int, views: int, compiles: bool,
                                  expected: str) -> None:
    method: Any = SimpleNamespace(views=views, compiles=compiles)
    protocol = replace(PLAIN, compile=compile_, batch_size=batch, size=224)
    assert compiling.mode_of(protocol, method, device, steps) == expected


def test_a_short_run_uses_what_a_long_one_compiled() -> None:
    method: Any = SimpleNamespace(views=1, compiles=True)
    short = replace(PLAIN, compile="auto", batch_size=112, size=224)
    assert compiling.mode_of(short, method, "cuda", 100, ready=True) == "reduce-overhead"
    assert compiling.mode_of(short, method, "cpu", 100, ready=True) == ""
    assert compiling.mode_of(replace(short, compile="no"), method, "cuda", 100, ready=True) == ""
    pieces = replace(short, micro_batch=short.batch_size // 10)  # each of 100 steps calls the network in ten of them
    assert [compiling.mode_of(pieces, method, "cuda", steps) for steps in (50, 100)] == ["", "plain"]


def test_a_run_in_pieces_learns_what_one_in_whole_batches_learns(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"batch norms of tiny .* micro_batch = 3"):
        fit(replace(PLAIN, micro_batch=3), folder="refused")
    monkeypatch.setattr(Tiny, "train", lambda self, mode=True: nn.Module.train(self, False))
    whole, parts = fit(), fit(replace(PLAIN, micro_batch=3), folder="parts")
    assert [line["loss"] for line in of(parts.log, "epoch")] == pytest.approx(
        [line["loss"] for line in of(whole.log, "epoch")], rel=1e-5)
    for name, value in whole.method.state_dict().items():
        torch.testing.assert_close(parts.method.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_batch_that_devices_cannot_share_is_refused(fit: Any) -> None:
    with pytest.raises(UserError, match="a batch of 4 images cannot be shared alike by 3 devices"):
        fit(world=World(0, 3))


def test_a_share_of_a_batch_is_cut_as_in_the_whole(store: ImageStore) -> None:
    loader, ids = Loader(store, Transform(size=8, resize=8)), torch.arange(6)
    whole = loader.train(ids, torch.Generator().manual_seed(1))
    for rank in range(3):
        share = World(rank, 3).share(6)
        assert torch.equal(loader.train(ids, torch.Generator().manual_seed(1), share), whole[share])


def test_batches_do_not_depend_on_the_thread(store: ImageStore) -> None:
    loader = Loader(store, Transform(size=8, resize=8))

    def given(log: list[int]) -> Any:
        for k in range(6):
            log.append(k)
            yield torch.tensor([k, 2 * k])

    made = []
    for thread in (True, False):
        log: list[int] = []
        images = []
        supply = loader.prefetch(given(log), lambda k: torch.Generator().manual_seed(k), views=2, thread=thread)
        for k, (_, batch) in enumerate(supply):
            images.append(batch)
            assert len(log) == min(k + 3, 6)
        made.append(torch.stack(images))
    assert torch.equal(*made)
    assert made[0].shape == (6, 2, 2, 3, 8, 8)
    assert not torch.equal(made[0][:, 0], made[0][:, 1])
