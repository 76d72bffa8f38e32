"""The lever in the pipeline: a batch's rows go by what queries ask for, and every row is accounted for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.levers.sifters.logs import LEVELS, LOGS, SIFTERS, logged, logs
from tests.pipeline.streams import World, attribute, json_lines
from tests.report.page.pages import whole_report
from tests.whole_reads import whole_reads

from spillway.contracts import read_stream
from spillway.engine import ProcessEngine
from spillway.errors import ContractError
from spillway.ledger import total_imbalance
from spillway.levers.sifters import explain as explaining
from spillway.levers.sifters import record
from spillway.levers.sifters.filter import SifterFilter
from spillway.levers.sifters.lever import LEVER
from spillway.report.explain import explain
from spillway.report.overview import overview, overview_lines, proof_lines
from spillway.report.page import build_report
from spillway.report.trade_off import ROWS, load_trade_off, trade_off_lines, trade_off_pictures
from spillway.store.batches import load_batches
from spillway.streams.query import StreamQuery
from spillway.streams.recover import look_up, recover_batches


def shed_world(
    folder: Path, lever: dict[str, Any] | None = None, capacity: str = "3 kbps", **more: Any
) -> World:
    """As `logged`, but not validated: two batches shed in this process."""
    levers = more.pop("levers", [SIFTERS if lever is None else lever])
    world = World.begin(ProcessEngine(), folder, {**LOGS, "levers": levers, **more}, capacity=capacity)
    world.deliver("logs/2020-01-01/a.json", json_lines(logs(0, 2500)))
    world.shed()
    world.train("logs")
    world.shed()
    world.deliver("logs/2020-01-01/b.json", json_lines(logs(2500, 1200)))
    world.shed()
    return world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return logged(ProcessEngine(), tmp_path_factory.mktemp("logs"))


def ledger(world: World, **where: Any) -> list[dict[str, Any]]:
    return [row for row in world.rows("ledger") if all(row[name] == value for name, value in where.items())]


def test_what_is_sent_fits_and_every_expectation_holds(world: World) -> None:
    assert all(row["success"] for row in world.rows("validations"))
    assert total_imbalance(world.rows("ledger")) == 0
    for batch in world.batches("logs"):
        (sent,) = ledger(world, stage="sent", unit="rows", batch=batch.batch)
        kbps = sent["bytes_kept"] * 8 / 1000 / (batch.seconds_covered or 1)
        assert 0.85 * batch.allowed_kbps < kbps <= batch.allowed_kbps


def test_queries_keep_more_than_the_share_of_the_rows_that_is_sent(world: World) -> None:
    for row in world.rows("sifters"):
        offered, kept = (sum(one[name] for one in row["regions"]) for name in ("offered", "kept"))
        assert kept < 0.7 * offered
        assert row["quality"] > kept / offered + 0.2
    counted = {
        row["dimension"]: (row["offered"], row["kept"])
        for row in ledger(world, dimension_kind="query", batch=1)
    }
    raw = world.frame("raw", "logs").query("batch == 1")
    sent = world.frame("transmitted", "logs").query("batch == 1")
    for name, wants in (
        ("warnings", "severity == 'WARN'"),
        ("slow at web-1", "latency > 400 and host == 'web-1'"),
        ("middling", "latency >= 100 and latency <= 300 and host in ('web-0', 'web-2')"),
    ):
        assert counted[name] == (len(raw.query(wants)), len(sent.query(wants)))


def test_rows_that_must_be_kept_are_all_there(world: World) -> None:
    raw, sent = (world.frame(table, "logs") for table in ("raw", "transmitted"))
    errors = raw[raw["severity"].isin(["ERROR", "FATAL"])]["seq"]
    assert len(errors) > 100
    assert set(errors) <= set(sent["seq"])
    assert (sent[sent["seq"].isin(errors)]["weight"] == 1.0).all()


def test_weights_scale_counts_up_and_the_sample_is_spread_over_all_rows(world: World) -> None:
    """Within a row a region (28 of them) and batch: 2 batches, and a row of a region of 0.98 weighs 50."""
    raw, sent = (world.frame(table, "logs") for table in ("raw", "transmitted"))
    assert abs(sent["weight"].sum() - len(raw)) < 2 * 10 * 50
    assert 0.012 * len(raw) < sent["in_sample"].sum() < 0.03 * len(raw)
    asked = sent[(sent["weight"] < 3)]["weight"]
    assert asked.min() == 1.0


def test_the_kernel_in_a_frame_of_its_own_says_the_same_rows(world: World) -> None:
    """What the pipeline sent, worked out again from the packed filter and raw alone."""
    raw, sent = world.at("raw", "logs").rows().sort_by("seq"), world.frame("transmitted", "logs")
    for row in world.rows("sifters"):
        (batch,) = [one for one in world.batches("logs") if one.batch == row["batch"]]
        mine = raw.filter(np.asarray(raw["batch"]) == row["batch"])
        found = SifterFilter.from_bytes(row["payload"])
        assert len(row["payload"]) < 4096
        seq = np.asarray(mine["seq"])
        regions = found.regions_of(mine)
        kept, marked = found.decide(seq, regions, batch.first_seq, batch.first_seq)
        here = sent[sent["batch"] == row["batch"]]
        assert here["seq"].tolist() == seq[kept].tolist()
        assert here["in_sample"].tolist() == marked[kept].tolist()
        assert here["weight"].tolist() == found.weights[regions[kept]].tolist()


def test_the_same_rows_go_again_when_a_date_is_shed_again(world: World, tmp_path: Path) -> None:
    again = world.copy(tmp_path)
    day = again.batches("logs")[0].batch_date
    again.shed(dates=(day, day))
    assert again.rows("transmitted", "logs") == world.rows("transmitted", "logs")
    assert again.rows("sifters") == world.rows("sifters")


def test_a_filter_stays_while_it_does_and_says_why_it_is_left(tmp_path: Path) -> None:
    """100 rows a second into 60: the throttler is the same for every batch, until rows lie elsewhere."""
    lever = {**SIFTERS, "rows_per_second": 60.0}
    world = shed_world(tmp_path, lever, capacity="1 Mbps")
    first, second = world.rows("sifters")
    assert (first["filter"], second["filter"]) == (1, 1)
    assert second["reason"].startswith("the filter of batch 1 still does")
    assert [one["threshold"] for one in first["regions"]] == [one["threshold"] for one in second["regions"]]
    world.deliver("logs/2020-01-01/c.json", json_lines(logs(3700, 1200, slower=2.5)))
    world.shed()
    third = world.rows("sifters")[-1]
    assert third["filter"] == 3
    assert third["reason"].startswith("data drifted")
    world.contract_becomes({**LOGS, "levers": [{**lever, "rows_per_second": 30.0}]}, capacity="1 Mbps")
    world.deliver("logs/2020-01-01/d.json", json_lines(logs(4900, 1200, slower=2.5)))
    world.shed()
    fourth = world.rows("sifters")[-1]
    assert fourth["reason"].startswith("the throttler drifted from 60.0% to 30.0%")
    kept = sum(one["kept"] for one in fourth["regions"]) / sum(one["offered"] for one in fourth["regions"])
    assert abs(kept - 0.3) < 0.03


def test_a_filter_is_left_that_keeps_much_less_than_there_is_room_for(tmp_path: Path) -> None:
    """Where more must be kept than fits, all else goes; the next batch has room for rows that are asked for."""
    lever = {**SIFTERS, "rows_per_second": 30.0, "queries": [{"where": "latency >= 0"}]}
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [lever]}, capacity="1 Mbps")
    errors = [{**row, "severity": "ERROR"} if i % 5 < 2 else row for i, row in enumerate(logs(0, 1000))]
    world.deliver("logs/2020-01-01/a.json", json_lines(errors))
    world.shed()
    world.train("logs")
    world.shed()
    world.deliver("logs/2020-01-01/b.json", json_lines(logs(1000, 1000)))
    world.shed()
    kept = world.frame("transmitted", "logs").groupby("batch").size()
    assert kept[1] > 400
    assert 290 < kept[2] <= 300
    assert "keeps" in world.rows("sifters")[-1]["reason"]


def uneven_logs(first: int, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows that lie elsewhere between the stretches that a plan looks at than in them."""
    rng = np.random.default_rng(seed)
    waves = 1.0 + 2.0 * rng.random() * (np.arange(count) % 1000 > 600)
    latency = np.round(rng.gamma(2.0, 80.0, count) * waves, 2)
    level = rng.choice(5, count, p=[0.3, 0.5, 0.15, 0.04, 0.01])
    (like,) = logs(first, 1)
    return [
        {**like, "host": f"web-{i % 4}", "severity": LEVELS[level[i]], "latency": float(latency[i])}
        for i in range(count)
    ]


