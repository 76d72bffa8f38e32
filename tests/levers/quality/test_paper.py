"""`method: paper`: the rules of Fiscato 2012, exact, and reached from a contract."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.quality.test_room_plan import BEGIN, window_at
from tests.levers.quality.worlds import query

from spillway.contracts import read_workload
from spillway.errors import InvalidValue
from spillway.levers.protocol import CapacityGroup
from spillway.levers.quality.admission import Batches, Entitlements, admit_by_policy
from spillway.levers.quality.overload import RoomHistory, TupleCost, history_of
from spillway.levers.quality.room_plan import RoomRules, plan_room, room_rules
from spillway.levers.windows import Portion, WindowWork


def algorithm_1_by_the_line(
    buffer: list[tuple[int, Fraction, int]], reached: list[Fraction], keep: int
) -> set[int]:
    """Algorithm 1 in exact fractions: `buffer` holds (query, SIC, tuples); returns the places that are admitted."""
    of_query: dict[int, list[int]] = {}
    for place, (query_, _, _) in enumerate(buffer):
        of_query.setdefault(query_, []).append(place)
    for batches in of_query.values():
        batches.sort(key=lambda place: (-buffer[place][1], place))
    q_sic, kept, admitted = list(reached), 0, set()
    while kept < keep and any(of_query.values()):
        lowest = min((q for q in of_query if of_query[q]), key=lambda q: (q_sic[q], q))
        best = of_query[lowest].pop(0)
        admitted.add(best)
        q_sic[lowest] += buffer[best][1]
        kept += buffer[best][2]
    return admitted


@st.composite
def buffers(draw: st.DrawFn) -> tuple[list[tuple[int, Fraction, int]], list[Fraction], int]:
    """Batches whose SIC are binary fractions, so that floats hold them exactly."""
    queries = draw(st.integers(1, 5))
    of = st.tuples(
        st.integers(0, queries - 1), st.integers(1, 16).map(lambda n: Fraction(n, 16)), st.integers(1, 40)
    )
    buffer = draw(st.lists(of, min_size=1, max_size=30))
    reached = draw(
        st.lists(st.integers(0, 8).map(lambda n: Fraction(n, 8)), min_size=queries, max_size=queries)
    )
    return buffer, reached, draw(st.integers(1, 600))


@given(buffers())
@settings(max_examples=300, deadline=None)
def test_algorithm_1_is_the_papers(load: tuple[list[tuple[int, Fraction, int]], list[Fraction], int]) -> None:
    buffer, reached, keep = load
    query_, sic, tuples = (np.array([float(one[at]) for one in buffer]) for at in range(3))
    to = Entitlements.equal(len(reached), np.array([float(one) for one in reached]))
    found = admit_by_policy("algorithm_1", Batches(query_.astype(np.int64), sic, tuples), to, float(keep))
    assert set(np.flatnonzero(found).tolist()) == algorithm_1_by_the_line(buffer, reached, keep)


@pytest.mark.parametrize(
    ("sizes", "keep", "fair", "paper"),
    [
        # the second query's batch passes the 30 tuples: under our rule it has nothing, under the paper's 1/4
        ([25, 25, 25, 25, 40, 40, 40, 40], 30, [1 / 4, 0], [1 / 4, 1 / 4]),
        ([10, 10, 10, 10, 30, 30, 30, 30], 65, [3 / 4, 1 / 4], [1 / 2, 1 / 2]),
        # what fits exactly ends both
        ([10, 10, 10, 10, 20, 20, 20, 20], 60, [1 / 2, 1 / 2], [1 / 2, 1 / 2]),
    ],
)
def test_last_batch_may_pass_the_capacity_by_the_papers_rule_alone(
    sizes: list[float], keep: float, fair: list[float], paper: list[float]
) -> None:
    batches = Batches(np.repeat([0, 1], 4), np.full(8, 0.25), np.array(sizes, np.float64))
    for policy, level in (("fair", fair), ("algorithm_1", paper)):
        kept = admit_by_policy(policy, batches, Entitlements.equal(2), keep)
        assert np.bincount(batches.query[kept], batches.sic[kept], 2).tolist() == level


def group(*contracts: Any) -> RoomRules:
    queries = {one.subject: one for one in contracts}
    room = SimpleNamespace(name="desk", contracts=SimpleNamespace(queries=queries), failed=frozenset())
    found: CapacityGroup = room  # type: ignore[assignment]
    return room_rules(found)


def test_preset_selects_what_the_paper_describes_and_explicit_settings_override_it() -> None:
    paper = read_workload(query("q", "SELECT 1", method="paper", capacity={"seconds": 0.25}))
    rules = group(paper)
    assert (rules.policy, rules.cost_model) == ("algorithm_1", "mean")
    assert rules.queries["q"].starve_slices == 0
    own = group(read_workload(query("q", "SELECT 1", method="paper", policy="fair", starve_slices=3)))
    assert (own.policy, own.cost_model, own.queries["q"].starve_slices) == ("fair", "mean", 3)
    plain = group(read_workload(query("q", "SELECT 1")))
    assert (plain.policy, plain.cost_model, plain.queries["q"].starve_slices) == ("fair", "affine", 8)
    with pytest.raises(InvalidValue, match="be one for all queries of a capacity group"):
        group(paper, read_workload(query("other", "SELECT 1")))


@pytest.mark.parametrize(("more", "kept"), [({}, 4167), ({"policy": "fair"}, 4166)])
def test_figure_5_2_through_a_plan(more: dict[str, Any], kept: int) -> None:
    """5,000 tuples took 300 ms: an interval of 250 ms keeps N_keep = 4,166.7; the last batch of one tuple may pass."""
    contract = read_workload(query("q", "SELECT 1", method="paper", capacity={"seconds": 0.25}, **more))
    history = RoomHistory()
    history.mean_cost = TupleCost().after(0.3, 5000)
    portions = {0: tuple(Portion("sites", 1, at, at, 1, 1, 1.0) for at in range(10_000))}
    work = WindowWork(contract, {}, (window_at("q", 0, ("sites",), ()),), portions=portions)
    found = plan_room(SimpleNamespace(name="desk"), [work], group(contract), history)  # type: ignore[arg-type]
    assert len(found["q", 0].kept) == kept


def coverage_rows(*rows: tuple[str, int, float, int, float]) -> pa.Table:
    """Rows of `coverage`: subject, window (an hour each), sic, tuples kept, seconds; 100 tuples arrived."""
    named = []
    for subject, window, sic, kept, seconds in rows:
        begin = BEGIN + timedelta(hours=window)
        named.append(
            {
                "subject": subject,
                "window": window,
                "from_time": begin,
                "sic": sic,
                "tuples_kept": kept,
                "cost": float(kept),
                "cost_offered": 100.0,
                "seconds": seconds,
                "arrived_first": 90,
            }
        )
    return pa.Table.from_pylist(named).cast(
        pa.schema(
            [
                ("subject", pa.string()),
                ("window", pa.int64()),
                ("from_time", pa.timestamp("us", "UTC")),
                ("sic", pa.float64()),
                ("tuples_kept", pa.int64()),
                ("cost", pa.float64()),
                ("cost_offered", pa.float64()),
                ("seconds", pa.float64()),
                ("arrived_first", pa.int64()),
            ]
        )
    )


HOUR = 3_600_000_000
FIRST = (BEGIN - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(hours=1)


def test_papers_cost_of_a_tuple_is_of_all_queries_together_slice_by_slice() -> None:
    rows = coverage_rows(("a", 1, 1.0, 40, 0.2), ("b", 1, 1.0, 60, 0.8), ("a", 2, 1.0, 100, 3.0))
    assert history_of(rows, {}, HOUR).mean_cost.seconds == (0.01, 0.03)


def test_history_is_by_slice_and_leaves_out_what_is_worked_out_again() -> None:
    rows = coverage_rows(
        ("b", 3, 0.5, 50, 0.1), ("a", 2, 0.2, 20, 0.3), ("a", 1, 1.0, 100, 0.5), ("a", 3, 0.0, 0, 0.0)
    )
    found = history_of(rows, {"a": {2}}, HOUR)
    assert {name: dict(of) for name, of in found.offered.items()} == {
        "a": {FIRST + 1: 100.0, FIRST + 3: 100.0},
        "b": {FIRST + 3: 100.0},
    }
    assert found.coverage_by_slice("a", FIRST + 4, 4) == [1.0, 0.0]
    assert (found.kept, found.arrived_first) == ({("a", 2): 20}, {("a", 2): 90})
    measured = found.measured["a"]
    assert (measured.tuples.tolist(), measured.seconds.tolist()) == ([100, 20], [0.5, 0.3])
    assert measured.age.tolist() == [2, 1], "also of what is worked out again: what it took was measured"


def test_history_is_cut_to_what_a_plan_looks_at() -> None:
    rows = coverage_rows(*(("a", at, 1.0, 10, 0.1) for at in range(40)), *(("b", 5, 1.0, 10, 0.1),))
    found = history_of(rows, {}, HOUR, since=FIRST + 38, last_slices=2)
    assert sorted(found.offered["a"]) == [FIRST + at for at in (36, 37, 38, 39)]
    assert sorted(found.offered["b"]) == [FIRST + 5], "the last slices of a query, however old"
    assert len(found.measured["a"]) == 16
