"""The identifier from contract to recovered rows: keys first, by keys where nothing comes round, never shed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from evidence.attributes.lake import ENGINE, Lake
from spillway.batch import DONE
from spillway.contracts import StreamContract, read_channel, read_stream
from spillway.intake.ingest import ingest
from spillway.levers.attributes.cycle.identifier import single_sender_cycle
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.lever import LEVER
from spillway.levers.attributes.policy import measures_now, policy_of
from spillway.levers.attributes.training.train import cycle_of, detect_drift
from spillway.levers.protocol import CapacityShare, Fact, Facts, Load, Offer, open_questions
from spillway.store import blobs
from spillway.streams.facts import needed_facts, newest_facts

N = 1200


def contract(*attributes: dict[str, Any], **told: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "halls",
            "source": {"kind": "files", "path": "halls", "format": "json"},
            "attributes": list(attributes),
            "channel": "narrow",
            "rate": {"from": "declared", "tuples_per_second": 10},
            "frame": {"tuples": 200},
            "levers": [{"lever": "attributes", "training": {"tuples": 800}, **told}],
        }
    )


def attribute(name: str, kind: str, role: str = "measure", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "role": role, **more}


SITE, AT = attribute("site", "string", "key"), attribute("at", "integer", "order")
SENSOR, TEMP = attribute("sensor", "integer"), attribute("temp", "double", error_pct=2.0)
LOAD_PCT = attribute("load_pct", "double", error_pct=5.0)
HALLS = contract(SITE, AT, SENSOR, TEMP, LOAD_PCT)
"""The sensor under a site is declared a measure: it is part of the identifier all the same."""


def in_rounds(first: int, count: int) -> list[dict[str, Any]]:
    """Three sites of four sensors each, in turn; what is measured leans on the sensor's number."""
    i = np.arange(first, first + count)
    rng = np.random.default_rng(first)
    load_pct = rng.uniform(30, 90, count)
    temp = 20 + 7 * (i % 4) + load_pct / 2 + rng.normal(0, 0.05, count)
    return [
        {
            "site": f"hall {k % 12 // 4}", "at": int(k // 12), "sensor": int(k % 4), "temp": round(float(t), 2),
            "load_pct": round(float(load), 2),
        }
        for k, t, load in zip(i.tolist(), temp, load_pct, strict=True)
    ]  # fmt: skip


def at_random(first: int, count: int) -> list[dict[str, Any]]:
    """The same, whenever a sensor likes."""
    rounds = in_rounds(0, first + count)
    places = np.random.default_rng(5).integers(0, first + count, first + count)[first:]
    return [{**rounds[place], "at": first + k} for k, place in enumerate(places.tolist())]


def brought_through(one: StreamContract, rows: Callable[[int, int], list[dict[str, Any]]]) -> Lake:
    """Two days through a channel of a third of the rate: taken in, trained, shed and recovered."""
    lines = {
        f"2020-01-0{day + 1}/a.json": "".join(json.dumps(row) + "\n" for row in rows(day * N, N)).encode()
        for day in range(2)
    }
    lake = Lake.land("identifier", {one.stream: one}, {one.stream: lines})
    kbps = lake.loads(one.stream)[0].rate_kbps / 3
    lake = lake.with_channels({"narrow": read_channel("narrow", {"capacity": f"{kbps!r} kbps"})})
    lake.train()
    lake.shed()
    return lake


@pytest.fixture
def lakes() -> Iterator[list[Lake]]:
    """Lakes to be forgotten in the end."""
    made: list[Lake] = []
    yield made
    for lake in made:
        lake.forget()


def learned(lake: Lake) -> TrainedFacts:
    facts = newest_facts(lake.tables, "halls", "attributes")
    assert facts is not None
    return TrainedFacts.from_facts(facts)


def assert_all_given_back(lake: Lake) -> None:
    raw, given = lake.rows("raw", "halls"), lake.rows("recovered", "halls")
    assert [batch.status for batch in lake.batches("halls")] == [DONE, DONE]
    for name in ("seq", "site", "at", "sensor"):
        assert given[name].to_pylist() == raw[name].to_pylist(), name
    for name, bound in (("temp", 0.02), ("load_pct", 0.05)):
        true, back = (np.asarray(rows[name], dtype=np.float64) for rows in (raw, given))
        assert (np.abs(back - true) <= bound * np.abs(true) * (1 + 1e-12)).all(), name


def test_a_measure_that_is_part_of_the_identifier_is_never_shed_and_the_rest_comes_back(
    lakes: list[Lake],
) -> None:
    lakes.append(lake := brought_through(HALLS, in_rounds))
    known = learned(lake)
    assert known.cycle.attributes == ("site", "sensor")
    assert set(known.models) == set(known.options) == {"temp", "load_pct"}
    leaning = {name for model in known.models.values() for p in model.predictors for name in p.regressors}
    assert "sensor" in leaning, "the trap is set: part of the identifier, and foretelling a measure that goes"
    shed = {
        way["attribute"]
        for row in lake.tables.at("schemes").rows().to_pylist()
        for way in row["attributes"]
        if way["treatment"] == "shed"
    }
    assert shed
    assert "sensor" not in shed
    assert lake.rows("transmitted", "halls")["sensor"].null_count == 0
    assert_all_given_back(lake)


def test_a_stream_with_keys_and_no_order_is_trained_shed_and_given_back_by_its_keys(
    lakes: list[Lake],
) -> None:
    keyed = contract(SITE, AT, attribute("sensor", "integer", "key"), TEMP, LOAD_PCT)
    lakes.append(lake := brought_through(keyed, at_random))
    cycle = learned(lake).cycle
    assert (cycle.attributes, cycle.form, cycle.members) == (("site", "sensor"), "by keys", ())
    ways = [way for row in lake.tables.at("schemes").rows().to_pylist() for way in row["attributes"]]
    assert any(way["treatment"] == "shed" for way in ways)
    assert_all_given_back(lake)
    facts = newest_facts(lake.tables, "halls", "attributes")
    assert facts is not None
    later = lake.rows("raw", "halls")
    seen = detect_drift(
        keyed, facts, lambda columns, count: later.select(["seq", *columns]).slice(later.num_rows - count)
    )
    assert not [one for one in seen if one.rule == "the_cycle_still_holds"], "no order was promised"


def test_the_next_training_may_find_another_identifier_while_the_last_ones_batches_are_given_back(
    lakes: list[Lake],
) -> None:
    """The first day goes by site and sensor, the second by the site alone, and there the sensor may go."""
    lakes.append(lake := brought_through(HALLS, in_rounds))
    only_sites = contract(SITE, AT, SENSOR, TEMP, LOAD_PCT, cycle={"attributes": ["site"]})
    again = lake.with_contract(only_sites)
    again.train()
    rows = "".join(json.dumps(row) + "\n" for row in in_rounds(2 * N, N)).encode()
    blobs.write_bytes(f"{lake.settings.landing}/halls/2020-01-03/a.json", rows)
    ingest(again.tables, ENGINE, only_sites, "later")
    again.shed()
    assert learned(again).cycle.attributes == ("site",)
    assert "sensor" in learned(again).models
    batches = again.batches("halls")
    assert [batch.models["attributes"] for batch in batches] == [1, 1, 2]
    facts = needed_facts(again.tables, "halls", "attributes", [1, 2])
    whole = LEVER.load_decision(only_sites, batches, facts, again.tables)
    assert whole.keys == {1: ("site", "sensor"), 2: ("site",)}
    raw, given = again.rows("raw", "halls"), again.rows("recovered", "halls")
    assert given["seq"].to_pylist() == raw["seq"].to_pylist()
    true, back = (np.asarray(rows["temp"], dtype=np.float64) for rows in (raw, given))
    assert (np.abs(back - true) <= 0.02 * np.abs(true) * (1 + 1e-12)).all()


def test_planner_and_offer_leave_out_an_identifier_that_the_contract_lists_as_a_measure_after_training(
    lakes: list[Lake],
) -> None:
    lakes.append(
        lake := brought_through(
            contract(SITE, AT, attribute("sensor", "integer", "key"), TEMP, LOAD_PCT), in_rounds
        )
    )
    facts = newest_facts(lake.tables, "halls", "attributes")
    assert facts is not None
    # facts of a training that knew the sensor as a measure, and of one that found it in the cycle, mixed
    model = facts.facts[("attribute", "temp")]
    mixed = Facts(
        facts.version,
        {
            **facts.facts,
            ("attribute", "sensor"): replace(model, subject="sensor"),
            ("options", "sensor"): replace(facts.facts[("options", "temp")], subject="sensor"),
        },
    )
    known = TrainedFacts.from_facts(mixed)
    assert "sensor" in HALLS.sheddable
    assert "sensor" in known.cycle.attributes
    load = Load(dict.fromkeys(HALLS.names, 32.0), 10.0)
    channel = lake.contracts.channels[HALLS.channel]
    policy = policy_of(HALLS, channel, known, load, CapacityShare(load.rate_kbps / 2))
    assert set(policy.attributes) == set(measures_now(HALLS, known)) == {"temp", "load_pct"}
    offer = LEVER.update_offer(Offer(load.rate_kbps, load), HALLS, channel, mixed, None)
    # a choice for each of the two, first to keep it as wide as it is
    assert [item[0].crosses for item in offer.items] == [0.32, 0.32]
    assert all(len(item) > 1 for item in offer.items)


def test_what_the_contract_states_as_identifier_after_training_is_not_shed_either(lakes: list[Lake]) -> None:
    lakes.append(lake := brought_through(HALLS, in_rounds))
    stated = contract(SITE, AT, SENSOR, TEMP, LOAD_PCT, cycle={"attributes": ["site", "temp"]})
    assert measures_now(stated, learned(lake)) == ("load_pct",)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{"seq": k, **row} for k, row in enumerate(rows)])


def test_a_stream_without_a_key_and_without_an_order_is_one_senders_and_what_may_be_a_name_is_asked_for() -> (
    None
):
    keyless = contract(attribute("site", "string", "protected"), AT, SENSOR, TEMP, LOAD_PCT)
    cycle, evidence = cycle_of(keyless, table(at_random(0, N)))
    assert (cycle.attributes, cycle.form, cycle.length) == ((), "one sender", 1)
    (question,) = open_questions(Facts(1, {("cycle", ""): Fact("cycle", "", cycle.to_dict(), evidence)}))
    assert "though site may tell several apart" in question.sentence
    assert "role: key in schemas/streams/" in question.remedy


def test_nothing_is_asked_where_all_is_measured_or_one_sender_is_stated() -> None:
    measured = contract(AT, SENSOR, TEMP, LOAD_PCT)
    assert cycle_of(measured, table(at_random(0, N)))[1].keys() == {"closest", "reason"}
    stated = contract(attribute("site", "string", "protected"), AT, SENSOR, TEMP, cycle={"attributes": []})
    assert cycle_of(stated, table(in_rounds(0, N))) == (single_sender_cycle(), {}), (
        "though the sites come round"
    )
