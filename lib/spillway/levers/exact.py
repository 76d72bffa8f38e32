"""Decimals as they were written, so that a whole number is never lifted by a float's last bit."""

from __future__ import annotations

from fractions import Fraction


def exact(number: float | Fraction) -> Fraction:
    """`number` as the decimal it is written as: 0.1 is 1/10, not its nearest binary fraction."""
    return number if isinstance(number, Fraction) else Fraction(str(float(number)))
