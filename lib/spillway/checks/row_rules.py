"""Check the contract's rules for rows with Great Expectations, on the rows themselves.

**What is checked.** Rules are checked on `raw` (the delivered rows), for the batches that changed and the
attributes that rules name. The rows are pandas frames of at most `ROWS_JUDGED_AT_A_TIME` rows, one after the
other. Results of rules by row add up over frames. So memory is bounded for every batch size, and Data Docs show
one page per stream with all counts. Frames hold Arrow columns: integers stay integers, and null is not NaN.

**Recovered rows are not checked again.** The same validation proves more about them than a rule could: kept
values are the same by checksum, and rounded or shed values are within their bound, null for null. A rule with a
tolerance for the bound would add nothing. A rule without it would fail on values that the contract allows (a
humidity of 100 % that is recovered as 101). It would also need a second pass of Great Expectations over the
rows, the most expensive part of a validation. If raw is retired, nothing is checked again, because a batch is
retired only after its rules held.

**Patterns.** Great Expectations would match patterns with a backtracking engine, which never ends on some
patterns. Arrow's engine (RE2) takes time proportional to the text. Texts that do not match the pattern form a
column that must be null.

**Uniqueness.** Whether rows of a batch agree in some attributes cannot be decided frame by frame. A first pass
computes a 64-bit hash of each row (8 bytes per row and rule). The number of rows with the same hash is a column
that Great Expectations checks. In a batch of ten million different rows, two rows have the same hash once in
370,000 batches.

>>> rule = RowRule(kind="unique_with", attributes=("site",))
>>> judged = to_expectation(rule, "w", {"site": "string"}, "UTC")
>>> judged.type, judged.kwargs
('expect_column_values_to_be_between', {'column': 'rows that agree in site', 'max_value': 1})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from spillway.checks.digest import StoredRows, row_hashes
from spillway.checks.gx import Tally, Validator
from spillway.checks.outcomes import Outcome
from spillway.checks.suites import Expectation, Suite
from spillway.contracts import StreamContract
from spillway.contracts.row_rules import RowRule, edge_of_range, whole_match
from spillway.contracts.stream import ARROW_TYPES
from spillway.errors import InvalidValue, SpillwayError, escape_text
from spillway.store.files import as_date, rows_of
from spillway.store.schemas import spark_type

ROWS_JUDGED_AT_A_TIME = 262_144
_MOST_LETTERS = 80
Repeats = Mapping[tuple[str, int], tuple[np.ndarray, np.ndarray]]
"""By column and batch: the hashes that several rows have, and the number of these rows."""


def check_rows(validator: Validator, contract: StreamContract, rows: StoredRows) -> list[Outcome]:
    """Return an outcome for each rule that holds on all these rows, and one for each batch date on which a rule fails.

    If the rows cannot be checked, the outcome is a failure of this stream. Other streams are still checked.
    """
    rules = contract.checked_rules
    if not rules or not rows.files:
        return []
    types = {one.name: one.type for one in contract.attributes}
    suite = Suite(
        f"rows_of_{contract.stream}",
        "raw",
        f"The rules that the contract of {contract.stream} has for its rows.",
        "",
        tuple(to_expectation(rule, contract.stream, types, contract.timezone) for rule in rules),
    )
    try:
        repeats = _repeats(rows, rules, types)
        frames = ((day, _frame(part, rules, repeats)) for day, part in _pieces(rows, _columns(rules), types))
        tallies = validator.validate_pieces(suite, frames)
    except Exception as problem:
        return [_failed_check(contract.stream, problem)]
    return [
        outcome
        for rule, judged in zip(rules, suite.expectations, strict=True)
        for outcome in _outcomes(contract.stream, rule, judged, tallies[judged.name])
    ]


def to_expectation(rule: RowRule, stream: str, types: Mapping[str, str], zone: str) -> Expectation:
    """Convert a rule to an expectation of Great Expectations."""
    column, kind = rule.attributes[0], types[rule.attributes[0]]
    kwargs: dict[str, Any] = {"column": column}
    if rule.kind == "range":
        what = "expect_column_values_to_be_between"
        edges = {"min_value": rule.least, "max_value": rule.most}
        kwargs |= {n: edge_of_range(edge, kind, zone) for n, edge in edges.items() if edge is not None}
    elif rule.kind == "one_of":
        what, kwargs["value_set"] = "expect_column_values_to_be_in_set", list(rule.values or ())
    elif rule.kind == "pattern":
        what, kwargs["column"] = "expect_column_values_to_be_null", _odd_column(rule)
    elif rule.kind == "not_null":
        what = "expect_column_values_to_not_be_null"
    else:
        what = "expect_column_values_to_be_between"
        kwargs = {"column": _repeats_column(rule), "max_value": 1}
    meaning = f"{_about(rule)} must {rule.sentence}."
    severity = "critical" if rule.action == "fail" else "info"
    return Expectation(rule.name, what, kwargs, meaning, f"{stream}: {meaning}", severity)


def _about(rule: RowRule) -> str:
    return ", ".join(rule.attributes)


def _repeats_column(rule: RowRule) -> str:
    return f"rows that agree in {_about(rule)}"


def _odd_column(rule: RowRule) -> str:
    return f"{_about(rule)} that must {rule.sentence} and is not"


def _columns(rules: Sequence[RowRule]) -> list[str]:
    return list(dict.fromkeys(name for rule in rules for name in rule.attributes))


def _pieces(
    rows: StoredRows, columns: Sequence[str], types: Mapping[str, str]
) -> Iterator[tuple[date | None, pa.Table]]:
    """Yield the rows of these batches in frames with their batch date; a column that is absent is null."""
    batches = pa.array(sorted(rows.batches), pa.int64())
    for file in rows.files:
        day = as_date(file.value("batch_date"))
        for part in rows_of(file, ["seq", "batch", *columns], ROWS_JUDGED_AT_A_TIME):
            mine = part.filter(pc.is_in(part["batch"], value_set=batches))
            for at, name in enumerate(columns, 2):
                asked, found = ARROW_TYPES[types[name]], mine[name].type
                if not pa.types.is_null(found) and spark_type(found) != spark_type(asked):
                    remedy = "give the attribute its type back, or take the rule out"
                    raise InvalidValue(name, f"be {types[name]} in raw", str(found), remedy)
                mine = mine.set_column(at, name, mine[name].cast(asked))
            if mine.num_rows:
                yield day, mine


def _repeats(rows: StoredRows, rules: Sequence[RowRule], types: Mapping[str, str]) -> Repeats:
    """Return the hashes that several rows of a batch have."""
    found: dict[tuple[str, int], tuple[np.ndarray, np.ndarray]] = {}
    for rule in (rule for rule in rules if rule.kind == "unique_with"):
        seen: dict[int, list[np.ndarray]] = {}
        for _, part in _pieces(rows, rule.attributes, types):
            keys, whole = _row_keys(part, rule.attributes)
            batch = np.asarray(part["batch"])
            for number in np.unique(batch).tolist():
                seen.setdefault(number, []).append(keys[whole & (batch == number)])
        for number, parts in seen.items():
            values, counts = np.unique(np.concatenate(parts), return_counts=True)
            found[_repeats_column(rule), number] = (values[counts > 1], counts[counts > 1])
    return found


def _row_keys(part: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return a hash of each row's attributes, and whether none of them is null. 0.0 equals -0.0, and NaN equals NaN."""
    whole = np.ones(part.num_rows, np.bool_)
    columns = []
    for name in names:
        column = part[name]
        whole &= np.asarray(column.is_valid())
        if pa.types.is_floating(column.type):
            values = np.array(pc.fill_null(column, 0.0), np.float64) + 0.0
            values[np.isnan(values)] = np.nan
            column = pa.chunked_array([pa.array(values)])
        columns.append(column)
    return row_hashes(pa.table(columns, names=list(names)), names), whole


