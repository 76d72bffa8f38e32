"""The whole path on known data: what went in, what was sent, what came back, checked by pandas from raw."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.pipeline import streams
from tests.pipeline.streams import METERS, World, brought_through, meters

from spillway.batch import DONE, UNTRAINED
from spillway.engine import ProcessEngine
from spillway.ledger import consecutive_totals, total_imbalance
from spillway.store.files import column_bytes
from spillway.store.schemas import BOUND_SUFFIX
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up

STREAMS = ("sites", "meters")


def shedding_text(contract: dict[str, Any]) -> dict[str, Any]:
    """Return the contract with frames so long that the synopsis of a text takes fewer bytes than the column does.

    The text goes first, so that other measures are kept, rounded or shed.
    """
    attributes = [{**a, "priority": 0.01} if a["name"] == "sky" else a for a in contract["attributes"]]
    return {**contract, "attributes": attributes, "frame": {"tuples": 400}}


sites = partial(streams.sites, turns_of_sky=20)
SITES, WATCHED = (shedding_text(contract) for contract in (streams.SITES, streams.WATCHED))
DELIVERED: dict[str, Any] = {"sites": sites(0, 710), "meters": meters(0, 440), "watched": sites(0, 300)}
SEQ = {"meters": [*range(1, 351), *range(352, 442)]}
"""A header has its number too."""
CONTRACTS: dict[str, Any] = {"sites": SITES, "meters": METERS, "watched": WATCHED}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A lake whose channel is so narrow that values of each type are shed, and others are rounded."""
    folder = tmp_path_factory.mktemp("path")
    return brought_through(ProcessEngine(), folder, (SITES, METERS, WATCHED), "7 kbps", sites)


def measures(stream: str) -> dict[str, float]:
    """The bound of every measure; text is exact."""
    stated = CONTRACTS[stream]["attributes"]
    return {a["name"]: a.get("error_pct", 0.0) for a in stated if a["role"] == "measure"}


def ways(world: World, stream: str, attribute: str, seq: pd.Series) -> np.ndarray:
    """How every tuple's value travels, told from the rows of `schemes` one by one."""
    found = np.full(len(seq), "none", dtype=object)
    for row in world.rows("schemes"):
        if row["stream"] == stream:
            (way,) = [w["treatment"] for w in row["attributes"] if w["attribute"] == attribute]
            found[(seq >= row["from_seq"]) & (seq <= row["to_seq"])] = way
    return found


def same(left: pd.Series, right: pd.Series) -> np.ndarray:
    """Equal values, or both null."""
    return np.asarray((left.isna() & right.isna()) | (left == right).fillna(False), bool)


