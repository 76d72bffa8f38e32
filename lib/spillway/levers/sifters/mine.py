"""Mine queries from SQL that already exists: a log of statements with their number of runs, or dbt models.

The input is each SELECT that reads the stream, in any schema, also within a join or a common table expression. The
conditions of its WHERE that compare the stream's columns with constants tell which rows it wants. Conditions that
cannot be used are left out, which can only widen the result. A SELECT without usable conditions wants all rows.
Statements with the same condition become one query, and its weight is the sum of their runs.

A view or a common table expression that returns the stream's rows unchanged counts as another name of the stream. dbt
models often begin with one: `with flights as (select * from {{ source('raw', 'flights') }})`. It wants no rows itself
if another statement reads it. A condition that a template decides (`{{ var('day') }}`, `{% if ... %}`) does not hold in
every run, so it is left out too.

>>> from spillway.levers.sifters.dimensions import Dimension
>>> delay = {"delay": Dimension("delay", "double")}
>>> log = [("SELECT count(*) FROM lake.flights f WHERE f.delay > 60 AND lower(f.tail) = 'x'", 3.0)]
>>> found = mine_queries(log, "flights", delay)
>>> found.queries, found.left_out
((('delay > 60', 3.0),), (("LOWER(tail) = 'x'", 'be comparisons of a dimension with a constant'),))

`sql_readings` turns a dbt model into SQL. References become the names of their tables. A value that a template inserts
becomes `TEMPLATED`, which no condition may name. An optional block (`{% if ... %}`) is left out, because it is not part
of every run, unless the statement cannot be parsed without it.

>>> model = "{{ config(x=1) }} select * from {{ ref('flights') }} where a > {{ var('low') }} {% if x %}and b{% endif %}"
>>> sql_readings(model)[0]
' select * from flights where a > spillway_templated '
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spillway.contracts import StreamContract
from spillway.contracts.spark_dialect import DIALECT
from spillway.errors import InvalidValue
from spillway.levers.protocol import MinedEntry
from spillway.levers.sifters.boxes import NULL
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.parsed_queries import declared_dimensions
from spillway.levers.sifters.predicates import (
    Predicate,
    compared_words,
    parse_error_words,
    parse_predicate,
    parse_sql,
)
from spillway.levers.sifters.stated_queries import ReadingQuery, StatedQueries

_REFERENCE = re.compile(
    r"\{\{-?\s*(?:ref|source)\s*\((?:[^){}]*,)?\s*['\"](\w+)['\"]\s*(?:,\s*v(?:ersion)?\s*=[^){}]*)?\)\s*-?\}\}"
)
_NOTHING = re.compile(r"\{\{-?\s*config\b.*?\}\}|\{#.*?#\}", re.DOTALL)
_VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_CHOICE = re.compile(r"\{%-?\s*if\b(?:(?!\{%-?\s*if\b).)*?\{%-?\s*endif\s*-?%\}", re.DOTALL)
_TAG = re.compile(r"\{%.*?%\}", re.DOTALL)
TEMPLATED = "spillway_templated"
"""The placeholder for a value or a name that a template inserts."""


def sql_readings(text: str) -> tuple[str, ...]:
    """Return the possible readings of a statement as SQL, the likeliest first; itself if it has no templates."""
    if "{" not in text:
        return (text,)
    plain = _REFERENCE.sub(r"\1", _NOTHING.sub("", text))
    whole, count = plain, 1
    while count:  # from the inside
        whole, count = _CHOICE.subn("", whole)
    found = [_TAG.sub("", _VALUE.sub(value, one)) for one in (whole, plain) for value in (TEMPLATED, "")]
    return tuple(dict.fromkeys(found))


_CHANGES = (
    "where", "joins", "group", "having", "limit", "offset", "distinct", "qualify", "laterals", "pivots",
)  # fmt: skip
"""The clauses of a SELECT that change the rows that it reads."""


@dataclass(frozen=True)
class MinedQueries:
    """The queries that a log asks of a stream."""

    queries: tuple[tuple[str, float], ...]
    """Conditions and their number of runs, the most frequent first; `true`: all rows."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Conditions that could not be used, and the rule that each breaks."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Statements that could not be parsed, and the reason."""
    others: int = 0
    """The number of statements that do not read the stream."""


def mine_queries(
    statements: Iterable[tuple[str, float]], stream: str, dimensions: Mapping[str, Dimension]
) -> MinedQueries:
    """Return the queries of some statements, each with its number of runs."""
    found: dict[str, float] = {}
    left_out: dict[str, str] = {}
    unreadable: list[tuple[str, str]] = []
    parsed: list[tuple[exp.Expr, float]] = []
    for text, runs in statements:
        try:
            parsed += [(tree, runs) for tree in _parse_statement(text)]
        except (SqlglotError, RecursionError) as problem:
            unreadable.append((" ".join(text.split())[:60], parse_error_words(problem)))
    views = _views([tree for tree, _ in parsed], stream.lower(), dimensions)
    known = frozenset([stream.lower(), *views.values()])
    read = {
        one.name.lower() for tree, _ in parsed for one in tree.find_all(exp.Table) if one is not tree.this
    }
    others = 0
    for tree, runs in parsed:
        if views.get(id(tree)) in read:
            continue  # the statements that read this view tell which rows are wanted
        reading = list(_selects_of_stream(tree, known, dimensions))
        others += not reading
        for select, names in reading:
            # in a self-join, each side wants rows of its own
            for side in _sides(select, names):
                where = _implied_condition(select, side, dimensions, left_out)
                found[where] = found.get(where, 0.0) + runs
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return MinedQueries(tuple(ranked), tuple(left_out.items()), tuple(unreadable), others)


def build_entry(contract: StreamContract, statements: Sequence[tuple[str, float]]) -> MinedEntry:
    """Return the lever's contract entry for a log, over the declared dimensions (or all attributes)."""
    listed = "sifters" in contract.lever_names
    stated: StatedQueries = (
        contract.lever_settings("sifters") if listed else StatedQueries(queries=(ReadingQuery(where="true"),))
    )
    found = mine_queries(statements, contract.stream, declared_dimensions(stated, contract))
    if not found.queries:
        raise InvalidValue(
            "log",
            f"hold a SELECT that reads {contract.stream}",
            f"{len(statements)} statements, {found.others} of other tables, {len(found.unreadable)} unreadable",
            "name the log of a server that reads it",
            where=contract.stream,
        )
    notes = [
        f"left out of a condition, which then wants more: {part} (must {rule})"
        for part, rule in found.left_out
    ]
    notes += [f"no SQL: {text} ({why})" for text, why in found.unreadable]
    if found.others:
        notes.append(f"{found.others} statement{'s read' if found.others > 1 else ' reads'} other tables")
    if all(where == "true" for where, _ in found.queries):
        raise InvalidValue(
            "log",
            f"hold a SELECT that wants some rows of {contract.stream} more than others",
            f"{len(statements)} statements, of which those that read it want all rows"
            + (f" once {found.left_out[0][0]} is left out" if found.left_out else ""),
            "a random sample is as good as any filter then: shed columns, or write the queries yourself",
            where=contract.stream,
        )
    queries = [{"where": where, "weight": float(weight)} for where, weight in found.queries]
    notes.append(
        "write unqueried: first if nothing but these is ever asked: rows that none of them wants go first then"
    )
    return MinedEntry({"lever": "sifters", "queries": queries, "unqueried": "by_region"}, tuple(notes))


