"""The protocol of a window lever, which works on several streams at once: on the windows of a join or a query.

A *window* is a span of event time. Before it is processed, it is pinned together with its input batches, the order of
its levers, and their facts. The lever receives what its input streams transmitted in that span, and writes results. It
accounts for work that it skips in its own units (comparisons, batches of queries). State between windows is kept in the
lever's own tables.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

from spillway.contracts.fields import Broken
from spillway.contracts.workload import Workload
from spillway.ledger import LedgerRow
from spillway.levers.protocol import CapacityGroup, Facts, LeverExplanation, Picture, Views

OPEN, PLANNED, DONE, GONE = "open", "planned", "done", "gone"
"""A window has begun; is closed and pinned; is done; or can never be done, because its rows were removed first."""
Input = tuple[str, int]
"""A stream, and the number of a batch of it."""
ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Reads columns of an input stream's rows in the window. Shed data is recovered as far as possible. The rows are in the
order of `seq` (of time, if windows are processed in sequence).
"""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST, _LAST = (edge.replace(tzinfo=UTC) for edge in (datetime.min, datetime.max))


def micros_of(moment: date) -> int:
    """Return whole microseconds from 1970 to a moment, or to the midnight at the start of a date.

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
    """Return the moment `micros` microseconds after 1970, limited to the range of `datetime`.

    >>> moment_of(-(10**18)).year, moment_of(10**18).year
    (1, 9999)
    """
    low, high = micros_of(_FIRST), micros_of(_LAST)
    return _EPOCH + timedelta(microseconds=min(max(micros, low), high))


def duration_micros(seconds: float) -> int:
    """Return a length of time in whole microseconds, at least one. Windows and slices have such lengths."""
    return max(1, round(seconds * 1e6))


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
    """Inputs whose rows all lie before the window, in the time that its lever looks back at."""
    too_late: tuple[Input, ...] = ()
    """Batches with rows of the window that arrived when it could no longer be recomputed."""
    late: tuple[Input, ...] = ()
    """Inputs that arrived after the window was done, so that it is recomputed."""
    failed: str | None = None
    """Why the last attempt failed, if the window is still planned."""
    failed_by: str | None = None
    """Fingerprint of the SQL of that attempt (`SqlDecision.query_fingerprint`)."""

    @property
    def day(self) -> date:
        """Return the date of the window in the ledger."""
        return self.from_time.date()

    def with_changes(self, now: datetime, **changes: Any) -> Window:
        """Return the window with `changes`, updated at `now`."""
        return replace(self, updated_at=now, **changes)

    def row(self) -> dict[str, Any]:
        """Return the row of table `windows`."""
        values = dict(vars(self))
        values |= {
            name: list(values[name]) for name in ("inputs", "levers", "looked_back", "too_late", "late")
        }
        values["models"] = dict(self.models)
        return values

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Window:
        """Return a window from a row of table `windows`."""
        values = dict(row)
        for name in ("inputs", "looked_back", "too_late", "late"):
            values[name] = tuple((one["stream"], one["batch"]) for one in values[name] or ())
        values["levers"], values["models"] = tuple(values["levers"] or ()), dict(values["models"] or {})
        return Window(**values)


@dataclass(frozen=True, slots=True)
class Portion:
    """Consecutive rows of an input in a window, known without reading them: a file, or a slice of a file."""

    stream: str
    batch: int
    from_seq: int
    to_seq: int
    tuples: int
    size: int
    """Bytes as written."""
    produced: float
    """Estimated number of tuples that the source produced for this portion: its tuples and its share of the lost rows.
    """


@dataclass(frozen=True)
class InputLoss:
    """Rows of an input that were produced in a window but cannot be read.

    The weights of kept rows represent the rows that a lever dropped at random. They do not represent *unsampled* rows:
    no row of their region was kept. Counts are ranges if the time of the rows is not known.
    """

    dropped: float = 0.0
    """The best estimate of the number of dropped rows, including unsampled ones."""
    dropped_least: int = 0
    dropped_most: int = 0
    unsampled: float = 0.0
    unsampled_least: int = 0
    unsampled_most: int = 0
    largest_weight: float = 1.0
    refused: float = 0.0
    """Estimated number of rows that were refused at intake."""
    recovered_rows: int = 0
    """Rows that were stored at the source and are recovered when the window is read; their portions are not known."""
    least_kept: float = math.inf
    """The smallest number of rows kept of a partly dropped region (`DroppedRows.least_kept`)."""

    @property
    def lost_rows(self) -> float:
        """Return the number of dropped and refused rows."""
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
            self.recovered_rows + other.recovered_rows,
            min(self.least_kept, other.least_kept),
        )


@dataclass(frozen=True)
class SqlInput:
    """What a statement reads of an input: columns of some portions. `tagged`: column `PORTION` has the portion's
    index.
    """

    stream: str
    columns: tuple[str, ...]
    portions: tuple[Portion, ...]
    tagged: bool = False


@dataclass(frozen=True)
class SqlQuery:
    """Steps in Spark SQL over the rows that are read. The last step gives the answer, within limits of rows and
    time.
    """

    reads: Mapping[str, SqlInput]
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
    """By table, the rows that this run has made of earlier windows. They may not be written yet."""
    inputs: Mapping[str, ReadColumns] = field(default_factory=dict)
    """If windows are processed in sequence: by input stream, what this window reads, held in memory."""
    portions: Mapping[int, tuple[Portion, ...]] = field(default_factory=dict)
    """By window, the portions of its inputs, if the lever requests them (`WindowLever.portioned`)."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By input stream, the columns that can be read."""
    losses: Mapping[int, Mapping[str, InputLoss]] = field(default_factory=dict)
    """The rows that were produced and cannot be read, by window and input stream."""


