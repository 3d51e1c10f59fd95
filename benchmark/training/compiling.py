"""The backbone, compiled or recorded for training where that pays and plain everywhere else."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from benchmark.config.protocol import Protocol
from benchmark.training import precision
from benchmark.training.compile_when import wanted
from benchmark.training.distributed import Gathered, World
from benchmark.training.folding import folded
from benchmark.training.micro_batch import ALONE, InPieces
from methods import Method
from methods.backbones import Backbone

log = logging.getLogger(__name__)

GRAPHED = 256 * 224 ** 2
"""Pixels a step up to which CUDA graphs pay: beyond, the GPU is busy longer than launching its kernels takes."""
TRIAL = 3
"""Steps of the trial: the first compiles, the second records a CUDA graph, the third replays it."""

KEPT = 4
"""Kinds of compiled networks that a process keeps: the compiler gives up a function of which it knows eight forms."""
ROOM = 0.4
"""Share of a GPU's memory that must be free for one more kind: their CUDA graphs hold on to theirs."""

NOISE = {"TensorFloat32 tensor cores": UserWarning, r"`torch\._prims_common\.check` is deprecated": FutureWarning,
         "TRITON_DEFAULT_FP_FUSION is unset": UserWarning}
"""What compilers say to others than our users: --precision chooses TF32, the call is torch's own, and either way of
rounding products that are added will do."""

COPYING = (nn.Hardtanh, nn.Hardswish, nn.SiLU)
"""Activations (ReLU6 is the first of them) whose gradient needs their input: in place, each keeps a copy of it."""

Kind = tuple[object, ...]
_ready: set[Kind] = set()
"""What is compiled in this process: runs of the same kind need not compile again, whatever their weights."""


class Compiled:
    """A method's networks in two forms; inside the context the fast one is called, outside the plain one.

    Only functions are exchanged (`forward` of its backbones, and its `compiled_parts`), and put back: the names in a
    state dict, and evaluation in batches of other sizes, never see the compiled form. `mode` is empty where nothing is
    compiled, and the context then changes nothing unless the networks are to see a batch in pieces.
    """

    def __init__(self, method: Method, fast: dict[tuple[nn.Module, str], Callable[..., object]] | None = None,
                 mode: str = "", micro_batch: int = 0, world: World = ALONE) -> None:
        self.mode, self._fast = mode, dict(fast or {})
        self._recorded = [function for function in self._fast.values() if isinstance(function, Recorded)]
        for number, network in enumerate(_networks(method) if micro_batch or world.size > 1 else ()):
            forward: Callable[..., object] = self._fast.get((network, "forward"), network.forward)
            forward = InPieces(forward, micro_batch) if micro_batch else forward
            self._fast[network, "forward"] = Gathered(forward, world, number) if world.size > 1 else forward

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        for recorded in self._recorded:
            recorded.called = False
        for (owner, name), fast in self._fast.items():
            setattr(owner, name, fast)
        try:
            yield
        finally:
            for owner, name in self._fast:
                delattr(owner, name)


def _networks(method: Method) -> list[nn.Module]:
    """Its backbone, and what it has beside it of the kind: a momentum encoder, a frozen copy."""
    return [method.backbone, *(module for module in method.modules()
                               if isinstance(module, Backbone) and module is not method.backbone)]


class Recorded:
    """A backbone's forward and backward pass, each recorded as one CUDA graph at the first call and then replayed.

    No compiler is needed: it is ready in a second and frees small networks of the time that launching hundreds of
    kernels takes. A replay overwrites the activations of the one before, so a step may call it only once.
    """

    def __init__(self, backbone: nn.Module) -> None:
        self.backbone = backbone
        for module in backbone.modules():
            if isinstance(module, COPYING):
                module.inplace = False  # 33 copies of maps fewer a step of EfficientNet-Lite0
        self.called = False
        self._graphs: dict[tuple[torch.Size, bool], Callable[[Tensor], object]] = {}

    def __call__(self, images: Tensor, local: bool = False) -> object:
        if not torch.is_grad_enabled():
            return type(self.backbone).forward(self.backbone, images, local)
        if self.called:
            raise RuntimeError("its method calls it more than once a step")
        self.called = True
        key = (images.shape, local)
        if key not in self._graphs:
            self._graphs[key] = self._record(images, local)
        return self._graphs[key](images)

    def _record(self, images: Tensor, local: bool) -> Callable[[Tensor], object]:
        if hasattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch"):
            # gradients are recorded on a stream of their own by design
            torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)
        # what autocast keeps between calls would be recorded as it is now
        kind, mixed = torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled("cuda")
        of_maps = kind if mixed else images.dtype
        with (torch.cuda.device(images.device), _own_norms(self.backbone, images.device, of_maps),
              torch.autocast("cuda", kind, mixed, cache_enabled=False)):
            return torch.cuda.make_graphed_callables(_Plain(self.backbone, local), (images.clone(),),
                                                     allow_unused_input=True)


def _own_norms(backbone: nn.Module, device: torch.device, kind: torch.dtype) -> AbstractContextManager[None]:
    """Inside it the frozen norms of the backbone run in kernels of our own, where these can be had."""
    from benchmark.training import frozen_norm  # brings Triton along, which takes a moment

    return frozen_norm.fused(backbone) if frozen_norm.works(device, kind) else nullcontext()


class _Plain(nn.Module):
    """A backbone under its own `forward`, also while another replaces it."""

    def __init__(self, backbone: nn.Module, local: bool) -> None:
        super().__init__()
        self.backbone, self.local = backbone, local

    def forward(self, images: Tensor) -> object:
        return type(self.backbone).forward(self.backbone, images, self.local)


