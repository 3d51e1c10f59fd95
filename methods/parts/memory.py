"""Cross-batch memory: the embeddings of the last steps, as further partners of the current batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from methods.method import MethodError


class Partners(NamedTuple):
    """The memory as the current batch sees it: embeddings, and which are positives and negatives of each anchor."""

    embeddings: Tensor
    positives: Tensor
    negatives: Tensor


class Memory(nn.Module):
    """A ring of the last `size` embeddings. Wang et al. 2020, algorithm 1.

    By hand: pytorch-metric-learning's keeps its position in Python, so that a checkpoint loses it.
    """

    embeddings: Tensor
    labels: Tensor
    position: Tensor
    steps: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, embeddings: Tensor, labels: Tensor) -> Partners:
        """Put the batch in, over the oldest; every image but the anchor itself is its partner."""
        size = len(self.labels)
        if len(labels) > size:
            raise MethodError(f"a memory of {size} is smaller than a batch of {len(labels)}; set a larger size")
        slots = (self.position + torch.arange(len(labels), device=labels.device)) % size
        self.embeddings = self.embeddings.to(embeddings.dtype).index_copy(0, slots, embeddings.detach())
        self.labels = self.labels.index_copy(0, slots, labels)
        self.position = (self.position + len(labels)) % size
        self.steps = self.steps + 1
        itself = torch.zeros(len(labels), size, dtype=torch.bool, device=labels.device)
        itself.scatter_(1, slots[:, None], True)
        same = labels[:, None] == self.labels[None, :]
        return Partners(self.embeddings, same & ~itself, ~same & (self.labels >= 0)[None, :])