class WindowDecision(ABC):
    """The decision about some windows. It travels to tasks."""

    def task_inputs(self, window: Window, inputs: Mapping[str, ReadColumns]) -> Sequence[Any]:
        """Return the parts of the window, each of which is passed to `results` in its own task. Default: one part."""
        return [inputs]

    @abstractmethod
    def results(self, window: Window, inputs: Any, counts: dict[str, int]) -> Iterator[pa.Table]:
        """Yield the results of a part of the window (the inputs by stream, unless `parts` returns something else).

        Counts go into `counts`. They are summed over the parts and passed to `account`.
        """


Inexact = Mapping[str, frozenset[str]]
"""By input stream, the attributes with values in the window that an earlier lever may have shed or rounded."""


class SqlDecision(WindowDecision):
    """A decision whose results are answers to SQL. The engine computes them; no task of ours is involved."""

    def results(self, window: Window, inputs: Any, counts: dict[str, int]) -> Iterator[pa.Table]:
        raise NotImplementedError("its results are asked for")

    @property
    @abstractmethod
    def query_fingerprint(self) -> str:
        """Return a fingerprint of the SQL and its limits.

        If it has changed, a window that failed may succeed.
        """

    @abstractmethod
    def queries(self, window: Window, inexact: Inexact) -> Sequence[SqlQuery]:
        """Return the SQL queries; none if the window has no data to work on."""

    @abstractmethod
    def build_results(
        self,
        window: Window,
        answers: Sequence[pa.Table],
        counts: dict[str, int],
        inexact: Inexact,
        this_run: Callable[[], Mapping[int, Mapping[str, int]]],
    ) -> pa.Table | None:
        """Return the window's results, from the answers in the order of the queries.

        Their columns become the table's. Counts go into `counts`, which already has the `microseconds` that the answers
        took. `this_run` returns the counts of earlier windows that this run answers; it waits for them.
        """


class WindowPlan(ABC):
    """A lever's plan for the windows of one join or query."""

    @property
    @abstractmethod
    def decision(self) -> WindowDecision:
        """Return what tasks apply."""

    @abstractmethod
    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        """Return ledger rows for one window. `results`: the number of result rows that were written."""

    def records(
        self, window: Window, results: int, counts: Mapping[str, int]
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return rows for the lever's own tables (with `subject` and `window`). They replace rows of the same
        window.
        """
        return {}


class WindowLever(ABC):
    """A lever that works on windows."""

    name: str
    results_table: str
    """The table of its results, with a folder for each join or query."""
    record_tables: tuple[str, ...] = ()
    """Tables of `WindowPlan.records`."""
    examined: pa.Schema | None = None
    """The columns that `examine` returns. The suite of the results table reads them together with `stream`, `window`
    and `batch_date`. None: results are not examined.
    """
    in_turn = False
    """Whether the plan of a window depends on the results of earlier windows. Then windows are processed one per
    call.
    """

    slides = False
    """Whether windows may overlap (`slide_seconds`)."""
    portioned = False
    """Whether windows are planned by the portions of their inputs."""

    def portion_tuples(self, contract: Workload) -> int | None:
        """Return the largest number of tuples of a portion; None: whole files, so that a shed portion is never read."""
        return None

    def look_back_seconds(self, contract: Workload) -> float:
        """Return how long before the window's begin rows are relevant. The lever receives these rows too."""
        return 0.0

    def columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        """Return, by input stream, the columns that are read if windows are processed in sequence."""
        return {}

    def exact_columns(self, contract: Workload) -> Mapping[str, Sequence[str]]:
        """Return, by input stream, the columns that must have exact values."""
        return {}

    def column_type_problems(
        self, contract: Workload, types: Mapping[str, Mapping[str, str]]
    ) -> Iterable[Broken]:
        """Yield problems that the column types of the inputs alone show, with the field names of the lever's entry.

        `types`: by input stream, the type of every column that can be read, as contracts name types.
        """
        return ()

    def capacity_problems(self, contract: Workload, others: Sequence[Workload]) -> Iterable[Broken]:
        """Yield settings that the capacity of its room rules out; `others`: the other joins or queries of the room."""
        return ()

    def max_rows_in_memory(self, contract: Workload) -> int:
        """Return how many rows of an input may be held in memory at a time if windows are processed in sequence."""
        return 5_000_000

    def check_work(  # noqa: B027 - most have nothing to refuse
        self, work: WindowWork, columns: Callable[[SqlQuery], pa.Schema]
    ) -> None:
        """Refuse work that no window could ever do, before capacity is divided among the rest.

        `columns`: returns the schema of a query's answer without computing it.
        """

    @abstractmethod
    def plan_windows(self, room: CapacityGroup, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        """Return a plan for each of `work`, in its order. All of them are decided together."""

    def examine(
        self,
        contract: Workload,
        room: CapacityGroup,
        window: Window,
        results: pa.Table,
        inputs: Mapping[str, ReadColumns] | None,
    ) -> Mapping[str, Any]:
        """Return the columns of `examined` for a window's results as they are in the table.

        `inputs`: what the window received if windows are processed in sequence; None if that was shed again since.
        """
        raise NotImplementedError(f"{self.name} examines no results")

    def explain(self, contract: Workload, tables: Views) -> LeverExplanation | None:
        """Return what `explain` says of a join or a query; None if there is nothing to say yet."""
        return None

    def pictures(self, contract: Workload, tables: Views) -> Iterable[Picture]:
        """Return the pictures of a join or a query for the report."""
        return ()
