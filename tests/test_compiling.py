"""A backbone recorded as CUDA graphs: when it is, when it must not be, and that it computes the same."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

import methods
from benchmark.config import protocol
from benchmark.training import compiling, distributed
from benchmark.training.distributed import World
from benchmark.training.folding import Folded
from methods import Method
from methods.backbones.examples import small_cnn
from methods.checks import example
from methods.margin import Margin
from methods.method import Step

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Small(nn.Module):
    """A convolution with batch norm and dropout, and its map for who asks."""

    name, dim, local_dim, mean, std = "small", 6, 6, (0.5,) * 3, (0.5,) * 3

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU())
        self.extra = nn.Linear(2, 2)  # never used, as a classifier may be

    def forward(self, images: Tensor, local: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        maps = self.body(images)
        return (maps.mean((2, 3)), maps) if local else maps.mean((2, 3))


class Twice(Method):
    """Looks at its images twice a step."""

    def step(self, images: Tensor, labels: Tensor) -> Step:
        loss, embeddings = super().step(images, labels)
        return Step(loss + super().step(images, labels).loss, embeddings)


class Local(Method):
    """Asks for the map as well."""

    def features(self, images: Tensor) -> Tensor:
        return self.backbone(images, local=True)[0]


def built(kind: type[Method] = Method, device: str = "cpu") -> Method:
    torch.manual_seed(0)
    return kind(Small(), Margin(Margin.Settings(), 8, 4), 4).to(device).train()


def steps(method: Method, mode: str, count: int = 6, kind: compiling.Kind = ()) -> compiling.Compiled:
    device = next(method.parameters()).device
    images = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(device)
    labels = torch.arange(8, device=device).repeat(2)
    optimiser = torch.optim.SGD(method.parameters(), lr=0.1)

    def gradients() -> None:
        torch.manual_seed(5)
        method.step(images, labels).loss.backward()

    fast = compiling.compiled(method, mode, kind, lambda: images, lambda batch: gradients())
    for _ in range(count):
        with fast():
            gradients()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
    return fast


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU the recording is the function itself."""
    monkeypatch.setattr(compiling.Recorded, "_record",
                        lambda self, images, local: compiling._Plain(self.backbone, local))


@pytest.mark.usefixtures("recorder")
@pytest.mark.parametrize("kind", [Method, Local])
def test_a_recorded_backbone_learns_the_same(kind: type[Method]) -> None:
    plain, recorded = built(kind), built(kind)
    steps(plain, "")
    assert steps(recorded, "graphs").mode == "graphs"
    assert "forward" not in vars(recorded.backbone)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(recorded.state_dict()[name], value, msg=name)


@pytest.mark.usefixtures("recorder")
def test_a_backbone_is_recorded_on_several_devices_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the two has half of the images, and the labels of all."""
    monkeypatch.setattr(distributed._Gather, "apply", lambda own, world: torch.cat([own, own.detach()]))
    method, images = built(), torch.randn(8, 3, 8, 8)
    method.backbone.eval()

    def step(batch: Tensor) -> None:
        method.step(batch, torch.arange(8).repeat(2)).loss.backward()

    assert compiling.compiled(method, "graphs", (), lambda: images, step, world=World(0, 2)).mode == "graphs"


class Copies(TorchDispatchMode):
    """Counts the copies of tensors that a passage makes."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function is torch.ops.aten.clone.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("activation", [nn.ReLU6, nn.Hardtanh, nn.Hardswish, nn.SiLU])
def test_what_is_recorded_keeps_no_copy_of_what_an_activation_overwrites(activation: type[nn.Module]) -> None:
    images = torch.randn(2, 3, 8, 8)

    def learnt(record: bool) -> tuple[int, Tensor]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), activation(inplace=True), nn.Conv2d(4, 4, 3))
        if record:
            compiling.Recorded(network)
        with Copies() as copies:
            network(images).sum().backward()
        return copies.count, network[0].weight.grad

    (copied, expected), (left, got) = learnt(False), learnt(True)
    assert (copied, left) == (1, 0)
    assert torch.equal(got, expected)


@pytest.mark.usefixtures("recorder")
def test_who_calls_it_twice_a_step_gets_the_plain_one(caplog: pytest.LogCaptureFixture) -> None:
    plain, other = built(Twice), built(Twice)
    steps(plain, "")
    with caplog.at_level(logging.WARNING):
        assert steps(other, "graphs").mode == ""
    assert "more than once a step" in caplog.text
    for name, value in plain.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name


