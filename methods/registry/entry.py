"""One registered method: what it is, its settings, and how it is built."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from methods.backbones import names
from methods.settings import MethodError, near

if TYPE_CHECKING:
    from torch import nn

    from methods.method import Method


@dataclass(frozen=True)
class Entry:
    """One registered method: the class, what it is, and what it was published as."""

    name: str
    declared: type
    """The class or, where torch was not needed so far, what its source declares of it; see `declared.py`."""
    family: str
    papers: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    cite: str = ""
    trains: str = "network"
    default_base: str = ""
    base: Entry | None = None
    defaults: tuple[tuple[str, Any], ...] = ()

    @property
    def cls(self) -> type:
        """The class itself: imports its file, and with it torch, where only its source was read."""
        if not hasattr(self.declared, "read_off_source"):
            return self.declared
        return getattr(importlib.import_module(self.declared.__module__), self.declared.__qualname__)

    @property
    def summary(self) -> str:
        return (self.declared.__doc__ or "").strip().splitlines()[0] if self.declared.__doc__ else ""

    @property
    def is_objective(self) -> bool:
        """Whether it is a loss over embeddings; else it is a network with a step of its own."""
        return any((base.__module__, base.__qualname__) == ("methods.method", "Objective")
                   for base in self.declared.__mro__)

    @property
    def objective(self) -> Entry | None:
        """The entry whose class is the objective: this one, or the base that a network method stands on."""
        return self if self.is_objective else self.base

    @property
    def kinds(self) -> tuple[str, ...]:
        """What a protocol may call it: family and tags of the objective that it stands on, then its own."""
        inner = () if self.base is None else (self.base.family, *self.base.tags)
        return (*inner, self.family, *self.tags)

    @property
    def batches(self) -> str:
        return getattr(self.objective.declared if self.objective else self.declared, "batches", "spc-2")

    def settings(self, dataset: str = "", **changes: Any) -> Any:
        """This method's hyper-parameters for a dataset, with what a protocol or the user changes on top."""
        from pydantic import ValidationError  # a list of methods does without it

        fields = {f.name: f for f in dataclasses.fields(self.declared.Settings)}  # type: ignore[attr-defined]
        values = {key: f.metadata["per_dataset"][dataset] for key, f in fields.items()
                  if dataset in f.metadata.get("per_dataset", {})}
        values |= dict(self.defaults)
        for key, value in changes.items():
            if key not in fields:
                raise MethodError(f"method {self.name} has no setting '{key}'{near(key, fields)}")
            several = isinstance(value, str) and isinstance(fields[key].default, tuple)
            values[key] = value.split(",") if several else value
        try:
            typed: Any = _adapter(self.declared.Settings).validate_python(values)  # type: ignore[attr-defined]
        except ValidationError as error:
            first = error.errors()[0]
            raise MethodError(f"{self.name}.{first['loc'][0]} = {first['input']!r}: {first['msg']}") from None
        for key, value in vars(typed).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise MethodError(f"{self.name}.{key} = {value}: input should be a finite number")
        # a run's identity has an amount as it was written, 1 or 1.0; a count is whole, also where 10.0 was written
        return dataclasses.replace(typed, **{k: v for k, v in values.items()
                                             if isinstance(v, (int, float)) and isinstance(getattr(typed, k), float)})

    def stored(self, dataset: str = "", **changes: Any) -> dict[str, Any]:
        """The same as a run's spec holds them: without what came later and is at its default."""
        settings = self.settings(dataset, **changes)
        return {key: value for key, value in dataclasses.asdict(settings).items()
                if not (settings.__dataclass_fields__[key].metadata.get("later")
                        and value == settings.__dataclass_fields__[key].default)}

    def came_later(self) -> dict[str, Any]:
        """Settings of the method and of its base that came later, with what runs from before them had.

        >>> import methods
        >>> methods.get("tcm:triplet").came_later()
        {'cosine': False, 'active': False}
        """
        below = {} if self.base is None else self.base.came_later()
        fields = dataclasses.fields(self.declared.Settings)  # type: ignore[attr-defined]
        return below | {field.name: field.default for field in fields if field.metadata.get("later")}

    def as_trained(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings of the method and of its base in one, as training takes them and records hold them.

        >>> import methods
        >>> methods.get("s2sd").as_trained({"own_beta_rate": False, "beta_rate": 50.0})
        {'own_beta_rate': False, 'beta_rate': 1.0}
        """
        changes = {} if self.base is None else self.declared.base_changes(settings)  # type: ignore[attr-defined]
        return {key: changes.get(key, value) for key, value in settings.items()}

    def space(self) -> dict[str, Any]:
        """What `oodml tune` searches of its settings and of those of its objective, by METHOD.SETTING.

        >>> import methods
        >>> methods.get("uniform-prior").space()["uniform-prior.weight"]
        (0.02, 2.0)
        """
        own = {f"{self.name}.{field.name}": field.metadata["search"]
               for field in dataclasses.fields(self.declared.Settings)  # type: ignore[attr-defined]
               if field.metadata.get("search") is not None}
        return own if self.base is None else own | self.base.space()

    def misfit(self, backbone: nn.Module | str) -> str:
        """Why the method cannot stand on a backbone, given or by name; empty if it can.

        >>> import methods
        >>> methods.get("margin").misfit("resnet18")
        ''
        """
        # what stands on any backbone needs none: making one imports timm, 5 s of a processor
        if self.is_objective or self.declared.misfit.__qualname__ == "Method.misfit":  # type: ignore[attr-defined]
            return ""
        if isinstance(backbone, str) and backbone in names.NOT_VIT:
            return self.declared.misfit(names.Outline(backbone))  # type: ignore[attr-defined]
        if isinstance(backbone, str):
            from methods.backbones import skeleton

            backbone = skeleton(backbone)
        return self.cls.misfit(backbone)  # type: ignore[attr-defined]

    def check_build(self, backbone: str, classes: int, dim: int, settings: Any, base_settings: Any = None) -> None:
        """Build the method without memory behind its weights, so that what does not go together is an error early.

        That is a MethodError; all else may come of this way of building alone and is left to the run.
        """
        import torch

        from methods.backbones import skeleton_copy

        try:
            with torch.device("meta"):
                if self.is_objective:
                    self.cls(settings, classes, dim)
                else:
                    self.build(skeleton_copy(backbone), classes, dim, settings, base_settings)
        except MethodError:
            raise
        except Exception:  # such as a number that is read off a weight
            return

    def build(self, backbone: nn.Module, classes: int, dim: int, settings: Any = None,
              base_settings: Any = None) -> Method:
        """The trainable module, for `classes` training classes and embeddings of `dim` numbers."""
        from methods.method import Method

        reason = self.misfit(backbone)
        if reason:
            raise MethodError(f"method {self.name}: {reason}")
        settings = self.settings() if settings is None else settings
        if self.is_objective:
            return Method(backbone, self.cls(settings, classes, dim), dim)
        base = self.base
        objective = None
        if base is not None:
            typed = base.settings() if base_settings is None else base_settings
            changes = self.cls.base_changes(dataclasses.asdict(settings))  # type: ignore[attr-defined]
            typed = dataclasses.replace(typed, **{key: new for key, new in changes.items() if hasattr(typed, key)})
            objective = base.cls(typed, classes, dim)
        return self.cls(backbone, objective, dim, settings)  # type: ignore[call-arg, return-value]


@lru_cache(maxsize=256)
def _adapter(settings: type) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(settings)
