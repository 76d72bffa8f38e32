"""Sifting: which rows of a piece are dropped, by error diffusion without random numbers (IV-A.1).

The text keeps two counters a region and drops a row when the dropped fall behind the threshold. Here the same is done
over the order of (region, a seeded hash of `seq`, `seq`) within pieces of a fixed number of `seq`: what is kept is
carried on as one running remainder,

    remainder += 1 - d(region);   keep the row and take 1 off when it reaches 1

which begins at a hash of the piece's number. So, piece by piece and whatever order rows came in,

- of every region the rows kept are within one of (1 - d) of its rows, and so are those of all regions together within
  one of the sum: the remainder goes on from region to region;
- every row is kept with probability exactly 1 - d over seeds, so that 1/(1 - d) is its unbiased weight;
- two keys that take turns lose alike: in order of arrival, half of two of them would lose one altogether;
- recomputing a piece, on any machine, gives the same rows. A piece is cut by `seq`, so nothing but it is read.

Rows are also *marked*: a share of all rows (sigma), within one of it in every region, whatever the thresholds; since
thresholds are at most 1 - sigma, every marked row is among those kept. It is the sample that no filter works on (II-E).

>>> seq, regions = np.arange(1000), np.zeros(1000, np.int32)
>>> kept, marked = sifted(seq, regions, np.array([0.75]), 0.1, 7)
>>> int(kept.sum()), int(marked.sum()), bool(np.all(kept[marked]))
(250, 100, True)
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spillway.errors import Refused
from spillway.sketches.mixing import mix64

PIECE_SEQS = 65_536
"""How many `seq` a piece is long: read whole to decide any row of it."""
_HASH_BITS = 8
_ORDER, _START, _MARK = 0x5163D1, 0x0F00D5, 0x3A2C11
"""What keeps the uses of one seed apart."""


def piece_of(seq: int, first_seq: int) -> tuple[int, int]:
    """The piece that a `seq` of a batch lies in: its first and last seq.

    >>> piece_of(70_000, 100)
    (65636, 131171)
    """
    begin = first_seq + (seq - first_seq) // PIECE_SEQS * PIECE_SEQS
    return begin, begin + PIECE_SEQS - 1


def sifted(
    seq: np.ndarray, regions: np.ndarray, thresholds: np.ndarray, share: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of the rows of one piece, which are kept, and which are marked.

    `regions` -1: the row must be kept. `share`: of rows to be marked (sigma); `seed`: of the filter and the piece.
    """
    highest = float(np.max(thresholds, initial=0.0))
    if not 0.0 <= share <= 1.0 or highest > 1.0 - share + 1e-9:
        raise Refused(
            "thresholds",
            f"be at most {1.0 - share:.6g}, for a share of {share:g} of all rows is kept as sample",
            highest,
            "configure the regions with that limit",
        )
    kept, marked = np.zeros(len(seq), bool), np.zeros(len(seq), bool)
    keep = np.append(1.0 - np.asarray(thresholds, float), 1.0)  # the last: what must be kept
    regions = np.where(np.asarray(regions) < 0, len(keep) - 1, regions).astype(np.int32)
    _sift(np.asarray(seq, np.int64), regions, keep, share, np.uint64(seed & (2**64 - 1)), kept, marked)
    return kept, marked


def piece_seed(seed: int, batch_first_seq: int, piece_first_seq: int) -> int:
    """The seed of a piece: the filter's, and where it lies."""
    mixed = mix64(np.uint64(piece_first_seq), np.uint64(seed & (2**64 - 1)))
    return int(mix64(np.uint64(batch_first_seq), np.uint64(mixed)))


@njit(cache=True, nogil=True)
def seq_hashes(seq: np.ndarray, seed: np.uint64) -> np.ndarray:
    """A hash of every `seq`."""
    found = np.empty(len(seq), np.uint64)
    for row in range(len(seq)):
        found[row] = mix64(np.uint64(seq[row]), seed)
    return found


@njit(cache=True, nogil=True)
def _sift(
    seq: np.ndarray,
    regions: np.ndarray,
    keep: np.ndarray,
    share: float,
    seed: np.uint64,
    kept: np.ndarray,
    marked: np.ndarray,
) -> None:
    rows = len(seq)
    order_seed = mix64(np.uint64(_ORDER), seed)
    # counting sort by region and hash; rows of one bucket stay in order of seq
    buckets = np.empty(rows, np.int32)
    ends = np.zeros((len(keep) << _HASH_BITS) + 1, np.int32)
    for row in range(rows):
        part = np.int64(mix64(np.uint64(seq[row]), order_seed) >> np.uint64(64 - _HASH_BITS))
        bucket = (np.int64(regions[row]) << _HASH_BITS) | part
        buckets[row] = bucket
        ends[bucket + 1] += 1
    for at in range(len(ends) - 1):
        ends[at + 1] += ends[at]
    order = np.empty(rows, np.int32)
    for row in range(rows):
        order[ends[buckets[row]]] = row
        ends[buckets[row]] += 1
    whole = 1.0 / 18446744073709551616.0
    remainder = np.float64(mix64(np.uint64(_START), seed)) * whole
    of_marks = np.float64(mix64(np.uint64(_MARK), seed)) * whole
    for at in range(rows):
        row = order[at]
        kept_share = keep[regions[row]]
        if kept_share <= 0.0:
            continue
        if kept_share < 1.0:
            remainder += kept_share
            if remainder < 1.0:
                continue
            remainder -= 1.0
        kept[row] = True
        of_marks += share / kept_share
        if of_marks >= 1.0:
            of_marks -= 1.0
            marked[row] = True
