"""Data Docs that are read without a network: Great Expectations' pages, with nothing in them that is loaded or run.

As written they take styles, scripts and pictures from elsewhere, and the index is put together by a script: offline it
is blank. Here scripts, and links to what is elsewhere, are taken out, one short style is put in, and the index is a
plain table of suites, each with its outcome, and
the runs before it. A policy in every page keeps whatever the data says from being run.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import quote

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:\">"
)
_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:75em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;
vertical-align:top;word-break:break-word}.fa-check-circle::before{content:"held";color:#157347}
.fa-times::before,.fa-exclamation-triangle::before,.fa-exclamation-circle::before{content:"failed";color:#b02a37}
.modal,.cooltip>span,button,.navbar-brand{display:none}ul{padding-left:1.2em}
</style>"""
_LOADED = re.compile(
    r"<script\b.*?</script\s*>"
    r"|<link\b[^>]*>"
    r"|<img\b[^>]*\bsrc\s*=\s*[\"']?https?:[^>]*>"
    r"|@import[^;]*;|url\(\s*[\"']?https?:[^)]*\)",
    re.IGNORECASE | re.DOTALL,
)


EARLIER_DOCS = 7
"""Runs before the last one whose pages are kept."""
_EARLIER = "earlier"
_LIST = re.compile(r"<h2>Earlier runs</h2><ul>.*?</ul>")


def keep_earlier_docs(docs: Path) -> None:
    """Move the last run's pages to `earlier`, under the moment they were written; only the newest are kept."""
    index, earlier = docs / "index.html", docs / _EARLIER
    mine = [one for one in docs.iterdir() if one.name != _EARLIER] if docs.is_dir() else []
    if index.is_file():
        written = datetime.fromtimestamp(index.stat().st_mtime, UTC)
        place = earlier / f"{written:%Y-%m-%dT%H%M%S.%fZ}"
        place.mkdir(parents=True, exist_ok=True)
        index.write_text(_LIST.sub("", index.read_text(encoding="utf-8")), encoding="utf-8")
        for one in mine:
            if one.name != "static":  # fonts and pictures that no page asks for
                one.replace(place / one.name)
    for one in mine:
        shutil.rmtree(one, ignore_errors=True)
    for old in sorted(earlier.glob("*"), reverse=True)[EARLIER_DOCS:]:
        shutil.rmtree(old, ignore_errors=True)


def readable_offline(page: str) -> str:
    """The page without what is loaded or run.

    >>> readable_offline('<head><script src="https://a/b.js"></script></head><p>kept</p>').endswith("</head><p>kept</p>")
    True
    """
    return _LOADED.sub("", page).replace("</head>", f"{_POLICY}{_STYLE}</head>", 1)


def finish_docs(docs: Path, judged: Mapping[str, tuple[int, int]]) -> Path:
    """Make the pages readable offline, write the index; `judged`: of a suite, how many rules held, and of how many."""
    written = [docs / "index.html", *docs.glob("expectations/**/*.html"), *docs.glob("validations/**/*.html")]
    for page in (page for page in written if page.is_file()):
        page.write_text(readable_offline(page.read_text(encoding="utf-8")), encoding="utf-8")
    lines = [_line(docs, suite, *judged[suite]) for suite in sorted(judged)]
    index = docs / "index.html"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Expectations</title>'
        f"{_POLICY}{_STYLE}</head><body><h1>Expectations and their outcomes</h1>"
        "<table><tr><th>suite</th><th>outcome</th><th>rules</th></tr>"
        f"{''.join(lines)}</table>{_earlier_runs(docs)}</body></html>\n",
        encoding="utf-8",
    )
    return index


def _earlier_runs(docs: Path) -> str:
    """Links to the runs before, in the newest index alone."""
    names = sorted((one.name for one in (docs / _EARLIER).glob("*")), reverse=True)
    links = [f'<li><a href="{_EARLIER}/{quote(name)}/index.html">{escape(name)}</a></li>' for name in names]
    return f"<h2>Earlier runs</h2><ul>{''.join(links)}</ul>" if links else ""


def _line(docs: Path, suite: str, held: int, count: int) -> str:
    pages = sorted((docs / "validations" / suite).glob("**/*.html"))
    said = "held" if held == count else f"{count - held} of {count} failed"
    outcome = f'<a href="{quote(str(pages[-1].relative_to(docs)))}">{said}</a>' if pages else said
    rules = f'<a href="expectations/{quote(suite)}.html">{count}</a>'
    return f"<tr><td>{escape(suite)}</td><td>{outcome}</td><td>{rules}</td></tr>"
