"""Rooms are divided in milliseconds: widths, rates, parts, and what is done when more comes out than was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway import registry
from spillway.batch import DONE, INGESTED, Batch
from spillway.contracts import BrokenContract, Contracts, StreamContract, read_channel, read_stream
from spillway.engine import ProcessEngine
from spillway.errors import SpillwayError
from spillway.ledger import LedgerRow
from spillway.levers.knapsack import Alternative
from spillway.levers.protocol import CapacityGroup, Load, Offer, Work
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.delta_log import commit_bytes, written_file
from spillway.store.tables import FileTask, Tables
from spillway.streams import shed
from spillway.streams.capacity import (
    batch_shares,
    capacity_shares,
    divide_channel,
    measure_load,
    quota_spending,
)
from spillway.streams.drafts import COLLECT_MORE, own_table
from spillway.streams.train import train_stream

DAY, NOW = date(2026, 1, 1), datetime(2026, 1, 2, tzinfo=UTC)


def stream(name: str, **more: Any) -> StreamContract:
    return read_stream(
        {
            "stream": name,
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "temp", "type": "double", "role": "protected", "bits": 32},
            ],
            "rate": {"from": "declared", "tuples_per_second": 100},
            "mode": "observe",
            "levers": [],
            **more,
        }
    )


def rooms(
    *streams: StreamContract, capacity: Any = "40 kbps", into_up: Sequence[str] = (), **channel: Any
) -> Contracts:
    """The streams with their channels, all of this capacity; some go into the channel `up`."""
    up = read_channel("up", {"capacity": capacity, **channel})
    inner = {name: replace(up, name=name, into="up") for name in into_up}
    return Contracts({one.stream: one for one in streams}, {"up": up} | inner)


@pytest.fixture
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    tables = Tables(Settings.in_memory(f"room-{request.node.name}"))
    yield tables
    tables.forget()


def ingested(
    tables: Tables, contract: StreamContract, rows: int = 100, seconds: float | None = 1.0, **more: Any
) -> Batch:
    """A batch of so many rows, as taking in leaves it."""

    def make(_: Any, __: dict[str, int]) -> Iterator[pa.Table]:
        seq = range(rows)
        yield pa.table(
            {"seq": seq, "batch": [1] * rows, "site": ["a"] * rows, "at": seq, "temp": [0.5 * i for i in seq]}
        )

    raw = own_table(tables, contract, "raw")
    draft = raw.draft(ProcessEngine(), [FileTask({"batch_date": str(DAY)}, 1, None)], make)
    raw.publish(draft.written, batch_date=DAY, batch=1)
    batch = Batch(
        contract.stream, 1, DAY, more.pop("status", INGESTED), (), 0, rows - 1, "run", NOW, NOW, rows, 0, 0,
        seconds_covered=seconds, **more,
    )  # fmt: skip
    save_batches(tables, [batch])
    return batch


@given(
    st.dictionaries(st.sampled_from("abcd"), st.just(0.0) | st.floats(0.1, 1e4), min_size=1),
    st.floats(1.0, 2e4),
    st.booleans(),
    st.sampled_from(["proportional", "utility"]),
)
def test_parts_never_come_to_more_than_the_channel_and_leave_nothing_of_it(
    rates: dict[str, float], capacity: float, trained: bool, divide_by: str
) -> None:
    channel = read_channel("up", {"capacity": f"{capacity:.6f} kbps", "divide_by": divide_by})
    offers = {
        name: Offer(rate, None, (choice(rate, 0.0, 1.0),) if rate and trained else ())
        for name, rate in rates.items()
    }
    found = divide_channel(channel, offers)
    assert sum(found.values()) == pytest.approx(channel.capacity_kbps, rel=1e-9)
    assert min(found.values()) >= 0
    if divide_by == "proportional" and any(rates.values()):
        drops = [1 - found[name] / rate for name, rate in rates.items() if rate]
        assert max(drops) - min(drops) <= 1e-9


def test_where_all_fits_what_is_free_is_shared_out_too() -> None:
    channel = read_channel("up", {"capacity": "100 kbps"})
    assert divide_channel(channel, {"a": Offer(30.0), "b": Offer(10.0)}) == {"a": 75.0, "b": 25.0}
    assert divide_channel(channel, {"a": Offer(0.0)}) == {"a": 100.0}


def choice(as_it_is: float, less: float, loss: float) -> tuple[Alternative, ...]:
    """Something that crosses as it is, or as less at a loss."""
    return Alternative(as_it_is, (0.0, 0.0, as_it_is)), Alternative(less, (loss, 1.0, less))


def test_utility_takes_from_whom_it_costs_least() -> None:
    channel = read_channel("up", {"capacity": "90 kbps"})
    dear, cheap = Offer(60.0, None, (choice(40.0, 10.0, 9.0),)), Offer(60.0, None, (choice(40.0, 10.0, 3.0),))
    assert divide_channel(channel, {"dear": dear, "cheap": cheap}) == {"dear": 60.0, "cheap": 30.0}


def test_what_the_best_choice_leaves_is_shared_out_too() -> None:
    channel = read_channel("up", {"capacity": "96 kbps"})
    offers = {name: Offer(60.0, None, (choice(40.0, 0.0, 1.0),)) for name in ("a", "b")}
    found = divide_channel(channel, offers)
    assert sorted(found.values()) == [28.0, 68.0]


def test_where_nobody_has_a_choice_each_is_told_its_share() -> None:
    channel = read_channel("up", {"capacity": "30 kbps"})
    assert divide_channel(channel, {"a": Offer(60.0), "b": Offer(30.0)}) == {"a": 20.0, "b": 10.0}


def test_a_load_is_bits_as_written_over_the_time_it_took(tables: Tables) -> None:
    contract = stream("net")
    batch = ingested(tables, contract, rows=100, seconds=4.0)
    load = measure_load(tables, contract, batch)
    raw = tables.at("raw", "net")
    (file,) = raw.files()
    log = commit_bytes([written_file(file, raw.path)])
    from spillway.store.files import column_bytes

    widths = column_bytes([file], ["seq", *contract.names])
    assert load.tuples_per_second == 25.0
    assert load.widths_bits == {name: size * 8 / 100 for name, size in widths.items()}
    around = file.size - sum(widths.values()) + log
    assert load.fixed_kbps == pytest.approx(around * 8 / 1000 / 4.0)
    assert load.rate_kbps == pytest.approx((file.size + log) * 8 / 1000 / 4.0)


def test_a_declared_width_is_taken_at_its_word(tables: Tables) -> None:
    contract = stream("net", width="declared")
    load = measure_load(tables, contract, ingested(tables, contract))
    assert load.widths_bits == {"site": 128.0, "at": 64.0, "temp": 32.0, "seq": 64.0}


def test_a_batch_without_a_span_of_time_is_told_how_to_declare_its_rate(tables: Tables) -> None:
    contract = stream("net")
    batch = ingested(tables, contract, seconds=None)
    with pytest.raises(SpillwayError, match=r"the rate of batch 1 must be known.*declare it: `rate:"):
        measure_load(tables, contract, batch)


def test_a_quiet_stream_keeps_the_place_of_its_last_batch(tables: Tables) -> None:
    busy, quiet = stream("busy"), stream("quiet")
    contracts = rooms(busy, quiet)
    loud = ingested(tables, busy)
    alone = capacity_shares(tables.now(), CapacityGroup("up", contracts, tables.now()), {"busy": [loud]})
    ingested(tables, quiet, status=DONE)
    now = tables.now()
    beside = capacity_shares(now, CapacityGroup("up", contracts, now), {"busy": [loud]})
    assert alone["quiet"].own_kbps == 0.0
    assert beside["quiet"].own_kbps == pytest.approx(beside["busy"].own_kbps)


def test_a_part_is_to_hold_the_densest_batch_that_waits_but_none_of_a_few_tuples(tables: Tables) -> None:
    contract = stream("net")
    sparse = ingested(tables, contract, rows=100, seconds=2.0)
    dense, few = replace(sparse, batch=2, seconds_covered=1.0), replace(sparse, batch=3, rows=10)
    now = tables.now()

    def found(*batches: Batch) -> float:
        from spillway.streams.capacity import _load

        load = _load(now, contract, batches)
        assert isinstance(load, Load)
        return load.rate_kbps

    assert found(sparse, replace(dense, batch=1)) == pytest.approx(2 * found(sparse))
    assert found(sparse, replace(few, batch=1, seconds_covered=0.01)) == pytest.approx(found(sparse))


def test_a_channel_that_goes_into_another_is_held_to_both(tables: Tables) -> None:
    east, west = stream("east", channel="one"), stream("west", channel="two")
    contracts = rooms(east, west, capacity="30 kbps", into_up=("one", "two"))
    waiting = {one.stream: [ingested(tables, one)] for one in (east, west)}
    now = tables.now()
    found = capacity_shares(now, CapacityGroup("up", contracts, now), waiting)
    for part in found.values():
        assert part.trunk_kbps is not None
        assert part.narrower_kbps == min(part.own_kbps, part.trunk_kbps)
    assert sum(part.trunk_kbps or 0.0 for part in found.values()) <= 30.0 + 1e-9


def test_a_stream_whose_contract_cannot_be_used_keeps_its_place_in_its_channel_and_in_the_next(
    tables: Tables,
) -> None:
    """As the ledger says, it offered 25.92 kbps: as much as each of the others offers, of nine rows in ten."""
    with registry.extra_levers(thin="tests.levers.thin"):
        east, west = (
            stream(name, channel=channel, width="declared", levers=[{"lever": "thin"}], mode="shed")
            for name, channel in (("east", "one"), ("west", "two"))
        )
        contracts = rooms(east, west, capacity="40 kbps", into_up=("one", "two"))
        contracts = replace(contracts, broken=(BrokenContract("streams", "lost", (), "one"),))
        waiting = {one.stream: [ingested(tables, one)] for one in (east, west)}
        ingested(tables, stream("lost"), status=DONE)
        sent = LedgerRow(
            "stream", "lost", 1, DAY, "sent", 1, "rows", offered=100, kept=100, bytes_offered=3240
        )
        tables.at("ledger").append([sent.to_dict()])
        now = tables.now()
        found = capacity_shares(now, CapacityGroup("up", contracts, now), waiting)
    assert (found["east"].own_kbps, found["west"].own_kbps) == pytest.approx((20.0, 40.0))
    # what is lost sight of offers the next channel no more than its own lets through
    assert [part.trunk_kbps for part in found.values()] == pytest.approx([40 * 25.92 / (2 * 25.92 + 20)] * 2)


def test_what_is_offered_to_the_next_channel_is_what_the_own_one_lets_through() -> None:
    from spillway.streams.capacity import _of_rate

    with registry.extra_levers(thin="tests.levers.thin"):
        sheds, whole = stream("a", levers=[{"lever": "thin"}], mode="shed"), stream("b")
    assert [_of_rate(60.0, 20.0, one).rate_kbps for one in (sheds, whole)] == [20.0, 60.0]
    assert [_of_rate(60.0, own, sheds).rate_kbps for own in (None, 80.0)] == [60.0, 60.0]


def test_what_a_stream_is_trained_for_does_not_hang_on_who_was_trained_before_it(tables: Tables) -> None:
    with registry.extra_levers(thin="tests.levers.thin"):
        one, two = (stream(name, levers=[{"lever": "thin"}], mode="shed") for name in ("one", "two"))
        contracts, waiting = rooms(one, two, capacity="1 kbps"), {}
        for contract in (one, two):
            waiting[contract.stream] = [ingested(tables, contract)]
        found = []
        for _ in range(2):
            now = tables.now()
            found.append(capacity_shares(now, CapacityGroup("up", contracts, now), waiting, by_rate=True))
            train_stream(tables, contracts, "one")
    assert found[0] == found[1]
    assert sum(part.own_kbps for part in found[0].values()) == pytest.approx(1.0)


class TestWhenMoreComesOutThanWasPlanned:
    """The seam of the loop: drafts that are too large are thrown away and planned again, and never silently kept."""

    @pytest.fixture(autouse=True)
    def lever(self) -> Iterator[None]:
        with registry.extra_levers(thin="tests.levers.thin"):
            yield

    @pytest.fixture
    def narrow(self, tables: Tables) -> Contracts:
        contract = stream("net", levers=[{"lever": "thin"}], mode="shed")
        ingested(tables, contract)
        contracts = rooms(contract, capacity="1 kbps")
        train_stream(tables, contracts, "net")
        return contracts

    def test_who_can_do_no_more_is_not_asked_again(self, tables: Tables, narrow: Contracts) -> None:
        said: list[str] = []
        (batch,) = shed.shed_channel(tables, ProcessEngine(), narrow, "up", said.append)
        assert batch.status == DONE
        assert not [line for line in said if "came out above" in line]

    def test_who_could_do_more_is_asked_so_often_and_then_put_on_record(
        self, tables: Tables, narrow: Contracts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.levers.thin.lever import ThinPlan

        said: list[str] = []
        short: dict[int, float] = {}
        monkeypatch.setattr(ThinPlan, "can_shed_more", lambda self, batch: True)
        monkeypatch.setattr(
            ThinPlan, "record_shortfall", lambda self, batch, kbps, remedy: short.update({batch: kbps})
        )
        shed.shed_channel(tables, ProcessEngine(), narrow, "up", said.append)
        again = "net: 1 batch came out above the channel's part; planned again with the measured sizes"
        assert said.count(again) == shed.MOST_DRAFTS - 1
        assert "net: 1 batch stays above the channel's part; the shortfall is on record" in said
        assert short[1] > 0

    def test_it_aims_a_little_lower_knows_what_came_out_and_leaves_no_draft_behind(
        self, tables: Tables, narrow: Contracts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.levers.thin.lever import ThinPlan

        from spillway.store import blobs

        aims: list[float] = []
        told: list[Work] = []

        def can_shed_more(self: ThinPlan, batch: int) -> bool:
            aims.append(self.work.aims[batch])
            told.append(self.work)
            return True

        monkeypatch.setattr(ThinPlan, "can_shed_more", can_shed_more)
        shed.shed_channel(tables, ProcessEngine(), narrow, "up")
        assert aims == [1.0, shed.FIRST_AIM, *[shed.LEAST_AIM] * (shed.MOST_DRAFTS - 2)]
        assert not told[0].tried
        (plan, drafted), root = told[1].tried[1], tables.path("transmitted", "net")
        assert isinstance(plan, ThinPlan)
        assert drafted.sent_rows == 90
        assert len(blobs.list_files(root)) == len(tables.now().at("transmitted", "net").files())
        (batch,) = load_batches(tables.now(), "net")
        assert batch.status == DONE

    @pytest.mark.parametrize("well_used", [0.0, 0.9])
    def test_who_leaves_room_and_could_lose_less_is_asked_again_and_the_last_that_fits_is_sent(
        self, tables: Tables, narrow: Contracts, monkeypatch: pytest.MonkeyPatch, well_used: float
    ) -> None:
        from tests.levers.thin.lever import ThinPlan

        said: list[str] = []
        wide = rooms(narrow.streams["net"], capacity="1000 kbps")
        monkeypatch.setattr(shed, "WELL_USED", well_used)
        monkeypatch.setattr(ThinPlan, "could_lose_less", lambda self, batch: True)
        shed.shed_channel(tables, ProcessEngine(), wide, "up", said.append)
        again = "net: 1 batch could lose less; planned again with the measured sizes"
        # hardly anything of so much is used
        assert said.count(again) == (shed.MOST_DRAFTS if well_used else shed.ENOUGH_DRAFTS) - 1
        files = tables.now().at("transmitted", "net").files()
        from spillway.store import blobs

        assert len(blobs.list_files(tables.path("transmitted", "net"))) == len(files) == 1

    def test_who_would_lose_hardly_less_is_planned_again_and_not_drafted_again(
        self, tables: Tables, narrow: Contracts, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from tests.levers.thin.lever import ThinPlan

        drafts: list[int] = []
        plain = shed.write_drafts
        monkeypatch.setattr(shed, "write_drafts", lambda *given: [drafts.append(1), plain(*given)][1])
        monkeypatch.setattr(ThinPlan, "could_lose_less", lambda self, batch: True)
        monkeypatch.setattr(ThinPlan, "is_worth_a_draft", lambda self, before: False)
        shed.shed_channel(tables, ProcessEngine(), rooms(narrow.streams["net"], capacity="1000 kbps"), "up")
        assert len(drafts) == 1

    def test_what_crosses_is_whole_files_and_what_the_log_says_of_them(
        self, tables: Tables, narrow: Contracts
    ) -> None:
        shed.shed_channel(tables, ProcessEngine(), narrow, "up")
        now = tables.now()
        (file,) = now.at("transmitted", "net").files()
        (sent,) = (
            now.at("ledger")
            .rows(subject="net", stage="sent", unit="rows", dimension_kind="total")
            .to_pylist()
        )
        assert file.size < sent["bytes_kept"] < file.size + 1500


@pytest.mark.parametrize(("rows", "collect"), [(2, True), (20_000, False)])
def test_batch_whose_fixed_bytes_do_not_fit_says_collect_more(
    tables: Tables, rows: int, collect: bool
) -> None:
    contract = stream("net", mode="shed")
    ingested(tables, contract, rows=rows, seconds=1.0)
    offered = measure_load(tables, contract, load_batches(tables, "net")[0])
    # two rows fit without the footer; of 20,000 most do not
    kbps = offered.rate_kbps - 0.5 * offered.fixed_kbps if collect else 0.25 * offered.rate_kbps
    contracts = rooms(contract, capacity=f"{kbps:.6f} kbps")
    shed.shed_channel(tables.now(), ProcessEngine(), contracts, "up")
    (line,) = tables.now().at("ledger").rows(stage="sent", unit="rows", dimension_kind="total").to_pylist()
    assert line["shortfall"] > 0
    assert 0 < line["bytes_fixed"] < line["bytes_kept"]
    assert (COLLECT_MORE in line["reason"]) == collect
    if collect:
        assert f"{line['bytes_fixed']:,} bytes of the batch are fixed" in line["reason"]


def test_a_batch_that_does_not_fit_waits_in_the_queue_until_it_does(tables: Tables) -> None:
    contract = stream("net", mode="shed", on_overflow="queue")
    first = ingested(tables, contract, rows=100, seconds=1.0)
    save_batches(tables, [replace(first, batch=2, rows=0, revision=0)])
    said: list[str] = []
    narrow, wide = (rooms(contract, capacity=capacity) for capacity in ("1 kbps", "1 Mbps"))
    assert shed.shed_channel(tables.now(), ProcessEngine(), narrow, "up", said.append) == [] or said
    queued = load_batches(tables.now(), "net", batch=1)[0]
    assert (queued.status, queued.is_pinned, queued.spends_on) == (INGESTED, False, first.batch_date)
    assert "waits in the queue" in (queued.reason or "")
    assert any("batch 1 of 2026-01-01 waits in the queue" in one for one in said)
    now = tables.now()
    assert now.at("ledger").rows(stage="sent").num_rows == 0, "nothing of it was sent"
    done = shed.shed_channel(now, ProcessEngine(), wide, "up")
    assert 1 in {one.batch for one in done}
    now = tables.now()
    assert now.at("transmitted", "net").rows().num_rows == 100
    assert load_batches(now, "net", batch=1)[0].reason is None


def test_a_queued_batch_is_sent_on_the_quota_of_a_later_day(tables: Tables) -> None:
    contract = stream("net", mode="shed", on_overflow="queue")
    first = ingested(tables, contract, rows=100, seconds=1.0)
    size = measure_load(tables, contract, first).rate_kbps * 125
    contracts = rooms(contract, capacity=f"{1.5 * size:.0f} B/day")
    spent = LedgerRow(
        "stream",
        "net",
        9,
        DAY,
        "sent",
        1,
        "rows",
        offered=9,
        kept=9,
        bytes_offered=int(size),
        bytes_kept=int(size),
    )
    tables.at("ledger").append([spent.to_dict()])
    save_batches(tables, [replace(first, batch=9, status=DONE, frame_origin=0, rows=9, revision=0)])
    shed.shed_channel(tables.now(), ProcessEngine(), contracts, "up")
    assert load_batches(tables.now(), "net", batch=1)[0].status == INGESTED
    # a batch of the next day shows that the quota has been renewed
    later = replace(first, batch=10, batch_date=date(2026, 1, 2), rows=0, revision=0)
    save_batches(tables.now(), [later])
    shed.shed_channel(tables.now(), ProcessEngine(), contracts, "up")
    sent = load_batches(tables.now(), "net", batch=1)[0]
    assert (sent.status, sent.spends_on) == (DONE, date(2026, 1, 2))
    spending = quota_spending(tables.now(), contracts, "up", [date(2026, 1, 2)])
    quota = contracts.channels["up"].capacity.quota
    assert quota is not None
    (line,) = tables.now().at("ledger").rows(batch=1, stage="sent", unit="rows").to_pylist()
    assert (
        spending.spent(quota.period_of(date(2026, 1, 2))) == line["bytes_kept"] > quota.size_bytes - int(size)
    )
    assert spending.spent(quota.period_of(DAY)) == int(size)


@pytest.mark.parametrize("overflow", ["queue", "fail"])
def test_batch_above_its_share_takes_the_unspent_bytes_of_the_quota(tables: Tables, overflow: str) -> None:
    contract = stream("net", mode="shed", on_overflow=overflow)
    second = replace(ingested(tables, contract, rows=100, seconds=900.0), batch_date=DAY)
    size = measure_load(tables, contract, second).rate_kbps * 125 * 900
    contracts = rooms(contract, capacity=f"{3 * size:.0f} B/day")
    # the day before offered ten times the quota, all of it in the evening
    line = LedgerRow(
        "stream", "net", 0, date(2025, 12, 31), "sent", 1, "rows", offered=9, kept=9,
        bytes_offered=int(30 * size), bytes_kept=int(3 * size),
    )  # fmt: skip
    tables.at("ledger").append([line.to_dict()])
    before = replace(second, batch=0, batch_date=date(2025, 12, 31), status=DONE, frame_origin=0, rows=9)
    save_batches(tables, [replace(before, seconds_covered=86_400.0, revision=0)])
    now, room = tables.now(), CapacityGroup("up", contracts, tables.now())
    share = batch_shares(now, room, {"net": [second]})["net"][1]
    assert share.own_kbps * 125 * 900 < size, "its share is too small"
    (done,) = shed.shed_channel(tables.now(), ProcessEngine(), contracts, "up")
    (sent,) = tables.now().at("ledger").rows(batch=1, stage="sent", unit="rows").to_pylist()
    assert sent["shortfall"] == 0
    assert sent["bytes_kept"] <= done.allowed_kbps * 125 * 900 + 1
    left = quota_spending(tables.now(), contracts, "up", [DAY])
    quota = contracts.channels["up"].capacity.quota
    assert quota is not None
    assert left.spent(quota.period_of(DAY)) == sent["bytes_kept"] <= quota.size_bytes


def test_batch_above_what_the_quota_has_left_still_waits(tables: Tables) -> None:
    contract = stream("net", mode="shed", on_overflow="queue")
    first = ingested(tables, contract, rows=100, seconds=900.0)
    size = measure_load(tables, contract, first).rate_kbps * 125 * 900
    contracts = rooms(contract, capacity=f"{0.9 * size:.0f} B/day")
    assert shed.shed_channel(tables.now(), ProcessEngine(), contracts, "up") == []
    assert load_batches(tables.now(), "net", batch=1)[0].status == INGESTED


def test_batch_above_its_share_is_never_faster_than_the_burst(tables: Tables) -> None:
    contract = stream("net", mode="shed", on_overflow="queue")
    first = ingested(tables, contract, rows=100, seconds=1.0)
    kbps = measure_load(tables, contract, first).rate_kbps
    capacity = {"quota": "86.4 MB", "per": "day", "burst": f"{max(8.0, 0.9 * kbps):.4f} kbps"}
    assert kbps > 10
    assert shed.shed_channel(tables.now(), ProcessEngine(), rooms(contract, capacity=capacity), "up") == []
