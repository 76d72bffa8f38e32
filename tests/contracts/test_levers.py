"""The list `levers:`: any registered lever, in order, each with its own settings, and nothing beside it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import jsonschema
import pytest
from tests.contracts.test_loader import changed, problems_of, with_settings

from spillway.contracts import json_schema, read_stream, to_plain
from spillway.errors import ContractError, InvalidValue
from spillway.levers.attributes.settings import AttributeSettings
from spillway.registry import extra_levers

TOY = {"toy": "tests.contracts.toy"}


@pytest.fixture
def toy() -> Iterator[None]:
    with extra_levers(**TOY):
        yield


@pytest.mark.usefixtures("toy")
def test_levers_are_read_in_the_order_they_stand_in_each_with_its_own_settings() -> None:
    stated = [{"lever": "toy", "every": 10}, {"lever": "attributes", "rank_by": "relative"}]
    contract = read_stream(changed(levers=stated))
    assert contract.lever_names == ("toy", "attributes")
    assert contract.lever_settings("toy").every == 10
    assert contract.lever_settings("attributes") == AttributeSettings(rank_by="relative")
    assert to_plain(contract)["levers"][0] == {"lever": "toy", "every": 10, "aside": "temp"}
    assert read_stream(to_plain(contract)) == contract


def test_a_stream_without_levers_is_sent_on_as_it_is() -> None:
    contract = read_stream(changed(levers=[]))
    assert (contract.mode, contract.levers) == ("shed", ())


def test_a_stream_that_states_none_has_attributes_unless_it_is_observed_and_has_no_measure() -> None:
    assert read_stream(changed()).lever_settings("attributes") == AttributeSettings()
    without = changed(attributes__2__role="protected", attributes__3__role="protected", mode="observe")
    assert read_stream(without).levers == ()
    measured = {**without, "attributes": [*without["attributes"], {"name": "dew", "type": "double"}]}
    assert read_stream(measured).lever_names == ("attributes",)


def test_settings_of_a_lever_that_does_not_work_here_are_refused_by_name() -> None:
    with pytest.raises(
        InvalidValue, match=r"`lever` must be one of weather's, got 'toy'; add \{lever: toy\}"
    ):
        read_stream(changed()).lever_settings("toy")


@pytest.mark.parametrize("name", [field.name for field in fields(AttributeSettings)])
def test_a_setting_of_old_beside_the_list_is_refused_with_its_place(name: str) -> None:
    value: Any = to_plain(AttributeSettings())[name]
    (problem,) = problems_of(changed(**{name: value}))
    assert (problem.field, problem.rule) == (name, "be stated in the entry of its lever")
    assert problem.remedy == f"write levers: [{{lever: attributes, {name}: ...}}]"


@pytest.mark.usefixtures("toy")
def test_a_setting_beside_the_list_is_sent_to_whichever_lever_has_it() -> None:
    (problem,) = problems_of(changed(every=10))
    assert problem.remedy == "write levers: [{lever: toy, every: ...}]"


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize(
    ("levers", "field", "rule", "remedy"),
    [
        ("toy", "levers", "be a list", "write [{lever: attributes}]"),
        ({"lever": "toy"}, "levers", "be a list", "write [{lever: attributes}]"),
        (["toy"], "levers[0]", "be a mapping", "lever: NAME"),
        ([{"every": 10}], "levers[0]", "name its lever", "one of attributes, "),
        ([{"lever": "tyo", "every": 10}], "levers[0].lever", "be a registered lever", "did you mean toy?"),
        ([{"lever": 7}], "levers[0].lever", "be a registered lever", "use one of attributes, "),
        ([{"lever": ["toy"]}], "levers[0].lever", "be a registered lever", "did you mean toy?"),
        ([{"lever": "toy"}], "levers[0].every", "be there", "add every"),
        ([{"lever": "toy", "every": 1}], "levers[0].every", "at least 2", "write 2 or more"),
        ([{"lever": "toy", "every": 13}], "levers[0].every", "bring no bad luck", "write 12"),
        ([{"lever": "toy", "every": 10, "eveyr": 9}], "levers[0].eveyr", "be a known field", "did you mean every?"),
        ([{"lever": "toy", "every": 10, "aside": "wind"}], "levers[0].aside", "be an attribute", "name one"),
        ([{"lever": "attributes"}, {"lever": "toy", "every": 10, "aside": "x"}], "levers[1].aside", "be an attr", ""),
        ([{"lever": "toy", "every": 10}, {"lever": "toy", "every": 9}], "levers[1].lever", "occur once", "repeat"),
        ([{"lever": "attributes", "every": 10}], "levers[0].every", "be a known field", "use one of"),
    ],
)  # fmt: skip
def test_every_rule_of_the_list_is_told_by_field_rule_and_remedy(
    levers: object, field: str, rule: str, remedy: str
) -> None:
    contract = changed(levers=levers)
    (problem,) = problems_of(contract)
    assert problem.field == field
    assert rule in problem.rule
    assert remedy in problem.remedy
    # what compares values with one another, the reader alone knows
    reader_alone = rule.startswith(("bring", "be an attr"))
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(contract) == reader_alone


def test_problems_of_an_entry_come_together_with_those_of_the_stream() -> None:
    contract = {
        **with_settings(rank_by="size", treatments=["shed"], cycle={"attributes": ["orgin"]}),
        "mode": "drop",
    }
    assert {p.field for p in problems_of(contract)} == {
        "mode",
        "levers[0].rank_by",
        "levers[0].treatments",
        "levers[0].cycle.attributes[0]",
    }


@pytest.mark.parametrize("name", [..., None, 5])
def test_conditions_are_judged_only_where_every_attribute_has_a_name(name: Any) -> None:
    asked = {"lever": "sifters", "queries": [{"where": "temp > 60"}, {"where": "dew > 60"}]}
    (problem,) = problems_of(changed(levers=[asked], attributes__3__name=name))
    assert problem.field == "attributes[3].name"


def test_a_column_of_a_registered_lever_is_no_name_for_an_attribute() -> None:
    contract = changed(attributes__3__name="Tenth")
    assert read_stream(contract).names[3] == "Tenth"
    with extra_levers(**TOY):
        (problem,) = problems_of(contract)
        assert (problem.field, problem.value) == ("attributes[3].name", "Tenth")
        assert problem.rule == "not be a name that the lever toy reserves for its column"
        assert not jsonschema.Draft202012Validator(json_schema()).is_valid(contract)
    jsonschema.Draft202012Validator(json_schema()).validate(contract)


def test_reading_the_settings_of_every_lever_compiles_no_kernel_and_starts_nothing() -> None:
    look = (
        "import sys; from spillway.contracts import json_schema; json_schema(); "
        "print(sorted({'numba', 'pyspark', 'deltalake', 'duckdb', 'great_expectations'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_a_lever_that_needs_every_row_stands_behind_those_that_lose_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tests.contracts.toy import settings as toy

    monkeypatch.setattr(toy, "LOSES_ROWS", True, raising=False)
    with extra_levers(toy="tests.contracts.toy"):
        stated = {"lever": "toy", "every": 10, "aside": "temp"}
        assert read_stream(changed(levers=[stated, {"lever": "attributes"}])).lever_names == (
            "toy",
            "attributes",
        )
        with pytest.raises(
            ContractError, match=r"come after every lever that drops rows.*move it behind toy"
        ):
            read_stream(changed(levers=[{"lever": "attributes"}, stated]))
