"""PairCount: the golden example, exactness at r = 1, unbiasedness, its theorems, joins and searches."""

from __future__ import annotations

import csv
import json
import math
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sketches import reference

from spillway.errors import InvalidValue
from spillway.sketches.pair_count import (
    PairCount,
    PairCountParameters,
    draw_subsets,
    draw_super_values,
    match_variance,
    solve_matches,
    subsets,
)

GOLDEN = Path(__file__).parents[1] / "golden"
PAIRS = json.loads((GOLDEN / "004_paircount.json").read_text())
RECORDS = st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), max_size=14)


def count(records: object, **parameters: object) -> PairCount:
    values = np.array(records, dtype=np.uint64).reshape(-1, int(parameters["attributes"]))  # type: ignore[call-overload]
    return PairCount(PairCountParameters(**parameters)).update(values, np.arange(len(values)))  # type: ignore[arg-type]


def test_the_golden_example_is_exact_at_rate_1() -> None:
    golden = PAIRS["example_constructed"]
    sketch = count(golden["records"], attributes=3, similarity=1)
    sizes = {str(k): stream.self_join_size() for k, stream in sketch.streams.items()}
    assert sizes == golden["r=1"]["Y"]
    expected = {int(k): float(v) for k, v in golden["r=1"]["X"].items()}
    assert sketch.by_similarity() == expected
    ordered = {k: golden["x_k_true_ordered"][str(k)] for k in (1, 2, 3)}
    assert expected == ordered
    assert sketch.pairs(2).estimate == (12 + 2) / 2
    assert sketch.pairs(2, "ordered").estimate == 14
    assert sketch.pairs(3, "with_self").estimate == 2 + 6
    assert sketch.pairs(1).low == sketch.pairs(1).high == 12


def test_equation_5_1_solves_the_golden_half_sample() -> None:
    golden = PAIRS["example_constructed"]["all_records_use_the_same_half_sample"]
    parameters = PairCountParameters(attributes=3, similarity=1, rate=0.5)
    assert {str(k): parameters.subsets_per_record(k) for k in (1, 2, 3)} == golden["l"]
    matches = {k: golden["Y"][str(k)] - parameters.subsets_per_record(k) * 6 for k in (1, 2, 3)}
    found = solve_matches(parameters, matches, parameters.subsets_per_record)
    assert found == pytest.approx({int(k): float(Fraction(v)) for k, v in golden["X"].items()})


def test_the_tables_true_values_hold_every_record_with_itself() -> None:
    rows = list(csv.DictReader((GOLDEN / "004_tables5_1_to_5_7.csv").open()))
    assert sum(int(row["true_value"]) for row in rows if row["table"] == "5.1") == 200_000**2
    assert PAIRS["true_k6_without_self_pairs"]["200K"] == 219_356 - 200_000


def test_half_of_six_attributes_draws_34_super_values() -> None:
    parameters = PairCountParameters(attributes=6, similarity=1, rate=0.5)
    drawn = {str(k): parameters.subsets_per_record(k) for k in range(1, 7)}
    assert drawn == {k: v for k, v in PAIRS["super_values_r_0.5_d_6"]["l_k"].items() if k != "0"}


@pytest.mark.parametrize(("d", "s"), [(5, 4), (10, 8), (20, 16)])
def test_the_theorems_factor_is_the_printed_one(d: int, s: int) -> None:
    sketch = count(np.zeros((2, d)), attributes=d, similarity=s) if d < 20 else None
    factor = math.comb(d, s) * math.sqrt(math.comb(2 * (d - s), d - s))
    assert factor == pytest.approx(PAIRS["std_bound_factor"][f"d{d}_s{s}"])
    if sketch is not None:
        assert sketch.theorem_stddev() == pytest.approx(factor * math.sqrt(2))


@settings(max_examples=40, deadline=None)
@given(RECORDS, st.integers(1, 4))
def test_rate_1_counts_every_pair_exactly(records: list[list[int]], similarity: int) -> None:
    truth = reference.pairs_by_similarity(records)
    sketch = count(records, attributes=4, similarity=similarity)
    assert sketch.pairs().estimate == sum(n for k, n in truth.items() if k >= similarity)
    for k, ordered in sketch.by_similarity().items():
        assert ordered == 2 * truth[k]


@settings(max_examples=30, deadline=None)
@given(RECORDS, RECORDS, st.sampled_from([0, 64]), st.sampled_from(["fast_agms", "count_min"]))
def test_merging_is_sketching_both_sets(left: list, right: list, width: int, table: str) -> None:
    parameters = PairCountParameters(4, 2, 0.5, 3, width=width, table=table)
    values = [np.array(side, dtype=np.uint64).reshape(-1, 4) for side in (left, right)]
    one = PairCount(parameters).update(values[0], np.arange(len(left)))
    two = PairCount(parameters).update(values[1], np.arange(len(left), len(left) + len(right)))
    whole = PairCount(parameters).update(np.concatenate(values), np.arange(len(left) + len(right)))
    assert one.merge(two).to_bytes() == whole.to_bytes()
    assert PairCount.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()


