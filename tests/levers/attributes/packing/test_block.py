from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.levers.attributes.synopsis.synopsis_reference import columns

from spillway.errors import InvalidValue
from spillway.levers.attributes.columns import Column, Frame
from spillway.levers.attributes.packing.block import CODED, COLUMNS, KEYED, KEYED_LISTED, LISTED, pack, unpack
from spillway.levers.attributes.packing.whole_numbers import BITS, WholeForm, decimals_of
from spillway.levers.attributes.synopsis.entries import Entries, shed
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Predictor
from spillway.levers.attributes.training.candidates import estimated_bytes

# A block written by format version 2: it must stay readable for as long as version 2 is.
FIXED = bytes.fromhex("5350027447cbc5010005d00f020307603e27ef8c9cd81f")
ENCODING_AT = 7


@st.composite
def entry_lists(draw):
    """Entries of any kind, with and without steps, close together and far apart."""
    kind = draw(st.sampled_from(["real", "integer", "text"]))
    n = draw(st.integers(0, 20))
    gaps = draw(st.lists(st.integers(1, 3) | st.integers(1, 2**40), min_size=n, max_size=n))
    seq = draw(st.integers(-(2**40), 2**40)) + np.cumsum(np.array(gaps, np.int64), dtype=np.int64)
    may_step = kind != "text"
    is_step = np.array(
        draw(st.lists(st.booleans() if may_step else st.just(False), min_size=n, max_size=n)), bool
    )
    sizes = st.integers(-3, 3) | st.integers(-(2**40), 2**40)
    steps = np.where(is_step, np.array(draw(st.lists(sizes, min_size=n, max_size=n)), np.int64), 0)
    return Entries(seq, is_step, steps, draw(columns(kind, n)).hide(is_step))


def assert_same(got, wanted):
    assert got.seq.tolist() == wanted.seq.tolist()
    assert got.is_step.tolist() == wanted.is_step.tolist()
    assert got.steps.tolist() == wanted.steps.tolist()
    assert got.values.kind == wanted.values.kind
    assert got.values.same(wanted.values).all()


