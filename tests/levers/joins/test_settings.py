"""What a contract of a join may say, and what is refused by name."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from tests.levers.joins.lake import JOIN

from spillway.contracts.loader import read_workload
from spillway.contracts.schema import workload_json_schema
from spillway.errors import ContractError


def contract(**changes: Any) -> dict[str, Any]:
    made = copy.deepcopy(JOIN)
    lever = {**made["levers"][0], **changes}
    made["levers"] = [{name: value for name, value in lever.items() if value is not ...}]
    return made


TYPES = [{"name": "high", "utility": 1.0}]


@pytest.mark.parametrize(
    ("changes", "field", "rule", "by_schema"),
    [
        ({"predicate": "like"}, "predicate", "be one of equality", True),
        ({"seed": 1 << 62}, "seed", "at most", True),
        ({"threshold": 0}, "threshold", "above 0", True),
        ({"threshold": None}, "threshold", "be there for overlap", False),
        ({"predicate": "subset"}, "threshold", "be absent for subset", False),
        ({"sets": None}, "sets", "be there for overlap", False),
        ({"predicate": "inner_product"}, "sets.weight", "be there for inner_product", False),
        ({"sets": {"separator": ""}}, "sets.separator", "at least one character", False),
        ({"left": {}}, "left.attribute", "be there", True),
        ({"left": {"attribute": "tags", "attributes": ["tags"]}}, "left.attributes", "without attribute", False),
        ({"left": {"attributes": ["site", "tags"]}}, "right.attributes", "be as many", False),
        (
            {"left": {"attributes": ["site", "tags"]}, "right": {"attributes": ["site", "tags"]}},
            "sets", "be absent where several", False,
        ),
        (
            {
                "left": {"attributes": ["site", "tags"]}, "right": {"attributes": ["site", "tags"]}, "sets": ...,
                "predicate": "inner_product",
            },
            "predicate", "no weights", False,
        ),
        ({"basic_window_seconds": 1e-7}, "basic_window_seconds", "at least 1e-06", True),
        ({"left": {"attribute": "tags", "lasts_seconds": 0}}, "left.lasts_seconds", "above 0", True),
        ({"left": {"attribute": "tags", "lasts_seconds": 1}}, "left.lasts_seconds", "no shorter than a basic", False),
        ({"basic_window_seconds": 0.0001}, "basic_window_seconds", "into at most 10,000", False),
        ({"budget": {"comparisons_per_second": 0}}, "budget.comparisons_per_second", "above 0", True),
        ({"budget": {"core_pct": -1}}, "budget.core_pct", "above 0", True),
        ({"budget": {}}, "budget.comparisons_per_second", "be there, or core_pct", False),
        (
            {"budget": {"core_pct": 5, "comparisons_per_second": 5}},
            "budget.core_pct", "stand without comparisons_per_second", False,
        ),
        (
            {
                "left": {"attributes": ["site", "tags"]}, "right": {"attributes": ["site", "tags"]}, "sets": None,
                "threshold": 3,
            },
            "threshold", "be at most as many as the attributes (2)", False,
        ),
        ({"types": [{"name": "high", "utility": -1}]}, "types[0].utility", "at least 0", True),
        ({"types": TYPES}, "types", "stand with left.type or right.type", False),
        ({"left": {"attribute": "tags", "type": "urgency"}}, "left.type", "stand with types", False),
        (
            {"left": {"attribute": "tags", "type": "urgency"}, "types": TYPES + TYPES},
            "types[1].name", "occur once", False,
        ),
        (
            {
                "left": {"attribute": "tags", "type": "urgency"},
                "types": [{"name": "high", "utility": 0}], "otherwise": 0,
            },
            "types", "have a utility", False,
        ),
        ({"adapt": {"sample_pct": 0}}, "adapt.sample_pct", "at least 0.001", True),
        ({"adapt": {"memory": 1}}, "adapt.memory", "below 1", True),
        ({"most_rows": 0}, "most_rows", "at least 1", True),
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_told_by_field_rule_and_remedy(
    changes: dict[str, Any], field: str, rule: str, by_schema: bool
) -> None:
    made = contract(**changes)
    with pytest.raises(ContractError) as caught:
        read_workload(made)
    problem = next(one for one in caught.value.problems if one.field == f"levers[0].{field}")
    assert rule in problem.rule
    assert problem.remedy
    valid = jsonschema.Draft202012Validator(workload_json_schema()).is_valid(made)
    assert valid == (not by_schema), "what compares values with one another, the reader alone knows"


def test_types_may_be_worth_nothing_as_long_as_one_is_worth_something() -> None:
    left = {"attribute": "tags", "type": "urgency"}
    types = [{"name": "high", "utility": 1}, {"name": "low", "utility": 0}]
    read = read_workload(contract(left=left, types=types, otherwise=0))
    assert [one.utility for one in read.lever_settings("joins").types] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "field", "rule", "value", "remedy"),
    [
        (
            {"left": {"attribute": "tags"}, "right": {"attributes": ["tags", "site"]}, "sets": ..., "threshold": 1},
            "right.attributes", "be as many as the left ones (1)", ["tags", "site"], "name the attribute",
        ),
        (
            {"left": {"attributes": ["tags", "site"]}, "right": {"attribute": "tags"}, "sets": ...},
            "right.attributes", "be as many as the left ones (2)", ["tags"], "name the attribute",
        ),
        (
            {
                "left": {"attribute": "tags", "lasts_seconds": 20000},
                "right": {"attribute": "tags", "lasts_seconds": 60000}, "basic_window_seconds": 1,
            },
            "basic_window_seconds", "cut a window into at most 10,000", 1.0, "write 6 or more",
        ),
        ({"predicate": "overlaps"}, "predicate", "be one of equality", "overlaps", "did you mean overlap?"),
    ],
)  # fmt: skip
def test_one_mistake_is_told_once_and_as_it_was_written(
    changes: dict[str, Any], field: str, rule: str, value: object, remedy: str
) -> None:
    with pytest.raises(ContractError) as caught:
        read_workload(contract(**changes))
    (problem,) = caught.value.problems
    assert problem.field == f"levers[0].{field}"
    assert problem.rule.startswith(rule)
    assert problem.value == value
    assert problem.remedy.startswith(remedy)