def _frame(part: pa.Table, rules: Sequence[RowRule], repeats: Repeats) -> pd.DataFrame:
    """Return the rows as a pandas data frame, with the extra columns that rules need."""
    columns: dict[str, Any] = {}
    for name in part.column_names:
        kind = part[name].type
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            zone = getattr(kind, "tz", None)
            columns[name] = part[name].cast(pa.timestamp("us", zone)).to_pandas()
        else:
            columns[name] = pd.Series(pd.arrays.ArrowExtensionArray(part[name]))
    batch = np.asarray(part["batch"])
    for rule in (rule for rule in rules if rule.kind == "pattern"):
        texts = part[rule.attributes[0]]
        is_of_it = pc.match_substring_regex(texts, whole_match(str(rule.pattern)))
        odd = pc.if_else(is_of_it, pa.scalar(None, texts.type), texts)
        columns[_odd_column(rule)] = pd.Series(pd.arrays.ArrowExtensionArray(odd))
    for rule in (rule for rule in rules if rule.kind == "unique_with"):
        keys, whole = _row_keys(part, rule.attributes)
        counts = np.ones(part.num_rows, np.int64)
        for number in np.unique(batch).tolist():
            known, often = repeats[_repeats_column(rule), number]
            if len(known):
                place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
                same = whole & (batch == number) & (known[place] == keys)
                counts[same] = often[place[same]]
        columns[_repeats_column(rule)] = counts
    return pd.DataFrame(columns)


def _outcomes(
    stream: str, rule: RowRule, judged: Expectation, tallies: Mapping[Any, Tally]
) -> Iterator[Outcome]:
    reported, expected = rule.action == "warn", f"{_about(rule)} to {rule.sentence}"
    rows, total = sum(one.rows for one in tallies.values()), 0
    for day, one in tallies.items():
        total += one.broken
        if one.broken:
            shown = [_example(row, rule) for row in one.examples]
            sentence = (
                f"raw: {stream}, {day}: {_about(rule)} must {rule.sentence}, got {one.broken:,} of {one.rows:,} rows "
                f"that break it, such as {'; '.join(shown)}; correct the source, or the rule in the contract"
            )
            where = "; ".join(f"batch {row['batch']}, seq {row['seq']}" for row in one.examples)
            observed = f"{one.broken:,} of {one.rows:,} rows"
            yield Outcome(
                "raw", stream, day, judged.name, reported, observed, expected, where, sentence, reported
            )
    if rows and not total:
        yield Outcome(
            "raw", stream, None, judged.name, True, f"0 of {rows:,} rows", expected, "", f"raw: {judged.sentence}"
        )  # fmt: skip


def _example(row: Mapping[str, Any], rule: RowRule) -> str:
    values = ", ".join(f"{name} {_shown(row[name])}" for name in rule.attributes)
    return f"batch {row['batch']}, seq {row['seq']}: {values}"


def _shown(value: Any) -> str:
    """Return a value of a row as a few characters of one line."""
    if value is None or value is pd.NA or value is pd.NaT:
        return "null"
    return escape_text(repr(value) if isinstance(value, str) else str(value), _MOST_LETTERS)


def _failed_check(stream: str, problem: Exception) -> Outcome:
    text = escape_text(str(problem).partition("\n")[0])
    text = text if isinstance(problem, SpillwayError) else f"{type(problem).__name__}: {text}"
    sentence = (
        f"raw, {stream}: the rules of its rows must be valid for its columns, got {text}; correct the rule in "
        "the contract, or restore the rows"
    )
    return Outcome("raw", stream, None, "rules_can_be_judged", False, "not judged", "judged", "", sentence)
