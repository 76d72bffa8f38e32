"""Engines: run a function on slices of the data, in Spark tasks or in this process.

Each operation on a stream's rows is a function of one slice (some files or some frames). It reads columns, and returns
or writes columns. An engine runs this function on many slices. The result does not depend on the engine or on the
number of tasks.

This package does not import `engine.spark`. Import that module directly, so that other code does not load Spark.
"""

from spillway.engine.local import ProcessEngine
from spillway.engine.protocol import Engine

__all__ = ["Engine", "ProcessEngine"]
