"""A statement in DuckDB's SQL may ask, of the views that it is given, and answers the same when it is asked again.

Nothing of it is read as text: DuckDB says how many statements there are, what it parsed, and what that means over empty
tables in place of the views. As parsed, a statement names every function, also where a constant is worked out while
it is bound (`LIMIT`, the arguments of `range`). As bound, macros are expanded, names are resolved, and every relation
is told. Which functions answer differently each time, DuckDB says too (`duckdb_functions`), three of the clock apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.errors import Refused

if TYPE_CHECKING:
    import duckdb

_MAKES_ROWS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
"""Those that make rows of what they are handed."""
_CLOCK_WORDS = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
_CALLED_CONSISTENT = frozenset({"current_localtime", "current_localtimestamp"})
"""Functions of the clock of which DuckDB says otherwise; `age` of one time is the third."""
_OPERATORS = """
    AGGREGATE_AND_GROUP_BY ANY_JOIN ASOF_JOIN CHUNK_GET COMPARISON_JOIN CROSS_PRODUCT CTE_REF DELIM_GET DELIM_JOIN
    DEPENDENT_JOIN DISTINCT DUMMY_SCAN EMPTY_RESULT EXCEPT EXPRESSION_GET FILTER GET INTERSECT JOIN LIMIT
    MATERIALIZED_CTE ORDER_BY PIVOT POSITIONAL_JOIN PROJECTION RECURSIVE_CTE TOP_N UNION UNNEST WINDOW
"""
_ASKS = frozenset(f"LOGICAL_{name}" for name in _OPERATORS.split())
"""Operators of a plan that ask."""


def closed_connection() -> duckdb.DuckDBPyConnection:
    """A database in memory that reads nothing from outside; nulls and times are Spark's."""
    import duckdb

    connection = duckdb.connect(
        config={"default_null_order": "nulls_first_on_asc_last_on_desc", "threads": "1"}
    )
    for setting in ("TimeZone='UTC'", "python_enable_replacements=false", "enable_external_access=false"):
        connection.execute(f"SET {setting}")
    return connection


@lru_cache(maxsize=256)
def refuse_doing(views: tuple[tuple[str, pa.Schema], ...], steps: tuple[tuple[str, str], ...]) -> None:
    """Refuse steps that are more than questions of views with these columns; a query asks the same of every window."""
    connection = closed_connection()
    try:
        for name, schema in views:
            connection.from_arrow(schema.empty_table()).create(name)
        for name, statement in steps:
            _refuse_parsed(connection, statement)
            bound = _serialized(connection, "plan", statement)
            relation = connection.sql(statement)  # raises what DuckDB has to say where it is not understood
            if bound["error"]:
                raise Refused(
                    "sql", "be understood by DuckDB", statement, f"it says: {bound['error_message']}"
                )
            _refuse_bound(bound)
            relation.create_view(name)
    finally:
        connection.close()


def _refuse_parsed(connection: duckdb.DuckDBPyConnection, statement: str) -> None:
    import duckdb

    found = connection.extract_statements(statement)
    if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
        raise Refused("sql", "be one question", statement, "begin it with SELECT or WITH")
    changing = _changing()
    for node in _nodes(_serialized(connection, "sql", statement)):
        _refuse_unsteady(node, changing)
        if node.get("type") == "TABLE_FUNCTION" and _called(node["function"]) not in _MAKES_ROWS:
            raise Refused(
                "sql",
                "make rows of its inputs alone",
                _called(node["function"]),
                f"use {', '.join(sorted(_MAKES_ROWS))}",
            )


def _refuse_bound(bound: Any) -> None:
    changing = _changing()
    for node in _nodes(bound):
        _refuse_unsteady(node, changing)
        kind = str(node.get("type"))
        if kind == "LOGICAL_GET" and _called(node) not in (*_MAKES_ROWS, "seq_scan"):
            raise Refused(
                "sql",
                "read nothing but its inputs and steps",
                _called(node),
                "read an input, or a step before it",
            )
        if kind.startswith("LOGICAL_") and kind not in _ASKS:
            raise Refused(
                "sql", "be one question, which changes nothing", kind, "begin it with SELECT or WITH"
            )


def _refuse_unsteady(node: Any, changing: frozenset[str]) -> None:
    """Refuse what may answer differently when it is asked again."""
    name = _called(node)
    if name in changing or (name == "age" and len(node.get("arguments", ())) == 1):
        changes = name
    elif node.get("type") == "LOGICAL_SAMPLE":
        changes = "a sample"
    else:
        return
    raise Refused(
        "sql",
        "answer the same whenever a window is worked out",
        changes,
        "leave it out: what is asked may depend on the rows alone",
    )


def _called(node: Any) -> str:
    """The function that a node calls, as parsed or as bound; words of the clock are parsed as columns."""
    if isinstance(node.get("function_name"), str):
        return str(node["function_name"]).lower()
    if isinstance(node.get("qname"), dict):
        return str(node["qname"]["path"][-1]).lower()
    names = node.get("column_names")
    if isinstance(names, list) and len(names) == 1 and str(names[0]).lower() in _CLOCK_WORDS:
        return str(names[0]).lower()
    return ""


@lru_cache(maxsize=1)
def _changing() -> frozenset[str]:
    """Functions that may answer differently when they are asked again, and macros that call them."""
    connection = closed_connection()
    try:
        told = connection.execute(
            "SELECT function_name FROM duckdb_functions() WHERE stability <> 'CONSISTENT' OR has_side_effects"
        )
        found = {str(name) for (name,) in told.fetchall()} | _CALLED_CONSISTENT | _CLOCK_WORDS
        told = connection.execute(
            "SELECT function_name, json_serialize_sql('SELECT ' || macro_definition) FROM duckdb_functions() "
            "WHERE function_type = 'macro'"
        )
        macros = {
            str(name): {_called(node) for node in _nodes(json.loads(parsed))}
            for name, parsed in told.fetchall()
        }
    finally:
        connection.close()
    count = 0
    while count < len(found):
        count = len(found)
        found |= {name for name, calls in macros.items() if calls & found}
    return frozenset(found)


def _serialized(connection: duckdb.DuckDBPyConnection, what: str, statement: str) -> Any:
    found = connection.execute(f"SELECT json_serialize_{what}(?::VARCHAR)", [statement]).fetchall()
    return json.loads(found[0][0])


def _nodes(parsed: Any) -> Iterator[dict[str, Any]]:
    """Every object within."""
    waiting = [parsed]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
