"""Runs DAGs through dag.test(), one for each line of its input, until the input ends. Not a test.

A line in: {"dag_id", "conf", "env"}. Lines out: Airflow's log, then `RESULT` and the states as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def run(dag_id: str, conf: dict[str, Any], env: dict[str, str]) -> dict[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    from demo.pipeline import without_retries

    before = dict(os.environ)
    os.environ.update(env)
    try:
        # parsed anew for each run: what it is told at parsing differs, and dag.test() keeps a form's values
        dag = DagBag(dag_folder=os.environ["AIRFLOW__CORE__DAGS_FOLDER"]).dags[dag_id]
        without_retries(dag)
        done = dag.test(run_conf=conf)
    finally:
        os.environ.clear()
        os.environ.update(before)
    tasks = sorted(
        (t.task_id, t.map_index, str(t.state), t.rendered_map_index) for t in done.get_task_instances()
    )
    return {"state": str(done.state), "tasks": tasks, "events": events_of(dag_id, done.run_id)}


def events_of(dag_id: str, run_id: str) -> dict[str, Any]:
    """The assets that a run said were written, with their extras, but for those that a task always names."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from spillway.scheduling import SHED_ASSET

    with create_session() as session:
        mine = select(AssetEvent).where(
            AssetEvent.source_dag_id == dag_id, AssetEvent.source_run_id == run_id
        )
        found = {event.asset.name: event.extra for event in session.scalars(mine)}
        return {name: found[name] for name in sorted(found) if name != SHED_ASSET}


if __name__ == "__main__":
    for line in sys.stdin:
        print("RESULT " + json.dumps(run(**json.loads(line))), flush=True)
