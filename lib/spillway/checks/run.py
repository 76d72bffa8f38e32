"""Run all suites over the batches that changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from spillway import registry
from spillway.checks.digest import (
    SUMMARY,
    Digest,
    ExaminedRows,
    StoredRows,
    UnreadableTable,
    summarise_tables,
)
from spillway.checks.gx import Validator
from spillway.checks.outcomes import Outcome, by_stream, expectation_outcomes
from spillway.checks.row_rules import check_rows
from spillway.checks.suites import NO_ROW_OF_VIEW, Expectation, Suite, load_suites, load_views
from spillway.checks.views import ViewedTables, column_problems, split_name, stream_facts, types_of
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.store.schemas import table_contracts

COLUMNS = Expectation(
    name="columns_as_contracted",
    type=NO_ROW_OF_VIEW,
    kwargs={},
    meaning="Columns and types are those of the table's contract.",
    sentence="{stream} must have the columns of its table's contract: {problems}",
    view="the differences between the columns of a table and its contract",
    worst_by="count",
)
"""Checked once for every table, with its first suite. It needs only the schema and reads no rows."""
_COLUMN_PROBLEMS = pa.schema([("stream", pa.string()), ("count", pa.int64()), ("problems", pa.string())])

Added = Mapping[str, Sequence[tuple[str, str, str]]]
"""By stream: the columns (name, type, meaning) that its levers add to the rows that they pass on."""
Judged: TypeAlias = pa.Table | StoredRows | ExaminedRows
"""The rows of a table; for a stream's own table its stored rows, for one of a join or a query its examined rows."""


def suite_folders() -> list[Path]:
    """Return the folders of suites: the product's, and those of the levers."""
    return [registry.product_folder("expectations"), *registry.folders("expectations").values()]


def run_suites(
    engine: Engine,
    tables: Mapping[str, Judged],
    streams: Mapping[str, StreamContract],
    settings: Settings,
    parameters: Mapping[str, float] | None = None,
    only: Iterable[str] | None = None,
    added: Added | None = None,
    folders: Iterable[Path] | None = None,
    run_id: str = "",
) -> list[Outcome]:
    """Check every suite whose table is in `tables`, check the streams' rules for rows, and build Data Docs.

    `tables`: the rows of the batches that changed, by table name. Shared tables are Arrow tables; small ones
    may be passed completely. A stream's own table (`transmitted/weather`, `recovered/weather`, and
    `raw/weather` if it still exists) is passed as `StoredRows`, which the engine summarises. A table of a join
    or a query (`joined/winds`) is passed as `ExaminedRows` of its lever.

    `added`: the columns that a stream's levers add to the rows of `transmitted` and `recovered`. `parameters`:
    override the parameters of suites (such as `accuracy_floor_pct`). `only`: names of the tables to check.
    `folders`: folders of suites instead of `suite_folders`. `run_id`: Data Docs contain everything that this
    run checked, in this call and in earlier ones. They are in `build/data_docs`.

    A table without rows has no outcome. A failed expectation raises no error: see `failures`.
    """
    if not tables:
        return []
    suites = load_suites(suite_folders() if folders is None else folders, parameters)
    unknown = {split_name(name)[0] for name in tables} - set(table_contracts())
    if unknown:
        raise InvalidValue(
            "tables", "be tables with a contract", ", ".join(sorted(unknown)), "correct the name"
        )
    odd = [name for name, table in tables.items() if isinstance(table, pa.Table) == ("/" in name)]
    if odd:
        remedy = "a stream's own table is given as StoredRows, every other as an Arrow table"
        raise InvalidValue("tables", "be of their kind", ", ".join(odd), remedy)
    asked = set(only) if only is not None else {split_name(name)[0] for name in tables}
    wrong = {
        name: problems
        for name, table in tables.items()
        if (problems := _column_differences(name, table, streams, added or {}))
    }
    usable = {name: table for name, table in tables.items() if name not in wrong}
    sums, unread = _sums(engine, usable, streams)
    outcomes: list[Outcome] = list(unread)
    if "recovered" in asked:
        outcomes += checksum_outcomes(sums, tables.get("certificates"))
    seen: set[str] = set()
    places = suite_folders() if folders is None else list(folders)
    with ViewedTables(_readable(usable, streams, sums), load_views(places)) as views:
        validator = Validator(Path(settings.build, "data_docs"), run_id, _subjects(tables, streams))
        for suite in (suite for suite in suites.values() if suite.table in asked):
            broken = {name: text for name, text in wrong.items() if split_name(name)[0] == suite.table}
            first = suite.table not in seen
            seen.add(suite.table)
            if broken and first:
                rows = _problem_rows(broken)
                outcomes += _check_suite(
                    validator, replace(suite, expectations=(COLUMNS,)), rows, {COLUMNS.name: rows}
                )
            elif not broken:
                where = f"{suite.name}.yaml"
                rows = views.rows(suite.view, where)
                found = {
                    rule.name: views.rows(rule.view, f"{where}, {rule.name}")
                    for rule in suite.expectations
                    if rule.view and rows.num_rows
                }
                if first:
                    suite = replace(suite, expectations=(*suite.expectations, COLUMNS))
                    found[COLUMNS.name] = _problem_rows({})
                outcomes += _check_suite(validator, suite, rows, found)
    for stream, contract in streams.items() if "raw" in asked else ():
        if isinstance(rows := tables.get(f"raw/{stream}"), StoredRows):
            outcomes += check_rows(validator, contract, rows)
    validator.write_docs()
    return outcomes


