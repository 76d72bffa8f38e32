"""When adding more to what is shared stops paying (Fiscato 2012, 6.4).

The cost of a query is 1 / n; from a base of n_0 queries to n

    delta cost = 1 - n_0 / n        (6.3)        delta quality = 1 - quality_n / quality_0      (6.4)

and more pay as long as delta cost > delta quality (6.5, printed the other way round: D1).

>>> tipping_point({180: 0.9, 300: 0.6, 600: 0.3, 1200: 0.1})
600
"""

from __future__ import annotations

from collections.abc import Mapping


def trade_off(quality: Mapping[int, float]) -> dict[int, tuple[float, float]]:
    """By number of queries: how much cheaper a query is than with the fewest, and how much worse."""
    base = min(quality)
    return {
        n: (1.0 - base / n, 1.0 - quality[n] / quality[base] if quality[base] else 0.0)
        for n in sorted(quality)
    }


def tipping_point(quality: Mapping[int, float]) -> int:
    """The largest number of queries up to which every one more than the base pays (delta cost > delta quality)."""
    found = min(quality)
    for n, (cheaper, worse) in trade_off(quality).items():
        if n != found and cheaper < worse - 1e-12:
            break
        found = n
    return found
