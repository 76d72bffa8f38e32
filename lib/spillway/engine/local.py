"""The process engine: runs all work in this process, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spillway.engine.statements import SqlView, Steps, columns_by_duckdb, query_duckdb
from spillway.engine.task_errors import Item, Result


@dataclass(frozen=True)
class ProcessEngine:
    """Runs slices in this process, one after the other: for small streams, tests, and work that needs no Spark.

    >>> ProcessEngine().map(lambda number: number * 2, [1, 2, 3])
    [2, 4, 6]
    """

    cores: int = 1

    def load(self) -> None:
        pass

    def map(self, function: Callable[[Item], Result], items: Sequence[Item], label: str = "") -> list[Result]:
        return [function(item) for item in items]

    def ask(
        self,
        views: Mapping[str, SqlView],
        steps: Steps,
        most_rows: int,
        most_seconds: float | None = None,
        label: str = "",
    ) -> pa.Table:
        return query_duckdb(views, steps, most_rows, most_seconds)

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        return columns_by_duckdb(views, steps)
