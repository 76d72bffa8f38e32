"""The Spark settings of every Spillway application: one dictionary for spark-submit, Python, tests and images.

The DAGs pass it to `SparkSubmitOperator`, and `spillway.engine.spark` passes it to the session builder. A cluster image
writes it to `spark-defaults.conf` (`python -m spillway.engine.spark_conf`). So all places use the same settings.
The master is not set here: the connection sets it.

>>> spark_conf("/opt/jars", {})["spark.sql.extensions"]
'io.delta.sql.DeltaSparkSessionExtension'
>>> spark_conf("/opt/jars", {"SPILLWAY_SHUFFLE_PARTITIONS": "64"})["spark.sql.shuffle.partitions"]
'64'
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spillway.engine.class_archive import archive_options

SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"
"""`SPILLWAY_JAVA_OPTIONS` for applications that run about a minute: C1 only, because C2 costs more than it saves.

With C1 alone the JVM reserves a code cache of 48 MB. Spark fills it within minutes. After that the JVM interprets all
new code, which is many times slower. So the options set a larger code cache.
"""

DELTA_JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")


def jars_folder(environment: Mapping[str, str] | None = None) -> str:
    """Return the folder of the Delta jars: `SPILLWAY_JARS`, else `.jars` in `SPILLWAY_HOME`, else in the checkout.

    >>> jars_folder({"SPILLWAY_JARS": "/opt/jars"})
    '/opt/jars'
    """
    env = os.environ if environment is None else environment
    if env.get("SPILLWAY_JARS"):
        return env["SPILLWAY_JARS"]
    home = Path(env.get("SPILLWAY_HOME", ".")).resolve() / ".jars"
    return str(home if home.is_dir() else Path(__file__).resolve().parents[3] / ".jars")


def spark_conf(jars_dir: str | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings without the master. `jars_dir` is a folder, or a `local://` URI inside an image.

    Environment variables override some settings:

    - `SPILLWAY_SHUFFLE_PARTITIONS`: default is the number of cores of this machine; use two or three per core on a
      cluster;
    - `SPILLWAY_DRIVER_MEMORY`: default 2g;
    - `SPILLWAY_PYTHON`: default is the running Python, which has the same path in an image built from this project;
    - `SPILLWAY_JAVA_OPTIONS`: further options of the driver's JVM;
    - `SPILLWAY_SPARK_UI`: default false.
    """
    env = os.environ if environment is None else environment
    folder = (jars_dir or jars_folder(env)).rstrip("/")
    jars = [f"{folder}/{jar}" for jar in DELTA_JARS]
    archive = archive_options(folder, jars)
    java = [archive.get("spark.driver.extraJavaOptions"), env.get("SPILLWAY_JAVA_OPTIONS")]
    return {
        "spark.jars": ",".join(jars),
        **archive,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # The log of a small table fits in one task; Delta's default of 50 costs a second per read on two cores.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": env.get("SPILLWAY_SHUFFLE_PARTITIONS") or str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        # By default, Spark creates this folder in the working directory at the first SQL query. Our tables have paths.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "spillway-warehouse")),
        # Code that writes with Spark (a baseline of a benchmark does) uses the same codec as the store.
        "spark.sql.parquet.compression.codec": "zstd",
        # 8 bytes with statistics, which every reader expects, instead of INT96: 12 bytes without statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # One task per file: rows keep their seq order from scan to file without a sort.
        "spark.sql.files.openCostInBytes": str(128 * 1024 * 1024),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.memory": env.get("SPILLWAY_DRIVER_MEMORY") or "2g",
        # Driver and workers must use the same Python and numba, so that kernels give the same bits.
        "spark.pyspark.python": env.get("SPILLWAY_PYTHON") or sys.executable,
        # For the options that the demo and the tests use, see SHORT_LIVED_JVM.
        **({"spark.driver.extraJavaOptions": " ".join(filter(None, java))} if any(java) else {}),
        "spark.log.level": "WARN",
        "spark.ui.enabled": env.get("SPILLWAY_SPARK_UI") or "false",
        "spark.ui.showConsoleProgress": "false",
    }


def without_delta(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings without those for Delta, for a session whose class path has no Delta jars.

    This is the case under a bare `spark-submit`. The jobs do not need the Delta jars: Spark runs the tasks, and the
    tables are written without Spark. Settings that name missing classes would log a stack trace in every job.

    >>> "delta" in str(without_delta(spark_conf("/opt/jars", {})).values())
    False
    """
    return {
        name: value
        for name, value in conf.items()
        if name not in ("spark.jars", "spark.databricks.delta.snapshotPartitions") and ".delta." not in value
    }


def has_delta(jars: str) -> bool:
    """Return whether `jars` (the setting `spark.jars`) has the Delta jars, downloaded by us or by `--packages`.

    >>> has_delta(spark_conf("/opt/jars", {})["spark.jars"]), has_delta("")
    (True, False)
    """
    return all(jar in jars for jar in DELTA_JARS)


def defaults_file(conf: Mapping[str, str]) -> str:
    """Return the settings as text in the format of `spark-defaults.conf`.

    >>> print(defaults_file({"spark.ui.enabled": "false"}), end="")
    spark.ui.enabled  false
    """
    return "".join(f"{key}  {value}\n" for key, value in conf.items())


if __name__ == "__main__":
    print(defaults_file(spark_conf()), end="")