def test_no_more_rows_go_on_than_the_server_takes_in(tmp_path: Path) -> None:
    """Whatever some of the rows said of all: streams, limits and filters drawn by seeds, in use or built anew."""
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [SIFTERS]}, capacity="1 Mbps")
    first = 0
    for turn, rows_per_second in enumerate((61.3, 61.3, 33.37, 80.01, 61.3, 47.9)):
        count = 4500 + 700 * turn
        levers = [{**SIFTERS, "rows_per_second": rows_per_second, "rebuild": {"drift": 0.5 * (turn % 2)}}]
        world.contract_becomes({**LOGS, "levers": levers}, capacity="1 Mbps")
        world.deliver(f"logs/2020-01-01/{turn}.json", json_lines(uneven_logs(first, count, turn)))
        world.shed()
        if not turn:
            world.train("logs")
            world.shed()
        batch = world.batches("logs")[-1]
        (kept,) = [row["kept"] for row in ledger(world, stage="sifters", batch=batch.batch, unit="rows",
                                                 dimension_kind="total")]  # fmt: skip
        room = rows_per_second * count / 100.0
        assert 0.97 * room < kept <= room, (turn, kept, room)
        first += count
    assert any("came out above what its server takes in" in said for said in world.said)


def test_columns_make_rows_no_fewer_for_a_server_that_takes_in_too_few(tmp_path: Path) -> None:
    """Columns go first for what the channel carries; what the server takes in is for rows alone."""
    first, *behind = with_columns("rest")
    world = shed_world(tmp_path, levers=[{**first, "rows_per_second": 70.0}, *behind], capacity="1 Mbps")
    for batch in world.batches("logs"):
        (total,) = ledger(world, stage="sifters", unit="rows", dimension_kind="total", batch=batch.batch)
        assert 0.97 * 70 < total["kept"] / (batch.seconds_covered or 1) <= 70


