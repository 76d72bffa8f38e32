"""Streams for the joins' tests, and the join done the slow obvious way. Not a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spillway.levers.joins.operands import ItemSets, Operand

SECOND = 1_000_000


@dataclass(frozen=True)
class Row:
    """A row as people see it."""

    at: float
    """Seconds."""
    items: dict[int, float]
    kind: int = 0


def operand(rows: Sequence[Row], first_seq: int = 0) -> Operand:
    """Rows, in the order of time, as kernels read them."""
    ordered = sorted(range(len(rows)), key=lambda i: (rows[i].at, i))
    sets = [sorted(rows[i].items.items()) for i in ordered]
    first = np.concatenate([[0], np.cumsum([len(one) for one in sets])]).astype(np.int64)
    return Operand(
        np.array([round(rows[i].at * SECOND) for i in ordered], np.int64),
        np.array([first_seq + i for i in ordered], np.int64),
        ItemSets(
            first,
            np.array([item for one in sets for item, _ in one], np.int64),
            np.array([weight for one in sets for _, weight in one], np.float64),
        ),
        np.array([rows[i].kind for i in ordered], np.int64),
    )


def is_pair(left: Row, right: Row, predicate: str, threshold: float) -> bool:
    """The predicate, in the words of sets."""
    a, b = set(left.items), set(right.items)
    if not a or not b:
        return False
    if predicate == "equality":
        return a == b
    if predicate == "subset":
        return a <= b
    if predicate == "superset":
        return a >= b
    if predicate == "overlap":
        return len(a & b) >= threshold
    return sum(left.items[i] * right.items[i] for i in sorted(a & b)) >= threshold


def full_join(
    left: Sequence[Row],
    right: Sequence[Row],
    left_lasts: float,
    right_lasts: float,
    predicate: str,
    threshold: float,
    begin: float = -1e9,
    end: float = 1e9,
) -> set[tuple[int, int]]:
    """All pairs (left, right) by their places, the later of the two in [begin, end)."""
    found = set()
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            apart = round(one.at * SECOND) - round(other.at * SECOND)
            near = apart <= right_lasts * SECOND if apart > 0 else -apart <= left_lasts * SECOND
            later = max(one.at, other.at)
            if near and begin <= later < end and is_pair(one, other, predicate, threshold):
                found.add((i, j))
    return found
