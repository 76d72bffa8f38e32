"""Parse a contract's queries and must-keep rules into predicates over dimensions.

There are two sets of dimensions. Regions are cut along the dimensions of the queries (at most `MOST_DIMENSIONS`). The
must-keep rules may compare any attribute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from spillway.contracts.fields import Broken
from spillway.errors import InvalidValue
from spillway.levers.sifters.consolidate import QueryBoxes
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.predicates import (
    Predicate,
    compared_words,
    named_columns,
    parse_predicate,
    parse_sql,
)
from spillway.levers.sifters.regions import MOST_DIMENSIONS, Layout
from spillway.levers.sifters.stated_queries import ReadingQuery, StatedQueries

if TYPE_CHECKING:
    from spillway.contracts.stream import StreamContract

CONTRACTS_KEPT = 64
"""The number of contracts whose parsed queries a process caches."""


@dataclass(frozen=True)
class ParsedQueries:
    """The parsed queries and must-keep rules of a contract, with their dimensions."""

    dimensions: tuple[Dimension, ...]
    queries: tuple[tuple[ReadingQuery, Predicate], ...]
    keep_dimensions: tuple[Dimension, ...]
    keep: tuple[Predicate, ...]
    digests: dict[tuple[object, ...], str] = field(default_factory=dict, compare=False, repr=False)
    """A cache of `learn.filter_digest`: by the other settings that shape a filter, the digest of these and of them."""

    @staticmethod
    def of(settings: StatedQueries, contract: StreamContract) -> ParsedQueries:
        """Return the parsed queries and rules of a contract; a process caches them by queries and dimensions."""
        known = declared_dimensions(settings, contract)
        return _parse_queries(settings.queries, settings.keep, tuple(known.values()))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the attributes that the queries and the rules compare."""
        return tuple(dict.fromkeys(one.name for one in (*self.dimensions, *self.keep_dimensions)))

    @cached_property
    def boxes(self) -> np.ndarray:
        """Return the boxes of all queries as keys, in order of the queries."""
        return np.concatenate([predicate.boxes for _, predicate in self.queries])

    @cached_property
    def query_of_box(self) -> np.ndarray:
        """Return the index of the query of each box."""
        return np.repeat(
            np.arange(len(self.queries)), [len(predicate.boxes) for _, predicate in self.queries]
        )

    def query_boxes(self, layout: Layout) -> QueryBoxes:
        """Return the queries as boxes of places."""
        settings = [query for query, _ in self.queries]
        return QueryBoxes(
            layout.boxes(self.boxes),
            self.query_of_box,
            np.array([one.weight for one in settings]),
            np.array([one.alpha for one in settings]),
            np.array([one.at_least for one in settings]),
        )

    def edges(self, place: int) -> np.ndarray:
        """Return the keys at which queries begin and end along a dimension."""
        found = {
            edge
            for _, predicate in self.queries
            for product in predicate.products
            for span in product.get(place, ())
            for edge in span
        }
        return np.array(sorted(found), np.int64)


@lru_cache(maxsize=CONTRACTS_KEPT)
def _parse_queries(
    queries: tuple[ReadingQuery, ...], keep: tuple[str, ...], dimensions: tuple[Dimension, ...]
) -> ParsedQueries:
    known = {one.name: one for one in dimensions}
    asked = _compared_dimensions([query.where for query in queries], known, "queries")
    kept = _compared_dimensions(keep, known, "keep")
    return ParsedQueries(
        tuple(asked.values()),
        tuple((query, parse_predicate(query.where, asked)) for query in queries),
        tuple(kept.values()),
        tuple(parse_predicate(text, kept, "keep") for text in keep),
    )


def query_problems(settings: StatedQueries, contract: StreamContract) -> Iterable[Broken]:
    """Return the problems of each query and each must-keep rule of a contract."""
    try:
        known = declared_dimensions(settings, contract)
    except InvalidValue as problem:
        return (("dimensions", problem.problem.rule, problem.problem.value, problem.problem.remedy),)
    texts = tuple(query.where for query in settings.queries)
    return _problems_of(texts, tuple(settings.keep), tuple(known.values()))


@lru_cache(maxsize=CONTRACTS_KEPT)
def _problems_of(
    queries: tuple[str, ...], keep: tuple[str, ...], dimensions: tuple[Dimension, ...]
) -> tuple[Broken, ...]:
    return tuple(_found_problems(queries, keep, {one.name: one for one in dimensions}))


