"""Backbones: the networks that methods train, from timm, torchvision and this folder."""

from methods.backbones import names
from methods.backbones.backbone import CENTRED, TIMM, Backbone, create, select, skeleton

__all__ = ["CENTRED", "TIMM", "Backbone", "create", "names", "select", "skeleton"]
