"""The engine that is Spark: one task or several pieces a task, results gathered by the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from spillway.engine.protocol import Item, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES_A_CORE = 4
"""Pieces may differ in size: with a few slices a core the last one does not keep all others waiting."""


class SparkEngine:
    """Runs pieces in the tasks of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @property
    def cores(self) -> int:
        return int(self.spark.sparkContext.defaultParallelism)

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        if not items:
            return []
        pieces = tuple(items)

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    made = pickle.dumps(function(pieces[index]), protocol=pickle.HIGHEST_PROTOCOL)
                    yield pa.record_batch([[index], [made]], schema=_RESULT)

        slices = max(1, min(len(pieces), SLICES_A_CORE * self.cores))
        rows: Any = self.spark.range(0, len(pieces), 1, slices).mapInArrow(work, "id bigint, made binary")
        found = {row["id"]: pickle.loads(bytes(row["made"])) for row in rows.collect()}
        return [found[index] for index in range(len(pieces))]


_RESULT = pa.schema([("id", pa.int64()), ("made", pa.binary())])
