"""Momentum encoder, queue of its keys, and the contrastive loss against them (He et al. 2020; DiVA's DaNCE)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.method import MethodError
from methods.parts.miners import log_inverse_density


def as_buffers(module: nn.Module) -> nn.Module:
    """The module with its parameters turned into buffers: part of the state, nothing to be trained."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            delattr(part, name)
            part.register_buffer(name, parameter.detach().clone())
    return module


class Momentum(nn.Module):
    """A slow copy of a network, in training and in evaluation mode together with it.

        xi <- m xi + (1 - m) theta

    He et al. 2020: where the network normalises by the batch, so does its copy; else an image's key and query would
    differ by more than their weights. Where its statistics are frozen, as in the released code of DiVA, so are these.
    """

    def __init__(self, source: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = as_buffers(copy.deepcopy(source))
        self.momentum = momentum

    @torch.no_grad()
    def follow(self, source: nn.Module) -> None:
        """One step towards the source; what is no real number, such as a count, is taken over."""
        # module by module: putting together the names of hundreds of tensors takes longer than moving them
        pairs = [(own, value) for mine, theirs in zip(self.network.modules(), source.modules())
                 for name, value in (*theirs._parameters.items(), *theirs._buffers.items())
                 if value is not None and (own := mine._buffers[name]) is not None]
        moving = [pair for pair in pairs if pair[0].is_floating_point()]
        counts = [pair for pair in pairs if not pair[0].is_floating_point()]
        # all at once: launching a kernel for each of them would hold up the next step
        torch._foreach_lerp_([own for own, _ in moving], [value for _, value in moving], 1 - self.momentum)
        if counts:
            torch._foreach_copy_([own for own, _ in counts], [value for _, value in counts])

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)


class Queue(nn.Module):
    """The last `size` keys, oldest overwritten first: to be filled after the backward pass of a loss against them.

    >>> queue = Queue(3, 1)
    >>> queue.enqueue(torch.tensor([[1.0], [2.0]]))
    >>> queue.enqueue(torch.tensor([[3.0], [4.0]]))
    >>> queue.keys[:, 0], queue.filled
    (tensor([4., 2., 3.]), tensor([True, True, True]))
    """

    keys: Tensor
    filled: Tensor
    position: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("filled", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        size = len(self.keys)
        if len(keys) > size:
            raise MethodError(f"a queue of {size} keys is smaller than a batch of {len(keys)}; set more keys")
        slots = (self.position + torch.arange(len(keys), device=keys.device)) % size
        # in place, so that a CUDA graph finds them where they were
        self.keys.index_copy_(0, slots, keys.to(self.keys.dtype))
        self.filled.index_fill_(0, slots, True)
        self.position.add_(len(keys)).remainder_(size)


def distance_adapted(queries: Tensor, keys: Tensor, queue: Queue, temperature: float, cutoff: float,
                     limit: float, *, by_key: bool = False) -> Tensor:
    """Each query is to be nearest to its own key among those of the queue, which are weighed by their distance.

        L = -1/b sum_i log e^{q_i.k_i / T} / (e^{q_i.k_i / T} + sum_n e^{w_in q_i.k_n / T})
        w_in = q(d_in)^-1 / sum_n q(d_in)^-1   for d_in < limit, 0 beyond,   q(d) the density on the sphere

    Milbich et al. 2020 (DaNCE), as in the released code with its later correction: weights are normalised for each
    query over the keys; `by_key` for each key over the queries, as before it and in ooDML, so that every key, not every
    query, has a weight of one to give. Slots that are still empty do not count.
    """
    similarity = queries @ queue.keys.T
    squares = (2 - 2 * similarity.detach()).clamp(min=0)
    density = log_inverse_density(squares, queries.shape[1], cutoff)
    weight = _softmax(density, (squares <= limit**2) & queue.filled, dim=0 if by_key else 1)
    own = (queries * keys).sum(1, keepdim=True)
    others = (similarity * weight / temperature).masked_fill(~queue.filled, -torch.inf)
    logits = torch.cat([own / temperature, others], 1)
    return F.cross_entropy(logits, torch.zeros(len(queries), dtype=torch.long, device=queries.device))


def _softmax(logits: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """exp(logits) over its sum along `dim`, among the allowed; where none is, zero."""
    return logits.masked_fill(~allowed, -torch.inf).softmax(dim).nan_to_num(0.0)
