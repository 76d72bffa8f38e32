"""`quantiles`: ranges and quantiles of one ordered attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import Refused
from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, Answered, Kind, Loaded, SketchQuestion, numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec

_ORDERED = ("integer", "double", "timestamp", "date", "boolean")


class Quantiles(Loaded):
    """Questions to counts over an ordered attribute."""

    def quantile(self, share: float, confidence: float = 0.95) -> Answer:
        """The value below which `share` of the values lie."""
        return self.covered(self.sketch.quantile(float(share), confidence))

    def between(self, low: object, high: object, confidence: float = 0.95) -> Answer:
        """How many values lie from `low` to `high`, both included."""
        from spillway.sketches.values import ordinal

        return self.covered(self.sketch.between(ordinal(low), ordinal(high), confidence))


def _quantile(sketch: Quantiles, values: Sequence[str], confidence: float) -> Answered:
    shares = numbers("quantile", values or ["0.5"])
    return [(f"{share:g} of the values lie below", sketch.quantile(share, confidence)) for share in shares]


def _between(sketch: Quantiles, values: Sequence[str], confidence: float) -> Answered:
    low, high = numbers("between", values, 2)
    return [(f"values from {low:g} to {high:g}", sketch.between(low, high, confidence))]


class QuantileKind(Kind):
    name = "quantiles"
    answers: ClassVar[Mapping[str, str]] = {"quantile": ANSWER, "between": ANSWER}
    questions = (
        SketchQuestion("quantile", "[SHARE ...]: the value below which that share lies", _quantile),
        SketchQuestion("between", "LOW HIGH: values from LOW to HIGH", _between),
    )

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.dyadic import Dyadic

        return (Dyadic,)

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.dyadic import Dyadic, DyadicParameters

        if len(spec.types) != 1 or spec.types[0] not in _ORDERED:
            raise Refused("attributes", "be one ordered attribute for quantiles", spec.types, "name a number")
        depth, best = spec.depth or 3, None
        # the wider the table, the fewer levels need one: widen while it fits
        for width in (size for power in range(4, 28) for size in (1 << power, 3 << (power - 1))):
            parameters = DyadicParameters(width, depth, spec.bits, spec.seed)
            if parameters.memory_bytes <= spec.memory_kib * 1024:
                best = parameters
        if best is None:
            needed = math.ceil(DyadicParameters(16, depth, spec.bits).memory_bytes / 1024)
            raise Refused(
                "memory_kib", f"be at least {needed} for quantiles", spec.memory_kib, "give it that"
            )
        return Dyadic(best)

    def feed(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.values import order_values

        sketch.update(order_values(rows[spec.attributes[0]], spec.types[0]))

    def asking(self) -> type[Loaded]:
        return Quantiles
