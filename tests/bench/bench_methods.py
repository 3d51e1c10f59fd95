"""Objectives and miners: against pytorch-metric-learning on a CPU, and as a share of a training step on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

import methods
from tests.bench import Row, seconds

SIZES = ((112, 512, "resnet50"), (720, 128, "vit_small_patch16_224"))
"""Batch, width, and the network whose step it belongs to."""
CLASSES = 11_318
SHARE = 0.10


def batch(size: int, dim: int, device: str, per_class: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings on the sphere as early in training: images of a class have a cosine of about 0.3."""
    torch.manual_seed(0)
    labels = torch.arange(size // per_class, device=device).repeat_interleave(per_class)
    centres = torch.randn(size // per_class, dim, device=device)
    return F.normalize(centres[labels] + 1.5 * torch.randn(size, dim, device=device), dim=1), labels


def work(objective: Callable[..., torch.Tensor], embeddings: torch.Tensor, labels: torch.Tensor,
         repeats: int) -> Callable[[], None]:
    """Mining, loss and gradient, several times over."""
    leaf = embeddings.clone().requires_grad_()

    def run() -> None:
        for _ in range(repeats):
            objective(leaf, labels).backward()
            leaf.grad = None

    return run


def mined(loss: torch.nn.Module, miner: torch.nn.Module) -> Callable[..., torch.Tensor]:
    """A loss of pytorch-metric-learning over what its miner finds."""
    return lambda embeddings, labels: loss(embeddings, labels, miner(embeddings, labels))


def objective_of(name: str, dim: int, device: str) -> torch.nn.Module:
    entry = methods.get(name)
    found = entry.objective
    assert found is not None
    return found.cls(found.settings(), CLASSES, dim).to(device)


def on_cpu() -> Iterator[Row]:
    """One thread, against the same objective of pytorch-metric-learning."""
    from pytorch_metric_learning import losses, miners

    torch.set_num_threads(1)
    for size, dim, _ in SIZES:
        repeats = 10 if size < 500 else 2
        x, y = batch(size, dim, "cpu")
        margin = losses.MarginLoss(margin=0.2, beta=1.2, num_classes=CLASSES, learn_beta=True)
        pairs = losses.MultiSimilarityLoss(alpha=2, beta=40, base=0.5)
        for name, loss, miner, target in (
                ("margin", margin, miners.DistanceWeightedMiner(cutoff=0.5, nonzero_loss_cutoff=1.4), 5.0),
                ("multisimilarity", pairs, miners.MultiSimilarityMiner(0.1), 2.0)):
            ours = seconds(work(objective_of(name, dim, "cpu"), x, y, repeats)) / repeats
            theirs = seconds(work(mined(loss, miner), x, y, repeats)) / repeats
            yield Row(f"{name} with mining, {size} x {dim}", ours, theirs, "pytorch-metric-learning", target)
    for size, dim, _ in SIZES:
        x, y = batch(size, dim, "cpu")
        proxies = losses.ProxyAnchorLoss(CLASSES, dim)
        ours = seconds(work(objective_of("proxyanchor", dim, "cpu"), x, y, 1))
        theirs = seconds(work(proxies, x, y, 1))
        yield Row(f"proxyanchor, {CLASSES} classes, {size} x {dim}", ours, theirs, "pytorch-metric-learning", 1.0)


def network_step(name: str, size: int, dim: int, device: str) -> Callable[[], None]:
    """One bf16 channels-last training step of a network, loss excluded: forward, backward, fused Adam."""
    import timm

    torch.manual_seed(0)
    network = timm.create_model(name, pretrained=False, num_classes=dim).to(device, memory_format=torch.channels_last)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-5, fused=True)
    images = torch.randn(size, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    weight = torch.randn(size, dim, device=device)

    def run() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            out = network(images)
        (out.float() * weight).sum().backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    for _ in range(3):
        run()
    return run


def on_gpu(device: str) -> Iterator[Row]:
    """Loss and mining of every objective; the ratio is how many times they fit into a step, aimed at ten or more."""
    for size, dim, network in SIZES:
        step = seconds(network_step(network, size, dim, device), repeats=5, device=device)
        yield Row(f"{network} training step, batch {size}, bf16", step)
        x, y = batch(size, dim, device)
        for name in methods.names():
            entry = methods.get(name)
            if entry.family == "floor" or entry.objective is None or entry.objective.name != name:
                continue
            taken = seconds(work(objective_of(name, dim, device), x, y, 20), repeats=5, device=device) / 20
            yield Row(f"{name}, {size} x {dim}, {CLASSES} classes", taken, step, f"{network} step", 1 / SHARE)


def measure(device: str) -> Iterator[Row]:
    yield from on_cpu() if device == "cpu" else on_gpu(device)
