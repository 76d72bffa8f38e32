"""Analyse an SQL statement without understanding it: the names in it, and whether it is a plain aggregate.

Names are all words outside of quoted text and comments, as Spark reads these. A column that is not among them is not
used, so it is not read (`SELECT *` uses all columns). The set of names may be too large, never too small.

A plain aggregate groups one input by columns, computes COUNT, SUM or AVG, and does nothing else. Its answer can have
an interval (`intervals`). A statement with more than that (a join, HAVING, DISTINCT, LIMIT, a window function) is no
plain aggregate; only `sic` states how complete its answer is.

>>> sorted(names_in("SELECT a, 'b' FROM t -- c"))
['a', 'from', 'select', 't']
>>> found = plain_aggregate("SELECT k, count(*) AS n, avg(x + 1) AS m FROM t WHERE x > 2 GROUP BY k")
>>> found.source, found.keys, [(one.name, one.kind, one.of) for one in found.measures], found.where
('t', ('k',), [('n', 'count', None), ('m', 'avg', 'x + 1')], 'x > 2')
>>> [one.of for one in plain_aggregate("SELECT sum(`x`) AS a, avg(t.x) AS b, sum(t.user) AS c FROM t").measures]
['x', 'x', 't.user']
>>> plain_aggregate("SELECT k, count(*) AS n FROM t GROUP BY k HAVING count(*) > 2") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from spillway.contracts.spark_dialect import DIALECT, WITHOUT_PARENTHESES

_QUOTED = re.compile(r"'(?:[^']|'')*'|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXTS = (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING)
_WORD = re.compile(r"[A-Za-z_]\w*")
_KINDS: Mapping[object, str] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg"}
_NEVER = (exp.Query, exp.AggFunc, exp.Window, exp.Distinct, exp.Filter)
"""Expressions that a plain aggregate must not contain."""
_PLAIN_CLAUSES = {"kind", "expressions", "from_", "where", "group"}
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class Measure:
    """A column that is a COUNT, SUM or AVG of the expression `of`; None: COUNT of rows."""

    name: str
    kind: str
    of: str | None


@dataclass(frozen=True)
class PlainAggregate:
    """A query that groups one input by columns and computes measures of each group."""

    source: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    where: str | None


@lru_cache(maxsize=4096)
def _without_texts(statement: str) -> str:
    """Return the words and symbols of a statement, without quoted texts and comments."""
    try:
        tokens = DIALECT().tokenize(statement)
    except SqlglotError:
        return _QUOTED.sub(" ", statement)
    return " ".join("" if one.token_type in _TEXTS else one.text for one in tokens)


def names_in(statement: str) -> frozenset[str]:
    """Return all words outside of quoted text and comments, in lower case.

    >>> sorted(names_in("SELECT a FROM t WHERE c <> '--d' -- e"))
    ['a', 'c', 'from', 'select', 't', 'where']
    """
    return frozenset(word.lower() for word in _WORD.findall(_without_texts(statement)))


def relations_in(statement: str) -> frozenset[str]:
    """Return the words after FROM and JOIN, in lower case.

    >>> sorted(relations_in("SELECT 'from x' FROM sites s JOIN Others o ON s.at = o.at"))
    ['others', 'sites']
    """
    found = re.findall(r"\b(?:from|join)\s+([a-z_]\w*)", _without_texts(statement), re.IGNORECASE)
    return frozenset(name.lower() for name in found)


def reads_everything(statement: str) -> bool:
    """Return whether the statement uses columns that it does not name.

    >>> reads_everything("SELECT t.* FROM t"), reads_everything("SELECT count(*), 2 * x FROM t")
    (True, False)
    """
    said = re.sub(r"count\s*\(\s*\*\s*\)", "", _without_texts(statement), flags=re.IGNORECASE)
    starred = re.search(r"(select|distinct|all|,|\.)\s*\*", said, re.IGNORECASE) is not None
    return starred or re.search(r"\b(natural|using)\b", said, re.IGNORECASE) is not None


@lru_cache(maxsize=1024)
def plain_aggregate(statement: str) -> PlainAggregate | None:
    """Return the statement as a plain aggregate; None if it is not one."""
    try:
        trees = [one for one in sqlglot.parse(statement, dialect=DIALECT) if one is not None]
    except (SqlglotError, RecursionError):
        return None
    trees = [one for one in trees if not isinstance(one, exp.Semicolon)]
    if len(trees) != 1 or not isinstance(trees[0], exp.Select):
        return None
    select = trees[0]
    if any(value for name, value in select.args.items() if name not in _PLAIN_CLAUSES):
        return None
    table, where, group = (
        select.args["from_"].this if select.args.get("from_") else None,
        select.args.get("where"),
        select.args.get("group"),
    )
    if not isinstance(table, exp.Table) or any(value for name, value in table.args.items() if name != "this"):
        return None
    if where is not None and where.find(*_NEVER) is not None:
        return None
    if group is not None and any(value for name, value in group.args.items() if name != "expressions"):
        return None
    keys, measures = [], []
    for one in select.expressions:
        measure = _measure(one, table.name)
        key = _key(one)
        if measure is not None:
            measures.append(measure)
        elif key is not None:
            keys.append(key)
        else:
            return None
    grouped = [_key(one) or "" for one in (group.expressions if group is not None else ())]
    if not measures or sorted(map(str.lower, keys)) != sorted(map(str.lower, grouped)):
        return None
    return PlainAggregate(table.name, tuple(keys), tuple(measures), _text(where.this) if where else None)


def _measure(one: exp.Expr, source: str) -> Measure | None:
    """Return the expression as a measure; None unless it is a COUNT, SUM or AVG with a name."""
    function = one.this if isinstance(one, exp.Alias) else None
    if isinstance(function, exp.Anonymous) and str(function.name).lower() == "mean":
        function = exp.Avg(this=function.expressions[0]) if len(function.expressions) == 1 else None
    kind = _KINDS.get(type(function))
    if function is None or kind is None or not _NAME.match(one.alias) or function.expressions:
        return None
    of = function.this
    if isinstance(of, exp.Star):
        return Measure(one.alias, kind, None) if kind == "count" else None
    if of is None or isinstance(of, _NEVER) or of.find(*_NEVER, exp.Star) is not None:
        return None
    if isinstance(of, exp.Column) and of.table.lower() in ("", source.lower()) and _means_itself(of.name):
        return Measure(one.alias, kind, of.name)
    return Measure(one.alias, kind, _text(of))


def _means_itself(name: str) -> bool:
    """Return whether Spark reads the name, alone and without quotes, as the column of that name."""
    if not _NAME.match(name) or name.lower() in WITHOUT_PARENTHESES:
        return False
    try:
        found = sqlglot.parse_one(name, dialect=DIALECT)
    except SqlglotError:
        return False
    return isinstance(found, exp.Column) and found.name == name


def _key(one: exp.Expr) -> str | None:
    """Return the name of a column; None if the expression is more than a column."""
    alone = isinstance(one, exp.Column) and not one.table and isinstance(one.this, exp.Identifier)
    return one.name if alone and _NAME.match(one.name) else None


def _text(node: exp.Expr) -> str:
    return str(node.sql(dialect=DIALECT, comments=False))
