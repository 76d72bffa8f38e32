"""Data Docs that are read without a network: Great Expectations' pages, with nothing in them that is loaded or run.

As written they take styles, scripts and pictures from elsewhere, and the index is put together by a script: offline it
is blank. Here scripts, and links to what is elsewhere, are taken out, one short style is put in, and the index is a
plain table of suites, each with its outcome. A policy in every page keeps whatever the data says from being run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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


def readable_offline(page: str) -> str:
    """The page without what is loaded or run.

    >>> readable_offline('<head><script src="https://a/b.js"></script></head><p>kept</p>').endswith("</head><p>kept</p>")
    True
    """
    return _LOADED.sub("", page).replace("</head>", f"{_POLICY}{_STYLE}</head>", 1)


def finish_docs(docs: Path, judged: Mapping[str, tuple[int, int]]) -> Path:
    """Make the pages readable offline, write the index; `judged`: of a suite, how many rules held, and of how many."""
    for page in docs.glob("**/*.html"):
        page.write_text(readable_offline(page.read_text(encoding="utf-8")), encoding="utf-8")
    lines = [_line(docs, suite, *judged[suite]) for suite in sorted(judged)]
    index = docs / "index.html"
    index.parent.mkdir(parents=True, exist_ok=True)
    index.write_text(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Expectations</title>'
        f"{_POLICY}{_STYLE}</head><body><h1>Expectations and their outcomes</h1>"
        "<table><tr><th>suite</th><th>outcome</th><th>rules</th></tr>"
        f"{''.join(lines)}</table></body></html>\n",
        encoding="utf-8",
    )
    return index


def _line(docs: Path, suite: str, held: int, count: int) -> str:
    pages = sorted((docs / "validations" / suite).glob("**/*.html"))
    said = "held" if held == count else f"{count - held} of {count} failed"
    outcome = f'<a href="{quote(str(pages[-1].relative_to(docs)))}">{said}</a>' if pages else said
    rules = f'<a href="expectations/{quote(suite)}.html">{count}</a>'
    return f"<tr><td>{escape(suite)}</td><td>{outcome}</td><td>{rules}</td></tr>"