def _parse_statement(text: str) -> list[exp.Expr]:
    """Return the syntax trees of a statement, which may contain templates."""
    *first, last = sql_readings(text)
    for one in first:
        try:
            return [tree for tree in sqlglot.parse(one, dialect=DIALECT) if tree is not None]
        except (SqlglotError, RecursionError):
            continue
    return [tree for tree in sqlglot.parse(last, dialect=DIALECT) if tree is not None]


def _views(trees: Sequence[exp.Expr], stream: str, dimensions: Mapping[str, Dimension]) -> dict[int, str]:
    """Return the views that are another name of the stream, by the id of the statement that creates them."""
    found: dict[int, str] = {}
    more = True
    while more:
        known = frozenset([stream, *found.values()])
        new = {
            id(tree): tree.this.name.lower()
            for tree in trees
            if isinstance(tree, exp.Create)
            and isinstance(tree.this, exp.Table)
            and isinstance(tree.expression, exp.Select)
            and id(tree) not in found
            and _passes_rows_on(tree.expression, known, dimensions)
        }
        found |= new
        more = bool(new)
    return found


def _selects_of_stream(
    tree: exp.Expr, known: frozenset[str], dimensions: Mapping[str, Dimension]
) -> Iterator[tuple[exp.Select, frozenset[str]]]:
    """Yield the SELECTs that read the stream, each with the names of the stream in its scope."""
    waiting = [(tree, known)]
    while waiting:
        node, outside = waiting.pop()
        names, others = _scope(node, outside, dimensions)
        if isinstance(node, exp.Select) and _sides(node, names):
            yield node, names
        with_ = _with(node)
        waiting += [(child, names) for child in node.iter_expressions() if child is not with_]
        waiting += others


