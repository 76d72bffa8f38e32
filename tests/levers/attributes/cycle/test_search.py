"""The search looks at a stated number of combinations and no more, whatever the stream."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from spillway.levers.attributes.cycle import search as searching
from spillway.levers.attributes.cycle.identifier import CycleNotFound, find_cycle
from spillway.levers.attributes.cycle.search import MOST_COMBINATIONS, MOST_TESTED, Search
from spillway.levers.attributes.cycle.trace import Trace, trace_cycle


def without_a_cycle(attributes: int, rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {f"c{k}": rng.integers(0, int(rng.integers(2, 60)), rows) for k in range(attributes)}


def test_forty_attributes_without_a_cycle_are_given_up_after_a_stated_number_of_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: Counter[int] = Counter()
    traced: Counter[str] = Counter()
    glance = Search.seems_ordered

    def counted(self: Search, chosen: tuple[str, ...]) -> bool:
        looks[len(chosen)] += 1
        return glance(self, chosen)

    def trace(codes: np.ndarray, **how: object) -> Trace:
        traced["all"] += 1
        return trace_cycle(codes, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Search, "seems_ordered", counted)
    monkeypatch.setattr(searching, "trace_cycle", trace)
    with pytest.raises(CycleNotFound):
        find_cycle(without_a_cycle(40, 3000), np.arange(3000), {})
    assert looks[2] == 40 * 39 / 2
    assert looks[2] + looks[3] == MOST_COMBINATIONS
    assert traced["all"] <= 40 + MOST_TESTED + 1


def test_what_passes_every_glance_is_traced_a_stated_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: Counter[str] = Counter()

    def trace(codes: np.ndarray, **how: object) -> Trace:
        traced["all"] += 1
        return trace_cycle(codes, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(Search, "seems_ordered", lambda self, chosen: True)
    monkeypatch.setattr(searching, "trace_cycle", trace)
    with pytest.raises(CycleNotFound):
        find_cycle(without_a_cycle(40, 1000), np.arange(1000), {})
    assert traced["all"] <= 40 + MOST_TESTED + 1


def test_a_key_of_three_parts_is_found_among_thirty_attributes() -> None:
    """All pairs of thirty are looked at first; of the triples those whose values come evenly."""
    n = 6000
    k = np.arange(n) % 60
    rng = np.random.default_rng(2)
    flags = {f"f{i:02d}": rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1]) for i in range(27)}
    columns = {**flags, "hall": k // 15, "rack": k // 5 % 3, "unit": k % 5}
    assert set(find_cycle(columns, np.arange(n), {}).attributes) == {"hall", "rack", "unit"}
