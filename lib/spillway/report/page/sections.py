"""Render the sections of the report from the facts of streams, joins and queries; a section without content is empty.

The figures come from `spillway.report.summary`, which `build/run.json` uses too, so that the page and the file
agree. The levers supply pictures as data. There is one renderer for each kind of picture:

    lines     {lines: [{name, points: [(x, y)], style?, steps?, dots?}], x, y, from_zero?, band?, mark?}
    timeline  {rows: [(name, [(from, to, style, words)])], x, legend?: {style: words}}
    bars      {rows: [(name, [(value, style, words)])], unit?}
    regions   {rects: [(from x, to x, from y, to y, darkness, words)], x, y, x_ticks?, y_ticks?: [(at, words)]}
    table     {heads: [...], rows: [[...]]}; a head that starts with # is above numbers

A style is a class of the page's style sheet. A line without a style gets a colour of its own. The styles c0 to
c9 have no fixed meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from html import escape
from operator import add
from typing import Any

from spillway.batch import RETIRED, Batch
from spillway.contracts import StreamContract
from spillway.contracts.workload import Workload
from spillway.errors import InvalidValue
from spillway.ledger import TOTAL, Row, imbalances, total_imbalance
from spillway.levers.certificate import Certificate
from spillway.levers.protocol import Picture
from spillway.levers.windows import WindowLever
from spillway.registry import lever
from spillway.report.page import svg
from spillway.report.plan import comparison_picture, stored_comparison
from spillway.report.recent import last_windows, read_recent
from spillway.report.summary import (
    StreamFigures,
    certificate_of,
    last_stages,
    last_validation,
    recent_figures,
)
from spillway.report.text import cells, format_bytes, format_pct, format_rate, stages_of, table
from spillway.store.tables import Tables
from spillway.streams.dry_run import Comparison
from spillway.streams.facts import newest_facts
from spillway.streams.presence import Presence, presence_of_row


@dataclass(frozen=True)
class StreamFacts:
    """The facts that the report shows of a stream, of its last batches and of its whole history."""

    contract: StreamContract
    figures: StreamFigures
    batches: tuple[Batch, ...]
    ledger: tuple[Row, ...]
    certificates: tuple[Row, ...]
    pictures: tuple[Picture, ...]
    comparison: Comparison | None = None
    """A batch next to files of lossless compressors, if `spillway plan --compare` measured it."""

    @property
    def sent(self) -> list[Row]:
        """Return the ledger rows with the bytes offered and the bytes sent, one per batch."""
        return list(last_stages(self.ledger).values())

    @property
    def retired_bytes(self) -> int:
        """Return the bytes of raw that were deleted, from ledger rows outside the path (negative ordinal)."""
        gone = {batch.batch for batch in self.batches if batch.status == RETIRED}
        beside = [row for row in self.ledger if row["ordinal"] < 0 and row["batch"] in gone]
        return sum(row["bytes_offered"] - row["bytes_kept"] for row in beside)


def gather_facts(tables: Tables, streams: Sequence[StreamContract]) -> list[StreamFacts]:
    """Return the facts of every stream, by name."""
    found = []
    for contract in sorted(streams, key=lambda item: item.stream):
        recent = read_recent(tables, contract.stream)
        found.append(
            StreamFacts(
                contract,
                recent_figures(recent),
                recent.batches,
                recent.ledger,
                recent.certificates,
                tuple(_pictures(tables, contract)),
                stored_comparison(tables.settings, contract.stream),
            )
        )
    return found


@dataclass(frozen=True)
class WorkloadFacts:
    """The facts that the report shows of a join or a query."""

    name: str
    description: str
    ledger: tuple[Row, ...]
    pictures: tuple[Picture, ...] = ()


def workload_facts(tables: Tables, workloads: Mapping[str, Workload]) -> list[WorkloadFacts]:
    """Return the facts of every join and query that has ledger rows, by name."""
    known = tables.at("ledger").rows(["subject"], scope=["join", "query"])["subject"].unique().to_pylist()
    found = []
    for name in sorted(known):
        contract, ledger = workloads.get(name), last_windows(tables, name)
        pictures = [] if contract is None else list(_workload_pictures(tables, contract))
        said = "" if contract is None else f"{contract.description} From {', '.join(contract.inputs)}."
        found.append(WorkloadFacts(name, said.strip(), ledger, tuple(pictures)))
    return found


def _workload_pictures(tables: Tables, contract: Workload) -> Iterator[Picture]:
    for name in contract.lever_names:
        one = lever(name)
        if isinstance(one, WindowLever):
            yield from one.pictures(contract, tables)


def _pictures(tables: Tables, contract: StreamContract) -> Iterator[Picture]:
    """Yield the pictures of the stream's levers, in the order in which the levers process it."""
    for name in contract.lever_names:
        yield from lever(name).pictures(contract, newest_facts(tables, contract.stream, name), tables)


