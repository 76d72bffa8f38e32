"""How most people read: one frame per stream with shed values given back, in Spark, or as Arrow anywhere else.

    spillway.register(spark)                                    # once a session
    spark.read.format("spillway").load("weather")               # a frame; filters are pushed down
    spillway.read("weather", where={"origin": "JFK"})           # an Arrow reader: .read_pandas(), polars, duckdb

The columns are those of the table `recovered` (see `pipeline.reading` for what a bound tells), and nothing needs to
have been written there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from spillway.contracts import StreamContract, load_contracts
from spillway.engine.data_source import Conditions, register_source
from spillway.errors import UsageError
from spillway.levers.pieces import MOST_ROWS
from spillway.pipeline.across import tables_there
from spillway.pipeline.question import Question
from spillway.pipeline.reading import Stretch, asked_columns, readable, reading
from spillway.settings import Settings
from spillway.store.tables import Tables

_OPTIONS = ("attributes", "destination", "lake", "schemas")


def read(
    stream: str,
    lake: str | None = None,
    attributes: str | Sequence[str] | None = None,
    where: Mapping[str, Any] | None = None,
    destination: str | None = None,
    schemas: str | None = None,
) -> pa.RecordBatchReader:
    """A stream as Arrow record batches, made as they are asked for: `.read_all()`, `.read_pandas()`, or hand it on.

    `attributes`: some of them, comma-separated or as a list (default: all). `where`: by key, order attribute, `seq` or
    `batch_date`, a value, a list of values of which any will do (keys), or a pair, the ends of a range that are both
    included (None: open). The roots are those of the environment where they are not given.

        spillway.read("weather", attributes="temp", where={"origin": "JFK", "time_hour": ("2013-02-01", "2013-02-02")})
    """
    settings = _settings(
        Settings.from_environment(), {"lake": lake, "destination": destination, "schemas": schemas}
    )
    contract = load_contracts(settings.schemas).stream(stream)
    question = Question.where(contract, where, attributes)
    tables = tables_there(settings)
    schema = _columns(tables, contract, question)
    asked = reading(tables, contract, question, schema.names)
    batches = (batch for table in asked.rows({}) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(asked.schema, batches)


def register(spark: Any) -> None:
    """Make `spark.read.format("spillway")` read streams in this session's tasks.

    `load(stream)` takes the options `lake`, `destination` and `schemas` (roots; by default this process's environment
    says which), and `attributes`, comma-separated: Spark tells a source written in Python what rows it needs, but not
    which columns, so name them where there are many. A schema that is given does the same.
    """
    register_source(spark, "spillway", Streams(Settings.from_environment()))


@dataclass(frozen=True)
class Streams:
    """The streams below some roots, as Spark reads them."""

    settings: Settings

    def schema(self, options: Mapping[str, str]) -> pa.Schema:
        contract, tables, attributes = self._opened(options)
        return _columns(tables, contract, Question.where(contract, attributes=attributes))

    def cuts(self, options: Mapping[str, str], names: Sequence[str], where: Conditions) -> list[Stretches]:
        contract, tables, _ = self._opened(options)
        question = _question(contract, where)
        if question is None:
            return []
        return list(_together(reading(tables, contract, question, names).stretches))

    def _opened(self, options: Mapping[str, str]) -> tuple[StreamContract, Tables, str | None]:
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
        contract = load_contracts(settings.schemas).stream(stream)
        return contract, tables_there(settings), told.get("attributes")


@dataclass(frozen=True)
class Stretches:
    """What one task reads."""

    stretches: tuple[Stretch, ...]

    def tables(self) -> Iterator[pa.Table]:
        for stretch in self.stretches:
            yield from stretch.rows({})


def _settings(settings: Settings, roots: Mapping[str, str | None]) -> Settings:
    """With other roots; a lake of its own is its own destination, unless that is told too."""
    told = {name: value for name in ("lake", "destination", "schemas") if (value := roots.get(name))}
    if "lake" in told:
        told.setdefault("destination", told["lake"])
    return settings.with_roots(told)


def _columns(tables: Tables, contract: StreamContract, question: Question) -> pa.Schema:
    """All that can be read, or, where attributes are named, what a question about these is answered with."""
    schema = readable(tables, contract)
    if question.attributes is None:
        return schema
    names = ["seq", "batch", "batch_date", *asked_columns(contract, schema, question)]
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


def _question(contract: StreamContract, where: Conditions) -> Question | None:
    """What Spark's filters ask of the columns that questions are about; None where nothing can answer."""
    asked: dict[str, Any] = {}
    for name, told in where.items():
        values = [list(value) if operator == "in" else [value] for operator, value in told]
        if name in contract.keys:
            exact = [
                held for (operator, _), held in zip(told, values, strict=True) if operator in ("=", "in")
            ]
            if exact:
                asked[name] = min(exact, key=len)
        elif name in (contract.order, "seq", "batch_date"):
            lows = [min(held) for (op, _), held in zip(told, values, strict=True) if op != "<=" and held]
            highs = [max(held) for (op, _), held in zip(told, values, strict=True) if op != ">=" and held]
            low, high = max(lows, default=None), min(highs, default=None)
            if low is not None and high is not None and low > high:
                return None
            asked[name] = (low, high)
    return Question.where(contract, asked)


def _together(stretches: Sequence[Stretch]) -> Iterator[Stretches]:
    """Short stretches in one task: starting one costs more than reading a few thousand rows."""
    held: list[Stretch] = []
    tuples = 0
    for one in stretches:
        if held and tuples + one.tuples > MOST_ROWS:
            yield Stretches(tuple(held))
            held, tuples = [], 0
        held.append(one)
        tuples += one.tuples
    if held:
        yield Stretches(tuple(held))
