"""Settings of the lever `joins` in a contract: every field with its meaning, rule and default.

>>> from spillway.contracts.loader import read_workload
>>> alarms = read_workload({
...     "name": "alarms", "inputs": ["east", "west"], "window": {"seconds": 5},
...     "levers": [{
...         "lever": "joins", "left": {"attribute": "tags"}, "right": {"attribute": "tags"},
...         "predicate": "overlap", "threshold": 3, "sets": {}, "budget": {"comparisons_per_second": 50000},
...     }],
... })
>>> alarms.lever_settings("joins").left.lasts_seconds, alarms.lever_settings("joins").adapt.direction
(20.0, 'each')

`column_type_problems` checks the types of joined columns before a row is read. Sets are written in texts. Single values
are compared with values of the same type, and numbers with numbers. Operands refuse the same in the rows themselves
(`operands.can_hold_sets`, `operands.are_comparable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.contracts.fields import (
    METHODS,
    Broken,
    Choice,
    Flag,
    Listing,
    Number,
    OptionalValue,
    Record,
    Text,
    rule,
)
from spillway.contracts.stream import ARROW_TYPES
from spillway.levers.joins.operands import are_comparable, can_hold_sets

if TYPE_CHECKING:
    from spillway.contracts.levers import Subject

# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value


PREDICATE_NAMES = ("equality", "subset", "superset", "overlap", "inner_product")
THRESHOLDED_NAMES = ("overlap", "inner_product")


@dataclass(frozen=True, kw_only=True)
class JoinSide:
    """One input: the attributes it is joined by, and how long its rows stay in the window."""

    attribute: str | None = rule(OptionalValue(Text()), "the join key", None)
    attributes: tuple[str, ...] = rule(
        Listing(Text(), unique=True),
        "join key of several attributes, in the same order on both sides; each value is an item of "
        "the row's set, and a null adds no item (overlap with threshold 3: equal in three of them)",
        (),
    )
    lasts_seconds: float = rule(
        Number(above=0, most=1e10),
        "seconds that a row stays in the window (w); during this time, later rows of the other side can match it",
        20.0,
    )
    type: str | None = rule(OptionalValue(Text()), "the attribute with the type of the row", None)

    @property
    def joined_by(self) -> tuple[str, ...]:
        """Return the attribute or attributes."""
        return self.attributes or ((self.attribute,) if self.attribute is not None else ())

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        return {"anyOf": [{"required": ["attribute"]}, {"required": ["attributes"]}]}

    def rules(self) -> Iterator[Broken]:
        if self.attribute is None and not self.attributes:
            yield "attribute", "be there, or attributes", None, "name what is joined by"
        if self.attribute is not None and self.attributes:
            yield "attributes", "stand without attribute", list(self.attributes), "keep one of them"


@dataclass(frozen=True, kw_only=True)
class SetWords:
    """How a text encodes a set of items."""

    separator: str = rule(Text(blank=True), "separator between items", " ")
    weight: str | None = rule(
        OptionalValue(Text()), "separator between an item and its weight; null: every weight is 1", None
    )

    def rules(self) -> Iterator[Broken]:
        if self.separator == "":
            yield "separator", "be at least one character", self.separator, "write e.g. ' ' or ','"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent: a number of comparisons per second of event time, or a share of a core."""

    comparisons_per_second: float | None = rule(
        OptionalValue(Number(above=0)),
        "number of comparisons per second of event time; with an index, its entries read and lists looked up "
        "count as comparisons",
        None,
    )
    core_pct: float | None = rule(
        OptionalValue(Number(above=0, most=10_000)),
        "measured processing time, in % of one core; 100: one core is busy during the whole time in which the "
        "data arrives",
        None,
    )

    def rules(self) -> Iterator[Broken]:
        said = (self.comparisons_per_second, self.core_pct)
        if all(one is not None for one in said):
            yield "core_pct", "stand without comparisons_per_second", self.core_pct, "keep one of them"
        if all(one is None for one in said):
            yield (
                "comparisons_per_second",
                "be there, or core_pct",
                None,
                "state one of them, or leave budget out: everything is compared",
            )


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """How the budget is spent."""

    rate: str = rule(
        Choice(("counted", "followed")),
        "computation of the throttle fraction r. counted: from the number of comparisons to make; "
        "followed: from the rows fetched so far (Algorithm 1)",
        "counted",
    )
    correlation: bool = rule(
        Flag(), "order of basic windows. true: by their measured output; false: the newest first", True
    )
    direction: str = rule(
        Choice(("each", "whole", "none")),
        "division of the budget. each: by basic window and by type (Algorithm 5); whole: one window "
        "before the other (Algorithm 4); none: both windows equally",
        "each",
    )
    sample_pct: float = rule(
        Number(least=0.001, most=100),
        "share of the budget for random comparisons (gamma), in %. Exploration learns where matches are: at "
        "first it uses at least this share, later a fifth of it. The estimate of missed pairs uses at most this "
        "share. Without an index, it uses at most the larger of this share and the share of exploration",
        5.0,
    )
    memory: float = rule(
        Number(least=0, below=1),
        "weight of older observations: the factor by which learned values are multiplied after each window",
        0.9,
    )
    boost: float = rule(Number(above=1), "growth factor of r if all rows were fetched (delta_r)", 1.2)
    buffer_seconds: float = rule(
        Number(above=0),
        "with rate: followed: seconds that a row waits in the buffer before it is skipped",
        1.0,
    )


