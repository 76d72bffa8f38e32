"""Implement `spillway plan`, `spillway what-if` and `spillway join-advice`.

`plan STREAM|CHANNEL` shows what would be shed. `what-if GROUP` replays a capacity group with other rules.
`join-advice LEFT RIGHT --on ATTRIBUTE` estimates size and cost of a join.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spillway.cli.output import add_command, format_value, print_json, print_line, print_table
from spillway.errors import ContractError, Problem, UsageError, format_count
from spillway.settings import Settings

if TYPE_CHECKING:
    from spillway.workloads.what_if import QueryOutcome, WhatIf


def add_plan(commands: Any) -> None:
    made = add_command(
        commands,
        "plan",
        "Show which columns would be kept, rounded and shed, with their errors. Writes no table.",
        [
            "spillway plan weather",
            "spillway plan messages --capacity '8 kB/month'   # with a smaller capacity",
            "spillway plan stocks --batch 2 --json",
            "spillway plan weather --rows 3             # with rows at the source and at the destination",
            "spillway plan weather --compare            # with the sizes of gzip, xz and Parquet",
        ],
    )
    made.add_argument("name", help="a stream or a channel with a contract", metavar="STREAM|CHANNEL")
    made.add_argument(
        "--capacity",
        help="capacity of the channel, e.g. '30 kbps' or '2 GB/day' (default: from channels.yaml)",
    )
    made.add_argument("--batch", default="latest", help="number of a batch of the stream (default: latest)")
    made.add_argument(
        "--rows",
        type=int,
        default=0,
        help="also show this number of example rows, at most 10, at the source and at the destination (default: 0)",
    )
    made.add_argument(
        "--compare",
        action="store_true",
        help="also measure the bytes of the batch as CSV with gzip and xz, as Parquet, and as sent by Spillway without "
        "loss and within the bounds; takes about 10 seconds for 50,000 rows, and stores the result for the report",
    )
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    if asked.batch != "latest" and not asked.batch.isdecimal():
        raise UsageError(f"`--batch` must be a number or latest, got {asked.batch!r}; see the table batches")
    from spillway.engine import ProcessEngine
    from spillway.report.plan import plan_lines, show_plan, store_comparison
    from spillway.report.result import Progress
    from spillway.store.tables import Tables

    settings = Settings.from_environment()
    batch = None if asked.batch == "latest" else int(asked.batch)
    with Progress.for_stream(sys.stderr) as progress:
        found = show_plan(
            Tables(settings),
            ProcessEngine(),
            asked.name,
            asked.capacity,
            batch,
            asked.compare,
            progress.detail,
        )
    kept = [store_comparison(settings, one) for one in found.comparisons]
    if asked.json:
        print_json(found)
        return 0
    print("\n".join(plan_lines(found, asked.rows)))
    for path in kept:
        print(f"Stored in {path}; the next report shows it.")
    return 0


def add_what_if(commands: Any) -> None:
    made = add_command(
        commands,
        "what-if",
        "Replay past windows of a capacity group with other rules; compare coverage, error and cost. Writes no table.",
        [
            "spillway what-if operations --capacity 20000",
            "spillway what-if operations --policy priority --from-date 2024-03-04 --to-date 2024-03-05",
            "spillway what-if operations --weight slow_routers=2",
        ],
    )
    made.add_argument(
        "capacity_group", help="capacity group: the `capacity_group` of one or more queries", metavar="GROUP"
    )
    made.add_argument(
        "--capacity", type=float, help="capacity of the group per window, in the unit of its contracts"
    )
    made.add_argument("--policy", help="policy: fair, random, round_robin, priority or algorithm_1")
    made.add_argument(
        "--weight",
        action="append",
        default=[],
        metavar="QUERY=WEIGHT",
        help="weight of a query; may be repeated",
    )
    made.add_argument("--from-date", help="first date of the windows (default: the last date with windows)")
    made.add_argument("--to-date", help="last date of the windows")
    made.set_defaults(run=_run_what_if)


def _run_what_if(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.engine import ProcessEngine
    from spillway.scheduling import read_date
    from spillway.store.tables import Tables
    from spillway.workloads.what_if import RuleChanges, what_if

    first, last = read_date("from_date", asked.from_date), read_date("to_date", asked.to_date)
    one, other = first or last, last or first
    dates = (one, other) if one is not None and other is not None else None
    settings = Settings.from_environment()
    changes = RuleChanges(asked.capacity, asked.policy, dict(_weight(text) for text in asked.weight))
    contracts = load_usable(settings.schemas)
    found = what_if(Tables(settings), ProcessEngine(), contracts, asked.capacity_group, changes, dates)
    if asked.json:
        print_json(found)
    else:
        _say(found)
    return 0


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise UsageError(f"`--weight` must be QUERY=WEIGHT, got {text!r}; write e.g. means=2") from None


def _say(found: WhatIf) -> None:
    print_line(
        f"{found.capacity_group}, {found.first} to {found.last}: {format_count(found.windows, 'window')}, "
        f"{format_count(found.offered, 'row')} offered",
        "bold",
    )
    if found.left_out:
        print_line(
            f"{found.left_out:,} more windows are not included, because some of their rows are deleted",
            "yellow",
        )
    rows = []
    for name, now in found.as_is.items():
        then = found.as_would_be[name]
        rows += [_row(name, "now", now), _row("", "what if", then)]
    heads = ["query", "rules", "#coverage %", "#lowest %", "#error %", "#rows read", "#seconds"]
    print_table("", heads, rows)
    print_line(
        "Error: mean error of a value, relative to the answer from all rows; a missing value counts 100 %.",
        "dim",
    )


def _row(name: str, rules: str, one: QueryOutcome) -> tuple[str, ...]:
    shown = (100 * one.coverage, 100 * one.lowest, one.error_pct, one.tuples, one.seconds)
    return (name, rules, *(format_value(value) for value in shown))


_PREDICATES = ("equality", "subset", "superset", "overlap", "inner_product")
_A_YEAR = 365 * 86_400.0


def add_join_advice(commands: Any) -> None:
    made = add_command(
        commands,
        "join-advice",
        "Estimate a join before it is run: number of pairs, skew, heavy hitters, cost, and the pairs that a budget "
        "would miss. The first windows of a join miss more, because it has not yet learned where matches are.",
        [
            "spillway join-advice weather weather --on wind_dir --lasts 172800",
            "spillway join-advice network weather --on router --on-right origin --lasts 600",
            "spillway join-advice flights flights --on carrier origin dest hour --predicate overlap --threshold 3",
            "spillway join-advice weather flights --on origin --on-right dest --json",
        ],
    )
    made.add_argument("left", help="the left stream")
    made.add_argument("right", help="the right stream; may be the same")
    made.add_argument(
        "--on", nargs="+", required=True, metavar="ATTRIBUTE",
        help="the join key; if several attributes are given, each value is an item of the row's set",
    )  # fmt: skip
    made.add_argument(
        "--on-right",
        nargs="+",
        metavar="ATTRIBUTE",
        help="the join key of the right stream (default: as --on)",
    )
    made.add_argument(
        "--lasts",
        type=float,
        default=_A_YEAR,
        help="maximum seconds between the rows of a pair (default: a year)",
    )
    made.add_argument(
        "--predicate",
        choices=_PREDICATES,
        metavar="PREDICATE",
        default="equality",
        help=f"join predicate: {', '.join(_PREDICATES)} (default: equality)",
    )
    made.add_argument("--threshold", type=float, help="minimum overlap or inner product")
    made.add_argument("--separator", help="separator between the items of a set")
    made.add_argument("--weight", help="separator between an item and its weight")
    made.add_argument(
        "--basic", type=float, help="length of a basic window in seconds (default: --lasts / 25)"
    )
    made.add_argument("--no-index", action="store_true", help="estimate the cost without an inverted index")
    made.add_argument(
        "--rows", type=int, help="number of the last rows of each stream to read (default: 100,000)"
    )
    made.set_defaults(run=_run_join_advice)


def _run_join_advice(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.levers.protocol import CORE_PCT
    from spillway.report.text import format_loss
    from spillway.store.tables import Tables
    from spillway.workloads.join_advice import MOST_ROWS_READ, JoinRequest, advise

    settings = Settings.from_environment()
    contracts = load_usable(settings.schemas)
    several = len(asked.on) > 1
    has_sets = asked.separator is not None or (asked.predicate != "equality" and not several)
    told: dict[str, Any] = {
        "left": _side(asked.on, asked.lasts),
        "right": _side(asked.on_right or asked.on, asked.lasts),
        "predicate": asked.predicate,
        "threshold": asked.threshold,
        "sets": {"separator": asked.separator or " ", "weight": asked.weight} if has_sets else None,
        "basic_window_seconds": asked.basic if asked.basic is not None else asked.lasts / 25,
        "index": not asked.no_index,
    }
    join = JoinRequest(asked.left, asked.right, told)
    rows = MOST_ROWS_READ if asked.rows is None else asked.rows
    try:
        found = advise(Tables(settings), contracts, join, rows)
    except ContractError as error:
        # report one problem at a time: the others follow from it
        raise UsageError(str(_as_typed(error.problems[0]))) from None
    if asked.json:
        print_json(
            {
                "left_rows": found.left_rows,
                "right_rows": found.right_rows,
                "advice": [{"about": about, **vars(one)} for about, one in found.findings],
            }
        )
        return 0
    core = dict(found.findings).get(CORE_PCT)
    if core is not None:
        print_line(
            f"The full join takes {format_loss(core.estimate)} of a core: {_budget_advice(core.high)}.",
            "bold",
        )
    print_table(
        f"{asked.left} and {asked.right} by {', '.join(asked.on)}: "
        f"the last {found.left_rows:,} and {found.right_rows:,} rows",
        ["", "#estimate", "#from", "#to", "note"],
        [(about, one.estimate, one.low, one.high, _notes(one)) for about, one in found.findings],
    )
    return 0


ENOUGH_PCT = 5.0
"""The share of a core, in per cent, up to which a join needs no budget."""


def _budget_advice(pct: float) -> str:
    if pct <= ENOUGH_PCT:
        return "it needs no budget"
    return "state a budget in its contract, for example budget: {core_pct: 5}, if that is too much"


_TYPED = {
    "left.attributes": "--on", "right.attributes": "--on-right", "left.lasts_seconds": "--lasts",
    "right.lasts_seconds": "--lasts", "basic_window_seconds": "--basic", "threshold": "--threshold",
    "sets.separator": "--separator", "sets.weight": "--weight",
}  # fmt: skip
"""The command-line option for each field of a contract."""


def _as_typed(problem: Problem) -> Problem:
    """Return a problem of the contract made from the options, with the option's name instead of the field's."""
    field = problem.field.removeprefix("levers[0].")
    remedy = re.sub(rf"\b({'|'.join(map(re.escape, _TYPED))})\b:?", lambda it: _TYPED[it[1]], problem.remedy)
    return replace(problem, where="", field=_TYPED.get(field, field), remedy=remedy)


def _side(names: Sequence[str], lasts: float) -> dict[str, Any]:
    by = {"attribute": names[0]} if len(names) == 1 else {"attributes": list(names)}
    return {**by, "lasts_seconds": lasts}


def _notes(one: Any) -> str:
    """Return how a number was found, and notes on it; for a sketch, also its rows and those that are missing."""
    of = [f"of {one.covers.rows:,} rows"] * bool(one.covers.rows)
    return "; ".join(filter(None, [one.method, one.note, *of, one.covers.missing_text]))
