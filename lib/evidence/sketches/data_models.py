"""Generate the streams of the thesis's measurements (3.5.1, 4.2.4, 5.5.1), with stated parameters and seeds.

Duplicates: a sequence of distinct integers with one frequent integer, whose arrivals are Poisson (each element with
probability lambda) or follow the b-model (the volume v of an interval splits b : 1 - b between its halves, l times);
then each arrival becomes integer i with a probability that falls exponentially with i, of mean u.

Frequencies: Zipf, f_i ~ i^-z over a domain. Records: titles of Zipf words of which a stated share are near-copies of
an earlier title, turned into vectors by min-hash.

>>> keys = poisson_stream(1000, rate=0.5, mean=10.0, seed=1)
>>> keys.size, bool(0.4 < (keys < 10**9).mean() < 0.6)
(1000, True)
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from spillway.errors import InvalidValue
from spillway.sketches.types import Booleans, Integers, Keys

_DISTINCT_FROM = 1 << 32


def _with_frequent(frequent: Booleans, mean: float, rng: np.random.Generator) -> Keys:
    keys = np.arange(_DISTINCT_FROM, _DISTINCT_FROM + frequent.size, dtype=np.uint64)
    keys[frequent] = rng.exponential(mean, int(frequent.sum())).astype(np.uint64)
    return keys


def poisson_stream(size: int, rate: float, mean: float, seed: int) -> Keys:
    """Return a stream with `rate` (lambda) of frequent integers, of exponential mean `mean` (u)."""
    rng = np.random.default_rng(seed)
    return _with_frequent(rng.random(size) < rate, mean, rng)


def b_model_stream(size: int, volume: float, bias: float, levels: int, mean: float, seed: int) -> Keys:
    """Return bursty arrivals: `volume` (v), `bias` (b), aggregation `levels` (l <= ln v / ln(1/2b))."""
    if bias > 0.5 and levels > math.log(volume) / math.log(1.0 / (2.0 * bias)):
        most = int(math.log(volume) / math.log(1.0 / (2.0 * bias)))
        raise InvalidValue(
            "levels", f"be at most {most} for volume {volume} and bias {bias}", levels, "see 3.5.1"
        )
    rng = np.random.default_rng(seed)
    shares = np.array([volume])
    for _ in range(levels):
        heavy_first = rng.random(shares.size) < 0.5
        left = np.where(heavy_first, bias, 1.0 - bias) * 2.0
        shares = np.column_stack([shares * left, shares * (2.0 - left)]).ravel()
    place = np.arange(size) * shares.size // size
    return _with_frequent(rng.random(size) < shares[place], mean, rng)


def zipf_frequencies(total: int, domain: int, skew: float, seed: int) -> Integers:
    """Return how often each of `domain` keys occurs among `total` draws of a Zipf law."""
    shares = np.arange(1, domain + 1, dtype=np.float64) ** -skew
    return np.random.default_rng(seed).multinomial(total, shares / shares.sum()).astype(np.int64)


def first_occurrences(keys: Keys) -> Booleans:
    """Return True for each new element: the exact answer to the membership question."""
    _, first = np.unique(keys, return_index=True)
    new = np.zeros(keys.size, dtype=np.bool_)
    new[first] = True
    return new


def gaps_between(keys: Keys) -> Integers:
    """Return the number of elements between each duplicate and its predecessor (ERRATA E2)."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    again = ranked[1:] == ranked[:-1]
    return (order[1:][again] - order[:-1][again] - 1).astype(np.int64)


def titles(
    count: int, near_copies: float, series: float, seed: int, words: int = 20_000
) -> tuple[Keys, Integers]:
    """Return titles as tokens and ends: 4 words and more, drawn from a Zipf law.

    A share `near_copies` repeat an earlier title with one word in eight replaced; a share `series` belong to one of 25
    series, whose titles share 4 of 6 words. With 0.1 and 0.05, 200,000 of them have similar pairs in the numbers
    that Table 5.1 prints for its titles.
    """
    rng = np.random.default_rng(seed)
    shares = np.arange(1, words + 1, dtype=np.float64) ** -0.7
    shares /= shares.sum()
    kind = rng.random(count)
    serial = kind < series
    copied = (kind >= series) & (kind < series + near_copies)
    lengths = np.where(serial, 6, 4 + rng.poisson(4.0, count))
    originals = np.flatnonzero(~serial & ~copied)
    sources = np.arange(count)
    sources[copied] = rng.choice(originals, int(copied.sum()))
    lengths = lengths[sources]
    ends = np.cumsum(lengths)
    starts = ends - lengths
    drawn = rng.choice(words, size=int(ends[-1]), p=shares).astype(np.uint64)
    tokens = drawn[np.repeat(starts[sources] - starts, lengths) + np.arange(ends[-1])]
    replaced = np.repeat(copied, lengths) & (rng.random(tokens.size) < 1 / 8)
    tokens[replaced] = rng.integers(0, words, int(replaced.sum()))
    template = starts[serial][:, None] + np.arange(4)
    tokens[template] = rng.integers(0, words, (25, 4)).astype(np.uint64)[
        rng.integers(0, 25, int(serial.sum()))
    ]
    return tokens, ends.astype(np.int64)


def shuffled_stream(frequencies: Integers, seed: int) -> npt.NDArray[np.uint64]:
    """Return the stream in which key i occurs frequencies[i] times, in random order."""
    keys = np.repeat(np.arange(frequencies.size, dtype=np.uint64), frequencies)
    np.random.default_rng(seed).shuffle(keys)
    return keys
