"""MinHash: short signatures of sets, and of texts as sets of words, for PairCount (Deng 2007, 5.4).

Under a random order of all tokens, two sets have the same first token with a probability equal to their Jaccard
similarity |A n B| / |A u B|. Coordinate i of a signature is the minimum over the tokens of mix64(token, s_i).

The sets are passed as one array of token hashes and the end of each set in it, so that kernels see only integers.

>>> tokens, ends = np.array([1, 2, 3, 4, 1, 2, 3, 9], dtype=np.uint64), np.array([4, 8])
>>> one, two = min_hash(tokens, ends, coordinates=400, seed=1)
>>> bool(abs((one == two).mean() - 3 / 5) < 0.1)
True
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from spillway.errors import InvalidValue
from spillway.sketches.column_keys import keys_of
from spillway.sketches.hashing import as_keys, row_seeds
from spillway.sketches.kernels import mix64
from spillway.sketches.types import Integers, Keys

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


def _check(tokens: Keys, ends: Integers, coordinates: int) -> None:
    if coordinates < 1:
        raise InvalidValue("coordinates", "be at least 1", coordinates, "6 super-shingles need a few dozen")
    if ends.size and (int(ends[-1]) != tokens.size or (np.diff(ends) < 0).any()):
        raise InvalidValue(
            "ends", f"rise to {tokens.size}, the tokens", ends[-3:].tolist(), "give each set's end"
        )


@njit(cache=True)
def _min_hash(tokens: Keys, ends: Integers, seeds: Keys, signature: Keys) -> None:
    begin = 0
    for row in range(ends.size):
        for coordinate in range(seeds.size):
            least = _EMPTY
            for index in range(begin, ends[row]):
                least = min(least, mix64(tokens[index], seeds[coordinate]))
            signature[row, coordinate] = least
        begin = ends[row]


def min_hash(tokens: object, ends: object, coordinates: int, seed: int = 1) -> Keys:
    """Return the signatures, one row per set. All empty sets have the same signature."""
    hashed, stops = as_keys(tokens), np.ascontiguousarray(ends, dtype=np.int64)
    _check(hashed, stops, coordinates)
    signature = np.empty((stops.size, coordinates), dtype=np.uint64)
    _min_hash(hashed, stops, row_seeds(seed, coordinates, purpose=8), signature)
    return signature


def text_vectors(texts: pa.ChunkedArray, coordinates: int, seed: int) -> Keys:
    """Return the signatures of texts: a text is the set of its lower-case words. Null has its own signature.

    >>> one, two, three = text_vectors(pa.chunked_array([["To be  or", "or to BE", None]]), 4, seed=1)
    >>> one.tolist() == two.tolist() != three.tolist()
    True
    """
    words = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(pc.utf8_lower(texts.cast(pa.string()))))
    words = pc.fill_null(words, pa.scalar([None], words.type)).combine_chunks()
    # an empty text is split into one empty word, which serves as well as an empty set
    flat = pa.table({"word": words.flatten()})
    return min_hash(
        keys_of(flat, ["word"], ["string"], seed), np.asarray(words.offsets)[1:], coordinates, seed
    )
