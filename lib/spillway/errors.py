"""Errors that say what is wrong, where, and what to do next. One base: whoever catches it has caught them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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


class ConcurrentRun(SpillwayError):
    """Another run wrote the same at the same time; nothing was doubled, try again."""


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
