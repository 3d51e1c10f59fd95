"""Proxy-Anchor loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from methods import register, setting
from methods.parts.proxies import EIGHTH, Proxied, target, with_target


@register("proxyanchor", family="proxy", papers=["oodml", "uml"], tags=["oodml-study"],
          trains="network, a proxy per class", cite="""
@inproceedings{kim2020proxy, title={Proxy Anchor Loss for Deep Metric Learning},
  author={Kim, Sungyeon and Kim, Dongwon and Cho, Minsu and Kwak, Suha}, booktitle={CVPR}, year={2020}}""")
class ProxyAnchor(Proxied):
    """Each class's proxy is an anchor that pulls and pushes the whole batch, the hardest samples most.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{x in X_p} e^{-alpha (s(x,p) - delta)})
          + 1/|P|  sum_{p in P}  log(1 + sum_{x not in X_p} e^{alpha (s(x,p) + delta)})

    P+ are the proxies of classes in the batch, P all of them. Kim et al. 2020, eq. 4. By hand: the same as
    pytorch-metric-learning's, without its two masks of the size of the batch times the classes.
    """

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(32.0, "Kim et al. 2020; ooDML, released runs", search=(2.0, 64.0))
        delta: float = setting(0.1, "Kim et al. 2020; ooDML, released runs", search=(0.03, 0.3))
        proxy_rate: float = setting(2000.0, "times lr: ooDML, released runs, .02 at 1e-5; " + EIGHTH)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        cosines = self.cosines(embeddings)
        own = target(cosines, labels)
        same = labels[:, None] == labels[None, :]
        # each class in the batch counts once: every image carries 1/n of its class of n
        share = 1 / same.sum(1, dtype=own.dtype)
        hardness = (-s.alpha * (own - s.delta))[None, :].masked_fill(~same, -torch.inf)
        pull = (share * soft_sum(hardness, 1)).sum() / share.sum()
        others = with_target(cosines, labels, torch.full_like(own, -torch.inf))
        push = soft_sum(s.alpha * (others + s.delta), 0).mean()
        return pull + push


def soft_sum(exponent: Tensor, dim: int) -> Tensor:
    """log(1 + sum e^x), as softplus(log sum e^x)."""
    return F.softplus(torch.logsumexp(exponent, dim))
