"""What later tuples say of the facts in force, from hand-made facts and tuples, with the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.levers.attributes import facts as kinds
from spillway.levers.attributes.cycle.identifier import declared_cycle
from spillway.levers.attributes.frames import key_codes
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.threshold.curve import curve, fixed_point
from spillway.levers.attributes.training.train import detect_drift
from spillway.levers.protocol import Fact, Facts

SITES = ["a", "b", "c", "d"]


@pytest.fixture
def contract() -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "temp", "type": "double"},
            ],
        }
    )


def tuples(turns: int, sites: Sequence[str] = SITES, step: float = 0.01) -> pa.Table:
    """Sites in turn, each with a temperature that wanders by `step` of itself."""
    rows = turns * len(sites)
    wander = 1.0 + step * np.random.default_rng(7).standard_normal(rows)
    return pa.table(
        {
            "seq": np.arange(rows),
            "site": list(sites) * turns,
            "at": np.arange(rows),
            "temp": 50.0 * np.cumprod(np.where(np.arange(rows) % 9 == 0, wander, 1.0)),
        }
    )


def learned(rows: pa.Table, source: str = "fixed_point") -> Facts:
    cycle = declared_cycle(
        {"site": rows["site"].to_pylist(), "at": rows["at"].to_pylist()},
        np.asarray(rows["seq"]),
        ["site"],
        order="at",
    )
    point = fixed_point(curve(np.asarray(rows["temp"]), key_codes(rows, ["site"])))
    found = [
        Fact(kinds.CYCLE, "", cycle.to_dict()),
        Fact(kinds.THRESHOLD, "temp", {"error_pct": point, "source": source}, {"fixed_point_pct": point}),
    ]
    return Facts(1, {(one.fact, one.subject): one for one in found})


def seen(contract: StreamContract, facts: Facts, later: pa.Table) -> dict[str, str]:
    def edge(columns: Sequence[str], count: int) -> pa.Table:
        return later.select(["seq", *columns]).slice(max(0, later.num_rows - count))

    return {one.rule: one.sentence for one in detect_drift(contract, facts, edge)}


def test_tuples_like_those_of_training_are_nothing_to_notice(contract: StreamContract) -> None:
    rows = tuples(200)
    assert seen(contract, learned(rows), rows) == {}


def test_a_member_that_is_gone_asks_for_retraining(contract: StreamContract) -> None:
    found = seen(contract, learned(tuples(200)), tuples(200, ["a", "b", "x", "y"]))
    assert found["the_cycle_still_holds"].startswith("net: ")
    assert found["the_cycle_still_holds"].endswith("; retrain it")


def test_a_fixed_point_that_has_moved_is_told_with_both_numbers(contract: StreamContract) -> None:
    facts = learned(tuples(200, step=0.01))
    found = seen(contract, facts, tuples(200, step=0.3))
    was = facts.facts[kinds.THRESHOLD, "temp"].evidence["fixed_point_pct"]
    sentence = found["the_thresholds_still_hold"]
    assert sentence.startswith(f"net: temp was trained to a fixed point of {was:g} %, later tuples have ")
    assert sentence.endswith("retrain it, or state error_pct in the contract")


@pytest.mark.parametrize("source", ["contract", "category"])
def test_a_threshold_that_the_fixed_point_did_not_set_is_not_held_to_it(
    contract: StreamContract, source: str
) -> None:
    found = seen(contract, learned(tuples(200), source), tuples(200, step=0.3))
    assert "the_thresholds_still_hold" not in found


def test_an_attribute_that_the_contract_has_lost_is_a_sentence(contract: StreamContract) -> None:
    facts = learned(tuples(200))
    lost: dict[tuple[str, str], Any] = dict(facts.facts)
    lost[kinds.THRESHOLD, "gone"] = Fact(
        kinds.THRESHOLD, "gone", {"source": "fixed_point"}, {"fixed_point_pct": 1.0}
    )
    assert seen(contract, Facts(1, lost), tuples(200)) == {
        "the_attributes_are_those_trained": "net: gone is gone from the contract, and it was trained; retrain it"
    }


def test_a_lost_key_is_a_sentence_and_no_crash(contract: StreamContract) -> None:
    attributes = tuple(
        replace(one, name="place") if one.name == "site" else one for one in contract.attributes
    )
    renamed, rows = replace(contract, attributes=attributes), tuples(200)
    later = rows.rename_columns(["seq", "place", "at", "temp"])
    assert seen(renamed, learned(rows), later) == {
        "the_attributes_are_those_trained": "net: site is gone from the contract, and it makes the cycle site; "
        "retrain it"
    }


def test_an_attribute_of_another_type_is_a_sentence(contract: StreamContract) -> None:
    rows = tuples(200)
    facts = dict(learned(rows).facts)
    facts[kinds.MODEL, "temp"] = Fact(kinds.MODEL, "temp", AttributeModel("temp", "integer", 1.0).to_dict())
    found = seen(contract, Facts(1, facts), rows)["the_attributes_are_those_trained"]
    assert found.startswith("net: temp is double in the contract and was trained as integer")


def test_no_tuple_says_nothing(contract: StreamContract) -> None:
    rows = tuples(200)
    assert seen(contract, learned(rows), rows.slice(0, 0)) == {}


def test_an_identifier_that_left_the_contract_asks_for_retraining_by_name() -> None:
    rows = tuples(200)
    moved = read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "station", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "temp", "type": "double"},
            ],
        }
    )
    found = seen(moved, learned(rows), rows.rename_columns(["seq", "station", "at", "temp"]))
    assert found == {
        "the_attributes_are_those_trained": "net: site is gone from the contract, and it makes the cycle site; "
        "retrain it"
    }
