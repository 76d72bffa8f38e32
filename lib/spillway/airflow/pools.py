"""Create the pools of a run when the run begins: Airflow never starts a task whose pool does not exist.

So a new channel gets its pool in time, and a pool that was removed by hand is created again. Airflow calls a
plugin's listeners with the session that it is about to commit. The pools are committed with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from airflow.listeners import hookimpl

from spillway.scheduling import pool_arguments

_TOLD = "Made by Spillway: of what shares it one step at a time; it is made anew when a run begins"


@hookimpl
def on_dag_run_running(dag_run: Any, msg: str) -> None:
    """Create those of Spillway's pools that the run's tasks name and that do not exist."""
    from sqlalchemy.orm import object_session

    ours = pool_arguments(None)["pool"]
    session, dag = object_session(dag_run), dag_run.dag
    if session is not None and dag is not None:
        make_pools(
            session, [one.pool for one in dag.tasks if one.pool == ours or one.pool.startswith(f"{ours}_")]
        )


def make_pools(session: Any, names: Iterable[str]) -> None:
    """Create pools of one slot with these names if they do not exist."""
    from airflow.models.pool import Pool

    told = {"slots": 1, "description": _TOLD, "include_deferred": True}
    rows = [{"pool": name, **told} for name in sorted(set(names) - {"default_pool"})]
    if rows:
        session.execute(_insert_missing(Pool, session.get_bind().dialect.name), rows)


def _insert_missing(table: Any, dialect: str) -> Any:
    """Return an insert statement that ignores existing rows: other runs and other schedulers begin concurrently.

    The statement is executed at once. Airflow flushes the session only when it commits, and by then two runs
    that begin together would both find no pool. A savepoint is not possible either: Airflow refuses any commit
    within its own.
    """
    insertion = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    return insertion.prefix_with("IGNORE") if dialect == "mysql" else insertion.on_conflict_do_nothing()
