"""The report's sections: each turns facts into markup, and says nothing where there is nothing to say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from html import escape
from operator import add
from typing import Any

from spillway.ledger import TOTAL, Row, difference, imbalances
from spillway.levers.certificate import Certificate
from spillway.show.compared import comparison_picture
from spillway.show.report import svg
from spillway.show.report.drawing import card, picture_card
from spillway.show.report.facts import StreamFacts, WorkloadFacts
from spillway.show.stages import stages_of
from spillway.show.summary import StreamFigures, certificate_of, last_validation
from spillway.show.words import bytes_said, cells, rate_said, share_said, table
from spillway.streams.presence import Presence, presence_of_row


def headline(facts: StreamFacts) -> str:
    """The figures that `build/run.json` holds, as people say them."""
    f = facts.figures
    saved = f.wire_bytes_saved - f.synopsis_bytes
    offered = sum(row["bytes_offered"] for row in facts.sent)
    rows_gone = [(f"{f.rows_shed:,}", f"rows shed, {f.rows_lost:,} of them lost")] if f.rows_shed else []
    at_hand = ", with the source at hand" if f.absent_pct else ""
    pairs = [
        (f"{f.tuples:,}", f"tuples taken in, {f.rejected:,} refused"),
        (
            f"{rate_said(f.rate_in_kbps)} → {rate_said(f.rate_out_kbps)}",
            f"through {rate_said(f.capacity_kbps)}",
        ),
        (
            f"{len(f.shed_attributes)} shed, {len(f.rounded_attributes)} rounded",
            ", ".join([*f.shed_attributes, *f.rounded_attributes]) or "every attribute is kept",
        ),
        *rows_gone,
        (bytes_said(saved), f"saved net of synopsis, of {bytes_said(offered)}"),
        (share_said(f.stored_share_pct), f"of {f.shed_values:,} shed values stored"),
        (share_said(f.recovery_accuracy_pct), f"mean recovery accuracy{at_hand}"),
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
            f"; {share_said(figures.absent_pct)} absent there: {figures.held_values:,} kept at the source, "
            f"{figures.lost_values:,} dropped for good"
        )
    return [(share_said(figures.present_pct), said)]


def byte_bars(facts: Sequence[StreamFacts]) -> str:
    """Bytes before and after, all streams on one scale."""
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
        f"Retired so far: {bytes_said(retired)} of raw deleted."
        if retired
        else "Nothing has been retired yet."
    )
    return card("Bytes before and after, as written", svg.bars(rows), note, wide=True)


def stage_table(ledger: Iterable[Row]) -> str:
    """What every stage did, batches added up: handed on, shed, and of that what can be given back and what is lost."""
    names = ("batches", "offered", "handed_on", "rounded", "shed", "recoverable", "lost")
    rows = [cells(one.stage, one.unit, *(getattr(one, name) for name in names)) for one in stages_of(ledger)]
    heads = "stage|unit|#" + "|#".join(name.replace("_", " ") for name in names)
    return card("What every stage did", table(heads, rows), "In the order of the way.", wide=True)


def ledger_table(ledger: Sequence[Row]) -> str:
    """The ledger, added up over batches, with what is left when it should balance."""
    sums: dict[tuple[str, str, str, str, str], dict[str, int]] = {}
    names = ("offered", "kept", "rounded", "shed", "deduplicated", "rejected", "recoverable", "lost")
    # a stage stands where it stands on the way; what is beside the way comes last
    for row in sorted(ledger, key=lambda row: (row["ordinal"] < 0, row["ordinal"])):
        # the numbers behind a choice differ from batch to batch; `spillway explain` tells them
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
    off = difference(ledger)
    said = f"is off by {off:,}" if off else "balances"
    return card(
        f"Ledger: it {said}",
        table(heads, rows),
        "offered = kept + shed + deduplicated + rejected; shed = recoverable + lost; each stage is offered what the "
        "one before it kept.",
        True,
    )


def certificate_table(facts: StreamFacts) -> str:
    """Certificates, added up over batches: the worst of each, never the best."""
    by: dict[tuple[str, str, str], list[Row]] = {}
    for row in facts.certificates:
        by.setdefault((row["lever"], row["attribute"], row["way"]), []).append(row)
    rows = []
    for (lever, attribute, way), own in sorted(by.items()):
        whole = reduce(add, map(certificate_of, own))
        rows.append(
            cells(
                lever, attribute or "whole rows", way, bound_said(whole), whole.shed_values, whole.rounded_values,
                whole.stored_values, whole.stored_share_pct, float(whole.max_error_pct), whole.mean_error_pct,
                whole.violations,
                *_shares(own),
                *(bytes_said(sum(row[f"{name}_bytes"] for row in own)) for name in ("column", "wire", "synopsis")),
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


def bound_said(certificate: Certificate) -> str:
    """What it is judged by: per cent of the value, the attribute's own unit, or both.

    >>> bound_said(Certificate(4.5)), bound_said(Certificate(math.inf, error=0.5))
    ('4.5 %', '0.5')
    """
    said = [f"{certificate.error_pct:g} %"] if math.isfinite(certificate.error_pct) else []
    said += [f"{certificate.error:g}"] if math.isfinite(certificate.error) else []
    return " and ".join(said)


def validation_tables(validations: Sequence[Row]) -> str:
    """The last validation: what failed first, then how much held, table by table."""
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
    """All cards of one stream."""
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
    """The cards of a join or a query: what its lever shows, what its stages did."""
    yield f'<h2 id="{escape(facts.name)}">{escape(facts.name)}</h2>'
    if facts.description:
        yield f'<p class="soft">{escape(facts.description)}</p>'
    yield '<div class="cards">'
    yield from (picture_card(picture) for picture in facts.pictures)
    yield stage_table(facts.ledger)
    yield ledger_table(facts.ledger)
    yield "</div>"
