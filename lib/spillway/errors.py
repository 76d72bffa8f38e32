"""Define the errors, which say what is wrong, where, and what to do, and format the numbers in them.

Every error that Spillway raises on purpose is a `SpillwayError`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal


class SpillwayError(Exception):
    """Base of every error that Spillway raises on purpose."""


MOST_SHOWN = 300
"""The number of characters that are shown of one text in a problem."""
MOST_REMEDY = 2000


def escape_text(text: object, most: int = MOST_SHOWN) -> str:
    r"""Escape text from other sources for a log or a terminal: the result moves no cursor and has no line break.

    >>> escape_text("a\x1b[2Jb"), escape_text("two\nlines"), escape_text("x" * 9, most=4)
    ('a\\x1b[2Jb', 'two\\nlines', 'xxxx...')
    """
    found = str(text)
    found = found if len(found) <= most else found[:most] + "..."
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in found)


def format_count(count: int, one: str, more: str | None = None) -> str:
    """Return a count with its noun in the singular or plural.

    >>> format_count(1, "row"), format_count(2000, "row"), format_count(0, "batch", "batches")
    ('1 row', '2,000 rows', '0 batches')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


PERIODS = {"minute": 60, "hour": 3_600, "day": 86_400, "month": 2_629_746}
"""Seconds of the units of time in which a capacity may be stated; a month is one twelfth of 365.2425 days."""


def format_rate(kbps: float, per: str = "") -> str:
    """Return a rate with three digits and a unit: bits per second, or bytes per hour, day or month.

    `per`: the unit of time in which the capacity of the channel is stated (`Capacity.per`), so that all rates of a
    channel have the unit of its capacity.

    >>> format_rate(0.0642), format_rate(26.63), format_rate(5_400)
    ('64.2 bps', '26.6 kbps', '5.4 Mbps')
    >>> format_rate(0.99951), format_rate(999.7), format_rate(0.0000055)
    ('1 kbps', '1 Mbps', '59 B/day')
    >>> format_rate(0.0642, "day"), format_rate(0.0642, "month")
    ('693 kB/day', '21.1 MB/month')
    """
    if not per and 0 < abs(kbps) < 0.001:
        per = "day"  # no link has less than a bit per second
    if per:
        return f"{format_bytes(round(kbps * 125.0 * PERIODS[per]))}/{per}"
    for size, unit in ((1e3, "Mbps"), (1.0, "kbps")):
        # from this size on, three digits of the smaller unit would round to 1,000
        if abs(kbps) >= 0.9995 * size:
            return f"{kbps / size:.3g} {unit}"
    return f"{kbps * 1000:.3g} bps"


def format_bytes(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit.

    >>> format_bytes(1_234_567), format_bytes(-2048), format_bytes(12)
    ('1.23 MB', '-2.05 kB', '12 B')
    >>> format_bytes(999_499), format_bytes(999_600), format_bytes(999.7)
    ('999 kB', '1 MB', '1 kB')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        # from this size on, three digits of the smaller unit would round to 1,000
        if abs(count) >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


_WHOLE_FROM, _TOO_LARGE, _TOO_SMALL = 1000.0, 1e15, 1e-12
"""Numbers from the first on are shown without decimals; from the second on, and below the third, with an exponent."""


def format_number(value: float, digits: int = 4) -> str:
    """Return a number with `digits` significant digits.

    A small number has decimals. A number from 1,000 on is shown as a whole number.

    >>> [format_number(value) for value in (6.7e-07, 0.123456, 3.0, 33590.4)], format_number(-0.00041627, digits=3)
    (['0.00000067', '0.1235', '3', '33,590'], '-0.000416')
    >>> format_number(1e300), format_number(1e-300), format_number(float("inf")), format_number(0.0)
    ('1e+300', '1e-300', 'inf', '0')
    """
    if _WHOLE_FROM <= abs(value) < _TOO_LARGE:
        return f"{value:,.0f}"
    short = f"{value:.{digits}g}"
    return f"{Decimal(short):f}" if _TOO_SMALL <= abs(value) < _WHOLE_FROM else short


@dataclass(frozen=True)
class Problem:
    """One problem: where it is, the field, the rule that it breaks, the value, and the remedy.

    >>> print(Problem("weather.yaml", "mode", "be observe or shed", "drop", "write mode: shed"))
    weather.yaml: `mode` must be observe or shed, got 'drop'; write mode: shed
    >>> print(Problem("", "cycle_length", "be positive", 0, "train the cycle again"))
    `cycle_length` must be positive, got 0; train the cycle again
    """

    where: str
    field: str
    rule: str
    value: object
    remedy: str

    def __str__(self) -> str:
        place = f"{escape_text(self.where)}: " if self.where else ""
        got = escape_text(repr(self.value))
        remedy = "\n".join(escape_text(line, MOST_REMEDY) for line in self.remedy.split("\n"))
        return f"{place}`{escape_text(self.field)}` must {escape_text(self.rule)}, got {got}; {remedy}"


class InvalidValue(SpillwayError, ValueError):
    """A value is not usable. The message is one `Problem`. Kernels raise this error.

    >>> raise InvalidValue("cycle_length", "be positive", 0, "train the cycle again")
    Traceback (most recent call last):
        ...
    spillway.errors.InvalidValue: `cycle_length` must be positive, got 0; train the cycle again
    """

    def __init__(self, field: str, rule: str, value: object, remedy: str, where: str = "") -> None:
        self.problem = Problem(where, field, rule, value, remedy)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type[InvalidValue], tuple[object, ...]]:
        p = self.problem
        return type(self), (p.field, p.rule, p.value, p.remedy, p.where)


