"""Shows the report and the Data Docs in Airflow's UI, to whoever is logged in, and makes the pools that runs need.

See `spillway.airflow.pages` and `spillway.airflow.pools`.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spillway.airflow import pools
from spillway.airflow.pages import PAGES, pages


class SpillwayPages(AirflowPlugin):
    name = "spillway_pages"
    fastapi_apps = [{"name": "Spillway's pages", "app": pages(), "url_prefix": PAGES}]  # noqa: RUF012
    listeners = [pools]  # noqa: RUF012
