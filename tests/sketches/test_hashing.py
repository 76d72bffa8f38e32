"""Keys carry type, null and seed; mixing is a seeded bijection."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from tests.sketches import reference

from spillway.errors import InvalidValue
from spillway.sketches.hashing import (
    as_keys,
    bucket_of_mixed,
    fingerprint,
    key_header,
    mix,
    row_seeds,
    spark_factors,
    xxhash64_bytes,
    xxhash64_int,
    xxhash64_long,
)
from spillway.sketches.kernels import bucket, mix64, xxhash64_key


def test_mix64_is_the_finaliser_written_out() -> None:
    for key in (0, 1, 2**63, 2**64 - 1, 123456789):
        for seed in (0, 7, 2**64 - 1):
            assert int(mix64(np.uint64(key), np.uint64(seed))) == reference.mix(key, seed)


def test_what_asks_hashes_as_the_kernels_that_count_do() -> None:
    keys = np.random.default_rng(2).integers(0, 2**64, 300, dtype=np.uint64, endpoint=False)
    keys[:3] = 0, 2**63, 2**64 - 1
    for seed in map(np.uint64, (0, 7, 2**64 - 1)):
        assert mix(keys, seed).tolist() == [int(mix64(key, seed)) for key in keys]
        for width in map(np.uint64, (2, 1000, 2**31 - 1)):
            found = bucket_of_mixed(mix(keys, seed), width).tolist()
            assert found == [int(bucket(key, seed, width)) for key in keys]


def test_every_input_bit_reaches_every_output_bit_about_half_the_time() -> None:
    rng = np.random.default_rng(1)
    flips = np.zeros((64, 64))
    keys = rng.integers(0, 2**63, 400, dtype=np.uint64)
    for key in keys:
        base = int(mix64(key, np.uint64(3)))
        for bit in range(64):
            moved = base ^ int(mix64(key ^ np.uint64(1 << bit), np.uint64(3)))
            flips[bit] += [(moved >> out) & 1 for out in range(64)]
    # binomial(400, 1/2): sd 10; 4096 cells stay within 5.5 sd with probability above 0.999
    assert np.abs(flips - 200).max() < 55


def test_xxhash64_gives_the_published_vectors() -> None:
    assert xxhash64_bytes(b"", 0) == 0xEF46DB3751D8E999
    assert xxhash64_bytes(b"abc", 0) == 0x44BC2CF5AD770999
    # the Spark SQL reference: xxhash64('Spark') and xxhash64('Spark', array(123), 2), a chain through the seed
    alone = xxhash64_bytes(b"Spark", 42)
    assert alone - 2**64 == -4294468057691064905
    assert xxhash64_int(2, xxhash64_int(123, alone)) == 5602566077635097486


def test_type_null_and_seed_are_part_of_the_key() -> None:
    noon = datetime.datetime(2013, 1, 1, 12)
    keys = [
        fingerprint([1], ["integer"], 0),
        fingerprint([1], ["integer"], 1),
        fingerprint([1.0], ["double"], 0),
        fingerprint(["1"], ["string"], 0),
        fingerprint([True], ["boolean"], 0),
        fingerprint([None], ["integer"], 0),
        fingerprint([None], ["string"], 0),
        fingerprint([""], ["string"], 0),
        fingerprint([None, ""], ["string", "string"], 0),
        fingerprint(["", None], ["string", "string"], 0),
        fingerprint([None, None], ["string", "string"], 0),
        fingerprint([noon], ["timestamp"], 0),
        fingerprint([noon.date()], ["date"], 0),
        fingerprint([2**63 - 1], ["integer"], 0),
        fingerprint([-(2**63)], ["integer"], 0),
    ]
    assert len(set(keys)) == len(keys)


def test_minus_zero_and_every_nan_are_one_key_each() -> None:
    assert fingerprint([-0.0], ["double"], 0) == fingerprint([0.0], ["double"], 0)
    assert fingerprint([float("nan")], ["double"], 0) == fingerprint([-float("nan")], ["double"], 0)


@pytest.mark.parametrize(
    ("value", "kind"),
    [("1", "integer"), (1, "string"), (2**63, "integer"), (1.5, "integer"), (True, "integer"), (1, "date")],
)
def test_a_key_of_another_type_is_refused(value: object, kind: str) -> None:
    with pytest.raises(InvalidValue, match=f"be a {kind}"):
        fingerprint([value], [kind], 0)


def test_unknown_types_seeds_and_shapes_are_refused() -> None:
    with pytest.raises(InvalidValue, match="be one of string"):
        key_header(["decimal"], 0)
    with pytest.raises(InvalidValue, match="from 0 to 2\\^64 - 1"):
        row_seeds(-1, 1)
    with pytest.raises(InvalidValue, match="have 2 values"):
        fingerprint([1], ["integer", "integer"], 0)
    with pytest.raises(InvalidValue, match="64-bit hashes"):
        as_keys(["JFK"])
    with pytest.raises(InvalidValue, match="1 to 63"):
        key_header([], 0)


def test_signed_hashes_keep_their_bits_and_nothing_is_nothing() -> None:
    assert as_keys(np.array([-1], dtype=np.int64)).tolist() == [2**64 - 1]
    assert as_keys([]).size == 0


def test_the_compiled_xxhash64_is_the_plain_one() -> None:
    for key in (0, 1, 2**63, 2**64 - 1, 987654321):
        assert int(xxhash64_key(np.uint64(key))) == xxhash64_long(key)


def test_spark_factors_are_javas_random_numbers() -> None:
    # new java.util.Random(42).nextInt() begins -1170105035, 234785527; nextInt(2^31 - 1) is the upper 31 bits
    assert spark_factors(42, 2).tolist() == [(2**32 - 1170105035) >> 1, 234785527 >> 1]
