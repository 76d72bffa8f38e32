"""Streams that nobody would choose: the run succeeds, or names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.streams import World, attribute, json_lines

from spillway.batch import DONE, INGESTED, UNTRAINED
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.levers.protocol import Facts, open_questions
from spillway.pipeline.pending import is_pending
from spillway.streams.facts import newest_facts


def contract(
    stream: str, *attributes: dict[str, Any], told: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A stream of key and order and these measures, on the channel `narrow`; `told`: more for the lever."""
    both = [
        attribute("key", "string", "key", nullable=False),
        attribute("at", "integer", "order", nullable=False, unit="s"),
    ]
    return {
        "stream": stream,
        "source": {"kind": "files", "path": stream, "format": "json"},
        "attributes": [*both, *attributes],
        "channel": "narrow",
        "rate": {"from": "declared", "tuples_per_second": 10},
        "levers": [{"lever": "attributes", "training": {"tuples": 100}, **(told or {})}],
        **more,
    }


SINGLE = contract("single", attribute("value", "double"))
MEASURES = (attribute("nothing", "double"), attribute("same", "double"), attribute("word", "string"))
FLAT = contract("flat", *MEASURES, told={"cycle": {"attributes": ["key"]}})
LONE = contract("lone", attribute("value", "double", error_pct=10.0))
UNTIMED = contract("untimed", attribute("value", "double"), rate={"from": "event_time"}, channel="other")


