"""The kind `distinct`: the number of distinct values, or distinct combinations of values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, LoadedSketch, SketchKind, SketchQuery, asks

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec


SUREST = 0.997
"""The confidence of three standard errors; DataSketches has no bounds beyond it."""


class DistinctKeys(LoadedSketch):
    """Queries on a count of distinct keys."""

    def distinct(self, confidence: float = 0.95) -> Answer:
        """Return the number of distinct keys. As in SQL, a row with a null in one of the attributes is not counted.

        If the segments have different hashes, equal keys in two segments are not recognised. The number is then at
        least that of the largest segment, and at most the sum over all segments. The confidence of each segment is
        raised, so that all intervals together hold with `confidence`.
        """
        from spillway.sketches.intervals import check_confidence

        ranges, confidence = len(self.segments), check_confidence(confidence)
        surely = min(1 - (1 - confidence) / ranges, max(SUREST, confidence)) if ranges > 1 else confidence
        first, *others = (one.sketch.count(surely) for one in self.segments)
        if not others:
            return self.with_coverage(first)
        every = [first, *others]
        most = max(one.estimate for one in every)
        return self.with_coverage(
            Answer(
                (most + sum(one.estimate for one in every)) / 2,
                max(one.low for one in every),
                sum(one.high for one in every),
                confidence,
                first.method,
                note=f"over {ranges} ranges whose keys are hashed apart: which come in several is not known",
            )
        )


class DistinctKind(SketchKind):
    name = "distinct"
    seeded = False
    default_kib = 4
    answers: ClassVar[Mapping[str, str]] = {"distinct": ANSWER}
    questions = (SketchQuery("distinct", "number of distinct keys", asks("distinct", "different keys")),)

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.hll import Hll

        return (Hll,)

    def merge_key(self, sketch: Any) -> Any:
        """Return the types and the seed of hashed keys. The precision may differ: a merge takes the coarser one."""
        return sketch.shape["types"], sketch.context.get("seed", 1)

    def context_of(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the key seed, which older contracts could state."""
        from spillway.sketches.hashing import are_hashed

        types = json.loads(row["parameters"]).get("types") or ["double"]
        return {"seed": row["seed"]} if row.get("seed", 1) != 1 and are_hashed(types) else {}

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.hll import MOST_LG_K, Hll

        return Hll(min((spec.memory_kib * 1024).bit_length() - 1, MOST_LG_K))

    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.column_keys import distinct_keys

        sketch.update(distinct_keys(rows, spec.attributes, spec.types, spec.seed))

    def query_class(self) -> type[LoadedSketch]:
        return DistinctKeys
