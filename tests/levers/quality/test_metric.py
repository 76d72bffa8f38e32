"""Coverage: golden graphs, conservation whatever the graph, and who knows what was produced."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.levers.quality.checks import check_answer
from spillway.levers.quality.coverage import (
    OperatorNode,
    SequenceFates,
    SourceNode,
    SourceTally,
    WindowTally,
    propagate,
    sequence_fates,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
GRAPHS: list[dict[str, Any]] = json.loads((GOLDEN / "003_sic_graphs.json").read_text())["graphs"]


@pytest.mark.parametrize("graph", GRAPHS, ids=[graph["name"] for graph in GRAPHS])
def test_the_texts_graphs_carry_what_they_carry_there(graph: dict[str, Any]) -> None:
    found = propagate(
        [SourceNode(s["name"], s["edge"], s["tuples_in_set"], s.get("lost", 0)) for s in graph["sources"]],
        [OperatorNode(o["name"], tuple(o["in"]), o["out_tuples"]) for o in graph["operators"]],
        graph["result_edges"],
        normalised=bool(graph.get("normalised")),
    )
    expected = graph["expected"]
    assert found.at_results == Fraction(expected["total_at_results"])
    for name, told in expected["per_element"].items():
        assert found.elements[name].per_tuple == Fraction(told["sic_per_tuple"]), name
        if "sic_in_total" in told:
            assert found.elements[name].total == Fraction(told["sic_in_total"]), name


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[SourceNode], list[OperatorNode]]:
    """Any graph: every edge is read at most once, operators may put out nothing at all."""
    count = draw(st.integers(1, 4))
    sources = []
    for at in range(count):
        tuples = draw(st.integers(0, 50))
        sources.append(SourceNode(f"S{at}", f"s{at}", tuples, draw(st.integers(0, tuples))))
    free = [source.edge for source in sources]
    operators = []
    for at in range(draw(st.integers(0, 8))):
        read = draw(st.lists(st.sampled_from(free), min_size=1, max_size=3, unique=True))
        writes = {f"o{at}.{i}": draw(st.integers(0, 20)) for i in range(draw(st.integers(1, 3)))}
        operators.append(OperatorNode(f"o{at}", tuple(read), writes))
        free = [edge for edge in free if edge not in read] + list(writes)
    return sources, draw(st.permutations(operators))


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_what_left_the_sources_reaches_the_results(
    graph: tuple[list[SourceNode], list[OperatorNode]],
) -> None:
    sources, operators = graph
    left = sum(
        (Fraction(s.tuples - s.lost, s.tuples) if s.tuples else Fraction(1) for s in sources), Fraction(0)
    ) / len(sources)
    assert propagate(sources, operators).at_results == left
    assert float(propagate(sources, operators, exact=False).at_results) == pytest.approx(
        float(left), abs=1e-12
    )


def test_steps_that_wait_for_one_another_are_refused_by_name() -> None:
    loop = [OperatorNode("a", ("b1",), {"a1": 1}), OperatorNode("b", ("a1",), {"b1": 1})]
    with pytest.raises(InvalidValue, match=r"`operators` must not read one another in a circle, got 'a, b'"):
        propagate([SourceNode("S", "s", 1)], loop)


def test_a_window_in_which_nothing_was_produced_is_whole() -> None:
    assert WindowTally((SourceTally("a", 0, 0), SourceTally("b", 4, 1))).sic == 0.625
    assert WindowTally((SourceTally("a", 2, 1, relative=True),)).is_relative


def test_lost_late_and_never_produced_are_three_things() -> None:
    silent = sequence_fates(np.array([10, 11, 12]), before=9)
    assert silent == SequenceFates(produced=3, arrived=3)
    gap = sequence_fates(np.array([10, 13]), before=9, late=np.array([11]))
    assert gap == SequenceFates(produced=4, arrived=2, late=1, lost=1)


def test_a_gap_at_the_edge_counts_for_the_window_that_ends_it() -> None:
    assert sequence_fates(np.array([5, 6]), before=3).lost == 1
    assert sequence_fates(np.array([5, 6])).lost == 0


def test_disorder_is_no_gap_a_restart_is_no_gap_and_a_repeat_counts_once() -> None:
    assert sequence_fates(np.array([3, 1, 2, 4]), before=0).lost == 0
    assert sequence_fates(np.array([1001, 1002, 1, 2, 3]), before=1000).lost == 0
    assert sequence_fates(np.array([1, 2, 2, 3]), before=0) == SequenceFates(3, 3)


@given(st.integers(1, 60), st.sets(st.integers(0, 59)), st.sets(st.integers(0, 59)))
@settings(max_examples=60, deadline=None)
def test_what_was_produced_is_what_arrived_came_late_or_was_lost(
    count: int, gone: set[int], late: set[int]
) -> None:
    numbers = [n for n in range(count) if n not in gone]
    came_late = sorted(late & gone & set(range(max(numbers, default=0))))
    found = sequence_fates(np.array(numbers, np.int64), before=-1, late=np.array(came_late, np.int64))
    assert found.produced == found.arrived + found.late + found.lost
    assert (found.arrived, found.late) == (len(numbers), len(came_late))
    assert found.produced == (max(numbers) + 1 if numbers else 0)


def test_window_answered_before_its_query_had_an_estimate_lacks_no_reason() -> None:
    """Columns that an edited query adds are null in the rows of older windows; that is no withheld interval."""
    shares = {"row": [1, 2], "sic": [0.25, 0.25], "coverage": [0.5, 0.5], "n": [3, 4]}
    nothing = {f"n__{part}": pa.nulls(2, pa.float64()) for part in ("estimate", "low", "high")}
    reasons = {"n__no_interval": pa.nulls(2, pa.string())}
    assert check_answer(pa.table({**shares, **nothing, **reasons}))["withheld_unsaid"] == 0
    half = {**nothing, "n__estimate": pa.array([5.0, 6.0])}
    assert check_answer(pa.table({**shares, **half, **reasons}))["withheld_unsaid"] == 2
