"""The JVM's class-data archive: Spark's classes as memory, made once at set-up.

A Spark application of a few seconds spends most of them on loading and checking some 20,000 classes. Java can keep
them in a file that is mapped at the start (dynamic class-data sharing), which more than halves the time to the first
result. It needs the same class path each time, so the Delta jars stand on the driver's class path, not only among
the jars that Spark adds later. An archive of another Java or of other jars is ignored by the JVM, never wrong.

`python -m spillway.engine.class_archive FOLDER` makes the archive in the folder of the jars.
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
        # the archive is written when the JVM ends, which it does when nobody talks to it any more
        spark.sparkContext._gateway.shutdown()
        jvm.stdin.close()
        jvm.wait(timeout=300)
        os.replace(unfinished, target)


def _touch_everything(spark: SparkSession) -> None:
    """Do once what every application does: run pieces in tasks and gather what they made."""
    from spillway.engine.spark import SparkEngine

    engine = SparkEngine(lambda: spark)
    for _ in range(2):
        engine.map(str, range(4 * engine.cores))


if __name__ == "__main__":
    make_archive(Path(sys.argv[1]).resolve())
