"""The compared bytes of a batch are those that a run sends, and those that other programs need for the rows."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.errors import UsageError
from spillway.levers.attributes.plan import AROUND_SENT_BYTES
from spillway.lossless import csv_bytes
from spillway.streams.drafts import SENT
from spillway.streams.dry_run import Comparison, compare_with_lossless

LEVER: dict[str, Any] = {"lever": "attributes", "training": {"tuples": 2000}}
STREAM: dict[str, Any] = {**SITES, "frame": {"tuples": 65_536}, "levers": [LEVER]}
ROWS = 3000


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One stream, trained and shed once, with a batch of the next date taken in."""
    world = World.begin(ProcessEngine(), tmp_path_factory.mktemp("compared"), STREAM, capacity="20 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, ROWS)))
    world.shed()
    world.train("sites")
    world.shed()
    world.deliver("sites/2020-01-02/b.json", json_lines(sites(ROWS, ROWS)))
    from spillway.intake.ingest import ingest

    ingest(world.tables, world.engine, world.contracts.streams["sites"], "taken in")
    return world


@pytest.fixture(scope="module")
def compared(begun: World) -> Comparison:
    found = compare_with_lossless(begun.tables, begun.engine, begun.contracts, "sites")
    assert found is not None
    return found


def sizes_of(found: Comparison) -> dict[str, int]:
    return {size.form: size.bytes for size in found.sizes}


def paid_by_byte(world: World, **stated: Any) -> None:
    """State these settings in the stream's lever, on a wide channel that is paid by the byte."""
    attributes = [
        {name: value for name, value in one.items() if name != "error_pct"}
        if stated.get("error_pct") == 0
        else one
        for one in STREAM["attributes"]
    ]
    world.contract_becomes({**STREAM, "attributes": attributes, "levers": [{**LEVER, **stated}]})
    channels = {"narrow": {"capacity": "1 Gbps", "minimize": "bytes"}}
    (world.folder / "schemas" / "channels.yaml").write_text(yaml.safe_dump({"channels": channels}))
    world.contracts = load_contracts(world.folder / "schemas")


def crossed(world: World, batch: int) -> int:
    (row,) = [
        row
        for row in world.rows("ledger")
        if (row["batch"], row["stage"], row["unit"], row["dimension_kind"]) == (batch, SENT, "rows", "total")
    ]
    return int(row["bytes_kept"])


def test_gzip_and_xz_compress_the_delivered_rows(begun: World, compared: Comparison) -> None:
    rows = (
        begun.at("raw", "sites")
        .rows(batch=2)
        .sort_by("seq")
        .select([one["name"] for one in STREAM["attributes"]])
    )
    by_key = rows.sort_by([("site", "ascending"), ("at", "ascending")])
    assert rows.num_rows == ROWS
    texts = [csv_bytes(one) for one in (rows, by_key)]
    found = sizes_of(compared)
    assert found["gzip"] == min(len(gzip.compress(text, 9, mtime=0)) for text in texts)
    assert found["xz"] == min(
        len(lzma.compress(text, preset=preset)) for text in texts for preset in (9, 9 | lzma.PRESET_EXTREME)
    )


@pytest.mark.parametrize("form", ["exact", "bound"])
def test_compared_bytes_are_those_of_a_run_with_these_settings(
    begun: World, compared: Comparison, tmp_path: Path, form: str
) -> None:
    world = begun.copy(tmp_path)
    paid_by_byte(world, synopsis="send", **({"error_pct": 0} if form == "exact" else {}))
    world.shed()
    assert crossed(world, 2) == sizes_of(compared)[form]


def test_a_contract_of_no_error_sends_exact_synopses_in_fewer_bytes(begun: World, tmp_path: Path) -> None:
    world, whole = begun.copy(tmp_path / "exact"), begun.copy(tmp_path / "whole")
    paid_by_byte(world, synopsis="send", error_pct=0)
    paid_by_byte(whole, treatments=["keep"])
    for one in (world, whole):
        one.shed()
    ways = {
        row["dimension"]: row["shed"] for row in world.rows("ledger") if row["dimension_kind"] == "attribute"
    }
    assert any(ways.values()), "something is sent as a synopsis"
    assert crossed(world, 2) < crossed(whole, 2)
    world.validate("sites")
    names = ["seq", *(one["name"] for one in STREAM["attributes"])]
    back = world.at("recovered", "sites").rows(batch=2).sort_by("seq").select(names)
    assert back.equals(world.at("raw", "sites").rows(batch=2).sort_by("seq").select(names))


def test_exact_bytes_are_no_fewer_than_bytes_within_the_bounds(compared: Comparison) -> None:
    found = sizes_of(compared)
    assert found["bound"] < found["exact"]


def test_rivals_of_a_long_batch_get_its_first_rows(begun: World) -> None:
    found = compare_with_lossless(begun.tables, begun.engine, begun.contracts, "sites", most_rows=500)
    assert found is not None
    assert [size.rows for size in found.sizes] == [500, 500, 500, ROWS, ROWS]
    rows = begun.at("raw", "sites").rows(batch=2).sort_by("seq").slice(0, 500)
    one = rows.select([one["name"] for one in STREAM["attributes"]])
    two = one.sort_by([("site", "ascending"), ("at", "ascending")])
    assert sizes_of(found)["gzip"] == min(
        len(gzip.compress(csv_bytes(text), 9, mtime=0)) for text in (one, two)
    )


def test_a_stream_without_batches_has_nothing_to_compare(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, STREAM)
    assert compare_with_lossless(world.tables, world.engine, world.contracts, "sites") is None


def test_a_batch_that_is_not_there_is_refused(begun: World) -> None:
    with pytest.raises(UsageError, match=r"`batch` must be one of sites .* got 7"):
        compare_with_lossless(begun.tables, begun.engine, begun.contracts, "sites", 7)


def test_a_lever_that_drops_rows_is_left_out(tmp_path: Path) -> None:
    query = {"name": "warm", "where": "temp > 60"}
    sifted = {**STREAM, "levers": [{"lever": "sifters", "queries": [query]}]}
    world = World.begin(ProcessEngine(), tmp_path, sifted, capacity="1 kbps")
    world.deliver("sites/2020-01-01/a.json", json_lines(sites(0, 600)))
    world.shed()
    found = compare_with_lossless(world.tables, world.engine, world.contracts, "sites")
    assert found is not None
    assert [(size.form, size.rows) for size in found.sizes][3:] == [("exact", 600)]
    assert found.notes == ()


def test_first_estimate_of_a_file_of_synopses_is_near_its_size(begun: World, tmp_path: Path) -> None:
    """If the estimate is too high, a column is kept although its synopsis is smaller, and no draft corrects that."""
    world = begun.copy(tmp_path)
    paid_by_byte(world, synopsis="send", error_pct=0)
    world.shed()
    took = {row["batch"]: json.loads(row["state"])["around"] for row in world.rows("schemes")}
    assert AROUND_SENT_BYTES / 1.5 < took[2] < AROUND_SENT_BYTES * 1.25
    assert took[2] != AROUND_SENT_BYTES, "measured"
