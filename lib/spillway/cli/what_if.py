"""`spillway what-if ROOM`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from spillway.cli.output import command, said, say_json, say_line, say_table
from spillway.errors import UsageError, so_many
from spillway.settings import Settings

TIMES = (1, 2, 3, 4, 6, 8, 12, 16)
"""So many times as many queries as there are."""

if TYPE_CHECKING:
    from datetime import date

    from spillway.workloads.what_if import QueryOutcome, WhatIf


def add_what_if(commands: Any) -> None:
    made = command(
        commands,
        "what-if",
        "Replay what queries were offered by other rules, and compare coverage, error and cost; no table is written.",
        [
            "spillway what-if operations --capacity 20000",
            "spillway what-if operations --policy priority --from-date 2024-03-04 --to-date 2024-03-05",
            "spillway what-if operations --weight slow_routers=2",
            "spillway what-if operations --more",
        ],
    )
    made.add_argument("room", help="a room that queries share", metavar="ROOM")
    made.add_argument("--capacity", type=float, help="of the room a slice, in the unit of its contracts")
    made.add_argument("--policy", help="fair, random, round_robin, priority or algorithm_1")
    made.add_argument("--weight", action="append", default=[], help="QUERY=WEIGHT; may be repeated")
    made.add_argument(
        "--more",
        action="store_true",
        help="what more and more queries like these would make of the answers, and when they stop paying",
    )
    made.add_argument("--from-date", help="first date of windows (default: the last there is)")
    made.add_argument("--to-date", help="last date of windows")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.engine import InProcess
    from spillway.scheduling import read_date
    from spillway.store.tables import Tables
    from spillway.workloads.what_if import RoomChanges, what_if

    first, last = read_date("from_date", asked.from_date), read_date("to_date", asked.to_date)
    one, other = first or last, last or first
    dates = (one, other) if one is not None and other is not None else None
    settings = Settings.from_environment()
    if asked.more:
        return _more(asked, settings, dates)
    changes = RoomChanges(asked.capacity, asked.policy, dict(_weight(text) for text in asked.weight))
    contracts = load_usable(settings.schemas)
    found = what_if(Tables(settings), InProcess(), contracts, asked.room, changes, dates)
    if asked.json:
        say_json(found)
    else:
        _say(found)
    return 0


def _more(asked: argparse.Namespace, settings: Settings, dates: tuple[date, date] | None) -> int:
    """Cost a query against quality of its answers, as the room fills up (6.3 to 6.5)."""
    from spillway.clock import utc_now
    from spillway.contracts import load_usable
    from spillway.engine import InProcess
    from spillway.show.crowding import crowded_room, keep_crowded
    from spillway.store.tables import Tables
    from spillway.workloads.what_if import crowded

    if asked.policy or asked.weight:
        raise UsageError(
            "`--more` must stand with no other rule than --capacity; leave --policy and --weight out"
        )
    contracts = load_usable(settings.schemas)
    found = crowded(Tables(settings), InProcess(), contracts, asked.room, TIMES, asked.capacity, dates)
    room = crowded_room(asked.room, found, utc_now().date())
    kept = keep_crowded(settings.build, room)
    if asked.json:
        say_json(room)
        return 0
    shown = [
        (
            str(step.queries),
            *(
                said(value)
                for value in (step.cheaper_pct, step.worse_pct, 100 * step.coverage, step.error_pct)
            ),
        )
        for step in room.steps
    ]
    say_table("", ["queries", "cheaper each %", "answers worse %", "coverage %", "error %"], shown)
    say_line(room.said, "bold")
    say_line(f"kept in {kept}: the next report draws it", "dim")
    return 0


def _weight(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise UsageError(f"`--weight` must be QUERY=WEIGHT, got {text!r}; write e.g. means=2") from None


def _say(found: WhatIf) -> None:
    say_line(
        f"{found.room}, {found.first} to {found.last}: {so_many(found.windows, 'window')}, "
        f"{found.offered:,} tuples offered",
        "bold",
    )
    if found.left_out:
        say_line(f"{found.left_out} more were left out: rows of them are not held any more", "yellow")
    rows = []
    for name, now in found.as_is.items():
        then = found.as_would_be[name]
        rows += [_row(name, "as it is", now), _row("", "what if", then)]
    heads = ["query", "rules", "coverage %", "lowest %", "error %", "tuples", "seconds"]
    say_table("", heads, rows)
    say_line(
        "Error: of an answered value against the answer to everything; one that is missing counts 100 %.",
        "dim",
    )


def _row(name: str, rules: str, one: QueryOutcome) -> tuple[str, ...]:
    shown = (100 * one.coverage, 100 * one.lowest, one.error_pct, one.tuples, one.seconds)
    return (name, rules, *(said(value) for value in shown))
