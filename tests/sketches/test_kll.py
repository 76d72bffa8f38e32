"""The KLL sketch: the library reads what we write and answers alike; no rank is further off than is stated."""

from __future__ import annotations

import datasketches
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.sketches.kll import LEAST_K, Kll, KllParameters, rank_error

FLOATS = st.lists(st.floats(allow_nan=False, width=64), max_size=300)


def made(values: object, k: int, integers: bool = False) -> Kll:
    return Kll(KllParameters(k, integers)).update(values).compacted_to(k)


@given(FLOATS, st.integers(LEAST_K, 64))
@settings(max_examples=200)
def test_the_library_reads_our_bytes_and_holds_the_same_items(values: list[float], k: int) -> None:
    sketch = made(np.array(values), k)
    read = datasketches.kll_doubles_sketch.deserialize(sketch.to_bytes())
    assert (read.n, read.k) == (len(values), k)
    assert read.num_retained == sketch.items.size
    if values:
        # at the very ends the library answers with its first and last item, ours with the least and the greatest value
        shares = [0.1, 0.5, 0.9]
        assert sketch.quantiles([0.0, 1.0]).tolist() == [min(values), max(values)]
        assert read.get_min_value() == min(values)
        assert read.get_max_value() == max(values)
        for share, mine in zip(shares, sketch.quantiles(shares), strict=True):
            assert read.get_quantile(share, True) == mine
        for value in values[:20]:
            assert read.get_rank(value, True) * len(values) == pytest.approx(float(sketch.ranks([value])[0]))


@given(FLOATS, st.integers(LEAST_K, 40))
@example([float(value) for value in range(2 * LEAST_K)], LEAST_K)
@settings(max_examples=300)
def test_no_rank_is_off_by_more_than_half_a_block_and_blocks_are_as_small_as_k_allows(
    values: list[float], k: int
) -> None:
    sketch, n = made(np.array(values), k), len(values)
    block = int(sketch.weights.max(initial=1))
    # whole blocks are at most k, and would be more were they half as large
    assert block == 1 or n // block <= k < n // (block // 2)
    for value in values:
        for inclusive in (True, False):
            truth = sum(one <= value if inclusive else one < value for one in values)
            assert abs(int(sketch.ranks([value], inclusive)[0]) - truth) <= block / 2


