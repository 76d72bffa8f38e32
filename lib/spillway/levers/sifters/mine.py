"""Queries mined from what people already have: a log of SQL statements, with how often each ran; dbt models.

Of every SELECT that reads the stream (by its name, whatever schema it stands in), also in a join or a common table
expression, the parts of its WHERE that are comparisons of the stream's columns with constants say which rows it wants:
they are kept, and what cannot be used is left out, which can only widen what is wanted. A SELECT without such a part
wants every row. Statements that want the same are one query, whose weight is how often they ran together.

>>> from spillway.levers.sifters.dimensions import Dimension
>>> delay = {"delay": Dimension("delay", "double")}
>>> log = [("SELECT count(*) FROM lake.flights f WHERE f.delay > 60 AND lower(f.tail) = 'x'", 3.0)]
>>> found = mine_queries(log, "flights", delay)
>>> found.queries, found.left_out
((('delay > 60', 3.0),), (("LOWER(tail) = 'x'", 'be comparisons of a dimension with a constant'),))
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spillway.contracts import StreamContract
from spillway.errors import Refused
from spillway.levers.protocol import MinedEntry
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.predicates import DIALECT, parse_predicate, unread, words_named
from spillway.levers.sifters.stated_queries import ReadingQuery, StatedQueries
from spillway.levers.sifters.wanted import declared_dimensions

_REFERENCE = re.compile(r"\{\{\s*(?:ref|source)\s*\((?:[^)]*,)?\s*['\"](\w+)['\"]\s*\)\s*\}\}")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


@dataclass(frozen=True)
class MinedQueries:
    """What a log says is asked of a stream."""

    queries: tuple[tuple[str, float], ...]
    """Conditions and how often they were asked, the most frequent first; `true`: every row."""
    left_out: tuple[tuple[str, str], ...] = ()
    """Parts that could not be used, and the rule they break."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """Statements that are no SQL, and why."""
    others: int = 0
    """Statements that do not read the stream."""


def mine_queries(
    statements: Iterable[tuple[str, float]], stream: str, dimensions: Mapping[str, Dimension]
) -> MinedQueries:
    """The queries of some statements, each with how often it ran."""
    found: dict[str, float] = {}
    left_out: dict[str, str] = {}
    unreadable: list[tuple[str, str]] = []
    others = 0
    for text, runs in statements:
        try:
            trees = sqlglot.parse(without_templates(text), dialect=DIALECT)
        except (SqlglotError, RecursionError) as problem:
            unreadable.append((" ".join(text.split())[:60], unread(problem)))
            continue
        for tree in trees:
            selects = (
                [] if tree is None else [one for one in tree.find_all(exp.Select) if _names_in(one, stream)]
            )
            others += tree is not None and not selects
            for select in selects:
                where = _wanted_by(select, stream, dimensions, left_out)
                found[where] = found.get(where, 0.0) + runs
    ranked = sorted(found.items(), key=lambda one: (-one[1], one[0]))
    return MinedQueries(tuple(ranked), tuple(left_out.items()), tuple(unreadable), others)


def entry_from(contract: StreamContract, statements: Sequence[tuple[str, float]]) -> MinedEntry:
    """The lever's entry by a log, over the dimensions that the contract declares (or all of its attributes)."""
    listed = "sifters" in contract.lever_names
    stated: StatedQueries = (
        contract.lever_settings("sifters") if listed else StatedQueries(queries=(ReadingQuery(where="true"),))
    )
    found = mine_queries(statements, contract.stream, declared_dimensions(stated, contract))
    if not found.queries:
        raise Refused(
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
        raise Refused(
            "log",
            f"hold a SELECT that wants some rows of {contract.stream} more than others",
            f"{len(statements)} statements, of which those that read it want all rows"
            + (f" once {found.left_out[0][0]} is left out" if found.left_out else ""),
            "a random sample is as good as any filter then: shed columns, or write the queries yourself",
            where=contract.stream,
        )
    queries = [{"where": where, "weight": float(weight)} for where, weight in found.queries]
    return MinedEntry({"lever": "sifters", "queries": queries}, tuple(notes))


def without_templates(text: str) -> str:
    """A dbt model as SQL: references are the tables they name, other templates are nothing.

    >>> without_templates("{{ config(x=1) }} select * from {{ ref('flights') }} where a > 1")
    ' select * from flights where a > 1'
    """
    return _TEMPLATE.sub("", _REFERENCE.sub(r"\1", text))


def _names_in(select: exp.Select, stream: str) -> list[str]:
    """The names under which a SELECT itself reads the stream."""
    sources = [select.args.get("from_") or select.args.get("from")]
    sources += select.args.get("joins") or []
    tables = [one.this for one in sources if one is not None and isinstance(one.this, exp.Table)]
    return [table.alias_or_name for table in tables if table.name.lower() == stream.lower()]


def _wanted_by(
    select: exp.Select, stream: str, dimensions: Mapping[str, Dimension], left_out: dict[str, str]
) -> str:
    """The condition on the stream's rows that a SELECT's WHERE implies."""
    where = select.args.get("where")
    names = {name.lower() for name in _names_in(select, stream)}
    known = {name.lower() for name in dimensions}
    alone = not select.args.get("joins")
    kept = []
    parts: Sequence[exp.Expr] = () if where is None else list(_conjuncts(where.this))
    for part in parts:
        columns = list(part.find_all(exp.Column))
        mine = [c.table.lower() in names if c.table else alone or c.name.lower() in known for c in columns]
        if not columns or not all(mine):
            continue  # of another table
        bare = part.copy()
        for column in bare.find_all(exp.Column):
            column.set("table", None)
            column.set("db", None)
        text = str(bare.sql(dialect=DIALECT))
        words = words_named(bare, [name for name, one in dimensions.items() if one.is_text])
        told = {name: one.with_words(sorted(words.get(name, ()))) for name, one in dimensions.items()}
        try:
            _ = parse_predicate(text, told).boxes
        except Refused as problem:
            left_out[text] = problem.problem.rule.split(", under")[0]
        else:
            kept.append(text)
    return " AND ".join(f"({one})" if " OR " in one else one for one in dict.fromkeys(kept)) or "true"


def _conjuncts(condition: exp.Expr) -> Iterable[exp.Expr]:
    if isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    elif isinstance(condition, exp.And):
        for part in condition.flatten():
            yield from _conjuncts(part)
    else:
        yield condition
