"""Implement `spillway status` and `spillway report`."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.cli.output import (
    add_command,
    format_value,
    jsonable,
    print_json,
    print_line,
    print_table,
)
from spillway.errors import UsageError, format_count
from spillway.settings import Settings, refuse_uri

if TYPE_CHECKING:
    from spillway.report.status import Status, StreamStatus
    from spillway.report.summary import StreamFigures


def add_status(commands: Any) -> None:
    made = add_command(
        commands,
        "status",
        "Show what needs attention, and the streams, joins and queries with their batches, bytes and levers. "
        "Bytes are those of the last 1,000 batches; `used` is the share of their allowed bytes.",
        [
            "spillway status",
            "spillway status --details",
            "spillway status --metrics /var/lib/node_exporter/spillway.prom",
            "spillway status --json | jq '.shortages[] | select(.wrong)'",
        ],
    )
    made.add_argument(
        "--metrics",
        nargs="?",
        const="",
        metavar="FILE",
        help="only write the metrics file for the Prometheus node exporter (default: build/metrics/spillway.prom)",
    )
    made.add_argument(
        "--details",
        action="store_true",
        help="show all streams and notes, every channel, and the treatment, error and bytes of every attribute",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.report.status import status
    from spillway.store.tables import Tables

    tables = Tables(Settings.from_environment())
    if asked.metrics is not None:
        from spillway.clock import utc_now
        from spillway.report.metrics import write_metrics

        path = write_metrics(tables, utc_now(), asked.metrics or None)
        if asked.json:
            print_json({"metrics": path})
        else:
            print_line(f"Wrote {path}")
        return 0
    found = status(tables)
    if asked.json:
        print_json({"ok": not found.wrong, **jsonable(found)})
        return 1 if found.wrong else 0
    everything = asked.details
    _say_verdict(found)
    _say_streams(found, everything)
    _say_workloads(found)
    for quota in found.quotas:
        print_line(quota.sentence)
    for stream in found.streams:
        if stream.waiting_together is not None:
            print_line(f"{stream.waiting_together.sentence}. To send them now: spillway run --now")
    _say_shortages(found, everything)
    if everything:
        from spillway.report.overview import overview, overview_lines

        print("\n".join(["", *overview_lines(overview(tables))]))
    return 1 if found.wrong else 0


MOST_STREAMS = 12
"""The most streams that are shown without `--details`."""
MOST_OF_A_KIND = 2
"""The most shortages of one kind that are shown without `--details`."""


def _say_verdict(found: Status) -> None:
    """Print the state in one sentence, and the last run and validation."""
    wrong = sum(one.wrong for one in found.shortages)
    notes = len(found.shortages) - wrong
    if found.shortages:
        said = [format_count(wrong, "thing is wrong", "things are wrong")] * bool(wrong)
        said += [format_count(notes, "note")] * bool(notes)
        print_line(f"{' and '.join(said)}, see below.", "bold red" if wrong else "yellow")
    else:
        print_line("Nothing needs attention.", "green")
    validated = "never"
    if found.validated_at is not None:
        validated = (
            f"{format_value(found.validated_at)} UTC, {found.expectations_failed:,} expectations failed"
        )
    print_line(f"Last validation: {validated}.")
    for run in found.runs[:1]:
        names = ", ".join(run.streams) if len(run.streams) <= 4 else f"{len(run.streams):,} streams"
        print_line(
            f"Last run with new data: {run.run_id}, {format_value(run.at)} UTC, "
            f"{format_count(run.batches, 'batch', 'batches')} of {names}, {format_count(run.tuples, 'row')}."
        )


def _say_streams(found: Status, everything: bool) -> None:
    from spillway.report.text import format_bytes

    named = {one.stream for one in found.shortages}
    streams = sorted(found.streams, key=lambda one: (one.stream not in named, one.stream))
    shown = found.streams if everything or len(streams) <= MOST_STREAMS else streams[:MOST_STREAMS]
    heads = ["stream", "mode", "batches", "#rows", "#refused", "#offered", "#sent", "channel", "#used"]
    rows = [
        (
            one.stream, one.mode, one.batches, one.figures.tuples, one.figures.rejected,
            *(format_bytes(size) if size else "-" for size in (one.figures.bytes_offered, one.figures.bytes_sent)),
            f"{one.channel}, {one.capacity}", _used(one.figures), _levers(one),
        )
        for one in shown
    ]  # fmt: skip
    print_line("")
    if rows:
        print_table("", [*heads, "levers"], rows)
    if len(streams) > len(shown):
        print_line(f"and {len(streams) - len(shown):,} more streams: spillway status --details", "dim")
    for one in found.streams:
        if everything and one.figures.ledger_difference == 0:
            print_line(f"{one.stream}: the ledger balances; {_facts(one.facts)}")


def _used(figures: StreamFigures) -> str:
    """Return the share of the bytes that the stream was allowed to send; "-" if it has sent nothing."""
    if not figures.capacity_kbps or not figures.bytes_sent:
        return "-"
    used = 100.0 * figures.rate_out_kbps / figures.capacity_kbps
    return "< 0.1 %" if used < 0.1 else f"{used:.3g} %"


def _levers(one: StreamStatus) -> str:
    """Return the levers, and which of them are not trained."""
    return ", ".join(
        f"{name} (not trained)" if name in one.untrained else name for name in one.facts
    ) or "none"  # fmt: skip


def _facts(facts: Mapping[str, int | None]) -> str:
    """Return each lever with the version of its model in use."""
    return ", ".join(
        f"{name}: " + ("no model" if version is None else f"model version {version}")
        for name, version in facts.items()
    ) or "no levers"  # fmt: skip


def _say_workloads(found: Status) -> None:
    """Print the joins and queries: a line for each."""
    from spillway.report.text import format_pct

    rows = []
    for one in found.workloads:
        done = [
            f"{format_pct(100.0 * stage.handed_on / stage.offered)} of {stage.unit}"
            for stage in one.stages
            if stage.unit in ("rows", "comparisons") and stage.offered
        ]
        rows.append((one.name, ", ".join(one.inputs), one.windows, ", ".join(done) or "-"))
    if rows:
        print_line("")
        print_table("", ["join or query", "reads", "windows", "share of the work done"], rows)
    if rows or found.quotas:
        print_line("")


def _say_shortages(found: Status, everything: bool) -> None:
    """Print what needs attention, each with its remedy; of many of one kind only the first."""
    of_kind: Counter[tuple[bool, str]] = Counter()
    for one in found.shortages:
        of_kind[one.wrong, one.kind] += 1
        if not everything and of_kind[one.wrong, one.kind] > MOST_OF_A_KIND:
            continue
        label = f"{'WRONG' if one.wrong else 'note'}  {one.stream}: {one.sentence}".replace(" : ", ": ")
        print_line(label, "bold red" if one.wrong else "yellow")
        print_line(f"To do: {one.remedy}", "dim", indent=6)
    if everything:
        return
    for (_, kind), count in of_kind.items():
        if count > MOST_OF_A_KIND:
            print_line(f"and {count - MOST_OF_A_KIND:,} more ({kind}): spillway status --details", "dim")


def add_report(commands: Any) -> None:
    made = add_command(
        commands,
        "report",
        "Write the report: an HTML index, and a page with figures and charts for each channel.",
        ["spillway report", "spillway report --output /var/www/spillway.html"],
    )
    made.add_argument(
        "--output",
        help="path of the index (default: build/report.html); the pages are in a folder of this name without .html",
    )
    made.set_defaults(run=_run_report)


def _run_report(asked: argparse.Namespace) -> int:
    from spillway.report.page import build_report
    from spillway.store.tables import Tables

    if asked.output is not None:
        refuse_uri("--output", asked.output)
    if asked.output is not None and not Path(asked.output).absolute().parent.is_dir():
        raise UsageError(
            f"`--output` must be a file in a folder that exists, got {asked.output!r}; create the folder first"
        )
    path = build_report(Tables(Settings.from_environment()), asked.output)
    if asked.json:
        print_json({"report": path})
    else:
        print_line(f"Wrote {path}")
    return 0
