"""The building blocks of the DAGs: defaults of tasks, the step that Spark runs, and the alerts at the end of a run."""

from __future__ import annotations

from spillway.airflow.notify import Tell
from spillway.airflow.tasks import (
    TASK_DEFAULTS,
    SubmitJob,
    after_shedding,
    contracts_are_usable,
    each_room,
    follow,
    in_sentences,
    names_asked,
    shed_and_sketch,
)

__all__ = [
    "TASK_DEFAULTS",
    "SubmitJob",
    "Tell",
    "after_shedding",
    "contracts_are_usable",
    "each_room",
    "follow",
    "in_sentences",
    "names_asked",
    "shed_and_sketch",
]
