"""What training makes of a stream's names: a class, or the strictest and a question to whoever wrote the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.levers.attributes.training.train import category_fact, category_of
from spillway.levers.protocol import Facts, open_questions


def contract_of(measures: Sequence[str], criticality: str | None = None) -> StreamContract:
    attributes = [
        {"name": "unit", "type": "string", "role": "key"},
        {"name": "at", "type": "integer", "role": "order"},
    ]
    attributes += [{"name": name, "type": "double"} for name in measures]
    lever = {"lever": "attributes"} | ({"criticality": criticality} if criticality else {})
    source = {"format": "csv"}
    return read_stream(
        {"stream": "s", "channel": "up", "source": source, "attributes": attributes, "levers": [lever]}
    )


@pytest.mark.parametrize(
    ("measures", "criticality", "domain", "rate_pct", "asks"),
    [
        (["temp", "humidity", "wind_spd"], None, "Weather Information", 4.81, False),
        (["foo", "bar", "baz"], None, "assumed: no known domain", 1.67, True),
        (["rpm", "fuel_level", "throttle"], None, "assumed: Vehicle telemetry has no class", 1.67, True),
        (["foo", "bar", "baz"], "low", "stated in the contract", 13.5, False),
        (["temp", "humidity", "wind_spd"], "extremely", "stated in the contract", 1.67, False),
    ],
)
def test_what_no_domain_knows_is_held_to_the_strictest_class_until_the_contract_says(
    measures: list[str], criticality: str | None, domain: str, rate_pct: float, asks: bool
) -> None:
    contract = contract_of(measures, criticality)
    category = category_of(contract)
    assert (category.domain, category.rate_pct) == (domain, rate_pct)
    fact = category_fact(contract, category)
    assert fact.value["assumed"] is asks
    assert json.loads(json.dumps(fact.evidence, allow_nan=False))["rate_pct"] == rate_pct
    questions = list(open_questions(Facts(1, {(fact.fact, ""): fact})))
    assert [(domain in one.sentence, "schemas/streams/s.yaml" in one.remedy) for one in questions] == [
        (True, True)
    ] * asks