def test_subsets_are_drawn_without_replacement_and_evenly() -> None:
    chosen = np.zeros(10)
    for ordinal in range(20_000):
        order = np.arange(10)
        draw_subsets(np.uint64(ordinal), np.uint64(7), order, 3)
        assert len(set(order.tolist())) == 10
        chosen[order[:3]] += 1
    # each is drawn with probability 0.3: binomial sd of the count 65
    assert np.abs(chosen - 6000).max() < 4.5 * 65


def test_super_values_name_their_subset_and_their_values() -> None:
    seeds = np.arange(1, 6, dtype=np.uint64) * np.uint64(7919)
    records = np.array([[1, 1, 1, 1], [1, 1, 1, 1], [2, 1, 1, 1]], dtype=np.uint64)
    combos = subsets(4, 2)
    found = draw_super_values(records, np.arange(3, dtype=np.uint64), combos, 6, seeds, np.uint64(1))
    first, second, third = found.reshape(3, 6)
    assert first.tolist() == second.tolist()
    assert len(set(first.tolist())) == 6
    touched = [0 in combo for combo in combos.tolist()]
    assert (first != third).tolist() == touched


@pytest.mark.parametrize(
    ("agree", "k", "mine", "theirs"), [(2, 1, 2, 2), (3, 2, 2, 2), (2, 2, 1, 3), (4, 3, 2, 4)]
)
def test_the_variance_of_a_pairs_matches_is_that_of_all_draws(
    agree: int, k: int, mine: int, theirs: int
) -> None:
    combos = list(combinations(range(4), k))
    shared = {combo for combo in combos if all(member < agree for member in combo)}
    matches = [
        len(shared & set(a) & set(b))
        for a in combinations(combos, mine)
        for b in combinations(combos, theirs)
    ]
    assert match_variance(4, agree, k, mine, theirs) == pytest.approx(float(np.var(matches)))


def clustered(n: int, seed: int, attributes: int = 5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    records = rng.integers(0, 2**40, (n, attributes), dtype=np.uint64)
    for row in range(0, n - 1, 4):
        kept = rng.integers(2, attributes + 1)
        records[row + 1, :kept] = records[row, :kept]
    return records


@pytest.mark.parametrize(("width", "table"), [(0, "fast_agms"), (2000, "fast_agms"), (2000, "count_min")])
def test_estimates_are_unbiased_and_their_intervals_cover(width: int, table: str) -> None:
    records = clustered(600, 1)
    truth = sum(n for k, n in reference.pairs_by_similarity(records.tolist()).items() if k >= 3)
    estimates, covered, within = [], [], []
    for seed in range(120):
        sketch = count(records, attributes=5, similarity=3, rate=0.5, seed=seed, width=width, table=table)
        answer = sketch.pairs(3, confidence=0.95)
        ordered = sum(sketch.by_similarity().values())
        estimates.append(ordered / 2)
        covered.append(answer.low <= truth <= answer.high)
        within.append(abs(ordered - 2 * truth) <= 2 * sketch.theorem_stddev())
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - truth) < 4 * error
    # binomial(120, 0.95): sd 0.02
    assert np.mean(covered) > 0.95 - 3 * 0.02
    assert np.mean(within) >= 0.95


def test_identical_records_draw_by_their_ordinals_and_are_counted_rightly() -> None:
    records = np.ones((400, 4), dtype=np.uint64)
    sketch = count(records, attributes=4, similarity=2, rate=0.5)
    answer = sketch.pairs(2)
    # a subset of two is drawn by 200 +- 10 records: Y_2, Y_3 deviate by about 300, G_2 by about 2,000 of 159,600
    assert answer.estimate == pytest.approx(400 * 399 / 2, rel=4 * 2_000 / 159_600)


def test_a_join_finds_pairs_across_two_sets_and_draws_each_side_apart() -> None:
    left, right = clustered(300, 2), clustered(300, 3)
    right[:100, :4] = left[:100, :4]
    truth = sum(int((a == b).sum() >= 3) for a in left for b in right)
    exact = [PairCountParameters(5, 3, side=side) for side in (0, 1)]
    one = PairCount(exact[0]).update(left, np.arange(300))
    two = PairCount(exact[1]).update(right, np.arange(300))
    assert one.join(two).estimate == truth
    estimates, covered = [], []
    for seed in range(80):
        mine = PairCount(PairCountParameters(5, 3, 0.5, seed)).update(left, np.arange(300))
        theirs = PairCount(PairCountParameters(5, 3, 0.5, seed, side=1)).update(right, np.arange(300))
        answer = mine.join(theirs)
        estimates.append(answer.estimate)
        covered.append(answer.low <= truth <= answer.high)
    assert abs(np.mean(estimates) - truth) < 4 * np.std(estimates) / np.sqrt(80)
    # binomial(80, 0.95): sd 0.024
    assert np.mean(covered) > 0.95 - 3 * 0.024
    half = PairCount(PairCountParameters(5, 3, 0.5))
    with pytest.raises(InvalidValue, match="differ between the two sets"):
        half.join(PairCount(PairCountParameters(5, 3, 0.5)))
    with pytest.raises(InvalidValue, match="same parameters and seed"):
        half.join(PairCount(PairCountParameters(5, 2, 0.5, side=1)))


