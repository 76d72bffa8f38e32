"""The specification of a sketch in a contract, which creates an empty sketch with the right parameters.

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

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.binary import StoredSketch
from spillway.sketches.hashing import xxhash64_bytes
from spillway.sketches.kinds import kind_of
from spillway.sketches.kinds.base import SketchKind
from spillway.sketches.kinds.frequencies import BY_PURPOSE


@dataclass(frozen=True)
class SketchSpec:
    """One entry of a contract's `sketches`, with the types of its attributes.

    - `memory_kib`: 0 is the default of the kind.
    - `heavy_pct` (count_min): keys above this percentage of the rows are stored with their values, for top-k; None: no
      key is stored.
    - `at_least` (pair_count): the similarity; default: all attributes but one, or all but one of the `min_hashes` that
      represent a text.
    - `rate` (pair_count): the share of the subsets that are drawn. If it is below 1, `side` makes the draws of each
      stream independent.
    - `within` (alternating_bloom): the number of last rows that are all remembered.
    - `seed`: the hash seed of count_min, pair_count and alternating_bloom. `quantiles` does not hash. All `distinct`
      sketches use the same hash, so that any two of them can be merged.
    - `estimator` (count_min): the estimator of all frequencies; `by_purpose` selects it by the purpose of the query.
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
            raise InvalidValue(
                "attributes", "be named, each with a type", self.attributes, "name at least one"
            )
        if not self.kind_object.seeded:
            object.__setattr__(self, "seed", 1)
        if not self.memory_kib:
            object.__setattr__(self, "memory_kib", self.kind_object.default_kib)
        if not self.name:
            object.__setattr__(self, "name", "+".join(self.attributes))
        self.empty()

    @classmethod
    def from_contract(cls, entry: Any, types: Mapping[str, str], stream: str = "") -> SketchSpec:
        """Return the specification for a contract's section (or any object with its fields) and the types by name."""
        known = {field: getattr(entry, field) for field in cls.__dataclass_fields__ if hasattr(entry, field)}
        known["attributes"] = tuple(entry.attributes)
        known["memory_kib"] = known.get("memory_kib") or 0
        missing = [name for name in entry.attributes if name not in types]
        if missing:
            raise InvalidValue("attributes", f"be among {sorted(types)}", missing[0], "correct the contract")
        known["types"] = tuple(types[name] for name in entry.attributes)
        if known.get("rate", 1.0) < 1.0:
            # streams that are joined must draw independently, although their rows have the same sequence numbers
            known["side"] = xxhash64_bytes(stream.encode()) & 0xFFFFFFFF
        return cls(**known)

    @property
    def kind_object(self) -> SketchKind:
        """The kind object."""
        return kind_of(self.kind)

    @property
    def context(self) -> dict[str, Any]:
        """The description of the keys, which is stored in the payload: attributes, types, seed."""
        found = {"attributes": list(self.attributes), "types": list(self.types), "seed": self.seed}
        # only if stated, so that older sketches merge with new ones
        stated = self.kind == "count_min" and self.estimator != BY_PURPOSE
        return {**found, "estimator": self.estimator} if stated else found

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the sketch, for the column `parameters` of the table `sketches`."""
        return self.empty().shape

    @property
    def shape_text(self) -> str:
        """`parameters` as JSON text, as stored in the table."""
        return json.dumps(self.parameters, sort_keys=True)

    @property
    def heavy_share(self) -> float | None:
        """The least share of the rows from which a key is stored with its values; None if no key is."""
        counted = self.kind == "count_min" and self.heavy_pct is not None
        return float(self.heavy_pct or 0.0) / 100 if counted else None

    def empty(self) -> StoredSketch:
        """Return an empty sketch; raise `InvalidValue` if the memory is too small for the parameters."""
        sketch = self.kind_object.empty(self)
        sketch.context = self.context
        return sketch

    def row(
        self, stream: str, batch: int, batch_date: datetime.date, rows: int, payload: bytes,
        started_from: int | None = None, started_digest: str | None = None, counters: list[int] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Return a row of the table `sketches`."""
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
