"""What a contract asks to be sketched, turned into an empty sketch of the right shape.

>>> spec = SketchSpec("count_min", ("origin", "dest"), ("string", "string"), memory_kib=40)
>>> spec.name, spec.parameters["width"]
('origin+dest', 1024)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from spillway.sketches import binary
from spillway.sketches.choosing import parameters_for_memory
from spillway.sketches.count_min import CountMin
from spillway.sketches.dyadic import Dyadic, DyadicParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.stable_bloom import StableBloom, choose
from spillway.sketches.types import refuse

Sketch = CountMin | HeavyHitters | Dyadic | PairCount | StableBloom
KINDS = ("count_min", "quantiles", "pair_count", "stable_bloom")
_ORDERED = ("integer", "double", "timestamp", "date", "boolean")
_READERS: dict[str, Any] = {
    "count_min": CountMin,
    "heavy_hitters": HeavyHitters,
    "quantiles": Dyadic,
    "pair_count": PairCount,
    "stable_bloom": StableBloom,
}


@dataclass(frozen=True)
class SketchSpec:
    """One entry of a contract's `sketches`, with the attributes' types.

    `heavy_pct` (count_min) keeps the keys above that share of the rows with their values, for top-k; null: none.
    `at_least` (pair_count) is the similarity, default all but one attribute; `rate` the share of subsets drawn.
    """

    kind: str
    attributes: tuple[str, ...]
    types: tuple[str, ...]
    name: str = ""
    memory_kib: int = 64
    depth: int | None = None
    seed: int = 1
    heavy_pct: float | None = 0.1
    false_positive_pct: float | None = None
    shards: int = 1
    at_least: int | None = None
    rate: float = 1.0
    bits: int = 32

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise refuse("kind", f"be one of {', '.join(KINDS)}", self.kind, "correct the contract")
        if not self.attributes or len(self.attributes) != len(self.types):
            raise refuse("attributes", "be named, each with a type", self.attributes, "name at least one")
        if self.kind == "quantiles" and (len(self.types) != 1 or self.types[0] not in _ORDERED):
            raise refuse("attributes", "be one ordered attribute for quantiles", self.types, "name a number")
        if not self.name:
            object.__setattr__(self, "name", "+".join(self.attributes))
        self.empty()

    @classmethod
    def from_contract(cls, entry: Any, types: Mapping[str, str]) -> SketchSpec:
        """From a contract's section (anything with its fields as attributes) and the stream's types by name."""
        known = {field: getattr(entry, field) for field in cls.__dataclass_fields__ if hasattr(entry, field)}
        known["attributes"] = tuple(entry.attributes)
        missing = [name for name in entry.attributes if name not in types]
        if missing:
            raise refuse("attributes", f"be among {sorted(types)}", missing[0], "correct the contract")
        known["types"] = tuple(types[name] for name in entry.attributes)
        return cls(**known)

    @property
    def context(self) -> dict[str, Any]:
        """What the keys are made of; travels inside the payload."""
        return {"attributes": list(self.attributes), "types": list(self.types), "seed": self.seed}

    @property
    def parameters(self) -> dict[str, Any]:
        """The shape of the sketch, for the table's `parameters` column."""
        sketch = self.empty()
        if isinstance(sketch, HeavyHitters):
            return {**asdict(sketch.counts.parameters), "share": sketch.share}
        return asdict(sketch.parameters)

    def empty(self) -> Sketch:
        """A sketch that has seen nothing; refused when the memory is too small for what is asked."""
        sketch = self._empty()
        sketch.context = self.context
        return sketch

    def _empty(self) -> Sketch:
        memory = self.memory_kib * 1024
        if self.kind == "count_min":
            # the hashes of Spark's own count_min_sketch, so that its tables and ours are the same
            parameters = replace(
                parameters_for_memory(memory, depth=self.depth), seed=self.seed & 0x7FFFFFFF, hashing="spark"
            )
            if self.heavy_pct is None:
                return CountMin(parameters)
            return HeavyHitters(parameters, self.heavy_pct / 100)
        if self.kind == "quantiles":
            return Dyadic(self._dyadic(memory))
        if self.kind == "stable_bloom":
            rate = (self.false_positive_pct or 1.0) / 100
            return StableBloom(choose(8 * memory, rate, seed=self.seed, shards=self.shards))
        count = len(self.attributes)
        similarity = self.at_least or max(count - 1, 1)
        depth = self.depth or 5
        levels = count - similarity + 1
        width = memory // (8 * depth * max(levels, 1))
        if levels >= 1 and width < 16:
            raise refuse(
                "memory_kib",
                f"be at least {math.ceil(128 * depth * levels / 1024)}",
                self.memory_kib,
                "give it that",
            )
        return PairCount(
            PairCountParameters(count, similarity, self.rate, self.seed, width=width, depth=depth)
        )

    def _dyadic(self, memory: int) -> DyadicParameters:
        depth = self.depth or 3
        # the wider the table, the fewer levels need one: widen while it fits
        best = None
        for width in (size for power in range(4, 28) for size in (1 << power, 3 << (power - 1))):
            parameters = DyadicParameters(width, depth, self.bits, self.seed)
            if parameters.memory_bytes <= memory:
                best = parameters
        if best is None:
            needed = math.ceil(DyadicParameters(16, depth, self.bits).memory_bytes / 1024)
            raise refuse("memory_kib", f"be at least {needed} for quantiles", self.memory_kib, "give it that")
        return best


def read_sketch(payload: bytes) -> Sketch:
    """A sketch of any kind from its bytes."""
    kind = binary.unpack(payload).kind
    if kind not in _READERS:
        raise refuse("kind", f"be one of {', '.join(_READERS)}", kind, "read it with its own class")
    sketch: Sketch = _READERS[kind].from_bytes(payload)
    return sketch
