"""Make Great Expectations' Data Docs readable offline, without anything that is loaded or run.

The original pages load styles, scripts and images from the network, and a script builds the index. Offline the
index is blank. This module removes scripts and external links, and adds one short style sheet. It writes the
index as a plain table of suites, each with its outcome, and a list of earlier runs. A content security policy
in every page prevents the browser from running anything in the data.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spillway.errors import escape_text

_POLICY = (
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:\">"
)
_STYLE = """<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:100em;padding:0 1em;color:#222;background:#fff}
table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{border:1px solid #ccc;padding:.3em .6em;text-align:left;
vertical-align:top;overflow-wrap:break-word}.fa-info-circle::before{content:"reported";color:#8a6d00}.fa-check-circle::before{content:"held";color:#157347}
.fa-times::before,.fa-exclamation-triangle::before,.fa-exclamation-circle::before{content:"failed";color:#b02a37}
.modal,.cooltip>span,button,.navbar-brand,footer{display:none}ul{padding-left:1.2em}
</style>"""
_LOADED = re.compile(
    r"<script\b.*?</script\s*>"
    r"|<link\b[^>]*>"
    r"|<img\b[^>]*\bsrc\s*=\s*[\"']?https?:[^>]*>"
    r"|@import[^;]*;|url\(\s*[\"']?https?:[^)]*\)",
    re.IGNORECASE | re.DOTALL,
)


REPORTED = "reported: its reason is on record, it is no failure"
"""Appended to the observed value of a broken rule of severity `info`."""
MOST_ROWS = 20
"""Number of offending rows that a page shows for an expectation."""
_ICON = '<i class="fas fa-'
EARLIER_DOCS = 7
"""Number of earlier runs whose pages are kept."""
_EARLIER = "earlier"
_MOST_LETTERS = 80
_LIST = re.compile(r"<h2>Earlier runs</h2><ul>.*?</ul>|<nav>.*?</nav>")
_BODY = re.compile(r"<body\b[^>]*>", re.IGNORECASE)
_REPORT = '<nav><a href="../report.html">Report: bytes, losses and trends of each channel</a></nav>'
_NEWEST = '<nav><a href="../../index.html">The newest run</a></nav>'
"""The links of an index, when it is the newest and when it is an earlier one."""
_RUN = "run.json"
"""The run that wrote the pages and what it validated so far, because a run may validate channel by channel."""


@dataclass(frozen=True)
class SuiteResult:
    """The outcome of a suite for some subjects (streams, joins, queries): counts of its expectations."""

    suite: str
    subjects: tuple[str, ...]
    held: int
    reported: int
    """Broken rules of severity `info`."""
    count: int
    page: str = ""
    """The page with the results, relative to the index."""
    meaning: str = ""

    @property
    def failed(self) -> int:
        """The number of expectations that failed."""
        return self.count - self.held - self.reported

    @property
    def outcome(self) -> str:
        """The outcome in words.

        >>> SuiteResult("ledger", ("a",), 13, 1, 15).outcome, SuiteResult("ledger", ("a",), 14, 1, 15).outcome
        ('1 of 15 failed, 1 reported', 'held, 1 reported')
        """
        words = f"{self.failed} of {self.count} failed" if self.failed else "held"
        return f"{words}, {self.reported} reported" if self.reported else words


def as_text(value: Any) -> str:
    """Return a value as a few characters that browsers show as text.

    >>> as_text("<b>"), as_text(None), as_text(0.5)
    ('&lt;b&gt;', 'null', '0.5')
    """
    return escape(escape_text(_said(value), _MOST_LETTERS))


def _said(value: Any) -> str:
    if value is None or value != value:  # NaN, NaT
        return "null" if not isinstance(value, float) else "NaN"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@contextmanager
def lock_docs(docs: Path) -> Iterator[None]:
    """Wait until no other run writes these pages, and lock out others until the block ends (advisory file lock)."""
    docs.parent.mkdir(parents=True, exist_ok=True)
    with docs.with_name(f".{docs.name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def archive_docs(docs: Path, run_id: str = "") -> None:
    """Move the pages of another run to `earlier`, under the moment they were written. Only the newest are kept.

    The pages that the run `run_id` wrote itself stay where they are.
    """
    if run_id and _earlier_results(docs, run_id):
        return
    index, earlier = docs / "index.html", docs / _EARLIER
    mine = [one for one in docs.iterdir() if one.name != _EARLIER] if docs.is_dir() else []
    if index.is_file():
        written = datetime.fromtimestamp(index.stat().st_mtime, UTC)
        place = earlier / f"{written:%Y-%m-%dT%H%M%S.%fZ}"
        place.mkdir(parents=True, exist_ok=True)
        left = _LIST.sub("", index.read_text(encoding="utf-8"))
        index.write_text(left.replace("<body>", f"<body>{_NEWEST}", 1), encoding="utf-8")
        for one in mine:
            if one.name not in ("static", _RUN):  # fonts and images that no page needs
                one.replace(place / one.name)
    for one in mine:
        if one.is_file():
            one.unlink(missing_ok=True)
        shutil.rmtree(one, ignore_errors=True)
    for old in sorted(earlier.glob("*"), reverse=True)[EARLIER_DOCS:]:
        shutil.rmtree(old, ignore_errors=True)


def _earlier_results(docs: Path, run_id: str) -> list[SuiteResult]:
    """Return what the run `run_id` validated before, from the file that it left; [] if another run left it."""
    try:
        left = json.loads((docs / _RUN).read_text(encoding="utf-8"))
        if left["run_id"] != run_id:
            return []
        return [SuiteResult(**{**one, "subjects": tuple(one["subjects"])}) for one in left["judged"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def make_offline(page: str, index: str = "") -> str:
    """Return the page without anything that is loaded or run. `index`: the address of the index, for a link.

    >>> make_offline('<head><script src="https://a/b.js"></script></head><p>kept</p>').endswith("</head><p>kept</p>")
    True
    """
    if _POLICY in page:
        return page
    marked = _ICON.join(map(_with_own_icon, _LOADED.sub("", page).split(_ICON)))
    if index:
        marked = _BODY.sub(lambda tag: f'{tag[0]}<p><a href="{index}">All suites</a></p>', marked, count=1)
    return marked.replace("</head>", f"{_POLICY}{_STYLE}</head>", 1)


def _with_own_icon(rule: str) -> str:
    """Return the markup from one rule's icon to the next; a rule that is reported gets its own icon."""
    return rule.replace("check-circle text-success", "info-circle", 1) if REPORTED in rule else rule


def finish_docs(docs: Path, judged: Iterable[SuiteResult], run_id: str = "") -> Path:
    """Make the pages readable offline and write the index of everything that the run judged so far."""
    written = [docs / "index.html", *docs.glob("expectations/**/*.html"), *docs.glob("validations/**/*.html")]
    for page in (page for page in written if page.is_file()):
        above = "../" * (len(page.relative_to(docs).parts) - 1)
        home = f"{above}index.html" if above else ""
        page.write_text(make_offline(page.read_text(encoding="utf-8"), home), encoding="utf-8")
    found = {(one.suite, one.subjects): one for one in _earlier_results(docs, run_id)} if run_id else {}
    for one in judged:
        pages = sorted((docs / "validations" / one.suite).glob("**/*.html"))
        last = str(pages[-1].relative_to(docs)) if pages else ""
        found[one.suite, one.subjects] = replace(one, page=last)
    rows = [found[place] for place in sorted(found, key=_by_importance)]
    docs.mkdir(parents=True, exist_ok=True)
    left = {"run_id": run_id, "judged": [asdict(one) for one in rows]}
    (docs / _RUN).write_text(json.dumps(left), encoding="utf-8")
    index = docs / "index.html"
    index.write_text(
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Expectations</title>'
        f"{_POLICY}{_STYLE}</head><body>{_REPORT}<h1>Expectations and their outcomes</h1>"
        f"<p>{escape(_summary(rows))}</p>"
        "<table><tr><th>suite</th><th>of</th><th>outcome</th><th>rules</th><th>meaning</th></tr>"
        f"{''.join(_line(one) for one in rows)}</table>{_earlier_runs(docs)}</body></html>\n",
        encoding="utf-8",
    )
    return index


def _by_importance(place: tuple[str, tuple[str, ...]]) -> tuple[int, tuple[str, tuple[str, ...]]]:
    """Return the sort key of a suite in the index: accuracy and bounds of recovery come first, the rest by name.

    >>> sorted([("alerts", ()), ("recovered", ()), ("certificates", ())], key=_by_importance)
    [('certificates', ()), ('recovered', ()), ('alerts', ())]
    """
    return (_FIRST.index(place[0]) if place[0] in _FIRST else len(_FIRST), place)


_FIRST = ("certificates", "recovered")


def _summary(rows: Sequence[SuiteResult]) -> str:
    """Return one verdict over all suites; it agrees with the screen and the table `validations`."""
    failed = [one for one in rows if one.failed]
    reported = sum(one.reported for one in rows)
    verdict = (
        f"{sum(one.failed for one in failed):,} expectations failed" if failed else "No expectation failed"
    )
    more = f"; {reported:,} reported, with their reason on record" if reported else ""
    return f"{verdict} in {len(rows):,} suites{more}."


def _earlier_runs(docs: Path) -> str:
    """Return links to earlier runs; only the newest index has them."""
    names = sorted((one.name for one in (docs / _EARLIER).glob("*")), reverse=True)
    links = [f'<li><a href="{_EARLIER}/{quote(name)}/index.html">{escape(name)}</a></li>' for name in names]
    return f"<h2>Earlier runs</h2><ul>{''.join(links)}</ul>" if links else ""


def _line(one: SuiteResult) -> str:
    outcome = f'<a href="{quote(one.page)}">{one.outcome}</a>' if one.page else one.outcome
    rules = f'<a href="expectations/{quote(one.suite)}.html">{one.count}</a>'
    cells = (escape(one.suite), escape(", ".join(one.subjects)), outcome, rules, escape(one.meaning))
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
