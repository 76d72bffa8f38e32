"""Generate hostile sketches: payloads of every kind, changed in bytes, header and counters, and signed again.

A payload must be read, or rejected by name. Any other exception is a fault, as is a read that takes longer than a
second, or more memory than stated. A query also runs on each sketch that was read, because it must not raise either.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from spillway.errors import InvalidValue
from spillway.sketches.alternating_bloom import AlternatingBloom, AlternatingBloomParameters
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount, PairCountParameters
from spillway.sketches.query import read_sketch

READING_SECONDS = 1.0
_FRONT = struct.Struct("<8sHI")
_ODD: tuple[Any, ...] = (
    -1, 0, 1, 2, 63, 64, 65, 1 << 16, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 62) + 1, 1 << 63, -(1 << 63), 1 << 64,
    1 << 400, 0.5, 1.0, 1e308, float("inf"), float("nan"), True, None, "", "spark", "mix64", "count_min", [], [1], {},
    {"1": 1}, [[1, 2], [3]], "9" * 5000,
)  # fmt: skip


def seeds_of_all_kinds() -> dict[str, bytes]:
    """Return a small payload of every kind that the product stores."""
    keys = np.arange(200, dtype=np.uint64) % np.uint64(31)
    heavy = HeavyHitters(CountMinParameters(32, 3, 11), 0.03).update(keys)
    heavy.label(keys, [f"key {key}" for key in keys])
    filter_ = AlternatingBloom(AlternatingBloomParameters(256, 3, 40, 11, 2))
    filter_.observe(keys)
    made = {
        "count_min": CountMin(CountMinParameters(32, 3, 11)).update(keys).to_bytes(),
        "heavy_hitters": heavy.to_bytes(),
        "fast_agms": FastAgms(FastAgmsParameters(32, 3, 11)).update(keys).to_bytes(),
        "alternating_bloom": filter_.to_bytes(),
    }
    for width in (0, 16):
        pairs = PairCount(PairCountParameters(4, 2, 0.5, 11, width=width))
        made[f"pair_count {width}"] = pairs.update(keys.reshape(50, 4), np.arange(50)).to_bytes()
    return made


def mutations(payload: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield `count` changed copies of the payload, most of them with a valid signature."""
    chance = random.Random(seed)
    ways: tuple[Callable[[random.Random, bytes], bytes], ...] = (
        _bytes,
        _header,
        _header,
        _counters,
        _splice,
    )
    for _ in range(count):
        made = payload
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            made = chance.choice(ways)(chance, made)
        yield made


def payload_outcome(payload: bytes) -> str:
    """Return the outcome of a payload: read, rejected, slow, or the name of its exception."""
    began = time.perf_counter()
    try:
        sketch: Any = read_sketch(payload)
        found = "read"
        if isinstance(sketch, AlternatingBloom):
            sketch.observe(np.arange(50, dtype=np.uint64))
        elif isinstance(sketch, PairCount):
            sketch.pairs()
        elif isinstance(sketch, CountMin):
            sketch.point(np.arange(5, dtype=np.uint64))
        elif isinstance(sketch, HeavyHitters):
            sketch.top(3)
        else:
            sketch.self_join_size()
    except InvalidValue:
        found = "refused"
    except Exception as problem:
        return type(problem).__name__
    return "slow" if time.perf_counter() - began > READING_SECONDS else found


def outcomes(count: int, seed: int) -> Counter[str]:
    """Count the outcomes of `count` mutations over all kinds."""
    found: Counter[str] = Counter()
    made = seeds_of_all_kinds()
    for place, (_, payload) in enumerate(sorted(made.items())):
        for mutant in mutations(payload, seed * 100 + place, -(-count // len(made))):
            found[payload_outcome(mutant)] += 1
    return found


def _sign(front: bytes) -> bytes:
    return front + hashlib.blake2b(front, digest_size=16).digest()


def _parts(payload: bytes) -> tuple[Any, bytes]:
    size = _FRONT.unpack_from(payload)[2] if len(payload) >= _FRONT.size else 0
    told, body = payload[_FRONT.size : _FRONT.size + size], payload[_FRONT.size + size : -16]
    try:
        return json.loads(told), body
    except (ValueError, RecursionError):
        return {}, body


def _whole(header: Any, body: bytes) -> bytes:
    told = json.dumps(header).encode()
    return _sign(_FRONT.pack(b"SPLWSKCH", 1, len(told)) + told + body)


def _bytes(chance: random.Random, payload: bytes) -> bytes:
    """Flip, cut or insert bytes; recompute the digest in half of the cases."""
    data = bytearray(payload)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) or 1)
        way = chance.randrange(3)
        if way == 0 and data:
            data[at] ^= chance.randint(1, 255)
        elif way == 1:
            del data[at : at + chance.randint(1, 40)]
        else:
            data[at:at] = chance.randbytes(chance.randint(1, 40))
    return _sign(bytes(data[:-16])) if chance.random() < 0.7 else bytes(data)


def _header(chance: random.Random, payload: bytes) -> bytes:
    """Replace, remove or duplicate one value of the header."""
    header, body = _parts(payload)
    holders = list(_holders(header))
    if not holders:
        return payload
    holder = chance.choice(holders)
    if isinstance(holder, dict):
        name = chance.choice(list(holder))
        if chance.random() < 0.15:
            del holder[name]
        elif chance.random() < 0.1:
            holder[name + "_"] = holder[name]
        else:
            holder[name] = chance.choice(_ODD)
    else:
        at = chance.randrange(len(holder))
        if chance.random() < 0.2:
            holder.append(holder[at])
        else:
            holder[at] = chance.choice(_ODD)
    return _whole(header, body)


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for one in value.values() if isinstance(value, dict) else value:
            yield from _holders(one)


def _counters(chance: random.Random, payload: bytes) -> bytes:
    """Set counters to extremes of their type, or repack them with more or fewer of them."""
    header, body = _parts(payload)
    try:
        raw = bytearray(zlib.decompressobj().decompress(body, 1 << 20))
    except zlib.error:
        return payload
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(max(len(raw) // 8, 1)) * 8
        raw[at : at + 8] = chance.choice(
            (b"\xff" * 8, b"\0" * 8, b"\0" * 7 + b"\x80", b"\xff" * 7 + b"\x7f", chance.randbytes(8))
        )
    if chance.random() < 0.2:
        raw = (
            raw[: chance.randrange(len(raw) or 1)]
            if chance.random() < 0.5
            else raw + bytes(chance.choice((8, 1 << 20)))
        )
    return _whole(header, zlib.compress(bytes(raw), 1))


def _splice(chance: random.Random, payload: bytes) -> bytes:
    """Combine the header of one kind with the counters of another."""
    made = seeds_of_all_kinds()
    other = made[chance.choice(sorted(made))]
    return _whole(_parts(payload)[0], _parts(other)[1])
