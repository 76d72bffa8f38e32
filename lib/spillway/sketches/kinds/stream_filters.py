"""The kind `alternating_bloom`: the filter of `duplicates.rows`.

Its state depends on the order of the stream, so it cannot be merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, Answered, LoadedSketch, SketchKind, SketchQuery

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec


UNSEEN = "unseen_to"
"""Entry of a state's context: the last `seq` of its window that the filter has not seen, if there is one."""


class RowFilter(LoadedSketch):
    """Queries on the filter of `duplicates.rows`, in its state after the last batch."""

    def seen(self, *key: object, confidence: float = 0.95) -> Answer:
        """Return whether a row with these values arrived lately: 1: yes (or a false positive), 0: no (or long ago).

        A 0 is certain (its interval ends at 0) if the filter has seen every row of its window. It has not seen rows of
        batches without a filter state, and rows that were retired before the filter was built.
        """
        import numpy as np

        from spillway.sketches.hashing import fingerprint
        from spillway.sketches.intervals import check_confidence
        from spillway.sketches.values import coerce

        check_confidence(confidence)
        values, types = list(key), self.types
        if len(values) == len(types):
            values = [coerce(value, kind) for value, kind in zip(values, types, strict=True)]
        hashed = np.array([fingerprint(values, types, self.sketch.context["seed"])], dtype=np.uint64)
        found = float(self.sketch.holds(hashed)[0])
        wrong = 100 * self.sketch.parameters.false_positive_bound
        told = [f"a yes is wrong for at most {wrong:.2g} % of new keys"]
        unseen = self.sketch.context.get(UNSEEN, 0)
        if self.covers.missing:
            told.append(
                f"a no is not certain: {self.covers.missing} batches came that the filter has not seen"
            )
        if unseen:
            told.append(
                "a no is not certain: raw tuples of its window were retired before the filter was made"
            )
        sure = not (self.covers.missing or unseen)
        told += ["a no is right within the contract's window"] * sure
        answer = Answer(
            found, 0.0, found if sure else 1.0, confidence, "alternating_bloom", note="; ".join(told)
        )
        return self.with_coverage(answer)


def _seen(sketch: RowFilter, values: Sequence[object], confidence: float) -> Answered:
    return [("came lately (1: yes, 0: no)", sketch.seen(*values, confidence=confidence))]


class FilterKind(SketchKind):
    name = "alternating_bloom"
    merges = False
    answers: ClassVar[Mapping[str, str]] = {"seen": ANSWER}
    questions = (
        SketchQuery(
            "seen", "VALUE ...: whether a row with these values arrived recently", _seen, typed="key"
        ),
    )

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.alternating_bloom import AlternatingBloom

        return (AlternatingBloom,)

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.alternating_bloom import AlternatingBloom, parameters_for

        rate = (spec.false_positive_pct or 1.0) / 100
        return AlternatingBloom(parameters_for(spec.within or 0, rate, spec.seed, spec.shards))

    def query_class(self) -> type[LoadedSketch]:
        return RowFilter

    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.column_keys import keys_of

        sketch.observe(keys_of(rows, spec.attributes, spec.types, spec.seed))
