"""`spillway join-advice LEFT RIGHT --on ATTRIBUTE`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spillway.cli.output import command, say_json, say_table
from spillway.errors import ContractError, Problem, UsageError
from spillway.settings import Settings

_PREDICATES = ("equality", "subset", "superset", "overlap", "inner_product")
_A_YEAR = 365 * 86_400.0


def add_join_advice(commands: Any) -> None:
    made = command(
        commands,
        "join-advice",
        "Before a join is run: its size, skew and heavy values, what it costs, and what a budget would miss once the "
        "join has learned where matches lie; in its first windows it misses more.",
        [
            "spillway join-advice weather weather --on wind_dir --lasts 172800",
            "spillway join-advice network weather --on router --on-right origin --lasts 600",
            "spillway join-advice flights flights --on carrier origin dest hour --predicate overlap --threshold 3",
            "spillway join-advice weather flights --on origin --on-right dest --json",
        ],
    )
    made.add_argument("left", help="a stream")
    made.add_argument("right", help="another, or the same")
    made.add_argument(
        "--on", nargs="+", required=True, metavar="ATTRIBUTE",
        help="the attribute that is joined by; of several, each value is an item of a set",
    )  # fmt: skip
    made.add_argument(
        "--on-right", nargs="+", metavar="ATTRIBUTE", help="the right stream's, where it has another name"
    )
    made.add_argument(
        "--lasts", type=float, default=_A_YEAR, help="seconds that rows lie apart at most (default: a year)"
    )
    made.add_argument("--predicate", choices=_PREDICATES, default="equality", help="what makes a pair")
    made.add_argument("--threshold", type=float, help="least overlap or inner product")
    made.add_argument("--separator", help="what stands between the items of a set")
    made.add_argument("--weight", help="what stands between an item and its weight")
    made.add_argument("--basic", type=float, help="seconds of a basic window (default: a 25th of --lasts)")
    made.add_argument("--no-index", action="store_true", help="as if there were no inverted index")
    made.add_argument("--rows", type=int, help="last rows of each stream to look at (default: 100,000)")
    made.set_defaults(run=_run)


def _run(asked: argparse.Namespace) -> int:
    from spillway.contracts import load_usable
    from spillway.store.tables import Tables
    from spillway.workloads.join_advice import MOST_ROWS_READ, JoinAsked, advise

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
    join = JoinAsked(asked.left, asked.right, told)
    rows = MOST_ROWS_READ if asked.rows is None else asked.rows
    try:
        found = advise(Tables(settings), contracts, join, rows)
    except ContractError as error:
        # one round of what was typed at a time: the others follow from it
        raise UsageError(str(_as_typed(error.problems[0]))) from None
    if asked.json:
        say_json(
            {
                "left_rows": found.left_rows,
                "right_rows": found.right_rows,
                "advice": [{"about": about, **vars(one)} for about, one in found.said],
            }
        )
        return 0
    say_table(
        f"{asked.left} and {asked.right} by {', '.join(asked.on)}: "
        f"the last {found.left_rows:,} and {found.right_rows:,} rows",
        ["", "#estimate", "#from", "#to", "method", "note"],
        [(about, one.estimate, one.low, one.high, one.method, _noted(one)) for about, one in found.said],
    )
    return 0


_TYPED = {
    "left.attributes": "--on", "right.attributes": "--on-right", "left.lasts_seconds": "--lasts",
    "right.lasts_seconds": "--lasts", "basic_window_seconds": "--basic", "threshold": "--threshold",
    "sets.separator": "--separator", "sets.weight": "--weight",
}  # fmt: skip
"""By the field of a contract, the option that says the same."""


def _as_typed(problem: Problem) -> Problem:
    """A problem of the contract that the options make, with the option's name in the place of the field's."""
    field = problem.field.removeprefix("levers[0].")
    remedy = re.sub(rf"\b({'|'.join(map(re.escape, _TYPED))})\b:?", lambda it: _TYPED[it[1]], problem.remedy)
    return replace(problem, where="", field=_TYPED.get(field, field), remedy=remedy)


def _side(names: Sequence[str], lasts: float) -> dict[str, Any]:
    by = {"attribute": names[0]} if len(names) == 1 else {"attributes": list(names)}
    return {**by, "lasts_seconds": lasts}


def _noted(one: Any) -> str:
    """What is to be known of a number: of a sketch, the rows that it is of, and what it is not of."""
    of = [f"of {one.covers.rows:,} rows"] * bool(one.covers.rows)
    return "; ".join([*filter(None, [one.note, *of, one.covers.told_missing])]) or "-"
