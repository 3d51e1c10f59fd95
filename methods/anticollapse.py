"""Anti-collapse: proxies or embeddings keep a high coding rate."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.regularised import Batch, Regularised


def coding_rate(rows: Tensor, share: Tensor, scale: float | Tensor) -> Tensor:
    """1/2 log det(I + scale sum_i share_i z_i z_i^T).

    >>> coding_rate(torch.eye(2), torch.ones(2), 1.0)
    tensor(0.6931)
    """
    matrix = torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device) + scale * (rows * share[:, None]).T @ rows
    return torch.logdet(matrix) / 2


@register("anti-collapse", family="auxiliary", tags=["modern", "structure"], base="proxyanchor",
          trains="network, and what its objective has", cite="""
@article{jiang2024anti, title={Anti-Collapse Loss for Deep Metric Learning Based on Coding Rate Metric},
  author={Jiang, Xiruo and Yao, Yazhou and Dai, Xili and Shen, Fumin and Hua, Xian-Sheng and Shen, Heng-Tao},
  journal={arXiv:2407.03106}, year={2024}}""")
class AntiCollapse(Regularised):
    """The coding rate of the proxies in a batch is kept high, so that they span the space instead of a part of it.

        L = w_a L_base + w e^{-R},   R = 1/2 log det(I + C / (d epsilon) sum_{c in batch} psi_c psi_c^T)

    psi_c are the normalised proxies of the C classes in the batch, of dimension d. Jiang et al. 2024, as in their
    released code, criteria/antico.py (batch_proxy). R grows with C: with orthogonal proxies e^{-R} is .03 at their
    d = 512 and C = 45, and silent (1e-8) at d = 128 and C = 56, where `plain` subtracts w R instead. Where the
    objective has no proxy for each class, R is that of the batch's embeddings. Their base is Proxy Anchor with an alpha
    of 64, twice that of `proxyanchor`.
    """

    @dataclass(frozen=True)
    class Settings:
        base_weight: float = setting(0.0035, "Jiang et al. 2024, released runs (w_a)")
        weight: float = setting(1.0, "Jiang et al. 2024, released runs (w)")
        epsilon: float = setting(0.5, "Jiang et al. 2024, released runs")
        plain: bool = setting(False, "Jiang et al. 2024, released code: e^{-R}")

    def combine(self, base: Tensor, penalty: Tensor) -> Tensor:
        return self.settings.base_weight * base + penalty

    def penalty(self, batch: Batch) -> Tensor:
        s = self.settings
        same = batch.labels[:, None] == batch.labels[None, :]
        proxies = getattr(self.objective, "proxies", None)
        if proxies is not None and len(proxies) == self.objective.classes:
            # each class in the batch counts once: every image carries 1/n of its class of n
            rows, share = proxies[batch.labels], 1 / same.sum(1, dtype=torch.float32)
        else:
            rows, share = batch.embeddings, torch.ones_like(batch.embeddings[:, 0])
        rate = coding_rate(F.normalize(rows, dim=1), share, share.sum() / (rows.shape[1] * s.epsilon))
        return s.weight * (-rate if s.plain else (-rate).exp())
