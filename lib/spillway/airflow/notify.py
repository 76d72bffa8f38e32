"""Who hears of a run in Airflow: hooks that contracts name, Prometheus, and people's own DAGs.

A task that fails is told by `tell_of_failure`, which Airflow calls in it. `Tell` comes last, as a teardown: it runs
however the run went, and its own end says nothing about the run; it tells also of tasks that were killed (by a kernel
short of memory, by hand), in which nothing was called any more. Neither raises because of whom it cannot tell: that is
in the log.

The address of a hook is the environment variable `SPILLWAY_HOOK_NAME`, or the password of the Airflow connection NAME:
Airflow keeps passwords encrypted and masks them in logs.

Links from a task of a run to what was last written about the lake: the report and the Data Docs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, Connection, TaskInstanceState
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from spillway.scheduling import TABLES_ALIAS, failed_task, tell_of_run, written_since
from spillway.settings import Settings

PAGES, REPORT, DATA_DOCS = "/spillway", "report.html", "data_docs/index.html"


class ReportLink(BaseOperatorLink):
    """To the report."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _address(REPORT)


class DataDocsLink(BaseOperatorLink):
    """To every expectation and its outcome."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _address(DATA_DOCS)


def _address(page: str) -> str:
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{PAGES}/{page}"


_TOLD = "told"
"""What a task leaves that has told of its own failure."""


class Tell(BaseOperator):
    """Tells what the tables say went wrong, how they stand, and which were written since the run began.

    For the latter it adds an event to the asset `spillway/<table>/<stream>` of each.
    """

    operator_extra_links = (ReportLink(), DataDocsLink())

    def __init__(self, **arguments: Any) -> None:
        super().__init__(outlets=[AssetAlias(TABLES_ALIAS)], **arguments)

    def execute(self, context: Any) -> list[str]:
        settings = Settings.from_environment()
        tell_of_run(settings, address_of_hook, list(_killed(context)), context["run_id"])
        written = written_since(settings, context["dag_run"].start_date)
        for name in written:
            context["outlet_events"][AssetAlias(TABLES_ALIAS)].add(Asset(name))
        return written


def _killed(context: Any) -> Iterator[str]:
    """A sentence for every task of the run that failed and could not tell."""
    task, run = context["ti"], context["run_id"]
    for name, state in sorted(task.get_task_states(task.dag_id, run_ids=[run]).get(run, {}).items()):
        if state == TaskInstanceState.FAILED and not task.xcom_pull(task_ids=name, key=_TOLD):
            yield from failed_task(f"{task.dag_id}.{name}", "")


def tell_of_failure(context: Any) -> None:
    """Tell every hook the sentences that a task failed with, or that it ended without one."""
    task, problem = context["ti"], context.get("exception")
    # any other exception may hold what nobody meant to be sent out of the house
    said = str(problem) if isinstance(problem, AirflowException) else ""
    place = f"{task.dag_id}.{task.task_id}" + (f"[{task.map_index}]" if (task.map_index or 0) > 0 else "")
    tell_of_run(Settings.from_environment(), address_of_hook, failed_task(place, said), task.run_id)
    task.xcom_push(key=_TOLD, value=True)


def address_of_hook(hook: str) -> str | None:
    """The address of a hook; None where there is none."""
    from spillway.report.alerts import address_in_environment

    found = address_in_environment(hook)
    if found:
        return found
    try:
        return Connection.get(hook).password or None
    except Exception:  # not there, or Airflow does not answer: either way there is no address
        return None