@given(st.lists(FLOATS, min_size=1, max_size=5), st.integers(LEAST_K, 40))
def test_batches_united_and_made_small_again_stay_within_what_is_stated(
    parts: list[list[float]], k: int
) -> None:
    whole = made(np.array(parts[0]), k)
    for part in parts[1:]:
        whole = whole.merge(made(np.array(part), k))
    every = sorted(value for part in parts for value in part)
    for sketch in (whole, whole.compacted_to(k)):
        assert sketch.n == len(every)
        for value in every[:: max(len(every) // 20, 1)]:
            truth = int(np.searchsorted(every, value, side="right"))
            assert abs(int(sketch.ranks([value])[0]) - truth) <= max(sketch.error(), 0.0) + 1e-9


@given(FLOATS, st.integers(LEAST_K, 40))
def test_what_the_library_made_is_read_with_all_it_holds(values: list[float], k: int) -> None:
    theirs = datasketches.kll_doubles_sketch(k)
    if values:
        theirs.update(np.array(values))
    mine = Kll.from_native(theirs.serialize())
    assert mine.n == len(values)
    assert mine.items.size == theirs.num_retained
    # at the very ends the library answers with its first and last item, ours with the least and the greatest value
    shares = [share for share in (0.1, 0.5) if 1 < np.ceil(share * len(values)) < len(values)]
    if shares:
        assert mine.quantiles(shares).tolist() == [theirs.get_quantile(share, True) for share in shares]


@given(FLOATS, st.integers(LEAST_K, 40))
def test_bytes_come_back_as_the_sketch_they_were(values: list[float], k: int) -> None:
    sketch = made(np.array(values), k)
    back = Kll.from_native(sketch.to_bytes())
    assert back.to_bytes() == sketch.to_bytes()
    assert (back.n, back.error()) == (sketch.n, sketch.error())


def test_integers_keep_all_their_bits() -> None:
    ids = np.arange(2**60, 2**60 + 50)
    sketch = made(ids, 64, integers=True)
    assert sketch.quantiles([0.5]).tolist() == [2**60 + 24]
    assert Kll.from_native(sketch.to_bytes()).ranks([2**60 + 1]).tolist() == [2]


def test_the_same_rows_give_the_same_bytes_however_they_are_handed_over() -> None:
    values = np.random.default_rng(3).normal(size=5000)
    apart = Kll(KllParameters(64))
    for chunk in np.array_split(values, 13):
        apart.update(chunk)
    assert apart.compacted_to(64).to_bytes() == made(values, 64).to_bytes()


def test_the_stated_error_is_the_librarys() -> None:
    for k in (8, 200, 4096):
        for of_range in (False, True):
            stated = datasketches.kll_doubles_sketch.get_normalized_rank_error(k, of_range)
            assert rank_error(k, of_range) == pytest.approx(stated, rel=0.01)


def test_values_without_order_are_left_out() -> None:
    assert made(np.array([np.nan, 1.0, -0.0, np.inf]), 8).n == 3
    with pytest.raises(InvalidValue, match="have ordered values"):
        made(np.array([np.nan]), 8).quantiles([0.5])


@pytest.mark.parametrize("seed", range(4))
def test_changed_bytes_are_read_or_refused(seed: int) -> None:
    rng = np.random.default_rng(seed)
    payload = made(rng.normal(size=500), 32).to_bytes()
    for _ in range(300):
        data = bytearray(payload)
        for _ in range(rng.integers(1, 4)):
            data[rng.integers(len(data))] = rng.integers(256)
        cut = bytes(data[: rng.integers(len(data) + 1)]) if rng.random() < 0.3 else bytes(data)
        try:
            found = Kll.from_native(cut, ["double", "integer"][: rng.integers(3)])
            assert found.n >= 0
        except InvalidValue:
            continue


def test_what_is_merged_is_as_sure_as_its_coarser_part_and_what_was_never_compacted_is_exact() -> None:
    coarse, fine, exact = made(np.arange(500), 8), made(np.arange(500), 64), made(np.arange(5), 8)
    assert exact.error() == 0.0
    for one, other in ((coarse, fine), (fine, coarse)):
        both = one.merge(other)
        assert both.parameters.k == 8
        assert both.error() == rank_error(8) * 1000
    assert coarse.merge(exact).error() == rank_error(8) * 500


def test_integers_and_doubles_do_not_merge_and_zeros_are_one() -> None:
    with pytest.raises(InvalidValue, match="quantiles"):
        made([1], 8, integers=True).merge(made([1.0], 8))
    assert made([-0.0], 8).to_bytes() == made([0.0], 8).to_bytes()


def test_ends_are_those_of_all_that_came_in_whatever_order() -> None:
    sketch = Kll(KllParameters(8))
    for value in (5.0, 9.0, 1.0, 4.0):
        assert sketch.update([value]).n
    assert (sketch.least, sketch.greatest) == (1.0, 9.0)


def test_more_items_than_a_sketch_has_room_for_are_written_as_many_as_it_has() -> None:
    found = Kll.from_native(Kll(KllParameters(8)).update(np.arange(1000.0)).to_bytes())
    assert (found.n, found.quantiles([0.0, 1.0]).tolist()) == (1000, [0.0, 999.0])


def test_of_two_that_are_merged_the_one_that_knows_its_type_tells_it() -> None:
    named, unnamed = made([1.0, 2.0], 8), made([3.0], 8)
    named.context = {"attributes": ["temp"], "types": ["double"]}
    for both in (named.merge(unnamed), unnamed.merge(named)):
        assert both.context == named.context
