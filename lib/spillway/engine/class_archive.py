"""The JVM's class-data sharing (CDS) archive of Spark's classes, created once at set-up.

A Spark application that runs a few seconds spends most of them on loading and verifying about 20,000 classes. Java can
store these classes in a file and map it into memory at the start (dynamic class-data sharing). This more than halves
the time to the first result. The archive needs the same class path at every start. So the Delta jars are on the
driver's class path, not only among the jars that Spark adds later. The JVM ignores an archive of another Java version
or of other jars.

`python -m spillway.engine.class_archive FOLDER` creates the archive in the folder of the jars.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = "classes.jsa"
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
"""JVM options that suppress messages about the archive: the user of a job does not need them."""


def archive_options(folder: str, jars: list[str]) -> dict[str, str]:
    """Return the Spark settings that use the archive in `folder`; empty if there is no archive.

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
    """Run a small Spark application and store the classes that it loaded as the archive in `folder`."""
    from spillway.engine.spark import spark_session
    from spillway.engine.spark_conf import DELTA_JARS, SHORT_LIVED_JVM

    target = folder / ARCHIVE
    target.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        unfinished = Path(scratch, ARCHIVE)
        conf = _options([f"{folder}/{jar}" for jar in DELTA_JARS], f"-XX:ArchiveClassesAtExit={unfinished}")
        conf["spark.driver.extraJavaOptions"] += f" {SHORT_LIVED_JVM}"
        spark = spark_session("class archive", "local[2]", **conf)
        jvm = spark.sparkContext._gateway.proc
        _touch_everything(spark)
        spark.stop()
        # the JVM writes the archive when it exits, and it exits when its gateway and its standard input are closed
        spark.sparkContext._gateway.shutdown()
        jvm.stdin.close()
        jvm.wait(timeout=300)
        os.replace(unfinished, target)


def _touch_everything(spark: SparkSession) -> None:
    """Load the classes that every application needs: run tasks and collect their results."""
    from spillway.engine.spark import SparkEngine

    engine = SparkEngine(lambda: spark)
    for _ in range(2):
        engine.map(str, range(4 * engine.cores))


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]).resolve())
