"""Choosing: a table's shape from memory and confidence; an estimator from the skew of the stream.

Shape. d = ceil(ln(1 / (1 - confidence))) rows, as many counters each as fit: CM answers are then over by at most
(e/w) N with that confidence.

Skew. The self-join size is the skew: N^2/F2 is the number of equally frequent keys that would give it ("effective
keys"). With at least as many of them as counters, every counter is disturbed alike and mean correction beats CM by far;
with very few, most counters hold no heavy key and CM is nearly exact. The text proposes to choose between the two by
it and stops; `estimator_by_skew` is that rule. F2 cannot tell how many counters no heavy key touches, though, so
`CountMin.point` asks the counters (`noise`) instead; the evidence shows what either choice loses to the better.

>>> shape = parameters_for_memory(64 * 1024)
>>> shape.width, shape.depth
(1638, 5)
"""

from __future__ import annotations

import math

from spillway.errors import Refused
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.intervals import check_confidence


def parameters_for_memory(
    memory_bytes: int, confidence: float = 0.99, depth: int | None = None, seed: int = 1
) -> CountMinParameters:
    """The widest table within `memory_bytes`; refused where not even two counters a row fit.

    >>> parameters_for_memory(4096, depth=2).width
    256
    """
    rows = depth or max(math.ceil(math.log(1.0 / (1.0 - check_confidence(confidence)))), 1)
    width = min(memory_bytes // (8 * rows), (1 << 31) - 1)
    if width < 2:
        rule = f"be at least {16 * rows} bytes for any table of {rows} rows"
        raise Refused("memory", rule, memory_bytes, "give it that much")
    return CountMinParameters(width, rows, seed)


def effective_keys(sketch: CountMin) -> float:
    """N^2/F2: how many equally frequent keys would give this self-join size; few of them is skew."""
    second_moment = sketch.self_join_size("cmm").estimate
    return float(sketch.total) ** 2 / second_moment if second_moment > 0 else 0.0


def estimator_by_skew(sketch: CountMin) -> str:
    """`cm` for skewed streams (and for conservative tables, which know no other), `cmm_median` otherwise."""
    if sketch.parameters.conservative or sketch.total <= 0:
        return "cm"
    return "cmm_median" if effective_keys(sketch) >= sketch.parameters.width else "cm"