def _subjects(tables: Mapping[str, Judged], streams: Iterable[str]) -> list[str]:
    """Return the streams, joins and queries that are checked."""
    windows = {
        one
        for name, rows in tables.items()
        if isinstance(rows, ExaminedRows) and (one := split_name(name)[1])
    }
    return sorted({*streams, *windows})


def _problem_rows(broken: Mapping[str, Sequence[str]]) -> pa.Table:
    """Return the differences between the columns of tables and their contracts, one row per table."""
    rows = [
        {"stream": split_name(name)[1] or "", "count": len(text), "problems": "; ".join(text)}
        for name, text in broken.items()
    ]
    return pa.Table.from_pylist(rows, _COLUMN_PROBLEMS)


def _check_suite(
    validator: Validator, suite: Suite, rows: pa.Table, offending: Mapping[str, pa.Table]
) -> list[Outcome]:
    if not rows.num_rows:
        return []
    verdicts = validator.validate(suite, rows, offending)
    streams = by_stream(rows.to_pylist())
    return [
        outcome
        for rule in suite.expectations
        for outcome in expectation_outcomes(suite, rule, verdicts[rule.name], streams)
    ]


def _column_differences(
    name: str, rows: Judged, streams: Mapping[str, StreamContract], added: Added
) -> list[str]:
    """Return the differences between a table's columns and its contract.

    The contract of a stream's own table includes the stream's attributes and the columns of its levers.
    """
    table, stream = split_name(name)
    contract = table_contracts()[table]
    if isinstance(rows, pa.Table):
        return column_problems(types_of(rows.schema), contract)
    if isinstance(rows, ExaminedRows):
        return column_problems(rows.types, contract)
    if stream is None or stream not in streams:
        raise InvalidValue("tables", "name streams with a contract", name, "pass its contract")
    owner = next(
        (name for name, of in registry.folders("tables").items() if (of / f"{table}.yaml").is_file()), None
    )
    if owner is not None and owner not in streams[stream].lever_names:
        # the lever was removed and writes no more: the table has the columns that it had then
        return column_problems(rows.types, contract)
    attributes = [(attribute.name, attribute.type) for attribute in streams[stream].attributes]
    levers = () if table == "raw" else added.get(stream, ())
    mine = contract.with_attributes(attributes, levers, streams[stream].bound_in_units)
    return column_problems(rows.types, mine, streams[stream].sheddable)


