"""Dividing work into pieces, as even as consecutive items allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spillway.engine.protocol import Item


def in_pieces(
    items: Sequence[Item], most: int, weight: Callable[[Item], float] = lambda _: 1.0
) -> list[tuple[Item, ...]]:
    """The items in their order, in at most `most` groups of about the same weight.

    >>> in_pieces([1, 2, 3, 4, 5], 2)
    [(1, 2), (3, 4, 5)]
    >>> in_pieces([9, 1, 1, 1], 2, weight=float)
    [(9,), (1, 1, 1)]
    >>> in_pieces([], 4)
    []
    """
    share = sum(map(weight, items)) / max(most, 1)
    groups: dict[int, list[Item]] = {}
    before = 0.0
    for item in items:
        # an item belongs where its middle lies
        middle = before + weight(item) / 2
        groups.setdefault(int(middle / share) if share else 0, []).append(item)
        before += weight(item)
    return [tuple(group) for _, group in sorted(groups.items())]
