"""The theory's numbers: golden values of P, stable points, and the chain behind the false negatives."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from evidence.sketches import stable_bloom_theory as theory
from spillway.errors import InvalidValue

GOLDEN = Path(__file__).parents[1] / "golden"
SBF = json.loads((GOLDEN / "004_sbf.json").read_text())


def test_p_of_every_golden_setting_is_exact_and_rounded_up_so_that_the_bound_holds() -> None:
    rows = list(csv.DictReader((GOLDEN / "004_sbf_P_grid.csv").open()))
    assert len(rows) > 300
    for row in rows:
        rate, top, hashes = float(row["FPS_target"]), int(row["Max"]), int(row["K"])
        cells = 10**15 if row["m"] == "inf" else int(row["m"])
        exact = theory.exact_decrements(rate, top, hashes, cells)
        assert exact == pytest.approx(float(row["P_exact_eq3_21"]), rel=1e-5)
        chosen = theory.decrements_for(rate, top, hashes, cells)
        assert chosen in (int(row["P_ceil"]), max(int(row["P_floor"]), 1))
        assert theory.false_positive_bound(cells, hashes, chosen, top) <= rate * (1 + 1e-9)
        floor = int(row["P_floor"])
        if floor >= 1:
            bound = theory.false_positive_bound(cells, hashes, floor, top)
            assert bound == pytest.approx(float(row["FPS_bound_with_floor_eq3_12"]), abs=1e-6)


@pytest.mark.parametrize("setting", SBF["settings_in_text"])
def test_the_texts_settings_round_down_and_break_their_bound_ours_do_not(setting: dict[str, float]) -> None:
    top, hashes = int(setting["Max"]), int(setting["K"])
    exact = theory.exact_decrements(setting["FPS"], top, hashes, 10**15)
    assert exact == pytest.approx(setting["P_exact_m_inf"], rel=1e-6)
    printed = theory.false_positive_bound(10**15, hashes, int(setting["P_printed"]), top)
    assert printed > setting["FPS"]
    assert theory.decrements_for(setting["FPS"], top, hashes, 10**6) == int(setting["P_printed"]) + 1


def test_the_golden_false_negatives_hold_for_the_number_of_elements_between() -> None:
    for row in csv.DictReader((GOLDEN / "004_sbf_FN.csv").open()):
        cells, hashes, decrements = int(row["m"]), int(row["K"]), int(row["P"])
        top, delta = int(row["Max"]), int(row["delta"])
        for gap, suffix in ((delta, "delta"), (delta - 1, "delta_minus_1")):
            gone = theory.zero_after(gap, hashes / cells, decrements / cells, top)
            assert gone == pytest.approx(float(row[f"PR0_eq3_13_{suffix}"]), rel=1e-8, abs=1e-12)
            missed = theory.false_negative_rate(gap, cells, hashes, decrements, top)
            assert missed == pytest.approx(float(row[f"FN_eq3_18_{suffix}"]), rel=1e-8, abs=1e-12)


def test_the_chain_is_equation_3_13_summed_as_printed() -> None:
    def tail(elements: int, p: float, top: int) -> float:
        return sum(
            math.comb(elements, j) * p**j * (1 - p) ** (elements - j) for j in range(top, elements + 1)
        )

    for gap, k, p, top in ((7, 0.02, 0.1, 3), (40, 0.01, 0.05, 1), (25, 0.05, 0.3, 7)):
        printed = sum(tail(n, p, top) * (1 - k) ** n * k for n in range(top, gap))
        printed += tail(gap, p, top) * (1 - k) ** gap
        assert theory.zero_after(gap, k, p, top) == pytest.approx(printed, rel=1e-10)


def test_the_chains_limit_is_equation_3_7() -> None:
    for case in SBF["limit_check"]:
        limit = theory.zero_after(10**5, case["k"], case["p"], case["Max"])
        assert limit == pytest.approx(case["eq3_7"], rel=1e-9)


def test_gaps_without_weight_are_refused() -> None:
    with pytest.raises(InvalidValue, match="weights above 0"):
        theory.expected_false_negatives([(5.0, 0.0)], 640, 2, 5, 1)
