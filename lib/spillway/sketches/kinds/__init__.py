"""The kinds of sketches there are: a name in contracts, and the class that is the kind.

A kind is a class of `kinds.base.Kind`: which sketch a contract's entry becomes, how rows feed it, what it can be
asked, on the command line and in SQL. Readers, merging, questions and functions derive from this one list: adding a
kind is adding its module and its line here. The modules load no kernel until a sketch is made or asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from spillway.errors import Refused

if TYPE_CHECKING:
    from spillway.sketches.kinds.base import Kind

MOST_KIB = 1 << 20
"""The most memory that may be asked for."""
SKETCH_KINDS: dict[str, str] = {
    "count_min": "spillway.sketches.kinds.frequencies.FrequencyKind",
    "quantiles": "spillway.sketches.kinds.quantiles.QuantileKind",
    "distinct": "spillway.sketches.kinds.distinct.DistinctKind",
    "pair_count": "spillway.sketches.kinds.near_duplicates.NearDuplicateKind",
    "alternating_bloom": "spillway.sketches.kinds.stream_filters.FilterKind",
}


def kind_of(name: str) -> Kind:
    """The kind of this name.

    >>> kind_of("quantiles").name
    'quantiles'
    >>> kind_of("hyperloglog")
    Traceback (most recent call last):
        ...
    spillway.errors.Refused: `kind` must be one of count_min, quantiles, distinct, pair_count, alternating_bloom, got \
'hyperloglog'; correct the contract
    """
    if name not in SKETCH_KINDS:
        raise Refused("kind", f"be one of {', '.join(SKETCH_KINDS)}", name, "correct the contract")
    module, _, kind = SKETCH_KINDS[name].rpartition(".")
    found: Kind = getattr(import_module(module), kind)()
    return found


def every_kind() -> Iterator[Kind]:
    """All kinds, in the order of the list."""
    return map(kind_of, SKETCH_KINDS)
