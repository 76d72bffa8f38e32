"""What every Spillway application tells Spark: one dictionary, for spark-submit, python, tests and images.

The DAGs hand it to `SparkSubmitOperator`, `spillway.engine.spark` to the builder, and a cluster's image
prints it into `spark-defaults.conf` (`python -m spillway.engine.spark_conf`), so that no two places disagree.
Nothing here names a master: that is the connection's business.

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
"""`SPILLWAY_JAVA_OPTIONS` for applications of a minute: the second compiler would cost more than it gives.

With the first compiler alone the JVM sets aside 48 MB for code; Spark fills it within minutes, and from then on
everything new is interpreted, many times slower. Hence the size.
"""

DELTA_JARS = ("delta-spark_4.2_2.13-4.4.0.jar", "delta-storage-4.4.0.jar")


def jars_folder(environment: Mapping[str, str] | None = None) -> str:
    """Where the Delta jars are: `SPILLWAY_JARS`, or `.jars` of the home, or `.jars` of the checkout.

    >>> jars_folder({"SPILLWAY_JARS": "/opt/jars"})
    '/opt/jars'
    """
    env = os.environ if environment is None else environment
    if env.get("SPILLWAY_JARS"):
        return env["SPILLWAY_JARS"]
    home = Path(env.get("SPILLWAY_HOME", ".")).resolve() / ".jars"
    return str(home if home.is_dir() else Path(__file__).resolve().parents[3] / ".jars")


def spark_conf(jars_dir: str | None = None, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The settings, master apart. `jars_dir` may be a folder or a `local://` URI inside an image.

    Overruled by the environment: `SPILLWAY_SHUFFLE_PARTITIONS` (default: this machine's cores; a cluster
    wants two or three per core it has), `SPILLWAY_DRIVER_MEMORY` (default 2g), `SPILLWAY_PYTHON` (default:
    the Python that runs this, which is also where an image built from this project has it).
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
        # A young table's log fits one task; Delta's default of 50 costs a second per read on two cores.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": env.get("SPILLWAY_SHUFFLE_PARTITIONS") or str(os.cpu_count() or 2),
        "spark.sql.session.timeZone": "UTC",
        # Spark makes this folder where it stands as soon as SQL is asked; our tables have paths of their own.
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "spillway-warehouse")),
        # Who writes with Spark, as a bench's floor does, writes as the store does.
        "spark.sql.parquet.compression.codec": "zstd",
        # Eight bytes with statistics, as every reader expects, instead of the twelve of INT96 without.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # One task a file: rows stay in seq order from scan to file without a sort.
        "spark.sql.files.openCostInBytes": str(128 * 1024 * 1024),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.driver.memory": env.get("SPILLWAY_DRIVER_MEMORY") or "2g",
        # Both ends of an Arrow kernel must be the same Python with the same numba, bit for bit.
        "spark.pyspark.python": env.get("SPILLWAY_PYTHON") or sys.executable,
        # What the demo and the tests say here: see SHORT_LIVED_JVM.
        **({"spark.driver.extraJavaOptions": " ".join(filter(None, java))} if any(java) else {}),
        "spark.log.level": "WARN",
        "spark.ui.enabled": env.get("SPILLWAY_SPARK_UI") or "false",
        "spark.ui.showConsoleProgress": "false",
    }


def without_delta(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings for a session whose class path was fixed without the jars, as by a bare `spark-submit`.

    Our jobs need none of them: Spark runs pieces, and tables are written by whoever runs them. To name classes that
    are not there would put a stack into the log of every job.

    >>> "delta" in str(without_delta(spark_conf("/opt/jars", {})).values())
    False
    """
    return {
        name: value
        for name, value in conf.items()
        if name not in ("spark.jars", "spark.databricks.delta.snapshotPartitions") and ".delta." not in value
    }


def has_delta(jars: str) -> bool:
    """Whether jars (`spark.jars`) hold Delta's, fetched by us or by `--packages`.

    >>> has_delta(spark_conf("/opt/jars", {})["spark.jars"]), has_delta("")
    (True, False)
    """
    return all(jar in jars for jar in DELTA_JARS)


def defaults_file(conf: Mapping[str, str]) -> str:
    """The settings as a `spark-defaults.conf`.

    >>> print(defaults_file({"spark.ui.enabled": "false"}), end="")
    spark.ui.enabled  false
    """
    return "".join(f"{key}  {value}\n" for key, value in conf.items())


if __name__ == "__main__":
    print(defaults_file(spark_conf()), end="")
