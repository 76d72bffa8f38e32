"""Two filters that take turns forget nothing within their reach, and take few new keys for old."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.sketches.alternating_bloom import (
    AlternatingBloom,
    AlternatingBloomParameters,
    parameters_for,
    parameters_of_memory,
)
from spillway.sketches.hashing import row_seeds
from spillway.sketches.kernels import mix64


def cells_of(key: int, p: AlternatingBloomParameters) -> list[int]:
    """The K cells of a key by the definition."""
    one, two = (int(mix64(np.uint64(key), seed)) for seed in row_seeds(p.seed, 2, purpose=8))
    found = []
    for probe in range(p.hashes):
        found.append(((one >> 32) * p.cells) >> 32)
        one, two = (one + two) % 2**64, (two + probe + 1) % 2**64
    return found


def by_definition(keys: list[int], p: AlternatingBloomParameters) -> list[bool]:
    active: set[int] = set()
    other: set[int] = set()
    count, found = 0, []
    for key in keys:
        cells = set(cells_of(key, p))
        found.append(cells <= active or cells <= other)
        if not cells <= active:
            if count == p.capacity:
                active, other, count = set(), active, 0
            active |= cells
            count += 1
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 60), max_size=200), st.integers(1, 4), st.integers(1, 30), st.integers(0, 5))
def test_it_is_what_is_defined(keys: list[int], hashes: int, capacity: int, seed: int) -> None:
    p = AlternatingBloomParameters(128, hashes, capacity, seed)
    assert AlternatingBloom(p).observe(np.array(keys, np.uint64)).tolist() == by_definition(keys, p)


@pytest.mark.parametrize("capacity", [1, 2, 7, 20])
def test_it_is_what_is_defined_over_many_turns(capacity: int) -> None:
    keys = np.random.default_rng(capacity).integers(0, 60, 2000)
    p = AlternatingBloomParameters(1024, 4, capacity, 3)
    sketch = AlternatingBloom(p)
    assert sketch.observe(keys.astype(np.uint64)).tolist() == by_definition(keys.tolist(), p)
    assert 1 <= sketch.turns[1] <= capacity


@pytest.mark.parametrize("shards", [1, 4])
def test_nothing_is_forgotten_within_reach(shards: int) -> None:
    """Keys that come again after exactly as many others as are promised, between new ones and repeats."""
    within = 3000
    sketch = AlternatingBloom(parameters_for(within, 0.01, seed=3, shards=shards))
    keys = np.arange(60_000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys[within::7] = keys[: keys.size - within : 7]
    missed = ~sketch.observe(keys)[within::7]
    assert not missed.any()


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
def test_new_keys_are_rarely_taken_for_old(rate: float) -> None:
    p = parameters_for(2000, rate, seed=5)
    found = AlternatingBloom(p).observe(np.arange(400_000, dtype=np.uint64))[4000:]
    # four standard errors; a filter's cells are shared by its keys, so that draws are not quite independent
    slack = 4 * math.sqrt(rate / found.size) + 0.1 * rate
    assert 0.2 * rate < found.mean() <= p.false_positive_bound + slack
    assert p.false_positive_bound <= rate


def test_shards_may_be_worked_on_apart_and_a_look_takes_nothing_in() -> None:
    p = parameters_for(500, 0.05, shards=3)
    keys = np.random.default_rng(2).integers(0, 900, 4000).astype(np.uint64)
    whole, gathered = AlternatingBloom(p), AlternatingBloom(p)
    found = whole.observe(keys)
    for shard in range(3):
        worker = AlternatingBloom(p)
        mine = worker.shard_of(keys) == shard
        assert (worker.observe(keys[mine]) == found[mine]).all()
        gathered.absorb_shards(worker, [shard])
    assert gathered.to_bytes() == whole.to_bytes()
    assert whole.holds(keys[-200:]).all()
    assert gathered.to_bytes() == whole.to_bytes()
    with pytest.raises(InvalidValue, match="come from a filter of"):
        gathered.absorb_shards(AlternatingBloom(parameters_for(500, 0.05)), [0])


def test_memory_follows_from_reach_and_reach_from_memory() -> None:
    for within, rate in ((1000, 0.01), (50_000, 0.2)):
        p = parameters_for(within, rate)
        assert parameters_of_memory(p.memory_bits, rate).capacity == pytest.approx(within, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((65, 3, 10), "`cells` must be a multiple of 64"),
        ((64, 17, 10), "`hashes` must lie from 1 to 16"),
        ((64, 3, 0), "`capacity` must be at least 1"),
        ((64, 3, 1, 1, 0), "`shards` must lie from 1"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        AlternatingBloomParameters(*arguments)


def test_a_payload_whose_turns_cannot_be_is_refused() -> None:
    sketch = AlternatingBloom(AlternatingBloomParameters(64, 2, 5))
    for turns in ([2, 0], [0, 6]):
        sketch.turns[:] = turns
        with pytest.raises(InvalidValue, match="name one of two filters, with at most 5 keys"):
            AlternatingBloom.from_bytes(sketch.to_bytes())
