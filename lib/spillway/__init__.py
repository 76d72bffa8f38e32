"""Spillway keeps data streams within the capacity of their channels, and checks every night what it recovers.

This is the public API. Names that are not listed here may change without notice.

    from spillway import Settings, Tables, load_contracts          # roots, tables, contracts
    from spillway import StreamQuery, look_up                          # recover a few shed values, without an engine
    from spillway import read, register                             # read a stream with recovered values: Arrow, Spark
    from spillway import ProcessEngine, spark_engine                    # engines: this process, or Spark's tasks
    from spillway import run_channel, train_streams, recover_batches, validate, run_workloads     # the steps
    from spillway import sketch_channel                             # the step that makes sketches
    from spillway import register_functions                         # functions of Spark SQL that query sketches
    from spillway import register_tables                            # curated tables in the catalog of a Spark session
    from spillway import Lever, extra_levers                          # base class of levers; register one temporarily
    from spillway import SpillwayError                              # the base of every error raised on purpose

Each name is loaded on first use, so that importing the package is fast.

>>> import spillway
>>> sorted(set(spillway.__all__) - set(dir(spillway)))
[]
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from spillway.kernel_cache import use_keyed_folder

use_keyed_folder()  # before any kernel is imported

_HOMES = {
    "ProcessEngine": "spillway.engine.local",
    "Lever": "spillway.levers.protocol",
    "StreamQuery": "spillway.streams.query",
    "Settings": "spillway.settings",
    "SpillwayError": "spillway.errors",
    "Tables": "spillway.store.tables",
    "run_channel": "spillway.pipeline.run",
    "load_contracts": "spillway.contracts",
    "look_up": "spillway.streams.recover",
    "read": "spillway.streams.reader",
    "recover_batches": "spillway.streams.recover",
    "register": "spillway.streams.reader",
    "register_functions": "spillway.engine.sql_functions",
    "register_tables": "spillway.store.catalog",
    "extra_levers": "spillway.registry",
    "run_workloads": "spillway.workloads.run",
    "sketch_channel": "spillway.pipeline.run",
    "spark_engine": "spillway.engine.spark",
    "train_streams": "spillway.streams.train",
    "validate": "spillway.pipeline.validate",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}"
        )
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
