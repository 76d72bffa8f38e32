"""Send alerts about runs in Airflow, write the metrics, and announce the tables that a run wrote.

Airflow calls `alert_on_failure` when a task fails. The task `Tell` comes last, as a teardown. It also runs if
the run failed, and it does not change the result of the run. It also reports tasks that were killed (out of
memory, or by hand), for which Airflow called no callback. Neither fails if alerts cannot be sent; the log says
so.

The address of a hook is the environment variable `SPILLWAY_HOOK_NAME`, or the password of the Airflow
connection NAME. Airflow stores passwords encrypted and masks them in logs.

`Tell` also has links to the report and to the Data Docs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow.sdk import Asset, AssetAlias, BaseOperator, BaseOperatorLink, Connection, TaskInstanceState
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from spillway.scheduling import TABLES_ALIAS, assets_written_since, failed_task_messages, report_run
from spillway.settings import Settings

PAGES, REPORT, DATA_DOCS = "/spillway", "report.html", "data_docs/index.html"


class ReportLink(BaseOperatorLink):
    """A link to the report."""

    name = "Report"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _address(REPORT)


class DataDocsLink(BaseOperatorLink):
    """A link to the Data Docs: every expectation and its outcome."""

    name = "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return _address(DATA_DOCS)


def _address(page: str) -> str:
    return f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{PAGES}/{page}"


_TOLD = "told"
"""XCom key of a task that has reported its own failure."""


class Tell(BaseOperator):
    """Send alerts about what the tables record, write the metrics, and announce the tables written since the run began.

    For each such table it adds an event to the asset `spillway/<table>/<stream>`. The `extra` of the event has the rows
    and bytes that were written, and the losses (see `spillway.scheduling.assets_written_since`).
    """

    operator_extra_links = (ReportLink(), DataDocsLink())

    def __init__(self, **arguments: Any) -> None:
        super().__init__(outlets=[AssetAlias(TABLES_ALIAS)], **arguments)

    def execute(self, context: Any) -> list[str]:
        settings = Settings.from_environment()
        report_run(settings, address_of_hook, list(_killed(context)), context["run_id"])
        written = assets_written_since(settings, context["dag_run"].start_date)
        for name, extra in written.items():
            context["outlet_events"][AssetAlias(TABLES_ALIAS)].add(Asset(name), extra=extra)
        return list(written)


def _killed(context: Any) -> Iterator[str]:
    """Yield a sentence for every failed task of the run that did not report its failure."""
    task, run = context["ti"], context["run_id"]
    for name, state in sorted(task.get_task_states(task.dag_id, run_ids=[run]).get(run, {}).items()):
        if state == TaskInstanceState.FAILED and not task.xcom_pull(task_ids=name, key=_TOLD):
            yield from failed_task_messages(f"{task.dag_id}.{name}", "")


def alert_on_failure(context: Any) -> None:
    """Send every hook the error messages of a failed task, or a message that it ended without one."""
    task, problem = context["ti"], context.get("exception")
    # the message of any other exception may contain data that must not leave the system
    said = str(problem) if isinstance(problem, AirflowException) else ""
    place = f"{task.dag_id}.{task.task_id}" + (f"[{task.map_index}]" if (task.map_index or 0) > 0 else "")
    report_run(Settings.from_environment(), address_of_hook, failed_task_messages(place, said), task.run_id)
    task.xcom_push(key=_TOLD, value=True)


def address_of_hook(hook: str) -> str | None:
    """Return the address of a hook; None if there is none."""
    from spillway.report.alerts import address_in_environment

    found = address_in_environment(hook)
    if found:
        return found
    try:
        return Connection.get(hook).password or None
    except Exception:  # no such connection, or Airflow does not respond: no address in both cases
        return None