def error_pct(given: pd.Series, truth: pd.Series) -> np.ndarray:
    """Relative errors in per cent; infinite where one is null and the other is not, or where 0 or a text is missed."""
    errors = np.where(same(given, truth), 0.0, np.inf)
    if pd.api.types.is_numeric_dtype(truth):
        right = truth.to_numpy(np.float64, na_value=np.nan)
        found = given.to_numpy(np.float64, na_value=np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.abs(found - right) / np.abs(right) * 100.0
        errors = np.where((errors > 0) & np.isfinite(relative), relative, errors)
    return errors


def test_an_untrained_stream_is_taken_in_reported_and_waits(world: World) -> None:
    assert world.noted["untrained"] == ([UNTRAINED], {})
    assert "sites: untrained (attributes), 330 tuples wait; spillway_train trains it" in world.said
    assert [b.status for b in world.batches("sites")] == [DONE, DONE, DONE]


@pytest.mark.parametrize("stream", [*STREAMS, "watched"])
def test_raw_is_what_was_delivered_value_for_value(world: World, stream: str) -> None:
    raw = world.frame("raw", stream)
    delivered = pd.DataFrame(DELIVERED[stream])
    delivered["at"] = pd.to_datetime(delivered["at"], utc=True)
    assert raw["seq"].tolist() == SEQ.get(stream, list(range(len(delivered))))
    for name in delivered:
        assert same(raw[name], delivered[name].astype(raw[name].dtype)).all(), name


@pytest.mark.parametrize("stream", [*STREAMS, "watched"])
def test_every_tuple_is_sent_once_and_null_exactly_where_its_scheme_sheds(world: World, stream: str) -> None:
    raw, sent = world.frame("raw", stream), world.frame("transmitted", stream)
    for name in ("seq", "batch", "batch_date", "at", raw.columns[3]):
        assert same(raw[name], sent[name]).all(), name
    for name, bound in measures(stream).items():
        way = ways(world, stream, name, raw["seq"])
        assert set(way) <= {"keep", "round", "shed"}
        assert sent[name][way == "shed"].isna().all()
        assert same(sent[name], raw[name])[way == "keep"].all()
        rounded = error_pct(sent[name], raw[name])[way == "round"]
        assert (rounded <= bound).all()


def test_real_whole_and_text_values_were_all_shed_so_that_the_rest_means_something(world: World) -> None:
    shed = {
        (stream, name): int((ways(world, stream, name, world.frame("raw", stream)["seq"]) == "shed").sum())
        for stream in STREAMS
        for name in measures(stream)
    }
    kinds = {
        "temp": "real",
        "level": "real",
        "pulses": "whole",
        "sky": "text",
        "power": "real",
        "count": "whole",
    }
    assert {kinds[name] for (_, name), count in shed.items() if count} == {"real", "whole", "text"}, shed


@pytest.mark.parametrize("stream", STREAMS)
def test_every_recovered_value_keeps_its_promise(world: World, stream: str) -> None:
    raw, given = world.frame("raw", stream), world.frame("recovered", stream)
    assert given["seq"].tolist() == raw["seq"].tolist()
    for name, bound in measures(stream).items():
        errors = error_pct(given[name], raw[name])
        assert errors.max() <= bound, (name, raw[errors > bound])
        way, stated = ways(world, stream, name, raw["seq"]), given[name + BOUND_SUFFIX]
        # of text, nulls and zeros nothing is rounded
        rounded = (
            (way == "round")
            & given[name].notna().to_numpy()
            & (raw[name] != 0).to_numpy(bool, na_value=False)
        )
        inexact = (way == "shed") | (rounded & (bound > 0))
        assert (stated.notna() == inexact).all()
        promised = stated[inexact].to_numpy(np.float64)
        assert (promised <= bound).all()
        assert (errors[inexact] <= promised).all()
        assert (errors[~inexact] == 0).all()


def test_certificates_say_what_pandas_finds(world: World) -> None:
    certificates = world.frame("certificates")
    assert len(certificates) == 3 * 4 + 2 * 2 + 1 * 4
    assert (certificates["violations"] == 0).all()
    for row in certificates.to_dict("records"):
        raw, given = world.frame("raw", row["stream"]), world.frame("recovered", row["stream"])
        mine = (raw["batch"] == row["batch"]).to_numpy(bool)
        way = ways(world, row["stream"], row["attribute"], raw["seq"])[mine]
        errors = error_pct(given[row["attribute"]], raw[row["attribute"]])[mine]
        assert row["shed_values"] == (way == "shed").sum()
        assert row["rounded_values"] == (way == "round").sum()
        touched = way != "keep"
        if touched.any():
            assert row["max_error_pct"] == pytest.approx(errors[touched].max(), abs=1e-12)
            assert row["worst_over_threshold"] <= 1.0


def test_every_expectation_held(world: World) -> None:
    validations = world.frame("validations")
    assert len(validations) > 50
    assert validations["success"].all()


def total(row: dict[str, Any], unit: str) -> bool:
    return bool(row["dimension_kind"] == "total" and row["unit"] == unit)


def test_the_ledger_balances_and_every_stage_is_offered_what_the_last_one_kept(world: World) -> None:
    ledger = world.rows("ledger")
    assert total_imbalance(ledger) == 0
    assert len(list(consecutive_totals(ledger))) == 2 * 6 + 6, (
        "two steps of rows and one of values, six batches"
    )
    for stream, delivered in DELIVERED.items():
        mine = [row for row in ledger if row["subject"] == stream]
        for batch in world.batches(stream):
            way = [row for row in mine if row["batch"] == batch.batch and total(row, "rows")]
            assert [row["stage"] for row in way] == ["intake", "attributes", "sent"]
            assert [row["kept"] for row in way] == [batch.rows] * 3
        assert sum(row["kept"] for row in mine if total(row, "rows") and row["stage"] == "intake") == len(
            delivered
        )


def test_the_ledger_says_of_every_attribute_what_the_tables_say(world: World) -> None:
    lines = [row for row in world.rows("ledger") if row["dimension_kind"] == "attribute"]
    assert len(lines) == 6 * 4 + 4 * 2
    for row in lines:
        if row["dimension"] not in measures(row["subject"]):
            assert (row["shed"], row["rounded"], row["kept"]) == (0, 0, row["offered"])
            continue
        raw = world.frame("raw", row["subject"])
        mine = raw["batch"] == row["batch"]
        way = ways(world, row["subject"], row["dimension"], raw["seq"][mine])
        assert (row["offered"], row["shed"], row["rounded"]) == (
            len(way),
            (way == "shed").sum(),
            (way == "round").sum(),
        )
        assert (row["bytes_source"] > 0) == (row["shed"] > 0)


def test_a_file_delivered_under_two_names_is_taken_in_once_and_counted(world: World) -> None:
    again = [row for row in world.rows("ledger") if row["reason"] == "file delivered before"]
    assert [(row["subject"], row["batch"], row["offered"], row["deduplicated"]) for row in again] == [
        ("sites", 2, 330, 330)
    ]
    assert [(f.name, f.status) for f in world.batches("sites")[1].files] == [
        ("sites/2020-01-01/again.json", "duplicate"),
        ("sites/2020-01-01/b.json", "ingested"),
    ]


def test_what_is_sent_fits_the_channel_or_the_shortfall_is_on_record(world: World) -> None:
    schemes = world.frame("schemes")
    for stream in STREAMS:
        for batch in world.batches(stream):
            where = {"batch_date": batch.batch_date, "batch": batch.batch}
            files = world.at("transmitted", stream).files(**where)
            sent = sum(column_bytes(files, ["seq", *world.contracts.streams[stream].names]).values())
            assert batch.seconds_covered
            assert batch.capacity_kbps
            sent_kbps = sent * 8 / 1000 / batch.seconds_covered
            mine = schemes[(schemes["stream"] == stream) & (schemes["batch"] == batch.batch)]
            assert sent_kbps <= batch.capacity_kbps or (mine["shortfall_kbps"] > 0).all(), batch
    # batches of one run share the channel
    first = [world.batches(stream)[0].capacity_kbps or 0.0 for stream in STREAMS]
    assert sum(first) == pytest.approx(world.contracts.channels["narrow"].capacity_kbps)


def test_a_stream_that_is_observed_loses_nothing_and_says_what_it_would_lose(world: World) -> None:
    raw, sent, given = (world.frame(table, "watched") for table in ("raw", "transmitted", "recovered"))
    for name in CONTRACTS["watched"]["attributes"]:
        assert same(sent[name["name"]], raw[name["name"]]).all()
        assert same(given[name["name"]], raw[name["name"]]).all()
    assert set(sent["scheme"]) == {0}
    mine = [row for row in world.rows("schemes") if row["stream"] == "watched"]
    assert any("would be shed" in way["reason"] for row in mine for way in row["attributes"])
    assert not [row for row in world.rows("synopsis") if row["stream"] == "watched"]
    assert not [row for row in world.rows("ledger") if row["subject"] == "watched" and row["shed"]]


@pytest.mark.parametrize(
    ("stream", "asked", "chosen"),
    [
        ("sites", {}, lambda rows: rows["seq"] >= 0),
        ("sites", {"from_seq": 295, "to_seq": 335}, lambda rows: rows["seq"].between(295, 335)),
        (
            "sites",
            {"key": ["site=site-3"], "attributes": "temp,sky"},
            lambda rows: rows["site"] == "site-3",
        ),
        (
            "sites",
            {
                "from_time": "2026-01-01T01:10:00",
                "to_time": "2026-01-01T06:12:00+05:00",
                "key": ["site=site-0"],
            },
            lambda rows: (
                (rows["site"] == "site-0") & rows["at"].between("2026-01-01T01:10Z", "2026-01-01T01:12Z")
            ),
        ),
        (
            "meters",
            {"from_seq": 340, "to_seq": 360, "attributes": ["count"]},
            lambda rows: rows["seq"].between(340, 360),
        ),
    ],
)
def test_a_point_look_up_gives_what_recovering_the_whole_range_gives(
    world: World, stream: str, asked: dict[str, Any], chosen: Any
) -> None:
    whole, contract = world.frame("recovered", stream), world.contracts.streams[stream]
    wanted = whole[chosen(whole)].reset_index(drop=True)
    question = StreamQuery.parse(contract, **asked)
    found = look_up(world.tables, contract, question)
    assert 0 < len(wanted) == found.rows.num_rows
    assert found.frames > 0
    assert found.synopsis_bytes_read > 0
    kinds = {found.rows.schema.field("seq").type: pd.Int64Dtype()}
    given = found.rows.to_pandas(types_mapper=kinds.get)
    shown = question.attributes or list(measures(stream))
    for name in ("seq", *shown, *(name + BOUND_SUFFIX for name in shown)):
        assert same(given[name], wanted[name].astype(given[name].dtype, errors="ignore")).all(), name
