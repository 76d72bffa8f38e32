"""Count-min sketch with mean correction (CMM): a table of counters with several estimators (Deng 2007, chapter 4).

The table has d rows of w counters. A key adds its weight to one counter per row. N is the sum of the weights.

- `cm`: the minimum over the rows of C[i, h_i(q)]. It is never below the true frequency, and exceeds it by at most
  (e/w) N with probability 1 - e^-d.
- `cmm_mean`: the median over the rows of C - (N - C)/(w - 1), clamped to [0, cm] (4.2.2). Each row is unbiased, with
  variance sum_{x != q} f_x^2 / (w - 1) (Lemma 2).
- `cmm_median`: the same with the row's median counter as the noise (4.2.4), which is robust against outliers.
- `cmm_order` (our own): the j-th least of the rows minus the median of its noise. j is the order whose noise has the
  least deviation in this table (see `intervals.Noise`).
- `cmm_unbiased`: the mean over the rows of C - (N - C)/(w - 1), not clamped. It is unbiased (Lemma 2), so that the
  errors of many keys cancel in their sum. The estimate of one key may have a large error, or be negative.

No estimator is best for every query, so a query states its `purpose`:

- `frequent` (default): a key that is expected to be frequent. `cmm_order`: of the keys of Figure 4.2 (the 100 most
  frequent) it has the least error at every skew.
- `any`: a key that may be rare. `cmm_mean` if the counters show that the table is too crowded to distinguish a rare key
  from noise, else `cmm_order`. In crowded tables the error of `cmm_order` is up to 4.5 times as large (Figure 4.1).
- `sum`: the answers are added up. `cmm_unbiased`: the others are clamped at 0, so if most keys are rare, their sums are
  several times too large.

Ting ("Count-Min: Optimal Estimation and Tight Error Bounds using Empirical Error Distributions", KDD 2018, arXiv
1811.04150) estimates the distribution of the noise from the counters, as `intervals.Noise` does, and selects the
estimate that is optimal for it. It was measured and not kept. For the 100 most frequent
keys its error is 6 to 8 % smaller than that of `cmm_order` at Zipf 0.8 to 1.2, and larger at 1.6 and 2.0. For all keys
its error is larger than that of `any` up to Zipf 1.2. It takes 100 times as long. So Spillway does not offer it.

Other queries:

- Self-join size F2 = sum f_x^2. `cm`: the minimum over the rows of sum_j C_j^2, which is never below F2. `cmm`: the
  median over the rows of (w-1)/w sum_j (C_j - (N - C_j)/(w-1))^2 = w/(w-1) sum_j C_j^2 - N^2/(w-1) (4.3.1), which is
  unbiased with variance 4/(w-1) sum_{x<y} f_x^2 f_y^2 per row (Lemma 4).
- Join size of two tables with the same hashes: w/(w-1) sum_j A_j B_j - N_A N_B/(w-1), by the same algebra.

Differences from Deng 2007:

- Every answer has an interval, from the noise that the counters show. Deng 2007 has only variances.
- Weights and deletions are allowed if no key's frequency becomes negative. A negative counter proves that one did; then
  the one-sided answers are refused.
- Conservative update (MI in Deng 2007) is an option of the table. It makes deletion, merging and mean correction
  invalid, so these are refused.

>>> sketch = CountMin(CountMinParameters(width=64, depth=5, seed=1)).update(np.array([7, 7, 9]))
>>> sketch.point(np.array([7, 9, 8]), "cm").estimate.tolist(), sketch.total
([2.0, 1.0, 0.0], 3)

Shape of the table (`parameters_for_memory`): d = ceil(ln(1 / (1 - confidence))) rows, each with as many counters as
fit. Then the answers of CM exceed the true frequency by at most (e/w) N with this confidence.

Skew (`effective_keys`): N^2/F2 is the number of equally frequent keys with the same self-join size ("effective
keys"). If there are at least as many effective keys as counters, all counters have similar noise, and mean correction
is much better than CM. If there are few, most counters have no heavy key, and CM is nearly exact. Deng 2007 proposes to
choose between the two by this number, without a rule. But F2 does not show how many
counters no heavy key touches. So `CountMin.point` uses the noise of the counters (`intervals.Noise`) instead. The
evidence shows the loss of both choices against the better estimator.

>>> shape = parameters_for_memory(64 * 1024)
>>> shape.width, shape.depth
(1638, 5)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.answers import Answer
from spillway.sketches.hashing import (
    as_keys,
    bucket_of_mixed,
    check_seed,
    mix,
    row_seeds,
    spark_buckets,
    spark_factors,
)
from spillway.sketches.intervals import Noise, check_confidence, median_deviation, normal_quantile
from spillway.sketches.payload_checks import REBUILD, ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.types import Estimates, Floats, Integers, Keys, require_same
from spillway.sketches.weights import WEIGHT_MAX, whole_weights

ESTIMATORS = ("cm", "cmm_mean", "cmm_median", "cmm_order", "cmm_unbiased")
PURPOSES = ("frequent", "any", "sum")
"""Purposes of an answer: one frequent key, one key that may be rare, or a sum over keys."""


@dataclass(frozen=True)
class CountMinParameters:
    """The shape of a table: `width` (w), `depth` (d), the hash seed, and whether updates are conservative.

    `hashing` is `mix64`, or `spark` for the same table as that of Spark's native `count_min_sketch` (seed below 2^31).
    `spark` is valid for keys that are hashes, such as those of columns. It distributes consecutive integers too evenly,
    so that no interval would hold for them.
    """

    width: int
    depth: int
    seed: int = 1
    conservative: bool = False
    hashing: str = "mix64"

    def __post_init__(self) -> None:
        if not 2 <= self.width < 1 << 31:
            raise InvalidValue("width", "lie from 2 to 2^31 - 1", self.width, "give it more memory or less")
        if not 1 <= self.depth <= 64:
            raise InvalidValue("depth", "lie from 1 to 64", self.depth, "5 rows serve 99 % confidence")
        if self.hashing not in ("mix64", "spark"):
            raise InvalidValue("hashing", "be mix64 or spark", self.hashing, "use mix64")
        if check_seed(self.seed) >> 31 and self.hashing == "spark":
            raise InvalidValue("seed", "be below 2^31 for Spark's hashing", self.seed, "state a smaller seed")

    @property
    def memory_bytes(self) -> int:
        return 8 * self.width * self.depth


class CountMin(binary.CounterSketch):
    """A count-min table. It can be merged with tables of equal parameters, and answers with intervals."""

    kind = "count_min"

    def __init__(self, parameters: CountMinParameters) -> None:
        self.parameters = parameters
        self.spark = parameters.hashing == "spark"
        seeds = spark_factors if self.spark else row_seeds
        self.seeds = seeds(parameters.seed, parameters.depth)
        self.table: Integers = np.zeros((parameters.depth, parameters.width), dtype=np.int64)
        self.total = 0
        self.updates = 0
        self.absolute = 0
        self._noise: dict[str, Noise] = {}

    def update(self, keys: object, weights: object = None) -> CountMin:
        """Add `weights` (default 1 each; a negative weight deletes) to `keys`."""

        from spillway.sketches.kernels import add, add_conservatively

        hashed = as_keys(keys)
        amounts, total, absolute = self.check_weights(hashed, weights)
        fill = add_conservatively if self.parameters.conservative else add
        fill(self.table, self.seeds, hashed, amounts, self.spark)
        self.total += total
        self.absolute += absolute
        self.updates += hashed.size
        self.forget()
        return self

    def check_weights(self, keys: Keys, weights: object) -> tuple[Integers, int, int]:
        """Return the weights, their sum and the sum of their absolute values; refuse weights that could overflow."""
        if weights is None:
            return np.empty(0, dtype=np.int64), keys.size, keys.size
        amounts = whole_weights(weights, keys.size, self.absolute)
        if self.parameters.conservative and (amounts < 0).any():
            least = int(amounts.min())
            raise InvalidValue(
                "weights", "not be negative under conservative update", least, "update plainly"
            )
        return amounts, int(amounts.sum()), int(np.abs(amounts).sum())

    def forget(self) -> None:
        """Clear the cache of values that were derived from the counters; call this after the counters change."""
        self._noise.clear()

    def merge(self, other: CountMin) -> CountMin:
        """Return the sketch of both streams together: the sum of both tables."""
        require_same(self.kind, self.parameters, other.parameters)
        if self.parameters.conservative:
            raise InvalidValue(
                "conservative",
                "be false to merge",
                True,
                "its counters depend on the order; rebuild from rows",
            )
        if self.absolute + other.absolute >= WEIGHT_MAX:
            raise InvalidValue("weights", "sum to less than 2^62", "more", "merge fewer days")
        merged = CountMin(self.parameters)
        merged.context = self.shared_context(other)
        merged.table = self.table + other.table
        merged.total = self.total + other.total
        merged.updates = self.updates + other.updates
        merged.absolute = self.absolute + other.absolute
        return merged

    def estimator_for(self, purpose: str) -> str:
        """Return the estimator for a purpose; `cm` for a conservatively updated table, which supports no other."""
        if purpose not in PURPOSES:
            raise InvalidValue("purpose", f"be one of {', '.join(PURPOSES)}", purpose, "use frequent")
        if self.parameters.conservative:
            if purpose == "sum":
                raise InvalidValue(
                    "purpose",
                    "be frequent or any for a conservatively updated table",
                    purpose,
                    "update plainly",
                )
            return "cm"
        if purpose == "any":
            return "cmm_mean" if self._is_crowded() else "cmm_order"
        return "cmm_order" if purpose == "frequent" else "cmm_unbiased"

    def _is_crowded(self) -> bool:
        """Return whether, for a typical key, correction by the mean loses less than the noise of `cmm_order` adds.

        With B = mean - median of the counters, `cmm_mean` estimates f - min(f, B) for a key of frequency f. Averaged
        over all n keys, the loss is sum_j min(C_j, B) / n. n follows from the share e^(-n/w) of the counters that n
        keys leave at zero. If no counter is zero, n is probably above w ln(w d), and twice this value is used.
        """
        if self.total <= 0:
            return False
        noise, table = self._noise_of("cmm_order"), self.table.astype(np.float64)
        lost = float(np.minimum(table, max(float(noise.values.mean()), 0.0)).sum()) / self.parameters.depth
        empty = float((table == 0).mean())
        each = -math.log(empty) if empty else 2.0 * math.log(table.size)
        keys = max(each, 1.0 / table.size) * self.parameters.width
        return lost / keys < noise.deviation(noise.sharpest())

    def point(
        self, keys: object, estimator: str = "auto", confidence: float = 0.95, purpose: str = "frequent"
    ) -> Estimates:
        """Return the frequency of each key, with an interval; `auto` is the estimator for the purpose."""
        beyond = (1.0 - check_confidence(confidence)) / 2
        if estimator == "auto":
            estimator = self.estimator_for(purpose)
        self._check_sound(estimator)
        counters = self._touched(as_keys(keys))
        minimum = counters.min(axis=0).astype(np.float64)
        noise = self._noise_of(estimator)
        if estimator == "cm":
            low = minimum - noise.quantile(1, confidence)
            return Estimates(minimum, np.maximum(low, 0.0), minimum, confidence, "cm")
        residues = np.sort(self.residues(counters, estimator), axis=0)
        middle = (self.parameters.depth + 1) // 2
        below = above = middle if estimator != "cmm_order" else noise.sharpest()
        shift = noise.quantile(below, 0.5) if estimator == "cmm_order" else 0.0
        if estimator != "cmm_order" and self.parameters.depth % 2 == 0:
            above = middle + 1  # the estimate is the mean of the middle two
        low = np.clip(residues[below - 1] - noise.quantile(below, 1.0 - beyond), 0.0, minimum)
        high = np.clip(residues[above - 1] - noise.quantile(above, beyond), 0.0, minimum)
        if estimator == "cmm_unbiased":
            unbiased = residues.mean(axis=0)
            low, high = np.minimum(low, unbiased), np.maximum(high, unbiased)
            return Estimates(unbiased, low, high, confidence, estimator)
        estimate = (residues[below - 1] + residues[above - 1]) / 2 - shift
        return Estimates(np.clip(estimate, 0.0, minimum), low, high, confidence, estimator)

    def without(self, counted: Mapping[int, int]) -> CountMin:
        """Return the table without keys whose frequencies are known, so that only the other keys are noise."""
        rest = CountMin(self.parameters)
        rest.table = self.table.copy()
        rest.total, rest.updates, rest.absolute = self.total, self.updates, self.absolute
        keys = np.fromiter(counted.keys(), np.uint64, len(counted))
        return rest.update(keys, -np.fromiter(counted.values(), np.int64, len(counted))) if counted else rest

    def _touched(self, keys: Keys) -> Integers:
        """Return the counters of each key, one row per row of the table.

        This does not use a compiled kernel: to load one takes longer than to answer a query, and tens of megabytes.
        """
        width = self.parameters.width
        if self.spark:
            columns = spark_buckets(keys, self.seeds, width)
        else:
            columns = bucket_of_mixed(mix(keys[None, :], self.seeds[:, None]), np.uint64(width)).astype(
                np.int64
            )
        return np.take_along_axis(self.table, columns, axis=1)

    def residues(self, counters: Integers, estimator: str) -> Floats:
        """Return the counters minus their noise: C - (N - C)/(w - 1), or C - median of the row."""
        if estimator in ("cmm_mean", "cmm_unbiased"):
            return counters - (self.total - counters) / (self.parameters.width - 1)
        return counters - np.median(self.table, axis=1)[:, None]

    def self_join_size(self, estimator: str = "cmm", confidence: float = 0.95) -> Answer:
        """Return F2 with its interval.

        The variance of a row is 2 (F2^2 - F4)/(w - 1) (Lemma 4). The variance of the median of d rows is smaller.
        """
        if estimator not in ("cm", "cmm"):
            raise InvalidValue("estimator", "be cm or cmm", estimator, "cmm is unbiased, cm never under")
        self._check_sound("cm" if estimator == "cm" else "cmm_mean", allow_negative=estimator == "cmm")
        rows = self._self_join_rows()
        estimate = max(float(np.median(rows)), 0.0)
        width, depth = self.parameters.width, self.parameters.depth
        spread = self._unshared(self, estimate**2, 3.0 * estimate**2)
        sigma = math.sqrt(2.0 * spread / (width - 1)) * median_deviation(depth) * normal_quantile(confidence)
        # the deviation is relative to the true value, not to the estimate: true value (1 -+ sigma) = estimate
        low = estimate / (1.0 + sigma)
        high = estimate / (1.0 - sigma) if sigma < 1.0 else math.inf
        upper = min(float((self.table[row].astype(np.float64) ** 2).sum()) for row in range(depth))
        if estimator == "cm":
            return Answer(upper, min(low, upper), upper, confidence, "cm")
        bound = upper if (self.table >= 0).all() else math.inf
        return Answer(min(estimate, bound), min(low, bound), min(high, bound), confidence, "cmm")

    def join_size(self, other: CountMin, estimator: str = "cmm", confidence: float = 0.95) -> Answer:
        """Return J = sum_x f_x g_x of two streams whose tables have equal parameters.

        The variance of a row is at most (F2 G2 + J^2)/(w - 1).
        """
        require_same(self.kind, self.parameters, other.parameters)
        if estimator not in ("cm", "cmm"):
            raise InvalidValue("estimator", "be cm or cmm", estimator, "cmm is unbiased, cm never under")
        for sketch in (self, other):
            sketch._check_sound("cm" if estimator == "cm" else "cmm_mean", allow_negative=estimator == "cmm")
        width, depth = self.parameters.width, self.parameters.depth
        products = (self.table.astype(np.float64) * other.table.astype(np.float64)).sum(axis=1)
        rows = (width * products - float(self.total) * float(other.total)) / (width - 1)
        estimate = max(float(np.median(rows)), 0.0)
        squares = self.self_join_size().estimate * other.self_join_size().estimate
        # the variance is sum_{x != y} f_x^2 g_y^2 + f_x g_x f_y g_y; the bound in Deng 2007 includes the terms x = y
        spread = self._unshared(other, squares, squares + 2.0 * estimate**2)
        together = squares + estimate**2 - 2.0 * (1.0 - spread) * squares
        sigma = math.sqrt(max(together, 0.0) / (width - 1)) * median_deviation(depth)
        reach = sigma * normal_quantile(confidence)
        upper = float(products.min()) if (self.table >= 0).all() and (other.table >= 0).all() else math.inf
        low, high = max(estimate - reach, 0.0), min(estimate + reach, upper)
        if estimator == "cm":
            return Answer(upper, min(low, upper), upper, confidence, "cm")
        return Answer(min(estimate, upper), low, high, confidence, "cmm")

    def _unshared(self, other: CountMin, squares: float, collisions: float) -> float:
        """Return 1 - sum_x f_x^2 g_x^2 / (F2 G2), estimated from the counters.

        This is the share of the variance that remains without the terms of single keys. The sum over a row's residues
        sum_j r_j^2 s_j^2 is about sum_x f_x^2 g_x^2 plus `collisions` / w, from pairs of keys that share a counter.
        """
        if squares <= 0.0:
            return 1.0
        width = self.parameters.width
        mine, theirs = (one.residues(one.table, "cmm_mean") for one in (self, other))
        rows = ((mine * theirs) ** 2).sum(axis=1)
        shared = float(np.median(rows - collisions / width)) / max(1.0 - 3.0 / width, 0.25)
        return 1.0 - min(max(shared / squares, 0.0), 1.0)

    def _self_join_rows(self) -> Floats:
        width = self.parameters.width
        squares = (self.table.astype(np.float64) ** 2).sum(axis=1)
        return (width * squares - float(self.total) ** 2) / (width - 1)

    def _check_sound(self, estimator: str, allow_negative: bool = False) -> None:
        if estimator not in ESTIMATORS:
            raise InvalidValue(
                "estimator", f"be auto or one of {', '.join(ESTIMATORS)}", estimator, "use auto"
            )
        if self.parameters.conservative and estimator != "cm":
            raise InvalidValue(
                "estimator",
                "be cm for a conservatively updated table",
                estimator,
                "its rows do not sum to N, so that there is no mean to correct by",
            )
        if not allow_negative and (self.table < 0).any():
            raise InvalidValue(
                "weights",
                "not delete more than was added",
                f"a counter of {int(self.table.min())}",
                "rebuild the sketch, or use Fast-AGMS, which allows negative frequencies",
            )

    def _noise_of(self, estimator: str) -> Noise:
        """Return the noise: the estimates, at every counter, for a key that does not occur."""
        kind = {"cmm_order": "cmm_median", "cmm_unbiased": "cmm_mean"}.get(estimator, estimator)
        if kind not in self._noise:
            values = self.table.astype(np.float64) if kind == "cm" else self.residues(self.table, kind)
            self._noise[kind] = Noise(values, self.parameters.depth)
        return self._noise[kind]

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, int]:
        return {"total": self.total, "updates": self.updates, "absolute": self.absolute}

    def arrays(self) -> dict[str, Any]:
        return {"table": self.table}

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(CountMinParameters, shape)
        checked_numbers(scalars, {"total": None, "updates": 0, "absolute": 0})
        return {"table": ArrayForm("int64", (parameters.depth, parameters.width))}

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> CountMin:
        sketch = cls(checked_parameters(CountMinParameters, dict(shape)))
        sketch.table = np.ascontiguousarray(arrays["table"])
        sketch.total, sketch.updates = scalars["total"], scalars["updates"]
        sketch.absolute = scalars["absolute"]
        sketch._check_counters()
        return sketch

    def _check_counters(self) -> None:
        """Refuse counters that no stream of this weight can produce.

        The sum of each row must be N, and the sum of its absolute values at most `absolute`. The sums are computed in
        float64, which cannot wrap. Their rounding error is far below the margin that `WEIGHT_MAX` leaves.
        """
        sizes = np.abs(self.table.astype(np.float64)).sum(axis=1)
        if not abs(self.total) <= self.absolute < WEIGHT_MAX or (sizes > self.absolute * (1 + 1e-9)).any():
            raise InvalidValue(
                "table", f"hold counters of at most {self.absolute} a row", float(sizes.max()), REBUILD
            )
        # the absolute values sum to less than 2^62, so this integer sum cannot wrap
        sums = self.table.sum(axis=1)
        if not self.parameters.conservative and (sums != self.total).any():
            raise InvalidValue("table", f"have rows that add up to {self.total}", sums.tolist()[:9], REBUILD)


def parameters_for_memory(
    memory_bytes: int, confidence: float = 0.99, depth: int | None = None, seed: int = 1
) -> CountMinParameters:
    """Return the widest table within `memory_bytes`; raise `InvalidValue` if fewer than two counters per row fit.

    >>> parameters_for_memory(4096, depth=2).width
    256
    """
    rows = depth or max(math.ceil(math.log(1.0 / (1.0 - check_confidence(confidence)))), 1)
    width = min(memory_bytes // (8 * rows), (1 << 31) - 1)
    if width < 2:
        rule = f"be at least {16 * rows} bytes for any table of {rows} rows"
        raise InvalidValue("memory", rule, memory_bytes, "give it that much")
    return CountMinParameters(width, rows, seed)


def effective_keys(sketch: CountMin) -> float:
    """Return N^2/F2, the number of equally frequent keys with this self-join size; a small number means high skew."""
    second_moment = sketch.self_join_size("cmm").estimate
    return float(sketch.total) ** 2 / second_moment if second_moment > 0 else 0.0
