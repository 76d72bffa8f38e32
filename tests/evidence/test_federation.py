"""The simulation of many nodes, and the tipping point of more queries (Fiscato 2012, 6.3 and 6.4)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evidence.quality.federation import Deployment, Testbed, simulate, tipping_point, trade_off
from spillway.levers.quality.admission import coverage_spread

TABLES = Path(__file__).resolve().parents[1] / "golden" / "003_tables.json"
COST_AXIS = json.loads(TABLES.read_text())["cost"]


def test_the_cost_axis_of_figure_6_11() -> None:
    counts = [COST_AXIS["base_queries"], *map(int, COST_AXIS["delta_cost"])]
    found = trade_off(dict.fromkeys(counts, 1.0))
    for n, said in COST_AXIS["delta_cost"].items():
        above, below = map(int, said.split("/"))
        assert found[int(n)][0] == pytest.approx(above / below)


def test_more_queries_pay_until_quality_falls_faster_than_cost() -> None:
    assert tipping_point({180: 0.8, 360: 0.5, 720: 0.15}) == 360


def test_in_a_federation_the_fair_policy_is_fairer_than_chance() -> None:
    chance = np.random.default_rng(5)
    query = np.repeat(np.arange(60), 3)
    node = np.concatenate([chance.choice(4, 3, replace=False, p=[0.1, 0.2, 0.3, 0.4]) for _ in range(60)])
    to, setting = Deployment(node, query, 4), Testbed(room=800.0, seconds=25.0)
    fair, random = (simulate(to, setting, policy, seed=1) for policy in ("fair", "random"))
    assert max(fair.most_worked_on, random.most_worked_on) <= 800.0
    assert coverage_spread(fair.sic).jain > coverage_spread(random.sic).jain
    assert coverage_spread(fair.sic).std < coverage_spread(random.sic).std / 2
    assert coverage_spread(fair.sic).mean > coverage_spread(random.sic).mean


def test_what_other_nodes_have_begun_is_finished_and_that_is_what_fairness_costs_without() -> None:
    chance = np.random.default_rng(5)
    query = np.repeat(np.arange(60), 3)
    node = np.concatenate([chance.choice(4, 3, replace=False, p=[0.1, 0.2, 0.3, 0.4]) for _ in range(60)])
    to, setting = Deployment(node, query, 4), Testbed(room=800.0, seconds=25.0)
    ours, text, lucky = (
        coverage_spread(simulate(to, setting, policy, 1, finishing).sic)
        for policy, finishing in (("fair", True), ("fair", False), ("random", True))
    )
    assert ours.mean > 1.05 * text.mean, "the text throws away what was worked on elsewhere"
    assert ours.jain > max(0.99, lucky.jain)
    # every tuple carries alike: whoever has the room, it is as much coverage (hand-overs differ by some per cent)
    assert ours.mean == pytest.approx(lucky.mean, rel=0.03)
