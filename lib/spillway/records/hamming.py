"""The extended Hamming code over delivered bytes (Ahuja 2006, section 3.2.1.1 and Appendix A).

The sensor inserts parity bits into each tuple, the receiver corrects one flipped bit and detects two.
Positions count from 1; position 2^i holds parity bit P_{i+1}, which makes the ones at all positions with
bit i set even in number; the check flags, read in reverse, spell the position of the flipped bit.

Plain Hamming cannot tell two flips from one: of the 55 double errors of Appendix A's word 39 are
"corrected" into a third word (errata A28). An overall parity bit behind the word settles it: an odd number
of flips breaks it, two do not. Guarantee: every single error is corrected, every double error detected.

>>> encode_words(bits_of("0110101"), extended=False).tolist() == bits_of("10001100101").tolist()
True
>>> damaged = encode_words(bits_of("0110101"))
>>> damaged[10] ^= 1
>>> checked = check_words(damaged)
>>> "".join(map(str, checked.data)), int(checked.position), bool(checked.corrected)
('0110101', 11, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from spillway.errors import Refused

Bits = npt.NDArray[np.uint8]


def bits_of(text: str) -> Bits:
    """Bits written as text.

    >>> bits_of("011").tolist()
    [0, 1, 1]
    """
    if set(text) - {"0", "1"}:
        raise Refused("text", "hold zeros and ones only", text, "write bits such as 0110")
    return np.array([int(bit) for bit in text], dtype=np.uint8)


def parity_bits(data_bits: int) -> int:
    """Parity bits for so many data bits, the overall one not counted: least r with 2^r >= data + r + 1.

    >>> parity_bits(7), parity_bits(64)
    (4, 7)
    """
    if data_bits < 1:
        raise Refused("data_bits", "be positive", data_bits, "encode at least one bit")
    parity = 1
    while 2**parity < data_bits + parity + 1:
        parity += 1
    return parity


def _data_bits_of_word(word_bits: int) -> int:
    parity = word_bits.bit_length()
    data = word_bits - parity
    if data < 1 or parity_bits(data) != parity:
        raise Refused(
            "words", "have a number of bits that the code makes", word_bits, "encode them with encode_words"
        )
    return data


@lru_cache(maxsize=64)
def _layout(data_bits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Zero-based places of the data bits and of the parity bits."""
    places = np.arange(1, data_bits + parity_bits(data_bits) + 1)
    is_parity = (places & (places - 1)) == 0
    return np.flatnonzero(~is_parity), np.flatnonzero(is_parity)


def _syndrome(words: Bits) -> npt.NDArray[np.int64]:
    """The check flags of each word, read in reverse as a number: one-based position of a single flip."""
    places = np.arange(1, words.shape[-1] + 1)
    syndrome = np.zeros(words.shape[:-1], dtype=np.int64)
    for bit in range(words.shape[-1].bit_length()):
        odd = np.bitwise_xor.reduce(words[..., (places >> bit) & 1 == 1], axis=-1)
        syndrome |= odd.astype(np.int64) << bit
    return syndrome


def encode_words(data: Bits, *, extended: bool = True) -> Bits:
    """Insert parity bits into words of data bits (last axis), the overall parity bit last."""
    data = np.asarray(data, dtype=np.uint8)
    if data.size and data.max() > 1:
        raise Refused("data", "hold bits", int(data.max()), "use encode_tuples for bytes")
    at_data, at_parity = _layout(data.shape[-1])
    words = np.zeros((*data.shape[:-1], len(at_data) + len(at_parity) + extended), dtype=np.uint8)
    words[..., at_data] = data
    plain = words[..., :-1] if extended else words
    syndrome = _syndrome(plain)
    for bit, place in enumerate(at_parity):
        plain[..., place] = syndrome >> bit & 1
    if extended:
        words[..., -1] = np.bitwise_xor.reduce(plain, axis=-1)
    return words


@dataclass(frozen=True)
class CheckedWords:
    """What the receiver makes of words: data, and per word whether it was corrected or is lost."""

    data: Bits
    corrected: npt.NDArray[np.bool_]
    uncorrectable: npt.NDArray[np.bool_]
    position: npt.NDArray[np.int64]
    """One-based position of the flipped bit, the overall parity bit being the last; 0 when none."""


def check_words(words: Bits, *, extended: bool = True) -> CheckedWords:
    """Correct single flips and detect double ones.

    | syndrome | overall parity | meaning |
    | 0 | holds | no error |
    | 0 | broken | the overall parity bit flipped |
    | a position | broken | that bit flipped: corrected |
    | beyond the word | broken | three flips or more: uncorrectable |
    | not 0 | holds | two flips: uncorrectable |

    Without the overall bit (`extended=False`, the text's form) every syndrome within the word is believed.
    """
    words = np.array(words, dtype=np.uint8)
    plain = words[..., :-1] if extended else words
    bits = plain.shape[-1]
    at_data, _ = _layout(_data_bits_of_word(bits))
    syndrome = _syndrome(plain)
    broken = np.bitwise_xor.reduce(words, axis=-1).astype(np.bool_) if extended else np.asarray(syndrome != 0)
    corrected = broken & (syndrome <= bits)
    uncorrectable = (broken & (syndrome > bits)) | (~broken & (syndrome != 0))
    position = np.where(corrected, np.where(syndrome == 0, bits + 1, syndrome), 0)
    plain ^= (np.arange(1, bits + 1) == np.where(corrected, syndrome, 0)[..., None]).astype(np.uint8)
    return CheckedWords(plain[..., at_data], corrected, uncorrectable, position)


def encode_tuples(tuples: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The sensor's side: tuples as rows of bytes, each one data word; zero bits fill the last byte.

    >>> encode_tuples(np.array([[1, 2, 3]], dtype=np.uint8)).shape
    (1, 4)
    """
    return np.packbits(encode_words(np.unpackbits(tuples, axis=-1)), axis=-1)


@dataclass(frozen=True)
class CheckedTuples:
    """A training set after the check."""

    tuples: npt.NDArray[np.uint8]
    corrected: npt.NDArray[np.bool_]
    uncorrectable: npt.NDArray[np.bool_]


def check_tuples(words: npt.NDArray[np.uint8]) -> CheckedTuples:
    """The receiver's side of `encode_tuples`; a flip among the filling zeros is corrected as well.

    A second flip anywhere, the filling included, makes the tuple uncorrectable.
    """
    word_bytes = words.shape[-1]
    data_bytes = next(
        (size for size in range(word_bytes, 0, -1) if _word_bytes(size) == word_bytes),
        0,
    )
    if not data_bytes:
        raise Refused(
            "words", "have a number of bytes that the code makes", word_bytes, "encode with encode_tuples"
        )
    bits = np.unpackbits(words, axis=-1)
    word_bits = 8 * data_bytes + parity_bits(8 * data_bytes) + 1
    checked = check_words(bits[..., :word_bits])
    fill = bits[..., word_bits:].sum(axis=-1)
    one_in_fill = (fill == 1) & ~checked.corrected & ~checked.uncorrectable
    lost = checked.uncorrectable | (fill > 1) | ((fill == 1) & checked.corrected)
    return CheckedTuples(np.packbits(checked.data, axis=-1), (checked.corrected | one_in_fill) & ~lost, lost)


def parity_of_tuples(tuples: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Only the parity bits (overall one last), packed: for formats that carry them in a field of their own.

    >>> parity_of_tuples(np.array([[1, 2, 3]], dtype=np.uint8)).shape
    (1, 1)
    """
    bits = np.unpackbits(tuples, axis=-1)
    _, at_parity = _layout(bits.shape[-1])
    return np.packbits(encode_words(bits)[..., [*at_parity, -1]], axis=-1)


def merge_parity(tuples: npt.NDArray[np.uint8], parity: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The words `encode_tuples` would have sent, from tuples and the parity that came beside them.

    >>> tuples = np.array([[1, 2, 3]], dtype=np.uint8)
    >>> bool((merge_parity(tuples, parity_of_tuples(tuples)) == encode_tuples(tuples)).all())
    True
    """
    bits = np.unpackbits(tuples, axis=-1)
    at_data, at_parity = _layout(bits.shape[-1])
    count = len(at_parity) + 1
    if parity.shape[-1] != -(-count // 8) or parity.shape[:-1] != tuples.shape[:-1]:
        raise Refused(
            "parity",
            f"hold {count} bits for each tuple of {tuples.shape[-1]} bytes",
            parity.shape,
            "encode with parity_of_tuples",
        )
    words = np.zeros((*bits.shape[:-1], bits.shape[-1] + count), dtype=np.uint8)
    words[..., at_data] = bits
    words[..., [*at_parity, -1]] = np.unpackbits(parity, axis=-1)[..., :count]
    return np.packbits(words, axis=-1)


def _word_bytes(data_bytes: int) -> int:
    return -(-(8 * data_bytes + parity_bits(8 * data_bytes) + 1) // 8)
