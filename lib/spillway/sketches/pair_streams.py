"""A stream of super-values, stored exactly (offline) or summed up in a table (online): what PairCount asks of it."""

from __future__ import annotations

import numpy as np

from spillway.sketches.count_min import CountMin
from spillway.sketches.fast_agms import FastAgms
from spillway.sketches.types import Integers, Keys


class ExactStream:
    """A stream stored as distinct super-values with their counts."""

    def __init__(self) -> None:
        self.values: Keys = np.empty(0, dtype=np.uint64)
        self.counts: Integers = np.empty(0, dtype=np.int64)
        self._pending: list[Keys] = []

    def update(self, values: Keys) -> None:
        self._pending.append(values)
        if sum(chunk.size for chunk in self._pending) > 1 << 22:
            self.settle()

    def settle(self) -> None:
        if self._pending:
            values, counts = np.unique(np.concatenate(self._pending), return_counts=True)
            self._pending = []
            self._absorb(values, counts.astype(np.int64))

    def _absorb(self, values: Keys, counts: Integers) -> None:
        both = np.concatenate([self.values, values])
        amounts = np.concatenate([self.counts, counts])
        self.values, place = np.unique(both, return_inverse=True)
        self.counts = np.zeros(self.values.size, dtype=np.int64)
        np.add.at(self.counts, place, amounts)

    def merge(self, other: ExactStream) -> ExactStream:
        self.settle()
        other.settle()
        merged = ExactStream()
        merged.values, merged.counts = self.values, self.counts
        merged._absorb(other.values, other.counts)
        return merged

    def self_join_size(self) -> float:
        self.settle()
        return float((self.counts.astype(np.float64) ** 2).sum())

    def triples(self) -> float:
        """Ordered triples of different emissions of one super-value: sum n (n-1) (n-2)."""
        self.settle()
        counts = self.counts.astype(np.float64)
        return float((counts * (counts - 1.0) * (counts - 2.0)).sum())

    def join_size(self, other: ExactStream) -> float:
        self.settle()
        other.settle()
        _, mine, theirs = np.intersect1d(self.values, other.values, assume_unique=True, return_indices=True)
        return float((self.counts[mine].astype(np.float64) * other.counts[theirs]).sum())


class OnlineStream:
    """A stream summed up in a table; its join sizes are not clamped, so that G_s stays unbiased."""

    def __init__(self, counter: FastAgms | CountMin) -> None:
        self.counter = counter

    def update(self, values: Keys) -> None:
        self.counter.update(values)

    def settle(self) -> None:
        return

    def merge(self, other: OnlineStream) -> OnlineStream:
        return OnlineStream(self.counter.merge(other.counter))  # type: ignore[arg-type]

    def self_join_size(self) -> float:
        return self.join_size(self)

    def join_size(self, other: OnlineStream) -> float:
        mine = self.counter.table.astype(np.float64)
        rows = (mine * other.counter.table.astype(np.float64)).sum(axis=1)
        if isinstance(self.counter, CountMin):
            width = self.counter.parameters.width
            rows = (width * rows - float(self.counter.total) * float(other.counter.total)) / (width - 1)
        return float(np.median(rows))
