"""Count-min and its mean correction against the golden example, exact variances and a slow table."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sketches import reference

from evidence.sketches.data_models import zipf_frequencies
from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.count_min import PURPOSES, CountMin, CountMinParameters
from spillway.sketches.hashing import row_seeds
from spillway.sketches.intervals import median_deviation

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "004_cmm.json").read_text())
KEYS = st.lists(st.integers(0, 2**64 - 1), max_size=40)


def keys_of(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def golden_sketch() -> tuple[CountMin, dict[str, np.ndarray]]:
    example = GOLDEN["example_constructed"]
    sketch = CountMin(CountMinParameters(example["w"], example["d"]))
    sketch.table = np.array(example["sketch"], dtype=np.int64)
    sketch.total = example["N"]
    counters = {
        name: np.array([[sketch.table[row, column]] for row, column in enumerate(where)])
        for name, where in example["hash"].items()
    }
    return sketch, counters


def test_the_golden_sketch_gives_the_golden_residues_and_self_joins() -> None:
    sketch, counters = golden_sketch()
    for name, expected in GOLDEN["example_constructed"]["point"].items():
        found = counters[name]
        for estimator, field in (("cmm_mean", "CMM_mean"), ("cmm_median", "CMM_row_median")):
            residues = sketch.residues(found, estimator).ravel()
            wanted = [float(Fraction(value)) for value in expected[f"{field}_residues"]]
            assert residues.tolist() == pytest.approx(wanted)
            clamped = float(np.clip(np.median(residues), 0.0, found.min()))
            key = "CMM_mean_clamped_to_0_CM" if estimator == "cmm_mean" else "CMM_row_median_clamped"
            assert clamped == pytest.approx(float(Fraction(expected[key])))
    golden = GOLDEN["example_constructed"]["self_join"]
    rows = [float(Fraction(value)) for value in golden["CMM_rows"]]
    assert sketch._self_join_rows().tolist() == pytest.approx(rows)
    assert sketch.self_join_size("cmm").estimate == float(golden["CMM_median"])
    assert sketch.self_join_size("cm").estimate == golden["CM_min"]


@pytest.mark.parametrize("width", [2, 3, 4])
def test_over_all_hash_functions_the_estimates_are_unbiased_with_the_stated_variances(width: int) -> None:
    case = GOLDEN["exhaustive_over_all_hash_functions"]
    frequencies = list(case["frequencies"].values())
    golden = case["results"][f"w={width}"]
    points, joins = [], []
    for columns in product(range(width), repeat=len(frequencies)):
        sketch = CountMin(CountMinParameters(width, 1))
        for column, frequency in zip(columns, frequencies, strict=True):
            sketch.table[0, column] += frequency
        sketch.total = sum(frequencies)
        counter = np.array([[sketch.table[0, columns[0]]]])
        points.append(sketch.residues(counter, "cmm_mean").item())
        joins.append(sketch._self_join_rows().item())
    assert np.mean(points) == pytest.approx(float(Fraction(golden["E_point_a"])))
    assert np.var(points) == pytest.approx(float(Fraction(golden["Var_point_a"])))
    assert np.mean(joins) == pytest.approx(float(Fraction(golden["E_selfjoin"])))
    assert np.var(joins) == pytest.approx(float(Fraction(golden["Var_selfjoin"])))


@settings(max_examples=30, deadline=None)
@given(KEYS, st.integers(2, 40), st.integers(1, 6), st.integers(0, 2**64 - 1), st.booleans())
def test_the_table_is_the_slow_table(keys: list[int], width: int, depth: int, seed: int, mi: bool) -> None:
    sketch = CountMin(CountMinParameters(width, depth, seed, mi)).update(keys_of(keys))
    expected = reference.count_min_table([(key, 1) for key in keys], width, depth, seed, mi)
    assert sketch.table.tolist() == expected


@settings(max_examples=30, deadline=None)
@given(KEYS, KEYS, st.integers(2, 40), st.integers(1, 6))
def test_merging_is_sketching_both_streams(left: list[int], right: list[int], width: int, depth: int) -> None:
    parameters = CountMinParameters(width, depth, 5)
    one, two = (CountMin(parameters).update(keys_of(side)) for side in (left, right))
    whole = CountMin(parameters).update(keys_of(left + right))
    for merged in (one.merge(two), two.merge(one)):
        assert merged.to_bytes() == whole.to_bytes()


@settings(max_examples=30, deadline=None)
@given(KEYS, st.integers(2, 40), st.integers(1, 5))
def test_cm_is_never_under_and_cmm_lies_between_zero_and_it(keys: list[int], width: int, depth: int) -> None:
    for conservative in (False, True):
        sketch = CountMin(CountMinParameters(width, depth, 2, conservative)).update(keys_of(keys))
        asked = sorted(set(keys))
        truth = np.array([keys.count(key) for key in asked])
        upper = sketch.point(keys_of(asked), "cm").estimate
        assert (upper >= truth).all()
        if not conservative:
            for estimator in ("cmm_mean", "cmm_median"):
                found = sketch.point(keys_of(asked), estimator)
                assert (found.estimate >= 0).all()
                assert (found.estimate <= upper).all()
                assert (found.low <= found.high).all()


def test_deleting_what_was_added_leaves_nothing() -> None:
    keys = np.arange(1000, dtype=np.uint64)
    sketch = (
        CountMin(CountMinParameters(64, 3)).update(keys, np.full(1000, 5)).update(keys, np.full(1000, -5))
    )
    assert not sketch.table.any()
    assert sketch.total == 0


def test_deleting_more_than_was_added_is_found_and_refused() -> None:
    sketch = CountMin(CountMinParameters(64, 3)).update(np.array([1, 1, 2]))
    sketch.update(np.array([1]), np.array([-3]))
    for question in (
        lambda: sketch.point(np.array([2])),
        lambda: sketch.self_join_size("cm"),
    ):
        with pytest.raises(InvalidValue, match="must not delete more than was added"):
            question()
    assert sketch.self_join_size("cmm").estimate >= 0


def test_weights_are_bounded_so_that_counters_cannot_wrap() -> None:
    sketch = CountMin(CountMinParameters(8, 1)).update(np.array([1]), np.array([2**61]))
    with pytest.raises(InvalidValue, match="less than 2\\^62"):
        sketch.update(np.array([1]), np.array([2**61]))
    with pytest.raises(InvalidValue, match="less than 2\\^62"):
        sketch.update(np.array([1]), np.array([-(2**63)]))
    with pytest.raises(InvalidValue, match="less than 2\\^62"):
        sketch.merge(sketch)


def test_64_bit_extremes_are_keys_like_any_other() -> None:
    keys = keys_of([0, 2**63 - 1, 2**63, 2**64 - 1])
    sketch = CountMin(CountMinParameters(1024, 5)).update(np.repeat(keys, [1, 2, 3, 4]))
    assert sketch.point(keys, "cm").estimate.tolist() == [1, 2, 3, 4]


def test_nothing_and_one_key_only() -> None:
    empty = CountMin(CountMinParameters(16, 3)).update(np.empty(0, np.uint64))
    assert empty.point(np.array([1])).high.tolist() == [0.0]
    assert empty.self_join_size().estimate == 0.0
    single = CountMin(CountMinParameters(16, 3)).update(np.full(500, 9))
    found = single.point(np.array([9]))
    assert found.estimate.tolist() == [500.0]
    assert single.self_join_size().estimate == 250_000.0
    assert single.self_join_size("cm").estimate == 250_000.0


def test_sketches_of_other_parameters_refuse_naming_both() -> None:
    base = CountMin(CountMinParameters(16, 3, 1))
    for other in (CountMinParameters(17, 3, 1), CountMinParameters(16, 2, 1), CountMinParameters(16, 3, 2)):
        for combine in (base.merge, base.join_size):
            with pytest.raises(InvalidValue) as refusal:
                combine(CountMin(other))
            assert str(base.parameters) in str(refusal.value)
            assert str(other) in str(refusal.value)


def test_conservative_update_forbids_deletion_merging_and_mean_correction() -> None:
    sketch = CountMin(CountMinParameters(16, 3, 1, conservative=True)).update(np.array([1, 2]))
    with pytest.raises(InvalidValue, match="not be negative under conservative update"):
        sketch.update(np.array([1]), np.array([-1]))
    with pytest.raises(InvalidValue, match="be false to merge"):
        sketch.merge(sketch)
    with pytest.raises(InvalidValue, match="be cm for a conservatively updated table"):
        sketch.point(np.array([1]), "cmm_mean")
    assert sketch.point(np.array([1])).method == "cm"


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (lambda s: s.point(np.array([1]), "mean"), "one of cm, cmm_mean, cmm_median"),
        (lambda s: s.point(np.array([1]), confidence=1.0), "between 0 and 1"),
        (lambda s: s.self_join_size("cmm_mean"), "be cm or cmm"),
        (lambda s: s.join_size(s, "x"), "be cm or cmm"),
        (lambda s: s.update(np.array([1, 2]), np.array([1])), "one per key"),
        (lambda s: CountMin(CountMinParameters(1, 3)), "from 2 to"),
        (lambda s: CountMin(CountMinParameters(2, 65)), "from 1 to 64"),
    ],
)
def test_wrong_questions_are_refused(question: object, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        question(CountMin(CountMinParameters(16, 3)))  # type: ignore[operator]


@pytest.mark.parametrize(("skew", "estimator"), list(product([0.5, 1.2], ["cm", "cmm_mean", "cmm_median"])))
def test_intervals_cover_what_they_promise(skew: float, estimator: str) -> None:
    rng = np.random.default_rng(3)
    frequencies = rng.poisson(40_000 * np.arange(1, 2001) ** -skew / (np.arange(1, 2001) ** -skew).sum())
    keys = np.arange(2000, dtype=np.uint64)
    hits = []
    for seed in range(60):
        sketch = CountMin(CountMinParameters(200, 5, seed)).update(keys, frequencies)
        found = sketch.point(keys, estimator, 0.9)
        hits.append(np.mean((found.low <= frequencies) & (frequencies <= found.high)))
    # keys of one sketch share its hashes: the sketches are the 60 samples, of sd below 0.05 each
    assert np.mean(hits) > 0.9 - 3 * 0.05 / np.sqrt(60)


def test_self_join_and_join_intervals_cover_what_they_promise() -> None:
    rng = np.random.default_rng(4)
    keys = np.arange(3000, dtype=np.uint64)
    left, right = rng.poisson(9.0, 3000), rng.poisson(5.0, 3000)
    truth_self, truth_join = float((left**2).sum()), float((left * right).sum())
    inside = np.zeros(2)
    for seed in range(200):
        one = CountMin(CountMinParameters(256, 5, seed)).update(keys, left)
        two = CountMin(CountMinParameters(256, 5, seed)).update(keys, right)
        mine, both = one.self_join_size("cmm", 0.9), one.join_size(two, "cmm", 0.9)
        inside += [mine.low <= truth_self <= mine.high, both.low <= truth_join <= both.high]
        assert one.self_join_size("cm").estimate >= truth_self
        assert one.join_size(two, "cm").estimate >= truth_join
    # binomial(200, 0.9): sd 0.021
    assert (inside / 200 > 0.9 - 3 * 0.021).all()


def test_bytes_round_trip_and_another_shape_is_refused() -> None:
    sketch = CountMin(CountMinParameters(32, 3, 9)).update(np.arange(100, dtype=np.uint64))
    back = CountMin.from_bytes(sketch.to_bytes())
    assert back.to_bytes() == sketch.to_bytes()
    assert back.parameters == sketch.parameters
    wider = {**sketch.shape, "width": 16}
    with pytest.raises(InvalidValue, match=r"be int64 of \(3, 16\), got 'int64 of \(3, 32\)'"):
        CountMin.from_bytes(binary.to_payload("count_min", wider, sketch.scalars(), sketch.arrays()))


def test_sparks_hashing_has_seeds_below_2_to_the_31_and_other_hashings_are_refused() -> None:
    with pytest.raises(InvalidValue, match="below 2\\^31"):
        CountMinParameters(8, 2, 1 << 31, hashing="spark")
    with pytest.raises(InvalidValue, match="mix64 or spark"):
        CountMinParameters(8, 2, 1, hashing="md5")


def test_sparks_hashing_spreads_hashed_keys_as_evenly_as_ours() -> None:
    keys = row_seeds(1, 200_000)
    for hashing in ("mix64", "spark"):
        sketch = CountMin(CountMinParameters(1000, 5, 3, hashing=hashing)).update(keys)
        # 200 a counter, deviation 14: chi-squared of 5 x 999 degrees within 5 of its own deviations
        spread = ((sketch.table - 200.0) ** 2 / 200.0).sum()
        assert abs(spread - 4995) < 5 * np.sqrt(2 * 4995)
        assert abs(np.corrcoef(sketch.table)[np.triu_indices(5, 1)]).max() < 5 / np.sqrt(1000)


@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_joins_are_as_sure_as_lemma_4_lets_them_be_also_where_few_keys_are_heavy(skew: float) -> None:
    """A few keys that make up most of F2 collide with little: they must not widen the interval."""
    frequencies = (20_000 * np.arange(1.0, 2001.0) ** -skew).astype(np.int64) + 1
    keys = np.arange(2000, dtype=np.uint64)
    f = frequencies.astype(np.float64)
    square, fourth = float((f**2).sum()), float((f**4).sum())
    hits, widths, joined = [], [], []
    for seed in range(400):
        sketch = CountMin(CountMinParameters(256, 5, seed)).update(keys, frequencies)
        found, both = sketch.self_join_size(), sketch.join_size(sketch)
        hits.append(found.low <= square <= found.high)
        joined.append(both.low <= square <= both.high)
        widths.append(found.high - found.low)
    theory = 2 * 1.96 * median_deviation(5) * math.sqrt(2 * (square**2 - fourth) / 255)
    assert np.mean(widths) <= 1.5 * theory
    # three standard errors of 95 % in 400
    assert min(np.mean(hits), np.mean(joined)) >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 400)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(2, 5000), st.integers(0, 99))
def test_a_few_keys_are_answered_as_many_are(values: list[int], width: int, seed: int) -> None:
    keys = np.array(values, np.uint64)
    table = CountMin(CountMinParameters(width, 3, seed, hashing="spark")).update(
        keys, np.arange(1, keys.size + 1)
    )
    few, many = table.point(keys), table.point(np.resize(keys, 200))
    for edge in ("estimate", "low", "high"):
        assert getattr(few, edge).tolist() == getattr(many, edge)[: keys.size].tolist()


def test_what_comes_later_widens_the_intervals_of_what_was_asked_before() -> None:
    first, later = np.arange(50, dtype=np.uint64), np.arange(5000, dtype=np.uint64)
    parameters = CountMinParameters(64, 5, 1)
    asked = CountMin(parameters).update(first)
    asked.point(first)
    asked.update(later)
    fresh = CountMin(parameters).update(first).update(later)
    assert asked.point(first).high.tolist() == fresh.point(first).high.tolist()


def test_of_an_even_number_of_rows_the_middle_is_the_mean_of_two() -> None:
    keys = np.random.default_rng(2).integers(0, 300, 4000).astype(np.uint64)
    sketch, asked = CountMin(CountMinParameters(32, 4, 1)).update(keys), np.arange(20, dtype=np.uint64)
    counters = sketch._touched(asked)
    for estimator in ("cmm_mean", "cmm_median"):
        residues = np.median(sketch.residues(counters, estimator), axis=0)
        wanted = np.clip(residues, 0.0, counters.min(axis=0))
        assert sketch.point(asked, estimator).estimate.tolist() == pytest.approx(wanted.tolist())


def test_the_usual_estimate_is_neither_above_the_truth_nor_below_it() -> None:
    """A hundred keys are heavy: the least of the rows is the sharpest, and lies 80 below until it is corrected."""
    keys = np.arange(2000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    weights = np.where(np.arange(2000) < 100, 400, 20)
    sketch = CountMin(CountMinParameters(256, 5, 1)).update(keys, weights)
    errors = sketch.point(keys[:100]).estimate - 400
    # one deviates by 33, so the mean of a hundred by 3.3: three of these
    assert abs(errors.mean()) < 10


def test_a_self_join_is_never_said_to_be_more_than_its_counters_can_hold() -> None:
    for seed in range(20):
        sketch = CountMin(CountMinParameters(3, 1, seed)).update(np.arange(40, dtype=np.uint64))
        assert sketch.self_join_size().high <= sketch.self_join_size("cm").estimate


def zipf_table(skew: float, width: int, seed: int) -> tuple[CountMin, np.ndarray, np.ndarray]:
    """A table of a million rows over 50,000 keys, the keys that occur, and how often."""
    frequencies = zipf_frequencies(1_000_000, 50_000, skew, 1)
    frequencies = frequencies[frequencies > 0]
    keys = np.random.default_rng(seed).integers(0, 1 << 63, frequencies.size).astype(np.uint64)
    table = CountMin(CountMinParameters(width, 5, seed, hashing="spark")).update(keys, frequencies)
    return table, keys, frequencies


def test_sum_over_rare_keys_is_unbiased_for_that_purpose_and_far_too_large_for_others() -> None:
    """Over 300 hash functions the mean error of a sum is within four standard errors of 0; clamped, it is +400 %."""
    errors: dict[str, list[float]] = {"sum": [], "frequent": []}
    for seed in range(300):
        rng = np.random.default_rng(seed)
        frequencies = zipf_frequencies(20_000, 3000, 1.0, 1)
        frequencies = frequencies[frequencies > 0]
        keys = rng.integers(0, 1 << 63, frequencies.size).astype(np.uint64)
        rare = frequencies <= frequencies.mean()
        table = CountMin(CountMinParameters(128, 5, seed)).update(keys, frequencies)
        for purpose, found in errors.items():
            estimate = table.point(keys[rare], purpose=purpose).estimate
            found.append(float(estimate.sum() / frequencies[rare].sum() - 1.0))
    unbiased = np.array(errors["sum"])
    assert abs(unbiased.mean()) < 4 * unbiased.std() / np.sqrt(unbiased.size)
    assert np.mean(errors["frequent"]) > 1.0


def test_sums_err_less_without_keys_that_were_counted() -> None:
    table, keys, frequencies = zipf_table(1.0, 1638, seed=3)
    heavy = np.argsort(-frequencies)[:200]
    rare = np.flatnonzero(frequencies <= frequencies.mean())
    counted = dict(zip(keys[heavy].tolist(), frequencies[heavy].tolist(), strict=True))
    rest = table.without(counted)
    assert rest.total == table.total - frequencies[heavy].sum()
    whole, skimmed = (
        one.point(keys[rare], purpose="sum").estimate - frequencies[rare] for one in (table, rest)
    )
    assert np.abs(skimmed).mean() < 0.25 * np.abs(whole).mean()
    assert abs(skimmed.sum()) < 0.5 * frequencies[rare].sum()


@pytest.mark.parametrize("skew", [0.4, 0.8, 1.0, 1.2, 1.6, 2.0])
@pytest.mark.parametrize("width", [256, 1638, 16384])
def test_purpose_chooses_nearly_the_best_estimator(skew: float, width: int) -> None:
    """The claim of the module: by purpose, no other estimator errs much less. By `frequent` for all, up to 4 times."""
    table, keys, frequencies = zipf_table(skew, width, seed=1)
    names = ("cm", "cmm_mean", "cmm_median", "cmm_order")
    for purpose, asked in (("frequent", np.argsort(-frequencies)[:100]), ("any", np.arange(keys.size))):
        truth = frequencies[asked]
        errors = {name: np.abs(table.point(keys[asked], name).estimate - truth).mean() for name in names}
        mine = np.abs(table.point(keys[asked], purpose=purpose).estimate - truth).mean()
        assert mine <= 1.4 * min(errors.values()) + 0.05, (purpose, errors)


def test_purposes_differ_in_a_crowded_table_only() -> None:
    crowded, empty = zipf_table(1.0, 1638, seed=1)[0], zipf_table(1.6, 16384, seed=1)[0]
    assert [crowded.estimator_for(purpose) for purpose in PURPOSES] == [
        "cmm_order",
        "cmm_mean",
        "cmm_unbiased",
    ]
    assert [empty.estimator_for(purpose) for purpose in PURPOSES] == [
        "cmm_order",
        "cmm_order",
        "cmm_unbiased",
    ]
    careful = CountMin(CountMinParameters(64, 3, conservative=True)).update(np.array([1, 1, 2]))
    assert [careful.estimator_for(purpose) for purpose in ("frequent", "any")] == ["cm", "cm"]
    with pytest.raises(
        InvalidValue, match="`purpose` must be frequent or any for a conservatively updated table"
    ):
        careful.estimator_for("sum")


def test_interval_of_an_unbiased_estimate_holds_it_and_the_truth() -> None:
    table, keys, frequencies = zipf_table(0.8, 1638, seed=2)
    found = table.point(keys, purpose="sum")
    assert ((found.low <= found.estimate) & (found.estimate <= found.high)).all()
    assert ((found.low <= frequencies) & (frequencies <= found.high)).mean() >= 0.94
