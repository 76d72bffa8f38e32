"""Define the queries, the must-keep rules and the dimensions that a contract may state for a stream."""

from __future__ import annotations

from dataclasses import dataclass

from spillway.contracts.fields import Listing, Number, OptionalValue, Record, Text, rule

FRACTION = Number(least=0, most=1)


@dataclass(frozen=True, kw_only=True)
class ReadingQuery:
    """A query that reads the stream: the condition of the rows that it wants, and its weight."""

    where: str = rule(Text(), "which rows it wants: a Spark SQL condition over dimensions")
    name: str | None = rule(OptionalValue(Text()), "what it is called; null: its condition", None)
    weight: float = rule(
        Number(least=0), "what it is worth against the others; they are divided by their sum", 1.0
    )
    alpha: float = rule(FRACTION, "how much of its quality hangs on how complete its result is", 1.0)
    at_least: float = rule(FRACTION, "share of its result that it must have at least", 0.0)

    @property
    def title(self) -> str:
        return self.where if self.name is None else self.name


@dataclass(frozen=True, kw_only=True)
class StatedDimension:
    """An attribute that queries may compare, with its ordered values or its domain."""

    attribute: str = rule(Text(), "an attribute of the stream")
    values: tuple[str, ...] | None = rule(
        OptionalValue(Listing(Text(blank=True), least=1, unique=True)),
        "of a text: its values from least to most, the order of <, <=, >=, > and between; null: it has none",
        None,
    )
    between: tuple[float, ...] | None = rule(
        OptionalValue(Listing(Number(), least=2)), "its domain, [least, most]; null: where its rows lie", None
    )


@dataclass(frozen=True, kw_only=True)
class StatedQueries:
    """The queries that read the stream, the rows that are never shed, and the dimensions of the conditions."""

    queries: tuple[ReadingQuery, ...] = rule(
        Listing(Record(ReadingQuery), least=1), "what is asked of the stream"
    )
    keep: tuple[str, ...] = rule(
        Listing(Text(), unique=True), "conditions of rows that are never shed, e.g. severity >= 'ERROR'", ()
    )
    dimensions: tuple[StatedDimension, ...] | None = rule(
        OptionalValue(Listing(Record(StatedDimension), least=1)),
        "the attributes that conditions may be about; null: any of the stream's",
        None,
    )
