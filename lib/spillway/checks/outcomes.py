"""Turn the result of an expectation into outcomes: one per stream that passes, one per failing stream and date."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from string import Formatter
from typing import Any

from spillway.checks.gx import Verdict
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


def by_stream(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each stream, sorted by stream."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row.get("stream") or ""), []).append(row)
    return dict(sorted(found.items()))


def expectation_outcomes(
    suite: Suite, rule: Expectation, verdict: Verdict, streams: Mapping[str, Sequence[Row]]
) -> list[Outcome]:
    """Return the outcomes of one expectation: a success for each stream without an offending row, then the failures.

    `streams` are the rows that were checked, by stream.
    """
    if (
        not verdict.holds and not verdict.offending
    ):  # a type that does not name rows, such as the largest value
        sentence = f"{suite.table}: {rule.meaning} Found {verdict.observed}, expected {rule.expected}."
        reported = rule.severity == "info"
        return [
            Outcome(
                suite.table, "", None, rule.name, reported, verdict.observed, rule.expected, "", sentence, reported
            )
        ]  # fmt: skip
    offending = _counted(rule, verdict.offending)
    unclean = {str(row.get("stream") or "") for row in offending}
    outcomes = [
        Outcome(
            suite.table, stream, None, rule.name, True, _seen(rule, rows, True), rule.expected, "",
            f"{suite.table}{', ' + stream if stream else ''}: {rule.meaning}",
        )
        for stream, rows in streams.items()
        if stream not in unclean
    ]  # fmt: skip
    for (stream, day), group in _by_batch_date(offending).items():
        others = len(group) - 1
        sentence = _Words().vformat(rule.sentence, (), dict(_worst(rule, group)))
        if others:
            sentence = f"{sentence} ({others:,} more like it on that date)"
        reported = rule.severity == "info"
        outcomes.append(
            Outcome(
                suite.table, stream, day, rule.name, reported, _seen(rule, group), rule.expected, _place(group),
                f"{suite.table}: {sentence}", reported,
            )
        )  # fmt: skip
    return outcomes


def _counted(rule: Expectation, rows: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with a figure that sentences may use.

    A pair of numbers gets their `difference`. Of rows with equal keys one remains, with the number of `copies`.

    >>> rule = Expectation("a", "expect_compound_columns_to_be_unique", {"column_list": ["x"]}, "", "")
    >>> _counted(rule, [{"x": 1}, {"x": 2}, {"x": 1}])
    [{'x': 1, 'copies': 2}, {'x': 2, 'copies': 1}]
    """
    if "column_list" in rule.kwargs:
        counts: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            one = counts.setdefault(tuple(row[name] for name in rule.columns), {**row, "copies": 0})
            one["copies"] += 1
        return list(counts.values())
    if len(rule.columns) == 2:
        first, second = rule.columns
        return [
            {**row, "difference": abs(row[first] - row[second])}
            if isinstance(row[first], int | float) and isinstance(row[second], int | float)
            else row
            for row in rows
        ]
    return rows


def _worst(rule: Expectation, rows: Sequence[Row]) -> Row:
    """Return the worst row: one with NaN, else the largest figure, or the smallest if only a minimum is required."""
    name = _figure(rule)
    known = [row for row in rows if isinstance(row.get(name), int | float)]
    if not known:
        return rows[0]
    pick = min if "min_value" in rule.kwargs and "max_value" not in rule.kwargs else max
    odd = next((row for row in known if _is_nan(row[name])), None)
    return odd or pick(known, key=lambda row: row[name])


def _figure(rule: Expectation) -> str:
    """Return the column by which the worst row is found; "" if there is none."""
    if "column_list" in rule.kwargs:
        return "copies"
    return rule.worst_by or (rule.columns[0] if len(rule.columns) == 1 else "difference")


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


def _seen(rule: Expectation, rows: Sequence[Row], held: bool = False) -> str:
    """Return the values of the worst row, or a number of rows if values would be long or say nothing."""
    worst = _worst(rule, rows)
    if rule.type in _BY_VALUE:
        return ", ".join(
            f"{name} {_short_text(worst.get(name))}"
            if len(rule.columns) > 1
            else _short_text(worst.get(name))
            for name in rule.columns
        )
    if held:
        return "0 rows"
    name = _figure(rule)
    return (
        f"{name} {_short_text(worst[name])}" if worst.get(name) is not None and name else f"{len(rows)} rows"
    )


_BY_VALUE = (
    "expect_column_values_to_be_between",
    "expect_column_values_to_be_in_set",
    "expect_column_pair_values_to_be_equal",
    "expect_column_pair_values_a_to_be_greater_than_b",
)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _short_text(value: Any) -> str:
    return "none" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