def test_rows_that_must_be_kept_beyond_what_the_server_takes_in_are_on_record(tmp_path: Path) -> None:
    world = shed_world(tmp_path, {**SIFTERS, "rows_per_second": 3.0}, capacity="1 Mbps")
    for batch in world.batches("logs"):
        (total,) = ledger(world, stage="sifters", unit="rows", dimension_kind="total", batch=batch.batch)
        assert total["shortfall"] == total["kept"] - 3.0 * (batch.seconds_covered or 1) > 0


def test_what_fits_is_not_sifted(tmp_path: Path) -> None:
    world = shed_world(tmp_path, capacity="1 Mbps")
    assert [(row["filter"], row["reason"]) for row in world.rows("sifters")] == [(0, "all rows fit")] * 2
    assert world.frame("transmitted", "logs")["weight"].tolist() == [1.0] * 3700


def test_what_lies_aside_comes_back_and_counts_as_recoverable(tmp_path: Path) -> None:
    world = shed_world(tmp_path, {**SIFTERS, "keep_at_source": True})
    (total,) = ledger(world, stage="sifters", unit="rows", dimension_kind="total", batch=1)
    assert total["recoverable"] == total["shed"] > 500
    assert total["lost"] == 0
    sent = set(world.frame("transmitted", "logs")["seq"])
    gone = next(seq for seq in range(2500) if seq not in sent)
    contract = world.contracts.streams["logs"]
    found = look_up(world.tables, contract, StreamQuery.parse(contract, seq=gone))
    assert found.rows["host"].to_pylist() == [f"web-{gone % 4}"]
    assert found.rows["severity"].to_pylist() == [logs(gone, 1)[0]["severity"]]
    assert found.synopsis_bytes_read > 0


