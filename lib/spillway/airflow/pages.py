"""Serve the report and the Data Docs as pages of Airflow's own server, so that a run's links can lead to them.

Browsers refuse a link from a page of a server to a local file. So Airflow's server shows these two, and no
other file, from the build folder of its machine. Only users who are logged in can read them. The pages have no
origin (CSP sandbox), so that scripts in them cannot act in Airflow with the user's rights.
"""

from __future__ import annotations

from pathlib import Path

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse

from spillway.airflow.notify import DATA_DOCS, PAGES, REPORT
from spillway.settings import Settings

__all__ = ["PAGES", "pages"]
HEADERS = {"Content-Security-Policy": "sandbox allow-scripts allow-popups", "Cache-Control": "no-store"}


def pages() -> FastAPI:
    """Return the app that Airflow's server mounts."""
    app = FastAPI(openapi_url=None, dependencies=[Depends(get_user)])
    app.add_api_route("/{path:path}", _page, methods=["GET"], response_class=FileResponse)
    return app


def _page(path: str) -> FileResponse:
    build = Path(Settings.from_environment().build).resolve()
    found = (build / path).resolve()
    is_shown = found == build / REPORT or found.is_relative_to((build / DATA_DOCS).parent)
    if not is_shown or not found.is_file():
        raise HTTPException(
            404, f"{PAGES}/{REPORT} and {PAGES}/{DATA_DOCS} are there once a run has validated"
        )
    return FileResponse(found, headers=HEADERS)
