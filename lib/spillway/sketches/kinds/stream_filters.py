"""`stable_bloom`: the filter of `duplicates.rows`; its cells depend on the stream's order, so it does not merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.sketches.kinds.base import Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec


class FilterKind(Kind):
    name = "stable_bloom"
    merges = False

    def forms(self) -> tuple[type[StoredSketch], ...]:
        from spillway.sketches.stable_bloom import StableBloom

        return (StableBloom,)

    def empty(self, spec: SketchSpec) -> StoredSketch:
        from spillway.sketches.stable_bloom import StableBloom, choose

        rate = (spec.false_positive_pct or 1.0) / 100
        return StableBloom(choose(8 * 1024 * spec.memory_kib, rate, seed=spec.seed, shards=spec.shards))

    def feed(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> None:
        from spillway.sketches.column_keys import keys_of

        sketch.observe(keys_of(rows, spec.attributes, spec.types, spec.seed))
