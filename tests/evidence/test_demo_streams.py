"""The attribute lever's evidence over a lake of streams with different levers, as `make run` leaves one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from demo.data import STREAMS
from evidence.attributes.cycles import cycle_columns
from evidence.attributes.figures import compared_streams, land_and_shed
from evidence.attributes.generated import Generated, Source, generate_stream
from evidence.attributes.lab import Lab
from evidence.attributes.ledger_bytes import counted_over_file_bytes
from evidence.attributes.targets import targets
from evidence.book import Book
from evidence.narrow_links import CHANNELS, LINKS, narrow_contracts, narrow_files
from spillway.contracts import Contracts, StreamContract, load_contracts, read_channel
from spillway.contracts.fields import Record, Report
from spillway.contracts.levers import LeverEntry
from spillway.registry import settings_of
from spillway.settings import Settings

pytestmark = pytest.mark.long  # the figures of `make evidence`, not the product
NAMES = ("Router", "Current Index", "Response Time", "Packet Loss", "Minimum Delay")
LEVERS = {
    "rows_only": ("sifters",),
    "values_only": ("attributes",),
    "rows_and_values": ("sifters", "attributes"),
}


def made_with(name: str, levers: tuple[str, ...]) -> Generated:
    """Return a generated stream whose contract lists these levers; the sifter keeps few of the rows."""
    made = generate_stream(Source(name, "internet", NAMES, 12), cycles=60, seed=3)
    stated = made.contract.lever_settings("attributes")
    sifter = settings_of("sifters")
    query = {"where": "Response_Time > 200", "weight": 1.0}
    entries = {
        "attributes": LeverEntry("attributes", stated),
        "sifters": LeverEntry("sifters", _settings_with_query(sifter, query)),
    }
    contract = replace(made.contract, stream=name, levers=tuple(entries[lever] for lever in levers))
    return replace(made, contract=contract)


def _settings_with_query(kind: type, query: dict[str, object]) -> object:
    report = Report("sifters")
    found = Record(kind).read({"queries": [query], "rows_per_second": 40}, "levers[0]", report)
    assert not report.problems
    return found


@pytest.fixture(scope="module")
def streams() -> dict[str, Generated]:
    return {name: made_with(name, levers) for name, levers in LEVERS.items()}


@pytest.fixture(scope="module")
def contracts(streams: dict[str, Generated]) -> Contracts:
    channels = {"generated": read_channel("generated", {"capacity": "60 kbps"})}
    return Contracts({name: one.contract for name, one in streams.items()}, channels)


@pytest.fixture(scope="module")
def labs(streams: dict[str, Generated], contracts: Contracts) -> Iterator[dict[str, Lab]]:
    files = {name: one.files for name, one in streams.items()}
    compared = compared_streams(contracts, files)
    lake = land_and_shed(compared, files, contracts.channels)
    yield {name: Lab(lake, name) for name in compared}
    lake.forget()


def test_a_stream_without_the_lever_is_left_out_of_its_evidence(labs: dict[str, Lab]) -> None:
    assert list(labs) == ["values_only", "rows_and_values"]


def test_another_lever_of_a_stream_takes_no_rows_from_the_evidence(labs: dict[str, Lab]) -> None:
    for lab in labs.values():
        assert lab.contract.lever_names == ("attributes",)
        sent = sum(lab.lake.rows("transmitted", lab.stream, batch).num_rows for batch in lab.batches)
        assert sent == lab.rows.num_rows == 12 * 60


def test_figures_are_measured_on_every_stream_with_the_lever(
    labs: dict[str, Lab], streams: dict[str, Generated], contracts: Contracts
) -> None:
    assert all(lab.plan.violations == 0 for lab in labs.values())
    assert all(len(cycle_columns(lab)["Router"]) == 12 * 60 for lab in labs.values())
    files = {name: streams[name].files for name in labs}
    counted = counted_over_file_bytes(
        {name: lab.contract for name, lab in labs.items()}, files, contracts.channels
    )
    assert set(counted) == {f"attributes.counted_over_file_bytes.{name}" for name in labs}
    said = targets(Book(lambda _: None), counted, list(labs))
    assert said["attributes.promises"] == said["attributes.promises_kept"] == 2 * len(labs)


def test_the_demo_has_streams_with_and_without_the_lever(settings: Settings) -> None:
    contracts = load_contracts(settings.schemas)
    found = compared_streams(contracts, {name: {} for name in STREAMS})
    assert set(found) < set(STREAMS)
    assert found
    assert all(isinstance(one, StreamContract) for one in found.values())


def test_the_evidence_has_links_of_its_own_for_every_stream_of_the_demo(settings: Settings) -> None:
    """Figures of levers need links that are too narrow; the demo's links are real products."""
    demo = load_contracts(settings.schemas)
    found = narrow_contracts(demo)
    assert set(found.streams) == set(LINKS) == set(STREAMS)
    assert {one.channel for one in found.streams.values()} == set(found.channels) == set(CHANNELS)
    assert not set(CHANNELS) & set(demo.channels)
    assert not [one for one in found.channels.values() if one.capacity.quota is not None]


def test_the_evidence_has_the_files_of_the_demo_in_longer_batches() -> None:
    found = narrow_files()
    for name, make in STREAMS.items():
        assert sorted(found[name].values()) == sorted(make().values())
    assert len({file.split("/")[0] for file in found["weather"]}) == 3
