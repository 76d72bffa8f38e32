"""The pools of a run, made by the scheduler when the run begins: a task whose pool is not there would wait for ever.

So a channel that is new has its pool in time, and one that was removed by hand is there again. Airflow calls a plugin's
listeners with what it is about to commit; the pools are committed with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from airflow.listeners import hookimpl

from spillway.scheduling import pool_of

_TOLD = "Made by Spillway: of what shares it one step at a time; it is made anew when a run begins"


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Make the pools of ours that the run's tasks name and that are not there."""
    from sqlalchemy.orm import object_session

    ours = pool_of(None)["pool"]
    session, dag = object_session(dag_run), dag_run.dag
    if session is not None and dag is not None:
        make_pools(
            session, [one.pool for one in dag.tasks if one.pool == ours or one.pool.startswith(f"{ours}_")]
        )


def make_pools(session: Any, names: Iterable[str]) -> None:
    """Pools of one slot of these names, where there are none yet."""
    from airflow.models.pool import Pool

    told = {"slots": 1, "description": _TOLD, "include_deferred": True}
    rows = [{"pool": name, **told} for name in sorted(set(names) - {"default_pool"})]
    if rows:
        session.execute(_insert_missing(Pool, session.get_bind().dialect.name), rows)


def _insert_missing(table: Any, dialect: str) -> Any:
    """An insertion that leaves out what is there: other runs, and other schedulers, begin at the same moment.

    At once and not with the flush, which Airflow leaves until it commits: two runs that begin together would both find
    no pool. A savepoint is no way either, for Airflow refuses any commit within its own.
    """
    insertion = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    return insertion.prefix_with("IGNORE") if dialect == "mysql" else insertion.on_conflict_do_nothing()
