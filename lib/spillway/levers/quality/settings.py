"""Define the settings of the lever `quality` in a contract: the query, the capacity of its group, and its entitlement.

>>> QualitySettings(sql="SELECT count(*) AS n FROM weather").ordered_steps("busy")
(('busy', 'SELECT count(*) AS n FROM weather'),)

The module also has the names of policies and cost models, for code that reads contracts but does not plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.contracts.fields import (
    METHODS,
    Broken,
    Choice,
    Flag,
    Listing,
    Number,
    OneOrMore,
    OptionalValue,
    Record,
    Text,
    rule,
)
from spillway.contracts.workload import LONGEST_SECONDS
from spillway.errors import InvalidValue
from spillway.levers.quality.coverage import OperatorNode, topological_order
from spillway.levers.quality.sql_text import names_in

ALGORITHM_1 = "algorithm_1"
"""The paper's own rule (Fiscato 2012, Algorithm 1)."""
POLICIES = ("fair", "random", "round_robin", "priority", ALGORITHM_1)
"""Policies, which choose the portions that are processed if the capacity is too small (`admission`)."""
COST_MODELS = ("affine", "mean")
"""Cost models, which predict the seconds of a query (`overload`)."""


# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value


STEP_NAME = Text(
    pattern=r"^[a-z][a-z0-9_]{0,62}\Z",
    means="a lower-case name of letters, digits and _",
    remedy="it names a view: write e.g. hot_sites",
)


@dataclass(frozen=True, kw_only=True)
class SqlStep:
    """A named statement, which other statements read under its name."""

    name: str = rule(STEP_NAME, "name of the step")
    sql: str = rule(Text(), "a SELECT statement in Spark SQL over inputs and other steps")
    result: bool = rule(
        Flag(),
        "true: the rows of this step are a result of the query, even if another step reads them; a "
        "step that no other step reads is always a result",
        False,
    )


