"""Looking at even intervals: what Algorithm 2 has to be better than.

Chosen in hindsight: how often one would have had to look, had one known the stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spillway.errors import Refused

_Codes = np.ndarray[tuple[int], np.dtype[np.int64]]


def evenly(windows: int, evaluations: int) -> tuple[int, ...]:
    """The windows that `evaluations` evaluations at even intervals look at.

    >>> evenly(10, 3)
    (0, 3, 6)
    """
    return tuple(i * windows // evaluations for i in range(evaluations))


def fixed_interval_evaluations(fresh_schemes: Sequence[frozenset[str]], hits_pct: float) -> int:
    """The fewest evaluations at even intervals that reach `hits_pct` of hits.

    >>> a, b = frozenset("a"), frozenset("b")
    >>> fixed_interval_evaluations([a, a, a, b, b, b], 95)
    2
    """
    if not fresh_schemes:
        raise Refused("fresh_schemes", "hold at least one window", "none", "give it one")
    if not 0 <= hits_pct <= 100:
        raise Refused("hits_pct", "lie between 0 and 100", hits_pct, "write hits_pct: 95")
    codes = _codes(fresh_schemes)
    for evaluations in range(1, codes.size + 1):
        if _even_hits(codes, evaluations) * 100.0 >= hits_pct * codes.size:
            return evaluations
    return int(codes.size)


def _codes(schemes: Sequence[frozenset[str]]) -> _Codes:
    seen: dict[frozenset[str], int] = {}
    return np.array([seen.setdefault(scheme, len(seen)) for scheme in schemes], dtype=np.int64)


def _even_hits(codes: _Codes, evaluations: int) -> int:
    looked = np.arange(evaluations, dtype=np.int64) * codes.size // evaluations
    lengths = np.diff(np.append(looked, codes.size))
    return int(np.count_nonzero(np.repeat(codes[looked], lengths) == codes))
