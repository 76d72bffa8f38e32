"""Links from a task of a run to what was last written about the lake: the report and the Data Docs."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

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
