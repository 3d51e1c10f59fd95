"""Prompts: learnt tokens that join the sequence of a frozen vision transformer at its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from methods.layers.adapters import Addition

if TYPE_CHECKING:
    from timm.models.vision_transformer import VisionTransformer


class Prompt(Addition):
    """The same tokens for every image. Jia et al. 2022 (VPT, shallow).

        U(-v, v),   v^2 = 6 / (3 p^2 + D) at the start, for patches of p x p pixels
    """

    def __init__(self, length: int, width: int, patch: int) -> None:
        super().__init__()
        bound = (6 / (3 * patch**2 + width))**0.5
        self.tokens = nn.Parameter(torch.empty(length, width).uniform_(-bound, bound))

    def forward(self, patches: Tensor) -> Tensor:
        return self.tokens.expand(len(patches), -1, -1)


class PromptPool(Addition):
    """Tokens that depend on the image: a sum of M prompts, weighed by how well the image matches their keys.

        q = AvgPool(E) + MaxPool(E),   alpha_m = cos(q * A_m, K_m),   P = sum_m alpha_m P_m

    Kim et al. 2025 (PUMA), eq. 6-9. With `softmax` A_m passes a softmax over its numbers, as in the released code.
    Keys and attentions start orthogonal; all prompts start as one orthogonal matrix (released code).
    """

    def __init__(self, prompts: int, length: int, width: int, *, softmax: bool = False) -> None:
        super().__init__()
        self.softmax = softmax
        self.keys = nn.Parameter(nn.init.orthogonal_(torch.empty(prompts, width)))
        self.attention = nn.Parameter(nn.init.orthogonal_(torch.empty(prompts, width)))
        self.prompts = nn.Parameter(nn.init.orthogonal_(torch.empty(length, width)).repeat(prompts, 1, 1))

    def weights(self, patches: Tensor) -> Tensor:
        """alpha, (b, M)."""
        query = patches.mean(1) + patches.amax(1)
        attention = self.attention.softmax(1) if self.softmax else self.attention
        return F.cosine_similarity(query[:, None] * attention, self.keys[None], dim=-1)

    def forward(self, patches: Tensor) -> Tensor:
        return torch.einsum("bm,mld->bld", self.weights(patches).to(self.prompts.dtype), self.prompts)

    def orthogonality(self) -> Tensor:
        """Mean squares of X X^T - I over keys, attentions and prompts: the regulariser of the released code."""
        total = torch.zeros((), device=self.keys.device)
        for rows in (self.keys, self.attention, self.prompts.flatten(1)):
            total = total + (rows @ rows.T - torch.eye(len(rows), device=rows.device)).square().mean()
        return total


class Prompted(nn.Module):
    """A vision transformer whose sequence is [class token, prompts, patches]; the prompts leave before pooling.

    Prompts have no position; with `at_class` they have that of the class token, as in PUMA's released code.
    """

    def __init__(self, vit: VisionTransformer, prompts: Prompt | PromptPool, at_class: bool = False) -> None:
        super().__init__()
        self.vit = vit
        self.prompts = prompts
        self.at_class = at_class and not vit.no_embed_class
        self.num_features = vit.num_features
        self.num_prefix_tokens = vit.num_prefix_tokens

    def forward_features(self, images: Tensor) -> Tensor:
        vit, prefix = self.vit, self.num_prefix_tokens
        patches = vit.patch_embed(images)
        tokens = vit._pos_embed(patches)
        prompts = self.prompts(patches.flatten(1, 2) if patches.ndim == 4 else patches).to(tokens.dtype)
        if self.at_class and vit.pos_embed is not None:
            prompts = prompts + vit.pos_embed[:, :1].to(tokens.dtype)
        x = torch.cat([tokens[:, :prefix], prompts, tokens[:, prefix:]], 1)
        x = vit.norm(vit.blocks(vit.norm_pre(vit.patch_drop(x))))
        return torch.cat([x[:, :prefix], x[:, prefix + prompts.shape[1]:]], 1)

    def forward_head(self, tokens: Tensor) -> Tensor:
        return self.vit.forward_head(tokens)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))