def test_parameters_outside_of_the_recording_are_noticed(monkeypatch: pytest.MonkeyPatch,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    class Detached(compiling._Plain):
        def forward(self, images: Tensor) -> Any:
            return super().forward(images).detach().requires_grad_()  # type: ignore[attr-defined]

    monkeypatch.setattr(compiling.Recorded, "_record", lambda self, images, local: Detached(self.backbone, local))
    with caplog.at_level(logging.WARNING):
        assert steps(built(), "graphs").mode == ""
    assert "outside of what was recorded" in caplog.text


@pytest.mark.parametrize("kind", [Method, Local])
def test_with_frozen_norms_the_compiler_gets_a_folded_twin_that_learns_the_same(
        kind: type[Method], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    def traced(forward: Any, **options: Any) -> Any:
        compiled.append(forward.__self__)
        return compile_(forward, backend="eager", dynamic=False)

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", traced)
    plain, fast = built(kind), built(kind)
    for method in (plain, fast):
        method.backbone.body[0].bias = None  # type: ignore[index,union-attr,assignment]
        method.backbone.body[1].eval()  # type: ignore[index,union-attr,operator]
    steps(plain, "")
    assert steps(fast, "plain").mode == "plain"
    assert isinstance(compiled[0].body[0], Folded)
    assert "forward" not in vars(fast.backbone)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(fast.state_dict()[name], value, msg=name)


@GPU
@pytest.mark.parametrize("kind", [Method, Local])
def test_on_a_gpu_it_learns_what_the_plain_one_learns(kind: type[Method]) -> None:
    plain, recorded = built(kind, "cuda"), built(kind, "cuda")
    steps(plain, "")
    assert steps(recorded, "graphs").mode == "graphs"
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(recorded.state_dict()[name], value, rtol=1e-3, atol=1e-4, msg=name)


def test_runs_of_one_kind_compile_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other weights and another objective in the same network: its compiled form serves them all."""
    graphs = CompileCounter()
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda forward, **options: compile_(forward, backend=graphs, dynamic=False))
    monkeypatch.setattr(compiling, "_ready", set())
    torch.compiler.reset()
    for count, kind in enumerate([Method, Local], 1):
        for seed in range(3):
            method = built(kind)
            torch.nn.init.normal_(method.backbone.body[0].weight, generator=torch.Generator().manual_seed(seed))  # type: ignore
            assert steps(method, "plain", count=1, kind=(kind,)).mode == "plain"
            assert graphs.frame_count == count
    assert [compiling.ready(kind) for kind in ((Local,), (Method,), ())] == [True, True, False]
    for number in range(compiling.KEPT):
        compiling._make_room((number,))
        compiling._ready.add((number,))
    assert len(compiling._ready) <= compiling.KEPT


def test_one_compiled_network_serves_every_method_without_parts_of_its_own() -> None:
    def kind(kind: type[Method]) -> compiling.Kind:
        return compiling.kind_of(protocol.load("oodml"), built(kind), "cuda")

    class Headed(Method):
        compiled_parts = ("project",)

    class Paired(Method):
        views = 2

    assert kind(Local) == kind(Method)
    assert len({kind(one) for one in (Method, Headed, Paired)}) == 3


@pytest.mark.parametrize(("name", "functions"), [("s2sd", {"forward", "distilled"}), ("diva", {"forward", "losses"})])
def test_heads_and_a_second_network_are_compiled_too(name: str, functions: set[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    compile_, found = torch.compile, []

    def traced(function: Any, **options: Any) -> Any:
        found.append(function)
        return compile_(function, backend="aot_eager", dynamic=False)

    monkeypatch.setattr(torch, "compile", traced)
    torch.compiler.reset()
    images, labels = example.glyphs()
    states = []
    for mode in ("", "plain"):
        entry = methods.get(name)
        torch.manual_seed(0)
        method = entry.build(small_cnn(), example.CLASSES, example.DIM,
                             entry.settings(**getattr(entry.cls, "example_settings", {}))).train()
        batch, optimiser = example.views(method, images), torch.optim.SGD(method.parameters(), lr=0.01)
        fast = compiling.compiled(method, mode, (name,), lambda batch=batch: batch,
                                  lambda batch, method=method: method.step(batch, labels).loss.backward())
        assert fast.mode == mode
        for step in range(2):
            torch.manual_seed(step)
            with fast():
                method.step(batch, labels).loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            method.after_step()
        states.append(method.state_dict())
    assert {function.__name__ for function in found} == functions
    assert len(found) == (3 if name == "diva" else 2)
    assert not {"distilled", "losses"} & set(vars(method))
    for key, value in states[0].items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(states[1][key], value, rtol=1e-4, atol=1e-5, msg=key)


def test_where_the_losses_do_not_compile_the_networks_still_do(monkeypatch: pytest.MonkeyPatch,
                                                               caplog: pytest.LogCaptureFixture) -> None:
    """As with torch 2.11, which could not compile DiVA's losses: the run must not lose the compiled backbone too."""
    compile_ = torch.compile

    def but_losses(function: Any, **options: Any) -> Any:
        if function.__name__ == "losses":
            def fails(*inputs: Any) -> Any:
                raise RuntimeError("backend='inductor' raised:\nRuntimeError: Not all inputs to pattern found\n\nmore")
            return fails
        return compile_(function, backend="eager", dynamic=False)

    monkeypatch.setattr(torch, "compile", but_losses)
    monkeypatch.setattr(compiling, "_ready", set())
    torch.compiler.reset()
    images, labels = example.glyphs()
    method = methods.get("diva").build(small_cnn(), example.CLASSES, example.DIM, methods.get("diva").settings(
        **methods.get("diva").cls.example_settings)).train()
    before = {name: value.clone() for name, value in method.state_dict().items()}
    fast = compiling.compiled(method, "plain", ("diva",), lambda: example.views(method, images),
                              lambda batch: method.step(batch, labels).loss.backward())
    assert fast.mode == "plain"
    assert compiling.ready(("diva",))
    assert "losses of this method stays as it is: backend='inductor' raised: RuntimeError: Not all" in caplog.text
    assert "backbone" not in caplog.text
    for name, value in method.state_dict().items():
        assert torch.equal(value, before[name]), name
    with fast():
        assert "forward" in vars(method.backbone)
        assert "losses" not in vars(method)


def test_what_the_compiler_tells_its_own_people_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(batch: Tensor) -> None:
        warnings.warn("TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled.",
                      stacklevel=1)
        torch._prims_common.check(True, lambda: "torch's own words")
        warnings.warn("something else", stacklevel=1)

    monkeypatch.setattr(compiling, "_fast", lambda *_: {})
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        compiling.compiled(built(), "plain", (), lambda: torch.zeros(2, 3, 8, 8), step)
    assert {str(one.message) for one in heard} == {"something else"}
