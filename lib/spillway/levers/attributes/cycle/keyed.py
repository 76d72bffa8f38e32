"""The cycle among declared keys: what the contract calls a key is looked at first, and nothing else where it repeats.

The declared keys say who a tuple is of, so a cycle is only taken as identifier where it determines every one of them:

1. the keys alone: if their joint values run through one cycle, the smallest subset that determines them all is the
   CID (fewest attributes, then least bits, then first in the contract); constant keys identify nothing;
2. the keys and one or two further attributes (a sensor under a declared site), where the keys alone do not repeat.
   What only tells the time joins nothing: a clock, or what follows from an order attribute that comes back. Of the sets
   that make a cycle the smallest wins, whatever the confidence of a larger one;
3. the keys alone, where they repeat strictly but a value comes twice in a cycle (a,b,a,c);
4. otherwise None: the stream is identified *by keys*, without a cycle.

At most `MOST_JOINERS` attributes are tried as further ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy.typing as npt

from spillway.levers.attributes.cycle.coded import Set
from spillway.levers.attributes.cycle.identity import determines, smallest_determining
from spillway.levers.attributes.cycle.search import Candidate, Search

MOST_JOINERS = 24

_Columns = Mapping[str, npt.NDArray[Any]]


def search_keys(
    columns: _Columns,
    names: Sequence[str],
    keys: Sequence[str],
    bits: Mapping[str, int],
    instants: npt.NDArray[Any] | None,
    confidence: float,
) -> tuple[Candidate | None, Search]:
    """The candidate that the keys lead to, and the search that knows its codes; None: by keys."""
    alone = Search(columns, keys, bits, instants, confidence=confidence)
    varying = [key for key in keys if int(alone.codes[key].max(initial=-1)) > 0]
    if not varying:
        return None, alone
    found = _smallest(alone, alone.test(varying))
    if found is not None:
        return found, alone
    wide = Search(columns, names, bits, instants, confidence=confidence)
    found = _joined(wide, varying)
    if found is not None:
        return found, wide
    twice = alone.not_unique()
    if twice is not None and all(
        determines(alone.joint(twice.attributes), alone.codes[key]) for key in varying
    ):
        return twice, alone
    return None, alone


def _smallest(search: Search, whole: Candidate) -> Candidate | None:
    """The smallest of the sets that determine the whole and run through its cycle."""
    if not whole.accepted:
        return None
    names = whole.attributes
    options = [
        search.test([names[k] for k in chosen])
        for chosen in smallest_determining([search.codes[name] for name in names])
    ]
    return min((one for one in options if one.accepted), key=search.preference, default=whole)


def _joined(search: Search, keys: Sequence[str]) -> Candidate | None:
    key = search.joint(tuple(keys))
    joiners = [
        name
        for name in search.names
        if name not in keys
        and search.may_repeat(name)
        and not search.tells_time(name)
        # what follows from the keys divides no key's tuples
        and not determines(key, search.codes[name])
    ]
    joiners.sort(key=lambda name: search.distinct(name))
    for size in (1, 2):
        found = []
        for further in combinations(joiners[:MOST_JOINERS], size):
            chosen: Set = (*keys, *further)
            if search.seems_ordered(chosen):
                smallest = _smallest(search, search.test(chosen))
                found += [] if smallest is None else [smallest]
        if found:
            return min(found, key=lambda one: (len(one.attributes), *search.preference(one)))
    return None