COLOURS = 10


def card(title: str, body: str, note: str = "", wide: bool = False) -> str:
    """Return a framed part of a section; "" if `body` is empty."""
    if not body:
        return ""
    said = f"<p>{escape(note)}</p>" if note else ""
    return f'<section class="card{" wide" if wide else ""}"><h3>{escape(title)}</h3>{body}{said}</section>'


def picture_card(picture: Picture) -> str:
    """Return a picture as a card.

    >>> "<td>often</td>" in picture_card(Picture("How", "table", {"heads": ["how"], "rows": [["often"]]}))
    True
    """
    if picture.kind not in KINDS:
        raise InvalidValue("kind", f"be one of {', '.join(KINDS)}", picture.kind, "see report.page.sections")
    return card(picture.title, KINDS[picture.kind](picture.data, picture.wide), picture.note, picture.wide)


def _lines(data: Mapping[str, Any], wide: bool) -> str:
    lines = [
        svg.Line(
            line["points"],
            line.get("style", f"c{place % COLOURS}"),
            line["name"],
            line.get("steps", False),
            line.get("dots", False),
        )
        for place, line in enumerate(data["lines"])
    ]
    return svg.line_chart(
        lines,
        x_label=data["x"],
        y_label=data["y"],
        from_zero=data.get("from_zero", False),
        band=data.get("band", ()),
        mark=data.get("mark"),
        width=svg.WIDE if wide else svg.WIDTH,
    )


def _timeline(data: Mapping[str, Any], wide: bool) -> str:
    return svg.timeline(data["rows"], x_label=data["x"], legend=data.get("legend", {}))


def _bars(data: Mapping[str, Any], wide: bool) -> str:
    return svg.bars(data["rows"], unit=data.get("unit", "B"))


def _regions(data: Mapping[str, Any], wide: bool) -> str:
    ticks = {name: data.get(name, ()) for name in ("x_ticks", "y_ticks")}
    return svg.region_map(data["rects"], x_label=data["x"], y_label=data["y"], **ticks)


def _table(data: Mapping[str, Any], wide: bool) -> str:
    return table("|".join(data["heads"]), [cells(*row) for row in data["rows"]])


KINDS: Mapping[str, Callable[[Mapping[str, Any], bool], str]] = {
    "lines": _lines,
    "timeline": _timeline,
    "bars": _bars,
    "regions": _regions,
    "table": _table,
}


def headline(facts: StreamFacts) -> str:
    """Return the figures of `build/run.json` as tiles."""
    f = facts.figures
    saved = f.wire_bytes_saved - f.synopsis_bytes
    offered = sum(row["bytes_offered"] for row in facts.sent)
    rows_gone = [(f"{f.rows_shed:,}", f"rows shed, {f.rows_lost:,} of them lost")] if f.rows_shed else []
    at_hand = ", with the source at hand" if f.absent_pct else ""
    pairs = [
        (f"{f.tuples:,}", f"tuples taken in, {f.rejected:,} refused"),
        (
            f"{format_rate(f.rate_in_kbps)} → {format_rate(f.rate_out_kbps)}",
            f"through {format_rate(f.capacity_kbps)}",
        ),
        (
            f"{len(f.shed_attributes)} shed, {len(f.rounded_attributes)} rounded",
            ", ".join([*f.shed_attributes, *f.rounded_attributes]) or "every attribute is kept",
        ),
        *rows_gone,
        (format_bytes(saved), f"saved net of synopsis, of {format_bytes(offered)}"),
        (format_pct(f.stored_share_pct), f"of {f.shed_values:,} shed values stored"),
        (format_pct(f.recovery_accuracy_pct), f"mean recovery accuracy{at_hand}"),
        *_presence_tile(f),
        (f"{f.worst_error_over_threshold:.3g}", "worst error, in thresholds (at most 1)"),
        (f"{f.violations:,}", "values outside their threshold"),
    ]
    return '<div class="figures">' + "".join(
        f"<div><b>{escape(value)}</b><span>{escape(words)}</span></div>" for value, words in pairs
    ) + "</div>"  # fmt: skip


