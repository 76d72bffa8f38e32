# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value
"""What a contract may say of the lever `quality`: the question, what its room can do, and what it is entitled to.

>>> QualitySettings(sql="SELECT count(*) AS n FROM weather").ordered_steps("busy")
(('busy', 'SELECT count(*) AS n FROM weather'),)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.contracts.shapes import (
    METHODS,
    Broken,
    Choice,
    Flag,
    Listing,
    Maybe,
    Number,
    Record,
    Text,
    rule,
)
from spillway.contracts.workload import LONGEST_SECONDS
from spillway.errors import Refused
from spillway.levers.quality.operator_graph import OperatorNode, in_order
from spillway.levers.quality.policies_known import ALGORITHM_1, COST_MODELS, POLICIES
from spillway.levers.quality.sql_text import names_in

STEP_NAME = Text(
    pattern=r"^[a-z][a-z0-9_]{0,62}\Z",
    means="a lower-case name of letters, digits and _",
    remedy="it names a view: write e.g. hot_sites",
)


@dataclass(frozen=True, kw_only=True)
class SqlStep:
    """A named statement, which later ones read under its name."""

    name: str = rule(STEP_NAME, "its name")
    sql: str = rule(Text(), "a SELECT in Spark SQL over inputs and other steps")


@dataclass(frozen=True, kw_only=True)
class RoomCapacity:
    """What may be worked on in a slice of event time, by all queries that share the room."""

    tuples: float | None = rule(
        Maybe(Number(above=0)), "tuples that may be read: gives the same again, whatever the machine", None
    )
    seconds: float | None = rule(
        Maybe(Number(above=0)), "seconds of work, by what a query's tuples were measured to cost", None
    )
    per_seconds: float | None = rule(
        Maybe(Number(above=0, most=LONGEST_SECONDS)),
        "how long a slice is; by default the longest window of the room",
        None,
    )
    smooth_slices: int = rule(
        Number(least=1, whole=True),
        "slices that load is averaged over before it is called an overload; 1: never more than the capacity",
        1,
    )

    def rules(self) -> Iterator[Broken]:
        if (self.tuples is None) == (self.seconds is None):
            yield "tuples", "be given, or seconds, and not both", self.tuples, "write {tuples: 100000}"

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        number = {"type": "number"}
        return {
            "oneOf": [
                {
                    "required": [name],
                    "properties": {name: number},
                    "not": {"required": [other], "properties": {other: number}},
                }
                for name, other in (("tuples", "seconds"), ("seconds", "tuples"))
            ]
        }


@dataclass(frozen=True, kw_only=True)
class Numbered:
    """An input whose source numbers its tuples, so that what was lost on the way is known."""

    input: str = rule(Text(), "the stream")
    attribute: str = rule(Text(), "the attribute with the source's own numbers, one more a tuple")
    by: str | None = rule(
        Maybe(Text()), "the attribute that tells sources apart, each with its own numbers", None
    )


@dataclass(frozen=True, kw_only=True)
class QualitySettings:
    """A query, and its place among others."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"policy": ALGORITHM_1, "cost_model": "mean", "starve_slices": 0}
    }

    method: str = rule(
        Choice(METHODS),
        "whose rules; paper: those of Fiscato 2012 (`policy: algorithm_1`, `cost_model: mean`, `starve_slices: 0`), as "
        "far as the contract does not state these settings itself; the same for all queries of a room",
        "default",
    )
    sql: str | None = rule(Maybe(Text()), "the query, where it is one statement", None)
    steps: tuple[SqlStep, ...] = rule(
        Listing(Record(SqlStep)), "the query, where it is several; one that none reads answers", ()
    )
    capacity: RoomCapacity | None = rule(
        Maybe(Record(RoomCapacity)),
        "what the room can do; the same wherever queries of a room say it; null: everything",
        None,
    )
    policy: str = rule(
        Choice(POLICIES),
        "what is worked on when there is too much, one for a room; algorithm_1: the paper's rule, whose last portion "
        "may pass the capacity",
        "fair",
    )
    cost_model: str = rule(
        Choice(COST_MODELS),
        "how a capacity in seconds predicts costs, one for a room; affine: for each query a fixed cost and a cost per "
        "tuple, fitted robustly; mean: seconds / tuples of all queries, a mean of the last slices (the paper's)",
        "affine",
    )
    weight: float = rule(Number(above=0), "entitlement to a share: twice the weight, twice the coverage", 1.0)
    team: str | None = rule(
        Maybe(Text()), "whose query it is: a team shares one entitlement among its queries", None
    )
    team_weight: float = rule(Number(above=0), "the team's entitlement, the same in all its queries", 1.0)
    priority: int = rule(Number(whole=True), "strict order: those of a lower one get what is left", 0)
    floor: float = rule(
        Number(least=0, most=1),
        "coverage it is brought to before others go above theirs; below it somebody is told",
        0.0,
    )
    must_keep: tuple[str, ...] = rule(Listing(Text(), unique=True), "inputs of which nothing is shed", ())
    starve_slices: int = rule(
        Number(least=0, whole=True),
        "it gets a portion at least every so many slices, whatever its priority and its estimated cost; 0: no promise",
        8,
    )
    remember_slices: int = rule(Number(least=1, whole=True), "slices over which queries are kept level", 4)
    portion_tuples: int | None = rule(
        Maybe(Number(least=1, whole=True)),
        "tuples that are kept or shed together; null: whole files, or their row groups (`row_group_tuples` of the "
        "stream), so that a shed one is never read; fewer than these hold: what is shed of one is read with the rest",
        None,
    )
    numbered: tuple[Numbered, ...] = rule(
        Listing(Record(Numbered)), "inputs whose sources number their tuples", ()
    )
    most_rows: int = rule(Number(least=1, whole=True), "rows that a window may answer in", 100_000)
    most_seconds: float = rule(
        Number(above=0), "seconds that a window may take to answer; longer is given up, and told", 3600.0
    )
    bounds: bool = rule(Flag(), "whether COUNT, SUM and AVG get an interval where one is honest", True)
    assume_alike: bool = rule(
        Flag(),
        "whether portions left out are taken to be like those read: narrower intervals, also of values of which no "
        "rule of the stream says a range, that hold 95 % only where that is so",
        False,
    )

    def rules(self) -> Iterator[Broken]:
        if (self.sql is None) == (not self.steps):
            yield "sql", "be given, or steps, and not both", self.sql, "write sql: SELECT ..."
            return
        names = [step.name for step in self.steps]
        for at, name in enumerate(names):
            if name in names[:at]:
                yield f"steps[{at}].name", "stand once among the steps", name, "rename one"
        if self.steps and len(set(names)) == len(names):
            try:
                ordered = self.ordered_steps("")
            except Refused as problem:
                circle = problem.args[0] if problem.args else names
                yield (
                    "steps",
                    "not read one another in a circle",
                    str(circle),
                    "let one of them read an input",
                )
                return
            for at, step in enumerate(self.steps):
                read = any(step.name in names_in(other.sql) for other in self.steps if other is not step)
                if not read and step.name != ordered[-1][0]:
                    yield (
                        f"steps[{at}].name",
                        "be read by a later step, or be the last",
                        step.name,
                        "remove it",
                    )

    def stream_rules(self, contract: Any) -> Iterator[Broken]:
        """A stream is no question."""
        yield (
            "lever",
            "work on a query",
            contract.subject,
            "write a contract in schemas/queries that reads it",
        )

    def input_rules(self, inputs: tuple[str, ...]) -> Iterator[Broken]:
        """What is said of inputs is said of the query's own."""
        said = [(f"must_keep[{at}]", name) for at, name in enumerate(self.must_keep)]
        said += [(f"numbered[{at}].input", one.input) for at, one in enumerate(self.numbered)]
        for where, name in said:
            if name not in inputs:
                yield where, "be an input of the query", name, f"write one of {', '.join(inputs)}"

    def ordered_steps(self, name: str) -> tuple[tuple[str, str], ...]:
        """The statements, each behind those it reads; a query of one statement is a step of its own name."""
        if self.sql is not None:
            return ((name, self.sql),)
        known = {step.name for step in self.steps}
        nodes = {
            step.name: OperatorNode(
                step.name, tuple(sorted((names_in(step.sql) & known) - {step.name})), {step.name: 1}
            )
            for step in self.steps
        }
        statements = {step.name: step.sql for step in self.steps}
        return tuple((one.name, statements[one.name]) for one in in_order(nodes, {}))


SETTINGS = QualitySettings
COLUMNS: tuple[tuple[str, str, str], ...] = ()
