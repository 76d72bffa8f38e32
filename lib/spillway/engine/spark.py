"""The engine that is Spark: one task or several pieces a task, results gathered by the driver."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from spillway.engine.protocol import Item, Result
from spillway.engine.statements import SqlView, Steps, ask_spark, columns_by_spark
from spillway.errors import SpillwayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES_A_CORE = 4
"""Pieces may differ in size: with a few slices a core the last one does not keep all others waiting."""


class SparkEngine:
    """Runs pieces in the tasks of a session, which is made when the first piece comes: most runs find nothing to do."""

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._make = session
        self._spark: SparkSession | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def started(self) -> bool:
        """Whether there was anything to run."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session."""
        with self._one_at_a_time:
            if self._spark is None:
                self._spark = self._make()
            return self._spark

    @property
    def cores(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def load(self) -> None:
        import_module("pyspark.sql")

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        pieces = tuple(items)

        def work(indices: Iterable[int]) -> Iterator[tuple[int, bytes]]:
            for index in indices:
                try:
                    made: object = function(pieces[index])
                except SpillwayError as problem:
                    made = problem  # told by the driver as it was said here, without the task's stack
                yield index, pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL)

        slices = max(1, min(len(pieces), SLICES_A_CORE * self.cores))
        # no frame: to plan and to compile one, and Arrow's streams into and out of a task, cost more than small tasks
        tasks = self.spark.sparkContext.parallelize(range(len(pieces)), slices).mapPartitions(work)
        found = {index: pickle.loads(made) for index, made in tasks.collect()}
        results = [found[index] for index in range(len(pieces))]
        for one in results:
            if isinstance(one, SpillwayError):
                raise one
        return results

    def ask(
        self, views: Mapping[str, SqlView], steps: Steps, most_rows: int, most_seconds: float | None = None
    ) -> pa.Table:
        return ask_spark(self.spark, views, steps, most_rows, most_seconds)

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        return columns_by_spark(self.spark, views, steps)

    def stop(self) -> None:
        """End the session, if there is one."""
        if self._spark is not None:
            self._spark.stop()
