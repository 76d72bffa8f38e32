"""The extended Hamming code against Appendix A, all errors of its word, and an oracle by counting."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.errors import InvalidValue
from spillway.records.parity import (
    bits_of,
    check_tuples,
    check_words,
    encode_tuples,
    encode_words,
    merge_parity,
    parity_bits,
    parity_of_tuples,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "000_hamming.json").read_text())


def text_of(bits: np.ndarray) -> str:
    return "".join(map(str, bits))


def slow_parities(data: str) -> str:
    """Appendix A by hand: lay out the word, then count the ones each parity bit checks."""
    word: list[int] = []
    rest = [int(bit) for bit in data]
    while rest:
        word.append(0 if (len(word) + 1) & len(word) == 0 else rest.pop(0))
    for place in range(1, len(word) + 1):
        if place & (place - 1) == 0:
            word[place - 1] = sum(word[k - 1] for k in range(1, len(word) + 1) if k & place) % 2
    return "".join(map(str, word))


def test_appendix_a_reproduces_bit_for_bit() -> None:
    assert text_of(encode_words(bits_of(GOLDEN["data"]), extended=False)) == GOLDEN["table_A1_codeword"]
    for table in ("table_A2", "table_A3"):
        checked = check_words(bits_of(GOLDEN[table]["received"]), extended=False)
        assert int(checked.position) == GOLDEN[table]["error_position"]
        assert text_of(checked.data) == GOLDEN["data"]


@pytest.mark.parametrize("error", GOLDEN["all_single_errors"], ids=lambda e: str(e["flipped"]))
def test_every_single_error_of_the_sample_word_is_corrected(error: dict[str, object]) -> None:
    checked = check_words(bits_of(str(error["word"])), extended=False)
    assert int(checked.position) == error["syndrome"] == error["flipped"]
    assert text_of(checked.data) == error["decoded"]


def test_plain_hamming_miscorrects_39_of_55_double_errors_and_the_extended_code_none() -> None:
    plain = encode_words(bits_of(GOLDEN["data"]), extended=False)
    extended = encode_words(bits_of(GOLDEN["data"]))
    lost = miscorrected = 0
    for error in GOLDEN["double_errors"]:
        flips = np.array(error["flipped"]) - 1
        word = plain.copy()
        word[flips] ^= 1
        checked = check_words(word, extended=False)
        assert bool(checked.uncorrectable) == error["outcome"].startswith("uncorrectable")
        lost += bool(checked.uncorrectable)
        miscorrected += bool(checked.corrected)
        word = extended.copy()
        word[flips] ^= 1
        assert bool(check_words(word).uncorrectable)
    counts = GOLDEN["double_error_counts"]
    assert (lost, miscorrected) == (counts["uncorrectable"], counts["miscorrected"])


@settings(max_examples=40, deadline=None)
@given(st.text("01", min_size=1, max_size=70), st.data())
def test_words_of_any_length_equal_the_count_by_hand_and_survive_what_they_promise(
    data: str, draw: st.DataObject
) -> None:
    word = encode_words(bits_of(data))
    by_hand = slow_parities(data)
    assert text_of(word) == by_hand + str(by_hand.count("1") % 2)
    assert len(word) == len(data) + parity_bits(len(data)) + 1
    one = draw.draw(st.integers(0, len(word) - 1))
    damaged = word.copy()
    damaged[one] ^= 1
    checked = check_words(damaged)
    assert text_of(checked.data) == data
    assert checked.corrected
    assert int(checked.position) == one + 1
    two = draw.draw(st.integers(0, len(word) - 1).filter(lambda k: k != one))
    damaged[two] ^= 1
    assert check_words(damaged).uncorrectable


def test_arrays_of_words_are_checked_as_each_word_alone() -> None:
    rng = np.random.default_rng(1)
    words = encode_words(rng.integers(0, 2, (50, 33), dtype=np.uint8))
    words ^= rng.random(words.shape) < 0.03
    together = check_words(words)
    for k, word in enumerate(words):
        alone = check_words(word)
        assert (together.data[k] == alone.data).all()
        assert together.corrected[k] == alone.corrected
        assert together.uncorrectable[k] == alone.uncorrectable


@pytest.mark.parametrize("size", [1, 3, 8, 71])
def test_packed_tuples_come_back_from_every_single_flip_and_fail_on_every_double_one(size: int) -> None:
    tuples = np.random.default_rng(size).integers(0, 256, (1, size), dtype=np.uint8)
    bits = np.unpackbits(encode_tuples(tuples), axis=-1)
    single = np.repeat(bits, bits.shape[1], axis=0) ^ np.eye(bits.shape[1], dtype=np.uint8)
    checked = check_tuples(np.packbits(single, axis=-1))
    assert (checked.tuples == tuples).all()
    assert checked.corrected.all()
    assert not checked.uncorrectable.any()
    pairs = np.array(list(combinations(range(bits.shape[1]), 2))[:4000])
    double = np.repeat(bits, len(pairs), axis=0)
    double[np.arange(len(pairs))[:, None], pairs] ^= 1
    assert check_tuples(np.packbits(double, axis=-1)).uncorrectable.all()


def test_parity_beside_the_tuple_makes_the_same_word() -> None:
    tuples = np.random.default_rng(5).integers(0, 256, (20, 9), dtype=np.uint8)
    assert (merge_parity(tuples, parity_of_tuples(tuples)) == encode_tuples(tuples)).all()
    with pytest.raises(InvalidValue, match="`parity` must hold 8 bits"):
        merge_parity(tuples, np.zeros((20, 2), dtype=np.uint8))


def test_words_that_are_no_words_are_refused() -> None:
    with pytest.raises(InvalidValue, match="must have a number of bits that the code makes, got 8"):
        check_words(np.zeros(9, dtype=np.uint8))
    with pytest.raises(InvalidValue, match="have a number of bytes that the code makes, got 1"):
        check_tuples(np.zeros((4, 1), dtype=np.uint8))
    with pytest.raises(InvalidValue, match="`data` must hold bits, got 7"):
        encode_words(np.array([7], dtype=np.uint8))
    with pytest.raises(InvalidValue, match="zeros and ones only"):
        bits_of("012")
    with pytest.raises(InvalidValue, match="`data_bits` must be positive"):
        parity_bits(0)
