"""`distinct`: how many different values, or combinations of values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, Kind, Loaded, SketchQuestion, asks

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec


class DistinctKeys(Loaded):
    """Questions to a count of different keys."""

    def distinct(self, confidence: float = 0.95) -> Answer:
        """How many different keys there are; rows in which one of the attributes is null count for none, as in SQL."""
        return self.covered(self.sketch.count(confidence))


class DistinctKind(Kind):
    name = "distinct"
    default_kib = 4
    answers: ClassVar[Mapping[str, str]] = {"distinct": ANSWER}
    questions = (SketchQuestion("distinct", "different keys", asks("distinct", "different keys")),)

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.hll import Hll

        return (Hll,)

    def alike(self, sketch: Any) -> Any:
        """The types alone: the finer is as coarse as the coarser when they unite."""
        return sketch.shape["types"]

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.hll import MOST_LG_K, Hll

        return Hll(min((spec.memory_kib * 1024).bit_length() - 1, MOST_LG_K))

    def feed(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.column_keys import distinct_keys

        sketch.update(distinct_keys(rows, spec.attributes, spec.types, spec.seed))

    def asking(self) -> type[Loaded]:
        return DistinctKeys
