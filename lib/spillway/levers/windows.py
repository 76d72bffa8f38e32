"""What a lever is that works on several streams at once: on the windows of a join or a query.

A *window* is a span of event time, pinned with the batches it reads, the order of its levers and their facts, before
anything is worked out. The lever is handed what its input streams transmitted in that span, and writes results; what it
leaves undone it accounts for in units of its own (comparisons, batches of queries). State between windows is what its
own tables hold.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from spillway.contracts.fields import Broken
from spillway.contracts.workload import Workload
from spillway.ledger import LedgerRow
from spillway.levers.protocol import Facts, Picture, Room, Told, Views

OPEN, PLANNED, DONE, GONE = "open", "planned", "done", "gone"
"""A window has begun; is closed and pinned; is worked out; or cannot be, since rows of it were removed before."""
Input = tuple[str, int]
"""A stream, and the number of a batch of it."""
ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Columns of an input stream's rows in the window, as they were before anything was shed, as far as they can be given
back; in the order of `seq` (of time, where windows are worked out in turn)."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))


def micros_of(moment: date) -> int:
    """Whole microseconds from 1970 to a moment, or to the midnight that a date begins with.

    >>> micros_of(date(1970, 1, 2)), micros_of(datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC))
    (86400000000, 1767225600000001)
    """
    at = (
        moment
        if isinstance(moment, datetime)
        else datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    )
    return (at - _EPOCH) // _MICROSECOND


def moment_of(micros: int) -> datetime:
    """The moment so many microseconds after 1970; the first or the last there is where that lies beyond.

    >>> moment_of(-(10**18)).year, moment_of(10**18).year
    (1, 9999)
    """
    low, high = micros_of(_FIRST), micros_of(_LAST)
    return _EPOCH + timedelta(microseconds=min(max(micros, low), high))


def step_of(seconds: float) -> int:
    """A length of time in whole microseconds, at least one: what windows and slices are cut by."""
    return max(1, round(seconds * 1e6))


class Workers(Protocol):
    """Those who work parts out."""

    @property
    def cores(self) -> int:
        """How many parts at a time."""


@dataclass(frozen=True)
class Window:
    """A span of time of a join or a query, and what is pinned with it."""

    scope: str
    subject: str
    window: int
    status: str
    from_time: datetime
    to_time: datetime
    inputs: tuple[Input, ...]
    """The batches that it reads."""
    created_at: datetime
    updated_at: datetime
    levers: tuple[str, ...] = ()
    models: Mapping[str, int] = field(default_factory=dict)
    looked_back: tuple[Input, ...] = ()
    """Of its inputs, those that have rows before it alone, at which its lever looks back."""
    too_late: tuple[Input, ...] = ()
    """Batches with rows of it that came when it could not be worked out again."""
    late: tuple[Input, ...] = ()
    """Of its inputs, those that came when it had been worked out, so that it is again."""
    failed: str | None = None
    """Why it could not be worked out, where it was tried and is planned still."""
    failed_by: str | None = None
    """What was asked then (`AskingDecision.asks`)."""

    @property
    def day(self) -> date:
        """The date it is accounted under."""
        return self.from_time.date()

    def becomes(self, now: datetime, **changes: Any) -> Window:
        """The window with `changes`, stamped `now`."""
        return replace(self, updated_at=now, **changes)

    def row(self) -> dict[str, Any]:
        """The row of `windows`."""
        values = dict(vars(self))
        values |= {
            name: list(values[name]) for name in ("inputs", "levers", "looked_back", "too_late", "late")
        }
        values["models"] = dict(self.models)
        return values

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Window:
        """A row of `windows` as a window."""
        values = dict(row)
        for name in ("inputs", "looked_back", "too_late", "late"):
            values[name] = tuple((one["stream"], one["batch"]) for one in values[name] or ())
        values["levers"], values["models"] = tuple(values["levers"] or ()), dict(values["models"] or {})
        return Window(**values)


@dataclass(frozen=True, slots=True)
class Portion:
    """Some consecutive rows of an input in a window, known without being read: a file, or a part of one."""

    stream: str
    batch: int
    from_seq: int
    to_seq: int
    tuples: int
    size: int
    """Bytes as written."""
    produced: float
    """Tuples that its source produced for these to arrive."""


@dataclass(frozen=True)
class InputLoss:
    """Rows of an input that were produced in a window but cannot be read.

    The weights of kept rows represent the rows that a lever dropped at random. They do not represent *unsampled* rows:
    no row of their region was kept. Counts are ranges if the time of the rows is not known.
    """

    dropped: float = 0.0
    """The best estimate of the number of dropped rows, unsampled ones included."""
    dropped_least: int = 0
    dropped_most: int = 0
    unsampled: float = 0.0
    unsampled_least: int = 0
    unsampled_most: int = 0
    largest_weight: float = 1.0
    refused: float = 0.0
    """Estimated number of rows that were refused at intake."""
    given_back: int = 0
    """Rows that were stored at the source and are recovered when the window is read; their portions are not known."""
    least_kept: float = math.inf
    """The smallest number of rows kept of a partly dropped region (`DroppedRows.least_kept`)."""

    @property
    def lost(self) -> float:
        """All of them."""
        return self.dropped + self.refused

    def __add__(self, other: InputLoss) -> InputLoss:
        return InputLoss(
            self.dropped + other.dropped,
            self.dropped_least + other.dropped_least,
            self.dropped_most + other.dropped_most,
            self.unsampled + other.unsampled,
            self.unsampled_least + other.unsampled_least,
            self.unsampled_most + other.unsampled_most,
            max(self.largest_weight, other.largest_weight),
            self.refused + other.refused,
            self.given_back + other.given_back,
            min(self.least_kept, other.least_kept),
        )


@dataclass(frozen=True)
class SqlRead:
    """What a question reads of an input: columns of some portions; `tagged`, with its portion's place in `PORTION`."""

    stream: str
    columns: tuple[str, ...]
    portions: tuple[Portion, ...]
    tagged: bool = False


