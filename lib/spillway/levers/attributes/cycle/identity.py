"""What identifies what: whether one attribute follows from another, and which attributes look like a sender's name.

K *determines* A when the value of A follows from that of K: the share of tuples that would have to go for it to hold
exactly is at most `EXCEPTIONS` (the measure g3 of Kivinen and Mannila 1995). An attribute that a sender's name
determines, and that does not determine it, is a property of the sender (its site, its type, which of two feeds it came
by) and identifies nobody, however regularly it comes round.

>>> import numpy as np
>>> key = np.random.default_rng(1).integers(0, 6, 600)
>>> determines(key, key % 2), determines(key % 2, key), round(change_share(key, key % 2), 1)
(True, False, 0.7)
>>> looks_like_a_key(key, quantity=True)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from spillway.levers.attributes.cycle.value_codes import Codes, joint_codes, rows_by_value

EXCEPTIONS = 0.01
SAMPLED_ROWS = 4_096
RECURRENCES = 1.2
"""A name is met at least so often on average; that the last quarter knows it says the rest."""
KNOWN_LATER = 0.9
"""Share of the last quarter's tuples whose name the first three quarters know."""
UNEVEN = 0.5
"""Senders report about equally often, the values of a quantity do not: standard deviation over mean of the counts."""


def undetermined_share(by: Codes, of: Codes) -> float:
    """g3: the least share of tuples without which `of` follows from `by`; tuples with a null in either count not."""
    usable = (by >= 0) & (of >= 0)
    n = int(usable.sum())
    if n == 0:
        return 1.0
    width = int(of.max()) + 1
    pairs, counts = np.unique(by[usable] * width + of[usable], return_counts=True)
    owner = pairs // width
    first = np.append(True, owner[1:] != owner[:-1])
    return float(1 - np.maximum.reduceat(counts, np.flatnonzero(first)).sum() / n)


def determines(by: Codes, of: Codes) -> bool:
    """Whether `of` follows from `by`, but for `EXCEPTIONS`; what a sample of tuples rules out is not counted out."""
    step = len(by) // SAMPLED_ROWS
    # a sample's g3 is below the whole's but for sqrt(EXCEPTIONS / SAMPLED_ROWS) = .0016
    if step > 1 and undetermined_share(by[::step], of[::step]) > 2 * EXCEPTIONS:
        return False
    return undetermined_share(by, of) <= EXCEPTIONS


def change_share(of: Codes, within: Codes) -> float:
    """How often `of` differs between one tuple of a value of `within` and the next."""
    usable = (of >= 0) & (within >= 0)
    by = rows_by_value(within[usable])
    owner, value = within[usable][by], of[usable][by]
    same = owner[1:] == owner[:-1]
    return float(np.mean(value[1:][same] != value[:-1][same])) if same.any() else 0.0


def looks_like_a_key(codes: Codes, *, quantity: bool) -> bool:
    """Whether the values come back as names do; a `quantity` (numbers) only where they come about equally often."""
    n, values = len(codes), int(codes.max(initial=-1)) + 1
    if values < 2 or n < RECURRENCES * values:
        return False
    cut = n - n // 4
    seen = np.zeros(values, dtype=np.bool_)
    seen[codes[:cut][codes[:cut] >= 0]] = True
    later = codes[cut:][codes[cut:] >= 0]
    if len(later) and np.mean(seen[later]) < KNOWN_LATER:
        return False
    return not quantity or comes_evenly(codes)


def comes_evenly(codes: Codes, groups: Codes | None = None) -> bool:
    """Whether the values come about equally often, or do so within each group (one group a value)."""
    counts = np.bincount(codes[codes >= 0]).astype(np.float64)
    if groups is not None:
        group = np.zeros(len(counts), dtype=np.int64)
        usable = (codes >= 0) & (groups >= 0)
        group[codes[usable]] = groups[usable]
        per_group = np.bincount(group, weights=counts) / np.maximum(np.bincount(group), 1)
        counts = counts / per_group[group]
    return bool(counts.std() <= UNEVEN * counts.mean())


def smallest_determining(codes: Sequence[Codes]) -> list[tuple[int, ...]]:
    """The smallest subsets (of at most ten) that determine all; of more than ten, one found by leaving out in turn.

    >>> site, sensor = np.array([0, 0, 1, 1] * 9), np.array([0, 1, 0, 1] * 9)
    >>> smallest_determining([site, sensor, 2 * site + sensor, np.zeros(36, dtype=np.int64)])
    [(2,)]
    """
    everyone = range(len(codes))

    def enough(chosen: Sequence[int]) -> bool:
        joint = joint_codes([codes[k] for k in chosen])
        return all(determines(joint, codes[k]) for k in everyone if k not in chosen)

    if len(codes) > 10:
        kept = list(everyone)
        for k in everyone:
            rest = [other for other in kept if other != k]
            if rest and enough(rest):
                kept = rest
        return [tuple(kept)]
    for size in range(1, len(codes) + 1):
        found = [chosen for chosen in combinations(everyone, size) if enough(chosen)]
        if found:
            return found
    return []
