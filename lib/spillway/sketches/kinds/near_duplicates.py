"""The kind `pair_count`: pairs of rows that agree in most attributes, or pairs of texts that agree in most min-hashes.

Two texts with Jaccard similarity J agree in one min-hash with probability J. So the number of the d min-hashes in which
they agree has a binomial distribution. For example, five or more of six agree for 66 % of the pairs with J = 0.8, and
for 11 % with J = 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import InvalidValue
from spillway.sketches.answers import Answer
from spillway.sketches.kinds.base import ANSWER, Answered, LoadedSketch, SketchKind, SketchQuery, numbers

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec


class NearDuplicates(LoadedSketch):
    """Queries about pairs of similar rows."""

    @property
    def rows(self) -> int:
        return int(self.sketch.records)

    def near_duplicate_pairs(self, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """Return the number of pairs of rows that agree in at least `at_least` attributes."""
        return self.with_coverage(self.sketch.pairs(_least_agreement(at_least), "unordered", confidence))

    def near_duplicates_per_row(self, at_least: int | None = None, confidence: float = 0.95) -> Answer:
        """Return the number of such pairs per row, a measure of the cleanliness of a table."""
        return self.with_coverage(self.sketch.per_row(_least_agreement(at_least), confidence))

    def near_duplicate_join(
        self, other: NearDuplicates, at_least: int | None = None, confidence: float = 0.95
    ) -> Answer:
        """Return the number of pairs of rows, one of each stream, that agree in at least `at_least` attributes.

        This is the size of the similarity join.
        """
        paired = self.matched_attributes(other)
        answer = self.sketch.join(other.sketch, _least_agreement(at_least), confidence)
        return self.answer_of_both(other, answer, "similarity join", paired)


def _least_agreement(at_least: object) -> int | None:
    from spillway.sketches.values import whole_number

    return None if at_least is None else whole_number("at_least", at_least, 1, "write e.g. 2")


def _least(question: str, sketch: NearDuplicates, words: Sequence[str]) -> int:
    told = numbers(question, words, 1)[0] if words else None
    return _least_agreement(told) or int(sketch.sketch.parameters.similarity)


def _join(sketch: NearDuplicates, other: NearDuplicates, words: Sequence[str], confidence: float) -> Answered:
    least = _least("similarity-join", sketch, words)
    told = f"pairs of rows of both that agree in at least {least} attributes"
    return [(told, sketch.near_duplicate_join(other, least, confidence))]


def _pairs(sketch: NearDuplicates, values: Sequence[str], confidence: float) -> Answered:
    least = _least("near-duplicates", sketch, values)
    return [
        (f"pairs that agree in at least {least} attributes", sketch.near_duplicate_pairs(least, confidence)),
        ("such pairs a row", sketch.near_duplicates_per_row(least, confidence)),
    ]


class NearDuplicateKind(SketchKind):
    name = "pair_count"
    answers: ClassVar[Mapping[str, str]] = {
        "near_duplicate_pairs": ANSWER,
        "near_duplicates_per_row": ANSWER,
        "near_duplicate_join": ANSWER,
    }
    of_two = frozenset({"near_duplicate_join"})
    questions = (
        SketchQuery(
            "near-duplicates",
            "[ATTRIBUTES]: number of pairs of rows that agree in this number of attributes",
            _pairs,
            takes=(0, 1),
        ),
        SketchQuery(
            "similarity-join",
            "STREAM SKETCH [ATTRIBUTES]: the same for pairs of rows of both streams, to plan such a join",
            _join,
            of_two=True,
            takes=(0, 1),
        ),
    )

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.pair_count import PairCount

        return (PairCount,)

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.pair_count import PairCount, PairCountParameters

        count, depth = spec.min_hashes or len(spec.attributes), spec.depth or 5
        if spec.min_hashes is not None and (spec.types != ("string",) or spec.min_hashes < 2):
            got = f"{spec.min_hashes} of {', '.join(spec.types)}"
            raise InvalidValue(
                "min_hashes", "be at least 2, of one text", got, "name one attribute that is a string"
            )
        similarity = spec.at_least or max(count - 1, 1)
        levels = count - similarity + 1
        width = spec.memory_kib * 1024 // (4 * depth * max(levels, 1))
        if levels >= 1 and width < 16:
            needed = math.ceil(64 * depth * levels / 1024)
            raise InvalidValue("memory_kib", f"be at least {needed}", spec.memory_kib, "give it that")
        return PairCount(
            PairCountParameters(
                count, similarity, spec.rate, spec.seed, side=spec.side, width=width, depth=depth
            )
        )

    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        import numpy as np

        from spillway.sketches.column_keys import keys_of

        if spec.min_hashes is not None:
            from spillway.sketches.min_hash import text_vectors

            vectors = text_vectors(rows[spec.attributes[0]], spec.min_hashes, spec.seed)
            sketch.update(vectors, np.asarray(rows["seq"]))
            return
        columns = [
            keys_of(rows, [name], [kind], spec.seed)
            for name, kind in zip(spec.attributes, spec.types, strict=True)
        ]
        sketch.update(np.column_stack(columns), np.asarray(rows["seq"]))

    def query_class(self) -> type[LoadedSketch]:
        return NearDuplicates
