"""The binary format: read back from files written earlier, and refused when corrupt or foreign."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.sketches.bloom import Bloom, BloomParameters
from evidence.sketches.stable_bloom import StableBloom, StableBloomParameters
from spillway.errors import InvalidValue
from spillway.sketches import binary
from spillway.sketches.alternating_bloom import AlternatingBloom, AlternatingBloomParameters
from spillway.sketches.count_min import CountMin, CountMinParameters
from spillway.sketches.fast_agms import FastAgms, FastAgmsParameters
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.pair_count import PairCount, PairCountParameters

FIXTURES = Path(__file__).parent / "fixtures"
KEYS = (np.arange(200, dtype=np.uint64) ** np.uint64(2)) % np.uint64(61)


def filled(kind: str) -> object:
    """The sketch that each fixture holds; fixtures are written once and never again."""
    if kind == "count_min":
        counts = CountMin(CountMinParameters(32, 3, 11)).update(KEYS)
        counts.context = {"attributes": ["origin"], "types": ["string"], "seed": 11}
        return counts
    if kind == "heavy_hitters":
        sketch = HeavyHitters(CountMinParameters(32, 3, 11), 0.03).update(KEYS)
        sketch.label(KEYS, [f"key {key}" for key in KEYS])
        return sketch
    if kind == "fast_agms":
        return FastAgms(FastAgmsParameters(32, 3, 11)).update(KEYS)
    if kind == "alternating_bloom":
        turns = AlternatingBloom(AlternatingBloomParameters(256, 3, 40, 11, 2))
        turns.observe(KEYS)
        return turns
    if kind in ("stable_bloom", "bloom"):
        stable = StableBloom(StableBloomParameters(256, 2, 3, 9, 11, 2))
        filter_: StableBloom | Bloom = (
            stable if kind == "stable_bloom" else Bloom(BloomParameters(256, 3, 11))
        )
        filter_.observe(KEYS)
        return filter_
    width = 16 if kind == "pair_count_online" else 0
    records = KEYS.reshape(50, 4) % np.uint64(7)
    return PairCount(PairCountParameters(4, 2, 0.5, 11, width=width)).update(records, np.arange(50))


KINDS = {
    "count_min": CountMin,
    "heavy_hitters": HeavyHitters,
    "fast_agms": FastAgms,
    "alternating_bloom": AlternatingBloom,
    "stable_bloom": StableBloom,
    "bloom": Bloom,
    "pair_count": PairCount,
    "pair_count_online": PairCount,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_file_written_by_an_earlier_spillway_reads_back_as_the_sketch_it_was(kind: str) -> None:
    stored = KINDS[kind].from_bytes((FIXTURES / f"{kind}.v1.sketch").read_bytes())  # type: ignore[attr-defined]
    # the arrays, not the compressed bytes: zlib may compress differently one day
    mine, theirs = binary.read_header(stored.to_bytes()), binary.read_header(filled(kind).to_bytes())  # type: ignore[attr-defined]
    for field in ("kind", "parameters", "scalars", "context"):
        assert getattr(mine, field) == getattr(theirs, field)
    for name, array in mine.unpack().items():
        assert array.tolist() == theirs.unpack()[name].tolist()


PAYLOAD = CountMin(CountMinParameters(32, 3, 11)).update(KEYS).to_bytes()


@given(st.integers(0, len(PAYLOAD) - 1), st.integers(1, 255))
def test_any_flipped_byte_is_refused(at: int, flip: int) -> None:
    damaged = bytearray(PAYLOAD)
    damaged[at] ^= flip
    with pytest.raises(InvalidValue, match="must"):
        binary.read_header(bytes(damaged))


@given(st.integers(0, len(PAYLOAD) - 1))
def test_any_cut_file_is_refused(length: int) -> None:
    with pytest.raises(InvalidValue, match=r"whole sketch|match its digest"):
        binary.read_header(PAYLOAD[:length])


@given(st.binary(max_size=200))
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidValue, match="rebuild the sketch"):
        binary.read_header(data)


def resigned(payload: bytes) -> bytes:
    import hashlib

    return payload[:-16] + hashlib.blake2b(payload[:-16], digest_size=16).digest()


def test_a_newer_version_another_kind_and_a_lying_header_are_refused_by_name() -> None:
    newer = bytearray(PAYLOAD)
    struct.pack_into("<H", newer, 8, 2)
    with pytest.raises(InvalidValue, match="`format version` must be 1, got 2"):
        CountMin.from_bytes(resigned(bytes(newer)))
    with pytest.raises(InvalidValue, match="`kind` must be fast_agms, got 'count_min'"):
        FastAgms.from_bytes(PAYLOAD)
    lying = PAYLOAD.replace(b"[3,32]", b"[3,64]")
    with pytest.raises(InvalidValue, match=r"be int64 of \(3, 32\)"):
        CountMin.from_bytes(resigned(lying))


@pytest.mark.parametrize("kind", list(KINDS))
def test_arrays_of_another_shape_than_the_parameters_are_refused(kind: str) -> None:
    header = binary.read_header(filled(kind).to_bytes())  # type: ignore[attr-defined]
    arrays = header.unpack()
    wrong = {name: array[:1] if array.shape[0] > 1 else array[:0] for name, array in arrays.items()}
    payload = binary.to_payload(header.kind, header.parameters, header.scalars, wrong)
    with pytest.raises(InvalidValue):
        KINDS[kind].from_bytes(payload)  # type: ignore[attr-defined]


def test_sketches_of_different_attributes_do_not_merge_though_their_hashes_agree() -> None:
    one, two = (CountMin(CountMinParameters(32, 3, 11)) for _ in range(2))
    one.context, two.context = {"attributes": ["origin"]}, {"attributes": ["dest"]}
    with pytest.raises(InvalidValue, match=r"'origin'.*'dest'"):
        one.merge(two)
