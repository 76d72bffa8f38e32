"""Results that are answers in SQL: each window's questions are asked of the engine, over the portions that are kept.

A portion that is not kept is not among what the engine is given to read: its file is never opened. What comes back is
small; it is written here, in columns that the question has, behind those of the table's contract.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spillway.engine import Engine, InProcess
from spillway.engine.statements import SqlView
from spillway.errors import SpillwayError
from spillway.job import side_by_side
from spillway.levers.windows import PORTION, AskingDecision, SqlQuestion, SqlRead, Window
from spillway.pipeline.window_failures import Patience, refuse_unasked
from spillway.pipeline.window_inputs import WindowRows
from spillway.store.drafts import Draft
from spillway.store.schemas import spark_type
from spillway.store.tables import Piece, Table


@dataclass(frozen=True)
class PortionCut:
    """The rows of one portion; travels to the task that reads them."""

    rows: WindowRows
    place: int
    schema: pa.Schema

    def __call__(self) -> pa.Table:
        found = self.rows([name for name in self.schema.names if name != PORTION])
        if PORTION in self.schema.names:
            found = found.append_column(PORTION, pa.repeat(pa.scalar(self.place, pa.int64()), found.num_rows))
        return found.cast(self.schema)


def asked_of(
    engine: Engine,
    decision: AskingDecision,
    window: Window,
    inputs: Mapping[str, WindowRows],
    counts: dict[str, int],
    this_run: Callable[[], Mapping[int, Mapping[str, int]]],
) -> pa.Table | None:
    """A window's results; `this_run`: what was counted of the windows before it, once they are answered."""
    began = time.perf_counter()
    inexact = {name: rows.inexact for name, rows in inputs.items()}
    questions = decision.questions(window, inexact)
    refuse_unasked(decision, window, questions)
    answers = [_answer(engine, question, inputs) for question in questions]
    counts["microseconds"] = round((time.perf_counter() - began) * 1e6)
    return decision.answered(window, answers, counts, inexact, this_run)


def _answer(engine: Engine, question: SqlQuestion, inputs: Mapping[str, WindowRows]) -> pa.Table:
    views = {name: _view(read, inputs[read.stream]) for name, read in question.reads.items()}
    return engine.ask(views, question.steps, question.most_rows, question.most_seconds)


def _view(read: SqlRead, rows: WindowRows) -> SqlView:
    columns = [pa.field(name, rows.field(name).type) for name in read.columns]
    schema = pa.schema([*columns, *([pa.field(PORTION, pa.int64())] if read.tagged else [])])
    cuts = [PortionCut(rows.only(portion), place, schema) for place, portion in enumerate(read.portions)]
    return SqlView(schema, cuts)


@dataclass(frozen=True)
class _Made:
    """Rows that are here."""

    rows: Mapping[int, pa.Table]

    def __call__(self, window: Window, counts: dict[str, int]) -> Iterator[pa.Table]:
        found = self.rows.get(window.window)
        if found is not None:
            yield found.append_column("window", pa.array([window.window] * found.num_rows, pa.int64()))


def answered(
    engine: Engine,
    table: Table,
    decision: AskingDecision,
    windows: Sequence[Window],
    inputs: Mapping[int, Mapping[str, WindowRows]],
) -> tuple[Table, Draft, dict[int, SpillwayError]]:
    """The table with the columns of the answers, the draft of all windows that have one, and what others failed by."""
    counts: dict[int, dict[str, int]] = {window.window: {} for window in windows}
    ended = [threading.Event() for _ in windows]
    good: dict[int, dict[str, int]] = {}
    patience = Patience(decision.asks, windows)

    def ask(place: int) -> pa.Table | SpillwayError | None:
        window = windows[place]

        def this_run() -> Mapping[int, Mapping[str, int]]:
            for before in ended[:place]:  # begun in their order, so that nobody waits for who waits for him
                before.wait()
            return good

        mine = counts[window.window]
        try:
            found = patience.ask(
                window,
                lambda: asked_of(engine, decision, window, inputs[window.window], mine, this_run),
            )
            good[window.window] = mine
            return found
        except SpillwayError as problem:
            return problem  # of its rows: other windows have others
        finally:
            ended[place].set()

    # most of a small question is waiting for whoever answers it
    tried = list(zip(windows, side_by_side(ask, range(len(windows))), strict=True))
    failed = {window.window: made for window, made in tried if isinstance(made, SpillwayError)}
    answers = [(window, made) for window, made in tried if not isinstance(made, SpillwayError)]
    windows = [window for window, _ in answers]
    known = {name.lower(): name for name in (*table.types(), *table.contract.names)}
    found = {
        window.window: rows.rename_columns(
            [known.setdefault(name.lower(), name) for name in rows.column_names]
        )
        for window, rows in answers
        if rows is not None and rows.num_rows
    }
    added: dict[str, str] = {}
    for rows in found.values():
        added |= {
            one.name: spark_type(one.type) for one in rows.schema if one.name not in table.contract.names
        }
    table = table.with_attributes((), [(name, kind, "see its query") for name, kind in added.items()])
    pieces = [Piece({"batch_date": str(window.day)}, window.window, window) for window in windows]
    draft = table.draft(InProcess(), pieces, _Made(found))
    return table, Draft(draft.table, draft.parts, counts), failed
