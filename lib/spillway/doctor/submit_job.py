"""The job that `spillway doctor --deep` submits; it reports the number of rows that it wrote and read."""

from __future__ import annotations

from spillway.doctor.checks import write_and_read
from spillway.engine.spark import spark_engine
from spillway.job import run_job, say
from spillway.settings import Settings


def main() -> None:
    with spark_engine("spillway doctor") as engine:
        say(f"{write_and_read(engine, Settings.from_environment())} rows")


if __name__ == "__main__":
    run_job(main)
