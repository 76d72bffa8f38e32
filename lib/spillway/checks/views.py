"""Compute the view of each suite, a few rows, with DuckDB in this process.

A distributed engine would take longer to plan each of these queries than DuckDB takes to run it. DuckDB reads
Arrow tables, which every engine produces, so there is only one implementation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType

import duckdb
import pyarrow as pa

from spillway import registry
from spillway.contracts import StreamContract
from spillway.contracts.column_names import bounded_attribute, is_bound
from spillway.errors import InvalidValue, SpillwayError
from spillway.store.schemas import TableContract, spark_type

_CONFIG = {
    "threads": 1,
    # a view may read only the tables passed to it
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "python_enable_replacements": False,
}


class ViewedTables:
    """The tables that views may read; runs views over them.

    `shared` is the SQL of views that other views may read. Each is computed once, when it is first read.

    >>> numbers = pa.table({"stream": ["s", "s"], "x": [1, 2]})
    >>> shared = {"large": "SELECT * FROM {numbers} WHERE x > 1"}
    >>> with ViewedTables({"numbers": numbers}, shared) as views:
    ...     views.rows("SELECT stream, sum(x) AS x FROM {numbers} GROUP BY stream", "n.yaml").to_pylist()
    ...     views.rows("SELECT x FROM {large}", "n.yaml").to_pylist()
    [{'stream': 's', 'x': 3}]
    [{'x': 2}]
    """

    def __init__(self, tables: Mapping[str, pa.Table], shared: Mapping[str, str] | None = None) -> None:
        self._known = set(tables)
        self._shared = dict(shared or {})
        self._database = duckdb.connect(":memory:", config=_CONFIG)
        self._database.execute("SET TimeZone = 'UTC'")
        self._database.create_function(
            "spillway_pairs_at_least",
            _pairs_at_least,
            ["BLOB"],
            "DOUBLE",
            null_handling="special",
        )
        for name, table in tables.items():
            self._database.register(name, table)

    def __enter__(self) -> ViewedTables:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def rows(self, view: str, where: str) -> pa.Table:
        """Return the rows of a view, sorted by all columns, so that the order does not depend on that of the tables.

        `where` names the file and the rule of the view in errors.
        """
        query = self._query(view, where)
        try:
            return _plain(self._database.sql(f"SELECT * FROM ({query}\n) ORDER BY ALL").to_arrow_table())
        except duckdb.Error as problem:
            raise _not_sql(problem, where) from problem

    def _query(self, view: str, where: str) -> str:
        """Return the SQL with the names of its tables, after the shared views that it reads were computed."""
        names = set(re.findall(r"\{(\w+)\}", view))
        if missing := sorted(names - self._known - set(self._shared)):
            raise InvalidValue(
                "view",
                "read tables of the lake",
                ", ".join(missing),
                f"choose from {', '.join(sorted(self._known | set(self._shared)))}",
                where,
            )
        for name in sorted(names - self._known):
            query = self._query(self._shared[name], f"{name}.sql")
            try:
                self._database.execute(f'CREATE TEMP TABLE "{name}" AS {query}')
            except duckdb.Error as problem:
                raise _not_sql(problem, f"{name}.sql") from problem
            self._known.add(name)
        return re.sub(r"\{(\w+)\}", r'"\1"', view)


def _not_sql(problem: duckdb.Error, where: str) -> InvalidValue:
    text = str(problem).splitlines()[0]
    remedy = "compare with the table's contract"
    return InvalidValue("view", "be SQL over the columns of its tables", text, remedy, where)


def _pairs_at_least(payload: bytes | None) -> float | None:
    """Return a lower bound of the number of row pairs that agree in the number of attributes that the contract states.

    It is the low end of the 95 % interval, so that noise causes no violation. Return None if the sketch cannot
    be read.

    >>> _pairs_at_least(b"torn") is None
    True
    """
    # compiled kernels are slow to import, and few runs have counts of pairs
    from spillway.sketches.query import read_sketch, wrap_sketch

    try:
        return None if payload is None else wrap_sketch(read_sketch(payload)).near_duplicate_pairs().low
    except SpillwayError:
        return None


def _plain(found: pa.Table) -> pa.Table:
    """Convert 128-bit sums and decimal literals to int64 and float64."""
    fields = []
    for field in found.schema:
        if pa.types.is_decimal(field.type):
            field = field.with_type(pa.int64() if field.type.scale == 0 else pa.float64())
        fields.append(field)
    return found.cast(pa.schema(fields))


def split_name(name: str) -> tuple[str, str | None]:
    """Split a name into the table and the stream.

    >>> split_name("transmitted/weather"), split_name("ledger")
    (('transmitted', 'weather'), ('ledger', None))
    """
    table, _, stream = name.partition("/")
    return table, stream or None


def types_of(schema: pa.Schema) -> dict[str, str]:
    """Return the columns of a schema with their types, as table contracts write them.

    >>> types_of(pa.schema([("seq", pa.int64()), ("at", pa.timestamp("us", "UTC"))]))
    {'seq': 'bigint', 'at': 'timestamp'}
    """
    return {field.name: spark_type(field.type) for field in schema}


def column_problems(
    found: Mapping[str, str], contract: TableContract, sheddable: Sequence[str] = ()
) -> list[str]:
    """Return the differences between the columns `found` (name to type) and the table's contract.

    A stream's table may have columns that its contract no longer has; other tables must not.
    """
    problems = []
    for column in contract.columns:
        mine = bounded_attribute(column.name)
        if is_bound(column.name) and mine not in sheddable and column.name not in found:
            continue
        asked = column.type.replace(" ", "")
        if column.name not in found:
            problems.append(f"`{column.name}` is missing")
        elif found[column.name] != asked:
            problems.append(f"`{column.name}` must be {asked}, found {found[column.name]}")
    if contract.scope != "stream":
        problems += [f"`{name}` is in no contract" for name in found if name not in contract.names]
    return problems


def stream_facts(streams: Mapping[str, StreamContract]) -> dict[str, pa.Table]:
    """Return facts of the contracts as tables for the views.

    These are `streams` (mode, width), `attributes` (role), `twins` (limit), and `losing_levers` (levers that
    may shed rows for good).
    """
    modes = [{"stream": s.stream, "mode": s.mode, "width": s.width} for s in streams.values()]
    roles = [
        {"stream": s.stream, "attribute": a.name, "role": a.role}
        for s in streams.values()
        for a in s.attributes
    ]
    twins = [
        {"stream": s.stream, "name": "+".join(sketch.attributes), "limit_pct": sketch.twins_pct}
        for s in streams.values()
        for sketch in s.sketches
        if sketch.kind == "pair_count" and sketch.twins_pct is not None
    ]
    text = pa.string()
    return {
        "twins": pa.Table.from_pylist(
            twins, pa.schema({"stream": text, "name": text, "limit_pct": pa.float64()})
        ),
        "losing_levers": pa.table(
            {"lever": pa.array([name for name in registry.LEVERS if registry.loses_rows(name)], text)}
        ),
        "streams": pa.Table.from_pylist(modes, pa.schema({"stream": text, "mode": text, "width": text})),
        "attributes": pa.Table.from_pylist(
            roles, pa.schema({"stream": text, "attribute": text, "role": text})
        ),
    }