def kind_of(protocol: Protocol, method: Method, device: str) -> Kind:
    """What two runs must have in common for one compiled form to serve both.

    The method is of no importance unless parts of its own are compiled too.
    """
    own = (type(method), repr(method.settings)) if method.compiled_parts else ()
    return (method.backbone.name, protocol.frozen_norm, *own, method.views, protocol.size,
            protocol.micro_batch or protocol.batch_size, protocol.micro_batch > 0, device,
            precision.of(protocol, device))


def ready(kind: Kind) -> bool:
    """Whether a run of this kind has compiled in this process."""
    return kind in _ready


def mode_of(protocol: Protocol, method: Method, device: str, steps: int, ready: bool = False) -> str:
    """How the backbone is made fast: 'reduce-overhead' (compiled, with CUDA graphs), 'plain' (compiled), 'graphs'
    (recorded, not compiled), or '' for not at all.

    `auto` does so on CUDA only: it compiles where enough work is ahead or the compiled form is `ready`, and records
    where there is less, unless the method says that its network does not compile.
    """
    cuda = device.startswith("cuda")
    small = protocol.batch_size * method.views * (protocol.size or 224) ** 2 <= GRAPHED
    if protocol.micro_batch:
        small = False  # a step that calls it more than once needs what a replay overwrites
    how = wanted(protocol, steps) if cuda or protocol.compile != "auto" else "no"
    if protocol.compile == "auto" and cuda and ready:
        how = "yes"
    if how == "no" or not method.compiles:
        return ""
    if how == "graphs":
        return "graphs" if cuda and small else ""
    return "reduce-overhead" if cuda and small else "plain"


def compiled(method: Method, mode: str, kind: Kind, images: Callable[[], Tensor], step: Callable[[Tensor], object],
             micro_batch: int = 0, world: World = ALONE) -> Compiled:
    """The method's networks and `compiled_parts` compiled, after a trial; with a line in the log where that fails.

    What a run of the same `kind` compiled in this process serves this one too. With `micro_batch` the backbone sees
    that many images at a time. `images` gives a batch like those to come, and `step` does one training step with it up
    to its gradients. What it changes in the method is put back; what it draws from torch's generators is not.
    """
    plain = Compiled(method, micro_batch=micro_batch, world=world)
    if not mode:
        return plain
    if mode != "graphs":
        _make_room(kind)
    state = {name: value.detach().clone() for name, value in method.state_dict().items()}
    batch = images()

    def trial(parts: tuple[str, ...]) -> Compiled:
        fast = Compiled(method, _fast(method, mode, batch, parts), mode, micro_batch, world)
        learning = _learning(method, plain, lambda: step(batch)) if mode == "graphs" else set()
        with warnings.catch_warnings():
            for message, category in NOISE.items():
                warnings.filterwarnings("ignore", message, category)
            for _ in range(TRIAL):
                method.zero_grad(set_to_none=True)
                with fast():
                    step(batch)
        if mode == "graphs" and _with_gradient(method) != learning:
            raise RuntimeError("part of what its method trains lies outside of what was recorded")
        if mode != "graphs":
            _ready.add(kind)
        return fast

    # where its losses do not compile, its networks, which take nearly all the time, still may
    own = method.compiled_parts if mode != "graphs" else ()
    for parts in dict.fromkeys((own, ())):
        try:
            return trial(parts)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler raises anything, and a run without it is as good
            log.warning("%s as it is: %s", f"{', '.join(parts)} of this method stays" if parts else
                        f"the backbone {method.backbone.name} stays", _reason(error))
        finally:
            method.zero_grad(set_to_none=True)
            method.load_state_dict(state)
    return plain


def _reason(error: Exception) -> str:
    """The first lines of what a compiler says: its name, and then the error.

    >>> _reason(RuntimeError("backend='inductor' raised:\\nTypeError: no\\n\\nSet VERBOSE=1 for more"))
    "backend='inductor' raised: TypeError: no"
    """
    return " ".join((str(error) or type(error).__name__).splitlines()[:2]).strip()


def _fast(method: Method, mode: str, images: Tensor,
          parts: tuple[str, ...]) -> dict[tuple[nn.Module, str], Callable[..., object]]:
    """The fast form of its networks' forward passes and of these functions of its own."""
    if mode == "graphs":
        return {(method.backbone, "forward"): Recorded(method.backbone)}
    few = images.flatten(0, -4)[:2]
    plain = {(network, "forward"): folded(network, few).forward for network in _networks(method)}
    plain |= {(method, name): getattr(method, name) for name in parts}
    return {place: torch.compile(function, dynamic=False, mode=None if mode == "plain" else mode)
            for place, function in plain.items()}


def _learning(method: Method, plain: Compiled, step: Callable[[], object]) -> set[str]:
    """The parameters that a plain step gives a gradient."""
    method.zero_grad(set_to_none=True)
    with plain():  # which on several devices gathers the shares of a batch
        step()
    return _with_gradient(method)


def _with_gradient(method: Method) -> set[str]:
    return {name for name, parameter in method.named_parameters() if parameter.grad is not None}


def _make_room(kind: Kind) -> None:
    """Drop what was compiled for other kinds where there are too many of them, or too little memory for one more."""
    if kind in _ready or not _ready:
        return
    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (1, 1)
    if len(_ready) >= KEPT or free < ROOM * total:
        torch.compiler.reset()
        _ready.clear()