@dataclass(frozen=True, kw_only=True)
class RoomCapacity:
    """What all queries that share a capacity group may process in a slice of event time."""

    tuples: float | None = rule(
        OptionalValue(Number(above=0)),
        "number of tuples that can be read; reproducible on every machine",
        None,
    )
    seconds: float | None = rule(
        OptionalValue(Number(above=0)),
        "seconds of processing, by the measured cost of each query",
        None,
    )
    per_seconds: float | None = rule(
        OptionalValue(Number(above=0, most=LONGEST_SECONDS)),
        "length of a slice in seconds of event time; null: the longest window of the capacity group",
        None,
    )
    smooth_slices: int = rule(
        Number(least=1, whole=True),
        "an overload is detected from the average load of this number of slices; 1: no slice exceeds the capacity",
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
    """An input whose source numbers its tuples, so that tuples lost in transit are known."""

    input: str = rule(Text(), "the stream")
    attribute: str = rule(
        Text(), "the attribute with the sequence number of the source, which increases by one per tuple"
    )
    by: str | None = rule(
        OptionalValue(Text()),
        "the attribute that identifies the source; each source has its own sequence; null: one sequence",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class SourceWeight:
    """The weight of one source."""

    source: str = rule(Text(), "the source (a value of `by`)")
    weight: float = rule(Number(above=0), "weight of the source, in place of `weight` of the rule")


@dataclass(frozen=True, kw_only=True)
class SourceRule:
    """The sources of an input. In the coverage of a query all sources have the same weight by default, at any rate."""

    input: str | None = rule(
        OptionalValue(Text()),
        "the stream that the rule applies to; null: every input without a rule of its own",
        None,
    )
    by: str | None = rule(
        OptionalValue(Text()),
        "the attribute that identifies the source, e.g. router (this column is read in full); null: "
        "the input is one source",
        None,
    )
    weight: float = rule(Number(above=0), "weight of each of its sources", 1.0)
    weights: tuple[SourceWeight, ...] = rule(Listing(Record(SourceWeight)), "weights of single sources", ())
    per_second: float | None = rule(
        OptionalValue(Number(above=0)),
        "expected number of tuples of each source per second of event time; if a source sends fewer tuples, the "
        "coverage decreases; null: unknown; then only sources in `expected` that send nothing decrease the "
        "coverage",
        None,
    )
    expected: tuple[str, ...] = rule(
        Listing(Text(), unique=True),
        "sources (values of `by`) that must be present; a source without a tuple has coverage 0; "
        "empty: if per_second is stated, the sources of the previous window",
        (),
    )

    def rules(self) -> Iterator[Broken]:
        if self.by is None:
            for name in ("weights", "expected"):
                if getattr(self, name):
                    yield name, "be absent without `by`", self.by, "write by: ATTRIBUTE, or leave it out"
        named = [one.source for one in self.weights]
        for at, name in enumerate(named):
            if name in named[:at]:
                yield f"weights[{at}].source", "occur once in the weights", name, "remove one"


@dataclass(frozen=True, kw_only=True)
class QualitySettings:
    """The settings of a query: its SQL, its capacity group, its entitlement, and its limits."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"policy": ALGORITHM_1, "cost_model": "mean", "starve_slices": 0}
    }
    """The settings that a `method` implies."""

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Fiscato 2012 (`policy: algorithm_1`, `cost_model: mean`, "
        "`starve_slices: 0`); a setting that the contract states takes precedence; all queries of a group must state "
        "the same method",
        "default",
    )
    sql: str | None = rule(OptionalValue(Text()), "the query, if it is one statement", None)
    steps: tuple[SqlStep, ...] = rule(
        Listing(Record(SqlStep)),
        "the query as several steps; a step that no other step reads is a result; all results have "
        "the same coverage",
        (),
    )
    capacity: RoomCapacity | None = rule(
        OptionalValue(Record(RoomCapacity)),
        "capacity of the group; all queries of the capacity group that state it must state the same; null: no limit",
        None,
    )
    policy: str = rule(
        Choice(POLICIES),
        "policy that chooses the processed portions if the capacity is too small; all queries of a capacity "
        "group must state the same; algorithm_1: the rule of the paper, with which the last portion may exceed "
        "the capacity",
        "fair",
    )
    cost_model: str = rule(
        Choice(COST_MODELS),
        "cost model for a capacity in seconds; all queries of a capacity group must state the same. affine: for "
        "each query, a robust fit of a fixed cost and a cost per tuple; mean: the model of the paper, one mean "
        "of seconds / tuples over the last slices for all queries",
        "affine",
    )
    weight: float = rule(
        Number(above=0),
        "share of the capacity that the query is entitled to: twice the weight gives twice the coverage",
        1.0,
    )
    team: str | None = rule(
        OptionalValue(Text()), "owner of the query: the queries of a team share one entitlement", None
    )
    team_weight: float = rule(Number(above=0), "entitlement of the team, the same in all its queries", 1.0)
    priority: int = rule(
        Number(whole=True), "strict priority: a query with a lower priority gets the remaining capacity", 0
    )
    floor: float = rule(
        Number(least=0, most=1),
        "minimum coverage; the query reaches it before other queries exceed theirs; a lower coverage "
        "fails an expectation",
        0.0,
    )
    must_keep: tuple[str, ...] = rule(
        Listing(Text(), unique=True), "inputs that are always processed whole", ()
    )
    starve_slices: int = rule(
        Number(least=0, whole=True),
        "n: the query gets at least one portion every n slices, regardless of its priority and estimated cost; "
        "0: no guarantee",
        8,
    )
    remember_slices: int = rule(
        Number(least=1, whole=True), "number of slices over which the coverage of queries is balanced", 4
    )
    portion_tuples: int | None = rule(
        OptionalValue(Number(least=1, whole=True)),
        "tuples per portion, which is kept or shed as a whole; null: whole files, or their row groups "
        "(`row_group_tuples` of the stream), so that a shed portion is never read. If a portion is "
        "smaller than a row group, the row group is read and the shed tuples are discarded",
        None,
    )
    numbered: tuple[Numbered, ...] = rule(
        Listing(Record(Numbered)), "inputs whose sources number their tuples", ()
    )
    sources: tuple[SourceRule, ...] = rule(
        OneOrMore(Record(SourceRule)),
        "the sources of its inputs, e.g. {by: router}; an input without a rule is one source",
        (),
    )
    most_rows: int = rule(Number(least=1, whole=True), "maximum number of rows of a window's answer", 100_000)
    most_seconds: float = rule(
        Number(above=0),
        "time limit for the answer of a window, in seconds; a window above it fails and is reported",
        3600.0,
    )
    bounds: bool = rule(
        Flag(), "compute confidence intervals of COUNT, SUM and AVG, if their assumptions hold", True
    )
    assume_alike: bool = rule(
        Flag(),
        "assume that the portions that were not read have the same distribution as those read. "
        "Intervals are narrower, and exist also for values without a stated range. They have 95 % "
        "confidence only if the assumption holds",
        False,
    )

    def rules(self) -> Iterator[Broken]:
        if (self.sql is None) == (not self.steps):
            yield "sql", "be given, or steps, and not both", self.sql, "write sql: SELECT ..."
            return
        names = [step.name for step in self.steps]
        for at, name in enumerate(names):
            if name in names[:at]:
                yield f"steps[{at}].name", "occur once among the steps", name, "rename one"
        if self.steps and len(set(names)) == len(names):
            try:
                self.ordered_steps("")
            except InvalidValue as problem:
                circle = problem.args[0] if problem.args else names
                yield (
                    "steps",
                    "not read one another in a circle",
                    str(circle),
                    "let one of them read an input",
                )

    def stream_rules(self, contract: Any) -> Iterator[Broken]:
        """Refuse the lever in the contract of a stream: it works on queries."""
        yield (
            "lever",
            "work on a query",
            contract.subject,
            "write a contract in schemas/queries that reads it",
        )

    def input_rules(self, inputs: tuple[str, ...]) -> Iterator[Broken]:
        """Refuse settings for inputs that the query does not read."""
        said = [(f"must_keep[{at}]", name) for at, name in enumerate(self.must_keep)]
        said += [(f"numbered[{at}].input", one.input) for at, one in enumerate(self.numbered)]
        said += [(f"sources[{at}].input", one.input) for at, one in enumerate(self.sources) if one.input]
        for where, name in said:
            if name not in inputs:
                yield where, "be an input of the query", name, f"write one of {', '.join(inputs)}"

    @property
    def needs_previous_window(self) -> bool:
        """Return whether a window needs the state of the previous window."""
        return bool(self.numbered) or any(one.by is not None for one in self.sources)

    def source_rule(self, name: str) -> SourceRule | None:
        """Return the rule of an input: its own, else that of every input."""
        own = [one for one in self.sources if one.input == name]
        every = [one for one in self.sources if one.input is None]
        return next(iter([*own, *every]), None)

    def ordered_steps(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the statements, each after those it reads; a single statement is a step with the query's name."""
        if self.sql is not None:
            return ((name, self.sql),)
        nodes = {
            step.name: OperatorNode(step.name, self.steps_read_by(step.sql, step.name), {step.name: 1})
            for step in self.steps
        }
        statements = {step.name: step.sql for step in self.steps}
        return tuple((one.name, statements[one.name]) for one in topological_order(nodes, {}))

    def steps_read_by(self, sql: str, name: str) -> tuple[str, ...]:
        """Return the steps that a statement reads; `name`: the step of the statement itself."""
        return tuple(sorted((names_in(sql) & {step.name for step in self.steps}) - {name}))

    def results(self, name: str) -> tuple[str, ...]:
        """Return the steps whose rows are results, in the order of the statements."""
        if self.sql is not None:
            return (name,)
        read = {one for step in self.steps for one in self.steps_read_by(step.sql, step.name)}
        marked = {step.name for step in self.steps if step.result}
        return tuple(step for step, _ in self.ordered_steps(name) if step not in read or step in marked)


SETTINGS = QualitySettings
COLUMNS: tuple[tuple[str, str, str], ...] = ()
