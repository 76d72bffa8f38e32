"""Names are read in words, whatever the spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.levers.attributes.threshold.category import CategoryMatcher


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("windSpeedKph", ("wind", "speed")),
        ("wind_spd", ("wind", "spd")),
        ("WIND-SPD", ("wind", "spd")),
        ("PatientName", ("patient",)),
        ("bytesIn", ("bytes", "in")),
        ("ts_recv", ("recv",)),
        ("totalpackets", ("packets",)),
        ("lastprice", ("last", "price")),
        ("precipitat", ("precipitation",)),
        ("temprature", ("temperature",)),
        ("humidities", ("humidity",)),
        ("SpO2", ("spo2",)),
        ("rtt1", ("rtt",)),
        ("temp_c", ("temp",)),
        ("rain_hr", ("rain",)),
        ("HR", ("hr",)),
        ("max_hr", ("hr",)),
        ("Eröffnung", ("eroffnung",)),
        ("Snødybde", ("snodybde",)),
        ("MÆND", ("maend",)),
        ("bevölkerungsgröße", ("bevolkerungsgrosse",)),
        ("mrkt", ("market",)),
        ("lctn", ("location",)),
        ("station_nombre_fecha", ("station",)),
        ("日付", ("日付",)),
        ("qwertz", ("qwertz",)),
        ("__", ()),
        ("123", ()),
    ],
)
def test_a_name_is_taken_apart_into_words_that_are_known(name: str, words: tuple[str, ...]) -> None:
    assert CategoryMatcher.standard().words([name]) == words


@given(
    st.lists(
        st.sampled_from(["wind", "router", "packet", "humidity", "heart", "bytes", "price"]),
        min_size=1,
        max_size=3,
    )
)
def test_snake_case_camel_case_and_blanks_say_the_same(words: list[str]) -> None:
    spelt = (
        "_".join(words),
        "".join(word.title() for word in words),
        " ".join(words),
        "-".join(words).upper(),
    )
    assert {CategoryMatcher.standard().words([name]) for name in spelt} == {tuple(words)}
