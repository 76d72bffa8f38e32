"""Parse a predicate, a Spark SQL boolean expression over declared dimensions, into boxes (II-B).

A predicate consists of comparisons of one dimension with a constant, under `and`, `or` and `not`. The comparisons are
`<`, `<=`, `=`, `==`, `!=`, `<>`, `<=>`, `>`, `>=`, `between`, `in`, `is [not] null`, `is [not] distinct from`, and a
boolean dimension by itself. SQLGlot parses the text in the Spark dialect. This module pushes `not` down to the
comparisons by three-valued (Kleene) logic. So, as in a WHERE, neither a comparison with null nor its negation matches.

Guarantee: the boxes hold exactly the rows for which Spark evaluates the predicate to true. An expression that is not
such a comparison is refused, and the error quotes it.

>>> temp = Dimension("temp", "double")
>>> parsed = parse_predicate("not (temp < 4 or temp > 9.5)", {"temp": temp})
>>> parsed.matches([temp.keys_of(pa.chunked_array([[3.0, 4.0, 9.5, None, float("nan")]]))]).tolist()
[False, True, True, False, False]
>>> parse_predicate("temp > 4 and dewp > 3", {"temp": temp})
Traceback (most recent call last):
    ...
spillway.errors.InvalidValue: `where` must be over declared dimensions (temp), got 'dewp > 3'; name dewp among the \
dimensions, or leave that part out

Constants have the values that Spark computes:

    3, 0.1, 10L, 0.1BD       exact (a `Fraction`)
    1e-1, 0.1D               a double (a `float`); an expression or a list that contains a double is double

A cast that does not change the value returns that value. A cast that changes it returns None, and the caller refuses
the predicate. Examples are casts that round (`cast(2.7 as int)`, `0.1F`) and a date with a time of day, which Spark
truncates.

>>> double, whole = exp.DataType.build("double"), exp.DataType.build("int")
>>> cast_value(double, parse_number("0.1")), cast_value(whole, parse_number("2.7"))
(0.1, None)
>>> compute("*", parse_number("0.1"), parse_number("3e0"))
0.30000000000000004
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa  # noqa: F401 - the example's
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from spillway.contracts.spark_dialect import DIALECT, describe_parse_error
from spillway.errors import InvalidValue
from spillway.levers.sifters.boxes import (
    ANYTHING,
    NULLS,
    VALUES,
    Product,
    Spans,
    boxes_of,
    conjunction,
    difference,
    disjunction,
    intersection,
    make_disjoint,
    products_contain,
    union,
)
from spillway.levers.sifters.dimensions import Dimension

_COMPUTED = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_TIMES = ("timestamp", "timestamptz", "timestampltz")
_NOT_FINITE = ("nan", "infinity", "inf", "-infinity", "-inf")
MOST_DIGITS = 38
"""The maximum number of digits of a Spark decimal. A number with an exponent is a double and may be larger."""


def parse_number(text: str) -> Fraction | float | None:
    """Return the value of a number literal; None if Spark has no such number.

    >>> parse_number("2.50"), parse_number("25e-1"), parse_number("1e400")
    (Fraction(5, 2), 2.5, None)
    """
    try:
        if "e" in text.lower():
            return float(text) if math.isfinite(float(text)) else None
        return Fraction(text) if sum(one.isdigit() for one in text) <= MOST_DIGITS else None
    except ValueError:
        return None


def negate(value: Any) -> Fraction | float | None:
    """Return the negated number; None if the value is not a number."""
    return -value if isinstance(value, Fraction | float) else None


def compute(sign: str, one: Any, other: Any) -> Fraction | float | None:
    """Return the result of an operation on two numbers: exact, or a double if either is one; None if not numbers."""
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        found: Fraction | float = _COMPUTED[sign](one, other)
        return found
    if isinstance(one, Fraction | float) and isinstance(other, Fraction | float):
        found = _COMPUTED[sign](float(one), float(other))
        return found
    return None


def cast_value(type_: exp.DataType, value: Any) -> Any:
    """Return the value of a cast that changes only the type; None for any other cast."""
    kind = type_.this.name.lower()
    if isinstance(value, str):
        return _of_text(kind, value)
    if isinstance(value, Fraction):
        if kind == "double":
            return float(value)
        if kind in _WHOLE:
            return value if value.denominator == 1 else None
        if kind == "decimal":
            stated = [one.this.name for one in type_.expressions]
            scale = int(stated[1]) if len(stated) > 1 else 0
            return value if (value * 10**scale).denominator == 1 else None
    return value if isinstance(value, float) and kind == "double" else None


def _of_text(kind: str, text: str) -> Any:
    plain = text.strip()
    if kind in _TIMES:
        return text
    if kind == "double" and plain.lower() in _NOT_FINITE:
        return float(plain)
    if kind in ("decimal", "double"):
        return parse_number(plain) if kind == "decimal" else None
    try:
        if kind == "date":
            date.fromisoformat(plain)
            return text
        if kind == "timestampntz":  # an offset would be cut off
            return text if datetime.fromisoformat(plain).tzinfo is None else None
    except ValueError:
        return None
    return None


LONGEST_TEXT = 100_000
TREES_KEPT = 2048
"""The number of syntax trees that a process caches; a short condition takes about 15 kB."""
_ASKED = "SELECT 1 WHERE "
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "!=",
}  # fmt: skip
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
_NOT = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
_SIGNS: Mapping[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_EVERYTHING: list[Product] = [{}]


@dataclass(frozen=True)
class Predicate:
    """A predicate over dimensions in a fixed order."""

    text: str
    dimensions: tuple[Dimension, ...]
    products: tuple[Product, ...]
    """The products whose union the predicate matches; they may overlap."""

    @cached_property
    def disjoint_products(self) -> tuple[Product, ...]:
        """Return the same union as products that do not overlap."""
        return tuple(make_disjoint(self.products))

    @cached_property
    def boxes(self) -> np.ndarray:
        """Return the same union as boxes of keys that do not overlap: (box, dimension, low and high)."""
        return boxes_of(self.disjoint_products, len(self.dimensions))

    @property
    def used_dimensions(self) -> tuple[str, ...]:
        """Return the names of the dimensions that the predicate compares."""
        places = {place for one in self.products for place in one}
        return tuple(one.name for place, one in enumerate(self.dimensions) if place in places)

    def matches(self, keys: Sequence[np.ndarray]) -> np.ndarray:
        """Return for each row whether the predicate is true; `keys` by dimension."""
        return products_contain(self.products, keys)


def parse_predicate(text: str, dimensions: Mapping[str, Dimension], field: str = "where") -> Predicate:
    """Return the parsed predicate; refuse one that no row can satisfy. Errors call the predicate `field`."""
    found = _Reader(field, dimensions).products(parse_sql(text, field), True)
    if not found:
        raise InvalidValue(
            field,
            "be possible to satisfy",
            text,
            "its parts contradict each other: correct the comparison that excludes the others",
        )
    return Predicate(text, tuple(dimensions.values()), tuple(found))


def parse_sql(text: str, field: str = "where") -> exp.Expr:
    """Return the syntax tree of an expression. It is cached: do not change it."""
    if not text.strip():
        raise InvalidValue(field, "be a Spark SQL condition", text, "write e.g. temp > 30 and origin = 'JFK'")
    if len(text) > LONGEST_TEXT:
        raise InvalidValue(
            field, f"have at most {LONGEST_TEXT} characters", f"{text[:40]}...", "split the query"
        )
    try:
        condition = _condition(text)
    except (SqlglotError, RecursionError) as problem:
        raise InvalidValue(
            field, f"be a Spark SQL condition ({parse_error_words(problem)})", text, "correct it there"
        ) from None
    if condition is None:
        raise InvalidValue(field, "be one condition", text, "write only what follows WHERE")
    return condition


@lru_cache(maxsize=TREES_KEPT)
def _condition(text: str) -> exp.Expr | None:
    """Return the syntax tree of a condition; None if the text is not exactly one condition."""
    found = sqlglot.parse_one(_ASKED + text, dialect=DIALECT)
    where = found.args.get("where")
    extra = [
        name for name, value in found.args.items() if value and name not in ("where", "expressions", "kind")
    ]
    if where is None or extra:
        return None
    condition: exp.Expr = where.this.transform(_one_text)
    return condition


def parse_error_words(problem: Exception) -> str:
    """Return in words where a text stops being valid SQL.

    >>> try:
    ...     sqlglot.parse_one("SELECT 1 WHERE a >", dialect=DIALECT)
    ... except SqlglotError as problem:
    ...     parse_error_words(problem)
    "it cannot be read at 'a >'"
    """
    return describe_parse_error(problem, _ASKED)


def _one_text(node: exp.Expr) -> exp.Expr:
    """Replace adjacent string literals, or literals joined by `||`, by one literal."""
    if isinstance(node, exp.Concat):
        parts = node.expressions
    elif isinstance(node, exp.DPipe):
        parts = [_one_text(part) for part in (node.this, node.expression)]
    else:
        return node
    if all(isinstance(part, exp.Literal) and part.is_string for part in parts):
        return exp.Literal.string("".join(part.name for part in parts))
    return node


def compared_words(tree: exp.Expr, texts: Sequence[str]) -> dict[str, set[str]]:
    """Return, by text attribute, the string literals that a syntax tree compares it with."""
    found: dict[str, set[str]] = {name: set() for name in texts}
    by_name = {name.lower(): name for name in texts}
    for node in tree.find_all(exp.EQ, exp.NEQ, exp.In, exp.NullSafeEQ, exp.NullSafeNEQ):
        named = {by_name[c.name.lower()] for c in node.find_all(exp.Column) if c.name.lower() in by_name}
        literals = {one.name for one in node.find_all(exp.Literal) if one.is_string}
        for name in named:
            found[name] |= literals
    return found


def named_columns(tree: exp.Expr) -> list[str]:
    """Return the columns that a syntax tree names, in order and without duplicates."""
    return list(dict.fromkeys(column.name for column in tree.find_all(exp.Column, bfs=False)))


class _Reader:
    """Converts a syntax tree into a union of products."""

    def __init__(self, field: str, dimensions: Mapping[str, Dimension]) -> None:
        self.field = field
        self.dimensions = dimensions
        self.places = {name.lower(): place for place, name in enumerate(dimensions)}
        self.of = list(dimensions.values())

    def products(self, node: exp.Expr, wanted: bool) -> list[Product]:
        """Return the products where the condition is true, or false if `wanted` is False; never where it is null."""
        if isinstance(node, exp.Paren):
            return self.products(node.this, wanted)
        if isinstance(node, exp.Not):
            return self.products(node.this, not wanted)
        if isinstance(node, exp.And | exp.Or):
            join = conjunction if isinstance(node, exp.And) == wanted else disjunction
            found: list[Product] | None = None
            for part in node.flatten():
                one = self.products(part, wanted)
                found = one if found is None else join(found, one)
            return found or []
        if isinstance(node, exp.Boolean):
            return list(_EVERYTHING) if bool(node.this) == wanted else []
        if isinstance(node, exp.Null):
            return []
        place, true, false = self._leaf(node)
        spans = true if wanted else false
        return [{place: spans}] if spans else []

    def _leaf(self, node: exp.Expr) -> tuple[int, Spans, Spans]:
        """Return the place of a comparison's dimension, the spans where it is true, and those where it is false."""
        operator = _COMPARISONS.get(type(node))
        if operator is not None:
            place, literal, operator = self._sides(node, operator)
            if literal is None:
                return place, (), ()
            return (
                place,
                self._comparison(node, place, operator, literal),
                self._comparison(node, place, _NOT[operator], literal),
            )
        if isinstance(node, exp.Between):
            place = self._place(node.this, node)
            low, high = self._constant(node.args["low"], node), self._constant(node.args["high"], node)
            if low is None or high is None:
                raise self._error(node, "compare with what is not null")
            true = self._comparison(node, place, ">=", low), self._comparison(node, place, "<=", high)
            outside = self._comparison(node, place, "<", low), self._comparison(node, place, ">", high)
            return place, intersection(*true), union([*outside[0], *outside[1]])
        if isinstance(node, exp.In) and node.expressions and not node.args.get("query"):
            return self._in_list(node)
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            place, literal, _ = self._sides(node, "=")
            same = NULLS if literal is None else self._comparison(node, place, "=", literal)
            differs = difference(ANYTHING, same)
            return (place, same, differs) if isinstance(node, exp.NullSafeEQ) else (place, differs, same)
        if isinstance(node, exp.Is):
            place = self._place(node.this, node)
            if isinstance(node.expression, exp.Null):
                return place, NULLS, VALUES
            if isinstance(node.expression, exp.Boolean) and self.of[place].type == "boolean":
                same = self.of[place].matching_spans("=", bool(node.expression.this))
                return place, same, difference(ANYTHING, same)
        if isinstance(node, exp.Column):
            place = self._place(node, node)
            if self.of[place].type == "boolean":
                return (
                    place,
                    self.of[place].matching_spans("=", True),
                    self.of[place].matching_spans("=", False),
                )
        raise self._error(node, "be comparisons of a dimension with a constant, under and, or, not")

    def _in_list(self, node: exp.In) -> tuple[int, Spans, Spans]:
        place = self._place(node.this, node)
        literals = [self._constant(one, node) for one in node.expressions]
        known = [one for one in literals if one is not None]
        if any(isinstance(one, float) for one in known):  # a list has one type
            known = [float(one) if isinstance(one, Fraction) else one for one in known]
        true = union(span for one in known for span in self._comparison(node, place, "=", one))
        if len(known) < len(literals):
            return place, true, ()  # `not in (..., null)` is never true
        false: Spans = VALUES
        for one in known:
            false = intersection(false, self._comparison(node, place, "!=", one))
        return place, true, false

    def _sides(self, node: exp.Expr, operator: str) -> tuple[int, Any, str]:
        """Return the place of the dimension, the constant, and the operator if the dimension is on the left."""
        left, right = _bare(node.this), _bare(node.expression)
        if isinstance(left, exp.Column) and not (self._is_unknown(left) and isinstance(right, exp.Column)):
            return self._place(left, node), self._constant(right, node), operator
        if isinstance(right, exp.Column):
            return self._place(right, node), self._constant(left, node), _TURNED[operator]
        raise self._error(node, "be comparisons of a dimension with a constant")

    def _is_unknown(self, node: exp.Expr) -> bool:
        return isinstance(node, exp.Column) and node.name.lower() not in self.places

    def _place(self, node: exp.Expr, whole: exp.Expr) -> int:
        node = _bare(node)
        if not isinstance(node, exp.Column):
            raise self._error(whole, "be comparisons of a dimension with a constant")
        place = self.places.get(node.name.lower())
        if place is None:
            near = difflib.get_close_matches(node.name, list(self.dimensions), 1)
            remedy = (
                f"did you mean {near[0]}?"
                if near
                else f"name {node.name} among the dimensions, or leave that part out"
            )
            raise InvalidValue(
                self.field,
                f"be over declared dimensions ({', '.join(self.dimensions) or 'none'})",
                _sql_text(whole),
                remedy,
            )
        return place

    def _constant(self, node: exp.Expr, whole: exp.Expr) -> Any:
        """Return the value of a constant: None for null, a bool, a string (also for times), or a number."""
        node = _bare(node)
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Boolean):
            return bool(node.this)
        if isinstance(node, exp.Literal):
            found = str(node.this) if node.is_string else parse_number(node.name)
        elif isinstance(node, exp.Neg):
            found = negate(self._constant(node.this, whole))
        elif isinstance(node, exp.Add | exp.Sub | exp.Mul):
            sides = [self._constant(one, whole) for one in (node.this, node.expression)]
            found = compute(_SIGNS[type(node)], sides[0], sides[1])
        elif isinstance(node, exp.Cast):
            found = cast_value(node.to, self._constant(node.this, whole))
        elif self._is_unknown(node):
            remedy = f"{node.name} is not an attribute: if it is a text, quote it: '{node.name}'"
            rule = "compare a dimension with a constant"
            raise InvalidValue(self.field, rule, _sql_text(whole), remedy)
        else:
            found = None
        if found is None:
            raise self._error(whole, "compare a dimension with a constant")
        return found

    def _comparison(self, node: exp.Expr, place: int, operator: str, literal: Any) -> Spans:
        try:
            return self.of[place].matching_spans(operator, literal)
        except InvalidValue as problem:
            remedy = f"{problem.problem.field} must {problem.problem.rule}: {problem.problem.remedy}"
            raise InvalidValue(
                self.field, f"be over values that {self.of[place].name} can have", _sql_text(node), remedy
            ) from None

    def _error(self, node: exp.Expr, rule: str) -> InvalidValue:
        remedy = "compare one attribute with a constant there, or leave that part out"
        if isinstance(node, exp.Like | exp.ILike | exp.RegexpLike | exp.RegexpILike):
            remedy = "patterns are not supported: list the values (in ('a', 'b')), or remove this condition"
        elif node.find(exp.Cast) is not None:
            remedy = "write the attribute and the value themselves, without a cast, or leave that part out"
        elif (function := node.find(exp.Func)) is not None and not isinstance(
            function, exp.Cast | exp.And | exp.Or
        ):
            remedy = _remedy_for_function(function)
        return InvalidValue(self.field, rule, _sql_text(node), remedy)


_NEVER_THE_SAME = (
    "now", "current_timestamp", "current_date", "current_time", "curdate", "localtimestamp", "unix_timestamp",
    "rand", "random", "randn", "uuid",
)  # fmt: skip


def _remedy_for_function(function: exp.Func) -> str:
    """Return what to do about a function, whose result is no attribute."""
    anonymous = isinstance(function, exp.Anonymous)
    name = (function.name if anonymous else function.sql_name()).lower()
    if name in _NEVER_THE_SAME:
        return (
            f"{name}() has another value in each run, but shedding a batch again must give the same rows: write a "
            "constant, e.g. at >= '2026-01-31 12:00:00', or leave that part out"
        )
    return (
        f"the result of {name}() is not an attribute: compare the attribute itself, let the source deliver the result "
        "as an attribute, or leave that part out"
    )


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _sql_text(node: exp.Expr) -> str:
    return str(node.sql(dialect=DIALECT))