def _presence_tile(figures: StreamFigures) -> list[tuple[str, str]]:
    """Return the tile with the share that is present at the destination, if certificates have it."""
    if figures.present_pct is None:
        return []
    said = "at the destination within its bound"
    if figures.absent_pct:
        said += (
            f"; {format_pct(figures.absent_pct)} absent there: {figures.held_values:,} kept at the source, "
            f"{figures.lost_values:,} dropped for good"
        )
    return [(format_pct(figures.present_pct), said)]


def byte_bars(facts: Sequence[StreamFacts]) -> str:
    """Return a chart of the bytes before and after shedding, all streams on one scale."""
    rows = []
    for fact in facts:
        before = float(sum(row["bytes_offered"] for row in fact.sent))
        wire = float(sum(row["bytes_kept"] for row in fact.sent))
        synopsis = float(fact.figures.synopsis_bytes)
        rows.append((f"{fact.contract.stream}, raw", [(before, "raw", "raw")]))
        rows.append(
            (
                f"{fact.contract.stream}, shed",
                [(wire, "wire", "on the wire"), (synopsis, "synopsis", "synopsis at the source")],
            )
        )
    retired = sum(fact.retired_bytes for fact in facts)
    note = (
        f"Retired so far: {format_bytes(retired)} of raw deleted."
        if retired
        else "Nothing has been retired yet."
    )
    return card("Bytes before and after, as written", svg.bars(rows), note, wide=True)


def stage_table(ledger: Iterable[Row]) -> str:
    """Return the work of every stage, summed over batches: passed on, shed, and of these recoverable and lost."""
    names = ("batches", "offered", "handed_on", "rounded", "shed", "recoverable", "lost")
    rows = [cells(one.stage, one.unit, *(getattr(one, name) for name in names)) for one in stages_of(ledger)]
    heads = "stage|unit|#" + "|#".join(name.replace("_", " ") for name in names)
    return card("What every stage did", table(heads, rows), "In the order of the way.", wide=True)


def ledger_table(ledger: Sequence[Row]) -> str:
    """Return the ledger, summed over batches, with the difference by which it fails to balance."""
    sums: dict[tuple[str, str, str, str, str], dict[str, int]] = {}
    names = ("offered", "kept", "rounded", "shed", "deduplicated", "rejected", "recoverable", "lost")
    # stages in path order; those outside the path come last
    for row in sorted(ledger, key=lambda row: (row["ordinal"] < 0, row["ordinal"])):
        # the numbers in a reason differ from batch to batch; `spillway explain` shows them
        reason = row["reason"].partition(":")[0] if row["dimension_kind"] != TOTAL else ""
        at = (row["stage"], row["unit"], row["dimension_kind"], row["dimension"], reason)
        into = sums.setdefault(at, dict.fromkeys((*names, "difference"), 0))
        for name in names:
            into[name] += row[name]
        into["difference"] += sum(by for by, _ in imbalances(row))
    order = {stage: place for place, stage in enumerate(dict.fromkeys(at[0] for at in sums))}
    rows = [
        cells(*at, *found.values(), bad=found["difference"] != 0)
        for at, found in sorted(
            sums.items(), key=lambda pair: (order[pair[0][0]], pair[0][1], pair[0][2] != TOTAL, pair[0])
        )
    ]
    heads = "stage|unit|by|which|reason|#" + "|#".join((*names, "difference"))
    off = total_imbalance(ledger)
    said = f"is off by {off:,}" if off else "balances"
    return card(
        f"Ledger: it {said}",
        table(heads, rows),
        "offered = kept + shed + deduplicated + rejected; shed = recoverable + lost; each stage is offered what the "
        "one before it kept.",
        True,
    )


def certificate_table(facts: StreamFacts) -> str:
    """Return the certificates, summed over batches; the worst error is the largest of all batches."""
    by: dict[tuple[str, str, str], list[Row]] = {}
    for row in facts.certificates:
        by.setdefault((row["lever"], row["attribute"], row["way"]), []).append(row)
    rows = []
    for (name, attribute, way), own in sorted(by.items()):
        whole = reduce(add, map(certificate_of, own))
        rows.append(
            cells(
                name, attribute or "whole rows", way, format_certificate_bound(whole), whole.shed_values,
                whole.rounded_values, whole.stored_values, whole.stored_share_pct, float(whole.max_error_pct),
                whole.mean_error_pct,
                whole.violations,
                *_shares(own),
                *(format_bytes(sum(row[f"{name}_bytes"] for row in own)) for name in ("column", "wire", "synopsis")),
                bad=whole.violations > 0,
            )
        )  # fmt: skip
    heads = (
        "lever|attribute|way|bound|#shed|#rounded|#stored|#stored %|#worst error %|#mean error %|#violations"
    )
    heads += "|#present at destination %|#absent there %|column|wire|synopsis"
    return card("Certificates: measured against the truth", table(heads, rows), wide=True)