class UsageError(SpillwayError):
    """A command or a request has invalid arguments."""


class ExternalFault(SpillwayError):
    """The cause is outside the batch or window being processed: in a table, in facts, or in the contract."""


class InvalidExternalValue(InvalidValue, ExternalFault):
    """A value is not usable, and it is not part of the batch or window being processed."""


class StoreFault(InvalidExternalValue):
    """An object store could not be reached, or refused a request. A commit that ended so may have succeeded."""


class ConcurrentRun(ExternalFault):
    """Another run wrote the same rows at the same time. Nothing was written twice; retry."""


class WrongFooter(SpillwayError):
    """A shortened Parquet footer differs from the one that Arrow wrote. No file is left."""


class RunFailed(SpillwayError):
    """A run failed for some of its streams, with a sentence for each; the others were processed."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__("\n".join(self.sentences))

    def __reduce__(self) -> tuple[type[RunFailed], tuple[Sequence[str]]]:
        return type(self), (self.sentences,)


class ContractError(SpillwayError):
    """All problems of the contracts together, so that they can be fixed in one round of editing."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))

    def __reduce__(self) -> tuple[type[ContractError], tuple[Sequence[Problem]]]:
        return type(self), (self.problems,)


_OF_THE_MACHINE = frozenset(
    (
        errno.EACCES, errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET,
        errno.EDQUOT, errno.EHOSTUNREACH, errno.EIO, errno.EMFILE, errno.ENETDOWN, errno.ENETUNREACH, errno.ENFILE,
        errno.ENODEV, errno.ENOMEM, errno.ENOSPC, errno.ENOTCONN, errno.ENXIO, errno.EPERM, errno.EPIPE, errno.EROFS,
        errno.ESTALE, errno.ETIMEDOUT,
    )
)  # fmt: skip
_NUMBER = re.compile(r"(?:errno|os error) (\d+)", re.IGNORECASE)
_RAN_IN_A_TASK = "Traceback (most recent call last)"
_OUT_OF_MEMORY = "MemoryError"


def is_own_fault(problem: BaseException) -> bool:
    """Return whether the batch or window being processed caused a failure.

    It did not if the cause is the machine, Spark, a shared table, or a concurrent run. An error of the
    operating system (a full disk) is recognised by its number, also inside another message. An exception of
    Spark counts as the task's own only if its message has the Python stack of a task, and no `MemoryError`.

    >>> is_own_fault(ZeroDivisionError("by nothing")), is_own_fault(SpillwayError("rows must balance"))
    (True, True)
    >>> is_own_fault(OSError(errno.ENOSPC, "No space left on device")), is_own_fault(ConcurrentRun("another run"))
    (False, False)
    """
    chain: list[BaseException] = []
    one: BaseException | None = problem
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__
    return not any(_is_external(one) for one in chain)


def _is_external(problem: BaseException) -> bool:
    if isinstance(problem, ExternalFault | MemoryError | ConnectionError | TimeoutError):
        return True
    said = str(problem)
    of_spark = type(problem).__module__.partition(".")[0] in ("py4j", "pyspark")
    if of_spark and (_RAN_IN_A_TASK not in said or f"\n{_OUT_OF_MEMORY}" in said):
        return True
    return any(int(number) in _OF_THE_MACHINE for number in _NUMBER.findall(said))
