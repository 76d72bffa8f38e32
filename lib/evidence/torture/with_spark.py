"""Kill runs with Spark together with their process group: driver, JVM and workers.

`python -m evidence.torture.with_spark FOLDER` is one such run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from evidence.torture.steps import bring_all
from evidence.torture.world import TortureWorld
from spillway.engine.spark import SparkEngine, spark_session

BEGUN = "begun"


def kill_group(fresh: TortureWorld, folder: Path, chance: random.Random, seconds: float) -> tuple[str, bool]:
    """Start a run in `folder` and kill it at a random moment; return how, and whether it died."""
    world, at = fresh.copy(folder), chance.uniform(0.0, seconds)
    with _started(world.folder) as process:
        assert process.stdout is not None
        begun = process.stdout.readline().strip() == BEGUN
        try:
            process.wait(timeout=at)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
    return f"{at:.1f} s after Spark was there", begun and code == -signal.SIGKILL


def spark_seconds(fresh: TortureWorld, folder: Path) -> float:
    """Return the seconds of an undisturbed run after Spark has started."""
    world = fresh.copy(folder)
    with _started(world.folder) as process:
        assert process.stdout is not None
        process.stdout.readline()
        begun = time.monotonic()
        code = process.wait()
        seconds = time.monotonic() - begun
    shutil.rmtree(folder)
    if code:
        raise RuntimeError(f"an undisturbed run with Spark must end well, got {code}")
    return seconds


def _started(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evidence.torture.with_spark", str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
    )


def run_with_spark(folder: Path) -> None:
    """Start Spark first, so that the run is killed and not the start."""
    spark = spark_session("torture", "local[2]", **{"spark.driver.memory": "512m"})
    print(BEGUN, flush=True)
    engine = SparkEngine(lambda: spark)
    try:
        bring_all(TortureWorld(folder), engine)
    finally:
        engine.stop()


if __name__ == "__main__":
    run_with_spark(Path(sys.argv[1]))