def stream(rows=3000, keys=7, seed=5):
    rng = np.random.default_rng(seed)
    values = np.round(50 + np.cumsum(rng.normal(0, 1, (rows // keys + 1, keys)), 0).ravel()[:rows], 2)
    return Frame(np.arange(rows) + 100, np.arange(rows) % keys, {"a": Column.real(values)})


@settings(max_examples=150, deadline=None)
@given(entry_lists())
def test_a_block_gives_its_entries_back(entries):
    assert_same(unpack(pack(entries)), entries)


@settings(max_examples=100, deadline=None)
@given(entry_lists(), st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(1, 3))
def test_a_block_gives_its_entries_back_to_whoever_has_the_rows(entries, keys, gap):
    frame = around(entries, keys, gap)
    assert_same(unpack(pack(entries, frame), frame), entries)


@settings(max_examples=100, deadline=None)
@given(entry_lists(), st.lists(st.integers(0, 5), min_size=1, max_size=9), st.integers(0, 40))
def test_with_the_last_rows_missing_the_entries_of_the_others_come_back(entries, keys, kept):
    frame = around(entries, keys, 1)
    block, first = pack(entries, frame), frame.rows(0, kept)
    if block[ENCODING_AT] != COLUMNS and len(entries):
        assert_same(unpack(block, first), entries.take(entries.seq <= first.seq.max(initial=-(2**62))))


def around(entries, keys, gap):
    """A frame with rows at every entry and some between."""
    seq = np.unique(np.concatenate([entries.seq, entries.seq + gap, entries.seq - 1]))
    return Frame(seq, np.resize(np.array(keys), len(seq)), {})


def test_the_same_entries_always_make_the_same_bytes():
    frame = stream()
    model = AttributeModel("a", "real", 3.0)
    entries = shed(model, frame, np.ones(len(frame), bool)).entries
    assert pack(entries, frame) == pack(unpack(pack(entries, frame), frame), frame)


def test_every_encoding_is_used_where_it_is_smallest():
    frame = stream()
    everything = np.ones(len(frame), bool)
    dense = shed(AttributeModel("a", "real", 3.0), frame, everything).entries
    codes = Column.real(np.array([3.5, 7.25, 1e6])[np.random.default_rng(0).integers(0, 3, 3000)])
    few = Entries.of_values(frame.seq, codes)
    far = Entries.of_values(np.array([1, 2**50]), Column.real([1.0, 2.0]))
    assert pack(dense)[ENCODING_AT] == CODED
    assert pack(few)[ENCODING_AT] == LISTED
    assert pack(far)[ENCODING_AT] == COLUMNS
    assert pack(dense, frame)[ENCODING_AT] == KEYED
    assert pack(few, frame)[ENCODING_AT] == KEYED_LISTED
    for entries in (dense, few, far):
        assert_same(unpack(pack(entries)), entries)


def test_coding_in_the_context_of_the_key_beats_compressed_columns():
    frame = stream()
    entries = shed(AttributeModel("a", "real", 3.0), frame, np.ones(len(frame), bool)).entries
    plain = np.concatenate([entries.seq, entries.values.values.view(np.int64)]).tobytes()
    assert len(pack(entries, frame)) < 0.5 * len(zlib.compress(plain, 9))
    assert len(pack(entries, frame)) < len(pack(entries))


def test_keys_in_no_order_cost_no_more_than_keys_in_turn():
    """The same values per key, arriving in turn and at random."""
    rng = np.random.default_rng(2)
    sizes = []
    for key in (np.arange(6000) % 30, rng.permutation(np.arange(6000) % 30)):
        level = 100.0 + key * 10
        values = np.round(level + (rng.random(6000) < 0.1 * (key % 5)), 0)
        frame = Frame(np.arange(6000), key, {"a": Column.real(values)})
        sizes.append(
            len(pack(shed(AttributeModel("a", "real", 0.1), frame, np.ones(6000, bool)).entries, frame))
        )
    assert sizes[1] < 1.1 * sizes[0]


def test_a_keyed_block_without_its_rows_is_refused_by_name():
    frame = stream()
    block = pack(shed(AttributeModel("a", "real", 3.0), frame, np.ones(len(frame), bool)).entries, frame)
    with pytest.raises(InvalidValue, match="hold the rows that the block was packed with"):
        unpack(block)
    with pytest.raises(InvalidValue, match="hold the row of seq 100, got 101"):
        unpack(block, frame.rows(1))


@pytest.mark.parametrize("step_pct", [1.0, 3.0])
def test_the_estimate_orders_candidates_as_packing_does(step_pct):
    frame = stream()
    sizes = []
    for predictor in (Predictor("previous"), Predictor("any", persistence=0.0)):
        model = AttributeModel(
            "a", "real", 3.0, predictors=(predictor,), precisions=(Precision(1.5, step_pct),)
        )
        result = shed(model, frame, np.ones(len(frame), bool))
        sizes.append((estimated_bytes(frame, result), len(pack(result.entries, frame))))
    (low, packed_low), (high, packed_high) = sizes
    assert low < high
    assert packed_low < packed_high
    assert 0.6 * packed_low < low < 1.7 * packed_low


def test_a_block_from_bytes_fixed_here_reads_as_it_always_did():
    entries = unpack(FIXED)
    assert entries.seq.tolist() == [1000, 1001, 1003, 1004, 1006]
    assert entries.is_step.tolist() == [False, False, True, True, False]
    assert entries.steps.tolist() == [0, 0, 2, -1, 0]
    assert entries.values.to_list() == [29.91, 27.96, None, None, None]


def sealed(block, at, value):
    changed = bytearray(block)
    changed[at] = value
    changed[3:7] = zlib.crc32(bytes(changed[7:])).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize("at", [3, 7, 9, 20, -1])
def test_one_changed_byte_is_noticed(at):
    block = bytearray(FIXED)
    block[at] ^= 1
    with pytest.raises(InvalidValue, match="must match its checksum"):
        unpack(bytes(block))


def test_other_bytes_other_versions_and_other_encodings_are_refused_by_name():
    with pytest.raises(InvalidValue, match="it is no synopsis block"):
        unpack(b"PAR1....")
    with pytest.raises(InvalidValue, match="it is no synopsis block"):
        unpack(b"SP")
    with pytest.raises(InvalidValue, match="`version` must be 2, got 9"):
        unpack(sealed(FIXED, 2, 9))
    with pytest.raises(InvalidValue, match="`encoding` must be 0 to 4, got 77"):
        unpack(sealed(FIXED, ENCODING_AT, 77))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=10))
def test_reals_come_back_from_whole_numbers_bit_for_bit(values):
    array = np.array(values, np.float64)
    form = WholeForm.of("real", array)
    assert (form.values(form.wholes(array)) == array).all()


def test_decimals_are_found_where_there_are_any():
    assert decimals_of(np.array([29.91, 30.0])) == 2
    assert WholeForm.of("real", np.array([0.1 + 0.2])).decimals == BITS
    assert WholeForm.of("real", np.array([350.0, 20.0])) == WholeForm("real", 0, 10)
