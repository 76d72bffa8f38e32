"""Rules for rows are read, and each that nothing could be judged by is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.errors import ContractError

TYPES = {"site": "string", "at": "timestamp", "temp": "double", "day": "date", "open": "boolean"}


def read(shared: Any = (), zone: str = "UTC", **rules: Any) -> StreamContract:
    roles = {"site": "key", "at": "order"}
    attributes: list[dict[str, Any]] = [
        {"name": name, "type": kind, "role": roles.get(name, "measure"), "rules": rules.get(name, [])}
        for name, kind in TYPES.items()
    ]
    source = {"kind": "files", "format": "json"}
    return read_stream(
        {
            "stream": "sites",
            "channel": "up",
            "source": source,
            "attributes": attributes,
            "timezone": zone,
            "rules": list(shared),
        }
    )


def test_rules_stand_with_an_attribute_or_with_the_stream() -> None:
    found = read(
        [
            {"kind": "not_null", "attributes": ["temp", "day"], "action": "warn"},
            {"kind": "unique_with", "attributes": ["site", "at"]},
        ],
        site=[{"kind": "one_of", "values": ["a", "b"]}, {"kind": "pattern", "pattern": "[ab]"}],
        temp=[{"kind": "range", "least": -80, "most": 140.5}],
        at=[{"kind": "unique_with", "attributes": ["temp"]}],
        open=[{"kind": "one_of", "values": [True]}],
    ).checked_rules

    assert [(one.name, one.sentence, one.action) for one in found] == [
        ("site_one_of", "be one of a, b", "fail"),
        ("site_pattern", "be of the pattern [ab]", "fail"),
        ("at_temp_unique_with", "occur once in a batch", "fail"),
        ("temp_range", "be at least -80 and at most 140.5", "fail"),
        ("open_one_of", "be one of True", "fail"),
        ("temp_not_null", "not be null", "warn"),
        ("day_not_null", "not be null", "warn"),
        ("site_at_unique_with", "occur once in a batch", "fail"),
    ]


@pytest.mark.parametrize(
    ("attribute", "rule", "said"),
    [
        ("site", {"kind": "range", "least": 1}, "`attributes[0].rules[0].kind` must be one for type string"),
        ("open", {"kind": "range", "least": 1}, "`attributes[4].rules[0].kind` must be one for type boolean"),
        ("temp", {"kind": "pattern", "pattern": "a"}, "pattern is for string"),
        ("at", {"kind": "one_of", "values": ["x"]}, "one_of is for string, integer, double, boolean"),
        ("temp", {"kind": "one_of", "values": ["x"]}, "`attributes[2].rules[0].values[0]` must be of type double"),
        ("temp", {"kind": "one_of", "values": [True]}, "must be of type double, got True"),
        ("temp", {"kind": "one_of", "values": []}, "must hold at least 1"),
        ("temp", {"kind": "range"}, "`attributes[2].rules[0].least` must be there for kind range"),
        ("temp", {"kind": "range", "least": 2, "most": 1}, "must be at most the largest, 1, got 2; exchange them"),
        ("temp", {"kind": "range", "least": "cold"}, "`attributes[2].rules[0].least` must be of type double"),
        ("temp", {"kind": "range", "least": float("nan")}, "must be a number, or a time as text, got nan"),
        ("day", {"kind": "range", "least": "2026-02-31"}, "must be of type date, got '2026-02-31'; write e.g."),
        ("at", {"kind": "range", "most": 7}, "`attributes[1].rules[0].most` must be of type timestamp, got 7"),
        ("site", {"kind": "pattern", "pattern": "(a"}, "be a regular expression as RE2 has them, got '(a'; missing )"),
        ("site", {"kind": "pattern", "pattern": "(?=a)b"}, "look-ahead, look-behind and back-references"),
        ("site", {"kind": "pattern", "pattern": "(a)\\1"}, "got '(a)\\\\1'; invalid escape sequence; look-ahead"),
        ("site", {"kind": "pattern", "pattern": "a" * 501}, "must have at most 500 letters"),
        ("site", {"kind": "pattern"}, "`attributes[0].rules[0].pattern` must be there for kind pattern"),
        ("temp", {"kind": "not_null", "most": 1}, "`attributes[2].rules[0].most` must be absent for kind not_null"),
        ("temp", {"kind": "not_null", "attributes": ["site"]}, "must be absent: it is about this attribute"),
        ("temp", {"kind": "unique_with", "attributes": ["sit"]}, "got 'sit'; did you mean site?"),
        ("temp", {"kind": "unique_with", "attributes": ["temp"]}, "must name each once"),
        ("temp", {"kind": "rage"}, "`attributes[2].rules[0].kind` must be one of range, one_of"),
        ("temp", {"kind": "not_null", "action": "retire"}, "must be one of fail, warn, got 'retire'"),
    ],
)  # fmt: skip
def test_a_rule_that_nothing_can_be_judged_by_is_refused_by_name(
    attribute: str, rule: dict[str, Any], said: str
) -> None:
    with pytest.raises(ContractError) as caught:
        read(**{attribute: [rule]})

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        ([{"kind": "not_null"}], "`rules[0].attributes` must name its attributes"),
        ([{"kind": "not_null", "attributes": ["tmp"]}], "`rules[0].attributes` must be attributes of the stream"),
        ([{"kind": "range", "least": 0, "attributes": ["temp", "site"]}], "must be one for type string"),
        (
            [{"kind": "not_null", "attributes": ["temp"]}, {"kind": "not_null", "attributes": ["temp"]}],
            "`rules[1]` must be the only not_null of its attributes (see rules[0]), got 'temp_not_null'; keep one",
        ),
    ],
)  # fmt: skip
def test_so_is_one_of_the_stream(shared: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ContractError) as caught:
        read(shared)

    assert said in str(caught.value)


def test_a_rule_in_a_contract_whose_zone_nobody_knows_is_refused_without_a_stack() -> None:
    with pytest.raises(ContractError) as caught:
        read(zone="Nowhere/Else", at=[{"kind": "range", "least": "2026-01-01"}])

    assert "`timezone` must be a time zone" in str(caught.value)
