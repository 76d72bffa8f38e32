"""How Airflow hands a job to Spark: as its own operator does, but a failed task says the sentence and the remedy.

`SparkSubmitOperator` fails with a command and an exit code, and what Spark printed last. A job that fails has said why;
it is given the name of a file to leave those sentences in, and they are what the task fails with. What fails before a
job begins (no Java, no master) is told by the last line that names an error.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException

from spillway.job import FAILURE_FILE
from spillway.scheduling import submit_failed
from spillway.settings import HOOK_PREFIX


class SubmitJob(SparkSubmitOperator):
    """Submits a job of ours; what `spillway.scheduling.spark_step` says, and its arguments."""

    def execute(self, context: Any) -> Any:
        with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
            note = Path(folder, "failed")
            os.environ[FAILURE_FILE] = str(note)
            # spark-submit inherits this process's environment; Airflow calls the hooks, so that a job needs no address
            hooks = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(HOOK_PREFIX)}
            try:
                return super().execute(context)
            except AirflowException as problem:
                told = (
                    note.read_text(encoding="utf-8").strip()
                    if note.is_file()
                    else submit_failed(str(problem))
                )
            finally:
                del os.environ[FAILURE_FILE]
                os.environ.update(hooks)
        # here and not above, so that Spark's own words do not stand before ours
        raise AirflowException(told)
