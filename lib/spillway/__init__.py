"""Spillway keeps data streams inside the capacity people have, and proves every night what it gave back.

What you may import, on one page; whatever is not named here may change without a word.

    from spillway import Settings, Tables, load_contracts          # where things are, the tables, the contracts
    from spillway import Question, look_up                          # a few shed values given back, no engine started
    from spillway import read, register                             # a stream with shed values given back: Arrow, Spark
    from spillway import InProcess, spark_engine                    # where work runs: here, or in Spark's tasks
    from spillway import bring_through, train_streams, recover_batches, validate, run_workloads     # the steps
    from spillway import sketch_channel                             # ... and that which makes sketches
    from spillway import register_functions                         # the sketches' questions in Spark SQL
    from spillway import Lever, registered                          # what a lever is; one of your own for a while
    from spillway import SpillwayError                              # the base of every error raised on purpose

Each is loaded when it is first asked for, so that importing the package costs nothing.

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
    "InProcess": "spillway.engine.local",
    "Lever": "spillway.levers.protocol",
    "Question": "spillway.streams.reading",
    "Settings": "spillway.settings",
    "SpillwayError": "spillway.errors",
    "Tables": "spillway.store.tables",
    "bring_through": "spillway.pipeline.run",
    "load_contracts": "spillway.contracts",
    "look_up": "spillway.streams.recover",
    "read": "spillway.streams.reader",
    "recover_batches": "spillway.streams.recover",
    "register": "spillway.streams.reader",
    "register_functions": "spillway.engine.sql_functions",
    "registered": "spillway.registry",
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
