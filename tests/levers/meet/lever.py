"""The second toy: a join by comparing, with every tenth comparison left undone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spillway.ledger import LedgerRow
from spillway.levers.protocol import CapacityGroup
from spillway.levers.windows import ReadColumns, Window, WindowDecision, WindowLever, WindowPlan, WindowWork


@dataclass(frozen=True)
class Meet(WindowDecision):
    """Left and right rows of a window, compared one by one."""

    left: str
    right: str
    on: str
    every: int

    def results(
        self, window: Window, inputs: Mapping[str, ReadColumns], counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        rows = {name: read(["seq", self.on]).to_pylist() for name, read in inputs.items()}
        left, right = rows.get(self.left, []), rows.get(self.right, [])
        pairs = [(one, other) for one in left for other in right]
        compared = [pair for at, pair in enumerate(pairs) if at % self.every != self.every - 1]
        counts["offered"], counts["compared"] = len(pairs), len(compared)
        met = [(one["seq"], other["seq"]) for one, other in compared if one[self.on] == other[self.on]]
        if met:
            yield pa.table({"left_seq": [one for one, _ in met], "right_seq": [other for _, other in met]})


class MeetPlan(WindowPlan):
    """Nothing to choose."""

    def __init__(self, work: WindowWork) -> None:
        self.work, self.settings = work, work.contract.lever_settings("meet")

    @property
    def decision(self) -> Meet:
        left, right = self.work.contract.inputs
        return Meet(left, right, self.settings.on, self.settings.every)

    def account(self, window: Window, results: int, counts: Mapping[str, int]) -> Iterable[LedgerRow]:
        left = counts["offered"] - counts["compared"]
        yield LedgerRow(
            window.scope,
            window.subject,
            window.window,
            window.day,
            "meet",
            self.work.ordinal,
            "comparisons",
            offered=counts["offered"],
            kept=counts["compared"],
            shed=left,
            lost=left,
        )


class MeetLever(WindowLever):
    """Joins two streams."""

    name = "meet"
    results_table = "meet_results"

    def plan_windows(self, room: CapacityGroup, work: Sequence[WindowWork]) -> Sequence[WindowPlan]:
        return [MeetPlan(one) for one in work]


LEVER = MeetLever()