def turns(first: int, count: int, keys: int = 4, **more: Any) -> list[dict[str, Any]]:
    """A sine a key; the order attribute stands still for five tuples and then falls back."""
    return [
        {
            "key": f"k{i % keys}",
            "at": 100 - i // 5 % 7,
            "value": round(10 + i % keys + float(np.sin(i / 9)), 3),
            **more,
        }
        for i in range(first, first + count)
    ]


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Three streams on a channel of one bit per second, taken in, trained where that can be, shed and validated."""
    world = World.begin(
        ProcessEngine(),
        tmp_path_factory.mktemp("awkward"),
        SINGLE,
        FLAT,
        LONE,
        UNTIMED,
        capacity="0.001 kbps",
    )
    world.deliver("single/2020-01-01/a.json", json_lines(turns(0, 1)))
    flat = [{"key": f"k{i}", "at": i, "nothing": None, "same": 7.25, "word": "so"} for i in range(6)]
    world.deliver("flat/2020-01-01/a.json", json_lines(flat))
    world.deliver("lone/2020-01-01/a.json", json_lines(turns(0, 120)))
    world.shed()
    with pytest.raises(SpillwayError) as problem:
        world.train("single")
    world.noted["single"] = str(problem.value)
    world.train("flat", "lone")
    world.shed()
    world.validate()
    return world


def test_a_stream_of_one_tuple_cannot_be_trained_and_says_why(awkward: World) -> None:
    assert "single: training must have at least two tuples, got 1; deliver more" in awkward.noted["single"]
    assert [b.status for b in awkward.batches("single")] == [UNTRAINED]


def test_one_turn_of_constants_and_nulls_comes_back(awkward: World) -> None:
    assert [b.status for b in awkward.batches("flat")] == [DONE]
    given = awkward.frame("recovered", "flat")
    assert given["same"].tolist() == [7.25] * 6
    assert given["word"].tolist() == ["so"] * 6
    assert given["nothing"].isna().all()
    certificates = [row for row in awkward.rows("certificates") if row["stream"] == "flat"]
    assert {row["attribute"] for row in certificates} == {"nothing", "same", "word"}
    assert {row["violations"] for row in certificates} == {0}


def test_a_cycle_that_turned_only_once_is_none_and_the_declared_key_identifies(
    awkward: World, tmp_path: Path
) -> None:
    world = awkward.copy(tmp_path)
    world.contract_becomes(SINGLE, contract("flat", *MEASURES), LONE, UNTIMED, capacity="0.001 kbps")
    world.train("flat")
    facts = [row for row in world.rows("models") if row["stream"] == "flat" and row["fact"] == "cycle"]
    cycle = json.loads(max(facts, key=lambda row: row["version"])["value"])
    assert (cycle["attributes"], cycle["form"], cycle["length"]) == (["key"], "by keys", 6)


def test_a_cycle_that_turned_only_once_and_no_key_is_one_senders_and_asks_for_the_key(
    awkward: World, tmp_path: Path
) -> None:
    world = awkward.copy(tmp_path)
    keyless = contract("flat", *MEASURES)
    keyless["attributes"][0] = attribute("key", "string", "protected", nullable=False)
    world.contract_becomes(SINGLE, keyless, LONE, UNTIMED, capacity="0.001 kbps")
    world.train("flat")
    facts = newest_facts(world.tables.now(), "flat", "attributes")
    assert facts is not None
    assert (facts.value("cycle")["attributes"], facts.value("cycle")["form"]) == ([], "one sender")
    (question,) = open_questions(Facts(1, {("cycle", ""): facts.facts["cycle", ""]}))
    assert "though key may tell several apart" in question.sentence
    assert "role: key in schemas/streams/flat.yaml" in question.remedy


def test_a_channel_narrower_than_the_key_sheds_all_it_may_and_records_the_shortfall(awkward: World) -> None:
    rows = [row for row in awkward.rows("schemes") if row["stream"] == "lone"]
    assert rows
    (batch,) = awkward.batches("lone")
    assert batch.seconds_covered
    ledger = [row for row in awkward.rows("ledger") if (row["subject"], row["stage"]) == ("lone", "sent")]
    (sent_bytes,) = [row["bytes_kept"] for row in ledger if row["unit"] == "rows"]
    for row in rows:
        assert [way["treatment"] for way in row["attributes"]] == ["shed"]
        more = max(row["planned_kbps"], 8 * sent_bytes / 1000 / batch.seconds_covered)
        assert row["shortfall_kbps"] == pytest.approx(more - row["capacity_kbps"])
        assert row["shortfall_kbps"] > 0
        assert "kbps too much remain, nothing more may be shed" in row["reason"]
    sent = awkward.frame("transmitted", "lone")
    assert sent["value"].isna().all()
    assert sent["key"].notna().all()
    assert sent["at"].notna().all()


def test_an_order_that_repeats_and_goes_back_changes_nothing(awkward: World) -> None:
    raw, given = awkward.frame("raw", "lone"), awkward.frame("recovered", "lone")
    assert (raw["at"].diff() < 0).any()
    assert (raw["at"].diff() == 0).any()
    assert (given["at"] == raw["at"]).all()
    assert ((given["value"] - raw["value"]).abs() <= 0.1 * raw["value"].abs()).all()


def test_a_batch_whose_rate_cannot_be_known_waits_by_name_and_stops_nobody(
    awkward: World, tmp_path: Path
) -> None:
    world = awkward.copy(tmp_path)
    beside = {**UNTIMED, "stream": "beside", "source": {**UNTIMED["source"], "path": "beside"}}
    world.contract_becomes(
        SINGLE, FLAT, LONE, UNTIMED, {**beside, "mode": "observe", "levers": []}, capacity="1 kbps"
    )
    one_moment = [{"key": f"k{i % 4}", "at": 5, "value": float(i)} for i in range(40)]
    world.deliver("untimed/2020-01-01/a.json", json_lines(one_moment))
    world.deliver("beside/2020-01-01/a.json", json_lines(turns(0, 60)))
    world.shed("other")
    world.train("untimed")
    world.shed("other")
    assert any("untimed: batch 1: its rate is not known: it waits" in said for said in world.said)
    assert [b.status for b in world.batches("beside")] == [DONE]
    assert [b.status for b in world.batches("untimed")] == [INGESTED]
    assert not is_pending(world.contracts.streams["untimed"], world.tables)

    world.deliver(
        "untimed/2020-01-02/b.json", json_lines([{**row, "at": i} for i, row in enumerate(one_moment)])
    )
    world.shed("other")
    assert [(b.status, b.seconds_covered) for b in world.batches("untimed")] == [(DONE, 40.0), (DONE, 40.0)]


def test_new_keys_and_columns_that_come_and_go_are_borne(awkward: World, tmp_path: Path) -> None:
    world = awkward.copy(tmp_path)
    gained = contract("lone", attribute("value", "double", error_pct=10.0), attribute("extra", "integer"))
    world.contract_becomes(SINGLE, FLAT, gained, UNTIMED, capacity="0.001 kbps")
    world.deliver("lone/2020-01-02/b.json", json_lines(turns(120, 60, keys=7, extra=3)))
    world.shed()
    raw, sent = world.frame("raw", "lone"), world.frame("transmitted", "lone")
    assert set(raw["key"][120:]) - set(raw["key"][:120]) == {"k4", "k5", "k6"}
    assert sent["extra"].tolist()[120:] == [3] * 60, "what no training knows is kept"
    assert sent["extra"][:120].isna().all()

    lost = contract("lone", attribute("extra", "integer"))
    world.contract_becomes(SINGLE, FLAT, lost, UNTIMED, capacity="0.001 kbps")
    world.deliver(
        "lone/2020-01-03/c.json", json_lines([{"key": "k1", "at": i, "extra": i} for i in range(20)])
    )
    world.shed()
    world.validate("lone")
    given, raw = world.frame("recovered", "lone"), world.frame("raw", "lone")
    assert given["seq"].tolist() == list(range(200))
    assert raw["value"][180:].isna().all()
    assert given["extra"].tolist()[120:] == [3] * 60 + list(range(20))
    # what was sent before the contract lost it is still owed
    assert ((given["value"] - raw["value"])[:180].abs() <= 0.1 * raw["value"][:180].abs()).all()
    certificates = [row for row in world.rows("certificates") if row["stream"] == "lone"]
    assert sorted({row["batch"] for row in certificates}) == [1, 2, 3]
    assert {row["violations"] for row in certificates} == {0}
