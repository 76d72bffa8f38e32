# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""Row rules of an attribute or of the stream: every field, its meaning and its default.

A rule of an attribute applies to that attribute. A rule of the stream names its attributes. The rules are checked when
a batch is validated, on the rows as they were delivered. A null satisfies every rule except `not_null`. NaN is a value,
not a null: it is within no range and is none of the values of `one_of`. `unique_with` ignores rows with a null in any
of its attributes.

>>> RowRule(kind="range", least=-80, most=140).sentence
'be at least -80 and at most 140'
>>> RowRule(kind="unique_with", attributes=("site", "at")).name
'site_at_unique_with'
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Protocol

from spillway.contracts.fields import Broken, Choice, Listing, OptionalValue, Report, Text, rule, suggest
from spillway.contracts.timezone import utc_moment

RULE_KINDS = ("range", "one_of", "pattern", "not_null", "unique_with")
_FIELDS = {
    "range": ("least", "most"),
    "one_of": ("values",),
    "pattern": ("pattern",),
    "not_null": (),
    "unique_with": (),
}
_TYPES = {
    "range": ("integer", "double", "timestamp", "date"),
    "one_of": ("string", "integer", "double", "boolean"),
    "pattern": ("string",),
}
_OF_TYPE = {"string": (str,), "boolean": (bool,), "integer": (int,), "double": (int, float)}
_MOST_LETTERS = 500
_LINEAR = (
    "look-ahead, look-behind and back-references are not supported, because their matching time has no limit"
)


def whole_match(pattern: str) -> str:
    """Return a pattern that matches a text only as a whole, from its first to its last character.

    >>> whole_match("a|b")
    '\\\\A(?:a|b)\\\\z'
    """
    return rf"\A(?:{pattern})\z"


@dataclass(frozen=True)
class PlainValue:
    """A number or a text; with `flags` also true or false."""

    flags: bool = False

    def read(self, value: object, path: str, report: Report) -> Any:
        flag = isinstance(value, bool)
        number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if (flag and not self.flags) or not (flag or number or isinstance(value, str)):
            words = "be a text, a number, true or false" if self.flags else "be a number, or a time as text"
            return report.add(path, words, value, "write the value as in the rows")
        return value

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", *(["boolean"] if self.flags else [])]}


@dataclass(frozen=True, kw_only=True)
class RowRule:
    """One rule that every row must keep."""

    kind: str = rule(
        Choice(RULE_KINDS),
        "range: from `least` to `most`; one_of: one of `values`; pattern: the whole value matches "
        "`pattern`; not_null; unique_with: no two rows of a batch have the same values in all of the "
        "attributes",
    )
    attributes: tuple[str, ...] = rule(
        Listing(Text(), unique=True),
        "in a rule of the stream: the attributes that the rule applies to (unique_with: to all of them together; "
        "other kinds: to each of them). In a rule of an attribute: only for unique_with, the other attributes of "
        "the unique key; empty: the attribute alone is unique",
        (),
    )
    least: Any = rule(
        OptionalValue(PlainValue()),
        "range: smallest valid value; times as text, in the stream's time zone",
        None,
    )
    most: Any = rule(OptionalValue(PlainValue()), "range: largest valid value", None)
    values: tuple[Any, ...] | None = rule(
        OptionalValue(Listing(PlainValue(flags=True), least=1, unique=True)), "one_of: the valid values", None
    )
    pattern: str | None = rule(
        OptionalValue(Text()),
        "pattern: a regular expression in RE2 syntax; the matching time is linear in the length of "
        "the value; look-ahead and look-behind are not supported; \\d and \\w match ASCII only",
        None,
    )
    action: str = rule(
        Choice(("fail", "warn")),
        "fail: the validation of the batch fails, and its raw tuples are not retired; warn: the "
        "violation is only reported",
        "fail",
    )

    @property
    def name(self) -> str:
        """The name of the rule in validation results."""
        return "_".join((*self.attributes, self.kind))

    @property
    def sentence(self) -> str:
        """Return the rule in words."""
        if self.kind == "range":
            edges = [("at least", self.least), ("at most", self.most)]
            return "be " + " and ".join(f"{word} {edge}" for word, edge in edges if edge is not None)
        if self.kind == "one_of":
            return "be one of " + ", ".join(map(str, self.values or ()))
        if self.kind == "unique_with":
            return "occur once in a batch"
        return "not be null" if self.kind == "not_null" else f"be of the pattern {self.pattern}"

    def rules(self) -> Iterator[Broken]:
        own = _FIELDS.get(self.kind) if isinstance(self.kind, str) else None
        if own is None:
            return
        for name in ("least", "most", "values", "pattern"):
            if name not in own and getattr(self, name) is not None:
                yield name, f"be absent for kind {self.kind}", getattr(self, name), "remove it"
        if own and all(getattr(self, name) is None for name in own):
            yield own[0], f"be there for kind {self.kind}", None, f"write {' or '.join(own)}"
        if self.kind == "pattern" and isinstance(self.pattern, str):
            yield from self._pattern_problems(self.pattern)

    @staticmethod
    def _pattern_problems(pattern: str) -> Iterator[Broken]:
        if len(pattern) > _MOST_LETTERS:
            yield "pattern", f"have at most {_MOST_LETTERS} letters", pattern, "write a simpler one"
            return
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.match_substring_regex(pa.array([""]), pattern)
        except pa.ArrowInvalid as problem:
            why = str(problem).partition(": ")[2].partition(": ")[0]
            yield "pattern", "be a regular expression as RE2 has them", pattern, f"{why}; {_LINEAR}"


