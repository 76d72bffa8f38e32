# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""Presets: one setting, `method`, selects the values of others; what a contract states itself stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from spillway.contracts.fields import METHODS, Choice, Number, Record, Report, rule


@dataclass(frozen=True, kw_only=True)
class Sample:
    rows: int = rule(Number(whole=True), "rows", 4000)
    marked: float = rule(Number(), "share", 0.0)


@dataclass(frozen=True, kw_only=True)
class Sieve:
    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"fairness": 0.5, "sample": {"rows": 1000, "marked": 1.0}}
    }
    method: str = rule(Choice(METHODS), "whose rules", "default")
    fairness: float = rule(Number(), "fairness", 1.0)
    regions: int = rule(Number(whole=True), "regions", 100)
    sample: Sample = rule(Record(Sample), "sample", Sample())


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, Sieve()),
        ({"method": "default"}, Sieve()),
        ({"method": "paper"}, Sieve(method="paper", fairness=0.5, sample=Sample(rows=1000, marked=1.0))),
        (
            {"method": "paper", "fairness": 0.7, "sample": {"marked": 0.0}},
            Sieve(method="paper", fairness=0.7, sample=Sample(rows=1000, marked=0.0)),
        ),
    ],
)
def test_method_selects_values_that_stated_fields_override(stated: dict[str, Any], expected: Sieve) -> None:
    report = Report("sieve.yaml")
    assert Record(Sieve).read(stated, "", report) == expected
    assert not report.problems


@pytest.mark.parametrize("method", ["papers", ["paper"], None])
def test_unknown_method_is_refused_by_name(method: object) -> None:
    report = Report("sieve.yaml")
    Record(Sieve).read({"method": method}, "", report)
    assert [problem.field for problem in report.problems] == ["method"]
