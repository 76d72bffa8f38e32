"""Exact rationals behind floats, so that the last bit of a float never changes the result of ceil."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

_WRITTEN_DIGITS = 12
"""Most significant digits of a float that counts as a written decimal; a quotient rarely prints with so few."""
_EDGE = Fraction(1, 10**9)
"""Share of half a unit in the last place that is left out at either end of the interval of a float."""


def exact_fraction(number: float | Fraction) -> Fraction:
    """Return the rational number that a float was rounded from.

    A float that prints with at most 12 significant digits was written as that decimal: 0.1 is 1/10. Any other float is
    the result of a calculation. It becomes the fraction with the smallest denominator that rounds to it. So a quotient
    of short numbers, such as a stream's share of a channel, is restored from the stored double.

    >>> exact_fraction(0.1), exact_fraction(128 / 3), exact_fraction(Fraction(2, 7))
    (Fraction(1, 10), Fraction(128, 3), Fraction(2, 7))
    """
    return number if isinstance(number, Fraction) else _exact(float(number))


@lru_cache(maxsize=65_536)
def _exact(number: float) -> Fraction:
    text = repr(number)
    digits = text.partition("e")[0].replace(".", "").lstrip("-0")
    written = Fraction(text)
    if len(digits) <= _WRITTEN_DIGITS:
        return written
    half = Fraction(math.ulp(number)) / 2
    middle = Fraction(abs(number))
    half *= 1 - _EDGE  # a number on the edge may round to the neighbour
    low, high = middle - half, middle + half
    if middle.numerator & (middle.numerator - 1) == 0:
        low = middle - half / 2  # below a power of two floats are twice as dense
    found = _simplest(low, high)
    return -found if number < 0 else found


def _simplest(low: Fraction, high: Fraction) -> Fraction:
    """Return the fraction with the least denominator in `low..high`, both above 0 (by continued fractions).

    >>> _simplest(Fraction(314, 100), Fraction(315, 100))
    Fraction(22, 7)
    """
    a, b, c, d = low.numerator, low.denominator, high.numerator, high.denominator
    # convergents of the terms that both ends share
    p, q, before_p, before_q = 1, 0, 0, 1
    while True:
        term = a // b
        if term * b == a or term < c // d:
            term += term * b != a  # a whole number lies between the ends
            return Fraction(term * p + before_p, term * q + before_q)
        p, q, before_p, before_q = term * p + before_p, term * q + before_q, p, q
        a, b, c, d = d, c - term * d, b, a - term * b
