"""Who hears of a run in Airflow: hooks that contracts name, Prometheus, and people's own DAGs.

`Tell` comes last, as a teardown: it runs however the run went, and its own end says nothing about the run. A
task that fails, or is killed before it could say why, is told by `tell_of_failure`, which Airflow calls for it. Neither
raises because of whom it cannot tell: that is in the log.

The address of a hook is the environment variable `SPILLWAY_HOOK_NAME`, or the password of the Airflow connection NAME:
Airflow keeps passwords encrypted and masks them in logs.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, Connection
from airflow.sdk.exceptions import AirflowException

from spillway.operators.links import DataDocsLink, ReportLink
from spillway.scheduling import TABLES_ALIAS, failed_task, tell_of_run, written_since
from spillway.settings import Settings


class Tell(BaseOperator):
    """Tells what the tables say went wrong, how they stand, and which were written since the run began.

    For the latter it adds an event to the asset `spillway/<table>/<stream>` of each.
    """

    operator_extra_links = (ReportLink(), DataDocsLink())

    def __init__(self, **arguments: Any) -> None:
        super().__init__(outlets=[AssetAlias(TABLES_ALIAS)], **arguments)

    def execute(self, context: Any) -> list[str]:
        settings = Settings.from_environment()
        tell_of_run(settings, address_of_hook)
        written = written_since(settings, context["dag_run"].start_date)
        for name in written:
            context["outlet_events"][AssetAlias(TABLES_ALIAS)].add(Asset(name))
        return written


def tell_of_failure(context: Any) -> None:
    """Tell every hook the sentences that a task failed with, or that it ended without one."""
    task, problem = context["ti"], context.get("exception")
    # any other exception may hold what nobody meant to be sent out of the house
    said = str(problem) if isinstance(problem, AirflowException) else ""
    place = f"{task.dag_id}.{task.task_id}" + (f"[{task.map_index}]" if (task.map_index or 0) > 0 else "")
    tell_of_run(Settings.from_environment(), address_of_hook, failed_task(place, said), task.run_id)


def address_of_hook(hook: str) -> str | None:
    """The address of a hook; None where there is none."""
    from spillway.show.alerts import address_in_environment

    found = address_in_environment(hook)
    if found:
        return found
    try:
        return Connection.get(hook).password or None
    except Exception:  # not there, or Airflow does not answer: either way there is no address
        return None