@dataclass(frozen=True)
class SqlQuestion:
    """Steps in Spark SQL over what is read; the last one answers, in at most so many rows and seconds."""

    reads: Mapping[str, SqlRead]
    steps: tuple[tuple[str, str], ...]
    most_rows: int
    most_seconds: float | None = None


PORTION = "spillway_portion"


@dataclass(frozen=True)
class WindowWork:
    """What a lever plans for one join or query: its windows, oldest first."""

    contract: Workload
    facts: Mapping[int, Facts]
    windows: tuple[Window, ...]
    ordinal: int = 1
    before: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    """By table, the rows that this run has made of earlier windows, which may not be written yet."""
    inputs: Mapping[str, ReadColumns] = field(default_factory=dict)
    """Where windows are worked out in turn: what this one reads, by input stream, held here."""
    portions: Mapping[int, tuple[Portion, ...]] = field(default_factory=dict)
    """By window, what its inputs come in, where the lever asks for them (`WindowLever.portion_tuples`)."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By input stream, the columns it can be read with."""
    losses: Mapping[int, Mapping[str, InputLoss]] = field(default_factory=dict)
    """The rows that were produced and cannot be read, by window and input stream."""


class WindowDecision(ABC):
    """What was decided for some windows; travels to tasks."""

    def parts(self, window: Window, inputs: Mapping[str, ReadColumns], workers: Workers) -> Sequence[Any]:
        """What `results` is handed, part by part, a task each; by default what the window reads, whole."""
        return [inputs]

    @abstractmethod
    def results(self, window: Window, inputs: Any, counts: dict[str, int]) -> Iterator[pa.Table]:
        """The results of a part of the window (the inputs by stream, unless `parts` says otherwise).

        What is counted on the way goes into `counts`, is summed over the parts and comes back to `account`.
        """


Inexact = Mapping[str, frozenset[str]]
"""By input stream, the attributes of which an earlier lever may have shed or rounded values of the window."""


