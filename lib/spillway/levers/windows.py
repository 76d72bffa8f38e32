"""What a lever is that works on several streams at once: on the windows of a join or a query.

A *window* is a span of event time, pinned with the batches it reads, the order of its levers and their facts, before
anything is worked out. The lever is handed what its input streams transmitted in that span, and writes results; what it
leaves undone it accounts for in units of its own (comparisons, batches of queries). State between windows is what its
own tables hold.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from spillway.contracts.workload import Workload
from spillway.ledger import LedgerRow
from spillway.levers.protocol import Facts, Room

PLANNED, DONE = "planned", "done"
ReadColumns = Callable[[Sequence[str]], pa.Table]
"""Columns of the rows that an input stream transmitted in the window, in the order of `seq`."""


@dataclass(frozen=True)
class Window:
    """A span of time of a join or a query, and what is pinned with it."""

    scope: str
    subject: str
    window: int
    status: str
    from_time: datetime
    to_time: datetime
    inputs: tuple[tuple[str, int], ...]
    created_at: datetime
    updated_at: datetime
    levers: tuple[str, ...] = ()
    models: Mapping[str, int] = field(default_factory=dict)

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
        values["inputs"], values["levers"], values["models"] = (
            list(self.inputs),
            list(self.levers),
            dict(self.models),
        )
        return values

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> Window:
        """A row of `windows` as a window."""
        values = dict(row)
        values["inputs"] = tuple((one["stream"], one["batch"]) for one in values["inputs"] or ())
        values["levers"], values["models"] = tuple(values["levers"] or ()), dict(values["models"] or {})
        return Window(**values)


@dataclass(frozen=True)
class WindowWork:
    """What a lever plans for one join or query: its windows, oldest first."""

    contract: Workload
    facts: Mapping[int, Facts]
    windows: tuple[Window, ...]
    ordinal: int = 1


class WindowDecision(ABC):
    """What was decided for some windows; travels to tasks."""

    @abstractmethod
    def results(
        self, window: Window, inputs: Mapping[str, ReadColumns], counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """The window's results; what is counted on the way goes into `counts` and comes back to `account`."""


class WindowPlan(ABC):
    """A lever's plan for the windows of one join or query."""

    @property
    @abstractmethod
    def decision(self) -> WindowDecision:
        """What tasks apply."""

    @abstractmethod
    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        """Lines of the ledger for one window; `results` rows were written."""


class WindowLever(ABC):
    """A lever that works on windows."""

    name: str
    results_table: str
    """The table its results go to, a folder a join or query."""

    @abstractmethod
    def plan_windows(self, room: Room, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        """A plan for each of `work`, in its order, decided together."""
