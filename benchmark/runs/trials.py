"""The trials of a search: their configurations, their runs, and their scores on held-out training classes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmark.config import search
from benchmark.config.plan import Overrides, plan
from benchmark.config.spec import RunSpec
from benchmark.config.study import Part
from benchmark.runs import status
from benchmark.runs.job import HEADLINE
from benchmark.utils.errors import UserError
from benchmark.utils.workspace import Workspace
from reports import records
from splits.manifest import Ladder, Split


@dataclass(frozen=True)
class TuneOptions:
    """How configurations are drawn, chosen and tested."""

    trials: int
    """Configurations of each method; the first is the default."""
    seed: int = 0
    sampler: str = "random"
    choose_on: str = "each"
    """Whose held-out classes choose: `default`, those of the default split for all rungs, or `each` rung's own."""
    compare: bool = False
    """Whether the default configuration is run on the test ladder as well."""
    choose_only: bool = False


@dataclass
class Trial:
    """One configuration, its run, and its score on the held-out classes if it is done."""

    number: int
    set: dict[str, Any]
    spec: RunSpec
    state: str = "missing"
    score: float | None = None
    cause: str = ""

    @property
    def over(self) -> bool:
        """Whether it counts: done, or diverged, which is the worst; one that failed otherwise says nothing yet."""
        return self.state in ("done", "diverged")


@dataclass
class Search:
    """The search of one method on one dataset, on the held-out classes of one split."""

    dataset: str
    """As runs know it (`datasets.resolved`)."""
    method: str
    part: Part
    """Of this dataset and method alone; without the configurations."""
    protocol: str
    ladder: Ladder
    index_hash: str
    contents: str
    trial_contents: str
    """As `contents`, `matrix.run_contents`, but in the trials' own folder, where runs of other versions may lie."""
    weights_file: str | None
    split: Split
    tested: list[Split]
    """The rungs that the chosen configuration is run on."""
    seeds: int
    space: dict[str, Any]
    trials: list[Trial] = field(default_factory=list)

    def spec(self, configuration: dict[str, Any], split: int, seed: int = 0, *, trial: bool = False) -> RunSpec:
        """The run of a configuration: of the test, or a trial, which holds classes out."""
        overrides = Overrides.of({**self.part.set, **configuration, **({"validation": "true"} if trial else {})})
        (spec,) = plan(self.ladder, self.index_hash, [self.method], protocol=self.protocol, seeds=[seed],
                       splits=[split], overrides=overrides, weights_file=self.weights_file,
                       contents=self.trial_contents if trial else self.contents)
        return spec

    def extend(self, count: int, options: TuneOptions) -> None:
        """Add configurations until there are `count`."""
        earlier = [(trial.set, trial.score) for trial in self.trials]
        for number in range(len(self.trials), count):
            configuration = search.propose(self.space, options.seed, self.method, number, earlier, options.sampler)
            self.trials.append(Trial(number, configuration, self.spec(configuration, self.split.id, trial=True)))

    def parts(self, first: int = 0) -> Iterator[Part]:
        """The trials from this number on as parts of a study."""
        for trial in self.trials[first:]:
            yield replace(self.part, splits=str(self.split.id), seeds=1,
                          set={**self.part.set, **trial.set, "validation": "true"})

    def choice(self) -> Trial | None:
        """The trial with the best validation score, of equals the first; None before all are over."""
        done = [trial for trial in self.trials if trial.score is not None]
        return max(done, key=lambda trial: (trial.score, -trial.number)) if done and self.over else None

    @property
    def over(self) -> bool:
        return all(trial.over for trial in self.trials)


def read_scores(searches: list[Search], inner: Workspace) -> None:
    for trial in (trial for one in searches for trial in one.trials):
        folder = trial.spec.folder(inner)
        state = status.look(folder)
        trial.state, trial.cause = state.kind, state.text if state.kind == "failed" else ""
        if state.kind == "failed" and _diverged(folder):
            trial.state = "diverged"
        trial.score = validation_score(folder) if state.kind == "done" else None
        if state.kind == "done" and trial.score is None:
            raise UserError(f"{folder / 'log.jsonl'} has no validation score: there is none with epochs = 0, nor of "
                            "held-out classes with one image each; else delete the folder and run again")


def _diverged(folder: Path) -> bool:
    from benchmark.training.meter import Diverged  # with torch, which refusals need not wait for

    try:
        return json.loads((folder / records.FAILURE).read_text(encoding="utf-8")).get("kind") == Diverged.__name__
    except (OSError, ValueError, AttributeError):
        return False


def validation_score(folder: Path) -> float | None:
    """The score on the held-out classes after the last epoch, from the log of a run; no test score is looked at."""
    score = None
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # cut by a kill; the epoch was done again
            continue
        if entry.get("event") == "epoch" and "validation" in entry:
            score = float(entry["validation"][HEADLINE])
    return score
