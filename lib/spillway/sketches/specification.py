"""What a contract asks to be sketched, turned into an empty sketch of the right shape.

>>> spec = SketchSpec("count_min", ("origin", "dest"), ("string", "string"), memory_kib=40)
>>> spec.name, spec.parameters["width"]
('origin+dest', 1024)
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillway.errors import Refused
from spillway.sketches import binary
from spillway.sketches.binary import StoredSketch
from spillway.sketches.hashing import xxhash64_bytes
from spillway.sketches.kinds import kind_of
from spillway.sketches.kinds.base import Kind
from spillway.sketches.kinds.frequencies import BY_PURPOSE


@dataclass(frozen=True)
class SketchSpec:
    """One entry of a contract's `sketches`, with the attributes' types.

    `memory_kib` 0 is what the kind takes by itself. `heavy_pct` (count_min) keeps the keys above that share of the rows
    with their values, for top-k; null: none. `at_least` (pair_count) is the similarity, default all but one attribute,
    or all but one of the `min_hashes` that stand for a text; `rate` the share of subsets drawn, by draws that are the
    stream's own (`side`) where it is below 1. `within`
    (alternating_bloom) is how many rows back nothing is forgotten. `seed` is that of count_min and pair_count:
    quantiles hash nothing, and all `distinct` hash alike, so that any two of them unite. `estimator` (count_min)
    answers every frequency; `by_purpose` selects it by the purpose of the question.
    """

    kind: str
    attributes: tuple[str, ...]
    types: tuple[str, ...]
    name: str = ""
    memory_kib: int = 0
    depth: int | None = None
    seed: int = 1
    heavy_pct: float | None = 0.1
    within: int | None = None
    false_positive_pct: float | None = None
    shards: int = 1
    at_least: int | None = None
    min_hashes: int | None = None
    rate: float = 1.0
    side: int = 0
    estimator: str = BY_PURPOSE

    def __post_init__(self) -> None:
        if not self.attributes or len(self.attributes) != len(self.types):
            raise Refused("attributes", "be named, each with a type", self.attributes, "name at least one")
        if not self.made_of.seeded:
            object.__setattr__(self, "seed", 1)
        if not self.memory_kib:
            object.__setattr__(self, "memory_kib", self.made_of.default_kib)
        if not self.name:
            object.__setattr__(self, "name", "+".join(self.attributes))
        self.empty()

    @classmethod
    def from_contract(cls, entry: Any, types: Mapping[str, str], stream: str = "") -> SketchSpec:
        """From a contract's section (anything with its fields as attributes) and the stream's types by name."""
        known = {field: getattr(entry, field) for field in cls.__dataclass_fields__ if hasattr(entry, field)}
        known["attributes"] = tuple(entry.attributes)
        known["memory_kib"] = known.get("memory_kib") or 0
        missing = [name for name in entry.attributes if name not in types]
        if missing:
            raise Refused("attributes", f"be among {sorted(types)}", missing[0], "correct the contract")
        known["types"] = tuple(types[name] for name in entry.attributes)
        if known.get("rate", 1.0) < 1.0:
            # two streams that are joined must draw apart, though their rows have the same numbers
            known["side"] = xxhash64_bytes(stream.encode()) & 0xFFFFFFFF
        return cls(**known)

    @property
    def made_of(self) -> Kind:
        """The kind itself."""
        return kind_of(self.kind)

    @property
    def context(self) -> dict[str, Any]:
        """What the keys are made of; travels inside the payload."""
        found = {"attributes": list(self.attributes), "types": list(self.types), "seed": self.seed}
        # only if stated: older sketches then merge with new ones
        stated = self.kind == "count_min" and self.estimator != BY_PURPOSE
        return {**found, "estimator": self.estimator} if stated else found

    @property
    def parameters(self) -> dict[str, Any]:
        """The shape of the sketch, for the table's `parameters` column."""
        return self.empty().shape

    @property
    def shape_text(self) -> str:
        """`parameters` as the table has them."""
        return json.dumps(self.parameters, sort_keys=True)

    @property
    def heavy_share(self) -> float | None:
        """The share of the rows from which a key is kept by value; None where none is."""
        counted = self.kind == "count_min" and self.heavy_pct is not None
        return float(self.heavy_pct or 0.0) / 100 if counted else None

    def empty(self) -> StoredSketch:
        """A sketch that has seen nothing; refused when the memory is too small for what is asked."""
        sketch = self.made_of.empty(self)
        sketch.context = self.context
        return sketch

    def row(
        self, stream: str, batch: int, batch_date: datetime.date, rows: int, payload: bytes,
        started_from: int | None = None, started_digest: str | None = None, counters: list[int] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """A row of the table `sketches`."""
        return {
            "stream": stream,
            "kind": self.kind,
            "name": self.name,
            "attributes": list(self.attributes),
            "batch": batch,
            "batch_date": batch_date,
            "parameters": self.shape_text,
            "seed": self.seed,
            "format_version": binary.FORMAT_VERSION,
            "rows": rows,
            "started_from": started_from,
            "started_digest": started_digest,
            "digest": binary.digest(payload),
            "payload": payload,
            "counters": counters,
        }
