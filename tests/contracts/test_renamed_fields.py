"""A contract with an earlier name of a field is refused by the present name, and that is its only problem."""

from __future__ import annotations

from typing import Any

import pytest

from spillway.contracts import read_stream, read_workload
from spillway.errors import ContractError

ATTRIBUTES = [
    {"name": "at", "type": "timestamp", "role": "order"},
    {"name": "temp", "type": "double", "role": "measure"},
]
STREAM = {"stream": "s", "channel": "up", "attributes": ATTRIBUTES}
JOIN: dict[str, Any] = {
    "name": "pairs",
    "inputs": ["s"],
    "window": {"seconds": 60},
    "levers": [{"lever": "joins", "left": {"attribute": "at"}, "right": {"attribute": "at"}}],
}
TYPED = {**JOIN["levers"][0], "left": {"attribute": "at", "type": "kind"}}


def stream(source: dict[str, Any] | None = None, **lever: Any) -> dict[str, Any]:
    files = {"kind": "files", "path": "s", "format": "json", **(source or {})}
    return {**STREAM, "source": files, "levers": [{"lever": "attributes", **lever}]}


def sifters(**lever: Any) -> dict[str, Any]:
    queries = [{"where": "temp > 3"}]
    return {**stream(), "levers": [{"lever": "sifters", "queries": queries, **lever}]}


@pytest.mark.parametrize(
    ("contract", "field", "now"),
    [
        (stream(ways=["keep", "round"]), "levers[0].ways", "treatments"),
        (stream(method="paper", ways=["keep", "shed"]), "levers[0].ways", "treatments"),
        (stream(asked_back_pct=5), "levers[0].asked_back_pct", "requested_pct"),
        (stream({"after_taken_in": "archive"}), "source.after_taken_in", "after_ingest"),
        (sifters(keep_aside=True), "levers[0].keep_aside", "keep_at_source"),
        (sifters(unasked="by_region"), "levers[0].unasked", "unqueried"),
        ({**JOIN, "room": "desk"}, "room", "capacity_group"),
        (
            {**JOIN, "levers": [{**TYPED, "types": [{"name": "high", "worth": 2}]}]},
            "levers[0].types[0].worth",
            "utility",
        ),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_earlier_name_of_a_field_is_refused_by_its_present_name(
    contract: dict[str, Any], field: str, now: str
) -> None:
    with pytest.raises(ContractError) as refused:
        (read_workload if "name" in contract else read_stream)(contract)
    (problem,) = refused.value.problems
    assert (problem.field, problem.rule) == (field, f"be called `{now}` now")
    assert problem.remedy == f"rename it to {now}: its meaning and its values are the same"


def test_both_names_of_a_field_are_one_problem() -> None:
    with pytest.raises(ContractError) as refused:
        read_workload({**JOIN, "room": "desk", "capacity_group": "desk"})
    assert [problem.field for problem in refused.value.problems] == ["room"]
