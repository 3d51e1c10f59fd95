"""Sub-centre ArcFace: several centres for each class."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from methods import register, setting
from methods.arcface import ArcFace


@register("subcenter-arcface", family="classification", tags=["modern", "margin"],
          trains="network, several centres per class", cite="""
@inproceedings{deng2020subcenter, title={Sub-center {ArcFace}: Boosting Face Recognition by Large-Scale Noisy Web
  Faces}, author={Deng, Jiankang and Guo, Jia and Liu, Tongliang and Gong, Mingming and Zafeiriou, Stefanos},
  booktitle={ECCV}, year={2020}}""")
class SubCenterArcFace(ArcFace):
    """ArcFace with K centres for each class, of which an image need be near one only.

        L as in `arcface`, with cos theta_j = max_{k <= K} cos(phi, w_jk)

    Deng et al. 2020. Scale, margin and the centres' rate are those of `arcface` here, so that the two differ by the
    centres alone; on faces s is 64. Dropping centres and outliers after training is not done. By hand for the reasons
    of `arcface`; otherwise the same as pytorch-metric-learning's SubCenterArcFaceLoss.
    """

    @dataclass(frozen=True)
    class Settings(ArcFace.Settings):
        centres: int = setting(3, "Deng et al. 2020; pytorch-metric-learning (K)")

    def initial(self, classes: int, dim: int) -> Tensor:
        return super().initial(classes * self.settings.centres, dim)

    def cosines(self, embeddings: Tensor) -> Tensor:
        return super().cosines(embeddings).unflatten(1, (-1, self.settings.centres)).amax(2)
