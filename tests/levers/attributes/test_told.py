"""What the lever tells: why an attribute travels as it does, and the report's pictures, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.report.page.small_lake import DAYS, ERROR_PCT, NOW, TUPLES, rows_of, small_lake, write

from spillway.contracts import StreamContract, load_contracts
from spillway.levers.attributes.explain import draw_charts, explain_attribute
from spillway.levers.protocol import LeverExplanation, Picture
from spillway.settings import Settings
from spillway.store.tables import Tables
from spillway.streams.facts import newest_facts


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_lake(tmp_path_factory.mktemp("home"))


def fields_of(settings: Settings) -> StreamContract:
    return load_contracts(settings.schemas).streams["fields"]


def told_of(settings: Settings, attribute: str) -> LeverExplanation:
    tables = Tables(settings)
    facts = newest_facts(tables, "fields", "attributes")
    return explain_attribute(fields_of(settings), attribute, facts, tables)


def shown_of(settings: Settings) -> dict[str, Picture]:
    tables = Tables(settings)
    facts = newest_facts(tables, "fields", "attributes")
    return {picture.title: picture for picture in draw_charts(fields_of(settings), facts, tables)}


def line(picture: Picture, name: str) -> list[tuple[float, float]]:
    found: Mapping[str, Any] = next(one for one in picture.data["lines"] if one["name"] == name)
    return list(found["points"])


def test_what_is_shed_is_told_with_its_rank_rate_bound_and_the_way_back(lake: Settings) -> None:
    temp = told_of(lake, "temp")

    assert temp.treatment == "shed"
    assert temp.because.startswith(
        "this plan loses least of those that fit the capacity: its synopsis is kept at the source; it ranks 1 of 2"
    )
    assert temp.because.endswith("The plan says: lowest rank")
    assert temp.numbers["rank"] == "1 of 2 (score 0.4, recoverability)"
    assert temp.numbers["bound"] == {"% (from category)": ERROR_PCT}
    assert temp.numbers["rate"].endswith("200 bps too much")
    assert temp.numbers["so far"] == {"tuples shed": 240}
    assert temp.remedies[-1] == "recover it: spillway recover fields --attributes temp"


def test_every_way_that_an_attribute_travelled_is_counted(lake: Settings) -> None:
    rain = told_of(lake, "rain")

    assert rain.numbers["so far"] == {"tuples kept": 120, "tuples shed": 120}
    assert rain.numbers["stage"] == "2: its channel's"


def test_a_role_needs_no_further_reason_and_no_way_back(lake: Settings) -> None:
    site = told_of(lake, "site")

    assert (site.treatment, site.because) == (
        "kept",
        "role key is never rounded or shed: it identifies the sender of the tuple",
    )
    assert site.remedies == ()


def test_without_a_scheme_it_waits(lake: Settings) -> None:
    contract = load_contracts(lake.schemas).streams["meadows"]
    waits = explain_attribute(contract, "temp", None, Tables(lake))

    assert (waits.treatment, waits.numbers) == ("not planned yet", {})
    assert waits.because == "no scheme yet: the stream waits to be taken in, trained and shed"


def values_of(settings: Settings) -> Picture:
    """The chart of original and recovered values of `temp`."""
    (found,) = [
        one
        for one in shown_of(settings).values()
        if one.section == "values" and one.title.startswith("fields.temp")
    ]
    return found


def test_original_and_recovered_values_of_one_key_are_drawn_over_time_with_their_bound(
    lake: Settings,
) -> None:
    picture = values_of(lake)
    data = picture.data

    assert (data["y"], data["unit"], data["is_time"]) == ("temp", "degF", True)
    assert picture.note.startswith(
        "The last 96 rows of a."
    )  # 60 of the last date, and some of the one before
    assert data["x"] == sorted(data["x"])
    assert data["x"][-1] == (NOW + timedelta(hours=TUPLES - 2)).timestamp()
    assert len(data["original"]) == len(data["recovered"]) == len(data["bound"]) == 96
    for was, given, bound in zip(data["original"], data["recovered"], data["bound"], strict=True):
        assert bound == pytest.approx(given * ERROR_PCT / 100)
        assert abs(was - given) <= bound
    worst = max(abs(was - given) / bound for was, given, bound in zip(*_columns(data), strict=True))
    assert data["used_pct"] == pytest.approx(100 * worst)
    assert f"{100 * worst:.0f} % of its bound" in picture.title


def _columns(data: Mapping[str, Any]) -> list[list[float]]:
    return [data[name] for name in ("original", "recovered", "bound")]


def test_values_are_drawn_over_seq_where_no_attribute_is_a_time(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    path = Path(settings.schemas, "streams", "fields.yaml")
    stated = path.read_text(encoding="utf-8")
    path.write_text(stated.replace("type: timestamp", "type: integer"))
    data = values_of(settings).data

    assert not data["is_time"]
    assert data["x"][-1] == TUPLES - 2


def test_a_batch_that_was_not_validated_yet_is_not_looked_for_in_recovered(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    Tables(settings).at("certificates").delete(stream="fields", batch=[2])
    Tables(settings).at("recovered", "fields").delete(batch_date=DAYS[1])

    assert len(values_of(settings).data["original"]) == 60


def test_what_raw_no_longer_holds_is_not_plotted(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    Tables(settings).at("raw", "fields").delete(batch_date=list(DAYS))

    assert not [one for one in shown_of(settings).values() if one.section == "values"]


def test_where_the_last_date_is_retired_the_one_before_is_plotted(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    Tables(settings).at("raw", "fields").delete(batch_date=DAYS[1])

    assert len(values_of(settings).data["original"]) == 60


def test_the_threshold_is_marked_on_the_curve_it_was_found_on(lake: Settings) -> None:
    picture = shown_of(lake)["Stored share against threshold"]
    points = line(picture, "temp (E = 5 %)")

    assert picture.data["mark"] == (ERROR_PCT, "E = 5 %")
    assert max(error for error, _ in points) == 30.0
    assert points[0][1] > points[-1][1]


def test_rates_are_steps_from_run_to_run_and_the_note_says_what_is_too_much(lake: Settings) -> None:
    picture = shown_of(lake)["Rate against capacity"]

    assert line(picture, "offered")[:3] == [(0.0, 3.2), (59.0, 3.2), (60.0, 3.6)]
    assert "Falls short by up to 0.2 kbps." in picture.note


def test_neighbouring_runs_of_one_way_are_one_bar(lake: Settings) -> None:
    rows = dict(shown_of(lake)["Kept, rounded and shed over time"].data["rows"])

    assert [(low, high, way) for low, high, way, _ in rows["temp"]] == [(0.0, 239.0, "shed")]
    assert [way for _, _, way, _ in rows["rain"]] == ["keep", "shed", "keep", "shed"]


def test_hits_misses_and_evaluations_are_added_up(lake: Settings) -> None:
    note = shown_of(lake)["Kept, rounded and shed over time"].note

    assert note == "16 windows, 6 of them evaluated; 14 hits, 2 misses."


def test_hits_that_were_not_measured_are_not_made_up(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    row = rows_of(settings, "schemes")[0]
    write(settings, "schemes", [{**row, "batch": 3, "run": 9, "hits": -1, "from_seq": 300, "to_seq": 360}])

    assert "not measured" in shown_of(settings)["Kept, rounded and shed over time"].note


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": "observe"}, "mode observe plans and accounts, and drops nothing"),
        ({"error_pct": 0.0}, "error_pct 0 allows no error"),
    ],
)
def test_what_the_owner_overruled_is_named(lake: Settings, change: dict[str, Any], said: str) -> None:
    contract = fields_of(lake)
    if "mode" in change:
        contract = replace(contract, **change)
    else:
        (entry,) = contract.levers
        contract = replace(contract, levers=(replace(entry, settings=replace(entry.settings, **change)),))

    assert said in explain_attribute(contract, "temp", None, Tables(lake)).because
