"""The kinds of sketches: the name of each in contracts, and its class.

A kind is a subclass of `kinds.base.SketchKind`. It defines the sketch of a contract's entry, how rows are added to it,
and its queries on the command line and in SQL. Reading, merging, queries and SQL functions are derived from this list.
To add a kind, add its module and a line here. The modules load no kernel until a sketch is created or queried.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from spillway.errors import InvalidValue

if TYPE_CHECKING:
    from spillway.sketches.kinds.base import SketchKind

MOST_KIB = 1 << 20
"""The maximum memory of a sketch in KiB."""
SKETCH_KINDS: dict[str, str] = {
    "count_min": "spillway.sketches.kinds.frequencies.FrequencyKind",
    "quantiles": "spillway.sketches.kinds.quantiles.QuantileKind",
    "distinct": "spillway.sketches.kinds.distinct.DistinctKind",
    "pair_count": "spillway.sketches.kinds.near_duplicates.NearDuplicateKind",
    "alternating_bloom": "spillway.sketches.kinds.stream_filters.FilterKind",
}


def kind_of(name: str) -> SketchKind:
    """Return the kind with this name.

    >>> kind_of("quantiles").name
    'quantiles'
    >>> kind_of("hyperloglog")  # doctest: +NORMALIZE_WHITESPACE
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `kind` must be one of count_min, quantiles, distinct, pair_count, alternating_bloom,
    got \
'hyperloglog'; correct the contract
    """
    if name not in SKETCH_KINDS:
        raise InvalidValue("kind", f"be one of {', '.join(SKETCH_KINDS)}", name, "correct the contract")
    module, _, kind = SKETCH_KINDS[name].rpartition(".")
    found: SketchKind = getattr(import_module(module), kind)()
    return found


def every_kind() -> Iterator[SketchKind]:
    """Return all kinds, in the order of the list."""
    return map(kind_of, SKETCH_KINDS)
