"""The JVM's class-data archive: Spark's and Delta's classes as memory, made once at set-up.

A Spark application of a few seconds spends most of them on loading and checking some 20,000 classes. Java can keep
them in a file that is mapped at the start (dynamic class-data sharing), which more than halves the time to the first
Delta commit. It needs the same class path each time, so the Delta jars stand on the driver's class path, not only among
the jars that Spark adds later. An archive of another Java or of other jars is ignored by the JVM, never wrong.

`python -m spillway.engine.class_archive FOLDER` makes the archive in the folder of the jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARCHIVE = "classes.jsa"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""Neither what an archive leaves out nor why one was ignored is news to who runs a job."""


def archive_options(folder: str, jars: list[str]) -> dict[str, str]:
    """The settings that map the archive of `folder`; none where there is no archive.

    >>> archive_options("/nowhere", ["a.jar"])
    {}
    """
    archive = Path(folder) / ARCHIVE
    return _options(jars, f"-XX:SharedArchiveFile={archive}") if archive.is_file() else {}


def _options(jars: list[str], archive: str) -> dict[str, str]:
    return {
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.driver.extraJavaOptions": f"{archive} {QUIET}",
    }


def make_archive(folder: Path) -> None:
    """Run what jobs do once, small, and keep the classes it took."""
    from spillway.engine.session import spark_session
    from spillway.engine.spark_conf import DELTA_JARS, SHORT_LIVED_JVM

    target = folder / ARCHIVE
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unfinished = Path(scratch, ARCHIVE)
        conf = _options([f"{folder}/{jar}" for jar in DELTA_JARS], f"-XX:ArchiveClassesAtExit={unfinished}")
        conf["spark.driver.extraJavaOptions"] += f" {SHORT_LIVED_JVM}"
        spark = spark_session("class archive", "local[2]", **conf)
        jvm = spark.sparkContext._gateway.proc
        _touch_everything(spark, scratch)
        spark.stop()
        # the archive is written when the JVM ends, which it does when nobody talks to it any more
        spark.sparkContext._gateway.shutdown()
        jvm.stdin.close()
        jvm.wait(timeout=300)
        os.replace(unfinished, target)


def _touch_everything(spark: SparkSession, scratch: str) -> None:
    import pyarrow as pa
    from delta import DeltaTable
    from pyspark.sql import functions as sql
    from pyspark.sql.types import DoubleType, StructField, StructType

    path = f"{scratch}/table"
    DeltaTable.createIfNotExists(spark).location(path).addColumns(
        StructType([StructField("seq", DoubleType()), StructField("batch", DoubleType())])
    ).partitionedBy("batch").property("delta.enableDeletionVectors", "false").execute()

    def same(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches

    def ride(values: Any) -> Any:
        return values

    # Spark evaluates the hints, and Arrow is not imported where this module is only asked for options
    ride.__annotations__ = {"values": pa.Array, "return": pa.Array}
    riding = sql.arrow_udf(ride, "double")
    rows = spark.range(100).selectExpr("CAST(id AS double) AS seq", "CAST(id % 2 AS double) AS batch")
    for _ in range(2):
        rows.write.format("delta").mode("overwrite").option("replaceWhere", "batch IN (0, 1)").save(path)
    stored = spark.read.format("delta").load(path).where("seq > 3")
    stored.mapInArrow(same, "seq double, batch double").groupBy("batch").agg(sql.count("seq")).collect()
    stored.select(riding("seq").alias("seq"), sql.when(sql.col("seq") < 9, 1.0).alias("batch")).collect()
    DeltaTable.forPath(spark, path).delete("batch = 1")

    landing = Path(scratch, "landing")
    landing.mkdir()
    (landing / "a").write_bytes(b"1")

    def on_files(files: DataFrame, _epoch: int) -> None:
        files.select("path", "length").collect()

    source = spark.readStream.format("binaryFile").option("recursiveFileLookup", "true")
    schema = spark.read.format("binaryFile").load(str(landing)).schema
    files = source.schema(schema).load(str(landing)).select("path", "length")
    query = files.writeStream.foreachBatch(on_files).trigger(availableNow=True)
    query.option("checkpointLocation", f"{scratch}/checkpoint").start().awaitTermination()


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]).resolve())
