"""Validate stored sketches before they are used: exact fields, exact types, and array shapes that follow from these.

The digest of a payload detects accidental damage, not malicious content: an attacker can compute a valid digest. So the
header is compared with the form that its kind requires before any bytes are decompressed or memory is allocated. After
that, the counters are checked for consistency.

>>> checked_numbers({"total": 3, "updates": True}, {"total": 0, "updates": 0})  # doctest: +NORMALIZE_WHITESPACE
Traceback (most recent call last):
    ...
spillway.errors.InvalidValue: `updates` must be a whole number of at least 0, got True; rebuild the sketch of this batch
from its rows
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from math import isfinite
from typing import Any, TypeVar, get_type_hints

import numpy.typing as npt

from spillway.errors import InvalidValue

REBUILD = "rebuild the sketch of this batch from its rows"
_RAISED = (
    ArithmeticError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    struct.error,
    zlib.error,
)
Parameters = TypeVar("Parameters")


@dataclass(frozen=True)
class ArrayForm:
    """The required form of an array. `shape` None: one dimension of any length. `least`: the least allowed value."""

    dtype: str
    shape: tuple[int, ...] | None = None
    least: int | None = None

    def admits(self, dtype: str, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this type and shape has the required form."""
        return dtype == self.dtype and (len(shape) == 1 if self.shape is None else shape == self.shape)

    def check(self, name: str, array: npt.NDArray[Any]) -> None:
        """Refuse values below `least`."""
        if self.least is not None and array.size and int(array.min()) < self.least:
            raise InvalidValue(name, f"hold nothing below {self.least}", int(array.min()), REBUILD)


def checked_parameters(kind: type[Parameters], found: Any) -> Parameters:
    """Return a sketch's parameters from a header, which must have exactly the fields of `kind`, each of its exact type.

    An integer is accepted for a float.
    """
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(found, dict) or set(found) != names:
        got = sorted(found) if isinstance(found, dict) else found
        raise InvalidValue("parameters", f"be {', '.join(sorted(names))}", got, REBUILD)
    hints = _hints(kind)  # type: ignore[arg-type]
    for name, value in found.items():
        wanted = hints[name]
        exact = type(value) is wanted or (wanted is float and type(value) is int)
        if not exact or (wanted is float and not isfinite(value)):
            raise InvalidValue(f"parameters.{name}", f"be of type {wanted.__name__}", value, REBUILD)
    return kind(**found)


def checked_numbers(found: Any, least: Mapping[str, int | None]) -> dict[str, int]:
    """Return integers by name. There must be exactly the names of `least`, which has the minimum of each, or None."""
    if not isinstance(found, dict) or set(found) != set(least):
        got = sorted(found) if isinstance(found, dict) else found
        raise InvalidValue("scalars", f"be {', '.join(sorted(least)) or 'none'}", got, REBUILD)
    for name, value in found.items():
        low = least[name]
        if type(value) is not int or not -(1 << 63) <= value < 1 << 63 or (low is not None and value < low):
            rule = "be a whole number" + (f" of at least {low}" if low is not None else " of 64 bits")
            raise InvalidValue(name, rule, value, REBUILD)
    return dict(found)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    # cached, because a day of small batches has about a hundred payloads of the same kind
    return get_type_hints(kind)


@contextmanager
def refuse_malformed() -> Iterator[None]:
    """Convert the exceptions that a malicious payload can cause to one `InvalidValue`, which callers expect."""
    try:
        yield
    except InvalidValue:
        raise
    except _RAISED as problem:
        # the message has a remedy for the user; the chained exception has the cause
        got = f"{type(problem).__name__}: {str(problem)[:200]}"
        raise InvalidValue("payload", "be a sketch that can be read", got, REBUILD) from problem
