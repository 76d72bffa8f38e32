"""PairCount: estimate the number of near-duplicate pairs of records without a join (Deng 2007, chapter 5).

Records have d attributes. Two records are s-similar if at least s attributes agree. For each k = s..d, a record emits
l_k = ceil(r C(d,k)) k-super-values. A k-super-value is the fingerprint of a subset of k attributes, with a tag for the
subset; the subsets are drawn without replacement. Y_k is the self-join size of stream k. It is exact (offline), or
estimated from a Fast-AGMS or count-min table (online).

    X_k = (Y_k - l_k n - sum_{j>k} mu_jk X_j) / mu_kk,    mu_jk = l_k^2 C(j,k) / C(d,k)^2        (5.1)

G_s = sum X_k is an unbiased estimate of the number g_s of ordered pairs of different records that are s-similar. Its
standard deviation is at most C(d,s) sqrt(C(2(d-s),d-s) g_s / r) offline (Theorem 7, ERRATA E11). Online, Theorem 9 has
the bound.

Differences from Deng 2007:

- Pairs are unordered and of different records by default. `ordered` is the convention of Eq. 5.1. `with_self` is that
  of the tables, which count every record with itself (E12, E13).
- In a join of two sets, no record meets itself, so l_k n is not subtracted (Deng 2007 says "using Eq. 5.1"). The two
  sets must draw their subsets independently. `side` ensures this; the sketches of a contract derive it from the
  stream's name.
- A search emits all subsets of the query record. Deng 2007 samples them.
- The draws depend on the seed and the ordinal of the record. So partitions and reruns do not change the result, and
  identical records draw independently. Draws that depend on the content would count identical records wrongly.
- In addition to the bounds of the theorems, a standard deviation is computed from the measured Y_k: 5.1 is linear in
  them.

>>> records = np.array([[1, 2, 3], [1, 2, 3], [1, 2, 9]], dtype=np.uint64)
>>> counter = PairCount(PairCountParameters(attributes=3, similarity=2)).update(records, np.arange(3))
>>> counter.pairs().estimate
3.0

Super-values (5.2.4, step 1): the fingerprint of a subset is mix64(sum of mix64(value, seed of its attribute), tag). The
sum of 64-bit hashes replaces the concatenation of the values, because two different subsets of values collide with a
probability of only 2^-64.

>>> subsets(3, 2).tolist()
[[0, 1], [0, 2], [1, 2]]
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numba import njit

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.answers import Answer
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters, narrow_counters
from spillway.sketches.hashing import check_seed, row_seeds
from spillway.sketches.intervals import median_deviation, normal_quantile
from spillway.sketches.kernels import mix64
from spillway.sketches.payload_checks import REBUILD, ArrayForm, checked_numbers, checked_parameters
from spillway.sketches.types import Integers, Keys, require_same


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
        """Return the number of ordered triples of different emissions of one super-value: sum n (n-1) (n-2)."""
        self.settle()
        counts = self.counts.astype(np.float64)
        return float((counts * (counts - 1.0) * (counts - 2.0)).sum())

    def join_size(self, other: ExactStream) -> float:
        self.settle()
        other.settle()
        _, mine, theirs = np.intersect1d(self.values, other.values, assume_unique=True, return_indices=True)
        return float((self.counts[mine].astype(np.float64) * other.counts[theirs]).sum())


class OnlineStream:
    """A stream in a table of counters. Its join sizes are not clamped, so that G_s stays unbiased."""

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


def subsets(attributes: int, k: int) -> Integers:
    """Return all k-subsets of the attributes, in lexicographic order."""
    return np.array(list(combinations(range(attributes), k)), dtype=np.int64).reshape(-1, k)


@njit(cache=True)
def draw_subsets(ordinal: np.uint64, seed: np.uint64, order: Integers, count: int) -> None:
    """Draw `count` subsets without replacement to the front of `order` (partial Fisher-Yates shuffle)."""
    state = mix64(ordinal, seed)
    for place in range(count):
        state += np.uint64(0x9E3779B97F4A7C15)
        drawn = mix64(state, np.uint64(0)) >> np.uint64(32)
        other = place + np.int64((drawn * np.uint64(order.size - place)) >> np.uint64(32))
        order[place], order[other] = order[other], order[place]


@njit(cache=True)
def draw_super_values(
    records: Keys, ordinals: Keys, chosen: Integers, count: int, seeds: Keys, draw_seed: np.uint64
) -> Keys:
    """Return `count` super-values of each record; all of them if `count` is the number of subsets."""
    total, k = chosen.shape
    found = np.empty(records.shape[0] * count, dtype=np.uint64)
    order = np.empty(total, dtype=np.int64)
    mixed = np.empty(records.shape[1], dtype=np.uint64)
    for row in range(records.shape[0]):
        for attribute in range(records.shape[1]):
            mixed[attribute] = mix64(records[row, attribute], seeds[attribute])
        for subset in range(total):
            order[subset] = subset
        if count < total:
            draw_subsets(ordinals[row], draw_seed, order, count)
        for place in range(count):
            subset = order[place]
            whole = np.uint64(0)
            for member in range(k):
                whole += mixed[chosen[subset, member]]
            tag = seeds[records.shape[1]] + np.uint64(subset)
            found[row * count + place] = mix64(whole, mix64(tag, np.uint64(k)))
    return found


SUPER_VALUES_MAX = 4096
CONVENTIONS = ("unordered", "ordered", "with_self")


@dataclass(frozen=True)
class PairCountParameters:
    """`attributes` (d), `similarity` (s), `rate` (r), and the table for Y_k if online (`width` above 0)."""

    attributes: int
    similarity: int
    rate: float = 1.0
    seed: int = 1
    side: int = 0
    table: str = "fast_agms"
    width: int = 0
    depth: int = 5

    def __post_init__(self) -> None:
        if not 1 <= self.similarity <= self.attributes:
            raise InvalidValue(
                "similarity", f"lie from 1 to {self.attributes}", self.similarity, "ask for fewer"
            )
        if not 0.0 < self.rate <= 1.0:
            raise InvalidValue(
                "rate", "lie above 0 and not above 1", self.rate, "1 is exact, 0.5 halves the work"
            )
        if self.table not in ("fast_agms", "count_min"):
            raise InvalidValue("table", "be fast_agms or count_min", self.table, "use fast_agms")
        if not 0 <= self.width < 1 << 31 or not 1 <= self.depth <= 64 or not 0 <= self.side < 1 << 32:
            got = (self.width, self.depth, self.side)
            raise InvalidValue(
                "width, depth, side", "be below 2^31, from 1 to 64, below 2^32", got, "give it less memory"
            )
        # check C(d, k) before any list of subsets is made, and only for at most 64 attributes: C(64, 32) is about 10^18
        combinations = sum(math.comb(self.attributes, k) for k in self.levels) if self.attributes <= 64 else 0
        if self.attributes > 64 or combinations > SUPER_VALUES_MAX:
            raise InvalidValue(
                "attributes",
                f"give at most {SUPER_VALUES_MAX} subsets from similarity to all",
                f"{combinations} subsets of {self.attributes} attributes from similarity {self.similarity}",
                "raise the similarity, or name fewer attributes",
            )
        check_seed(self.seed)

    @property
    def levels(self) -> range:
        return range(self.similarity, self.attributes + 1)

    def subsets_per_record(self, k: int) -> int:
        """Return l_k, the number of k-subsets that a record draws."""
        return math.ceil(self.rate * math.comb(self.attributes, k) - 1e-9)

    @property
    def exact(self) -> bool:
        """Whether the result has no error: all subsets are drawn and all streams are stored."""
        return self.width == 0 and all(
            self.subsets_per_record(k) == math.comb(self.attributes, k) for k in self.levels
        )


def table_for(parameters: PairCountParameters, k: int) -> FastAgms | CountMin:
    """Return the table of stream k (online). Each k has its own hash seed, so that the errors are independent."""
    seed = int(row_seeds(parameters.seed, k + 1, purpose=6)[k])
    if parameters.table == "fast_agms":
        return FastAgms(FastAgmsParameters(parameters.width, parameters.depth, seed))
    return CountMin(CountMinParameters(parameters.width, parameters.depth, seed))


class PairCount(binary.CounterSketch):
    """The streams of super-values of one data set, and the estimates from them."""

    kind = "pair_count"

    def __init__(self, parameters: PairCountParameters) -> None:
        self.parameters = parameters
        self.records = 0
        self.streams: dict[int, ExactStream | OnlineStream] = {
            k: OnlineStream(table_for(parameters, k)) if parameters.width else ExactStream()
            for k in parameters.levels
        }

    def update(self, records: object, ordinals: object) -> PairCount:
        """Add records (n x d attribute hashes) with their ordinals in the stream, which determine their draws."""
        values = np.asarray(records)
        if values.size and (values.ndim != 2 or values.shape[1] != self.parameters.attributes):
            raise InvalidValue(
                "records", f"be n x {self.parameters.attributes}", values.shape, "hash each attribute"
            )
        values = np.ascontiguousarray(values.reshape(-1, self.parameters.attributes), dtype=np.uint64)
        ranks = np.ascontiguousarray(ordinals, dtype=np.uint64)
        if ranks.shape != (values.shape[0],):
            raise InvalidValue(
                "ordinals", f"be {values.shape[0]}, one per record", ranks.shape, "give each its seq"
            )
        for k, stream in self.streams.items():
            stream.update(self._super_values(values, ranks, k, self.parameters.subsets_per_record(k)))
        self.records += values.shape[0]
        return self

    def _super_values(self, values: Keys, ordinals: Keys, k: int, count: int) -> Keys:
        p = self.parameters
        seeds = row_seeds(p.seed, p.attributes + 1, purpose=7)
        (draws,) = row_seeds(p.seed, 1, purpose=1000 + 100 * p.side + k)
        return draw_super_values(values, ordinals, subsets(p.attributes, k), count, seeds, draws)

    def merge(self, other: PairCount) -> PairCount:
        """Return the sketch of both data sets together; their ordinals must not overlap."""
        require_same(self.kind, self.parameters, other.parameters)
        merged = PairCount(self.parameters)
        merged.context = self.shared_context(other)
        merged.records = self.records + other.records
        merged.streams = {
            k: stream.merge(other.streams[k])  # type: ignore[arg-type]
            for k, stream in self.streams.items()
        }
        return merged

    def by_similarity(self) -> dict[int, float]:
        """Return X_k, the ordered pairs of different records that agree in exactly k attributes (5.1), not clamped."""
        p = self.parameters
        sizes = {k: stream.self_join_size() for k, stream in self.streams.items()}
        return solve_matches(
            p, {k: sizes[k] - p.subsets_per_record(k) * self.records for k in sizes}, p.subsets_per_record
        )

    def pairs(
        self, at_least: int | None = None, convention: str = "unordered", confidence: float = 0.95
    ) -> Answer:
        """Return G_s, the pairs that agree in at least `at_least` attributes (default: the sketch's similarity)."""
        s = self._check_at_least(at_least)
        if convention not in CONVENTIONS:
            raise InvalidValue(
                "convention", f"be one of {', '.join(CONVENTIONS)}", convention, "use unordered"
            )
        sizes = {k: stream.self_join_size() for k, stream in self.streams.items()}
        exact_pairs = self.by_similarity()
        ordered = sum(value for k, value in exact_pairs.items() if k >= s)
        spread = self._stddev(s, sizes, exact_pairs, ordered_twice=2.0)
        scale = 0.5 if convention == "unordered" else 1.0
        self_pairs = float(self.records) if convention == "with_self" else 0.0
        ends = self_pairs, self_pairs + scale * self.records * (self.records - 1)
        return self._answer(ordered * scale + self_pairs, spread * scale, ends, confidence)

    def per_row(self, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """Return the near-duplicate pairs per row, a measure of cleanliness that does not depend on the table's size.

        The share of rows with a near-duplicate is at most twice this value. A share of all pairs would decrease as 1/n
        and show nothing for large tables.
        """
        if self.records == 0:
            raise InvalidValue("records", "be at least 1 to have a twin", 0, "sketch some rows")
        found = self.pairs(at_least, "unordered", confidence)
        ends = {name: getattr(found, name) / self.records for name in ("estimate", "low", "high")}
        return replace(found, **ends)

    def join(self, other: PairCount, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """Return the pairs across two data sets that agree in at least `at_least` attributes (JoinPairCount)."""
        mine, theirs = self.parameters, other.parameters
        require_same(self.kind, replace(mine, side=0), replace(theirs, side=0))
        if mine.side == theirs.side and not all(
            mine.subsets_per_record(k) == math.comb(mine.attributes, k) for k in mine.levels
        ):
            raise InvalidValue(
                "side",
                "differ between the two sets of a join where not all subsets are drawn",
                mine.side,
                "sketch both with rate 1, or as different streams; of one stream, ask for its near-duplicates",
            )
        s = self._check_at_least(at_least)
        sizes = {
            k: stream.join_size(other.streams[k])  # type: ignore[arg-type]
            for k, stream in self.streams.items()
        }
        solved = solve_matches(mine, sizes, mine.subsets_per_record)
        estimate = sum(value for k, value in solved.items() if k >= s)
        products = {
            k: math.sqrt(
                max(stream.self_join_size() * other.streams[k].self_join_size(), 0.0) / 2 + sizes[k] ** 2 / 2
            )
            for k, stream in self.streams.items()
        }
        ends = 0.0, float(self.records * other.records)
        return self._answer(estimate, self._stddev(s, products, solved, 1.0), ends, confidence)

    def search(self, record: object, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """Return the number of records that agree with `record` in at least `at_least` attributes (SearchPairCount)."""
        p = self.parameters
        query = np.ascontiguousarray(record, dtype=np.uint64).reshape(1, -1)
        if query.shape[1] != p.attributes:
            raise InvalidValue(
                "record", f"have {p.attributes} attributes", query.shape[1], "hash each attribute"
            )
        whole = PairCount(replace(p, rate=1.0))
        whole.update(query, np.zeros(1))
        s = self._check_at_least(at_least)
        sizes = {
            k: stream.join_size(whole.streams[k])  # type: ignore[arg-type]
            for k, stream in self.streams.items()
        }
        solved = solve_matches(p, sizes, whole.parameters.subsets_per_record)
        estimate = sum(value for k, value in solved.items() if k >= s)
        spreads = {
            k: math.sqrt(
                max(stream.self_join_size(), 0.0) * math.comb(p.attributes, k) / 2 + sizes[k] ** 2 / 2
            )
            for k, stream in self.streams.items()
        }
        ends = 0.0, float(self.records)
        return self._answer(estimate, self._stddev(s, spreads, solved, 1.0, searched=True), ends, confidence)

    def theorem_stddev(self, at_least: int | None = None) -> float:
        """Return the bound of Theorem 7 (offline) or 9 (online, from its proof) in ordered pairs, with G_s for g_s."""
        p, s = self.parameters, self._check_at_least(at_least)
        truth = max(sum(value for k, value in self.by_similarity().items() if k >= s), 0.0)
        factor = math.comb(p.attributes, s) ** 2 * math.comb(2 * (p.attributes - s), p.attributes - s)
        if not p.width:
            return math.sqrt(factor * truth / p.rate)
        sketched = 2.0 / p.width * (truth + self.records / p.rate) ** 2
        return math.sqrt(factor * ((1.0 + 2.0 / p.width) * truth / p.rate + sketched))

    def _check_at_least(self, at_least: int | None) -> int:
        s = self.parameters.similarity if at_least is None else at_least
        if s not in self.parameters.levels:
            levels = self.parameters.levels
            raise InvalidValue(
                "at_least", f"lie from {levels[0]} to {levels[-1]}", s, "build it with less similarity"
            )
        return s

    def _stddev(
        self,
        s: int,
        sizes: Mapping[int, float],
        solved: Mapping[int, float],
        ordered_twice: float,
        searched: bool = False,
    ) -> float:
        """Return the standard deviation of G_s, from the variances of the Y_k.

        The weight of each Y_k in G_s is the solution of 5.1 for this Y_k alone. `ordered_twice` is 2 if both orders of
        a pair are counted, else 1.
        """
        p = self.parameters
        theirs = (lambda k: math.comb(p.attributes, k)) if searched else p.subsets_per_record
        variance = 0.0
        for k in p.levels:
            unit = solve_matches(p, {j: float(j == k) for j in p.levels}, theirs)
            weight = sum(value for j, value in unit.items() if j >= s)
            drawn = 0.0
            for j in range(k, p.attributes + 1):
                spread = match_variance(p.attributes, j, k, p.subsets_per_record(k), theirs(k))
                # both orders of a pair have the same matches: half as many pairs, each counted twice
                drawn += ordered_twice * max(solved[j], 0.0) * spread
            stream = self.streams[k]
            if ordered_twice > 1.0 and isinstance(stream, ExactStream):
                drawn += self._shared_draws(k, stream.triples())
            sketched = 0.0
            if p.width:
                columns = p.width - 1 if p.table == "count_min" else p.width
                sketched = 2.0 / columns * sizes[k] ** 2 * median_deviation(p.depth) ** 2
            variance += weight**2 * (drawn + sketched)
        return math.sqrt(variance)

    def _shared_draws(self, k: int, triples: float) -> float:
        """Return an upper bound of the variance that clusters add to Y_k: pairs with a common record share its draws.

        A super-value that m records have and n of them emit adds 4 m(m-1)(m-2) q^3 (1 - q), with q = l_k/C(d,k).
        n (n-1)(n-2) is an unbiased estimate of m(m-1)(m-2) q^3. Deng 2007 assumes that these covariances are zero.
        Drawing without replacement makes them smaller for records that agree in several subsets.
        """
        return (
            4.0
            * (1.0 - self.parameters.subsets_per_record(k) / math.comb(self.parameters.attributes, k))
            * triples
        )

    def _answer(self, found: float, spread: float, ends: tuple[float, float], confidence: float) -> Answer:
        reach = spread * normal_quantile(confidence)
        method = "pair_count_exact" if self.parameters.exact else "pair_count"
        method = f"pair_count_{self.parameters.table}" if self.parameters.width else method
        least, most = ends
        note = "clamped from a negative estimate" if found < least else ""
        note = "clamped to as many as there can be" if found > most else note
        found, low, high = (min(max(one, least), most) for one in (found, found - reach, found + reach))
        return Answer(found, low, high, confidence, method, note=note)

    @property
    def shape(self) -> dict[str, Any]:
        return asdict(self.parameters)

    def scalars(self) -> dict[str, Any]:
        totals = {
            str(k): stream.counter.total
            for k, stream in self.streams.items()
            if isinstance(stream, OnlineStream)
        }
        return {"records": self.records, "totals": totals}

    def arrays(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for k, stream in self.streams.items():
            stream.settle()
            if isinstance(stream, ExactStream):
                found[f"values{k}"], found[f"counts{k}"] = stream.values, stream.counts
            else:
                found[f"table{k}"] = stream.counter.table.astype(np.int64)
        return found

    @classmethod
    def form(cls, shape: Any, scalars: Any) -> dict[str, ArrayForm]:
        parameters = checked_parameters(PairCountParameters, shape)
        totals = scalars.get("totals")
        checked_numbers({name: value for name, value in scalars.items() if name != "totals"}, {"records": 0})
        found: dict[str, ArrayForm] = {}
        for k in parameters.levels:
            if parameters.width:
                found[f"table{k}"] = ArrayForm("int64", (parameters.depth, parameters.width))
            else:
                found |= {f"values{k}": ArrayForm("uint64"), f"counts{k}": ArrayForm("int64", None, 1)}
        checked_numbers(totals, {str(k): 0 for k in parameters.levels if parameters.width})
        return found

    @classmethod
    def restore(
        cls, shape: Mapping[str, Any], scalars: Mapping[str, Any], arrays: Mapping[str, Any]
    ) -> PairCount:
        sketch = cls(checked_parameters(PairCountParameters, dict(shape)))
        sketch.records = scalars["records"]
        for k, stream in sketch.streams.items():
            emitted = sketch.records * sketch.parameters.subsets_per_record(k)
            if isinstance(stream, ExactStream):
                stream.values, stream.counts = arrays[f"values{k}"], arrays[f"counts{k}"]
                # in float64, which cannot wrap
                counted = float(stream.counts.sum(dtype=np.float64))
                if counted != emitted or stream.values.size != stream.counts.size:
                    raise InvalidValue(
                        f"counts{k}", f"sum to the {emitted} super-values drawn", counted, REBUILD
                    )
                if (stream.values[1:] <= stream.values[:-1]).any():
                    raise InvalidValue(f"values{k}", "rise", "super-values out of order, or twice", REBUILD)
            else:
                stream.counter.table = arrays[f"table{k}"]
                stream.counter.total = stream.counter.absolute = scalars["totals"][str(k)]
                sizes = np.abs(stream.counter.table.astype(np.float64)).sum(axis=1)
                if stream.counter.total != emitted or (sizes > emitted).any():
                    raise InvalidValue(
                        f"table{k}", f"hold {emitted} super-values", float(sizes.max()), REBUILD
                    )
                if isinstance(stream.counter, FastAgms):
                    stream.counter.table = narrow_counters(stream.counter.table, emitted)
        return sketch


def match_variance(attributes: int, agree: int, k: int, mine: int, theirs: int) -> float:
    """Return the variance of the number of shared subsets that both of two records draw.

    The records agree in j attributes (`agree`), so they share J = C(j,k) of the M = C(d,k) subsets. They draw
    l (`mine`) and l' (`theirs`) subsets. The variance is J a + J (J-1) b - (J a)^2. Here a = l l'/M^2 is the
    probability that both draw a given subset, and b is the probability that both draw two given subsets. Deng 2007
    bounds the variance by l_k mu_jk.
    """
    m, shared = math.comb(attributes, k), math.comb(agree, k)
    one = mine * theirs / m**2
    two = mine * (mine - 1) * theirs * (theirs - 1) / (m * (m - 1)) ** 2 if m > 1 else 0.0
    return max(shared * one + shared * (shared - 1) * two - (shared * one) ** 2, 0.0)


def solve_matches(
    parameters: PairCountParameters, matches: Mapping[int, float], theirs: Any
) -> dict[int, float]:
    """Return X_k from the matches of streams k = d..s (5.1; l_k n is already subtracted).

    mu_jk = l_k l'_k C(j,k)/C(d,k)^2. `theirs` returns l'_k, which differs from l_k only for a search.
    """
    d = parameters.attributes
    found: dict[int, float] = {}
    for k in reversed(parameters.levels):
        drawn = parameters.subsets_per_record(k) * theirs(k) / math.comb(d, k) ** 2
        above = sum(drawn * math.comb(j, k) * found[j] for j in range(k + 1, d + 1))
        found[k] = (matches[k] - above) / drawn
    return found
