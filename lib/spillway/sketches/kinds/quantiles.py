"""The kind `quantiles`: quantiles and range counts of one ordered attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import InvalidValue
from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, Answered, LoadedSketch, SketchKind, SketchQuery, numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.kll import KllParameters
    from spillway.sketches.specification import SketchSpec

METHOD = "kll"
_ORDERED = ("integer", "double", "timestamp", "date", "boolean")


class Quantiles(LoadedSketch):
    """Queries on a quantile sketch of an ordered attribute."""

    @property
    def rows(self) -> int:
        """The number of rows with a value."""
        return int(self.sketch.n)

    def quantile(self, share: float, confidence: float = 0.95) -> Answer:
        """Return the value at or below which `share` of the values lie.

        The interval has the values at the lowest and highest possible rank. If the values are integers, the three
        numbers are Python integers, because a double does not hold all digits above 2^53.
        """
        from spillway.sketches.intervals import check_confidence

        held = self.sketch
        check_confidence(confidence)
        number = isinstance(share, int | float | Decimal) and not isinstance(share, bool)
        if not (number and 0.0 <= share <= 1.0):
            raise InvalidValue("share", "lie from 0 to 1", share, "write 0.5 for the median")
        wanted = float(share)
        reach = held.error()
        rank = max(math.ceil(wanted * held.n), 1)
        (middle,) = held.quantiles([wanted])
        low, high = held.at_ranks([max(rank - reach, 1), min(rank + reach, held.n)])
        return self.with_coverage(
            Answer(
                middle.item(),
                low.item(),
                high.item(),
                confidence,
                METHOD,
                kind=(self.types or ("double",))[0],
            )
        )

    def between(self, low: object, high: object, confidence: float = 0.95) -> Answer:
        """Return the number of values from `low` to `high`, both included."""
        from spillway.sketches.intervals import check_confidence
        from spillway.sketches.values import ordinal

        kind, held = self.types[0] if self.types else "", self.sketch
        first, last = ordinal(low, kind, upward=True), ordinal(high, kind)
        check_confidence(confidence)
        if not ordinal(low, kind) <= ordinal(high, kind, upward=True):
            raise InvalidValue(
                "range", "have its low end first", (low, high), "swap the ends; NaN has no order"
            )
        count = held.ranks([last])[0] - held.ranks([first], inclusive=False)[0] if held.n else 0
        count = max(int(count), 0)
        reach = held.error(of_range=True)
        least, most = max(count - reach, 0.0), min(count + reach, float(held.n))
        return self.with_coverage(Answer(float(count), least, most, confidence, METHOD))


def _quantile(sketch: Quantiles, values: Sequence[str], confidence: float) -> Answered:
    shares = numbers("quantile", values or ["0.5"])
    return [
        (f"{share:g} of the values lie at or below", sketch.quantile(share, confidence)) for share in shares
    ]


def _between(sketch: Quantiles, values: Sequence[object], confidence: float) -> Answered:
    low, high = values
    return [(f"values from {low} to {high}", sketch.between(low, high, confidence))]


class QuantileKind(SketchKind):
    name = "quantiles"
    default_kib = 8
    answers: ClassVar[Mapping[str, str]] = {"quantile": ANSWER, "between": ANSWER}
    questions = (
        SketchQuery(
            "quantile",
            "[SHARE ...]: the value below which this share of the rows lies",
            _quantile,
            takes=(0, None),
        ),
        SketchQuery(
            "between", "LOW HIGH: number of values from LOW to HIGH", _between, takes=(2, 2), typed="ordered"
        ),
    )

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.kll import Kll

        return (Kll,)

    def merge_key(self, sketch: Any) -> Any:
        """Return only the type: sketches of different `k` can be merged, by the union of their items."""
        return sketch.shape["types"]

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.kll import Kll

        return Kll(self._parameters(spec))

    def _parameters(self, spec: SketchSpec) -> KllParameters:
        from spillway.sketches.kll import MOST_K, KllParameters

        if len(spec.types) != 1 or spec.types[0] not in _ORDERED:
            raise InvalidValue(
                "attributes", "be one ordered attribute for quantiles", spec.types, "name a number"
            )
        # 512 bytes for the offsets of up to 62 levels, the two ends, and the items of incomplete blocks
        k = (spec.memory_kib * 1024 - 512) // 8
        return KllParameters(min(k, MOST_K), spec.types[0] != "double")

    def empty_part(self, spec: SketchSpec) -> StoredSketch:
        """Return a partial sketch with a 16 times larger `k` (at most `MOST_K`), so that slices add little error."""
        from spillway.sketches.kll import MOST_K, Kll

        whole = self._parameters(spec)
        found = Kll(replace(whole, k=min(16 * whole.k, MOST_K)))
        found.context = spec.context
        return found

    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.values import order_values

        sketch.update(order_values(rows[spec.attributes[0]], spec.types[0]))

    def finish(self, spec: SketchSpec, parts: Any, heavy: Mapping[int, Any]) -> StoredSketch:
        found: StoredSketch = parts.compacted_to(self._parameters(spec).k)
        return found

    def close_day(self, spec: SketchSpec, merged: Any) -> StoredSketch:
        return self.finish(spec, merged, {})

    def query_class(self) -> type[LoadedSketch]:
        return Quantiles
