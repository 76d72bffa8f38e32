"""The kind `count_min`: frequencies of keys, join sizes and skew, and the most frequent keys with their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import InvalidValue
from spillway.sketches.answers import Answer, HeavyKey
from spillway.sketches.kinds.base import (
    ANSWER,
    HEAVY_KEYS,
    Answered,
    LoadedSketch,
    SketchKind,
    SketchQuery,
    asks,
    asks_both,
    numbers,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.count_min import CountMin
    from spillway.sketches.specification import SketchSpec
    from spillway.sketches.types import Estimates, Keys

COUNTED = "exact"
"""The method of frequencies that were counted exactly."""
BY_PURPOSE = "by_purpose"
"""The estimator if the contract states none."""
FREQUENT = "frequent"
"""The default purpose of an answer; all purposes: `count_min.PURPOSES`."""


class Frequencies(LoadedSketch):
    """Queries on a count-min table, with or without heavy keys."""

    @property
    def rows(self) -> int:
        return int(self._counts().total)

    def frequencies(
        self, columns: Sequence[pa.Array], *, purpose: str = FREQUENT, confidence: float = 0.95
    ) -> Estimates:
        """Return the number of rows with each of these keys. `columns`: one array per attribute, of its type."""
        import pyarrow as pa

        from spillway.sketches.column_keys import keys_of

        types, names = self.types, [str(place) for place in range(len(columns))]
        if len(types) != len(columns):
            raise InvalidValue(
                "key", f"have {len(types)} values", len(columns), "give one value per attribute"
            )
        keys = keys_of(pa.table(list(columns), names), names, types, self.sketch.context["seed"])
        return self._estimates(keys, "auto", confidence, purpose)

    def frequency(
        self, *key: object, estimator: str = "auto", confidence: float = 0.95, purpose: str = FREQUENT
    ) -> Answer:
        """Return the number of rows with these values (one per attribute, None for null).

        `purpose` selects the estimator. `frequent`: one key that is expected to be frequent. `any`: one key that may be
        rare. `sum`: one of many keys whose answers are added up.
        """
        return self.sum_of_segments(
            [one._frequency(key, estimator, confidence, purpose) for one in self.each()]
        )

    def frequency_for(self, purpose: str, *key: object) -> Answer:
        """Return `frequency`; the purpose is the first argument, as in SQL."""
        return self.frequency(*key, purpose=purpose)

    def frequencies_for(self, purpose: str, keys: Sequence[pa.Array]) -> Estimates:
        """Return `frequencies`; the purpose is the first argument, as in SQL."""
        return self.frequencies(keys, purpose=purpose)

    def _frequency(self, key: Sequence[object], estimator: str, confidence: float, purpose: str) -> Answer:
        import numpy as np

        from spillway.sketches.hashing import fingerprint
        from spillway.sketches.values import coerce

        context = self.sketch.context
        types = context["types"]
        values = list(key)
        if len(key) == len(types):
            values = [coerce(value, kind) for value, kind in zip(key, types, strict=True)]
        hashed = np.array([fingerprint(values, types, context["seed"])], dtype=np.uint64)
        found = self._estimates(hashed, estimator, confidence, purpose)
        counted = estimator == "auto" and int(hashed[0]) in self._exact
        low, high = float(found.low[0]), float(found.high[0])
        return Answer(float(found.estimate[0]), low, high, confidence, COUNTED if counted else found.method)

    def _estimates(self, keys: Keys, estimator: str, confidence: float, purpose: str) -> Estimates:
        import numpy as np

        from spillway.sketches.types import Estimates

        counts = self._counts()
        if estimator == "auto":
            stated = str(self.sketch.context.get("estimator", BY_PURPOSE))
            by_purpose = counts.estimator_for(purpose)
            estimator = by_purpose if stated == BY_PURPOSE else stated
            exact = self._exact
            # keys of known frequency are removed from the noise: sums over the others have a much smaller error,
            # without bias
            counts = self._rest if estimator == "cmm_unbiased" else counts
        else:
            exact = {}
        found = counts.point(keys, estimator, confidence)
        counted = np.array([exact.get(key, -1) for key in keys.tolist()], np.int64)
        value, low, high = (
            np.where(counted < 0, edge, counted) for edge in (found.estimate, found.low, found.high)
        )
        return Estimates(value, low, high, confidence, found.method)

    @property
    def _exact(self) -> Mapping[int, int]:
        """The frequencies of the keys that were counted exactly."""
        exact: Mapping[int, int] = getattr(self.sketch, "exact", {})
        return exact

    @cached_property
    def _rest(self) -> CountMin:
        """The table without the keys that were counted exactly."""
        return self._counts().without(self._exact)

    def top(self, count: int, confidence: float = 0.95) -> list[HeavyKey]:
        """Return the `count` most frequent keys, each with its frequency."""
        from spillway.sketches.heavy_hitters import HeavyHitters
        from spillway.sketches.values import whole_number

        count = whole_number("count", count, 1)
        if not all(isinstance(one.sketch, HeavyHitters) for one in self.segments):
            raise self.wrong_kind("count_min with heavy_pct")
        if len(self.segments) > 1:
            return self._top_of_segments(count, confidence)
        found = self.sketch.top(count, confidence=confidence)
        note = f"complete above {100 * self.sketch.share:g} % of the rows"
        answers = []
        for place, key in enumerate(found.keys.tolist()):
            method = COUNTED if key in self.sketch.exact else found.sizes.method
            edges = (
                float(found.sizes.estimate[place]),
                float(found.sizes.low[place]),
                float(found.sizes.high[place]),
            )
            answers.append(Answer(*edges, confidence, method, self.covers, note))
        return [
            HeavyKey(None if label is None else tuple(label), answer)
            for label, answer in zip(found.labels, answers, strict=True)
        ]

    def _top_of_segments(self, count: int, confidence: float) -> list[HeavyKey]:
        """Return the most frequent keys of several segments.

        A key with at least the largest share of all rows has at least this share of the rows of some segment, so it is
        among the heavy keys there.
        """
        labels = {tuple(label) for one in self.segments for label in one.sketch.labels.values()}
        share = max(one.sketch.share for one in self.segments)
        note = f"complete above {100 * share:g} % of the rows; added up over {len(self.segments)} ranges"
        found = [
            HeavyKey(label, replace(self.frequency(*label, confidence=confidence), note=note))
            for label in labels
        ]
        return sorted(found, key=lambda one: (-one.answer.estimate, str(one.key)))[:count]

    def self_join_size(self, confidence: float = 0.95) -> Answer:
        """Return F2: the number of ordered pairs of rows with equal keys, including each row with itself."""
        return self.with_coverage(self._counts().self_join_size("cmm", confidence))

    def join_size(self, other: Frequencies, confidence: float = 0.95) -> Answer:
        """Return the number of pairs of rows, one of each stream, with equal keys: the size of the equality join."""
        paired = self.matched_attributes(other)
        answer = self._counts().join_size(other._counts(), "cmm", confidence)
        return self.answer_of_both(other, answer, "join", paired)

    def skew(self, confidence: float = 0.95) -> Answer:
        """Return N^2/F2, the number of equally frequent keys with the same F2; a small number means high skew."""
        from spillway.sketches.count_min import effective_keys

        counts = self._counts()
        moment = counts.self_join_size("cmm", confidence)
        square = float(counts.total) ** 2
        low, high = (square / edge if edge > 0 else 0.0 for edge in (moment.high, moment.low))
        return self.with_coverage(Answer(effective_keys(counts), low, high, confidence, "effective_keys"))

    def _counts(self) -> CountMin:
        counts: CountMin = getattr(self.sketch, "counts", self.sketch)
        return counts


def _frequency(
    sketch: Frequencies, values: Sequence[object], confidence: float, purpose: str = FREQUENT
) -> Answered:
    told = ", ".join("null" if value is None else str(value) for value in values)
    return [(f"rows with {told}", sketch.frequency(*values, confidence=confidence, purpose=purpose))]


def _top(sketch: Frequencies, values: Sequence[str], confidence: float) -> Answered:
    (count,) = numbers("top", values or ["10"], 1)
    found = sketch.top(count, confidence)  # type: ignore[arg-type]
    return [(", ".join(map(str, heavy.key or ("?",))), heavy.answer) for heavy in found]


class FrequencyKind(SketchKind):
    name = "count_min"
    answers: ClassVar[Mapping[str, str]] = {
        "frequency": ANSWER,
        "frequency_for": ANSWER,
        "frequencies": f"array<{ANSWER}>",
        "frequencies_for": f"array<{ANSWER}>",
        "top": HEAVY_KEYS,
        "self_join_size": ANSWER,
        "join_size": ANSWER,
        "skew": ANSWER,
    }
    of_two = frozenset({"join_size"})
    questions = (
        SketchQuery(
            "frequency",
            "VALUE ...: number of rows with these values, one value per attribute (null for null)",
            _frequency,
            typed="key",
            has_purpose=True,
        ),
        SketchQuery("top", "[COUNT]: the most frequent keys", _top, takes=(0, 1)),
        SketchQuery(
            "skew",
            "number of equally frequent keys with the same skew",
            asks("skew", "equally frequent keys that would be as skewed"),
        ),
        SketchQuery(
            "self-join",
            "number of pairs of rows with equal keys",
            asks("self_join_size", "pairs of rows with equal keys"),
        ),
        SketchQuery(
            "join",
            "STREAM SKETCH: number of pairs of rows of both streams with equal keys",
            asks_both("join_size", "pairs of rows of both with equal keys"),
            of_two=True,
        ),
    )

    def merge_key(self, sketch: Any) -> Any:
        """Return the table's parameters and the context of its keys; the share of heavy keys may differ."""
        return getattr(sketch, "counts", sketch).shape, dict(sketch.context), hasattr(sketch, "counts")

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.count_min import CountMin
        from spillway.sketches.heavy_hitters import HeavyHitters

        return CountMin, HeavyHitters

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.count_min import CountMin, parameters_for_memory
        from spillway.sketches.heavy_hitters import HeavyHitters

        # the hashes of Spark's own count_min_sketch, so that both have the same table
        parameters = replace(
            parameters_for_memory(spec.memory_kib * 1024, depth=spec.depth),
            seed=spec.seed & 0x7FFFFFFF,
            hashing="spark",
        )
        share = spec.heavy_share
        return CountMin(parameters) if share is None else HeavyHitters(parameters, share)

    def empty_part(self, spec: SketchSpec) -> StoredSketch:
        """Return a table of counters only; heavy keys are found later, from the counts of all partial sketches."""
        sketch = spec.empty()
        counts: StoredSketch = getattr(sketch, "counts", sketch)
        counts.context = spec.context
        return counts

    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> Keys:
        from spillway.sketches.column_keys import keys_of

        keys = keys_of(rows, spec.attributes, spec.types, spec.seed)
        sketch.update(keys)
        return keys

    def finish(self, spec: SketchSpec, parts: Any, heavy: Mapping[int, Any]) -> StoredSketch:
        import numpy as np

        if spec.heavy_share is None:
            return super().finish(spec, parts, heavy)
        sketch: Any = spec.empty()
        sketch.counts = parts
        sketch.candidates = np.array(sorted(heavy), dtype=np.uint64)
        sketch.labels = {key: values for key, (values, _) in sorted(heavy.items())}
        sketch.exact = {key: count for key, (_, count) in sorted(heavy.items())}
        return sketch

    def counters(self, sketch: Any) -> list[int]:
        found: list[int] = getattr(sketch, "counts", sketch).table.ravel().tolist()
        return found

    def query_class(self) -> type[LoadedSketch]:
        return Frequencies