class AttributeWithRules(Protocol):
    """The properties of an attribute that rules need."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def row_rules(self) -> tuple[RowRule, ...]: ...


def rules_of_rows(
    attributes: Iterable[AttributeWithRules], shared: Sequence[RowRule]
) -> Iterator[tuple[str, RowRule]]:
    """Yield every rule with all its attributes, and its path in the contract.

    A rule of the stream that applies to each of its attributes separately is yielded once per attribute.
    """
    for i, attribute in enumerate(attributes):
        for j, one in enumerate(attribute.row_rules):
            with_its_own = (attribute.name, *one.attributes)
            yield f"attributes[{i}].rules[{j}]", replace(one, attributes=with_its_own)
    for i, one in enumerate(shared):
        for parts in [one.attributes] if one.kind == "unique_with" else [(name,) for name in one.attributes]:
            yield f"rules[{i}]", replace(one, attributes=parts)


def row_rule_problems(
    attributes: Sequence[AttributeWithRules], shared: Sequence[RowRule], zone: str
) -> Iterator[Broken]:
    """Yield the problems of rules that depend on other rules or on the attributes."""
    types = {a.name: a.type for a in attributes if isinstance(a.name, str)}
    for i, one in enumerate(shared):
        if not one.attributes:
            yield f"rules[{i}].attributes", "name its attributes", [], "write attributes: [...]"
    for i, attribute in enumerate(attributes):
        for j, one in enumerate(attribute.row_rules):
            if one.attributes and one.kind != "unique_with":
                where = f"attributes[{i}].rules[{j}].attributes"
                yield where, "be absent: it is about this attribute", list(one.attributes), "remove it"
    seen: dict[str, str] = {}
    for where, one in rules_of_rows(attributes, shared):
        strange = [name for name in one.attributes if name not in types]
        for name in strange:
            yield f"{where}.attributes", "be attributes of the stream", name, suggest(name, types)
        if strange or one.kind not in _FIELDS:
            continue
        first = seen.setdefault(one.name, where)
        if first != where:
            yield where, f"be the only {one.kind} of its attributes (see {first})", one.name, "keep one"
        if len(set(one.attributes)) < len(one.attributes):
            yield f"{where}.attributes", "name each once", list(one.attributes), "it is unique with others"
        yield from _type_problems(where, one, types[one.attributes[0]], zone)


def _type_problems(where: str, one: RowRule, kind: str, zone: str) -> Iterator[Broken]:
    fit = _TYPES.get(one.kind)
    if fit is None or kind not in (*_OF_TYPE, "timestamp", "date"):
        return
    if kind not in fit:
        yield f"{where}.kind", f"be one for type {kind}", one.kind, f"{one.kind} is for {', '.join(fit)}"
        return
    if one.kind == "one_of":
        for i, value in enumerate(one.values if isinstance(one.values, tuple) else ()):
            right = isinstance(value, _OF_TYPE[kind]) and (kind == "boolean" or not isinstance(value, bool))
            if not right:
                yield f"{where}.values[{i}]", f"be of type {kind}", value, "write it as the rows have it"
    if one.kind == "range":
        yield from _range_problems(where, one, kind, zone)


def _range_problems(where: str, one: RowRule, kind: str, zone: str) -> Iterator[Broken]:
    edges = {}
    for name in ("least", "most"):
        if getattr(one, name) is None:
            continue
        edge = edge_of_range(getattr(one, name), kind, zone)
        if edge is None:
            remedy = (
                "write e.g. 2026-01-31" if kind in ("date", "timestamp") else "write it as a plain number"
            )
            yield f"{where}.{name}", f"be of type {kind}", getattr(one, name), remedy
        else:
            edges[name] = edge
    if len(edges) == 2 and edges["least"] > edges["most"]:
        yield f"{where}.least", f"be at most the largest, {one.most}", one.least, "exchange them"


def edge_of_range(edge: object, kind: str, zone: str) -> Any:
    """Return an edge of a range as a value that compares with values of the type `kind`; None if it is not valid.

    >>> edge_of_range("2026-01-31 12:00", "timestamp", "Europe/Berlin").isoformat()
    '2026-01-31T11:00:00+00:00'
    >>> edge_of_range("2026-02-31", "date", "UTC") is None
    True
    """
    if kind in ("integer", "double"):
        return edge if isinstance(edge, int | float) and not isinstance(edge, bool) else None
    if not isinstance(edge, str):
        return None
    try:
        if kind == "date":
            return datetime.combine(date.fromisoformat(edge), datetime.min.time())
        return utc_moment(datetime.fromisoformat(edge), zone)
    except (ValueError, TypeError, OverflowError, KeyError, OSError):
        return None
