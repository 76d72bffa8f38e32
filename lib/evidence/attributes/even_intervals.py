"""Looking at even intervals: what a controller has to be better than, at as many evaluations."""

from __future__ import annotations


def even_windows(windows: int, evaluations: int) -> tuple[int, ...]:
    """The windows that `evaluations` evaluations at even intervals look at.

    >>> even_windows(10, 3)
    (0, 3, 6)
    """
    return tuple(i * windows // evaluations for i in range(evaluations))
