"""Runs one DAG through dag.test() and prints its state and its tasks' as the last line. Not a test."""

from __future__ import annotations

import json
import os
import sys


def main(dag_id: str, conf: str) -> None:
    from airflow.dag_processing.dagbag import DagBag

    from spillway.demo.pipeline import without_retries

    bag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
    dag = bag.dags[dag_id]
    without_retries(dag)
    run = dag.test(run_conf=json.loads(conf))
    tasks = sorted(
        (t.task_id, t.map_index, str(t.state), t.rendered_map_index) for t in run.get_task_instances()
    )
    print(json.dumps({"state": str(run.state), "tasks": tasks}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
