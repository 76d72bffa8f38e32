"""Measure how often the cycle identifier is found on a stream with lost, repeated and swapped tuples.

>>> from evidence.streams import polled_stream
>>> hit_rate(polled_stream(12, 600, 1, seed=1), {"router": 96}, order="at", attributes=("router",), seeds=range(3))
HitRate(streams=3, found_pct=100.0, members_pct=100.0)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evidence.streams import perturb
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle


@dataclass(frozen=True)
class HitRate:
    """Over noisy streams: right attributes, and right attributes with the right members in order."""

    streams: int
    found_pct: float
    members_pct: float


def hit_rate(
    columns: Mapping[str, npt.NDArray[Any]],
    bits: Mapping[str, int],
    *,
    order: str,
    attributes: tuple[str, ...],
    seeds: Iterable[int] = range(100),
    tuples: int = 10_000,
) -> HitRate:
    """Find the cycle on the head of the stream under each seed's noise; compare it with that of the clean stream."""
    head = {name: column[:tuples] for name, column in columns.items()}
    n = len(head[order])
    clean = find_cycle(head, np.arange(n), bits, order=order)
    expected = [member.values for member in clean.members]
    tried = found = whole = 0
    for seed in seeds:
        tried += 1
        rows = perturb(n, np.random.default_rng(seed))
        noisy = {name: column[rows] for name, column in head.items()}
        try:
            cycle = find_cycle(noisy, np.arange(len(rows)), bits, order=order)
        except CycleNotFound:
            continue
        right = cycle.attributes == attributes
        found += right
        whole += right and [member.values for member in cycle.members] == expected
    return HitRate(tried, 100 * found / max(tried, 1), 100 * whole / max(tried, 1))