def _shares(certificates: Sequence[Row]) -> tuple[float | str, float | str]:
    """Return the shares of values that are present and absent at the destination."""
    if any(row.get("offered_values") is None for row in certificates):
        return "?", "?"
    there = sum(map(presence_of_row, certificates), Presence(0))
    return there.present_pct, there.absent_pct


def format_certificate_bound(certificate: Certificate) -> str:
    """Return the bound in words: per cent of the value, the attribute's own unit, or both.

    >>> format_certificate_bound(Certificate(4.5)), format_certificate_bound(Certificate(math.inf, error=0.5))
    ('4.5 %', '0.5')
    """
    said = [f"{certificate.error_pct:g} %"] if math.isfinite(certificate.error_pct) else []
    said += [f"{certificate.error:g}"] if math.isfinite(certificate.error) else []
    return " and ".join(said)


def validation_tables(validations: Sequence[Row]) -> str:
    """Return the last validation: failed expectations, then the counts by table."""
    if not validations:
        return card("Validations", table("", []), "Nothing has been validated yet.", True)
    rows = last_validation(validations)
    last = max(rows, key=lambda row: row["validated_at"])
    failed = [row for row in rows if not row["success"]]
    reported = [row for row in rows if row["success"] and row["where_"]]
    by: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["table"], []).append(row)
    summary = table(
        "table|#expectations|#failed",
        [
            cells(
                name,
                len({r["expectation"] for r in own}),
                sum(not r["success"] for r in own),
                bad=not all(r["success"] for r in own),
            )
            for name, own in sorted(by.items())
        ],
    )
    parts = [
        card(
            "Expectations by table",
            summary,
            f"Run {last['run_id']}, {last['validated_at']:%Y-%m-%d %H:%M} UTC.",
        )
    ]
    told = [*failed, *reported]
    said = table(
        "table|batch date|what was found",
        [cells(r["table"], r["batch_date"], r["sentence"], bad=not r["success"]) for r in told[:60]],
    )
    title = f"{len(failed):,} failed, {len(reported):,} fall short with their reason on record"
    parts.append(
        card(title, said, "" if len(told) <= 60 else f"{len(told) - 60:,} more in the table validations.")
    )
    return '<div class="cards">' + "".join(parts) + "</div>"


def stream_section(facts: StreamFacts) -> Iterator[str]:
    """Yield all cards of one stream."""
    contract, figures = facts.contract, facts.figures
    yield f'<h2 id="{escape(contract.stream)}">{escape(contract.stream)}</h2>'
    said = f"{contract.description} Channel {contract.channel}, mode {contract.mode}."
    yield f'<p class="soft">{escape(said)}</p>'
    if not facts.batches:
        yield "<p>Nothing has been taken in yet: put files into the landing zone and run spillway_shed.</p>"
        return
    if not facts.sent:
        yield f"<p>{figures.tuples:,} tuples are taken in and wait to be trained and shed.</p>"
        return
    yield headline(facts)
    yield '<div class="cards">'
    yield from (picture_card(picture) for picture in facts.pictures)
    if facts.comparison is not None:
        yield picture_card(comparison_picture(facts.comparison))
    yield stage_table(facts.ledger)
    yield certificate_table(facts)
    yield ledger_table(facts.ledger)
    yield "</div>"


def workload_section(facts: WorkloadFacts) -> Iterator[str]:
    """Yield the cards of a join or a query: pictures of its levers, and the work of its stages."""
    yield f'<h2 id="{escape(facts.name)}">{escape(facts.name)}</h2>'
    if facts.description:
        yield f'<p class="soft">{escape(facts.description)}</p>'
    yield '<div class="cards">'
    yield from (picture_card(picture) for picture in facts.pictures)
    yield stage_table(facts.ledger)
    yield ledger_table(facts.ledger)
    yield "</div>"
