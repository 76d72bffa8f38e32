"""The bound that counts: the tighter of what was trained and what the contract says now."""

from __future__ import annotations

import math
from typing import Any

import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import admissible_options, bound_now
from spillway.levers.attributes.synopsis.bounds import ErrorBound
from spillway.levers.attributes.synopsis.model import AttributeModel, Precision, Rounding
from spillway.levers.attributes.threshold.curve import LOOSEST_PCT


def contract(attribute: dict[str, Any], **lever: Any) -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "key", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                {"name": "a", "type": "double", **attribute},
                {"name": "other", "type": "double"},
            ],
            "levers": [{"lever": "attributes", **lever}],
        }
    )


@pytest.mark.parametrize(
    ("attribute", "lever", "error_pct", "error"),
    [
        ({}, {}, 4.7, math.inf),
        ({"error_pct": 1}, {}, 1.0, math.inf),
        ({"error_pct": 30}, {}, 4.7, math.inf),  # a looser one waits for the next training
        ({"error": 0.5}, {}, 4.7, 0.5),
        ({"error_pct": 2, "error": 0.5}, {}, 2.0, 0.5),
        ({}, {"error_pct": 2}, 2.0, math.inf),
        ({"error_pct": 3}, {"error_pct": 2}, 3.0, math.inf),  # the attribute's own wins over the stream's
        ({}, {"bounds": "stated"}, 0.0, math.inf),
        ({}, {"bounds": "stated", "error_pct": 2}, 2.0, math.inf),
        ({"error_pct": 3}, {"bounds": "stated"}, 3.0, math.inf),
        ({"codes": True}, {}, 0.0, math.inf),
        ({"codes": True}, {"error_pct": 2}, 0.0, math.inf),
        ({"codes": True, "error_pct": 2}, {}, 2.0, math.inf),
        ({"type": "timestamp"}, {}, 0.0, math.inf),
        ({"type": "date"}, {"error_pct": 2}, 0.0, math.inf),
        ({"type": "boolean"}, {}, 0.0, math.inf),
        ({"type": "timestamp", "error": 1e6}, {}, 4.7, 1e6),
    ],
)
def test_the_tighter_of_model_and_contract_counts(
    attribute: dict[str, Any], lever: dict[str, Any], error_pct: float, error: float
) -> None:
    found = bound_now(contract(attribute, **lever), AttributeModel("a", "real", 4.7))
    assert found == ErrorBound(error_pct, error)


def test_a_model_of_before_that_no_person_stood_behind_is_held_to_the_loosest_class() -> None:
    old = AttributeModel("a", "real", 100.0)
    assert bound_now(contract({}), old).error_pct == LOOSEST_PCT
    assert bound_now(contract({"error_pct": 60}), old).error_pct == 60.0


def test_what_the_contract_has_lost_is_judged_by_what_was_trained() -> None:
    assert bound_now(contract({}), AttributeModel("gone", "real", 4.7)) == ErrorBound(4.7)


OPTIONS = (
    Option("a", "keep", 10.0),
    *(Option("a", "round", 5.0, precision=place) for place in range(2)),
    *(Option("a", "shed", 0.0, 3.0, precision=place) for place in range(3)),
)
MODEL = AttributeModel(
    "a",
    "real",
    8.0,
    precisions=(Precision(0.0), Precision(2.0), Precision()),
    roundings=(Rounding("grid", 1.0), Rounding("grid", 8.0)),
)


@pytest.mark.parametrize(
    ("bound", "left"),
    [
        (ErrorBound(8.0), [("keep", 0), ("round", 0), ("round", 1), ("shed", 0), ("shed", 1), ("shed", 2)]),
        (ErrorBound(2.0), [("keep", 0), ("round", 0), ("shed", 0), ("shed", 1)]),
        (ErrorBound(0.5), [("keep", 0), ("shed", 0)]),
        (ErrorBound(0.0), [("keep", 0), ("shed", 0)]),
        (ErrorBound(8.0, 0.5), [("keep", 0), ("shed", 0)]),  # nothing is known of them in the unit
    ],
)
def test_only_precisions_within_the_bound_may_be_planned_with(
    bound: ErrorBound, left: list[tuple[str, int]]
) -> None:
    found = admissible_options(OPTIONS, MODEL, bound, ("keep", "round", "shed"))
    assert [(one.way, one.precision) for one in found] == left


def test_ways_that_the_contract_no_longer_allows_are_not_offered() -> None:
    assert {one.way for one in admissible_options(OPTIONS, MODEL, MODEL.bound, ("keep", "round"))} == {
        "keep",
        "round",
    }
    assert {one.way for one in admissible_options(OPTIONS, MODEL, MODEL.bound, ("keep",))} == {"keep"}
    plain = AttributeModel("a", "real", 8.0)
    (kept, rounded) = admissible_options(OPTIONS[:2], plain, ErrorBound(0.0), ("keep", "round"))
    assert (kept.way, rounded.way) == ("keep", "round")  # a rounding that saves nothing is exact
