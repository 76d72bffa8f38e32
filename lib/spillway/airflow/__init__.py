"""The building blocks of the DAGs: defaults of tasks, the step that Spark runs, and the alerts at the end of a run."""

from __future__ import annotations

from spillway.airflow.notify import Tell
from spillway.airflow.tasks import (
    TASK_DEFAULTS,
    SubmitJob,
    after_shedding,
    contracts_are_usable,
    jobs_per_channel,
    name_field,
    names_field,
    report_errors,
    shed_and_sketch,
    tasks_with_work,
)

__all__ = [
    "TASK_DEFAULTS",
    "SubmitJob",
    "Tell",
    "after_shedding",
    "contracts_are_usable",
    "jobs_per_channel",
    "name_field",
    "names_field",
    "report_errors",
    "shed_and_sketch",
    "tasks_with_work",
]