@dataclass(frozen=True, kw_only=True)
class RowType:
    """A type of row, and the utility of a pair with such a row."""

    name: str = rule(Text(), "value of the type attribute")
    utility: float = rule(
        Number(least=0),
        "utility of a pair with such a row; the larger utility of the two rows counts",
        former="worth",
    )


@dataclass(frozen=True, kw_only=True)
class JoinSettings:
    """A join of two streams."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {
            "basic_window_seconds": 1.0,
            "adapt": {
                "rate": "followed",
                "correlation": True,
                "direction": "whole",
                "sample_pct": 10.0,
                "memory": 0.0,
                "boost": 1.2,
                "buffer_seconds": 1.0,
            },
        }
    }

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Gedik, Wu, Yu and Liu 2007 (`adapt`: `rate: followed`, "
        "Algorithm 1; "
        "`correlation: true`, Algorithms 2 and 3; `direction: whole`, Algorithm 4, or `each`, Algorithm 5, if rows "
        "have `types`; `sample_pct: 10`; `memory: 0`); a setting that the contract states takes precedence",
        "default",
    )
    left: JoinSide = rule(Record(JoinSide), "the first input")
    right: JoinSide = rule(Record(JoinSide), "the second input")
    predicate: str = rule(
        Choice(PREDICATE_NAMES),
        "join predicate; subset: all items of the left row are items of the right row",
        "equality",
    )
    threshold: float | None = rule(
        OptionalValue(Number(above=0)), "minimum overlap (number of items) or minimum inner product", None
    )
    sets: SetWords | None = rule(
        OptionalValue(Record(SetWords)),
        "encoding of a set of items as text; null: the whole value is one item",
        None,
    )
    basic_window_seconds: float = rule(
        Number(least=1e-6), "length of a basic window (b), the unit in which windows are processed", 1.0
    )  # times are whole microseconds
    budget: Budget | None = rule(
        OptionalValue(Record(Budget)), "limit of the work; null: the full join", None
    )
    adapt: Adaptation = rule(Record(Adaptation), "use of the budget", Adaptation())
    types: tuple[RowType, ...] = rule(Listing(Record(RowType)), "types of rows with their utilities", ())
    otherwise: float = rule(Number(least=0), "utility of a row with another type, or without a type", 1.0)
    index: bool = rule(Flag(), "use an inverted index to find the rows with a common item", True)
    most_rows: int = rule(
        Number(least=1, whole=True),
        "maximum number of rows of an input in memory; a window with more rows fails",
        2_000_000,
    )
    seed: int = rule(Number(least=0, most=(1 << 53) - 1, whole=True), "seed of the random sample", 7)

    @property
    def lasts_micros(self) -> tuple[int, int]:
        """Return how long left and right rows stay in the window, in microseconds."""
        return round(self.left.lasts_seconds * 1_000_000), round(self.right.lasts_seconds * 1_000_000)

    @property
    def single_values(self) -> bool:
        """Return whether a row has at most one item. Then every entry of an index is a pair of equal values."""
        return self.predicate == "equality" and self.sets is None and len(self.left.joined_by) == 1

    @staticmethod
    def stream_rules(contract: Subject) -> Iterator[Broken]:
        yield "lever", "work on a join", "joins", "state it in schemas/joins, with the two streams as inputs"

    def rules(self) -> Iterator[Broken]:
        if self.predicate in THRESHOLDED_NAMES and self.threshold is None:
            yield "threshold", f"be there for {self.predicate}", None, "write e.g. threshold: 3"
        unthresholded = self.predicate in PREDICATE_NAMES and self.predicate not in THRESHOLDED_NAMES
        if unthresholded and self.threshold is not None:
            yield "threshold", f"be absent for {self.predicate}", self.threshold, "remove it"
        several = bool(self.left.attributes or self.right.attributes)
        if several and len(self.left.attributes) != len(self.right.attributes):
            yield (
                "right.attributes",
                f"be as many as the left ones ({len(self.left.joined_by)})",
                list(self.right.joined_by),
                "name the attribute that each is compared with, in the same order",
            )
        if several and self.sets is not None:
            yield "sets", "be absent where several attributes are the set", self.sets, "remove it"
        if several and self.predicate == "inner_product":
            rule_ = "be another where several attributes are the set: they have no weights"
            yield "predicate", rule_, self.predicate, "write overlap"
        many = len(self.left.joined_by)
        wanted = self.threshold if _are_numbers(self.threshold) else None
        if several and self.predicate == "overlap" and wanted is not None and wanted > many:
            rule_ = f"be at most as many as the attributes ({many}): rows can be alike in no more"
            yield "threshold", rule_, wanted, f"write e.g. threshold: {many}"
        if self.predicate != "equality" and self.sets is None and not several:
            yield "sets", f"be there for {self.predicate}", None, "write sets: {separator: ' '}"
        if self.predicate == "inner_product" and self.sets is not None and self.sets.weight is None:
            yield (
                "sets.weight",
                "be there for inner_product",
                None,
                "write weight: ':' for items like storm:0.7",
            )
        for name, side in (("left", self.left), ("right", self.right)):
            lasts, basic = side.lasts_seconds, self.basic_window_seconds
            if _are_numbers(lasts, basic) and lasts < basic:
                yield (
                    f"{name}.lasts_seconds",
                    f"be no shorter than a basic window ({basic:g})",
                    lasts,
                    "shorten basic_window_seconds, or let rows last longer",
                )
            if side.type is not None and not self.types:
                yield f"{name}.type", "stand with types", side.type, "state their utilities: types: [...]"
        basic = self.basic_window_seconds
        longest = max(filter(_are_numbers, (self.left.lasts_seconds, self.right.lasts_seconds)), default=0.0)
        if _are_numbers(basic) and basic > 0 and longest / basic > MOST_BASIC_WINDOWS:
            yield (
                "basic_window_seconds",
                f"cut a window into at most {MOST_BASIC_WINDOWS:,}",
                basic,
                f"write {longest / MOST_BASIC_WINDOWS:g} or more",
            )
        if self.method == "paper" and self.types and self.adapt.direction == "whole":
            yield (
                "adapt.direction",
                "be each if rows have types (Algorithm 5)",
                self.adapt.direction,
                "write adapt: {direction: each}",
            )
        if self.types and self.left.type is None and self.right.type is None:
            yield (
                "types",
                "stand with left.type or right.type",
                len(self.types),
                "name the attribute that says it",
            )
        names = [one.name for one in self.types]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield f"types[{i}].name", "occur once in the list", name, "remove the repeat"
        if self.types and not any(one.utility for one in self.types) and not self.otherwise:
            yield "types", "have a utility, at least one of them", 0, "give one a utility above 0"


MOST_BASIC_WINDOWS = 10_000


def _are_numbers(*values: object) -> bool:
    """Return whether all values are numbers. A value that could not be read is not; its problem is already listed."""
    return all(isinstance(value, int | float) for value in values)


SETTINGS = JoinSettings


def column_type_problems(
    settings: JoinSettings, inputs: tuple[str, str], types: Mapping[str, Mapping[str, str]]
) -> Iterator[Broken]:
    """Yield problems of the column types that no window of these inputs can avoid.

    Their fields are those of the lever's entry.

    >>> both = JoinSettings(left=JoinSide(attribute="id"), right=JoinSide(attribute="site"))
    >>> types = {"east": {"id": "integer"}, "west": {"site": "string"}}
    >>> [(field, rule, value) for field, rule, value, _ in column_type_problems(both, ("east", "west"), types)]
    [('right.attribute', "be of a type that compares with integer, as east's id is", 'string')]
    """
    sides = (("left", settings.left), ("right", settings.right))
    found = [
        [(_field(name, side, at), stream, one, types[stream][one]) for at, one in enumerate(side.joined_by)]
        for (name, side), stream in zip(sides, inputs, strict=True)
    ]
    if settings.sets is not None:
        for field, stream, name, kind in (one for side in found for one in side):
            if not can_hold_sets(ARROW_TYPES[kind]):
                yield (
                    field,
                    f"be text where it holds sets, and {name} of {stream} is none",
                    kind,
                    "name an attribute that holds text, or leave sets out and write predicate: equality",
                )
        return
    for (_, first, name, mine), (field, _, _, kind) in zip(*found, strict=True):
        if not are_comparable(ARROW_TYPES[mine], ARROW_TYPES[kind]):
            rule = f"be of a type that compares with {mine}, as {first}'s {name} is"
            yield field, rule, kind, "join by attributes that hold the same"


def _field(name: str, side: JoinSide, at: int) -> str:
    return f"{name}.attributes[{at}]" if side.attributes else f"{name}.attribute"
