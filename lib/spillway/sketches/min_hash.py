"""Min-hash and random projection: sets and texts as short vectors, for PairCount (5.4).

Min-hash: under a random order of all tokens, two sets have the same first token with probability equal to their
Jaccard similarity |A n B| / |A u B|. Coordinate i is min over tokens of mix64(token, s_i). A super-shingle is a
fingerprint of several coordinates: it agrees with probability J^g, near 1 only for near-duplicates; the text's records
are 6 super-shingles (Broder).

Random projection (Charikar): the sign of a projection on a random direction agrees with probability 1 - angle/pi. A
coordinate here is `bits` signs together, which agrees with probability (1 - angle/pi)^bits.

Sets are given as one array of token hashes and the ends of each set in it, so that kernels see integers only.

>>> tokens, ends = text_tokens(["a study of joins", "a study of sifters"], words=1)
>>> signature = min_hash(tokens, ends, coordinates=400, seed=1)
>>> bool(abs((signature[0] == signature[1]).mean() - 3 / 5) < 0.1)
True
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numba import njit

from spillway.sketches.hashing import as_keys, mix64, row_seeds, xxhash64_bytes
from spillway.sketches.types import Floats, Integers, Keys, refuse

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


def text_tokens(texts: Iterable[str | None], words: int = 1) -> tuple[Keys, Integers]:
    """Hashes of the runs of `words` words of each text (lower case), and where each text's tokens end."""
    if words < 1:
        raise refuse("words", "be at least 1", words, "1 for bags of words, 2 or 3 for shingles")
    known: dict[str, int] = {}
    tokens: list[int] = []
    ends: list[int] = []
    for text in texts:
        parts = (text or "").lower().split()
        runs = (
            [" ".join(parts[i : i + words]) for i in range(max(len(parts) - words + 1, 1))] if parts else []
        )
        for run in dict.fromkeys(runs):
            if run not in known:
                known[run] = xxhash64_bytes(run.encode())
            tokens.append(known[run])
        ends.append(len(tokens))
    return np.array(tokens, dtype=np.uint64), np.array(ends, dtype=np.int64)


def _check(tokens: Keys, ends: Integers, coordinates: int) -> None:
    if coordinates < 1:
        raise refuse("coordinates", "be at least 1", coordinates, "6 super-shingles need a few dozen")
    if ends.size and (int(ends[-1]) != tokens.size or (np.diff(ends) < 0).any()):
        raise refuse("ends", f"rise to {tokens.size}, the tokens", ends[-3:].tolist(), "give each set's end")


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
    """Signatures, one row a set; all empty sets are alike."""
    hashed, stops = as_keys(tokens), np.ascontiguousarray(ends, dtype=np.int64)
    _check(hashed, stops, coordinates)
    signature = np.empty((stops.size, coordinates), dtype=np.uint64)
    _min_hash(hashed, stops, row_seeds(seed, coordinates, purpose=8), signature)
    return signature


@njit(cache=True)
def _fingerprints(signature: Keys, groups: int, found: Keys) -> None:
    size = signature.shape[1] // groups
    for row in range(signature.shape[0]):
        for group in range(groups):
            state = np.uint64(group + 1)
            for place in range(group * size, (group + 1) * size):
                state = mix64(signature[row, place], state)
            found[row, group] = state


def super_shingles(signature: Keys, groups: int) -> Keys:
    """`groups` fingerprints a row, each of an equal run of coordinates."""
    if groups < 1 or signature.shape[1] % groups:
        raise refuse("groups", f"divide the {signature.shape[1]} coordinates", groups, "use 84 and 6, say")
    found = np.empty((signature.shape[0], groups), dtype=np.uint64)
    _fingerprints(np.ascontiguousarray(signature), groups, found)
    return found


@njit(cache=True)
def _project(tokens: Keys, ends: Integers, weights: Floats, seeds: Keys, bits: int, found: Keys) -> None:
    begin = 0
    for row in range(ends.size):
        for coordinate in range(found.shape[1]):
            code = np.uint64(0)
            for bit in range(bits):
                total = 0.0
                for index in range(begin, ends[row]):
                    sign = mix64(tokens[index], seeds[coordinate * bits + bit]) & np.uint64(1)
                    total += weights[index] if sign else -weights[index]
                code = (code << np.uint64(1)) | (np.uint64(1) if total > 0.0 else np.uint64(0))
            found[row, coordinate] = code
        begin = ends[row]


def random_projection(
    tokens: object,
    ends: object,
    coordinates: int,
    bits: int = 8,
    weights: object = None,
    seed: int = 1,
) -> Keys:
    """Coordinates of `bits` signs each; `weights` (default 1) are the tokens' TF-IDF or counts."""
    hashed, stops = as_keys(tokens), np.ascontiguousarray(ends, dtype=np.int64)
    _check(hashed, stops, coordinates)
    if not 1 <= bits <= 64:
        raise refuse("bits", "lie from 1 to 64", bits, "8 signs a coordinate are a start")
    amounts = np.ones(hashed.size) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)
    if amounts.shape != hashed.shape:
        raise refuse("weights", f"be {hashed.size}, one per token", amounts.shape, "give each token a weight")
    found = np.empty((stops.size, coordinates), dtype=np.uint64)
    _project(hashed, stops, amounts, row_seeds(seed, coordinates * bits, purpose=9), bits, found)
    return found
