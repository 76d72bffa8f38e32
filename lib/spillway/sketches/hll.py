"""Distinct counts: HyperLogLog (HLL) of Apache DataSketches, which Spark's `hll_sketch_*` functions read as well.

A sketch has 2^lg_k registers of one byte (Flajolet et al. 2007, Heule et al. 2013). The standard error is 0.83 to
1.04 / sqrt(2^lg_k). DataSketches has bounds at one, two and three standard errors. An interval uses the least of these
that reaches the requested confidence.

This module uses the DataSketches library itself. Keys of one text or integer are added as Spark's functions add them,
so that both sketches can be merged. Other keys are added by their hash (`column_keys`).

>>> Hll(lg_k=12).update([3, 1, 3]).count().estimate.__round__()
2
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import datasketches

from spillway.errors import InvalidValue
from spillway.sketches.answers import Answer
from spillway.sketches.binary import LibrarySketch
from spillway.sketches.intervals import check_confidence
from spillway.sketches.payload_checks import REBUILD, refuse_malformed

LEAST_LG_K, MOST_LG_K = 4, 21


class Hll(LibrarySketch):
    """A HyperLogLog sketch: each register stores the longest run of zero bits in its hashes."""

    kind = "distinct"
    family = 7

    def __init__(self, lg_k: int) -> None:
        if not LEAST_LG_K <= lg_k <= MOST_LG_K:
            raise InvalidValue(
                "lg_k", f"lie from {LEAST_LG_K} to {MOST_LG_K}", lg_k, "give it more memory or less"
            )
        self.lg_k = lg_k
        self._held: Any = datasketches.hll_sketch(lg_k, datasketches.HLL_8)

    def update(self, keys: Iterable[Any]) -> Hll:
        """Add keys: numbers or texts, each as Spark's function adds it."""
        add = self._held.update
        for key in keys:
            add(key)
        return self

    def merge(self, other: Hll) -> Hll:
        """Return the sketch of both streams together, with the precision of the coarser one."""
        lg_k = min(self.lg_k, other.lg_k)
        union = datasketches.hll_union(lg_k)
        for one in (self, other):
            union.update(one._held)
        found = Hll(lg_k)
        found.context = self.shared_context(other)
        found._held = union.get_result(datasketches.HLL_8)
        return found

    def count(self, confidence: float = 0.95) -> Answer:
        """Return the number of distinct keys."""
        wanted = check_confidence(confidence)
        deviations = next((n for n in (1, 2, 3) if math.erf(n / math.sqrt(2)) >= wanted), None)
        if deviations is None:
            rule = "be at most 0.997, three standard errors, for a count of keys"
            raise InvalidValue("confidence", rule, confidence, "ask for less, or count the keys exactly")
        held = self._held
        low, high = held.get_lower_bound(deviations), held.get_upper_bound(deviations)
        return Answer(held.get_estimate(), low, high, confidence, "hll")

    @property
    def shape(self) -> dict[str, Any]:
        return {"lg_k": self.lg_k, "types": list(self.context.get("types", ()))}

    def to_bytes(self) -> bytes:
        found: bytes = self._held.serialize_compact()
        return found

    @classmethod
    def from_native(cls, payload: bytes, types: Sequence[str] = ()) -> Hll:
        if len(payload) < 8 or payload[2] != cls.family or not LEAST_LG_K <= payload[3] <= MOST_LG_K:
            raise InvalidValue("payload", "begin as an HLL sketch does", payload[:8].hex(), REBUILD)
        found = cls(payload[3])
        with refuse_malformed():
            try:
                held = datasketches.hll_sketch.deserialize(payload)
            except RuntimeError as problem:
                # the exception type of the library
                raise ValueError(str(problem)) from problem
            if held.lg_config_k != found.lg_k or not held.get_estimate() >= 0.0:
                raise ValueError(f"lg_k {held.lg_config_k}, estimate {held.get_estimate()}")
        found._held = held
        return found
