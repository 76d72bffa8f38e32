"""What advice says a budget would miss: what the join's own selecting misses, learned from pairs it is not told by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.levers.joins.streams import Row, operand

from evidence.joins.driver import join_settings
from spillway.levers.joins.advice import JoinFigure, _sample_direction, _selected, estimate_join
from spillway.levers.joins.budget import allocate_budget, selected_row_counts
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.matching import OVERLAP, nothing_drawn, probe
from spillway.levers.joins.operands import Operand
from spillway.levers.joins.settings import JoinSettings


def settings(**more: Any) -> JoinSettings:
    side = {"attribute": "x", "lasts_seconds": 10}
    return join_settings(
        left=side, right=side, predicate="overlap", threshold=2, sets={}, index=False,
        basic_window_seconds=1, **more,
    )  # fmt: skip


def streams(lag: float | None, rows: int = 600) -> tuple[Operand, Operand]:
    """Ten rows a second; right rows have the items of the left row `lag` seconds before, or any (None)."""
    chance = np.random.default_rng(8)
    sets = [chance.choice(400, 3, replace=False).tolist() for _ in range(rows)]
    right = sets if lag is not None else [chance.choice(8, 3, replace=False).tolist() for _ in range(rows)]
    left = sets if lag is not None else [chance.choice(8, 3, replace=False).tolist() for _ in range(rows)]
    return (
        operand([Row(at / 10, dict.fromkeys(items, 1.0)) for at, items in enumerate(left)]),
        operand([Row(at / 10 + (lag or 0.05), dict.fromkeys(items, 1.0)) for at, items in enumerate(right)]),
    )


def missed(left: Operand, right: Operand, pct: int) -> Any:
    found: list[JoinFigure] = list(estimate_join(left, right, settings(), with_itself=False))
    return next(one.answer for one in found if one.about == f"% of pairs missed with {pct} % of the steps")


def test_pairs_that_lie_at_one_lag_are_found_with_few_of_the_steps() -> None:
    left, right = streams(lag=3.42)
    # a lag of 3.42 s is one basic window of eleven, of either side: a tenth of the steps finds nearly all
    assert missed(left, right, 10).estimate < 25
    assert missed(left, right, 50).estimate < 12


@pytest.mark.parametrize("pct", [50, 20, 10])
def test_where_pairs_lie_anywhere_nothing_is_better_than_chance(pct: int) -> None:
    found = missed(*streams(lag=None), pct)
    assert found.low - 2 < 100 - pct < found.high + 2


def test_what_is_told_to_be_selected_is_what_the_join_selects() -> None:
    left, right = streams(lag=None, rows=200)
    join = settings()
    facing = allocate_budget(
        SideRows(left, 0, 200), SideRows(right, 0, 200), join, Memory(), (1.0,), 1.0
    ).directions
    order = np.array([3, 7, 1, 0, 2, 4, 5, 6, 8, 9, 10])
    for side, one in enumerate(facing):
        looked = _sample_direction(one, side, 1.0, join, with_itself=False)
        told = _selected(looked, 0.37, order, join)
        ordered = replace(one, how=replace(one.how, order=order))
        take = selected_row_counts(ordered, np.array([0.37]), join)
        mine = probe(
            one.probes, one.window, replace(ordered.how, take=take), OVERLAP, 2.0, None, one.probe_is_left,
            drawn=nothing_drawn(200),
        )  # fmt: skip
        selects = set(zip(mine.probe.tolist(), mine.row.tolist(), strict=True))
        sees = ~looked.learns
        pairs = zip(looked.found.probe[sees].tolist(), looked.found.row[sees].tolist(), strict=True)
        assert told.tolist() == [pair in selects for pair in pairs]
        assert 0 < told.sum() < len(told)
