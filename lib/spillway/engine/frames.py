"""DataFrames whose rows are made in tasks: the only way in which Spillway runs work on Spark.

A frame of slice numbers is mapped by a function that yields Arrow batches (`DataFrame.mapInArrow`). This needs no RDD
and no access to the JVM, so it works in a classic session and over Spark Connect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SLICES_A_CORE = 2
"""Tasks per core. The cost of a job is its tasks; with two per core, one large slice delays the others less."""
_MOST_CORES = 1 << 14
_cores: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session is one of Spark Connect."""
    return ".connect." in type(spark).__module__


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at the same time: the number of partitions that it makes by default."""
    if spark not in _cores:
        from pyspark.sql.functions import spark_partition_id

        places = spark.range(_MOST_CORES).select(spark_partition_id().alias("place")).toArrow()
        _cores[spark] = max(1, len(places["place"].unique()))
    return _cores[spark]


def slices_of(spark: SparkSession, count: int) -> int:
    """Return the number of tasks for `count` units of work."""
    return 1 if count <= 1 else min(count, SLICES_A_CORE * cores_of(spark))


def made_in_tasks(
    spark: SparkSession, slices: int, make: Callable[[int], Iterable[pa.RecordBatch]], schema: Any
) -> DataFrame:
    """Return the rows that `make` yields for the numbers 0 to `slices` - 1, one task each."""

    def work(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from make(number)

    return spark.range(0, slices, 1, slices).mapInArrow(work, schema)


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session on the same Spark with views of its own; close it with `close_own_session`."""
    return spark.cloneSession() if is_connect(spark) else spark.newSession()


def close_own_session(own: SparkSession) -> None:
    """Release what the server holds of a session of Spark Connect; a classic session needs no closing."""
    if is_connect(own):
        with suppress(Exception):  # the server forgets idle sessions by itself
            own.client.release_session()
            own.client.close()


@contextmanager
def labelled(spark: SparkSession, label: str) -> Iterator[None]:
    """Label the jobs that this thread starts in the block, for Spark's UI and its event log.

    The label is a tag of the operation (Spark Connect and classic) and, in a classic session, the jobs' description.
    """
    tag = label.replace(",", ";")
    if not tag:
        yield
        return
    classic = None if is_connect(spark) else spark.sparkContext
    spark.addTag(tag)
    if classic is not None:
        classic.setJobDescription(label)
    try:
        yield
    finally:
        with suppress(Exception):  # the session may have ended: the first error counts
            spark.removeTag(tag)
            if classic is not None:
                classic.setJobDescription(None)
