"""The stable Bloom filter: golden traces, the packed loop against Algorithm 1, its rates, its state."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sketches import reference

from evidence.sketches import stable_bloom_theory as theory
from evidence.sketches.stable_bloom import StableBloom, StableBloomParameters, choose, draws, step
from spillway.errors import InvalidValue

SBF = json.loads((Path(__file__).parents[1] / "golden" / "004_sbf.json").read_text())


@pytest.mark.parametrize("name", ["trace_Max1", "trace_Max3"])
def test_the_golden_traces_are_followed_step_by_step(name: str) -> None:
    trace = SBF[name]
    cells = np.zeros(trace["m"], dtype=np.uint8)
    for golden in trace["steps"]:
        probed, decremented = (np.array(golden[field], dtype=np.uint64) for field in ("cells", "decrement"))
        assert step(cells, probed, decremented, trace["Max"]) == golden["duplicate"]
        assert cells.tolist() == golden["after"]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 30), max_size=60),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 70),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 2**64 - 1),
)
def test_the_packed_loop_is_algorithm_1_on_plain_cells(
    keys: list[int], bits: int, hashes: int, decrements: int, shards: int, seed: int
) -> None:
    per_shard = 128
    sketch = StableBloom(StableBloomParameters(per_shard * shards, bits, hashes, decrements, seed, shards))
    stream = np.array(keys, dtype=np.uint64)
    cells = [[0] * per_shard for _ in range(shards)]
    seen = [0] * shards
    expected = []
    for key, shard in zip(stream, sketch.shard_of(stream).tolist(), strict=True):
        probed = np.empty(hashes, dtype=np.uint64)
        start = draws(key, np.uint64(seen[shard]), shard, sketch.seeds, hashes, per_shard, probed)
        neighbours = [(start + offset) % per_shard for offset in range(decrements)]
        top = sketch.parameters.top
        expected.append(reference.stable_bloom(cells[shard], top, probed.tolist(), neighbours))
        seen[shard] += 1
    assert sketch.observe(stream).tolist() == expected
    assert sketch.cells().tolist() == [value for shard in cells for value in shard]
    assert sketch.elements.tolist() == seen


def test_batches_continue_where_the_last_one_ended() -> None:
    keys = np.random.default_rng(1).integers(0, 5000, 20_000).astype(np.uint64)
    parameters = choose(8192, 0.05, seed=3, shards=2)
    whole = StableBloom(parameters).observe(keys)
    first = StableBloom(parameters)
    parts = [first.observe(keys[:7001])]
    second = StableBloom.from_bytes(first.to_bytes())
    assert second.digest() == first.digest()
    parts.append(second.observe(keys[7001:]))
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_shards_worked_on_apart_give_the_filter_worked_on_at_once() -> None:
    keys = np.random.default_rng(2).integers(0, 3000, 20_000).astype(np.uint64)
    parameters = choose(8192, 0.05, seed=3, shards=4)
    whole = StableBloom(parameters)
    together = whole.observe(keys)
    gathered = StableBloom(parameters)
    verdicts = np.empty(keys.size, dtype=np.bool_)
    for shard in (2, 0, 3, 1):
        worker = StableBloom(parameters)
        mine = worker.shard_of(keys) == shard
        verdicts[mine] = worker.observe(keys[mine])
        gathered.absorb_shards(worker, [shard])
    assert verdicts.tolist() == together.tolist()
    assert gathered.to_bytes() == whole.to_bytes()
    with pytest.raises(InvalidValue, match="use one filter"):
        gathered.absorb_shards(StableBloom(choose(8192, 0.05, seed=4, shards=4)), [0])


@pytest.mark.parametrize(("rate", "gaps"), [(0.1, None), (0.01, None), (0.05, [(50.0, 1.0)])])
def test_on_distinct_elements_the_false_positive_rate_reaches_its_bound_and_stays_under(
    rate: float, gaps: list[tuple[float, float]] | None
) -> None:
    parameters = choose(1 << 14, rate, gaps)
    sketch = StableBloom(parameters)
    sketch.observe(np.arange(200_000, dtype=np.uint64))
    stable = sketch.observe(np.arange(200_000, 600_000, dtype=np.uint64)).mean()
    bound = parameters.false_positive_bound
    # verdicts close in time share cells; 10 times the binomial deviation of 400,000 covers that
    slack = 10 * np.sqrt(bound * (1 - bound) / 400_000)
    assert bound - slack < stable < bound + slack
    assert bound <= rate
    p = parameters
    expected_zeros = theory.stable_zero_share(p.cells, p.hashes, p.decrements, p.top)
    # 16,384 cells: one reading of the share deviates by at most 0.5/sqrt(5,461) a plane-wise cell
    assert sketch.zero_share() == pytest.approx(expected_zeros, abs=4 * 0.5 / np.sqrt(5_461))


@pytest.mark.parametrize("parameters", [(1024, 1, 2, 5), (1024, 2, 4, 31), (1024, 3, 3, 60)])
@pytest.mark.parametrize("gap", [0, 10, 60])
def test_false_negatives_follow_equation_3_18_at_the_number_of_elements_between(
    parameters: tuple[int, int, int, int], gap: int
) -> None:
    sketch = StableBloom(StableBloomParameters(*parameters))
    block = gap + 2
    rounds = 20_000
    keys = np.arange(rounds * block, dtype=np.uint64)
    keys[block - 1 :: block] = keys[0::block]
    verdicts = sketch.observe(keys)
    missed = 1.0 - verdicts[block - 1 :: block].mean()
    p = sketch.parameters
    expected = theory.false_negative_rate(gap, p.cells, p.hashes, p.decrements, p.top)
    # 3.18 treats a key's cells as independent; neighbours are decremented together, worth under 1 % absolute
    assert abs(missed - expected) < 0.01 + 4 * np.sqrt(expected * (1 - expected) / rounds)
    if gap == 0:
        assert missed == 0.0


def test_parameters_are_those_of_the_texts_observation() -> None:
    chosen = {rate: choose(10**7, rate) for rate in (0.2, 0.1, 0.01)}
    golden = {(o["FPS"], o["Max"]): o["K"] for o in SBF["optimal_K_in_text"]}
    assert str(chosen[0.2].hashes) in golden[(0.2, 1)]
    assert str(chosen[0.1].hashes) in golden[(0.1, 1)]
    assert str(chosen[0.01].hashes) in golden[(0.01, 1)]
    assert all(p.bits == 1 and p.false_positive_bound <= rate for rate, p in chosen.items())


def test_short_gaps_ask_for_more_bits_a_cell_and_long_ones_for_one() -> None:
    assert choose(1 << 16, 0.01, [(20.0, 1.0)]).bits > choose(1 << 16, 0.01, [(20_000.0, 1.0)]).bits == 1


def test_too_little_memory_is_refused_with_what_is_needed() -> None:
    with pytest.raises(InvalidValue, match="at least 64 bits") as refusal:
        choose(32, 0.1)
    assert "32 bits" in str(refusal.value)
    assert choose(64, 0.1).cells == 64
    with pytest.raises(InvalidValue, match="at least 256 bits"):
        choose(128, 0.1, shards=4)


def test_filters_do_not_merge_and_say_why() -> None:
    sketch = StableBloom(choose(4096, 0.1))
    with pytest.raises(InvalidValue, match="depend on the order"):
        sketch.merge(StableBloom(choose(4096, 0.1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((100, 1, 2, 4), "multiple of 64"),
        ((128, 1, 2, 4, 1, 3), "each of 3 shards"),
        ((128, 9, 2, 4), "from 1 to 8"),
        ((64, 1, 64, 4), "from 1 to 63"),
        ((64, 1, 2, 65), "from 0 to 64"),
    ],
)
def test_impossible_filters_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        StableBloomParameters(*arguments)
    with pytest.raises(InvalidValue, match="between 0 and 1"):
        choose(4096, 1.0)


def test_no_elements_change_nothing() -> None:
    sketch = StableBloom(choose(4096, 0.1))
    before = sketch.to_bytes()
    assert sketch.observe(np.empty(0, dtype=np.uint64)).size == 0
    assert sketch.to_bytes() == before
