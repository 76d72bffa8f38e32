"""Convert reals to whole numbers for the coder, and write the header of a block.

If all reals of a list have at most d decimals, they are sent as whole numbers v 10^d, divided by their greatest common
divisor. Otherwise they are sent as their 64 bits, in the order of the floats. Both ways every value is recovered bit
for bit (except 0.0 for -0.0 in decimals), because v is checked to equal whole / 10^d.

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
    """Return the fewest decimals with which every (finite) value is exact; None if there are none.

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
    """The conversion of whole numbers to values: whole x `divisor` / 10^`decimals`, or ordered bits."""

    kind: str
    decimals: int = 0
    divisor: int = 1

    @staticmethod
    def of(kind: str, values: np.ndarray) -> WholeForm:
        """Return the form that fits all `values` (finite)."""
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
        """Return the whole numbers of values."""
        if self.kind != "real":
            return np.asarray(values // self.divisor)
        if self.decimals == BITS:
            bits = np.ascontiguousarray(values).view(np.int64)
            return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)
        return np.rint(values * float(10**self.decimals)).astype(np.int64) // self.divisor

    def values(self, wholes: np.ndarray) -> np.ndarray:
        """Return the values of whole numbers."""
        if self.kind != "real":
            return np.asarray(wholes * self.divisor)
        if self.decimals == BITS:
            bits = np.where(wholes < 0, np.int64(-(2**63)) - wholes, wholes)
            return np.ascontiguousarray(bits).view(np.float64)
        return np.asarray((wholes * self.divisor) / float(10**self.decimals))

    def write(self, out: Writer) -> None:
        """Write the form into a header."""
        out.byte(self.decimals)
        out.number(self.divisor)

    @staticmethod
    def read(source: Reader, kind: str) -> WholeForm:
        """Read the form from a header."""
        return WholeForm(kind, source.byte(), source.number())


class Writer:
    """Writes the bytes of a header; numbers are varints of seven bits, lowest first."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def data(self) -> bytes:
        """Return the written bytes."""
        return bytes(self._parts)

    def byte(self, value: int) -> None:
        """Write one byte."""
        self._parts.append(value)

    def number(self, value: int) -> None:
        """Write a whole number >= 0."""
        while value > 127:
            self._parts.append(value & 127 | 128)
            value >>= 7
        self._parts.append(value)

    def signed(self, value: int) -> None:
        """Write a whole number of either sign."""
        self.number(value * 2 if value >= 0 else -value * 2 - 1)

    def blob(self, value: bytes) -> None:
        """Write compressed bytes with their length."""
        packed = zlib.compress(value, 9)
        self.number(len(packed))
        self._parts += packed

    def text(self, value: str) -> None:
        """Write a string."""
        self.blob(value.encode())

    def ascending(self, values: np.ndarray) -> None:
        """Write distinct whole numbers in ascending order."""
        numbers = [int(value) for value in values]
        steps = Writer()
        steps.number(len(numbers))
        for low, high in zip([0, *numbers], numbers, strict=False):
            steps.signed(high - low)
        self.blob(steps.data())


class Reader:
    """Reads the bytes that `Writer` wrote."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data, self._at = data, at

    def rest(self) -> bytes:
        """Return the bytes that were not read yet."""
        return self._data[self._at :]

    def byte(self) -> int:
        """Read one byte."""
        self._at += 1
        return self._data[self._at - 1]

    def number(self) -> int:
        """Read a whole number >= 0."""
        value = shift = 0
        while True:
            part = self.byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
            shift += 7

    def signed(self) -> int:
        """Read a whole number of either sign."""
        value = self.number()
        return value // 2 if value % 2 == 0 else -(value + 1) // 2

    def blob(self) -> bytes:
        """Read compressed bytes with their length."""
        size = self.number()
        self._at += size
        return zlib.decompress(self._data[self._at - size : self._at])

    def text(self) -> str:
        """Read a string."""
        return self.blob().decode()

    def ascending(self) -> np.ndarray:
        """Read distinct whole numbers in ascending order."""
        source = Reader(self.blob())
        values, value = [], 0
        for _ in range(source.number()):
            value += source.signed()
            values.append(value)
        return np.array(values, np.int64)
