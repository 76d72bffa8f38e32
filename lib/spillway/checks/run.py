"""All suites over the batches that changed, in one go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.checks.digest import SUMMARY, Digest, StoredRows, summaries
from spillway.checks.gx import Validator
from spillway.checks.outcomes import Outcome, judge
from spillway.checks.suites import Expectation, Suite, load_suites
from spillway.checks.views import (
    column_problems,
    empty,
    settle,
    split_name,
    stream_facts,
    types_of,
    view,
)
from spillway.contracts import StreamContract
from spillway.errors import SpillwayError
from spillway.settings import Settings
from spillway.sketches.plan import register_functions
from spillway.store.table_contracts import table_contracts

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
    tables: Mapping[str, DataFrame | pa.Table | StoredRows],
    streams: Mapping[str, StreamContract],
    settings: Settings,
    parameters: Mapping[str, float] | None = None,
    only: Iterable[str] | None = None,
) -> list[Outcome]:
    """Judge every suite whose table is among `tables`, and build Data Docs in `build/data_docs`.

    `tables`: the rows to judge (the batches that changed), by table name; small tables may be given whole, and as Arrow
    tables; a stream's own, as `transmitted/weather`, `recovered/weather`, `raw/weather` (where it is still there), are
    given as where they are stored. `parameters` overrule those a suite states (such as `accuracy_floor_pct`). `only`
    names tables. A table without rows yields no outcome. A failed expectation raises nothing: see `failures`.
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
    stored = {name: table for name, table in tables.items() if isinstance(table, StoredRows)}
    frames: dict[str, Any] = {
        name: spark.createDataFrame(table) if name in local else table
        for name, table in tables.items()
        if name not in stored
    }
    types = {name: types_of(frame) for name, frame in frames.items()}
    types |= {name: dict(table.types) for name, table in stored.items()}
    found = {name: _column_problems(name, have, streams, settings) for name, have in types.items()}
    wrong = {name: problems for name, problems in found.items() if problems}
    chosen = [suite for name, suite in suites.items() if name in asked]
    if "sketches" in asked & set(tables):
        # its view asks the sketches themselves
        register_functions(spark)
    usable = {name: rows for name, rows in stored.items() if name not in wrong}
    outcomes: list[Outcome] = []
    # a view of a few rows is mostly planning, so that several at a time take little longer than one, and what is
    # there is judged meanwhile
    with _few_rows(spark), ThreadPoolExecutor(VIEWS_AT_A_TIME) as pool:
        readable = _readable(spark, frames, wrong, streams, settings, _shared(chosen) - local)
        readable |= _summaries(spark, usable, streams, settings)
        validator = Validator(Path(settings.build, "data_docs"))
        for suite, frame, rows in pool.map(lambda one: _computed(spark, one, readable, wrong), chosen):
            outcomes += _judge_suite(validator, suite, frame, rows)
    validator.write_docs()
    return outcomes


@contextmanager
def _few_rows(spark: SparkSession) -> Iterator[None]:
    """Settings for queries of a few rows: compiling them, or planning them anew half way, costs more than it gives."""
    few = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: spark.conf.get(name) for name in few}
    for name, value in few.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


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
    name: str, found: Mapping[str, str], streams: Mapping[str, StreamContract], settings: Settings
) -> list[str]:
    table, stream = split_name(name)
    contract = table_contracts(settings.schemas)[table]
    if stream is None:
        return column_problems(found, contract)
    if stream not in streams:
        raise SpillwayError(f"`tables` must name streams with a contract, got {name!r}; pass its contract")
    owner = streams[stream]
    attributes = [(attribute.name, attribute.type) for attribute in owner.attributes]
    return column_problems(found, contract.with_attributes(attributes), owner.sheddable)


def _summaries(
    spark: SparkSession,
    stored: Mapping[str, StoredRows],
    streams: Mapping[str, StreamContract],
    settings: Settings,
) -> dict[str, DataFrame]:
    """The streams' own tables, summed up: one table for all streams, empty where there is none."""
    contracts = table_contracts(settings.schemas)
    asked = []
    for name, rows in stored.items():
        table, stream = split_name(name)
        contract = contracts[table]
        # what a table is partitioned by is not in its files and never null
        required = [
            c.name for c in contract.columns if not c.nullable and c.name not in contract.partitioned_by
        ]
        asked.append(Digest(str(stream), rows, tuple(streams[str(stream)].keys), tuple(required)))
    found: dict[str, list[pa.Table]] = {}
    for name, sums in zip(stored, summaries(spark, asked), strict=True):
        if sums.num_rows:
            found.setdefault(split_name(name)[0], []).append(sums)
    return {
        table: spark.createDataFrame(pa.concat_tables(found[table]))
        if table in found
        else empty(spark, SUMMARY)
        for table, contract in contracts.items()
        if contract.scope == "stream"
    }


def _readable(
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    wrong: Mapping[str, list[str]],
    streams: Mapping[str, StreamContract],
    settings: Settings,
    shared: frozenset[str],
) -> dict[str, DataFrame]:
    """The tables views may read, streams' own apart: absent ones empty, those of several views read once."""
    found = stream_facts(spark, streams)
    for table, contract in table_contracts(settings.schemas).items():
        if contract.scope != "stream":
            if table not in tables or table in wrong:
                found[table] = empty(spark, [(column.name, column.type) for column in contract.columns])
            else:
                found[table] = settle(tables[table])[0] if table in shared else tables[table]
    return found
