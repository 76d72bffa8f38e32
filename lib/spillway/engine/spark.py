"""The engine that is Spark: one task or several pieces a task, results gathered by the driver.

The Spark session, made the same way by spark-submit, python and the tests.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from spillway.engine.protocol import Item, Result
from spillway.engine.spark_conf import has_delta, jars_folder, spark_conf, without_delta
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


def spark_session(name: str, master: str | None = None, **conf: str) -> SparkSession:
    """The session called `name`; `conf` overrules single settings (the tests do).

    Under spark-submit the master and the jars come from there; run by python, from `spark_conf`. Submitted without
    Delta's jars (a bare `spark-submit jobs/x.py`) it is a session without Delta, which is all that jobs need.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master or os.environ.get("SPILLWAY_MASTER", "local[*]"))
    own = spark_conf(jars_folder())
    if submitted:
        told = _submitted_with()
        if told.get("spark.master", "").startswith("local"):
            # said here and not in SPARK_LOCAL_IP, so that a cluster's executors still find the driver
            own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if not has_delta(told.get("spark.jars", "")):
            own = without_delta(own)
    for key, value in {**own, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _submitted_with() -> dict[str, str]:
    """What spark-submit was told, on its command line and in its defaults."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


@contextmanager
def spark_engine(name: str) -> Iterator[SparkEngine]:
    """Spark for one job, started when there is something to run and stopped with the block."""
    engine = SparkEngine(lambda: spark_session(name))
    try:
        yield engine
    finally:
        engine.stop()
