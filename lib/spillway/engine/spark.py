"""The Spark engine and its session.

A task processes one or more slices, and the driver collects the results. spark-submit, plain Python and the tests
create the session in the same way.
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
from spillway.engine.statements import SqlView, Steps, columns_by_spark, query_spark
from spillway.errors import SpillwayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLICES_A_CORE = 4
"""Spark partitions per core. Slices differ in size: with several partitions per core, one large slice delays less."""


class SparkEngine:
    """Runs slices in Spark tasks.

    The session is created at its first use, because most runs find nothing to do.
    """

    def __init__(self, session: Callable[[], SparkSession]) -> None:
        self._make = session
        self._spark: SparkSession | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def started(self) -> bool:
        """Whether the session was created, that is, whether there was work."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session; it is created at the first access."""
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
                    made = problem  # the driver raises it unchanged, without the stack trace of the task
                yield index, pickle.dumps(made, protocol=pickle.HIGHEST_PROTOCOL)

        slices = max(1, min(len(pieces), SLICES_A_CORE * self.cores))
        # an RDD, not a DataFrame: planning, code generation and Arrow streams cost more than a small task itself
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
        return query_spark(self.spark, views, steps, most_rows, most_seconds)

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        return columns_by_spark(self.spark, views, steps)

    def stop(self) -> None:
        """Stop the session if it was created."""
        if self._spark is not None:
            self._spark.stop()


def spark_session(name: str, master: str | None = None, **conf: str) -> SparkSession:
    """Create the session with the application name `name`; `conf` overrides single settings (the tests use this).

    Under spark-submit, the master and the jars come from spark-submit. Under plain Python, the jars come from
    `spark_conf`, and the master from `master`, `SPILLWAY_MASTER` or the default `local[*]`. If a job is submitted
    without the Delta jars (a bare `spark-submit jobs/x.py`), the session has no Delta support. The jobs do not need it.
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
            # set here and not in SPARK_LOCAL_IP, so that the executors of a cluster still find the driver
            own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if not has_delta(told.get("spark.jars", "")):
            own = without_delta(own)
    for key, value in {**own, **conf}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark


def _submitted_with() -> dict[str, str]:
    """Return the settings of spark-submit, from its command line and its defaults file."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


@contextmanager
def spark_engine(name: str) -> Iterator[SparkEngine]:
    """Yield the Spark engine of one job. Spark starts when there is work, and stops at the end of the block."""
    engine = SparkEngine(lambda: spark_session(name))
    try:
        yield engine
    finally:
        engine.stop()