def test_what_became_of_a_batchs_rows_outlives_what_its_contract_said(tmp_path: Path) -> None:
    """One batch is merely observed, of one rows lie aside, of one they are gone; then the lever goes, and an attribute
    comes that is in no table of it."""
    lever = {**SIFTERS, "rows_per_second": 50.0}
    said: list[dict[str, Any]] = [
        {"mode": "observe", "levers": [lever]},
        {"levers": [{**lever, "keep_at_source": True}]},
        {"levers": [lever]},
        {"levers": [], "attributes": [*LOGS["attributes"], attribute("zone", "string")]},
    ]
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, **said[0]}, capacity="1 Mbps")
    for number, changes in enumerate(said):
        world.contract_becomes({**LOGS, **changes}, capacity="1 Mbps")
        world.deliver(f"logs/2020-01-01/{number}.json", json_lines(logs(400 * number, 400)))
        world.shed()
        if not number:
            world.train("logs")
            world.shed()
    world.validate(every=True)
    sent = world.frame("transmitted", "logs").groupby("batch").size().tolist()
    assert sent[0] == sent[3] == 400
    assert max(sent[1:3]) <= 200
    assert world.frame("recovered", "logs").groupby("batch").size().tolist() == [400, 400, sent[2], 400]
    assert [(row["drops"], row["keep_at_source"]) for row in world.rows("sifters")] == [
        (False, False),
        (True, True),
        (True, False),
    ]


def test_observing_drops_nothing_and_says_what_would_go(tmp_path: Path) -> None:
    world = shed_world(tmp_path, mode="observe")
    assert len(world.frame("transmitted", "logs")) == 3700
    assert any("would drop" in said for said in world.said)
    assert not any(row["shed"] for row in world.rows("ledger"))


def with_columns(takes: str) -> list[dict[str, Any]]:
    return [
        {**SIFTERS, "takes": takes},
        {"lever": "attributes", "training": {"tuples": 1000}, "treatments": ["keep", "shed", "round"]},
    ]


def test_columns_come_back_of_the_rows_that_stayed(tmp_path: Path) -> None:
    """Both levers: what the second gives back are the values of the rows that the first handed on."""
    world = shed_world(tmp_path, levers=with_columns("first"), capacity="2.5 kbps")
    recover_batches(world.tables.now(), world.engine, world.contracts.streams["logs"], world.batches("logs"))
    raw, back = (world.frame(table, "logs").set_index("seq") for table in ("raw", "recovered"))
    assert 0 < len(back) < len(raw)
    was = raw.loc[back.index]["latency"]
    assert ((back["latency"] - was).abs() <= 0.0200001 * was.abs()).dropna().all()


def test_rows_take_over_what_columns_cannot_fit(tmp_path: Path) -> None:
    """So little room that even without its measures the stream is too large: rows go as far as it takes."""
    world = shed_world(tmp_path, levers=with_columns("rest"), capacity="2 kbps")
    rows = [row for row in world.rows("sifters") if row["filter"]]
    assert rows
    assert all("left to others came out too large" in row["reason"] for row in rows)
    for batch in world.batches("logs"):
        (sent,) = ledger(world, stage="sent", unit="rows", batch=batch.batch)
        assert sent["bytes_kept"] * 8 / 1000 / (batch.seconds_covered or 1) <= batch.allowed_kbps
        assert sent["shortfall"] == 0


