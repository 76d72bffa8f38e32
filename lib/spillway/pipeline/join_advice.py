"""Advice on a join that nobody runs yet, or that people run elsewhere: from sketches where there are any, and a sample.

Sketches know all rows that were ever taken in, and so the size of the whole join by equal values and its heavy values;
what windows, predicates and budgets make of it is seen on the last rows of both streams.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import Contracts, read_workload
from spillway.contracts.workload import Workload
from spillway.errors import SpillwayError, UsageError
from spillway.levers.protocol import Room
from spillway.pipeline.question import Question
from spillway.pipeline.reading import plan_reading, shed_batches
from spillway.pipeline.stored_sketches import load_sketch
from spillway.pipeline.window_inputs import HeldRows
from spillway.registry import lever
from spillway.sketches.answers import Answer
from spillway.sketches.kinds.frequencies import Frequencies
from spillway.store.tables import Tables

MOST_ROWS_READ = 100_000
"""Of each stream, the last."""
HEAVY = 5


@dataclass(frozen=True)
class JoinAsked:
    """A join as somebody asks about it."""

    left: str
    right: str
    settings: Mapping[str, Any]
    """As the lever `joins` has them in a contract."""

    def contract(self) -> Workload:
        """The contract that it would have; what it cannot say is refused by name."""
        return read_workload(
            {
                "name": "advice",
                "inputs": [self.left, self.right],
                "window": {"seconds": 1},
                "levers": [{"lever": "joins", **self.settings}],
            },
            "join-advice",
        )


@dataclass(frozen=True)
class JoinAdvice:
    """What is said, and of which rows."""

    left_rows: int
    right_rows: int
    said: tuple[tuple[str, Answer], ...]


def advise(tables: Tables, contracts: Contracts, asked: JoinAsked, most: int = MOST_ROWS_READ) -> JoinAdvice:
    """Everything there is to say of the join."""
    contract = asked.contract()
    for stream in contract.inputs:
        contracts.stream(stream)
    found = lever("joins")
    columns = found.columns(contract)
    rows = {stream: _last_rows(tables, contracts, stream, names, most) for stream, names in columns.items()}
    settings = contract.lever_settings("joins")
    said = list(_from_sketches(tables, contract, settings))
    said += list(_heavy(rows, contract, settings, bool(said)))
    room = Room("advice", contracts, tables)
    inputs = {stream: HeldRows(one) for stream, one in rows.items()}
    said += [(one.about, one.answer) for one in found.advice(contract, room, inputs)]
    return JoinAdvice(rows[asked.left].num_rows, rows[asked.right].num_rows, tuple(said))


def _last_rows(
    tables: Tables, contracts: Contracts, stream: str, names: Sequence[str], most: int
) -> pa.Table:
    contract = contracts.stream(stream)
    batches = shed_batches(tables, stream)
    if not batches:
        raise UsageError(
            f"`stream` must have rows to be looked at, got none of {stream!r}; take it in and shed it first"
        )
    last = max(batch.last_seq for batch in batches)
    asked = ["seq", contract.order, *names]
    known = plan_reading(tables, contract, Question(seq=(last - most + 1, last)))
    there = [name for name in dict.fromkeys(asked) if name in known.schema.names]
    parts = list(known.only(there).rows({}))
    found = pa.concat_tables(parts)
    for name in dict.fromkeys(asked):
        if name not in there:
            if not name.endswith("__bound_pct"):
                raise UsageError(
                    f"`on` must be an attribute of {stream} ({', '.join(contract.names)}), got {name!r}; name one"
                )
            found = found.append_column(name, pa.nulls(found.num_rows, pa.float64()))
    return found.sort_by([(contract.order, "ascending"), ("seq", "ascending")])


def _from_sketches(tables: Tables, contract: Workload, settings: Any) -> Iterator[tuple[str, Answer]]:
    """The whole join by equal values, without windows, of all rows that were ever sketched."""
    if settings.predicate != "equality":
        return
    try:
        left, right = (
            cast(Frequencies, load_sketch(tables, stream, side.attribute, "count_min"))
            for stream, side in zip(contract.inputs, (settings.left, settings.right), strict=True)
        )
        size = left.self_join_size() if contract.inputs[0] == contract.inputs[1] else left.join_size(right)
        yield "pairs of the whole join, without windows", size
        for stream, sketch in dict(zip(contract.inputs, (left, right), strict=True)).items():
            yield f"equally frequent values that would be as skewed as {stream}'s", sketch.skew()
            for heavy in sketch.top(HEAVY):
                yield f"rows of {stream} with {', '.join(map(str, heavy.key or ('?',)))}", heavy.answer
    except SpillwayError:
        return  # no such sketch, or none that goes with the other: the sample says what can be said


def _heavy(
    rows: Mapping[str, pa.Table], contract: Workload, settings: Any, sketched: bool
) -> Iterator[tuple[str, Answer]]:
    """The items that most pairs would have in common, counted in the rows at hand."""
    counts, with_itself = [], len(set(contract.inputs)) == 1
    for stream, side in zip(contract.inputs, (settings.left, settings.right), strict=True):
        column = rows[stream][side.attribute].drop_null()
        if settings.sets is not None:
            column = pc.list_flatten(pc.split_pattern(column.cast(pa.string()), settings.sets.separator))
        found = pc.value_counts(column)
        counts.append(
            Counter({one["values"]: one["counts"] for one in found.to_pylist() if one["values"] != ""})
        )
    meets = Counter(
        {
            # a row of a stream that is joined with itself does not meet itself
            value: count * (counts[1][value] - with_itself)
            for value, count in counts[0].items()
            if counts[1][value] > with_itself
        }
    )
    total = sum(meets.values())
    if not total:
        return
    if not sketched:
        squares = sum(count * count for count in meets.values())
        effective = total * total / squares
        yield (
            "equally frequent values that would be as skewed",
            Answer(effective, effective, effective, 1.0, "counted in these rows"),
        )
    for value, count in sorted(meets.items(), key=lambda pair: (-pair[1], str(pair[0])))[:HEAVY]:
        share = 100.0 * count / total
        half = 196.0 * (share / 100 * (1 - share / 100) / min(total, sum(counts[0].values()))) ** 0.5
        yield (
            f"% of meetings by {value}",
            Answer(share, max(0.0, share - half), min(100.0, share + half), 0.95, "counted in these rows"),
        )
