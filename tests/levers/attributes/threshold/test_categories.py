"""Categories by name: the thesis's tables, lists of many wordings, and the data files themselves."""

from __future__ import annotations

import csv
import math
from importlib import resources
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.golden import attributes as golden_attributes
from evidence.golden.categories import categories_correct, rows_as_printed
from spillway.errors import Refused
from spillway.levers.attributes.threshold.categories import KnownList, Matcher

GOLDEN = Path(__file__).parents[3] / "golden"
CLASSES = {
    "Weather": "moderately",
    "Stock": "very",
    "Internet": "low",
    "Medical": "extremely",
    "Population": "not",
    "Others": "others",
}
with (Path(__file__).parent / "category_lists.csv").open(encoding="utf-8") as lines:
    LISTS = [tuple(line.rstrip("\n").split(",", 1)) for line in lines][1:]


def test_every_similarity_and_category_of_tables_c_1_and_c_2_is_reproduced_with_plain_words() -> None:
    cells = list(golden_attributes.GROUPS["categories"](GOLDEN))
    assert len(cells) == 80 * 8
    assert [cell for cell in cells if not cell.equal] == []


def test_65_of_the_80_rows_are_exactly_as_printed_and_the_plain_words_know_37_and_35_categories() -> None:
    assert rows_as_printed(GOLDEN) == 65
    assert categories_correct(GOLDEN, "C1", Matcher.text()) == 37
    assert categories_correct(GOLDEN, "C2", Matcher.text()) == 35


def test_with_the_table_of_correlations_all_forty_of_both_tables_are_right() -> None:
    assert categories_correct(GOLDEN, "C1") == 40
    assert categories_correct(GOLDEN, "C2") == 40


@pytest.mark.parametrize(("domain", "names"), LISTS)
def test_a_stream_is_recognised_in_whatever_words_it_is_named(domain: str, names: str) -> None:
    found = Matcher.standard().classify(names.split(" "))
    assert found.criticality == CLASSES[domain], (found.domain, found.words)


def test_what_is_recognised_has_the_rate_of_its_class_and_the_rest_may_err_without_limit() -> None:
    classify = Matcher.standard().classify
    assert classify(["patient_id", "heart_rate", "spo2"]).rate_pct == 1.67
    assert classify(["ticker", "open", "high", "low", "close", "volume"]).rate_pct == 4.7
    assert classify(["temp", "humidity", "wind"]).rate_pct == 4.81
    assert classify(["router", "rtt", "packet_loss"]).rate_pct == 13.5
    assert classify(["county", "population", "males", "females"]).rate_pct == 20.33
    assert math.isinf(classify(["speed", "rpm", "fuel_level", "engine_temp"]).rate_pct)


@pytest.mark.parametrize(
    "names", [[], [""], ["x", "y", "z"], ["id", "timestamp", "value"], ["123", "__"], ["日付"]]
)
def test_names_that_say_nothing_are_others(names: list[str]) -> None:
    assert Matcher.standard().classify(names).criticality == "others"
    assert Matcher.text().classify(names).criticality == "others"


def test_a_temperature_and_a_pressure_in_an_engine_are_not_weather() -> None:
    found = Matcher.standard().classify(["engine_temp", "oil_pressure", "rpm", "speed", "latitude"])
    assert (found.domain, found.criticality) == ("Vehicle telemetry", "others")


@settings(max_examples=30, deadline=None)
@given(st.permutations(["origin", "temp", "dewp", "humid", "wind_dir", "pressure", "visib"]))
def test_the_order_of_the_names_does_not_matter(names: list[str]) -> None:
    found = Matcher.standard().classify(names)
    assert (found.domain, found.criticality) == ("Weather Information", "moderately")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("windSpeedKph", ("wind", "speed")),
        ("DEW_POINT_TEMP", ("dew", "temp")),
        ("totalpackets", ("packets",)),
        ("lastprice", ("last", "price")),
        ("precipitat", ("precipitation",)),
        ("temprature", ("temperature",)),
        ("humidities", ("humidity",)),
        ("SpO2", ("spo2",)),
        ("rtt1", ("rtt",)),
        ("temp_c", ("temp",)),
        ("qwertz", ("qwertz",)),
    ],
)
def test_a_name_is_taken_apart_into_words_of_the_table(name: str, words: tuple[str, ...]) -> None:
    assert Matcher.standard().words([name]) == words


def test_similarity_is_the_mean_coverage_and_eq_needs_both_thresholds() -> None:
    known = KnownList("d", "low", ("a1", "b1", "c1", "d1"))
    table = {"x": {"a1": 0.5, "b1": 0.5}, "a1": {}, "b1": {}, "c1": {}, "d1": {}}
    matcher = Matcher((known,), {"low": 13.5, "others": math.inf}, frozenset(), table)
    match = matcher.compare(("x", "c1"), known)
    # x is covered by 1 - (1 - 0.5)(1 - 0.5), c1 fully; a1 and b1 by half, c1 fully, d1 not at all
    assert match.stream_in_list == pytest.approx((0.75 + 1) / 2)
    assert match.list_in_stream == pytest.approx((0.5 + 0.5 + 1 + 0) / 4)
    assert match.equal
    assert not matcher.compare(("c1",), KnownList("d", "low", ("c1", "e", "f"))).equal  # differ by 0.67
    assert not matcher.compare(("c1", "q", "r", "s"), known).equal  # 0.25 is below 0.29


def test_correlation_is_symmetric_and_takes_one_step_over_a_synonym() -> None:
    matcher = Matcher.standard()
    assert matcher.correlation("dewp", "dewpoint") == matcher.correlation("dewpoint", "dewp") == 1.0
    assert matcher.correlation("dewp", "humidity") == matcher.correlation("dewpoint", "humidity") == 0.7
    assert matcher.correlation("router", "insulin") == 0.0


def test_a_class_named_by_the_contract_has_its_rate_and_an_unknown_one_is_refused() -> None:
    assert Matcher.standard().rate_pct("moderately") == 4.81
    with pytest.raises(Refused, match="`criticality` must be one of extremely, very"):
        Matcher.standard().rate_pct("somewhat")


def test_the_data_files_are_in_order() -> None:
    package = resources.files("spillway.levers.attributes.threshold")
    data = yaml.safe_load(package.joinpath("categories.yaml").read_text(encoding="utf-8"))
    rows = list(
        csv.DictReader(package.joinpath("word_correlations.csv").read_text(encoding="utf-8").splitlines())
    )
    words = [word for domain in data["domains"] for known in domain["lists"] for word in known]
    assert all(isinstance(word, str) for word in [*words, *data["stop_words"], *data["text_stop_words"]])
    assert len({(row["word"], row["head"]) for row in rows}) == len(rows)
    assert all(0 < float(row["factor"]) <= 1 for row in rows)
    assert all((row["kind"] == "synonym") == (float(row["factor"]) == 1) for row in rows)
    assert all(row["word"] != row["head"] == row["head"].lower() for row in rows)
    assert {domain.get("class") for domain in data["domains"]} <= {*data["classes"], None}
    # a stop word in a list could never match
    assert set(words) & set(data["stop_words"]) == set()
