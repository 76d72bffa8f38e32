"""Payloads whose digest is right and whose content is not: each is one named refusal, before memory is asked for."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.alternating_bloom import AlternatingBloom, AlternatingBloomParameters
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.query import read_sketch

KEYS = np.arange(200, dtype=np.uint64) % np.uint64(31)


def signed(header: Any, body: bytes) -> bytes:
    """A payload as anybody may make one."""
    told = header if isinstance(header, bytes) else json.dumps(header).encode()
    whole = struct.pack("<8sHI", b"SPLWSKCH", 1, len(told)) + told + body
    return whole + hashlib.blake2b(whole, digest_size=16).digest()


def opened(payload: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a payload and the rest, to be changed."""
    size = struct.unpack_from("<I", payload, 10)[0]
    return json.loads(payload[14 : 14 + size]), payload[14 + size : -16]


def count_min() -> bytes:
    return CountMin(CountMinParameters(32, 3, 11)).update(KEYS).to_bytes()


def pairs(width: int) -> bytes:
    sketch = PairCount(PairCountParameters(4, 2, 0.5, 11, width=width))
    return sketch.update(KEYS.reshape(50, 4), np.arange(50)).to_bytes()


def heavy() -> bytes:
    sketch = HeavyHitters(CountMinParameters(32, 3, 11), 0.03).update(KEYS)
    sketch.label(KEYS, [f"key {key}" for key in KEYS])
    return sketch.to_bytes()


def bloom() -> bytes:
    filter_ = AlternatingBloom(AlternatingBloomParameters(256, 3, 40, 11, 2))
    filter_.observe(KEYS)
    return filter_.to_bytes()


def agms() -> bytes:
    return FastAgms(FastAgmsParameters(32, 3, 11)).update(KEYS).to_bytes()


def test_an_array_of_shape_minus_one_does_not_lift_the_limit_on_unpacking() -> None:
    header, _ = opened(count_min())
    header["arrays"] = [["table", "int64", [-1]]]
    with pytest.raises(InvalidValue, match="name each array once, with its type and shape"):
        read_sketch(signed(header, zlib.compress(bytes(1 << 26))))


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    header, _ = opened(count_min())
    header["parameters"]["width"] = 1 << 28
    header["arrays"] = [["table", "int64", [3, 1 << 28]]]
    with pytest.raises(InvalidValue, match="unpack to at most"):
        read_sketch(signed(header, zlib.compress(bytes(1 << 20))))


def test_what_follows_the_counters_is_refused() -> None:
    header, _ = opened(count_min())
    with pytest.raises(InvalidValue, match="hold 768 bytes of counters"):
        read_sketch(signed(header, zlib.compress(bytes(10_000))))


@pytest.mark.parametrize("shards", [2, 4, 1024])
def test_a_filter_with_too_few_element_counters_is_refused(shards: int) -> None:
    header, body = opened(bloom())
    header["parameters"] |= {"shards": shards, "cells": 32 * 65536 // shards}
    header["arrays"] = [["words", "uint64", [65536]], ["turns", "uint64", [2]]]
    body = zlib.compress(bytes(8 * 65536 + 16))
    with pytest.raises(InvalidValue, match="`turns` must be uint64 of"):
        read_sketch(signed(header, body))


def test_counters_of_another_type_are_refused() -> None:
    header, _ = opened(count_min())
    header["arrays"][0][1] = "float64"
    with pytest.raises(InvalidValue, match="`table` must be int64"):
        read_sketch(signed(header, zlib.compress(np.full(96, np.nan).tobytes())))


def test_counters_beyond_the_weight_that_the_header_tells_are_refused() -> None:
    header, _ = opened(count_min())
    header["scalars"] |= {"total": 0, "absolute": 0}
    with pytest.raises(InvalidValue, match="counters of at most 0 a row"):
        read_sketch(signed(header, zlib.compress(np.full(96, 1 << 62).tobytes())))
    header["scalars"] |= {"total": 5, "absolute": 500}
    table = np.zeros((3, 32), dtype=np.int64)
    table[:, 0] = 4
    with pytest.raises(InvalidValue, match="rows that add up to 5"):
        read_sketch(signed(header, zlib.compress(table.tobytes())))


def test_signed_counters_that_could_wrap_are_refused() -> None:
    header, _ = opened(agms())
    with pytest.raises(InvalidValue, match="sum to less than"):
        FastAgms.from_bytes(signed(header, zlib.compress(np.full(96, 1 << 62).tobytes())))


def test_pairs_of_too_many_attributes_are_refused_before_they_are_counted() -> None:
    header, body = opened(pairs(0))
    header["parameters"] |= {"attributes": 16_000, "similarity": 8_000}
    with pytest.raises(InvalidValue, match="give at most 4096 subsets"):
        read_sketch(signed(header, body))


def test_super_values_that_do_not_rise_or_do_not_add_up_are_refused() -> None:
    header = binary.read_header(pairs(0))
    arrays = header.unpack()
    for name, wrong, told in (
        ("values2", arrays["values2"][::-1].copy(), "`values2` must rise"),
        ("counts2", arrays["counts2"] * 2, "`counts2` must sum to"),
        ("counts2", arrays["counts2"] * 0, "`counts2` must hold nothing below 1"),
    ):
        payload = binary.to_payload(header.kind, header.parameters, header.scalars, {**arrays, name: wrong})
        with pytest.raises(InvalidValue, match=told):
            read_sketch(payload)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 7},
        {"kind": "nobody"},
        {"parameters": []},
        {"parameters": {}},
        {"parameters": {"width": 32.0, "depth": 3, "seed": 11, "conservative": False, "hashing": "mix64"}},
        {"parameters": {"width": True, "depth": 3, "seed": 11, "conservative": False, "hashing": "mix64"}},
        {"parameters": {"width": 32, "depth": 3, "seed": -1, "conservative": False, "hashing": "mix64"}},
        {"parameters": {"width": 1 << 40, "depth": 3, "seed": 1, "conservative": False, "hashing": "mix64"}},
        {"scalars": {"total": "200", "updates": 200, "absolute": 200}},
        {"scalars": {"total": 1e400, "updates": 200, "absolute": 200}},
        {"scalars": {"total": 200}},
        {"context": None},
        {"arrays": [["table", "int64"]]},
        {"arrays": [["table", "object", [3, 32]]]},
        {"arrays": [["table", "int64", [3, 32]], ["table", "int64", [3, 32]]]},
        {"arrays": [["table", "int64", [3.0, 32]]]},
        {"arrays": 3},
        {"more": 1},
    ],
    ids=str,
)
def test_a_header_that_says_something_else_is_one_refusal(change: dict[str, Any]) -> None:
    header, body = opened(count_min())
    with pytest.raises(InvalidValue, match="must"):
        read_sketch(signed({**header, **change}, body))


@pytest.mark.parametrize("told", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"1" * 6_000], ids=len)
def test_a_header_that_is_no_header_is_one_refusal(told: bytes) -> None:
    with pytest.raises(InvalidValue, match="must"):
        read_sketch(signed(told, b""))


@pytest.mark.parametrize("made", [count_min, heavy, bloom, agms, lambda: pairs(0), lambda: pairs(16)])
def test_mutations_are_read_or_refused_and_nothing_else(made: Any) -> None:
    """Some hundred of the hundred thousand that `make torture` tries, from the same source."""
    from evidence.torture.payloads import mutations, payload_outcome

    for payload in mutations(made(), seed=7, count=150):
        assert payload_outcome(payload) in ("read", "refused")
