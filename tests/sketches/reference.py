"""Slow and obvious versions of what the kernels do, for the tests to compare with."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from spillway.sketches.hashing import row_seeds

MASK = (1 << 64) - 1


def mix(key: int, seed: int) -> int:
    z = key ^ seed
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def columns(key: int, seed: int, depth: int, width: int) -> list[int]:
    return [((mix(key, int(s)) >> 32) * width) >> 32 for s in row_seeds(seed, depth)]


def count_min_table(
    pairs: Sequence[tuple[int, int]], width: int, depth: int, seed: int, conservative: bool = False
) -> list[list[int]]:
    table = [[0] * width for _ in range(depth)]
    for key, weight in pairs:
        where = columns(key, seed, depth, width)
        least = min(table[row][column] for row, column in enumerate(where))
        for row, column in enumerate(where):
            if conservative:
                table[row][column] = max(table[row][column], least + weight)
            else:
                table[row][column] += weight
    return table


def median(values: Sequence[Fraction]) -> Fraction:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def lru(keys: Sequence[int], capacity: int) -> list[bool]:
    held: OrderedDict[int, None] = OrderedDict()
    found = []
    for key in keys:
        found.append(key in held)
        held.pop(key, None)
        held[key] = None
        if len(held) > capacity:
            held.popitem(last=False)
    return found


def pairs_by_similarity(records: Sequence[Sequence[int]]) -> Counter[int]:
    """Unordered pairs of different records by how many attributes agree."""
    return Counter(
        sum(a == b for a, b in zip(left, right, strict=True)) for left, right in combinations(records, 2)
    )


def stable_bloom(cells: list[int], top: int, probed: Sequence[int], decremented: Sequence[int]) -> bool:
    duplicate = all(cells[cell] > 0 for cell in probed)
    for cell in decremented:
        cells[cell] = max(cells[cell] - 1, 0)
    for cell in probed:
        cells[cell] = top
    return duplicate
