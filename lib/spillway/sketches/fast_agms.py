"""Fast-AGMS (count sketch): the baseline for CMM (see `count_min`), and the default table of online PairCount.

The table is like that of count-min, but a key adds +1 or -1 times its weight. A second hash chooses the sign.

- Point query: the median over the rows of sign * C, with variance sum_{x != q} f_x^2/w (Deng 2007, Lemma 3).
- Self-join size: the median over the rows of sum_j C_j^2, with variance 4/w sum_{x<y} f_x^2 f_y^2 (Lemma 5, ERRATA
  E20).
- Join size: the median over the rows of sum_j A_j B_j.

Frequencies may be negative. A counter has 4 bytes, as in Deng 2007. When the total weight could exceed this, all
counters grow to 8 bytes.

>>> FastAgms(FastAgmsParameters(64, 5, seed=1)).update(np.array([7, 7, 9])).point(np.array([7])).estimate.tolist()
[2.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.answers import Answer
from spillway.sketches.hashing import as_keys, check_seed, row_seeds
from spillway.sketches.intervals import check_confidence, median_deviation, median_row_tail, normal_quantile
from spillway.sketches.kernels import mix64
from spillway.sketches.payload_checks import REBUILD, ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.types import Estimates, Floats, Integers, Keys, require_same
from spillway.sketches.weights import WEIGHT_MAX, whole_weights


@dataclass(frozen=True)
class FastAgmsParameters:
    """`width` (w), `depth` (d) and the hash seed."""

    width: int
    depth: int
    seed: int = 1

    def __post_init__(self) -> None:
        if not 2 <= self.width < 1 << 31:
            raise InvalidValue("width", "lie from 2 to 2^31 - 1", self.width, "give it more memory or less")
        if not 1 <= self.depth <= 64:
            raise InvalidValue("depth", "lie from 1 to 64", self.depth, "5 rows serve 99 % confidence")
        check_seed(self.seed)


@njit(cache=True)
def _add(table: Integers, seeds: Keys, keys: Keys, weights: Integers) -> None:
    width = np.uint64(table.shape[1])
    for start in range(0, keys.size, 4096):
        stop = min(keys.size, start + 4096)
        for row in range(table.shape[0]):
            counters = table[row]
            for index in range(start, stop):
                mixed = mix64(keys[index], seeds[row])
                # bucket from the high half, sign from the lowest bit: independent bits of one hash
                sign = np.int64(1) - np.int64(2) * np.int64(mixed & np.uint64(1))
                weight = weights[index] if weights.size > 0 else np.int64(1)
                counters[((mixed >> np.uint64(32)) * width) >> np.uint64(32)] += sign * weight


@njit(cache=True)
def _signed(table: Integers, seeds: Keys, keys: Keys) -> Integers:
    found = np.empty((table.shape[0], keys.size), dtype=np.int64)
    width = np.uint64(table.shape[1])
    for row in range(table.shape[0]):
        for index in range(keys.size):
            mixed = mix64(keys[index], seeds[row])
            sign = np.int64(1) - np.int64(2) * np.int64(mixed & np.uint64(1))
            found[row, index] = sign * table[row, ((mixed >> np.uint64(32)) * width) >> np.uint64(32)]
    return found


def narrow_counters(table: Integers, most: int) -> Integers:
    """Return counters of at most `most` in size as 4-byte integers if these hold `most`, else as 8-byte integers.

    >>> narrow_counters(np.array([[3]]), 5).dtype, narrow_counters(np.array([[3]]), 1 << 31).dtype
    (dtype('int32'), dtype('int64'))
    """
    found: Integers = table.astype(np.int32 if most < 1 << 31 else np.int64, copy=False)
    return found


class FastAgms(binary.CounterSketch):
    """A table of signed counters."""

    kind = "fast_agms"

    def __init__(self, parameters: FastAgmsParameters) -> None:
        self.parameters = parameters
        self.seeds = row_seeds(parameters.seed, parameters.depth, purpose=2)
        self.table: Integers = np.zeros((parameters.depth, parameters.width), dtype=np.int32)
        self.total = 0
        self.absolute = 0
        """The sum of the absolute weights. For a sketch that was read back: its lower bound, the heaviest row's sum."""

    def update(self, keys: object, weights: object = None) -> FastAgms:
        """Add `weights` (default 1 each) to `keys`."""
        hashed = as_keys(keys)
        plain = np.empty(0, np.int64)
        amounts = plain if weights is None else whole_weights(weights, hashed.size, self.absolute)
        self.absolute += hashed.size if weights is None else int(np.abs(amounts).sum())
        self.table = narrow_counters(self.table, self.absolute)
        _add(self.table, self.seeds, hashed, amounts)
        self.total += hashed.size if weights is None else int(amounts.sum())
        return self

    def merge(self, other: FastAgms) -> FastAgms:
        """Return the sketch of both streams together."""
        require_same(self.kind, self.parameters, other.parameters)
        if self.absolute + other.absolute >= WEIGHT_MAX:
            raise InvalidValue("weights", "sum to less than 2^62", "more", "merge fewer days")
        merged = FastAgms(self.parameters)
        merged.context = self.shared_context(other)
        merged.total = self.total + other.total
        merged.absolute = self.absolute + other.absolute
        merged.table = narrow_counters(self.table, merged.absolute) + narrow_counters(
            other.table, merged.absolute
        )
        return merged

    def point(self, keys: object, confidence: float = 0.95) -> Estimates:
        """Return frequencies, clamped at 0 as in Deng 2007, with intervals from the distribution of the counters."""
        middle = np.median(_signed(self.table, self.seeds, as_keys(keys)), axis=0)
        tail = median_row_tail(self.parameters.depth, (1.0 - check_confidence(confidence)) / 2)
        # the sign of a counter is random for any other key, so the noise is symmetric
        reach = float(np.quantile(np.abs(self.table), 1.0 - 2.0 * min(tail, 0.5)))
        return Estimates(
            np.maximum(middle, 0.0),
            np.maximum(middle - reach, 0.0),
            np.maximum(middle + reach, 0.0),
            confidence,
            self.kind,
        )

    def self_join_rows(self) -> Floats:
        return (self.table.astype(np.float64) ** 2).sum(axis=1)

    def self_join_size(self, confidence: float = 0.95) -> Answer:
        """Return F2, unbiased in each row. The interval uses the variance of Lemma 5, bounded by 2 F2^2/w."""
        estimate = float(np.median(self.self_join_rows()))
        sigma = np.sqrt(2.0 / self.parameters.width) * median_deviation(self.parameters.depth)
        sigma *= normal_quantile(confidence)
        high = estimate / (1.0 - sigma) if sigma < 1.0 else np.inf
        return Answer(estimate, estimate / (1.0 + sigma), high, confidence, self.kind)

    def join_size(self, other: FastAgms, confidence: float = 0.95) -> Answer:
        """Return J = sum_x f_x g_x. The variance of a row is at most (F2 G2 + J^2)/w."""
        require_same(self.kind, self.parameters, other.parameters)
        rows = (self.table.astype(np.float64) * other.table.astype(np.float64)).sum(axis=1)
        estimate = float(np.median(rows))
        squares = self.self_join_size().estimate * other.self_join_size().estimate
        sigma = np.sqrt((squares + estimate**2) / self.parameters.width)
        reach = float(sigma) * median_deviation(self.parameters.depth) * normal_quantile(confidence)
        return Answer(estimate, estimate - reach, estimate + reach, confidence, self.kind)

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, int]:
        return {"total": self.total}

    def arrays(self) -> dict[str, Any]:
        # stored as 8 bytes in any case; compression removes the difference
        return {"table": self.table.astype(np.int64)}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(FastAgmsParameters, shape)
        checked_numbers(scalars, {"total": None})
        return {"table": ArrayForm("int64", (parameters.depth, parameters.width))}

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> FastAgms:
        sketch = cls(checked_parameters(FastAgmsParameters, dict(shape)))
        sketch.table, sketch.total = arrays["table"], scalars["total"]
        heaviest = float(np.abs(sketch.table.astype(np.float64)).sum(axis=1).max())
        if heaviest >= WEIGHT_MAX:
            raise InvalidValue("table", "hold counters that sum to less than 2^62", heaviest, REBUILD)
        sketch.absolute = int(heaviest)
        sketch.table = narrow_counters(sketch.table, sketch.absolute)
        return sketch
