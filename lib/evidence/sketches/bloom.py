"""Implement the plain Bloom filter: a stable Bloom filter with one-bit cells that never decrements (Max = 1, P = 0).

FP after n distinct keys: (1 - (1 - 1/m)^(K n))^K, least at K = ln 2 * m/n (2.1.1; the text's "section 2.3" is that
one, ERRATA E7). It never forgets, so it misses no duplicate and fills up on an unbounded stream. Unlike the stable
filter, two of them over one set of hashes merge: bitwise or.

>>> import numpy as np
>>> bloom = Bloom(BloomParameters(cells=1024, hashes=3))
>>> bloom.observe(np.array([4, 4], dtype=np.uint64)).tolist()
[False, True]
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from evidence.sketches.stable_bloom import StableBloom, StableBloomParameters
from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.payload_checks import checked_parameters
from spillway.sketches.types import Booleans, require_same

KIND = "bloom"


@dataclass(frozen=True)
class BloomParameters:
    """`cells` (m, a multiple of 64), `hashes` (K) and the hash seed."""

    cells: int
    hashes: int
    seed: int = 1

    @property
    def as_stable(self) -> StableBloomParameters:
        return StableBloomParameters(self.cells, 1, self.hashes, 0, self.seed)


def optimal_hashes(cells: int, keys: int) -> int:
    """Return K nearest ln 2 * m/n, at least 1.

    >>> optimal_hashes(10_000, 1_000)
    7
    """
    if keys < 1:
        raise InvalidValue("keys", "be at least 1", keys, "state how many distinct keys will come")
    return max(round(math.log(2) * cells / keys), 1)


def false_positive_rate(cells: int, hashes: int, keys: float) -> float:
    """Return the probability that a new key finds all of its cells set, after `keys` distinct keys."""
    return float((1.0 - math.exp(hashes * keys * math.log1p(-1.0 / cells))) ** hashes)


class Bloom:
    """A set membership filter without false negatives."""

    def __init__(self, parameters: BloomParameters) -> None:
        self.parameters = parameters
        self._filter = StableBloom(parameters.as_stable)

    def observe(self, keys: object) -> Booleans:
        """Add the elements; return True for each that was in the filter before, or seems to be."""
        return self._filter.observe(keys)

    def merge(self, other: Bloom) -> Bloom:
        """Return the filter of the union of both sets."""
        require_same(KIND, self.parameters, other.parameters)
        merged = Bloom(self.parameters)
        merged._filter.words = self._filter.words | other._filter.words
        merged._filter.elements = self._filter.elements + other._filter.elements
        return merged

    def to_bytes(self) -> bytes:
        arrays = {"words": self._filter.words, "elements": self._filter.elements}
        return binary.to_payload(KIND, asdict(self.parameters), {}, arrays)

    @classmethod
    def from_bytes(cls, payload: bytes) -> Bloom:
        header = binary.read_header(payload, KIND)
        sketch = cls(checked_parameters(BloomParameters, header.parameters))
        arrays = header.unpack(StableBloom.form(asdict(sketch.parameters.as_stable), {}))
        sketch._filter.words, sketch._filter.elements = arrays["words"], arrays["elements"]
        return sketch
