"""Implement `spillway status` and `spillway report`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillway.cli.output import (
    add_command,
    format_value,
    jsonable,
    print_json,
    print_line,
    print_stages,
    print_table,
)
from spillway.errors import UsageError
from spillway.settings import Settings, refuse_uri


def add_status(commands: Any) -> None:
    made = add_command(
        commands,
        "status",
        "Show the last runs, the batches by status, the balance of the ledger, and shortfalls. Rates are of the last "
        "1,000 batches of a stream.",
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
        help="also show every channel, and the treatment, error and bytes of every attribute",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.report.status import status
    from spillway.report.text import format_rate
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
    print_table(
        "Last runs",
        ["run", "at (UTC)", "streams", "#batches", "#tuples"],
        [(run.run_id, run.at, ", ".join(run.streams), run.batches, run.tuples) for run in found.runs],
    )
    heads = ["stream", "channel", "mode", "batches", "#tuples", "#rejected", "#offered", "#sent", "#capacity"]
    print_table(
        "\nStreams",
        [*heads, "levers and their facts", "ledger"],
        [
            (
                s.stream, s.channel, s.mode, s.batches, s.figures.tuples, s.figures.rejected,
                format_rate(s.figures.rate_in_kbps), format_rate(s.figures.rate_out_kbps),
                format_rate(s.figures.capacity_kbps),
                _levers(s.facts),
                "balances" if s.figures.ledger_difference == 0 else f"off by {s.figures.ledger_difference:,}",
            )
            for s in found.streams
        ],
    )  # fmt: skip
    for one in found.workloads:
        title = f"\n{one.name}, from {', '.join(one.inputs)}: windows {format_value(one.windows)}; {_levers(one.facts)}"
        if one.stages:
            print_stages(title, one.stages)
        else:
            print_line(title)
    if found.quotas:
        print_line("\nQuotas")
    for quota in found.quotas:
        print_line(quota.sentence)
    together = [stream.waiting_together for stream in found.streams if stream.waiting_together is not None]
    if together:
        print_line("\nWaiting to be sent together (spillway run --now sends them)")
    for waiting in together:
        print_line(waiting.sentence)
    print_line(f"\nLast validated: {format_value(found.validated_at)}")
    for shortage in found.shortages:
        label = f"{'WRONG' if shortage.wrong else 'short'} {shortage.stream}: {shortage.sentence}"
        print_line(label, "bold red" if shortage.wrong else "yellow")
        print_line(f"      {shortage.remedy}", "dim")
    if not found.shortages:
        print_line("Nothing falls short.", "green")
    if asked.details:
        from spillway.report.overview import overview, overview_lines

        print_line("")
        for line in overview_lines(overview(tables)):
            print_line(line)
    return 1 if found.wrong else 0


def _levers(facts: Mapping[str, int | None]) -> str:
    """Return each lever with the version of its facts in force."""
    return ", ".join(f"{name} {format_value(version)}" for name, version in facts.items()) or "none"


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
