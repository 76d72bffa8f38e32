"""Measure the speed of a core before a first window: compare a few rows and time it.

A budget in time that starts with a guess would be exceeded where comparisons are slow: sets of a thousand items take a
hundred times as long as single values.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from spillway.levers.joins.budget import allocate_budget
from spillway.levers.joins.controllers import STEPS_PER_CORE_SECOND
from spillway.levers.joins.directions import Direction, SideRows, build_direction
from spillway.levers.joins.estimates import Chains, equal_pairs, find_chained_pairs
from spillway.levers.joins.exploration import LearnedSide, Memory
from spillway.levers.joins.matching import PREDICATES, index_for, pairs_in_order, probe
from spillway.levers.joins.operands import ItemSets, Operand
from spillway.levers.joins.settings import Adaptation, Budget, JoinSettings, JoinSide, SetWords

TIMED_ROWS = 16
"""Number of rows of each side that are timed."""


def measure_core_speed(base: Sequence[Direction], settings: JoinSettings) -> float:
    """Return the steps per second of a core, measured on some of the given rows."""
    predicate, threshold = PREDICATES[settings.predicate], settings.threshold or 0.0
    steps, seconds = 0, 0.0
    for one in base:
        there = np.flatnonzero(one.how.high > one.how.low)
        some = np.zeros(one.probes.rows, bool)
        some[there[:: max(1, len(there) // TIMED_ROWS)]] = True
        how = replace(one.how, take=np.where(some, one.how.high - one.how.low, 0))
        index = index_for(one.probes.sets, one.window.sets, some) if one.indexed else None
        began = time.thread_time_ns()
        steps += probe(one.probes, one.window, how, predicate, threshold, index, one.probe_is_left).steps
        seconds += (time.thread_time_ns() - began) / 1e9
    return steps / seconds if steps and seconds > 0 else STEPS_PER_CORE_SECOND


@functools.cache
def warm_up_kernels() -> None:
    """Warm up the kernels once per process, so that measured time excludes compilation and loading time zones."""
    none = np.zeros(0, np.int64)
    empty = Operand(none, none, ItemSets(np.zeros(1, np.int64), none, np.zeros(0)), none)
    side = JoinSide(attribute="")
    for index, sets in ((True, None), (True, SetWords()), (False, None)):
        settings = JoinSettings(left=side, right=side, index=index, sets=sets)
        given = SideRows(empty, 0, 0)
        one = build_direction(given, given, settings, LearnedSide(), (1.0,), probe_is_left=True)
        assert (
            not one.with_looks(np.zeros(len(one.costs)), False, 0)
            .with_sample(0.5, 0)
            .comparisons_by_row.any()
        )
        probe(empty, empty, one.how, 0, 0.0, index_for(empty.sets, empty.sets) if index else None)
    pairs = replace(empty, sets=ItemSets(np.array([0, 2]), np.array([0, 1]), np.ones(2)))
    equal_pairs(pairs, pairs, (none, none))
    find_chained_pairs(empty, empty, one.how, Chains(none, none, none), none)
    pairs_in_order((none, none), (none, none))
    pairs_in_order((np.arange(2), np.array([1, 0])), (np.arange(2), np.array([0, 1])))
    ends, alike = np.arange(3), np.zeros(2, np.int64)
    some = SideRows(Operand(ends[:2], ends[:2], ItemSets(ends, alike, np.ones(2)), alike), 0, 2)
    seen = LearnedSide(np.ones(2), np.full(2, 10.0), 2.0)
    brief = JoinSide(attribute="", lasts_seconds=1)
    for index, rate in ((True, "counted"), (False, "followed")):
        settings = JoinSettings(
            left=brief, right=brief, index=index, sets=SetWords(), budget=Budget(comparisons_per_second=1.0),
            adapt=Adaptation(rate=rate),
        )  # fmt: skip
        allocate_budget(some, some, settings, Memory(left=seen, right=seen), (1.0,), 1.0)
    pa.array(np.arange(2)).cast(pa.timestamp("us", tz="UTC"))
