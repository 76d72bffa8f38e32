"""The pools of a run, made by the scheduler when the run begins: a task whose pool is not there would wait for ever.

So a channel that is new has its pool in time, and one that was removed by hand is there again. Airflow calls a plugin's
listeners with what it is about to commit; the pools are committed with it.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl

from spillway.scheduling import pool_of

_TOLD = "Made by Spillway: of what shares it one step at a time; it is made anew when a run begins"


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Make the pools of ours that the run's tasks name and that are not there."""
    from airflow.models.pool import Pool
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    ours = pool_of(None)["pool"]
    session, dag = object_session(dag_run), dag_run.dag
    if session is None or dag is None:
        return
    named = {one.pool for one in dag.tasks if one.pool == ours or one.pool.startswith(f"{ours}_")}
    named.discard("default_pool")
    there = set(session.scalars(select(Pool.pool).where(Pool.pool.in_(named))))
    session.add_all(
        Pool(pool=name, slots=1, description=_TOLD, include_deferred=True) for name in sorted(named - there)
    )
