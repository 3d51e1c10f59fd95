"""Proxy-Anchor loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from methods import register, setting
from methods.parts.proxies import EIGHTH, Proxied


@register("proxyanchor", family="proxy", papers=["oodml", "uml"], tags=["oodml-study"],
          trains="network, a proxy per class", cite="""
@inproceedings{kim2020proxy, title={Proxy Anchor Loss for Deep Metric Learning},
  author={Kim, Sungyeon and Kim, Dongwon and Cho, Minsu and Kwak, Suha}, booktitle={CVPR}, year={2020}}""")
class ProxyAnchor(Proxied):
    """Each class's proxy is an anchor that pulls and pushes the whole batch, the hardest samples most.

        L = 1/|P+| sum_{p in P+} log(1 + sum_{x in X_p} e^{-alpha (s(x,p) - delta)})
          + 1/|P|  sum_{p in P}  log(1 + sum_{x not in X_p} e^{alpha (s(x,p) + delta)})

    P+ are the proxies of classes in the batch, P all of them. Kim et al. 2020, eq. 4. By hand: the same as
    pytorch-metric-learning's at half the time for thousands of classes.
    """

    @dataclass(frozen=True)
    class Settings:
        alpha: float = setting(32.0, "Kim et al. 2020; ooDML, released runs")
        delta: float = setting(0.1, "Kim et al. 2020; ooDML, released runs")
        proxy_lr: float = setting(0.02, "ooDML, released runs: 2000 times the network's 1e-5; " + EIGHTH, uml=0.3)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.settings
        cosines = self.cosines(embeddings).T
        own = labels[None, :] == torch.arange(self.classes, device=labels.device)[:, None]
        zero = cosines.new_zeros(self.classes, 1)

        def soft_sum(exponent: Tensor, mask: Tensor) -> Tensor:
            # log(1 + sum exp): the 1 is an exponent of zero in an extra column
            return torch.logsumexp(torch.cat([zero, exponent.masked_fill(~mask, -torch.inf)], 1), 1)

        pull = soft_sum(-s.alpha * (cosines - s.delta), own).sum() / own.any(1).sum()
        push = soft_sum(s.alpha * (cosines + s.delta), ~own).mean()
        return pull + push
