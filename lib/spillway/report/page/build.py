"""Build the report: an index, `build/report.html`, and a page for each channel in `build/report`.

The pages are self-contained: they fetch nothing and run no script. `templates` has their markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from spillway.clock import utc_now
from spillway.contracts import load_usable
from spillway.report.page.facts import DETAILED, ChannelFacts, LakeFacts, gather
from spillway.report.page.sections import (
    channel_finding,
    channel_folds,
    channel_sections,
    headline,
    index_lines,
    outcome_cards,
)
from spillway.report.page.svg import templates
from spillway.report.plan import FOLDER as LOSSLESS
from spillway.report.text import format_bytes, format_count
from spillway.settings import refuse_uri
from spillway.store.tables import Tables

DATA_DOCS = "data_docs/index.html"
"""The index of the Data Docs, in the build folder."""
NAMED_WAITING = 12
_HEAD_LETTERS = 700
"""The letters at the start of a page that hold its `<meta>`."""
_LINK = re.compile(r'<tr><td><a href="([^"]+)"')
"""A link of the index to the page of a channel."""


def refresh_report(tables: Tables, out: str | Path) -> Path:
    """Build the report, unless the page that is there was made from the same tables and contracts; return its path."""
    path = Path(out)
    digest = _content_digest(tables, path)
    try:
        index = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        index = ""  # there is no page yet, or none of ours
    pages = [path.parent / unquote(link) for link in _LINK.findall(index)]
    if f'content="{digest}"' in index[:_HEAD_LETTERS] and all(page.is_file() for page in pages):
        return path
    return build_report(tables, path)


def _content_digest(tables: Tables, out: Path) -> str:
    """Return a digest of what the pages show: the files of all shared tables, the contracts, and stored comparisons.

    Every step writes to a shared table, and a file of a table never changes.
    """
    settings = tables.settings
    try:
        found = sha256(version("spillway").encode())
    except PackageNotFoundError:  # run from a checkout
        found = sha256()
    for name, contract in sorted(tables.contracts.items()):
        if contract.scope == "shared" and name != "alerts":
            found.update("\n".join([name, *tables.at(name).paths, ""]).encode())
    for folder in (Path(settings.schemas), Path(settings.build, LOSSLESS)):
        for path in sorted(one for one in folder.rglob("*") if one.is_file()):
            found.update(f"{path}\n".encode())
            found.update(path.read_bytes())
    found.update(_data_docs(tables, out.parent).encode())
    return found.hexdigest()


def _data_docs(tables: Tables, folder: Path) -> str:
    """Return the address of the Data Docs for pages in `folder`; "" if there are none."""
    index = Path(tables.settings.build, DATA_DOCS)
    return Path(os.path.relpath(index, folder)).as_posix() if index.is_file() else ""


def build_report(tables: Tables, out: str | Path | None = None) -> Path:
    """Write the report to `out` (default: `report.html` in the build folder); return its path.

    The pages of the channels are in a folder next to it, of the same name without the suffix. It starts no Spark and
    fetches nothing from a network.
    """
    if out is not None:
        refuse_uri("output", str(out))
    path = Path(out) if out is not None else Path(tables.settings.build, "report.html")
    # computed first: if a contract changes meanwhile, the next run builds the pages again
    digest = _content_digest(tables, path)
    lake = gather(tables, load_usable(tables.settings.schemas))
    folder = path.with_suffix("")
    now = utc_now()
    pages = {
        f"{one.channel}.html": channel_page(one, path.name, _data_docs(tables, folder), now)
        for one in lake.channels
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    for old in folder.glob("*.html"):  # channels that no contract names any more
        if old.name not in pages:
            old.unlink()
    path.write_text(
        index_page(lake, folder.name, _data_docs(tables, path.parent), now, digest), encoding="utf-8"
    )
    return path


def _render(template: str, now: datetime, **values: Any) -> str:
    style = files("spillway.report.page").joinpath("style.css").read_text(encoding="utf-8")
    return (
        templates()
        .get_template(template)
        .render(style=style, now=f"{now:%Y-%m-%d %H:%M}", **{"digest": "", **values})
    )


def index_page(lake: LakeFacts, folder: str, data_docs: str, now: datetime, digest: str = "") -> str:
    """Return the index. `folder`: where the pages of the channels are; `digest`: what the pages were made from."""
    failed = sum(not row["success"] for row in lake.outcomes)
    last = max((row["validated_at"] for row in lake.outcomes), default=None)
    validation = (
        "Nothing has been validated yet"
        if last is None
        else f"Last validation, {last:%Y-%m-%d %H:%M} UTC: {len(lake.outcomes):,} expectations, {failed:,} failed"
    )
    return _render(
        "index.html",
        now,
        digest=digest,
        data_docs=data_docs,
        folder=folder,
        finding=headline(lake.channels, len(lake.broken), failed),
        lead=_lead(lake.channels),
        lines=list(index_lines(lake)),
        broken=lake.broken,
        waiting=_some([sentence for one in lake.channels for sentence in one.waiting]),
        validation=validation,
        failed=failed,
        outcomes=outcome_cards(lake.outcomes) if lake.outcomes else (),
    )


def channel_page(channel: ChannelFacts, index: str, data_docs: str, now: datetime) -> str:
    """Return the page of a channel. `index`: the name of the index in the folder above."""
    left = len(channel.streams) - len(channel.details)
    others = (
        f"{format_count(left, 'more stream')}, which lose less: spillway status, spillway explain STREAM."
    )
    return _render(
        "channel.html",
        now,
        data_docs=data_docs,
        index=f"../{index}",
        channel=channel,
        finding=channel_finding(channel),
        lead=f"{channel.description} {_lead([channel])}".strip(),
        sections=channel_sections(channel),
        waiting=_some(channel.waiting),
        folds=channel_folds(channel),
        others=others if left and len(channel.streams) > DETAILED else "",
    )


def _lead(channels: Sequence[ChannelFacts]) -> str:
    """Return the rows and bytes of the streams in a sentence."""
    seen = [one for channel in channels for one in channel.streams]
    if not seen:
        return "Run spillway run."
    streams, rows = format_count(len(seen), "stream"), sum(one.figures.tuples for one in seen)
    exact, sent = (sum(getattr(one, name) for one in seen) for name in ("exact_bytes", "sent_bytes"))
    rejected = sum(one.figures.rejected for one in seen)
    more = f", {rejected:,} rejected" if rejected else ""
    return (
        f"{streams}, {format_count(rows, 'row')} taken in{more}: {format_bytes(sent)} sent instead of "
        f"{format_bytes(exact)}."
    )


def _some(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and how many there are more."""
    shown = list(sentences[:NAMED_WAITING])
    left = len(sentences) - len(shown)
    return [*shown, f"{left:,} more: spillway status."] if left else shown
