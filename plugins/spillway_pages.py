"""Shows the report and the Data Docs in Airflow's UI, to whoever is logged in: see `spillway.operators.pages`."""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from spillway.operators.pages import PAGES, pages


class SpillwayPages(AirflowPlugin):
    name = "spillway_pages"
    fastapi_apps = [{"name": "Spillway's pages", "app": pages(), "url_prefix": PAGES}]  # noqa: RUF012
