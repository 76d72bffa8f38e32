"""The report and the Data Docs as pages of Airflow's own server, which links of a run can lead to.

Browsers refuse to follow a link from a page of a server to a file of the machine, so Airflow's server shows these two,
and no other file, from the build folder of its machine: to whoever is logged in, and as pages without an origin, so
that nothing that stands in them can act in Airflow for its reader.
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
    """What Airflow's server mounts."""
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
