"""Errors that say what is wrong, where, and what to do next. One base: whoever catches it has caught them all."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal


class SpillwayError(Exception):
    """Base of every error Spillway raises on purpose."""


MOST_SHOWN = 300
"""Characters of one word of a problem that are shown."""
MOST_REMEDY = 2000


def safely(text: object, most: int = MOST_SHOWN) -> str:
    """Words that others wrote, fit for a line of a log or a terminal: nothing in them moves a cursor or ends the line.

    >>> safely("a\\x1b[2Jb"), safely("two\\nlines"), safely("x" * 9, most=4)
    ('a\\\\x1b[2Jb', 'two\\\\nlines', 'xxxx...')
    """
    found = str(text)
    found = found if len(found) <= most else found[:most] + "..."
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in found)


def so_many(count: int, one: str, more: str | None = None) -> str:
    """A count with the word for what is counted.

    >>> so_many(1, "row"), so_many(2000, "row"), so_many(0, "batch", "batches")
    ('1 row', '2,000 rows', '0 batches')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def bytes_said(count: float) -> str:
    """Return a number of bytes with three digits and a decimal unit.

    >>> bytes_said(1_234_567), bytes_said(-2048), bytes_said(12)
    ('1.23 MB', '-2.05 kB', '12 B')
    >>> bytes_said(999_499), bytes_said(999_600), bytes_said(999.7)
    ('999 kB', '1 MB', '1 kB')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        # from here on, the number in the next smaller unit would be rounded to 1,000
        if abs(count) >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


_WHOLE_FROM, _TOO_LARGE, _TOO_SMALL = 1000.0, 1e15, 1e-12
"""From here on numbers are whole; from there on, and below the last, they are told by their power of ten."""


def so_much(value: float, digits: int = 4) -> str:
    """A number as people write it, in so many digits: a small one in decimals, a large one in whole numbers.

    >>> so_much(6.7e-07), so_much(0.123456), so_much(3.0), so_much(33590.4), so_much(-0.00041627, digits=3)
    ('0.00000067', '0.1235', '3', '33,590', '-0.000416')
    >>> so_much(1e300), so_much(1e-300), so_much(float("inf")), so_much(0.0)
    ('1e+300', '1e-300', 'inf', '0')
    """
    if _WHOLE_FROM <= abs(value) < _TOO_LARGE:
        return f"{value:,.0f}"
    short = f"{value:.{digits}g}"
    return f"{Decimal(short):f}" if _TOO_SMALL <= abs(value) < _WHOLE_FROM else short


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, which field, the rule it breaks, its value, and the remedy.

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
        place = f"{safely(self.where)}: " if self.where else ""
        got = safely(repr(self.value))
        remedy = "\n".join(safely(line, MOST_REMEDY) for line in self.remedy.split("\n"))
        return f"{place}`{safely(self.field)}` must {safely(self.rule)}, got {got}; {remedy}"


class Refused(SpillwayError, ValueError):
    """A value that cannot be used, as the one problem it is: what kernels raise.

    >>> raise Refused("cycle_length", "be positive", 0, "train the cycle again")
    Traceback (most recent call last):
        ...
    spillway.errors.Refused: `cycle_length` must be positive, got 0; train the cycle again
    """

    def __init__(self, field: str, rule: str, value: object, remedy: str, where: str = "") -> None:
        self.problem = Problem(where, field, rule, value, remedy)
        super().__init__(str(self.problem))

    def __reduce__(self) -> tuple[type[Refused], tuple[object, ...]]:
        p = self.problem
        return type(self), (p.field, p.rule, p.value, p.remedy, p.where)


class UsageError(SpillwayError):
    """A question or a command that cannot be meant."""


class LiesElsewhere(SpillwayError):
    """What is wrong lies not in what is worked on but beside it: in a table, in what was learned, in the contract."""


class RefusedElsewhere(Refused, LiesElsewhere):
    """A value that cannot be used, and no part of what is worked on."""


class StoreFault(RefusedElsewhere):
    """An object store could not be reached, or refused a request. A commit that ended so may have succeeded."""


class ConcurrentRun(LiesElsewhere):
    """Another run wrote the same at the same time; nothing was doubled, try again."""


class WrongFooter(SpillwayError):
    """A Parquet footer that was shortened states something else than the one that Arrow wrote. No file is left."""


class RunFailed(SpillwayError):
    """What went wrong in a run with some of its streams, a sentence each; the others were brought through."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self.sentences = tuple(sentences)
        super().__init__("\n".join(self.sentences))

    def __reduce__(self) -> tuple[type[RunFailed], tuple[Sequence[str]]]:
        return type(self), (self.sentences,)


class ContractError(SpillwayError):
    """All problems of the contracts at once, so that one round of editing mends them."""

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


def is_its_own(problem: BaseException) -> bool:
    """Whether a failure is that of what was worked on; not where the machine, Spark, a shared table or another run is.

    A full disk says its number, in whatever it is wrapped; Spark tells of a task's exception by its stack, and of
    itself by none.

    >>> is_its_own(ZeroDivisionError("by nothing")), is_its_own(SpillwayError("rows must balance"))
    (True, True)
    >>> is_its_own(OSError(errno.ENOSPC, "No space left on device")), is_its_own(ConcurrentRun("another run"))
    (False, False)
    """
    chain: list[BaseException] = []
    one: BaseException | None = problem
    while one is not None and one not in chain:
        chain.append(one)
        one = one.__cause__ or one.__context__
    return not any(_is_beside(one) for one in chain)


def _is_beside(problem: BaseException) -> bool:
    if isinstance(problem, LiesElsewhere | MemoryError | ConnectionError | TimeoutError):
        return True
    said = str(problem)
    of_spark = type(problem).__module__.partition(".")[0] in ("py4j", "pyspark")
    if of_spark and (_RAN_IN_A_TASK not in said or f"\n{_OUT_OF_MEMORY}" in said):
        return True
    return any(int(number) in _OF_THE_MACHINE for number in _NUMBER.findall(said))
