"""The first screen: true sentences, no line wider than a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.streams import World
from tests.report.page.pages import whole_report
from tests.report.page.small_lake import small_lake

from spillway.contracts import load_contracts
from spillway.levers.knapsack import Alternative
from spillway.levers.loss_curve import best_next_change, curve_capacities, loss_at_capacity, loss_curve
from spillway.levers.protocol import Offer
from spillway.report.overview import (
    AttributeFigures,
    ChannelOverview,
    Overview,
    StreamOverview,
    attribute_lines,
    measured_loss,
    overview,
    overview_lines,
    stream_lines,
)
from spillway.report.page import build_report
from spillway.report.summary import StreamFigures
from spillway.report.text import PAGE
from spillway.report.trade_off import (
    load_trade_off,
    to_channel_trade_off,
    trade_off_lines,
    trade_off_pictures,
)
from spillway.store.tables import Tables
from spillway.streams.trade_off import TradeOff

FIGURES = StreamFigures("weather", 26115, 14, 50.0, 24.0, 25.0, 0, 0.0, 0, 0, 99.9, 0.4, 0, 0)
TEMP = AttributeFigures(
    stream="weather", attribute="temp", role="measure", unit="degF", values=1000, rounded=600, shed=400, absent=100,
    offered_bytes=4000, sent_bytes=900, held_bytes=50, bound_pct=None, bound=0.5, mean_error_pct=0.9,
    worst_error_pct=40.0, mean_error=0.2, worst_error=0.45, mean_loss_pct=0.3, violations=0,
)  # fmt: skip
RAIN = replace(
    TEMP, attribute="precip", unit="inch", rounded=0, shed=0, absent=0, offered_bytes=500, sent_bytes=500,
    held_bytes=0, bound_pct=4.8, bound=None, mean_loss_pct=0.0,
)  # fmt: skip
KEY = replace(RAIN, attribute="origin", role="key", unit="", offered_bytes=70, sent_bytes=70, bound_pct=None)
WEATHER = StreamOverview(FIGURES, (KEY, TEMP, RAIN), 60.0, 1000, 0)


def way(name: str, width: float, loss: float) -> tuple[Alternative, ...]:
    kept = Alternative(width, (0.0, 0.0, width), name, "keep", 0.0, 10.0)
    return kept, Alternative(width / 4, (loss, 1.0, width / 4), name, "round", loss, 10.0)


OFFERS = {"weather": Offer(50.0, None, (way("temp", 24.0, 0.6), way("dewp", 16.0, 0.9)))}
IN_USE = loss_at_capacity(OFFERS, 30.0)
TRADE = TradeOff(
    "uplink",
    ("weather",),
    50.0,
    IN_USE,
    loss_at_capacity(OFFERS, 33.0),
    best_next_change(OFFERS, IN_USE),
    tuple(loss_curve(OFFERS, curve_capacities(OFFERS, 30.0, 3))),
)
UPLINK = ChannelOverview("uplink", ("weather",), 25.0, 50.0, 24.0, 5.2, to_channel_trade_off(TRADE))


def test_a_loss_counts_what_is_absent_whole_and_what_is_off_by_its_error() -> None:
    assert TEMP.loss_pct == (100 * 100 + 0.3 * 900) / 1000
    assert measured_loss([WEATHER]) == (TEMP.loss_pct + 0.0) / 2


def test_streams_weigh_by_how_many_values_they_bring_a_second() -> None:
    slow = replace(WEATHER, seconds=600.0, attributes=(RAIN,))
    assert measured_loss([WEATHER, slow]) == pytest.approx(
        TEMP.loss_pct * 1000 / 60 / (2000 / 60 + 1000 / 600)
    )


def test_the_screen_says_what_was_offered_used_lost_checked_and_what_more_would_buy() -> None:
    shown = " ".join(" ".join(overview_lines(Overview((UPLINK,), (WEATHER,)))).split())
    for said in (
        "uplink (weather), 25 kbps: 50 kbps offered, 24 kbps sent, 96.0 % of the capacity",
        "mean loss of a value of a measure: 5.2 %. Dropping random rows would lose 50 %",
        "10 % more capacity would bring the planned loss from 0.75 % to 0.3 %",
        "the next 12 kbps would make weather.dewp exact (now 0.9 % off)",
        "temp rounded 60 %, as synopsis 30 %, 0.5 degF 0.2 degF 0.45 degF 4 kB 900 B 50 B at source 10 %",
        "precip kept 4.8 % - - 500 B 500 B -",
        "origin: always exact, 70 B",
        "1,000 rounded or recovered values one by one, 0 outside their bound",
        "of 26,115 rows, 0 missing",
    ):
        assert said in shown, shown


def test_a_channel_with_room_for_all_says_that_nothing_is_lost() -> None:
    free = loss_at_capacity(OFFERS, 60.0)
    wide = replace(
        UPLINK,
        capacity_kbps=60.0,
        loss_pct=0.0,
        trade=to_channel_trade_off(replace(TRADE, in_use=free, more=free, next_paid=None)),
    )
    lines = overview_lines(Overview((wide,), ()))
    shown = " ".join(" ".join(lines).split())
    assert "  nothing is lost" in lines
    assert "10 % more capacity would buy nothing: nothing is lost for want of it" in shown
    assert "Dropping rows" not in shown


def test_channel_with_a_quota_claims_no_share_of_a_rate() -> None:
    """The rates that batches of a quota may use count its unspent bytes several times."""
    quota = replace(
        UPLINK, capacity_kbps=500.0, quota="200 kB/day", offered_bytes=300_000, sent_bytes=150_000
    )
    shown = " ".join(" ".join(overview_lines(Overview((quota,), ()))).split())
    assert "uplink (weather), 200 kB/day: 300 kB offered, 150 kB sent mean loss of a value" in shown
    assert "of the capacity" not in shown
    assert "Dropping random rows would lose 52 %" in shown
    assert "for the last batch of each stream, 10 % more" in shown


def test_rows_that_wait_are_not_reported_as_checked() -> None:
    lines = overview_lines(Overview((), (replace(WEATHER, rows_waiting=115),)))
    shown = " ".join(" ".join(lines).split())
    assert "weather: 26,115 rows, 14 refused, 115 not sent yet; " in shown
    assert "of 26,000 rows, 0 missing" in shown


def test_worst_error_within_the_bound_is_not_shown_above_it() -> None:
    near = replace(TEMP, bound=None, bound_pct=1.67, worst_error_pct=1.668, mean_error_pct=0.66)
    (line,) = attribute_lines([near])[1:2]
    assert "1.67 %      0.66 %  1.67 %" in line


def test_no_line_is_wider_than_a_page_however_long_the_names() -> None:
    long = replace(TEMP, stream="s" * 40, attribute="an_attribute_with_quite_a_long_name", unit="micrograms")
    channel = replace(UPLINK, channel="c" * 40, streams=("a" * 40, "b" * 40, "weather"))
    lines = overview_lines(Overview((channel,), (replace(WEATHER, attributes=(long, TEMP, KEY)),)))
    assert max(map(len, lines)) <= PAGE


def test_a_long_list_of_attributes_fills_its_lines() -> None:
    keys = [replace(KEY, attribute=f"key_{number}_with_quite_a_long_name") for number in range(40)]
    lines = list(stream_lines(replace(WEATHER, attributes=(*keys, TEMP))))
    assert max(map(len, lines)) <= PAGE
    listed = [line for line in lines if "key_" in line]
    # all but the last line are so full that one more name would not fit
    assert all(len(line) + len(", key_10_with_quite_a_long_name") > PAGE for line in listed[:-1]), listed
    assert sum(line.count("key_") for line in listed) == len(keys)


def test_a_bound_of_nothing_is_exact() -> None:
    exact = replace(TEMP, bound=None, bound_pct=0.0)
    assert "exact" in attribute_lines([exact])[1]


def test_the_trade_is_a_table_with_the_point_in_use_and_a_picture_of_both_lines() -> None:
    shown = to_channel_trade_off(TRADE)
    lines = list(trade_off_lines(shown))
    (mine,) = [line for line in lines if "in use" in line]
    assert mine.split()[:6] == ["30", "kbps", "0.75", "%", "40", "%"]
    assert max(map(len, lines)) <= PAGE
    picture, near = trade_off_pictures(shown)
    plan, rows = (line["points"] for line in picture.data["lines"])
    assert [x for x, _ in plan] == [x for x, _ in rows] == [one.capacity_kbps for one in TRADE.curve]
    assert (30.0, 0.75) in plan
    assert picture.data["mark"][0] == 30.0
    assert dict(rows)[50.0] == 0.0
    assert near.data["lines"][0]["points"] == plan, "all of it is near the ground here"


def test_figures_have_names_and_agree_with_the_screen(world: World) -> None:
    seen = overview(world.tables)
    flat = seen.flat()
    assert all(isinstance(value, int | float) for value in flat.values())
    assert (flat["rows_missing.sites"], flat["values_checked.watched"]) == (0, 0)
    assert flat["values_checked.sites"] == sum(
        row["shed_values"] + row["rounded_values"]
        for row in world.rows("certificates")
        if row["stream"] == "sites"
    )
    ledger = [
        row
        for row in world.rows("ledger")
        if row["stage"] == "sent" and row["subject"] in ("sites", "meters")
    ]
    assert sum(row["bytes_kept"] for row in ledger if row["unit"] == "rows") > 0
    narrow = next(one for one in seen.channels if one.channel == "narrow")
    assert flat["channel_used_pct.narrow"] == 100 * narrow.sent_kbps / narrow.capacity_kbps
    assert flat["channel_loss_pct.narrow"] == measured_loss(seen.streams[:2]) > 0
    assert {name.split(".")[2] for name in flat if name.startswith("loss_pct.sites.")} >= {
        "temp",
        "level",
        "sky",
    }
    assert max(map(len, overview_lines(seen))) <= PAGE


def test_a_lake_where_nothing_went_through_has_an_empty_screen() -> None:
    (line, *_) = overview_lines(Overview((), ()))
    assert line.startswith("Checked against the source: 0 rounded or recovered values")


def test_the_report_draws_the_trade_of_every_channel(world: World, tmp_path: Path) -> None:
    index = build_report(world.tables, tmp_path / "report.html")
    for channel in ("narrow", "wide"):
        text = (index.with_suffix("") / f"{channel}.html").read_text(encoding="utf-8")
        assert "<h3>Error against capacity</h3>" in text
        assert "dropping random rows" in text
        assert text.count('<line class="mark"') >= 2  # the point in use; and the capacity, next to the bytes


def test_facts_that_cannot_be_read_are_told_and_keep_nobody_from_the_page(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    tables = Tables(settings)
    told = load_trade_off(tables, load_contracts(settings.schemas), "uplink")
    assert told is not None
    assert "is not known: attributes, version 1: `facts` must be as training wrote them" in told.buys
    assert "is not known" in " ".join(overview_lines(overview(tables)))
    page = whole_report(build_report(tables, tmp_path / "r.html"))
    assert "dropping random rows" not in page
    assert "Error against capacity: what more capacity would buy is not known: attributes" in page