def test_a_search_counts_the_records_like_one() -> None:
    records = clustered(400, 4)
    records[:50, :4] = records[0, :4]
    truth = int(((records == records[0]).sum(axis=1) >= 3).sum())
    assert count(records, attributes=5, similarity=3).search(records[0]).estimate == truth
    estimates = []
    for seed in range(80):
        answer = count(records, attributes=5, similarity=3, rate=0.5, seed=seed).search(records[0])
        estimates.append(answer.estimate)
    assert abs(np.mean(estimates) - truth) < 4 * np.std(estimates) / np.sqrt(80)
    online = count(records, attributes=5, similarity=3, width=4000).search(records[0])
    assert online.low <= truth <= online.high
    with pytest.raises(InvalidValue, match="have 5 attributes"):
        count(records, attributes=5, similarity=3).search([1, 2])


def test_negative_estimates_are_clamped_and_say_so() -> None:
    rng = np.random.default_rng(7)
    answers = [
        count(
            rng.integers(0, 2**40, (300, 4), dtype=np.uint64), attributes=4, similarity=2, width=16, seed=seed
        ).pairs()
        for seed in range(12)
    ]
    clamped = [answer for answer in answers if answer.note]
    assert clamped
    assert all(answer.estimate == 0.0 and "clamped" in answer.note for answer in clamped)
    assert all(answer.low >= 0 for answer in answers)


def test_no_answer_and_no_end_of_an_interval_is_above_the_pairs_that_can_be() -> None:
    alike, above = np.ones((12, 6), dtype=np.uint64), 0
    for seed in range(40):
        sketch = PairCount(PairCountParameters(6, 4, 0.3, width=8, seed=seed)).update(alike, np.arange(12))
        most = {"pairs": 12 * 11 / 2, "join": 12 * 12, "search": 12}
        other = PairCount(PairCountParameters(6, 4, 0.3, width=8, seed=seed, side=1)).update(
            alike, np.arange(12)
        )
        found = {"pairs": sketch.pairs(), "join": sketch.join(other), "search": sketch.search(alike[0])}
        for name, answer in found.items():
            assert 0 <= answer.low <= answer.estimate <= answer.high <= most[name]
            above += answer.note == "clamped to as many as there can be"
    assert above > 0, "the sketch is too narrow for its pairs"


def test_so_many_attributes_that_the_combinations_explode_are_refused_with_their_number() -> None:
    with pytest.raises(InvalidValue, match="616666 subsets of 20 attributes from similarity 10"):
        PairCountParameters(attributes=20, similarity=10)
    with pytest.raises(InvalidValue, match="subsets of 64 attributes"):
        PairCountParameters(attributes=64, similarity=32)


def test_near_duplicates_a_row_do_not_fall_with_the_number_of_rows() -> None:
    records = np.array([[1, 2], [1, 2], [3, 4], [5, 6]], dtype=np.uint64)
    assert count(records, attributes=2, similarity=2).per_row().estimate == pytest.approx(1 / 4)
    tenfold = np.tile(np.arange(2000, dtype=np.uint64).reshape(-1, 2), (10, 1))
    assert count(tenfold, attributes=2, similarity=2).per_row().estimate == pytest.approx(4.5)
    with pytest.raises(InvalidValue, match="at least 1"):
        count(records[:0], attributes=2, similarity=2).per_row()


def test_no_records_make_no_pairs() -> None:
    sketch = PairCount(PairCountParameters(3, 2, 0.5, width=16)).update(np.empty((0, 3)), np.empty(0))
    assert sketch.pairs().estimate == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attributes": 3, "similarity": 0}, "from 1 to 3"),
        ({"attributes": 3, "similarity": 2, "rate": 0.0}, "above 0"),
        ({"attributes": 3, "similarity": 2, "table": "x"}, "fast_agms or count_min"),
    ],
)
def test_impossible_parameters_are_refused(arguments: dict, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        PairCountParameters(**arguments)


def test_wrong_questions_are_refused() -> None:
    sketch = count(np.zeros((3, 3)), attributes=3, similarity=2)
    with pytest.raises(InvalidValue, match="lie from 2 to 3"):
        sketch.pairs(1)
    with pytest.raises(InvalidValue, match="one of unordered"):
        sketch.pairs(2, "pairs")
    with pytest.raises(InvalidValue, match="be n x 3"):
        sketch.update(np.zeros((2, 4)), np.arange(2))
    with pytest.raises(InvalidValue, match="one per record"):
        sketch.update(np.zeros((2, 3)), np.arange(3))