def _scope(
    node: exp.Expr, known: frozenset[str], dimensions: Mapping[str, Dimension]
) -> tuple[frozenset[str], list[tuple[exp.Expr, frozenset[str]]]]:
    """Return the stream's names after a WITH, and the WITH's other expressions, each with the names in its scope."""
    others: list[tuple[exp.Expr, frozenset[str]]] = []
    with_ = _with(node)
    for one in () if with_ is None else with_.expressions:
        alias = frozenset([one.alias.lower()])
        if _passes_rows_on(one.this, known, dimensions) and not one.alias_column_names:
            known |= alias
        else:
            others.append((one.this, known))
            known -= alias
    return known, others


def _with(node: exp.Expr) -> exp.Expr | None:
    return node.args.get("with_") or node.args.get("with")


def _passes_rows_on(select: exp.Expr, known: frozenset[str], dimensions: Mapping[str, Dimension]) -> bool:
    """Return whether a SELECT returns all rows of the stream, with its dimensions under their own names."""
    if not isinstance(select, exp.Select) or any(select.args.get(name) for name in _CHANGES):
        return False
    names, _ = _scope(select, known, dimensions)
    sides = _sides(select, names)
    if not sides or sides[0].renamed or any(one.find(exp.AggFunc) for one in select.expressions):
        return False
    declared = {name.lower() for name in dimensions}
    for one in select.expressions:
        given, name = one.unalias(), one.alias_or_name.lower()
        if name in declared and not (isinstance(given, exp.Column) and given.name.lower() == name):
            return False
        if one.is_star and isinstance(one, exp.Column) and one.table.lower() != sides[0].name:
            return False  # it expands the fields of a struct
    return True


@dataclass(frozen=True)
class _Side:
    """One reading of the stream by a SELECT."""

    name: str
    """The name of the stream in this SELECT."""
    renamed: bool
    """Whether the stream's columns have other names here, or are pivoted."""
    padded: bool
    """Whether an outer join fills the stream's columns with nulls if it finds no row."""


def _sides(select: exp.Select, known: frozenset[str]) -> list[_Side]:
    """Return each reading of the stream by a SELECT's own FROM and JOIN."""
    joins = select.args.get("joins") or []
    first = select.args.get("from_") or select.args.get("from")
    found = []
    for place, one in enumerate([first, *joins]):
        table = None if one is None else one.this
        if isinstance(table, exp.Table) and table.name.lower() in known:
            own = () if one is first else (one.side,)
            padded = any(side in ("LEFT", "FULL") for side in own) or any(
                later.side in ("RIGHT", "FULL") for later in joins[place:]
            )
            renamed = bool(table.alias_column_names or table.args.get("pivots"))
            found.append(_Side(table.alias_or_name.lower(), renamed, padded))
    return found


def _implied_condition(
    select: exp.Select, side: _Side, dimensions: Mapping[str, Dimension], left_out: dict[str, str]
) -> str:
    """Return the condition on the stream's rows that a SELECT's WHERE implies; `true` if there is none."""
    where = select.args.get("where")
    if where is None or side.renamed:
        return "true"
    known = {name.lower() for name in dimensions}
    alone = not select.args.get("joins")
    kept: list[str] = []
    for part in _conjuncts(where.this):
        columns = [one for one in part.find_all(exp.Column) if one.name != TEMPLATED]
        mine = [
            c.table.lower() == side.name if c.table else alone or c.name.lower() in known for c in columns
        ]
        if not columns or not all(mine):
            continue  # it compares columns of another table
        bare = part.copy()
        for column in bare.find_all(exp.Column):
            column.set("table", None)
            column.set("db", None)
        text = str(bare.sql(dialect=DIALECT))
        if TEMPLATED in text:
            left_out[text.replace(TEMPLATED, "{{ }}")] = "hold in every run, and a template decides it"
            continue
        one = f"({text})" if " OR " in text else text
        try:
            read = _read(text, dimensions)
            _ = _read(" AND ".join([*kept, one]), dimensions)
        except InvalidValue as problem:
            left_out[text] = problem.problem.rule.split(", under")[0]
            continue
        if side.padded and read.matches([np.array([NULL])] * len(read.dimensions))[0]:
            left_out[text] = "not hold where an outer join finds no row: what it finds is wanted too"
        elif one not in kept:
            kept.append(one)
    return " AND ".join(kept) or "true"


def _read(text: str, dimensions: Mapping[str, Dimension]) -> Predicate:
    words = compared_words(parse_sql(text), [name for name, one in dimensions.items() if one.is_text])
    told = {name: one.with_words(sorted(words.get(name, ()))) for name, one in dimensions.items()}
    found = parse_predicate(text, told)
    _ = found.boxes
    return found


def _conjuncts(condition: exp.Expr) -> Iterable[exp.Expr]:
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        for part in condition.flatten():
            yield from _conjuncts(part)
    else:
        yield condition
