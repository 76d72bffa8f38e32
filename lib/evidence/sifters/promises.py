"""Check the promises of sifting: fractions within a row, repeatable rows, and samples without bias."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evidence.book import Book
from spillway.levers.sifters.filter import PIECE_SEQS, piece_seed, sift_rows

SIFTED_ROWS, REGIONS_TRIED, MARKED_SHARE = 262_144, 100, 0.02
STRETCHES = 32
LARGE = 10.0
"""Marks that a region is expected to have to be looked at by itself."""


def promise_violations(book: Book, seeds: int) -> Mapping[str, float]:
    """Check a few hundred thousand rows per seed, in slices as tasks have them, with thresholds of every kind."""
    furthest = bias = 0.0
    differing = 0
    weighed = np.zeros(2)
    marked_of = np.zeros(REGIONS_TRIED)
    along = np.zeros(STRETCHES)
    rows_of = np.zeros(REGIONS_TRIED)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        regions = rng.choice(REGIONS_TRIED, SIFTED_ROWS, p=rng.dirichlet(np.full(REGIONS_TRIED, 0.3))).astype(
            np.int32
        )
        thresholds = np.minimum(
            rng.choice([0.0, 1.0, 0.5, rng.random(), 0.999], REGIONS_TRIED), 1.0 - MARKED_SHARE
        )
        for first in range(0, SIFTED_ROWS, PIECE_SEQS):
            part = slice(first, first + PIECE_SEQS)
            seq = np.arange(first, first + PIECE_SEQS)
            once = sift_rows(seq, regions[part], thresholds, MARKED_SHARE, piece_seed(seed, 0, first))
            again = sift_rows(seq, regions[part], thresholds, MARKED_SHARE, piece_seed(seed, 0, first))
            differing += int((once[0] != again[0]).sum() + (once[1] != again[1]).sum())
            offered = np.bincount(regions[part], minlength=REGIONS_TRIED)
            kept = np.bincount(regions[part][once[0]], minlength=REGIONS_TRIED)
            furthest = max(furthest, float(np.abs(kept - (1 - thresholds) * offered).max()))
            marked_of += np.bincount(regions[part][once[1]], minlength=REGIONS_TRIED)
            rows_of += offered
            along += np.bincount((seq[once[1]] - first) * STRETCHES // PIECE_SEQS, minlength=STRETCHES)
            weighed += ((1.0 / (1.0 - thresholds))[regions[part][once[0]]].sum(), PIECE_SEQS)
    # of independent draws a region's marks would differ by this much from their mean; small ones count together
    large = rows_of * MARKED_SHARE >= LARGE
    marks = np.append(marked_of[large], marked_of[~large].sum())
    rows = np.append(rows_of[large], rows_of[~large].sum())
    sigma = np.sqrt(rows * MARKED_SHARE * (1 - MARKED_SHARE))
    off = np.divide(marks - MARKED_SHARE * rows, sigma, out=np.zeros(len(rows)), where=sigma > 0)
    bias = float(np.abs(off).max())
    # and along a piece: a rule that marks the first rows of every region has as many of each
    mean = MARKED_SHARE * rows_of.sum() / STRETCHES
    bias_along = float(np.abs(along - mean).max() / math.sqrt(mean * (1 - MARKED_SHARE)))
    book.table(
        "What sifting promises",
        ("rows", "rows from a region's threshold, at most", "rows that differ when made again",
         "sum of weights over rows", "bias of the sample in sigma, at most", "along a piece"),
        [(seeds * SIFTED_ROWS, furthest, differing, weighed[0] / weighed[1], bias, bias_along)],
        [
            f"Sigma: of {math.floor(100 * MARKED_SHARE)} % drawn independently; over regions marks lie more evenly, "
            f"along a piece as chance has it (the furthest of {STRETCHES} stretches: 1.6 to 3.4, 95 times of 100)."
        ],
    )  # fmt: skip
    return {
        "sifters.threshold_off_rows_largest": furthest,
        "sifters.rows_differ_when_made_again": differing,
        "sifters.sample_bias_sigma": bias,
        "sifters.sample_bias_along_piece_sigma": bias_along,
        "sifters.weights_over_rows": float(weighed[0] / weighed[1]),
    }
