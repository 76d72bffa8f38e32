"""Build the self-contained HTML page about the lake: `build/report.html`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

from spillway.clock import utc_now
from spillway.contracts import load_usable
from spillway.ledger import Row, total_imbalance
from spillway.levers.protocol import Picture
from spillway.report.page.sections import (
    StreamFacts,
    WorkloadFacts,
    byte_bars,
    gather_facts,
    picture_card,
    stream_section,
    validation_tables,
    workload_facts,
    workload_section,
)
from spillway.report.plan import FOLDER as LOSSLESS
from spillway.report.summary import last_outcomes, last_validation
from spillway.report.text import format_bytes, format_count, format_pct
from spillway.report.trade_off import load_trade_off, trade_off_pictures
from spillway.settings import refuse_uri
from spillway.store.tables import Tables


def refresh_report(tables: Tables, out: str | Path) -> Path:
    """Build the report, unless the page that is there was made from the same tables and contracts; return its path."""
    path = Path(out)
    digest = _content_digest(tables)
    try:
        with path.open(encoding="utf-8") as page:
            if f'content="{digest}"' in page.read(_HEAD_LETTERS):
                return path
    except (OSError, UnicodeDecodeError):
        pass  # there is no page yet, or none of ours
    return build_report(tables, path)


_HEAD_LETTERS = 500
"""The letters at the start of a page that hold its `<meta>`."""


def _content_digest(tables: Tables) -> str:
    """Return a digest of what the page shows: the files of all shared tables, the contracts, and stored results.

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
    return found.hexdigest()


def build_report(tables: Tables, out: str | Path | None = None) -> Path:
    """Write the report to `out` (default: `report.html` in the build folder); return its path.

    It starts no Spark and fetches nothing from a network. A stream without tables is shown as such.
    """
    if out is not None:
        refuse_uri("output", str(out))
    # computed first: if a contract changes meanwhile, the next run builds the page again
    digest = _content_digest(tables)
    contracts = load_usable(tables.settings.schemas)
    facts = gather_facts(tables, list(contracts.streams.values()))
    validations = last_outcomes(tables)
    path = Path(out) if out is not None else Path(tables.settings.build, "report.html")
    path.parent.mkdir(parents=True, exist_ok=True)
    trades = [one for name in contracts.channels if (one := load_trade_off(tables, contracts, name))]
    pictures = [picture for one in trades if one.curve for picture in trade_off_pictures(one)]
    workloads = workload_facts(tables, {**contracts.joins, **contracts.queries})
    text = page(facts, workloads, validations, utc_now(), pictures, digest)
    path.write_text(text, encoding="utf-8")
    return path


def _lost_words(rows: int) -> str:
    """Return the lost rows in words, for the headline."""
    return f"; {format_count(rows, 'row')} dropped for good" if rows else ""


def page(
    facts: Sequence[StreamFacts],
    workloads: Sequence[WorkloadFacts],
    validations: Sequence[Row],
    now: datetime,
    trades: Sequence[Picture] = (),
    digest: str = "",
) -> str:
    """Return the whole page as text; `digest` is a digest of what it was made from."""
    shed = [fact for fact in facts if fact.sent]
    violations = sum(fact.figures.violations for fact in shed)
    off = sum(fact.figures.ledger_difference for fact in facts) + sum(
        total_imbalance(one.ledger) for one in workloads
    )
    last = max((row["validated_at"] for row in validations), default=None)
    failed = sum(not row["success"] for row in last_validation(validations))
    saved = sum(fact.figures.wire_bytes_saved - fact.figures.synopsis_bytes for fact in shed)
    wrong = [
        *([f"{format_count(violations, 'value')} outside the threshold"] if violations else []),
        *([f"the ledger is off by {off:,}"] if off else []),
        *([f"{format_count(failed, 'expectation')} failed"] if failed else []),
    ]
    absent = [fact.figures for fact in shed if fact.figures.absent_pct]
    unknown = [fact for fact in shed if fact.certificates and fact.figures.absent_pct is None]
    if not shed:
        verdict, look = "Nothing has been shed yet", " bad"
    elif last is None:
        verdict, look = "Not validated yet", " bad"
    elif wrong:
        verdict, look = "; ".join(wrong), " bad"
    elif absent:
        there = "; ".join(f"{one.stream} {format_pct(one.absent_pct or 0.0)}" for one in absent)
        verdict = f"Values at the destination are within their bound; absent there: {there}"
        look = " part"
    elif unknown:
        verdict = (
            "Every recovered value is within its threshold; run `spillway migrate` to see what is present at "
            "the destination"
        )
        look = " part"
    else:
        verdict, look = "Every recovered value is within its threshold, and the ledger balances", ""
    subjects = [*(fact.contract.stream for fact in facts), *(one.name for one in workloads)]
    names = "".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in subjects)
    channels = '<a href="#channels">channels and rooms</a>' if trades else ""
    style = files("spillway.report.page").joinpath("style.css").read_text(encoding="utf-8")
    body = [
        "<h1>Spillway</h1>",
        f'<p class="lead">{format_count(len(facts), "stream")}, {sum(f.figures.tuples for f in facts):,} tuples, '
        f"{format_bytes(saved)} saved net of synopses{_lost_words(sum(f.figures.rows_lost for f in facts))}.</p>",
        f'<span class="verdict{look}">{escape(verdict)}</span>',
        f'<nav>{channels}{names}<a href="#validations">validations</a></nav>',
        '<div class="cards" style="margin-top:30px">' + byte_bars(shed) + "</div>" if shed else "",
        *(['<h2 id="channels">Channels and rooms</h2>', '<div class="cards">'] if trades else []),
        *(picture_card(one) for one in trades),
        *(["</div>"] if trades else []),
        *(part for fact in facts for part in stream_section(fact)),
        *(part for one in workloads for part in workload_section(one)),
        '<h2 id="validations">Validations</h2>',
        validation_tables(validations),
        f"<footer>Written {now:%Y-%m-%d %H:%M} UTC from the lake's own tables. Data Docs: data_docs/index.html beside "
        "this page. Why an attribute travels as it does: <code>spillway explain STREAM ATTRIBUTE</code>.</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="content-digest" content="{digest}">'
        f"<title>Spillway report</title><style>{style}</style></head><body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )
