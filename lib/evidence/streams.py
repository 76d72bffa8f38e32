"""Streams to measure with: noise as channels make it, and streams shaped like those of Table 4.1.

>>> import numpy as np
>>> rows = perturb(1000, np.random.default_rng(1))
>>> len(rows) < 1000, len(np.unique(rows)) < len(rows), bool((np.diff(rows) < 0).any())
(True, True, True)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def perturb(
    tuples: int,
    rng: np.random.Generator,
    *,
    removed: float = 0.05,
    doubled: float = 0.01,
    swapped: float = 0.02,
) -> Rows:
    """Which tuple arrives in each place: exactly these shares removed, doubled, and swapped with the next."""
    kept = np.ones(tuples, dtype=np.bool_)
    kept[rng.choice(tuples, round(removed * tuples), replace=False)] = False
    rows = np.flatnonzero(kept)
    times = np.ones(len(rows), dtype=np.int64)
    times[rng.choice(len(rows), round(doubled * len(rows)), replace=False)] = 2
    rows = np.repeat(rows, times)
    # even or odd places only, so that no tuple moves twice
    places = np.arange(int(rng.integers(2)), len(rows) - 1, 2)
    chosen = rng.choice(places, min(round(swapped * len(rows)), len(places)), replace=False)
    rows[chosen], rows[chosen + 1] = rows[chosen + 1], rows[chosen]
    return rows


def polled_stream(
    members: int,
    tuples: int,
    measures: int,
    seed: int,
    *,
    persistence: float = 0.98,
    name: str = "router",
) -> dict[str, npt.NDArray[Any]]:
    """Members polled in a fixed order, with measures that wander around a level of their own and burst.

    >>> stream = polled_stream(48, 96, 2, seed=7)
    >>> list(stream), stream["router"][0] == stream["router"][48]
    (['router', 'at', 'measure_1', 'measure_2'], True)
    """
    rng = np.random.default_rng(seed)
    rounds = -(-tuples // members)
    names = np.array([f"{name}-{k:04d}" for k in rng.permutation(members)], dtype=object)
    stream: dict[str, npt.NDArray[Any]] = {
        name: np.tile(names, rounds)[:tuples],
        "at": np.repeat(np.arange(rounds), members)[:tuples] * 60 + 1_700_000_000,
    }
    for k in range(measures):
        level = rng.gamma(4.0, 20.0, members)
        state = np.zeros(members)
        values = np.empty((rounds, members))
        for turn in range(rounds):
            state = persistence * state + rng.normal(0, 1, members)
            burst = np.where(rng.random(members) < 0.01, rng.gamma(2.0, 40.0, members), 0.0)
            values[turn] = np.round(level + 2 * state + burst, 1)
        stream[f"measure_{k + 1}"] = values.reshape(-1)[:tuples]
    return stream
