"""Joins and queries: which streams they read, in which windows, with which levers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.contracts.test_loader import WEATHER, changed, schemas

from spillway.contracts import (
    check,
    load_contracts,
    load_usable,
    read_workload,
    to_plain,
    workload_json_schema,
)
from spillway.errors import ContractError
from spillway.registry import extra_levers

GUSTS: dict[str, Any] = {
    "name": "gusts",
    "inputs": ["weather", "rain"],
    "window": {"seconds": 60},
    "levers": [{"lever": "toy", "every": 10}],
}


@pytest.fixture(autouse=True)
def toy() -> Any:
    with extra_levers(toy="tests.contracts.toy"):
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The streams weather and rain."""
    return schemas(
        tmp_path,
        weather=yaml.safe_dump(WEATHER),
        rain=yaml.safe_dump(changed(stream="rain", source__path="rain")),
    )


def put(folder: Path, kind: str, name: str, contract: object) -> None:
    (folder / kind).mkdir(exist_ok=True)
    (folder / kind / f"{name}.yaml").write_text(yaml.safe_dump(contract, sort_keys=False))


def told(folder: Path) -> list[tuple[str, str, str]]:
    return [(p.where.split(":")[0], p.field, p.rule) for p in check(folder)]


def test_without_their_folders_there_are_no_joins_and_no_queries(folder: Path) -> None:
    contracts = load_contracts(folder)
    assert (contracts.joins, contracts.queries) == ({}, {})


def test_joins_and_queries_are_read_beside_the_streams(folder: Path) -> None:
    put(folder, "joins", "gusts", {**GUSTS, "capacity_group": "east_cpu", "description": "Gusts with rain."})
    put(folder, "queries", "mean", {**GUSTS, "name": "mean", "inputs": ["rain"]})
    contracts = load_contracts(folder)
    gusts = contracts.joins["gusts"]
    assert (gusts.subject, gusts.inputs, gusts.window.seconds) == ("gusts", ("weather", "rain"), 60.0)
    assert (gusts.capacity_group, gusts.lever_names, gusts.lever_settings("toy").every) == (
        "east_cpu",
        ("toy",),
        10,
    )
    assert (list(contracts.queries), contracts.queries["mean"].capacity_group) == (["mean"], None)
    assert contracts.files["gusts"] == "joins/gusts.yaml"
    assert read_workload(to_plain(gusts)) == gusts


def test_a_stream_may_be_joined_with_itself() -> None:
    assert read_workload({**GUSTS, "inputs": ["rain", "rain"]}).inputs == ("rain", "rain")


@pytest.mark.parametrize(
    ("change", "field", "rule"),
    [
        ({"name": "Gusts 1"}, "name", "be a lower-case name"),
        ({"inputs": []}, "inputs", "hold at least 1"),
        ({"inputs": "rain"}, "inputs", "be a list"),
        ({"inputs": ...}, "inputs", "be there"),
        ({"window": {"seconds": 0}}, "window.seconds", "above 0"),
        ({"window": {"seconds": 1e11}}, "window.seconds", "at most 1e+10"),
        ({"window": {"seconds": 60, "waits_seconds": 1e300}}, "window.waits_seconds", "at most 1e+10"),
        ({"window": {}}, "window.seconds", "be there"),
        ({"window": ...}, "window", "be there"),
        ({"capacity_group": ""}, "capacity_group", "be text"),
        ({"levers": []}, "levers", "hold at least 1"),
        ({"levers": ...}, "levers", "be there"),
        ({"levers": [{"lever": "tyo"}]}, "levers[0].lever", "be a registered lever"),
        ({"levers": [{"lever": "toy", "every": 0}]}, "levers[0].every", "at least 2"),
        ({"channel": "uplink"}, "channel", "be a known field"),
    ],
)
def test_reader_and_schema_refuse_what_breaks_a_rule(change: dict[str, Any], field: str, rule: str) -> None:
    contract = copy.deepcopy({name: v for name, v in {**GUSTS, **change}.items() if v is not ...})
    with pytest.raises(ContractError) as caught:
        read_workload(contract)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert rule in problem.rule
    assert not jsonschema.Draft202012Validator(workload_json_schema()).is_valid(contract)


def test_the_schema_accepts_what_the_reader_does() -> None:
    for contract in (GUSTS, {**GUSTS, "capacity_group": None, "description": ""}):
        read_workload(contract)
        jsonschema.Draft202012Validator(workload_json_schema()).validate(contract)


@pytest.mark.parametrize("kind", ["joins", "queries"])
def test_an_input_must_be_a_stream(folder: Path, kind: str) -> None:
    put(folder, kind, "gusts", {**GUSTS, "inputs": ["weather", "rian"]})
    (problem,) = check(folder)
    assert str(problem) == (
        f"{kind}/gusts.yaml:4: `inputs[1]` must be a stream, got 'rian'; did you mean rain?"
    )


def test_a_stream_that_is_wrong_itself_is_no_unknown_input(folder: Path) -> None:
    put(folder, "streams", "rain", {"stream": "rain"})
    put(folder, "joins", "gusts", GUSTS)
    assert {where for where, _, _ in told(folder)} == {"streams/rain.yaml"}


@pytest.mark.parametrize("field", ["inputs", "window", "levers"])
def test_what_a_join_lacks_is_told_and_every_other_contract_is_read(folder: Path, field: str) -> None:
    put(folder, "joins", "gusts", {name: value for name, value in GUSTS.items() if name != field})
    put(folder, "queries", "mean", {**GUSTS, "name": "mean"})
    assert told(folder) == [("joins/gusts.yaml", field, "be there")]
    assert list(load_usable(folder).queries) == ["mean"]


@pytest.mark.parametrize("value", [["weather"], {"first": "weather"}], ids=["list", "mapping"])
def test_a_value_that_no_set_holds_breaks_its_own_contract_alone(folder: Path, value: object) -> None:
    put(folder, "joins", "gusts", {**GUSTS, "window": {"seconds": value}})
    put(folder, "queries", "mean", {**GUSTS, "name": "mean"})
    usable = load_usable(folder)
    assert list(usable.queries) == ["mean"]
    assert [(one.subject, one.problems[0].value) for one in usable.broken] == [("gusts", value)]


def test_no_two_subjects_have_one_name(folder: Path) -> None:
    put(folder, "joins", "rain", {**GUSTS, "name": "rain"})
    put(folder, "joins", "gusts", GUSTS)
    put(folder, "queries", "gusts", GUSTS)
    assert told(folder) == [
        ("joins/rain.yaml", "name", "differ from that of streams/rain.yaml"),
        ("queries/gusts.yaml", "name", "differ from that of joins/gusts.yaml"),
    ]


def test_a_join_is_named_like_its_file(folder: Path) -> None:
    put(folder, "joins", "squalls", GUSTS)
    assert told(folder) == [("joins/squalls.yaml", "name", "be the name of its file")]
