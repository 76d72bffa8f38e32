"""Shows the report and the Data Docs in Airflow's UI, with an entry of each in its menu, and makes the pools of runs.

See `spillway.airflow.pages` and `spillway.airflow.pools`.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spillway.airflow import pools
from spillway.airflow.pages import PAGES, menu_entries, pages


class SpillwayPages(AirflowPlugin):
    name = "spillway_pages"
    fastapi_apps = [{"name": "Spillway's pages", "app": pages(), "url_prefix": PAGES}]  # noqa: RUF012
    external_views = menu_entries()
    listeners = [pools]  # noqa: RUF012
