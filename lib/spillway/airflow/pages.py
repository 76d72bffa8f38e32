"""Serve the report and the Data Docs as pages of Airflow's own server, with an entry of each in the menu of its UI.

Browsers refuse a link from a page of a server to a local file. So Airflow's server shows these pages, and no
other file, from the build folder of its machine. Only users who are logged in can read them. The pages have no
origin (CSP sandbox), so that scripts in them cannot act in Airflow with the user's rights. The entries open a tab of
their own: inside a frame of the UI, a page without origin would not get the user's cookie.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, urlsplit

from airflow.api_fastapi.core_api.security import get_user
from airflow.sdk.configuration import conf
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import FileResponse

from spillway.airflow.notify import DATA_DOCS, PAGES, REPORT
from spillway.settings import Settings

__all__ = ["PAGES", "menu_entries", "pages"]
HEADERS = {"Content-Security-Policy": "sandbox allow-scripts allow-popups", "Cache-Control": "no-store"}


def pages() -> FastAPI:
    """Return the app that Airflow's server mounts."""
    app = FastAPI(openapi_url=None, dependencies=[Depends(get_user)])
    app.add_api_route("/{path:path}", _page, methods=["GET"], response_class=FileResponse)
    return app


_ENTRIES = {
    "Spillway report": (REPORT, "M4 20V10h4v10zm6 0V4h4v16zm6 0v-7h4v7z"),
    "Data Docs": (DATA_DOCS, "M9 17l-5-5 2-2 3 3 9-9 2 2z"),
}
"""The page and the shape of the icon (a path in a box of 24) of each entry in the menu."""


def menu_entries() -> list[dict[str, object]]:
    """Return the entries of the menu *Plugins*, as `external_views`. They also work if the UI is below a path.

    At the top level of the menu, Airflow 3.3 draws an external view as a button that opens nothing.
    """
    below = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return [
        {
            "name": name,
            "href": f"{below}{PAGES}/{page}",
            "destination": "nav",
            "icon": _icon(shape, "#3f3f46"),
            "icon_dark_mode": _icon(shape, "#d4d4d8"),
        }
        for name, (page, shape) in _ENTRIES.items()
    ]


def _icon(shape: str, colour: str) -> str:
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 26 26"><path fill="{colour}" d="{shape}"/></svg>'
    return f"data:image/svg+xml,{quote(drawn)}"


def _page(path: str) -> FileResponse:
    build = Path(Settings.from_environment().build).resolve()
    found = (build / path).resolve()
    report = build / REPORT
    folders = (report.with_suffix(""), (build / DATA_DOCS).parent)
    is_shown = found == report or any(found.is_relative_to(folder) for folder in folders)
    if not is_shown or not found.is_file():
        raise HTTPException(
            404, f"{PAGES}/{REPORT} and {PAGES}/{DATA_DOCS} are there once a run has validated"
        )
    return FileResponse(found, headers=HEADERS)
