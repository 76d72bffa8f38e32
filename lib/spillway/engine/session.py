"""The Spark session, made the same way by spark-submit, python and the tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spillway.engine.spark import SparkEngine
from spillway.engine.spark_conf import has_delta, jars_folder, spark_conf, without_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
