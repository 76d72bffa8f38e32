"""Heavy hitters: complete by CM's guarantee, in any order, in any number of parts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.heavy_hitters import HeavyHitters

STREAM = st.lists(st.integers(0, 25), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(STREAM, st.sampled_from([0.02, 0.1, 0.3]), st.integers(4, 64), st.integers(0, 120), st.booleans())
def test_every_heavy_key_is_found_in_one_part_or_two(
    keys: list[int], share: float, width: int, cut: int, merged: bool
) -> None:
    parameters = CountMinParameters(width, 3, 1)
    stream = np.array(keys, dtype=np.uint64)
    sketch = HeavyHitters(parameters, share).update(stream[:cut])
    if merged:
        sketch = sketch.merge(HeavyHitters(parameters, share).update(stream[cut:]))
    else:
        sketch.update(stream[cut:])
    found = set(sketch.heavy().keys.tolist())
    assert {key for key in keys if keys.count(key) >= share * len(keys)} <= found
    assert sketch.counts.table.tolist() == CountMin(parameters).update(stream).table.tolist()


def test_the_top_ten_of_a_skewed_stream_are_the_top_ten() -> None:
    keys = np.random.default_rng(1).zipf(1.4, 100_000).astype(np.uint64)
    sketch = HeavyHitters(CountMinParameters(2048, 5), 0.001)
    for part in np.array_split(keys, 7):
        sketch.update(part)
    names, counts = np.unique(keys, return_counts=True)
    order = np.argsort(-counts)[:10]
    top = sketch.top(10)
    assert top.keys.tolist() == names[order].tolist()
    assert (np.abs(top.sizes.estimate - counts[order]) <= 60).all()
    assert (top.sizes.low <= counts[order]).all()
    assert (counts[order] <= top.sizes.high).all()


def test_a_stream_of_distinct_keys_does_not_grow_the_candidates() -> None:
    sketch = HeavyHitters(CountMinParameters(4096, 5), 0.01).update(np.arange(200_000, dtype=np.uint64))
    assert sketch.candidates.size == 0
    assert sketch.heavy().keys.size == 0


def test_labels_follow_their_keys_through_merging_and_bytes() -> None:
    parameters = CountMinParameters(64, 3)
    parts = []
    for names in (["JFK", "LGA", "JFK"], ["JFK", "EWR"]):
        keys = np.array([hash_of(name) for name in names], dtype=np.uint64)
        part = HeavyHitters(parameters, 0.3).update(keys)
        part.label(keys, names)
        parts.append(part)
    merged = HeavyHitters.from_bytes(parts[0].merge(parts[1]).to_bytes())
    assert merged.top(1).labels == ("JFK",)
    assert merged.top(1).sizes.estimate.tolist() == [3.0]


def test_what_is_heavy_in_one_part_alone_is_kept_if_it_is_heavy_in_all_and_what_is_not_is_forgotten() -> None:
    parameters = CountMinParameters(1024, 3)
    one = HeavyHitters(parameters, 0.2).update(np.repeat([1, 2, 3], [50, 30, 20]).astype(np.uint64))
    other = HeavyHitters(parameters, 0.3).update(np.repeat([4, 5, 2], [100, 60, 40]).astype(np.uint64))
    for part, keys in ((one, [1, 2, 3]), (other, [4, 5, 2])):
        part.label(np.array(keys, np.uint64), [str(key) for key in keys])
    assert one.candidates.tolist() == [1, 2, 3]
    for both in (one.merge(other), other.merge(one)):
        # of 300, key 4 came 100 times, 2 70 times, and no other as often as a share of 0.3 asks
        assert both.share == 0.3
        assert both.candidates.tolist() == [4]
        assert both.labels == {4: "4"}
    light = HeavyHitters(parameters, 0.2).update(np.repeat([6, 7, 8], 40).astype(np.uint64))
    assert one.merge(light).candidates.tolist() == [1]


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode(), "little") * 0x9E3779B97F4A7C15 % 2**64


def test_weights_count_and_deletions_are_refused() -> None:
    sketch = HeavyHitters(CountMinParameters(64, 3), 0.5)
    sketch.update(np.array([1, 2]), np.array([10, 1]))
    assert sketch.heavy().keys.tolist() == [1]
    with pytest.raises(InvalidValue, match="not be negative"):
        sketch.update(np.array([1]), np.array([-1]))
    with pytest.raises(InvalidValue, match="less than 2\\^62"):
        sketch.update(np.array([1]), np.array([2**62]))


def test_wrong_shares_and_unlike_sketches_are_refused() -> None:
    sketch = HeavyHitters(CountMinParameters(64, 3), 0.1)
    with pytest.raises(InvalidValue, match="between 0 and 1"):
        HeavyHitters(CountMinParameters(64, 3), 1.0)
    with pytest.raises(InvalidValue, match=r"at least the sketch's 0\.1"):
        sketch.heavy(0.05)
    assert sketch.merge(HeavyHitters(CountMinParameters(64, 3), 0.2)).share == 0.2
    with pytest.raises(InvalidValue, match="same parameters and seed"):
        sketch.merge(HeavyHitters(CountMinParameters(32, 3), 0.1))


def test_what_was_counted_exactly_stays_exact_while_all_parts_counted_it() -> None:
    parts = [HeavyHitters(CountMinParameters(4, 1), 0.1).update(np.array([7, 7, 9, 9, 5])) for _ in range(2)]
    parts[0].exact, parts[1].exact = {7: 2, 9: 2}, {7: 2}
    for part in parts:
        part.labels = {7: ["seven"], 9: ["nine"]}
    merged = HeavyHitters.from_bytes(parts[0].merge(parts[1]).to_bytes())
    assert merged.exact == {7: 4}
    sizes = merged.sizes(np.array([7], dtype=np.uint64))
    assert (sizes.estimate[0], sizes.low[0], sizes.high[0]) == (4.0, 4.0, 4.0)
    assert merged.update(np.array([7])).exact == {}, "counts by the table alone are not exact"


def test_a_conservative_table_tracks_too_but_does_not_merge() -> None:
    parameters = CountMinParameters(64, 3, 1, conservative=True)
    keys = np.array([1, 1, 2, 3, 1], dtype=np.uint64)
    sketch = HeavyHitters(parameters, 0.5).update(keys)
    assert sketch.counts.table.tolist() == CountMin(parameters).update(keys).table.tolist()
    assert sketch.heavy().keys.tolist() == [1]
    with pytest.raises(InvalidValue, match="be false to merge"):
        sketch.merge(sketch)
