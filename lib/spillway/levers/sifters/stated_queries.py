"""Define the queries, the must-keep rules and the dimensions that a contract may state for a stream."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.fields import Listing, Number, OptionalValue, Record, Text, rule

FRACTION = Number(least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class ReadingQuery:
    """A query that reads the stream: the condition of the rows that it wants, and its weight."""

    where: str = rule(Text(), "condition of the rows that the query reads, in Spark SQL over dimensions")
    name: str | None = rule(OptionalValue(Text()), "name of the query; null: its condition", None)
    weight: float = rule(
        Number(least=0), "weight of the query relative to the others; weights are divided by their sum", 1.0
    )
    alpha: float = rule(
        FRACTION, "share of the query's quality that depends on the completeness of its result", 1.0
    )
    at_least: float = rule(FRACTION, "minimum share of its result rows that must be kept", 0.0)

    @property
    def title(self) -> str:
        return self.where if self.name is None else self.name


@dataclass(frozen=True, kw_only=True)
class StatedDimension:
    """An attribute that queries may compare, with its ordered values or its domain."""

    attribute: str = rule(Text(), "an attribute of the stream")
    values: tuple[str, ...] | None = rule(
        OptionalValue(Listing(Text(blank=True), least=1, unique=True)),
        "for a string: its values in ascending order, for <, <=, >=, > and between; null: no order",
        None,
    )
    between: tuple[float, ...] | None = rule(
        OptionalValue(Listing(Number(), least=2)),
        "domain [least, most]; null: the range of the observed values",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class StatedQueries:
    """The queries that read the stream, the rows that are never shed, and the dimensions of the conditions."""

    queries: tuple[ReadingQuery, ...] = rule(
        Listing(Record(ReadingQuery), least=1), "the queries that read the stream"
    )
    keep: tuple[str, ...] = rule(
        Listing(Text(), unique=True), "conditions of rows that are never shed, e.g. severity >= 'ERROR'", ()
    )
    dimensions: tuple[StatedDimension, ...] | None = rule(
        OptionalValue(Listing(Record(StatedDimension), least=1)),
        "attributes that conditions may use; null: all attributes of the stream",
        None,
    )
