"""Choosing: a table's shape from memory, error and confidence; an estimator from the skew of the stream.

Shapes. CM: w = ceil(e / error), d = ceil(ln(1 / (1 - confidence))). CMM self-join (Theorem 6): Chebyshev with
Lemma 4's variance bound 2 F2^2/(w - 1) lets a row fail with probability 1/8 at w = 1 + 16/error^2, and enough rows
make the median fail less than 1 - confidence.

Skew. The self-join size is the skew: N^2/F2 is the number of equally frequent keys that would give it ("effective
keys"). With at least as many of them as counters, every counter is disturbed alike and mean correction beats CM by far;
with very few, most counters hold no heavy key and CM is nearly exact. The text proposes to choose between the two by
it and stops; `estimator_by_skew` is that rule. F2 cannot tell how many counters no heavy key touches, though, so
`CountMin.point` asks the counters (`noise`) instead; the evidence shows what either choice loses to the better.

>>> shape = parameters_for_error(0.001, 0.99)
>>> shape.width, shape.depth
(2719, 5)
"""

from __future__ import annotations

import math

import numpy as np

from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.intervals import check_confidence, rows_for_confidence
from spillway.sketches.types import refuse


def parameters_for_error(error_share: float, confidence: float, seed: int = 1) -> CountMinParameters:
    """The table whose CM point answers are over by at most `error_share` of N with `confidence`."""
    _check_error(error_share)
    width = max(math.ceil(math.e / error_share), 2)
    depth = max(math.ceil(math.log(1.0 / (1.0 - check_confidence(confidence)))), 1)
    return CountMinParameters(width, depth, seed)


def parameters_for_memory(
    memory_bytes: int,
    confidence: float = 0.99,
    error_share: float | None = None,
    depth: int | None = None,
    seed: int = 1,
) -> CountMinParameters:
    """The widest table within `memory_bytes`; when `error_share` cannot be had, says what it would take.

    >>> parameters_for_memory(64 * 1024).width
    1638
    """
    rows = depth or max(math.ceil(math.log(1.0 / (1.0 - check_confidence(confidence)))), 1)
    width = min(memory_bytes // (8 * rows), (1 << 31) - 1)
    needed = 8 * rows * 2
    if error_share is not None:
        needed = max(needed, 8 * rows * math.ceil(math.e / _check_error(error_share)))
    if memory_bytes < needed:
        wanted = f"an error of {error_share} of the rows" if error_share is not None else "any table"
        raise refuse(
            "memory",
            f"be at least {needed} bytes for {wanted} at {confidence}",
            memory_bytes,
            "give it that much",
        )
    return CountMinParameters(width, rows, seed)


def parameters_for_self_join(relative_error: float, confidence: float, seed: int = 1) -> CountMinParameters:
    """The table whose CMM self-join size is within `relative_error` with `confidence` (Theorem 6).

    >>> shape = parameters_for_self_join(0.1, 0.99)
    >>> shape.width, shape.depth
    (1601, 7)
    """
    width = 1 + math.ceil(round(16.0 / _check_error(relative_error) ** 2, 6))
    return CountMinParameters(width, rows_for_confidence(confidence, 1.0 / 8.0), seed)


def _check_error(error: float) -> float:
    if not 0.0 < error < 1.0:
        raise refuse("error", "lie between 0 and 1", error, "write 0.01 for 1 %")
    return error


def effective_keys(sketch: CountMin) -> float:
    """N^2/F2: how many equally frequent keys would give this self-join size; few of them is skew."""
    second_moment = sketch.self_join_size("cmm").estimate
    return float(sketch.total) ** 2 / second_moment if second_moment > 0 else 0.0


def estimator_by_skew(sketch: CountMin) -> str:
    """`cm` for skewed streams (and for conservative tables, which know no other), `cmm_median` otherwise."""
    if sketch.parameters.conservative or sketch.total <= 0:
        return "cm"
    return "cmm_median" if effective_keys(sketch) >= sketch.parameters.width else "cm"


def zipf_skew(self_join_size: float, total: float, keys: int) -> float:
    """The z at which f_i ~ i^-z over `keys` keys has this self-join size (4.1): F2/N^2 = H(2z)/H(z)^2.

    >>> ranks = np.arange(1, 1001) ** -1.1
    >>> round(zipf_skew(float((ranks**2).sum()), float(ranks.sum()), 1000), 3)
    1.1
    """
    if keys < 1 or total <= 0 or self_join_size <= 0:
        raise refuse(
            "stream", "not be empty to have a skew", (self_join_size, total, keys), "sketch some rows"
        )
    logs = np.log(np.arange(1, keys + 1, dtype=np.float64))
    share = self_join_size / total**2
    low, high = 0.0, 8.0
    for _ in range(60):
        z = (low + high) / 2
        if np.exp(-2 * z * logs).sum() / np.exp(-z * logs).sum() ** 2 < share:
            low = z
        else:
            high = z
    return (low + high) / 2