class AskingDecision(WindowDecision):
    """A decision of which results are answers in SQL: they are asked of the engine, and no task of ours makes them."""

    def results(self, window: Window, inputs: Any, counts: dict[str, int]) -> Iterator[pa.Table]:
        raise NotImplementedError("its results are asked for")

    @property
    @abstractmethod
    def asks(self) -> str:
        """A fingerprint of what is asked and within which limits, whatever the window holds: with another one, a
        window that could not be worked out may well be."""

    @abstractmethod
    def questions(self, window: Window, inexact: Inexact) -> Sequence[SqlQuestion]:
        """What is asked; nothing where the window has nothing to work on."""

    @abstractmethod
    def answered(
        self,
        window: Window,
        answers: Sequence[pa.Table],
        counts: dict[str, int],
        inexact: Inexact,
        this_run: Callable[[], Mapping[int, Mapping[str, int]]],
    ) -> pa.Table | None:
        """The window's results, from the answers in their order; their columns become the table's.

        What is counted goes into `counts`, in which `microseconds` that the answers took are already. `this_run`: what
        was counted of those windows before it that this run answers; it waits for them.
        """


class WindowPlan(ABC):
    """A lever's plan for the windows of one join or query."""

    @property
    @abstractmethod
    def decision(self) -> WindowDecision:
        """What tasks apply."""

    @abstractmethod
    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        """Lines of the ledger for one window; `results` rows were written."""

    def records(
        self, window: Window, results: int, counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Rows for tables of its own (with `subject` and `window`), which replace those of the same window."""
        return {}


class WindowLever(ABC):
    """A lever that works on windows."""

    name: str
    results_table: str
    """The table its results go to, a folder a join or query."""
    record_tables: tuple[str, ...] = ()
    """Tables of `WindowPlan.records`."""
    examined: pa.Schema | None = None
    """What `examine` finds in a window's results, as the suite of its results table reads it beside `stream`, `window`
    and `batch_date`; None: results are not examined."""
    in_turn = False
    """Whether a window is planned by what those before it came to, and so after them: one window a call."""

    slides = False
    """Whether windows may overlap (`slide_seconds`)."""
    portioned = False
    """Whether windows are planned by the portions that their inputs come in."""

    def portion_tuples(self, contract: Workload) -> int | None:
        """How many tuples a portion holds at most; None: whole files, so that one that is shed is never read."""
        return None

    def looks_back_seconds(self, contract: Workload) -> float:
        """How long before a window begins rows matter to it: it is handed these too."""
        return 0.0

    def columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        """By input stream, the columns that are read where windows are worked out in turn."""
        return {}

    def exact_columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        """Return, by input stream, the columns that must have exact values."""
        return {}

    def broken_by_types(self, contract: Workload, types: Mapping[str, Mapping[str, str]]) -> Iterable[Broken]:
        """What it can never work on, by the types of its inputs' columns alone; fields as they stand in its entry.

        `types`: by input stream, the type of every column that can be read of it, in the words of contracts.
        """
        return ()

    def broken_in_room(self, contract: Workload, others: Sequence[Workload]) -> Iterable[Broken]:
        """Yield settings that the capacity of its room rules out; `others`: the other joins or queries of the room."""
        return ()

    def most_rows(self, contract: Workload) -> int:
        """How many rows of an input may be held at a time where windows are worked out in turn."""
        return 5_000_000

    def look_at(  # noqa: B027 - most have nothing to refuse
        self, work: WindowWork, columns: Callable[[SqlQuestion], pa.Schema]
    ) -> None:
        """Refuse what cannot be worked out whatever its windows hold, before the room is divided among those that can.

        `columns`: what a question would be answered with, without asking it.
        """

    @abstractmethod
    def plan_windows(self, room: Room, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        """A plan for each of `work`, in its order, decided together."""

    def examine(
        self,
        contract: Workload,
        room: Room,
        window: Window,
        results: pa.Table,
        inputs: Mapping[str, ReadColumns] | None,
    ) -> Mapping[str, Any]:
        """What is to be judged of a window's results as they are in the table: the columns of `examined`.

        `inputs`: what the window was handed where windows are worked out in turn; None where that was shed again since.
        """
        raise NotImplementedError(f"{self.name} examines no results")

    def told(self, contract: Workload, tables: Views) -> Told | None:
        """What `explain` says of a join or a query; None where there is nothing to say yet."""
        return None

    def pictures(self, contract: Workload, tables: Views) -> Iterable[Picture]:
        """What the report shows of a join or a query."""
        return ()