def test_the_cheaper_of_rows_and_columns_goes_and_says_by_what_figures(tmp_path: Path) -> None:
    world = shed_world(tmp_path, levers=with_columns("cheaper"), capacity="3.5 kbps")
    reasons = {row["reason"] for row in world.rows("sifters")}
    said = [reason for reason in reasons if "are cheaper: for the same" in reason]
    assert said
    assert all("columns lose" in reason for reason in said)
    assert all("% of a value, rows" in reason and "kbps" in reason for reason in said)


def test_it_is_explained_and_drawn(world: World) -> None:
    (part,) = explain(world.tables.now(), "logs", "latency").levers
    assert part.explanation is not None
    assert part.explanation.treatment == "dropped with whole rows"
    assert part.explanation.numbers["queries about it"] == 2
    assert any(line.startswith("warnings: ") for line in part.explanation.numbers["what queries get"])
    page = whole_report(build_report(world.tables.now(), world.folder / "report.html"))
    assert page.count('<rect class="region"') >= 20
    assert "slow at web-1" in page


def test_a_map_of_a_batch_that_dropped_nothing_of_a_region_is_left_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract, tables = world.contracts.streams["logs"], world.tables.now()
    assert "regions" in [one.kind for one in LEVER.pictures(contract, None, tables)]
    stored, read = record.batch_record, SifterFilter.from_bytes

    def of_nothing(payload: bytes) -> SifterFilter:
        found = read(payload)
        return replace(found, thresholds=np.zeros_like(found.thresholds))

    def record_of_nothing(*arguments: Any) -> dict[str, Any]:
        row = stored(*arguments)
        return {**row, "regions": [{**one, "threshold": 0.0} for one in row["regions"]]}

    monkeypatch.setattr(SifterFilter, "from_bytes", of_nothing)
    monkeypatch.setattr(explaining, "batch_record", record_of_nothing)
    assert "regions" not in [one.kind for one in LEVER.pictures(contract, None, tables)]


def test_of_older_batches_nothing_is_read_but_columns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "SHOWN_BATCHES", 1)
    contract, tables = world.contracts.streams["logs"], world.tables.now()

    def tell() -> None:
        assert "batch 2, made for batch" in LEVER.explain(contract, "latency", None, tables).numbers["filter"]
        assert list(LEVER.pictures(contract, None, tables))

    assert whole_reads(monkeypatch, tell, "sifters") == {2}


def test_training_says_what_it_chose_and_learns_nothing_new_of_the_same_rows(
    world: World, tmp_path: Path
) -> None:
    again = world.copy(tmp_path)
    (fact,) = [row for row in again.rows("models") if row["lever"] == "sifters"]
    assert '"sample_rows"' in fact["evidence"]
    again.train("logs")
    again.train("logs")
    assert "learned nothing new" in again.said[-1]


def test_rows_that_were_shed_are_none_that_went_missing(world: World) -> None:
    (seen,) = [one for one in overview(world.tables.now()).streams if one.figures.stream == "logs"]
    assert seen.figures.rows_shed > 0
    assert seen.rows_missing == 0
    assert f"{seen.figures.rows_shed:,} dropped for good" in " ".join(" ".join(proof_lines([seen])).split())


def test_screens_say_that_rows_went_and_of_what_a_loss_is(world: World) -> None:
    now = world.tables.now()
    found = overview(now)
    (channel,) = [one for one in found.channels if "logs" in one.streams]
    assert channel.rows_shed > 0
    said = " ".join(overview_lines(found))
    assert "nothing is lost" not in said
    assert f"{channel.rows_shed:,} whole rows are dropped" in said
    told = load_trade_off(now, world.contracts, channel.channel)
    assert told is not None
    assert told.loss_of == ROWS
    assert "Loss: the share of the rows that queries ask for" in " ".join(
        " ".join(trade_off_lines(told)).split()
    )
    assert {one.data["y"] for one in trade_off_pictures(told)} == {"loss of what queries ask for, %"}