def _readable(
    tables: Mapping[str, Judged],
    streams: Mapping[str, StreamContract],
    sums: Mapping[str, Sequence[pa.Table]],
) -> dict[str, pa.Table]:
    """Return the tables that views may read.

    Tables of streams, joins and queries are summaries, concatenated by kind. Absent tables are empty.
    """
    found = stream_facts(streams)
    for name, contract in table_contracts().items():
        if contract.scope == "stream":
            found[name] = pa.concat_tables(sums[name]) if name in sums else SUMMARY.empty_table()
        else:
            given = tables.get(name)
            found[name] = given if isinstance(given, pa.Table) else contract.arrow_schema.empty_table()
    return found


def _sums(
    engine: Engine, tables: Mapping[str, Judged], streams: Mapping[str, StreamContract]
) -> tuple[dict[str, list[pa.Table]], list[Outcome]]:
    """Return the summaries of the tables of streams, joins and queries, by table.

    The second value is an outcome for each table that cannot be read.
    """
    asked: list[tuple[str, Digest]] = []
    found: dict[str, list[pa.Table]] = {}
    for name, rows in tables.items():
        table, stream = split_name(name)
        if isinstance(rows, ExaminedRows):
            found.setdefault(table, []).append(rows.found)
        elif isinstance(rows, StoredRows) and stream is not None:
            # partition columns are not in the files and never null
            contract = table_contracts()[table]
            required = [
                c.name for c in contract.columns if not c.nullable and c.name not in contract.partitioned_by
            ]
            asked.append((table, Digest(stream, rows, streams[stream].keys, tuple(required))))
    unread: list[Outcome] = []
    for (table, one), sums in zip(asked, summarise_tables(engine, [one for _, one in asked]), strict=True):
        if isinstance(sums, UnreadableTable):
            unread.append(_cannot_be_read(table, one.stream, sums.problem))
        else:
            found.setdefault(table, []).append(sums)
    return found, unread


def checksum_outcomes(sums: Mapping[str, Sequence[pa.Table]], certificates: Any) -> Iterator[Outcome]:
    """Yield the checksums of untouched columns in `raw` and in `recovered`, so that they remain when raw is retired.

    A column is untouched if no value of it was shed or rounded. The suites check whether the checksums are
    equal.
    """
    touched = {
        (row["stream"], row["batch"], row["attribute"])
        for row in (certificates.to_pylist() if isinstance(certificates, pa.Table) else ())
        if row["shed_values"] or row["rounded_values"]
    }

    def checksum_text(row: Mapping[str, Any]) -> str:
        columns = sorted((one["name"], one["checksum"]) for one in row["columns"] or ())
        mine = [one for one in columns if (row["stream"], row["batch"], one[0]) not in touched]
        return " ".join(f"{name}={checksum % 2**64:016x}" for name, checksum in mine)

    raw = {(row["stream"], row["batch"]): checksum_text(row) for row in _rows(sums, "raw")}
    for row in _rows(sums, "recovered"):
        stream, batch, observed = row["stream"], row["batch"], checksum_text(row)
        expected = raw.get((stream, batch))
        if observed and expected:
            sentence = (
                f"recovered: {stream}, batch {batch}: checksums of the columns that were kept: {observed}"
            )
            yield Outcome(
                "recovered", stream, row["batch_date"], "checksums_of_what_was_kept", True, observed, expected,
                f"batch {batch}", sentence,
            )  # fmt: skip


def _rows(sums: Mapping[str, Sequence[pa.Table]], table: str) -> list[dict[str, Any]]:
    return [row for part in sums.get(table, ()) for row in part.to_pylist()]


def _cannot_be_read(table: str, stream: str, problem: str) -> Outcome:
    remedy = "restore them, or do the batch again"
    sentence = f"{table}, {stream}: its files must exist and be complete, got {problem}; {remedy}"
    return Outcome(table, stream, None, "table_can_be_read", False, "unread", "read", "", sentence)
