"""Overload, intervals and fairness: the text's numbers, and what an interval promises."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import InvalidValue
from spillway.levers.quality.admission import Batches, Entitlements, admit_fairly, coverage_spread
from spillway.levers.quality.intervals import (
    BEYOND,
    FEW_READ,
    Clusters,
    ValueRange,
    WindowSample,
    have_even_sizes,
)
from spillway.levers.quality.overload import Overload, TupleCost
from spillway.levers.quality.random_order import PortionColumns, chance_order, is_chosen_by_chance
from spillway.levers.quality.scaled_answer import PART, merge_partial_aggregates
from spillway.levers.quality.sql_text import plain_aggregate
from spillway.levers.windows import PORTION, Portion

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
COSTS = json.loads((GOLDEN / "003_cost_model.json").read_text())


def test_figure_5_2_and_what_is_discarded_of_a_buffer() -> None:
    cost = TupleCost().after(COSTS["figure_5_2"]["t_ms"] / 1e3, COSTS["figure_5_2"]["n"])
    assert cost.max_tuples(0.25) == COSTS["figure_5_2"]["N_keep_floor"]
    assert TupleCost().after(0.1, 1).max_tuples(0.3) == 3, "what fits exactly fits"
    for case in COSTS["with_buffer"]:
        assert max(0, case["IB_size"] - cost.max_tuples(0.25)) == case["N_discard"]  # eq. 5.1


def test_the_mean_of_the_last_measurements_is_what_counts() -> None:
    golden = COSTS["sliding_average_window_3_constructed"]
    cost, keeps = TupleCost(last=3), []
    for t, n in zip(golden["t_ms"], golden["n"], strict=True):
        cost = cost.after(t / 1e3, n)
        keeps.append(cost.max_tuples(0.25))
    assert keeps == golden["N_keep_floor"]


def test_before_anything_was_measured_nothing_is_discarded() -> None:
    assert TupleCost().max_tuples(0.25) > 10**9
    assert TupleCost().after(1.0, 0) == TupleCost()
    with pytest.raises(InvalidValue, match="`interval_seconds` must be above 0"):
        TupleCost().max_tuples(0)


def test_one_large_batch_is_no_overload_and_an_overload_ends_below_what_can_be_done() -> None:
    node = Overload(last=4, calm=0.9)
    seen = []
    for load in (50, 50, 50, 230, 50, 200, 200, 200, 92, 92, 92, 92, 50, 50):
        node = node.after(load, 100)
        seen.append(node.on)
    assert seen[3:5] == [False, False]
    assert seen[7:12] == [True] * 5
    assert seen[-1] is False


def test_coverage_spread_of_no_coverage_is_even() -> None:
    assert coverage_spread(np.zeros(3)).jain == 1.0
    assert coverage_spread(np.zeros(0)).mean == 1.0


def test_intervals_hold_what_they_promise() -> None:
    """95 % intervals over 400 draws of 12 of 40 batches cover at least 91 %: 0.95 less 3.7 binomial sigmas."""
    chance = np.random.default_rng(11)
    tuples = chance.integers(30, 50, 40).astype(np.float64)
    hits = chance.binomial(tuples.astype(int), 0.3).astype(np.float64)
    values = hits * chance.normal(50, 5, 40)
    held: dict[str, list[bool]] = {"count": [], "sum": [], "avg": []}
    for _ in range(400):
        order = chance.permutation(40)
        read, left = order[:12], tuples[order[12:]]
        count = WindowSample(
            Clusters(tuples[read], hits[read], tuples[read]), left, assume_alike=True
        ).total()
        both = WindowSample(Clusters(tuples[read], values[read], hits[read]), left, assume_alike=True)
        truths = (hits.sum(), values.sum(), values.sum() / hits.sum())
        for (_, own), made, truth in zip(
            held.items(), (count, both.total(), both.mean()), truths, strict=True
        ):
            assert made is not None
            if made.low is not None and made.high is not None:
                own.append(made.low <= truth <= made.high)
    assert min(map(len, held.values())) >= 350, "few draws make most of their spread by one portion"
    assert min(map(np.mean, held.values())) >= 0.91, held


def test_there_is_no_interval_where_none_is_honest() -> None:
    for count, alike, why in ((2, True, FEW_READ), (4, True, FEW_READ), (9, False, BEYOND)):
        read = Clusters(np.ones(count), np.arange(count) + 1.0, np.ones(count))
        sample = WindowSample(read, np.ones(5), assume_alike=alike)
        for made in (sample.total(), sample.mean()):
            assert made is not None
            assert (made.low, made.high) == (None, None)
        assert sample.certain_bounds_reason == why
    nothing = Clusters(np.zeros(0), np.zeros(0), np.zeros(0))
    assert WindowSample(nothing, np.ones(5)).total() is None
    assert WindowSample(nothing, np.ones(5)).mean() is None
    whole = WindowSample(Clusters(np.ones(2), np.ones(2), np.ones(2)), np.zeros(0)).total()
    assert whole is not None
    assert (whole.low, whole.value, whole.high) == (2.0, 2.0, 2.0)


def test_all_values_that_are_no_number_are_one_group() -> None:
    of = plain_aggregate("SELECT k, count(*) AS n FROM t GROUP BY k")
    assert of is not None
    parts = pa.table({PORTION: [0, 1, 0], "k": [math.nan, math.nan, 1.0], PART + "n0": [2, 3, 4]})
    answer = merge_partial_aggregates(of, parts)
    assert answer["n"].to_pylist() == [4, 5]
    assert math.isnan(answer["k"][1].as_py())


LUMPY = (
    "heavy tails",
    "one portion",
    "two portions",
    "three full portions",
    "a burst",
    "two silent portions",
)


@pytest.mark.parametrize("kind", LUMPY)
@pytest.mark.parametrize("read", [5, 10, 15, 19])
def test_intervals_hold_whatever_the_values_where_it_is_known_how_far_they_may_lie(
    kind: str, read: int
) -> None:
    """Of sums and averages that a few of 20 portions make; 400 draws, 95 % less 4 binomial sigmas.

    By how far portions lie apart alone they held in 0 to 90 %.
    """
    chance = np.random.default_rng(19)
    held = []
    for _ in range(400):
        rows, reach = lumpy(kind, chance)
        chance.shuffle(rows)
        sums, size = rows.sum(axis=1), float(rows.shape[1])
        own = Clusters(np.full(read, size), sums[:read], np.full(read, size))
        sample = WindowSample(own, np.full(20 - read, size), row_range=reach)
        for made, truth in ((sample.total(), float(sums.sum())), (sample.mean(), float(rows.mean()))):
            assert made is not None
            assert made.low is not None
            assert made.high is not None
            held.append(made.low - 1e-9 * abs(truth) <= truth <= made.high + 1e-9 * abs(truth))
    assert np.mean(held) >= 0.95 - 4 * np.sqrt(0.05 * 0.95 / 400)


def lumpy(kind: str, chance: np.random.Generator) -> tuple[np.ndarray, ValueRange]:
    """Rows of 20 portions, of which a few make the sum; and between what each row lies."""
    if kind == "heavy tails":
        return np.minimum(20 * chance.pareto(1.1, (20, 40)), 1e5), ValueRange(0.0, 1e5)
    if kind.endswith("portion") or kind == "two portions":
        often = np.ones(20)
        often[: 1 + (kind == "two portions")] = 5.0
        return chance.normal(50, 15, (20, 40)).clip(0, 150) * often[:, None], ValueRange(0.0, 750.0)
    share = {
        "three full portions": (0.0, 3, 1.0),
        "a burst": (0.05, 2, 0.9),
        "two silent portions": (0.6, 2, 0.0),
    }
    usual, few, other = share[kind]
    each = np.full((20, 1), usual)
    each[:few] = other
    return (chance.random((20, 40)) < each).astype(np.float64), ValueRange(0.0, 1.0)


def drawn_places(batches: Batches, kept: list[int]) -> tuple[int, ...]:
    """Places in `kept` that chance alone chose, of one window."""
    mask = np.isin(np.arange(len(batches)), kept)
    found = is_chosen_by_chance(batches, np.zeros(len(batches), np.int64), mask)
    return tuple(np.flatnonzero(found[mask]).tolist())


def test_intervals_rest_on_what_chance_alone_chose() -> None:
    """What was kept because it was small says nothing of the rest: behind the first that is left out none is used."""
    sizes = np.array([10.0, 10.0, 100.0, 10.0])
    batches = Batches(np.zeros(4, np.int64), sizes / sizes.sum(), sizes, np.array([0, 1, 2, 3]))
    kept = np.flatnonzero(admit_fairly(batches, Entitlements.equal(1), 30.0)).tolist()
    assert kept == [0, 1, 3]
    assert drawn_places(batches, kept) == (0, 1)


def test_chance_falls_alike_whichever_queries_are_planned_together() -> None:
    place = [
        (name, window, Portion("sites", batch, batch * 100, batch * 100 + 99, 100, 1, 100.0))
        for name in ("a", "b", "c")
        for window in (4, 5)
        for batch in range(6)
    ]
    every = chance_order("desk", 7, PortionColumns.of(place))
    assert sorted(every) == list(range(len(place)))
    alone = [at for at, (name, _, _) in enumerate(place) if name == "b"]
    assert (
        np.argsort(every[alone])
        == np.argsort(chance_order("desk", 7, PortionColumns.of([place[at] for at in alone])))
    ).all()
    assert (np.argsort(every) != np.argsort(chance_order("desk", 8, PortionColumns.of(place)))).any()


def test_intervals_hold_where_sizes_differ_a_little_and_are_refused_where_much() -> None:
    """As above, of 20 batches of 67 to 150 tuples that three queries share: 95 % less 4 binomial sigmas of 600."""
    chance = np.random.default_rng(3)
    held = []
    for _ in range(600):
        sizes = np.round(100 * chance.uniform(0.67, 1.4, 20))
        assert have_even_sizes(sizes)
        values = sizes * (50 + 10 * sizes / sizes.mean() + chance.normal(0, 5, 20))
        whose, cost = np.repeat(np.arange(3), 20), np.tile(sizes, 3)
        batches = Batches(whose, cost / sizes.sum(), cost, chance.permutation(60))
        kept = np.flatnonzero(admit_fairly(batches, Entitlements.equal(3), 1.5 * sizes.sum())[:20])
        drawn = np.array(drawn_places(batches.at(np.arange(20)), kept.tolist()))
        read = Clusters(sizes[kept], values[kept], sizes[kept])
        found = WindowSample(read, np.delete(sizes, kept), drawn, assume_alike=True).mean()
        assert found
        held.append(found.low <= values.sum() / sizes.sum() <= found.high)
    assert np.mean(held) >= 0.915
    assert not have_even_sizes(np.array([20.0] * 8 + [200.0] * 2))


def test_what_chance_alone_chose_is_counted_in_the_order_of_turns() -> None:
    batches = Batches(
        np.zeros(3, np.int64), np.ones(3), np.ones(3), np.array([0, 1, 2]), np.array([0.5, 0.0, 0.5])
    )
    assert drawn_places(batches, [0]) == (), "the one whose turn came first was left out"
    assert drawn_places(batches, [0, 1]) == (0, 1)
    assert drawn_places(batches, [1, 2]) == (0,), "the last was kept though one before it was not"
