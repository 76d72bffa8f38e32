"""All suites over the batches that changed, in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.checks.gx import Validator
from spillway.checks.outcomes import Outcome, judge
from spillway.checks.suites import Expectation, Suite, load_suites
from spillway.checks.views import (
    SUMMARY,
    column_problems,
    empty,
    settle,
    split_name,
    stream_facts,
    summary,
    view,
)
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.lake.columns import table_contracts
from spillway.settings import Settings
from spillway.sketches.plan import register_functions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = Expectation(
    name="columns_as_contracted",
    type="expect_column_max_to_be_between",
    kwargs={"column": "column_problems", "min_value": 0, "max_value": 0},
    meaning="Columns and types are those of the table's contract.",
    sentence="{stream} must have the columns of schemas/tables: {column_problem_text}",
)
"""Part of every suite. It reads the schema only, so it costs no pass."""

VIEWS_AT_A_TIME = 3


def run_suites(
    spark: SparkSession,
    tables: Mapping[str, DataFrame | pa.Table],
    streams: Mapping[str, StreamContract],
    settings: Settings,
    parameters: Mapping[str, float] | None = None,
    only: Iterable[str] | None = None,
) -> list[Outcome]:
    """Judge every suite whose table is among `tables`, and build Data Docs in `build/data_docs`.

    `tables`: the rows to judge (the batches that changed), by table name, a stream's own as
    `transmitted/weather`, `recovered/weather`, `raw/weather` (where it is still there). Small tables may be
    given whole, and as Arrow tables. `parameters` overrule those a suite states (such as `accuracy_floor_pct`).
    `only` names tables. A table without rows yields no outcome. A failed expectation raises nothing: see `failures`.
    """
    if not tables:
        return []
    contracts = table_contracts(settings.schemas)
    suites = load_suites(Path(settings.home, "expectations"), parameters)
    asked = set(only) if only is not None else {split_name(name)[0] for name in tables}
    unknown = {split_name(name)[0] for name in tables} - set(contracts)
    if unknown:
        raise SpillwayError(f"`tables` must be tables of schemas/tables, got {', '.join(sorted(unknown))}")
    local = {name for name, table in tables.items() if isinstance(table, pa.Table)}
    frames = {name: spark.createDataFrame(tables[name]) if name in local else tables[name] for name in tables}
    found = {name: _column_problems(name, frame, streams, settings) for name, frame in frames.items()}
    wrong = {name: problems for name, problems in found.items() if problems}
    chosen = [suite for name, suite in suites.items() if name in asked]
    if "sketches" in asked & set(tables):
        # its view asks the sketches themselves
        register_functions(spark)
    readable = _readable(spark, frames, wrong, streams, settings, _shared(chosen) - local)
    # a view of a few rows is mostly planning, so that several at a time take little longer than one
    with ThreadPoolExecutor(VIEWS_AT_A_TIME) as pool:
        computed = list(pool.map(lambda suite: _computed(spark, suite, readable, wrong), chosen))
    validator = Validator(Path(settings.build, "data_docs"))
    outcomes = [one for suite, frame, rows in computed for one in _judge_suite(validator, suite, frame, rows)]
    validator.write_docs()
    return outcomes


def _shared(suites: Iterable[Suite]) -> frozenset[str]:
    """The tables that more than one view reads, the bulky synopsis apart."""
    read = Counter(table for suite in suites for table in suite.tables())
    return frozenset(table for table, times in read.items() if times > 1) - {"synopsis"}


def _computed(
    spark: SparkSession, suite: Suite, tables: Mapping[str, DataFrame], wrong: Mapping[str, list[str]]
) -> tuple[Suite, DataFrame, list[dict[str, Any]]]:
    """The suite as it is to be judged, and its view's rows, for Spark and for the driver."""
    broken = {name: text for name, text in wrong.items() if split_name(name)[0] == suite.table}
    if broken:
        rows = [(split_name(name)[1] or "", len(text), "; ".join(text)) for name, text in broken.items()]
        frame = spark.createDataFrame(
            rows, "stream string, column_problems bigint, column_problem_text string"
        )
        suite = replace(suite, expectations=(COLUMNS,))
    else:
        frame = view(spark, suite, tables).selectExpr(
            "*", "0L AS column_problems", "'' AS column_problem_text"
        )
        suite = replace(suite, expectations=(COLUMNS, *suite.expectations))
    return suite, *settle(frame)


def _judge_suite(
    validator: Validator, suite: Suite, frame: DataFrame, found: list[dict[str, Any]]
) -> list[Outcome]:
    if not found:
        return []
    verdicts = validator.validate(suite, frame)
    return [
        outcome
        for rule in suite.expectations
        for outcome in judge(suite, rule, verdicts[rule.name].holds, verdicts[rule.name].observed, found)
    ]


def _column_problems(
    name: str, frame: DataFrame, streams: Mapping[str, StreamContract], settings: Settings
) -> list[str]:
    table, stream = split_name(name)
    contract = table_contracts(settings.schemas)[table]
    if stream is None:
        return column_problems(frame, contract)
    if stream not in streams:
        raise SpillwayError(f"`tables` must name streams with a contract, got {name!r}; pass its contract")
    owner = streams[stream]
    attributes = [(attribute.name, attribute.type) for attribute in owner.attributes]
    return column_problems(frame, contract.with_attributes(attributes), owner.sheddable)


def _readable(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    wrong: Mapping[str, list[str]],
    streams: Mapping[str, StreamContract],
    settings: Settings,
    shared: frozenset[str],
) -> dict[str, DataFrame]:
    """The tables views may read: a stream's as one summary, absent ones empty, those of several views read once."""
    contracts = table_contracts(settings.schemas)
    usable = {name: frame for name, frame in tables.items() if name not in wrong}

    def one(table: str) -> DataFrame:
        contract = contracts[table]
        if contract.scope == "stream":
            parts = [
                (frame, streams[str(split_name(name)[1])], contract)
                for name, frame in usable.items()
                if split_name(name)[0] == table
            ]
            # several views join it: computed once, a few rows
            return settle(summary(parts).select(*dict(SUMMARY)))[0] if parts else empty(spark, SUMMARY)
        if table not in usable:
            return empty(spark, [(column.name, column.type) for column in contract.columns])
        return settle(usable[table])[0] if table in shared else usable[table]

    with ThreadPoolExecutor(VIEWS_AT_A_TIME) as pool:
        return stream_facts(spark, streams) | dict(zip(contracts, pool.map(one, contracts), strict=True))
