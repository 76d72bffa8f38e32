"""The report's sections: each turns facts into markup, and says nothing where there is nothing to say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from spillway.show.report import svg
from spillway.show.report.facts import Row, Sample, StreamFacts
from spillway.show.report.words import bytes_said, cells, count_said, rate_said, share_said, table
from spillway.show.summary import SENDING_STAGE


def card(title: str, body: str, note: str = "", wide: bool = False) -> str:
    """A framed part of a section; empty when `body` is."""
    if not body:
        return ""
    said = f"<p>{escape(note)}</p>" if note else ""
    return f'<section class="card{" wide" if wide else ""}"><h3>{escape(title)}</h3>{body}{said}</section>'


def headline(facts: StreamFacts) -> str:
    """The figures that `build/run.json` holds, as people say them."""
    f = facts.figures
    saved = f.wire_bytes_saved - f.synopsis_bytes
    offered = sum(row["bytes_offered"] for row in facts.sent)
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
        (bytes_said(saved), f"saved net of synopsis, of {bytes_said(offered)}"),
        (share_said(f.stored_share_pct), f"of {f.shed_values:,} shed values stored"),
        (share_said(f.recovery_accuracy_pct), "mean recovery accuracy"),
        (f"{f.worst_error_over_threshold:.3g}", "worst error, in thresholds (at most 1)"),
        (f"{f.violations:,}", "values outside their threshold"),
    ]
    return '<div class="figures">' + "".join(
        f"<div><b>{escape(value)}</b><span>{escape(words)}</span></div>" for value, words in pairs
    ) + "</div>"  # fmt: skip


def recovered_plot(sample: Sample) -> str:
    """Original against recovered, with the band the truth must lie in."""
    position = range(len(sample.seq))
    band = [
        (float(i), value - abs(value) * bound / 100, value + abs(value) * bound / 100)
        for i, value, bound in zip(position, sample.recovered, sample.bound_pct, strict=True)
        if value is not None and bound is not None
    ]
    original = [(float(i), value) for i, value in zip(position, sample.original, strict=True)]
    back = [(float(i), value) for i, value in zip(position, sample.recovered, strict=True)]
    chart = svg.line_chart(
        [
            svg.Line(original, "original", "original"),
            svg.Line(back, "recovered", "recovered", dots=len(back) < 80),
        ],
        x_label=f"tuples of {sample.key}",
        y_label=f"{sample.attribute} {sample.unit}".strip(),
        band=band,
    )
    return card(
        f"{sample.attribute}: original and recovered",
        chart,
        "Shaded: the bound stated with each recovered value.",
    )


def threshold_plot(facts: StreamFacts) -> str:
    """The stored share falls with the threshold: why the thresholds are where they are."""
    lines = [
        svg.Line(
            [(e, s) for e, s in curve.points if e <= 30],
            f"c{i % 10}",
            f"{curve.attribute} (E = {curve.error_pct:.3g} %)",
        )
        for i, curve in enumerate(facts.curves)
    ]
    chosen = sorted({curve.error_pct for curve in facts.curves})
    mark = (chosen[0], f"E = {chosen[0]:.3g} %") if len(chosen) == 1 else None
    chart = svg.line_chart(
        lines, x_label="threshold E, %", y_label="stored share, %", from_zero=True, mark=mark
    )
    return card(
        "Stored share against threshold",
        chart,
        "Trained on the first tuples, last-value synopsis.",
    )


def rate_plot(facts: StreamFacts) -> str:
    """Rate against capacity, run by run."""
    offered: list[tuple[float, float | None]] = []
    planned: list[tuple[float, float | None]] = []
    capacity: list[tuple[float, float | None]] = []
    for row in _ordered(facts.schemes):
        for series, name in ((offered, "rate_kbps"), (planned, "planned_kbps"), (capacity, "capacity_kbps")):
            series += [(float(row["from_seq"]), row[name]), (float(row["to_seq"]), row[name])]
    chart = svg.line_chart(
        [
            svg.Line(offered, "offered", "offered", steps=True),
            svg.Line(planned, "planned", "under the scheme", steps=True),
            svg.Line(capacity, "capacity", "its part of the channel", steps=True),
        ],
        x_label="seq",
        y_label="kbps",
        from_zero=True,
        width=svg.WIDE,
    )
    over = f" Falls short by up to {rate_said(facts.shortfall_kbps)}." if facts.shortfall_kbps else ""
    return card("Rate against capacity", chart, f"Widths as written, compressed.{over}", wide=True)


def scheme_plot(facts: StreamFacts) -> str:
    """Which attribute travelled how, and when."""
    names = [a.name for a in facts.contract.attributes if a.role == "measure"]
    rows = []
    for name in names:
        runs: list[tuple[float, float, str, str]] = []
        for row in _ordered(facts.schemes):
            item = next((i for i in row["attributes"] if i["attribute"] == name), None)
            way = item["way"] if item else "keep"
            words = f"{name}, seq {row['from_seq']} to {row['to_seq']}: {way}" + (
                f"; {item['reason']}" if item and item["reason"] else ""
            )
            if runs and runs[-1][2] == way:
                runs[-1] = (runs[-1][0], float(row["to_seq"]), way, runs[-1][3])
            else:
                runs.append((float(row["from_seq"]), float(row["to_seq"]), way, words))
        if runs:
            rows.append((name, runs))
    hits = "not measured" if facts.hits is None else f"{facts.hits:,} hits, {facts.misses:,} misses"
    note = f"{facts.windows:,} windows, {facts.evaluations:,} of them evaluated; {hits}."
    return card("Kept, rounded and shed over time", svg.timeline(rows, x_label="seq"), note, wide=True)


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


def ledger_table(facts: StreamFacts) -> str:
    """The ledger, added up over batches, with what is left when it should balance."""
    sums: dict[tuple[str, str, str, str], dict[str, int]] = {}
    names = ("offered", "kept", "rounded", "shed", "deduplicated", "rejected", "recoverable", "lost")
    for row in facts.ledger:
        # the numbers behind a choice differ from batch to batch; `spillway explain` tells them
        reason = row["reason"].partition(":")[0]
        at = (row["stage"], row["unit"], row["attribute"], reason)
        into = sums.setdefault(at, dict.fromkeys((*names, "difference"), 0))
        for name in names:
            into[name] += row[name]
        accounted = row["kept"] + row["shed"] + row["deduplicated"] + row["rejected"]
        into["difference"] += abs(row["offered"] - accounted) + abs(
            row["shed"] - row["recoverable"] - row["lost"]
        )
    order = {"ingest": 0, "attributes": 1, SENDING_STAGE: 2}
    rows = [
        cells(*at, *found.values(), bad=found["difference"] != 0)
        for at, found in sorted(sums.items(), key=lambda pair: (order.get(pair[0][0], 9), pair[0]))
    ]
    heads = "stage|unit|attribute|reason|#" + "|#".join((*names, "difference"))
    said = (
        "balances"
        if facts.figures.ledger_difference == 0
        else f"is off by {facts.figures.ledger_difference:,}"
    )
    return card(
        f"Ledger: it {said}",
        table(heads, rows),
        "offered = kept + shed + deduplicated + rejected; shed = recoverable + lost.",
        True,
    )


def certificate_table(facts: StreamFacts) -> str:
    """Certificates, added up over batches: the worst of each, never the best."""
    by: dict[tuple[str, str], list[Row]] = {}
    for row in facts.certificates:
        by.setdefault((row["attribute"], row["way"]), []).append(row)
    rows = []
    for (attribute, way), own in sorted(by.items()):
        weights = [row["shed_values"] + row["rounded_values"] for row in own]
        mean = sum((row["mean_error_pct"] or 0.0) * w for row, w in zip(own, weights, strict=True)) / max(
            sum(weights), 1
        )
        shed, stored = sum(row["shed_values"] for row in own), sum(row["stored_values"] for row in own)
        violations = sum(row["violations"] for row in own)
        rows.append(
            cells(
                attribute, way, float(max(row["error_pct"] for row in own)), shed, sum(weights) - shed, stored,
                100.0 * stored / shed if shed else 0.0, float(max(row["max_error_pct"] or 0.0 for row in own)), mean,
                violations,
                *(bytes_said(sum(row[f"{name}_bytes"] for row in own)) for name in ("column", "wire", "synopsis")),
                bad=violations > 0,
            )
        )  # fmt: skip
    heads = "attribute|way|#E %|#shed|#rounded|#stored|#stored %|#worst error %|#mean error %|#violations"
    heads += "|column|wire|synopsis"
    return card("Certificates: measured against the truth", table(heads, rows), wide=True)


def validation_tables(validations: Sequence[Row]) -> str:
    """The last validation: what failed first, then how much held, table by table."""
    if not validations:
        return card("Validations", table("", []), "Nothing has been validated yet.", True)
    last = max(validations, key=lambda row: row["validated_at"])
    rows = [row for row in validations if row["run_id"] == last["run_id"]]
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
    if not facts.schemes:
        yield f"<p>{count_said(figures.tuples)} tuples are taken in and wait to be trained and shed.</p>"
        return
    yield headline(facts)
    yield '<div class="cards">'
    yield from (recovered_plot(sample) for sample in facts.samples)
    yield threshold_plot(facts)
    yield rate_plot(facts)
    yield scheme_plot(facts)
    yield certificate_table(facts)
    yield ledger_table(facts)
    yield "</div>"


def _ordered(schemes: Sequence[Row]) -> list[Row]:
    return sorted(schemes, key=lambda row: row["from_seq"])
