"""Read streams with shed values recovered: as a Spark data frame, or as Arrow record batches anywhere else.

    spillway.register(spark)                                    # once a session
    spark.read.format("spillway").load("weather")               # a frame; `where` as an option reads less
    spillway.read("weather", where={"origin": "JFK"})           # an Arrow reader: .read_pandas(), polars, duckdb

The columns are those of the table `recovered`, which need not have been written. `streams.query` explains the bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spillway.contracts import StreamContract, load_usable
from spillway.engine.data_source import register_source
from spillway.errors import UsageError
from spillway.levers.frame_slices import MOST_ROWS
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.destination import destination_tables
from spillway.streams.query import SliceQuery, StreamQuery, answer_columns, plan_query, readable_schema

_OPTIONS = ("attributes", "destination", "lake", "schemas", "where")


def read(
    stream: str,
    lake: str | None = None,
    attributes: str | Sequence[str] | None = None,
    where: Mapping[str, Any] | None = None,
    destination: str | None = None,
    schemas: str | None = None,
) -> pa.RecordBatchReader:
    """Return a stream as a reader of Arrow record batches, which are made on demand.

    Call `.read_all()` or `.read_pandas()` on it, or pass it to another library.

    `attributes`: a comma-separated text or a list (default: all).

    `where`: conditions by column. For a key, a value, or a list of values, one of which must match. For the order
    attribute, `seq` and `batch_date`, a value, or a pair with both ends of a range. Both ends are included; None means
    open. Filter by other columns after reading.

    `lake`, `destination`, `schemas`: roots (default: those of the environment).

        spillway.read("weather", attributes="temp", where={"origin": "JFK", "time_hour": ("2013-02-01", "2013-02-02")})
    """
    settings = _settings(
        Settings.from_environment(), {"lake": lake, "destination": destination, "schemas": schemas}
    )
    contract = load_usable(settings.schemas).stream(stream)
    question = StreamQuery.where(contract, where, attributes)
    tables = destination_tables(settings)
    schema = _columns(tables, contract, question)
    asked = plan_query(tables, contract, question, schema.names)
    batches = (batch for table in asked.rows({}) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(asked.schema, batches)


def register(spark: Any) -> None:
    """Make `spark.read.format("spillway")` read streams in the tasks of this session.

    `load(stream)` takes these options:

    - `lake`, `destination`, `schemas`: roots (default: those of this process's environment);
    - `attributes`: comma-separated;
    - `where`: the conditions of `read`, as JSON.

    Spark does not tell a Python data source which columns a query needs, and cannot safely tell it which rows (see
    `engine.data_source`). Filters on the data frame are correct, but read all rows. A schema passed to Spark selects
    columns too.
    """
    register_source(spark, "spillway", Streams(Settings.from_environment()))


@dataclass(frozen=True)
class Streams:
    """The streams below some roots, as Spark reads them."""

    settings: Settings

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        return _columns(*self._opened(options))

    def cuts(self, options: Mapping[str, str], names: Sequence[str]) -> list[ReadTask]:
        return list(_together(plan_query(*self._opened(options), names).stretches))

    def _opened(self, options: Mapping[str, str]) -> tuple[Tables, StreamContract, StreamQuery]:
        told = {name.lower(): value for name, value in options.items()}
        stream = told.pop("path", "").strip("/")
        unknown = sorted(set(told) - set(_OPTIONS))
        if not stream or unknown:
            raise UsageError(
                f"`option` must be one of {', '.join(_OPTIONS)}, got {unknown[0]!r}; leave it out"
                if unknown
                else '`load` must name a stream, got nothing; write e.g. .load("weather")'
            )
        settings = _settings(self.settings, told)
        contract = load_usable(settings.schemas).stream(stream)
        question = StreamQuery.where(contract, _conditions(told.get("where")), told.get("attributes"))
        return destination_tables(settings), contract, question


@dataclass(frozen=True)
class ReadTask:
    """The slices that one task reads."""

    stretches: tuple[SliceQuery, ...]

    def tables(self) -> Iterator[pa.Table]:
        for stretch in self.stretches:
            yield from stretch.rows({})


def _settings(settings: Settings, roots: Mapping[str, str | None]) -> Settings:
    """Return the settings with other roots; if only a lake is given, it is its own destination."""
    told = {name: value for name in ("lake", "destination", "schemas") if (value := roots.get(name))}
    if "lake" in told:
        told.setdefault("destination", told["lake"])
    return settings.with_roots(told)


def _columns(tables: Tables, contract: StreamContract, question: StreamQuery) -> pa.Schema:
    """Return all columns that can be read; if the query names attributes, those of its answer."""
    schema = readable_schema(tables, contract)
    if question.attributes is None:
        return schema
    names = ["seq", "batch", "batch_date", *answer_columns(contract, schema, question)]
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


def _conditions(told: str | None) -> dict[str, Any] | None:
    """Return the conditions of the option `where`, which holds those of `read` as JSON."""
    if told is None:
        return None
    try:
        found = json.loads(told)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(
            f'`where` must be a JSON object of columns and their values, got {told!r}; write e.g. {{"seq": [0, 99]}}'
        )
    return found


def _together(stretches: Sequence[SliceQuery]) -> Iterator[ReadTask]:
    """Combine short slices into one task, because starting a task costs more than reading a few thousand rows."""
    held: list[SliceQuery] = []
    tuples = 0
    for one in stretches:
        if held and tuples + one.tuples > MOST_ROWS:
            yield ReadTask(tuple(held))
            held, tuples = [], 0
        held.append(one)
        tuples += one.tuples
    if held:
        yield ReadTask(tuple(held))
