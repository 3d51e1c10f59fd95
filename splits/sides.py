"""Vectors grouped by class, and the two sides of a split over them, whose distance follows every move of a class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from splits import SplitError
from splits.frechet import CHUNK, LADDER, Moments, frd_class_means_released, frechet_distance
from splits.parallel import in_one_thread

RESIDENT = 1 << 30
"""Numbers of features, 4 GB in float32, up to which all are brought to a GPU at once."""


@dataclass(frozen=True)
class Vectors:
    """The rows of an (n, d) array, memory map or tensor, grouped by class; read a part at a time.

    With a `device` such as 'cuda' the float64 work is done there; the rows stay where they are, unless `placed`.
    """

    values: Any
    rows: tuple[np.ndarray, ...]
    device: str | None = None

    @classmethod
    def grouped(cls, values: Any, labels: np.ndarray, classes: int, device: str | None = None) -> Vectors:
        order = np.argsort(labels, kind="stable")
        ends = np.cumsum(np.bincount(labels, minlength=classes))
        return cls(values, tuple(np.split(order, ends[:-1])), device)

    def placed(self) -> Vectors:
        """The same with the rows on the device, where that is a GPU and they take but a little of it."""
        if self.device is None or self.device == "cpu" or len(self.values) * self.dimensions > RESIDENT:
            return self
        import torch

        # a copy: a memory map that cannot be written to is no tensor's
        values = torch.from_numpy(np.array(self.values)) if isinstance(self.values, np.ndarray) else self.values
        return replace(self, values=values.to(self.device))

    @property
    def dimensions(self) -> int:
        return int(self.values.shape[1])

    def count(self, classes: np.ndarray) -> int:
        return sum(len(self.rows[c]) for c in classes)

    def rows_of(self, classes: np.ndarray) -> np.ndarray:
        """The rows of these classes in the order in which they lie, which a memory map reads fastest."""
        return np.sort(np.concatenate([self.rows[c] for c in classes]))

    def take(self, rows: np.ndarray) -> Any:
        """These rows: a tensor if there is a device or they are one, else an array."""
        if isinstance(self.values, np.ndarray):
            chosen = np.asarray(self.values[rows])
            if self.device is None or self.device == "cpu":
                return chosen
            import torch

            return torch.from_numpy(chosen).to(self.device)
        import torch

        chosen = self.values[torch.from_numpy(rows).to(self.values.device)]
        return chosen if self.device is None else chosen.to(self.device)

    def chunks(self, rows: np.ndarray) -> Iterator[Any]:
        for start in range(0, len(rows), CHUNK):
            yield self.take(rows[start : start + CHUNK])

    def moments(self, rows: np.ndarray) -> Moments:
        return Moments.of_chunks(self.chunks(rows))


@dataclass(frozen=True)
class Sides:
    """The vectors of the train and of the test classes.

    Where both sides have more vectors than dimensions their moments are kept, and a move touches only the rows of
    the classes moved. Smaller sides are measured from their rows, which is then both faster and more exact.
    """

    vectors: Vectors
    train: np.ndarray
    test: np.ndarray
    moments: tuple[Moments, Moments] | None = None

    @classmethod
    def of(cls, vectors: Vectors, train: np.ndarray, test: np.ndarray) -> Sides:
        enough = min(vectors.count(train), vectors.count(test)) > vectors.dimensions
        moments = tuple(vectors.moments(vectors.rows_of(side)) for side in (train, test)) if enough else None
        return cls(vectors, np.sort(train), np.sort(test), moments)  # type: ignore[arg-type]

    def exchange(self, leave_train: np.ndarray, leave_test: np.ndarray) -> Sides:
        """The sides after these classes were exchanged."""
        train = np.sort(np.append(np.setdiff1d(self.train, leave_train), leave_test))
        test = np.sort(np.append(np.setdiff1d(self.test, leave_test), leave_train))
        return self._with(train, test, leave_train, leave_test, lambda own, gone, come: own + come - gone)

    def without(self, leave_train: np.ndarray, leave_test: np.ndarray) -> Sides:
        """The sides after these classes were removed."""
        train, test = np.setdiff1d(self.train, leave_train), np.setdiff1d(self.test, leave_test)
        return self._with(train, test, leave_train, leave_test, lambda own, gone, come: own - gone)

    def _with(self, train: np.ndarray, test: np.ndarray, leave_train: np.ndarray, leave_test: np.ndarray,
              update: Callable[[Moments, Moments, Moments], Moments]) -> Sides:
        v = self.vectors
        if self.moments is None or min(v.count(train), v.count(test)) <= v.dimensions:
            return Sides.of(v, train, test)
        a, b = (v.moments(v.rows_of(classes)) for classes in (leave_train, leave_test))
        return Sides(v, train, test, (update(self.moments[0], a, b), update(self.moments[1], b, a)))

    def distance(self, measure: Callable[[Any, Any], float]) -> float:
        if self.moments is not None:
            return measure(*self.moments)
        return measure(*(self.vectors.take(self.vectors.rows_of(side)) for side in (self.train, self.test)))

    def equal_n(self, n: int, seed: int) -> float:
        """The Fréchet distance of n images of each side, drawn without replacement."""
        generator = np.random.default_rng(seed)
        train, test = (self.vectors.take(np.sort(generator.permutation(self.vectors.rows_of(side))[:n]))
                       for side in (self.train, self.test))
        return float(f"{frechet_distance(train, test, tolerance=LADDER):.10g}")


@dataclass(frozen=True)
class State:
    """A split while it is being built: its images and its class means, kept in step."""

    images: Sides
    means: Sides

    @property
    def train(self) -> np.ndarray:
        return self.images.train

    @property
    def test(self) -> np.ndarray:
        return self.images.test

    @property
    def class_means(self) -> np.ndarray:
        return self.means.vectors.values

    def exchange(self, leave_train: np.ndarray, leave_test: np.ndarray) -> State:
        return State(self.images.exchange(leave_train, leave_test), self.means.exchange(leave_train, leave_test))

    def without(self, leave_train: np.ndarray, leave_test: np.ndarray) -> State:
        return State(self.images.without(leave_train, leave_test), self.means.without(leave_train, leave_test))

    def distance(self) -> float:
        """Over images; ten digits, so that rounding by the order of images does not show."""
        return float(f"{self.images.distance(partial(frechet_distance, tolerance=LADDER)):.10g}")

    def distance_of_means(self) -> float:
        """Over class means, with as many digits."""
        few = self.means.moments is None
        with in_one_thread() if few else nullcontext():
            return float(f"{self.means.distance(frd_class_means_released):.10g}")


def class_means(vectors: Vectors, names: tuple[str, ...]) -> np.ndarray:
    """The mean vector of every class, (C, d) in float64; refuses features that are not finite or all the same.

    A class without images has NaN.
    """
    means = np.full((len(vectors.rows), vectors.dimensions), np.nan)
    low, high = np.inf, -np.inf
    on_host = replace(vectors, device=None)
    for classes in _batches(vectors):
        rows = np.concatenate([vectors.rows[c] for c in classes])
        batch = on_host.take(rows)
        values = np.asarray(batch.cpu() if hasattr(batch, "cpu") else batch, dtype=np.float64)
        if not np.isfinite(values).all():
            bad = rows[np.flatnonzero(~np.isfinite(values).all(axis=1))[0]]
            name = next(names[c] for c in classes if bad in vectors.rows[c])
            raise SplitError(f"the features of image {bad} (class '{name}') hold NaN or infinite values; "
                             "delete the cached features and run `oodml splits build` again")
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
        starts = np.cumsum([0, *(len(vectors.rows[c]) for c in classes[:-1])])
        means[classes] = np.add.reduceat(values, starts) / [[len(vectors.rows[c])] for c in classes]
    if np.all(low == high):
        raise SplitError("the features are constant: every image has the same vector; choose another backbone")
    return means


def _batches(vectors: Vectors) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for c, rows in enumerate(vectors.rows):
        if not len(rows):
            continue
        if batch and size + len(rows) > CHUNK:
            yield batch
            batch, size = [], 0
        batch.append(c)
        size += len(rows)
    yield batch
