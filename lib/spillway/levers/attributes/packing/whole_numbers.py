"""Reals as whole numbers for the coder, and the bytes of a block's header.

A list of reals that all have at most d decimals is sent as whole numbers v 10^d, over their greatest common
divisor; anything else as the float's 64 bits, ordered like the floats themselves. Either way every value
comes back bit for bit (0.0 for -0.0 in decimals), because v is checked to equal whole / 10^d.

>>> form = WholeForm.of("real", np.array([350.0, 20.0]))
>>> form.wholes(np.array([350.0, 20.0])).tolist(), form.values(np.array([35, 2])).tolist()
([35, 2], [350.0, 20.0])
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

BITS = 255
MOST_DECIMALS = 12
_EXACT = 9007199254740992.0


def decimals_of(values: np.ndarray, most: int = MOST_DECIMALS) -> int | None:
    """The fewest decimals that give every (finite) value back exactly, or None.

    >>> decimals_of(np.array([1.25, 3.0])), decimals_of(np.array([1 / 3]))
    (2, None)
    """
    sample = values[:64]
    for decimals in range(most + 1):
        if _exact(sample, decimals) and _exact(values, decimals):
            return decimals
    return None


def _exact(values: np.ndarray, decimals: int) -> bool:
    scale = float(10**decimals)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = np.rint(values * scale)
        return bool((np.abs(scaled) < _EXACT).all() and (scaled / scale == values).all())


@dataclass(frozen=True)
class WholeForm:
    """How whole numbers stand for values: whole x `divisor` / 10^`decimals`, or ordered bits."""

    kind: str
    decimals: int = 0
    divisor: int = 1

    @staticmethod
    def of(kind: str, values: np.ndarray) -> WholeForm:
        """The form that suits all `values` (finite)."""
        if kind == "text" or not len(values):
            return WholeForm(kind)
        if kind == "integer":
            small = values.min() > -(2**62) and values.max() < 2**62
            return WholeForm(kind, 0, max(1, int(np.gcd.reduce(values))) if small else 1)
        decimals = decimals_of(values)
        if decimals is None:
            return WholeForm(kind, BITS)
        scaled = np.rint(values * float(10**decimals)).astype(np.int64)
        return WholeForm(kind, decimals, max(1, int(np.gcd.reduce(scaled))))

    def wholes(self, values: np.ndarray) -> np.ndarray:
        """Values to whole numbers."""
        if self.kind != "real":
            return np.asarray(values // self.divisor)
        if self.decimals == BITS:
            bits = np.ascontiguousarray(values).view(np.int64)
            return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)
        return np.rint(values * float(10**self.decimals)).astype(np.int64) // self.divisor

    def values(self, wholes: np.ndarray) -> np.ndarray:
        """Whole numbers back to values."""
        if self.kind != "real":
            return np.asarray(wholes * self.divisor)
        if self.decimals == BITS:
            bits = np.where(wholes < 0, np.int64(-(2**63)) - wholes, wholes)
            return np.ascontiguousarray(bits).view(np.float64)
        return np.asarray((wholes * self.divisor) / float(10**self.decimals))

    def write(self, out: Writer) -> None:
        """Into a header."""
        out.byte(self.decimals)
        out.number(self.divisor)

    @staticmethod
    def read(source: Reader, kind: str) -> WholeForm:
        """Out of a header."""
        return WholeForm(kind, source.byte(), source.number())


class Writer:
    """Bytes of a header: varints of seven bits, the lowest first."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def data(self) -> bytes:
        """What was written."""
        return bytes(self._parts)

    def byte(self, value: int) -> None:
        """One byte."""
        self._parts.append(value)

    def number(self, value: int) -> None:
        """A whole number >= 0."""
        while value > 127:
            self._parts.append(value & 127 | 128)
            value >>= 7
        self._parts.append(value)

    def signed(self, value: int) -> None:
        """A whole number of either sign."""
        self.number(value * 2 if value >= 0 else -value * 2 - 1)

    def blob(self, value: bytes) -> None:
        """Bytes with their length, compressed."""
        packed = zlib.compress(value, 9)
        self.number(len(packed))
        self._parts += packed

    def text(self, value: str) -> None:
        """A string."""
        self.blob(value.encode())

    def ascending(self, values: np.ndarray) -> None:
        """Distinct whole numbers in ascending order."""
        numbers = [int(value) for value in values]
        steps = Writer()
        steps.number(len(numbers))
        for low, high in zip([0, *numbers], numbers, strict=False):
            steps.signed(high - low)
        self.blob(steps.data())


class Reader:
    """The inverse of `Writer`."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self._at = data, at

    def rest(self) -> bytes:
        """All that was not read yet."""
        return self._data[self._at :]

    def byte(self) -> int:
        """One byte."""
        self._at += 1
        return self._data[self._at - 1]

    def number(self) -> int:
        """A whole number >= 0."""
        value = shift = 0
        while True:
            part = self.byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
            shift += 7

    def signed(self) -> int:
        """A whole number of either sign."""
        value = self.number()
        return value // 2 if value % 2 == 0 else -(value + 1) // 2

    def blob(self) -> bytes:
        """Bytes with their length."""
        size = self.number()
        self._at += size
        return zlib.decompress(self._data[self._at - size : self._at])

    def text(self) -> str:
        """A string."""
        return self.blob().decode()

    def ascending(self) -> np.ndarray:
        """Distinct whole numbers in ascending order."""
        source = Reader(self.blob())
        values, value = [], 0
        for _ in range(source.number()):
            value += source.signed()
            values.append(value)
        return np.array(values, np.int64)
