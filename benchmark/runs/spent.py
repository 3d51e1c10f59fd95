"""What a run has spent: time, its share of the devices, energy, over all attempts at it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from benchmark.runs.job import RunContext
from benchmark.runs.occupancy import Occupancy
from benchmark.training.meter import held_memory, peak_memory
from benchmark.training.resuming import History
from benchmark.utils.phases import Phases
from benchmark.utils.provenance import Energy, device_name

PHASE = "phase: "
"""Before the names of phases among what a checkpoint keeps."""


@dataclass(frozen=True)
class Spent:
    """What an attempt at a run has cost: its seconds, its part of the devices' seconds, the joules of its training."""

    began: float
    occupancy: Occupancy
    energy: Energy
    phases: Phases = field(default_factory=Phases)
    """Where the seconds went, but for training and evaluation, which the history of the run counts."""

    def so_far(self) -> dict[str, float]:
        """Of this attempt until now; each checkpoint keeps it."""
        return {"seconds": time.perf_counter() - self.began, "part": self.occupancy.so_far(),
                "joules": self.energy.so_far or 0.0,
                **{f"{PHASE}{name}": seconds for name, seconds in self.phases.seconds.items()}}

    def took(self, history: History) -> dict[str, float]:
        """Seconds of each phase and of `all` of the run, attempts before this one included up to their checkpoint."""
        whole = history.with_earlier(self.so_far())
        return {**{key.removeprefix(PHASE): seconds for key, seconds in whole.items() if key.startswith(PHASE)},
                "train": history.seconds, "evaluate": history.evaluating, "all": whole["seconds"]}

    def cost(self, history: History, context: RunContext) -> dict[str, Any]:
        """What the whole run took, attempts before this one included."""
        now, earlier = self.so_far(), history.earlier
        seconds = earlier.get("seconds", 0.0) + now["seconds"]
        part = earlier.get("part", earlier.get("seconds", 0.0)) + now["part"]
        joules = self.energy.joules
        return {"seconds": seconds, "train_seconds": history.seconds, "evaluate_seconds": history.evaluating,
                "steps": history.steps,
                "images_per_second": history.images / history.seconds if history.seconds else 0.0,
                "peak_memory_bytes": peak_memory(context.device), "held_memory_bytes": held_memory(context.device),
                "energy_joules": None if joules is None else earlier.get("joules", 0.0) + joules,
                "device": device_name(context.device), "shared": round(max(1.0, seconds / part), 2),
                **({"devices": len(context.devices)} if len(context.devices) > 1 else {})}
