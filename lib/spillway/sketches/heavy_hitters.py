"""Heavy hitters and top-k: recall by the guarantee of count-min, frequencies by the corrected estimators.

A key is heavy if its frequency is at least phi N. While the stream passes, a key becomes a candidate if the minimum of
its counters is at least phi times the total weight up to now. At the last occurrence of a heavy key, this minimum is at
least its frequency. The frequency is at least phi N, and thus at least phi times the weight up to now. So the key is a
candidate then, and later pruning by the same rule cannot drop it. So all heavy keys are always returned, because the
error of count-min has only one side. Light keys among the candidates are recognised by their corrected frequency and
its interval.

Partial sketches can be merged. A key with at least phi N in total has at least phi N_i in some partial sketch i. So the
union of their candidates has all heavy keys of the whole. Deletions would invalidate this argument and are refused.

>>> sketch = HeavyHitters(CountMinParameters(64, 5, 1), share=0.5).update(np.array([7, 7, 9], dtype=np.uint64))
>>> sketch.heavy().keys.tolist()
[7]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.hashing import as_keys
from spillway.sketches.payload_checks import REBUILD, ArrayForm
from spillway.sketches.types import Estimates, Keys, require_same


@dataclass(frozen=True)
class Heavy:
    """Keys in descending order of their estimates. `labels`: the original values, or None if they are not stored."""

    keys: Keys
    sizes: Estimates
    labels: tuple[Any, ...]


class HeavyHitters(binary.CounterSketch):
    """A count-min table that also stores the keys with at least `share` (phi) of the total weight."""

    kind = "heavy_hitters"

    def __init__(self, parameters: CountMinParameters, share: float) -> None:
        if not 0.0 < share < 1.0:
            raise InvalidValue(
                "share", "lie between 0 and 1", share, "write 0.001 for keys above 0.1 % of the rows"
            )
        self.share = float(share)
        self.counts = CountMin(parameters)
        self.candidates: Keys = np.empty(0, dtype=np.uint64)
        self.labels: dict[int, Any] = {}
        self.exact: dict[int, int] = {}
        """The frequencies of the keys that were counted exactly."""

    def update(self, keys: object, weights: object = None) -> HeavyHitters:
        """Add `keys`; weights must not be negative."""
        from spillway.sketches.kernels import track

        hashed = as_keys(keys)
        counts = self.counts
        amounts, _, absolute = counts.check_weights(hashed, weights)
        if (amounts < 0).any():
            raise InvalidValue(
                "weights", "not be negative", int(amounts.min()), "use a plain count_min sketch"
            )
        self.candidates, total = track(
            counts.table, counts.seeds, hashed, amounts, counts.parameters.conservative, counts.total,
            self.share, self.candidates, counts.spark,
        )  # fmt: skip
        self.exact = {}
        counts.absolute += absolute
        counts.total = int(total)
        counts.updates += hashed.size
        counts.forget()
        return self

    def label(self, keys: Keys, values: object) -> None:
        """Store the original values of those `keys` that are candidates (`values`: one per key)."""
        wanted = np.flatnonzero(np.isin(keys, self.candidates))
        _, first = np.unique(keys[wanted], return_index=True)
        for position in wanted[first]:
            key = int(keys[position])
            if key not in self.labels:
                self.labels[key] = values[position]  # type: ignore[index]
        if len(self.labels) > 2 * self.candidates.size + 64:
            alive = set(self.candidates.tolist())
            self.labels = {key: value for key, value in self.labels.items() if key in alive}

    def merge(self, other: HeavyHitters) -> HeavyHitters:
        """Return the sketch of both streams together. It has all keys of at least the larger of both shares."""
        require_same(self.kind, self.counts.parameters, other.counts.parameters)
        merged = HeavyHitters(self.counts.parameters, max(self.share, other.share))
        merged.context = self.shared_context(other)
        merged.counts = self.counts.merge(other.counts)
        union = np.union1d(self.candidates, other.candidates)
        counts = merged.counts
        least = counts.point(union, "cm").estimate if union.size else np.empty(0)
        merged.candidates = union[least >= merged.share * counts.total]
        alive = set(merged.candidates.tolist())
        merged.labels = {k: v for k, v in {**other.labels, **self.labels}.items() if k in alive}
        both = self.exact.keys() & other.exact.keys() & alive
        merged.exact = {key: self.exact[key] + other.exact[key] for key in both}
        return merged

    def heavy(self, share: float | None = None, estimator: str = "auto", confidence: float = 0.95) -> Heavy:
        """Return all keys of at least `share` of the weight, and possibly lighter keys that CM cannot distinguish."""
        share = self.share if share is None else share
        if share < self.share:
            raise InvalidValue(
                "share", f"be at least the sketch's {self.share}", share, "build it with a smaller share"
            )
        if self.candidates.size == 0:
            nothing = np.empty(0)
            return Heavy(self.candidates, Estimates(nothing, nothing, nothing, confidence, "cm"), ())
        minimum = self.counts.point(self.candidates, "cm", confidence).estimate
        chosen = self.candidates[minimum >= share * self.counts.total]
        sizes = self.sizes(chosen, estimator, confidence)
        order = np.lexsort((chosen, -sizes.estimate))
        ranked = Estimates(
            sizes.estimate[order], sizes.low[order], sizes.high[order], confidence, sizes.method
        )
        keys = chosen[order]
        return Heavy(keys, ranked, tuple(self.labels.get(int(key)) for key in keys))

    def sizes(self, keys: Keys, estimator: str = "auto", confidence: float = 0.95) -> Estimates:
        """Return the frequency of each key: the exact count if there is one, else the estimate of the table."""
        found = self.counts.point(keys, estimator, confidence)
        for place, key in enumerate(keys.tolist()):
            if key in self.exact:
                found.estimate[place] = found.low[place] = found.high[place] = self.exact[key]
        return found

    def top(self, count: int, estimator: str = "auto", confidence: float = 0.95) -> Heavy:
        """Return the `count` heaviest candidates. The list is complete if the last one has more than `share` of all."""
        every = self.heavy(None, estimator, confidence)
        sizes = every.sizes
        best = Estimates(
            sizes.estimate[:count], sizes.low[:count], sizes.high[:count], confidence, sizes.method
        )
        return Heavy(every.keys[:count], best, every.labels[:count])

    @property
    def shape(self) -> dict[str, Any]:
        return {**self.counts.shape, "share": self.share}

    def scalars(self) -> dict[str, Any]:
        labels = [
            [key, self.labels[key], *([self.exact[key]] if key in self.exact else [])]
            for key in sorted(self.labels)
        ]
        return {**self.counts.scalars(), "labels": labels}

    def arrays(self) -> dict[str, Any]:
        return {**self.counts.arrays(), "candidates": self.candidates}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        counted = {name: value for name, value in shape.items() if name != "share"}
        numbers = {name: value for name, value in scalars.items() if name != "labels"}
        if type(shape.get("share")) not in (float, int) or not isinstance(scalars.get("labels"), list):
            raise InvalidValue("share", "be a number, beside labels in a list", shape.get("share"), REBUILD)
        return {**CountMin.form(counted, numbers), "candidates": ArrayForm("uint64")}

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> HeavyHitters:
        counted = {name: value for name, value in shape.items() if name != "share"}
        sketch = cls(CountMinParameters(**counted), shape["share"])
        sketch.counts = CountMin.restore(counted, scalars, {"table": arrays["table"]})
        sketch.candidates = arrays["candidates"]
        if (sketch.candidates[1:] <= sketch.candidates[:-1]).any():
            raise InvalidValue("candidates", "rise", "keys out of order, or twice", REBUILD)
        for key, value, *count in scalars["labels"]:
            parts = value if isinstance(value, list) else [value]
            good = type(key) is int and 0 <= key < 1 << 64 and len(count) <= 1
            good &= all(type(one) is int and 0 <= one <= sketch.counts.total for one in count)
            if not good or any(isinstance(one, list | dict) for one in parts):
                raise InvalidValue(
                    "labels", "be keys with values, and counts", str((key, value))[:100], REBUILD
                )
            sketch.labels[key] = value
            if count:
                sketch.exact[key] = count[0]
        return sketch
