"""What every run refuses of a join or a query, whatever its inputs send: seen from the contracts alone, before any run.

Attributes that its input streams do not have, or of types that its lever cannot work on, streams that cannot be cut
into windows, a list of levers that no run takes, slices that are larger than the capacity of the room. What only its
windows can show (another length than theirs) is refused where they are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from tempfile import TemporaryDirectory

import pyarrow as pa

from spillway.contracts import Contracts
from spillway.contracts.column_names import OWN, bounded_attribute
from spillway.contracts.fields import join_path, suggest
from spillway.contracts.workload import Workload
from spillway.engine import Engine, InProcess
from spillway.engine.statements import NeedsSpark, SqlView
from spillway.errors import Problem, Refused
from spillway.levers.windows import SqlQuestion, WindowLever, WindowWork
from spillway.pipeline.reading import WEIGHT, readable
from spillway.pipeline.window_grid import window_order
from spillway.registry import lever
from spillway.settings import Settings
from spillway.store.tables import Tables

_READ_BESIDE = {**dict(zip(OWN[:3], ("integer", "integer", "date"), strict=True)), WEIGHT: "double"}
"""Columns that the rows of an input have beside its attributes, and their types."""


def refuse_always(contracts: Contracts, contract: Workload) -> None:
    """Refuse a join or a query that no run works out."""
    for problem in _problems_of(contracts, contract):
        raise Refused(problem.field, problem.rule, problem.value, problem.remedy, where=contract.subject)


def broken_workloads(contracts: Contracts, engine: str = "process") -> list[Problem]:
    """Return the problems of joins and queries, file by file; streams with invalid contracts are left out.

    `engine`: the engine of the run. For `spark`, a query that only Spark can answer is not a problem.
    """
    found: list[Problem] = []
    for folder, workloads in (("joins", contracts.joins), ("queries", contracts.queries)):
        for name, contract in sorted(workloads.items()):
            if all(stream in contracts.streams for stream in contract.inputs):
                where = f"{folder}/{name}.yaml"
                problems = [*_problems_of(contracts, contract)] or _sql_problems(contracts, contract, engine)
                found += [replace(one, where=where) for one in problems]
    return found


def columns_of_answer(engine: Engine, question: SqlQuestion, schemas: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of the answer, given the columns of the inputs; no row is read."""
    views = {
        name: SqlView(pa.schema([schemas[read.stream].field(one) for one in read.columns]), ())
        for name, read in question.reads.items()
    }
    return engine.columns(views, question.steps)


def _sql_problems(contracts: Contracts, contract: Workload, engine: str) -> list[Problem]:
    """Return the problems of a query's statements, which are analysed over empty tables with the columns of the
    inputs."""
    found = lever(contract.lever_names[0])
    assert isinstance(found, WindowLever)
    streams = dict.fromkeys(contract.inputs)
    with TemporaryDirectory() as nowhere:
        lake = {"SPILLWAY_HOME": nowhere, "SPILLWAY_LAKE": f"{nowhere}/lake"}
        tables = Tables(Settings.from_environment(lake))
        schemas = {name: readable(tables, contracts.stream(name)) for name in streams}
    work = WindowWork(contract, {}, (), columns={name: tuple(schemas[name].names) for name in streams})
    try:
        found.look_at(work, lambda question: columns_of_answer(InProcess(), question, schemas))
    except NeedsSpark as refused:
        return [refused.problem] if engine == "process" else []
    except Refused as refused:
        return [refused.problem]
    return []


def _problems_of(contracts: Contracts, contract: Workload) -> Iterator[Problem]:
    name, levers = contract.subject, contract.lever_names
    if len(levers) != 1:
        rule = "be a single lever for a join or a query, because no other lever can shed its results"
        yield Problem(name, "levers", rule, list(levers), "keep the one that works it out")
        return
    found = lever(levers[0])
    if contract.window.slide_seconds is not None and not getattr(found, "slides", False):
        rule, remedy = "be absent, because windows of this lever do not overlap", "leave it out"
        yield Problem(name, "window.slide_seconds", rule, contract.window.slide_seconds, remedy)
        return
    if not isinstance(found, WindowLever):
        rule, remedy = "be one that works on windows", "name joins, or a lever for queries"
        yield Problem(name, "levers", rule, levers[0], remedy)
        return
    try:
        for stream in contract.inputs:
            window_order(contracts, contract, stream)
        read = found.columns(contract)
    except Refused as refused:
        yield refused.problem
        return
    absent = False
    for stream, columns in read.items():
        names = contracts.stream(stream).names
        # a bound is there of every attribute, and is not what the contract names
        for column in dict.fromkeys(map(bounded_attribute, columns)):
            if column not in (*names, *_READ_BESIDE):
                absent = True
                yield Problem(name, column, f"be an attribute of {stream}", column, suggest(column, names))
    if absent:
        return
    types = {
        stream: {**_READ_BESIDE, **{one.name: one.type for one in contracts.stream(stream).attributes}}
        for stream in dict.fromkeys(contract.inputs)
    }
    for stream, columns in found.exact_columns(contract).items():
        of = contracts.stream(stream)
        inexact = {
            attribute: stage for stage in of.lever_names for attribute in lever(stage).inexact_attributes(of)
        }
        for column in dict.fromkeys(columns):
            if column in inexact:
                yield Problem(
                    name,
                    column,
                    f"be exact, because {name} matches rows by it, but the lever {inexact[column]} of {stream} may "
                    "round it, or recover it within a bound",
                    f"{stream}.{column}",
                    f"write role: protected or error: 0 for {column} in the contract of {stream}, or match by another",
                )
    for where, rule, value, remedy in found.broken_by_types(contract, types):
        yield Problem(name, join_path("levers[0]", where), rule, value, remedy)
    of_scope = contracts.queries if contract.subject in contracts.queries else contracts.joins
    others = [
        one
        for one in of_scope.values()
        if one is not contract and (one.room or one.subject) == (contract.room or name)
    ]
    for where, rule, value, remedy in found.broken_in_room(contract, others):
        yield Problem(name, join_path("levers[0]", where), rule, value, remedy)
