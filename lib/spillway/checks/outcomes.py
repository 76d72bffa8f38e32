"""Turn the result of an expectation into outcomes: one per stream that passes, one per failing stream and date."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from string import Formatter
from typing import Any

from spillway.checks.suites import Expectation, Suite
from spillway.errors import SpillwayError
from spillway.ledger import Row


class ExpectationsFailed(SpillwayError):
    """Expectations failed; the message has a sentence for each."""

    def __init__(self, failed: Sequence[Outcome]) -> None:
        self.failed = tuple(failed)
        shown = [f"- {outcome.sentence}" for outcome in failed[:20]]
        if len(failed) > len(shown):
            shown.append(f"- and {len(failed) - len(shown)} more, see `spillway status` and Data Docs")
        super().__init__("\n".join([f"{len(failed)} expectations failed:", *shown]))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one expectation for one stream, and for one batch date if it failed.

    If `success` is false, the task fails. If a rule of severity `info` is broken, `success` is true and the
    sentence says by how much, so that it is reported.
    """

    table: str
    stream: str
    batch_date: date | None
    expectation: str
    success: bool
    observed: str
    expected: str
    where: str
    sentence: str
    reported: bool = False

    def row(self, run_id: str, validated_at: datetime) -> dict[str, Any]:
        """Return the row of `validations`."""
        return {
            "run_id": run_id,
            "table": self.table,
            "stream": self.stream or None,
            "batch_date": self.batch_date,
            "expectation": self.expectation,
            "success": self.success,
            "observed": self.observed,
            "expected": self.expected,
            "where_": self.where or None,
            "sentence": self.sentence,
            "validated_at": validated_at,
        }


def failures(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the outcomes that fail the task."""
    return [outcome for outcome in outcomes if not outcome.success]


class _Words(Formatter):
    """Format the values of a row for people; a column that the view does not have is shown by its name."""

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key, f"{{{key}}}")

    def format_field(self, value: Any, format_spec: str) -> Any:
        if value is None:
            return "none"
        if isinstance(value, float) and not format_spec:
            return f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
        if isinstance(value, int) and not isinstance(value, bool) and not format_spec:
            return f"{value:,}"
        return super().format_field(value, format_spec)


def is_violation(expectation: Expectation, row: Row) -> bool | None:
    """Return whether `row` breaks the expectation; None if the type of expectation does not apply to single rows.

    >>> rule = Expectation("a", "expect_column_max_to_be_between", {"column": "x", "max_value": 1}, "", "")
    >>> is_violation(rule, {"x": 2}), is_violation(rule, {"x": 1}), is_violation(rule, {"x": None})
    (True, False, False)
    """
    kwargs = expectation.kwargs
    value = _value(expectation, row)
    match expectation.type:
        case "expect_column_values_to_not_be_null":
            return value is None
        case "expect_column_values_to_be_in_set":
            return value is not None and value not in kwargs["value_set"]
        case (
            "expect_column_max_to_be_between"
            | "expect_column_min_to_be_between"
            | "expect_column_values_to_be_between"
        ):
            low, high = kwargs.get("min_value"), kwargs.get("max_value")
            # A null is not counted here: a maximum below its minimum concerns all rows, not one row.
            if value is None:
                return False
            above = high is not None and not value <= high
            below = low is not None and not value >= low
            return above or below
    return None


def expectation_outcomes(
    suite: Suite, expectation: Expectation, holds: bool, observed: Any, rows: Sequence[Row]
) -> list[Outcome]:
    """Return the outcomes of one expectation, from Great Expectations' result and the rows that it checked.

    Great Expectations treats NaN as null and ignores it. So a row that breaks the rule because its value is NaN
    fails here, even if Great Expectations reports success.
    """
    guilty = [
        row
        for row in rows
        if (not holds or _is_nan(_value(expectation, row))) and is_violation(expectation, row)
    ]
    outcomes = list(_successes(suite, expectation, rows, guilty)) if holds or guilty else []
    if not holds and not guilty:
        found = _short_text(observed)
        sentence = f"{suite.table}: {expectation.meaning} Found {found}, expected {expectation.expected}."
        outcomes.append(_outcome(suite, expectation, "", None, found, "", sentence))
    for (stream, day), group in _by_batch_date(guilty).items():
        worst = _worst(expectation, group)
        others = len(group) - 1
        sentence = _Words().vformat(expectation.sentence, (), dict(worst))
        if others:
            sentence = f"{sentence} ({others:,} more like it on that date)"
        text = f"{suite.table}: {sentence}"
        outcomes.append(
            _outcome(suite, expectation, stream, day, _seen(expectation, worst), _place(group), text)
        )
    return outcomes


def _successes(
    suite: Suite, expectation: Expectation, rows: Sequence[Row], guilty: Sequence[Row]
) -> Iterator[Outcome]:
    """Yield a success for every stream that has no failing row."""
    unclean = {row.get("stream") for row in guilty}
    for stream in sorted({str(row.get("stream") or "") for row in rows} - {str(s or "") for s in unclean}):
        own = [row for row in rows if str(row.get("stream") or "") == stream]
        yield Outcome(
            suite.table, stream, None, expectation.name, True,
            _seen(expectation, _worst(expectation, own)), expectation.expected, "",
            f"{suite.table}{', ' + stream if stream else ''}: {expectation.meaning}",
        )  # fmt: skip


def _outcome(
    suite: Suite, rule: Expectation, stream: str, day: date | None, observed: str, where: str, sentence: str
) -> Outcome:
    reported = rule.severity == "info"
    return Outcome(
        suite.table, stream, day, rule.name, reported, observed, rule.expected, where, sentence, reported
    )  # fmt: skip


def _worst(rule: Expectation, rows: Sequence[Row]) -> Row:
    """Return the worst row: one with NaN, else the largest value, or the smallest if only a minimum is required."""
    known = [row for row in rows if isinstance(_value(rule, row), int | float)]
    if not known:
        return rows[0]
    pick = min if "min_value" in rule.kwargs and "max_value" not in rule.kwargs else max
    odd = next((row for row in known if _is_nan(_value(rule, row))), None)
    return odd or pick(known, key=lambda row: _value(rule, row))


def _by_batch_date(rows: Sequence[Row]) -> dict[tuple[str, date | None], list[Row]]:
    groups: dict[tuple[str, date | None], list[Row]] = {}
    for row in rows:
        groups.setdefault((str(row.get("stream") or ""), row.get("batch_date")), []).append(row)
    return groups


def _place(rows: Sequence[Row]) -> str:
    """Return the first failing rows in short form.

    >>> _place([{"batch": 3}, {"batch": 4, "attribute": "temp"}])
    'batch 3; batch 4, attribute temp'
    """
    names = (
        "batch",
        "stage",
        "unit",
        "dimension",
        "lever",
        "attribute",
        "fact",
        "subject",
        "version",
        "expectation",
    )
    said = [
        ", ".join(f"{name} {row[name]}" for name in names if row.get(name) not in (None, ""))
        for row in rows[:5]
    ]
    more = [f"{len(rows) - 5} more"] if len(rows) > 5 else []
    return "; ".join([*dict.fromkeys(text for text in said if text), *more])


def _seen(rule: Expectation, row: Row) -> str:
    return _short_text(_value(rule, row))


def _value(rule: Expectation, row: Row) -> Any:
    """Return the row's value in the checked column."""
    return row.get(rule.kwargs.get("column", ""))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _short_text(value: Any) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
