"""Run DAGs one after the other in this process, by Airflow's `dag.test()`; no scheduler is needed.

Started by `run`, which reads the printed lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

STEP = "spillway-step"


def without_retries(dag: Any) -> None:
    """Remove the retries, so that the first failure is shown at once."""
    for task in dag.task_dict.values():
        arguments = getattr(task, "partial_kwargs", None)
        if arguments is not None:
            arguments["retries"] = 0
        else:
            task.retries = 0


def run_dags(dag_ids: Sequence[str]) -> int:
    """Run the DAGs in order until one fails; return the number of failed DAGs."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    for file, problem in bag.import_errors.items():
        print(f"spillway: {file} cannot be imported\n{problem}", flush=True)
    if bag.import_errors:
        return len(bag.import_errors)
    for dag_id in dag_ids:
        dag = bag.dags[dag_id]
        without_retries(dag)
        print(f"{STEP} start {dag_id}", flush=True)
        state = str(dag.test(run_conf={}).state)
        print(f"{STEP} end {dag_id} {state}", flush=True)
        if state != "success":
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(run_dags(sys.argv[1:]))