def _found_problems(
    queries: Sequence[str], keep: Sequence[str], known: dict[str, Dimension]
) -> Iterator[Broken]:
    fine: list[str] = []
    for where, text in [
        *((f"queries[{i}].where", text) for i, text in enumerate(queries)),
        *((f"keep[{i}]", text) for i, text in enumerate(keep)),
    ]:
        try:
            parsed = parse_predicate(text, _with_words([text], known))
            _ = parsed.boxes
            _check_domain(parsed)
        except InvalidValue as problem:
            one = problem.problem
            rule = one.rule if one.field == "where" else f"{one.rule} ({one.field})"
            yield where, rule, one.value, one.remedy
        else:
            if where.startswith("queries"):
                fine.append(text)
            elif not named_columns(parse_sql(text)):
                yield (
                    where,
                    "name an attribute: it keeps every row",
                    text,
                    "remove it, or write mode: observe",
                )
    try:
        if fine and not _compared_dimensions(fine, known, "queries"):
            alike = "name an attribute: they read all rows"
            yield "queries", alike, fine[0], "raise the weight or at_least of the rows that matter more"
    except InvalidValue as problem:
        yield "queries", problem.problem.rule, problem.problem.value, problem.problem.remedy


def declared_dimensions(settings: StatedQueries, contract: StreamContract) -> dict[str, Dimension]:
    """Return the dimensions that conditions may compare, by name."""
    stated = {one.attribute: one for one in settings.dimensions or ()}
    found: dict[str, Dimension] = {}
    for attribute in contract.attributes:
        if settings.dimensions is not None and attribute.name not in stated:
            continue
        one = stated.get(attribute.name)
        values = () if one is None or one.values is None else one.values
        low, high = (None, None) if one is None or one.between is None else one.between[:2]
        if values and attribute.type != "string":
            raise InvalidValue(
                "values", f"be listed of a text, and {attribute.name} is none", attribute.type, "remove them"
            )
        if (
            low is not None
            and high is not None
            and not (low < high and attribute.type in ("integer", "double"))
        ):
            raise InvalidValue(
                "between",
                f"be [least, most] of a number (of {attribute.name})",
                [low, high],
                "correct it, or omit the domain: it is then taken from the rows",
            )
        found[attribute.name] = Dimension(
            attribute.name, attribute.type, tuple(values), bool(values), low, high, contract.timezone
        )
    return found


def _compared_dimensions(
    texts: Sequence[str], known: dict[str, Dimension], field: str
) -> dict[str, Dimension]:
    """Return the dimensions that some conditions compare, with the words that the conditions name."""
    lower = {name.lower(): name for name in known}
    named = dict.fromkeys(
        lower[column.lower()]
        for text in texts
        for column in named_columns(parse_sql(text))
        if column.lower() in lower
    )
    if field == "queries" and len(named) > MOST_DIMENSIONS:
        raise InvalidValue(
            field,
            f"be about at most {MOST_DIMENSIONS} attributes together",
            ", ".join(named),
            "leave out those that fewest queries are about",
        )
    return {name: one for name, one in _with_words(texts, known).items() if name in named}


def _with_words(texts: Iterable[str], known: dict[str, Dimension]) -> dict[str, Dimension]:
    named: dict[str, set[str]] = {}
    names = [name for name, one in known.items() if one.is_text]
    for text in texts:
        for name, words in compared_words(parse_sql(text), names).items():
            named.setdefault(name, set()).update(words)
    return {name: one.with_words(sorted(named.get(name, ()))) for name, one in known.items()}


def _check_domain(predicate: Predicate) -> None:
    """Refuse a query that matches nothing of a dimension's stated domain."""
    for place, dimension in enumerate(predicate.dimensions):
        if dimension.low is None or dimension.high is None:
            continue
        inside = dimension.matching_spans(">=", dimension.low), dimension.matching_spans("<=", dimension.high)
        low, high = inside[0][0][0], inside[1][0][1]
        spans = [span for product in predicate.products for span in product.get(place, ((low, high),))]
        if not any(begin < high and low < end for begin, end in spans):
            raise InvalidValue(
                "where",
                f"ask for something of {dimension.name} between {dimension.low:g} and {dimension.high:g}",
                predicate.text,
                "correct the query, or the dimension's domain",
            )
