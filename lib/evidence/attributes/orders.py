"""Orders of shedding that need no ranking: random, the largest first, a fixed list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from spillway.levers.attributes.ranking.rank import RankedAttribute


def random_order(order: Sequence[str], seed: int) -> tuple[RankedAttribute, ...]:
    """Shed in a random order, drawn from `seed`."""
    shuffled = np.random.default_rng(seed).permutation(len(order))
    return tuple(RankedAttribute(order[int(i)], float(place)) for place, i in enumerate(shuffled))


def largest_first(order: Sequence[str], widths: Mapping[str, float]) -> tuple[RankedAttribute, ...]:
    """Shed the widest attribute first, ties by contract order.

    >>> [str(ranked) for ranked in largest_first(["a", "b"], {"a": 8, "b": 64})]
    ['b (-64)', 'a (-8)']
    """
    return _ascending(order, [-float(widths[a]) for a in order])


def fixed_list(order: Sequence[str], listed: Sequence[str]) -> tuple[RankedAttribute, ...]:
    """Shed in the order of a list; attributes that it lacks come last, in contract order."""
    places = {attribute: place for place, attribute in enumerate(listed)}
    return _ascending(order, [float(places.get(a, len(listed))) for a in order])


def _ascending(order: Sequence[str], scores: Sequence[float]) -> tuple[RankedAttribute, ...]:
    ranked = [RankedAttribute(attribute, value) for attribute, value in zip(order, scores, strict=True)]
    return tuple(sorted(ranked, key=lambda one: one.score))