def test_rows_that_are_read_say_how_many_they_stand_for(world: World) -> None:
    contract = world.contracts.streams["logs"]
    found = look_up(world.tables, contract, StreamQuery.parse(contract, "latency", from_seq=0, to_seq=2499))
    sent = world.frame("transmitted", "logs").query("batch == 1").set_index("seq")
    rows = found.rows.to_pandas().set_index("seq")
    assert rows["weight"].max() > 1.0
    assert rows["weight"].to_dict() == sent["weight"].to_dict()
    assert "severity" not in rows.columns


def test_a_batch_that_dies_half_way_ends_in_the_same_tables(world: World, tmp_path: Path) -> None:
    """Pinned, its filter not written: what the next run makes is what an undisturbed one made."""
    again = world.copy(tmp_path)
    (batch, *_) = load_batches(again.tables.now(), "logs")
    for table in ("sifters",):
        again.at(table).delete(stream="logs", batch=[1, 2])
    again.shed(dates=(batch.batch_date, batch.batch_date))
    assert again.rows("transmitted", "logs") == world.rows("transmitted", "logs")


def test_spark_and_this_process_sift_alike(world: World, engine: Any, tmp_path: Path) -> None:
    there = World(world.folder, engine, world.tables, world.contracts).copy(tmp_path)
    there.engine = engine
    day = there.batches("logs")[0].batch_date
    there.shed(dates=(day, day))
    for table in ("transmitted", "sifters", "ledger"):
        stream = "logs" if table == "transmitted" else None
        assert there.rows(table, stream) == world.rows(table, stream)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"queries": []}, r"levers\[0\].queries` must hold at least 1"),
        ({"queries": [{"where": "latncy > 3"}]}, "declared dimensions.*did you mean latency"),
        ({"queries": [{"where": "size > 3"}]}, "got 'size > 3'; name size among the dimensions"),
        ({"queries": [{"where": "latency > 3 and latency < 2"}]}, "be possible to satisfy"),
        ({"queries": [{"where": "latency > 3", "weight": 0}]}, "have weights that sum to more than 0"),
        ({"queries": [{"where": "latency > 3", "alpha": 1.5}]}, "be a number at least 0 and at most 1"),
        ({"queries": [{"where": "latency > 3"}, {"where": "latency > 3"}]}, "differ from the other names"),
        ({"queries": [{"where": "true"}]}, "queries` must name an attribute: they read all rows, got 'true'"),
        ({"keep": ["true"]}, r"keep\[0\]` must name an attribute: it keeps every row, got 'true'"),
        ({"keep": ["severity > 'NOTICE'"]}, "severity must be one of DEBUG, INFO"),
        ({"keep": ["true; drop table x"]}, r"keep\[0\]"),
        ({"dimensions": [{"attribute": "latenzy"}]}, "must be an attribute of the stream, got 'latenzy'"),
        (
            {
                "dimensions": [{"attribute": "latency", "between": [0, 10]}, {"attribute": "severity"}],
                "keep": [],
                "queries": [{"where": "latency > 50"}],
            },
            "ask for something of latency between 0 and 10",
        ),
        ({"dimensions": [{"attribute": "latency", "between": [5, 1]}], "keep": []}, r"be \[least, most\] of a number"),
        ({"fairness": 2}, "at most 1"),
        ({"sample": {"marked_pct": 100}}, "sample.marked_pct` must be below 100: that sample is every row"),
        (
            {"fairness": 0, "queries": [{"where": "latency > 3", "at_least": 1.0}]},
            "fairness` must be above 0 if a query must have all of its rows",
        ),
        ({"regions": 0}, "at least 1"),
    ],
)  # fmt: skip
def test_what_a_contract_cannot_mean_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ContractError, match=said):
        read_stream({**LOGS, "levers": [{**SIFTERS, **changed}]})


def test_columns_that_are_given_back_from_other_rows_stand_behind(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="come after every lever that drops rows"):
        read_stream({**LOGS, "levers": [{"lever": "attributes"}, SIFTERS]})
