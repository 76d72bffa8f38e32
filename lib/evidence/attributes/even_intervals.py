"""Evaluate at even intervals: the rule that a controller must beat with as many evaluations."""

from __future__ import annotations


def even_windows(windows: int, evaluations: int) -> tuple[int, ...]:
    """Return the windows that `evaluations` evaluations at even intervals examine.

    >>> even_windows(10, 3)
    (0, 3, 6)
    """
    return tuple(i * windows // evaluations for i in range(evaluations))
