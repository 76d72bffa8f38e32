"""Errors that say what is wrong, where, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class SpillwayError(Exception):
    """Base of every error Spillway raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where, which field, the rule it breaks, its value, and the remedy.

    >>> print(Problem("weather.yaml", "mode", "be observe or shed", "drop", "write mode: shed"))
    weather.yaml: `mode` must be observe or shed, got 'drop'; write mode: shed
    """

    where: str
    field: str
    rule: str
    value: object
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: `{self.field}` must {self.rule}, got {self.value!r}; {self.remedy}"


class ContractError(SpillwayError):
    """All problems of the contracts at once, so that one round of editing mends them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in problems))
