"""Suites are data, and a slip in them is refused with its file, position, rule and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spillway.checks import load_suites
from spillway.errors import ContractError

RULE = {
    "name": "a",
    "type": "expect_column_max_to_be_between",
    "kwargs": {"column": "x", "max_value": {"$PARAMETER": "limit"}},
    "meaning": "x is small.",
    "sentence": "{stream} has {x}",
}
SUITE = {
    "table": "ledger",
    "meaning": "m",
    "view": "SELECT 1",
    "parameters": {"limit": 3},
    "expectations": [RULE],
}


def write(folder: Path, **changes: object) -> Path:
    (folder / "ledger.yaml").write_text(yaml.safe_dump({**SUITE, **changes}), encoding="utf-8")
    return folder


def problems(folder: Path, parameters: dict[str, float] | None = None) -> list[str]:
    with pytest.raises(ContractError) as caught:
        load_suites([folder], parameters)
    return [str(problem) for problem in caught.value.problems]


def test_parameters_have_defaults_and_can_be_overruled(tmp_path: Path) -> None:
    write(tmp_path)

    (default,) = load_suites([tmp_path])["ledger"].expectations
    (raised,) = load_suites([tmp_path], {"limit": 5})["ledger"].expectations

    assert (default.kwargs["max_value"], raised.kwargs["max_value"]) == (3, 5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"table": "legder"}, "ledger.yaml: `table` must be what the file's name begins with, got 'legder'"),
        ({"veiw": ""}, "ledger.yaml: `veiw` must be one of"),
        (
            {"expectations": [{**RULE, "severity": "mild"}]},
            "expectation 1: `severity` must be one of critical, info",
        ),
        ({"expectations": [RULE, RULE]}, "expectation 2: `name` must be unique among its table's, got 'a'"),
        ({"expectations": [{"name": "a"}]}, "expectation 1: `kwargs` must be given"),
        ({"expectations": ["a"]}, "expectation 1: `expectation` must be a mapping, got 'a'"),
        ({"expectations": [{**RULE, "kwargs": 1}]}, "expectation 1: `kwargs` must be a mapping, got 1"),
        ({"expectations": [{**RULE, "sentence": "{x"}]}, "expectation 1: `sentence` must be a format string"),
        (
            {"expectations": [{**RULE, "view": "SELECT 1"}]},
            "expectation 1: `view` must not be given for expect_column_max_to_be_between",
        ),
        (
            {"expectations": [{**RULE, "type": "expect_no_row_of_view", "view": "SELECT 1"}]},
            "expectation 1: `kwargs` must not be given for expect_no_row_of_view",
        ),
        (
            {"expectations": [{**RULE, "type": "expect_no_row_of_view"}]},
            "expectation 1: `view` must be given",
        ),
        ({"parameters": {}}, "`$PARAMETER` must be stated in the suite's parameters"),
    ],
)
def test_a_slip_in_a_suite_is_refused_by_name(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    assert any(said in problem for problem in problems(write(tmp_path, **changes)))


def test_all_slips_are_listed_at_once(tmp_path: Path) -> None:
    write(tmp_path, table="x", expectations=[{**RULE, "severity": "mild"}, "a"])

    assert len(problems(tmp_path)) == 3


def test_a_parameter_no_suite_has_is_refused(tmp_path: Path) -> None:
    (said,) = problems(write(tmp_path), {"limits": 4})

    assert "`limits` must be one of limit, got 4; correct its name" in said


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ledger.yaml").write_text("- a", encoding="utf-8")

    assert "`suite` must be a mapping" in problems(tmp_path)[0]


def test_a_folder_without_suites_is_refused(tmp_path: Path) -> None:
    assert "`expectations` must hold a suite per table" in problems(tmp_path)[0]


def test_a_lever_may_have_a_further_suite_for_a_table(tmp_path: Path) -> None:
    product, lever = tmp_path / "product", tmp_path / "lever"
    product.mkdir()
    lever.mkdir()
    write(product)
    (lever / "ledger_thin.yaml").write_text(
        yaml.safe_dump({**SUITE, "expectations": [{**RULE, "name": "b"}]}), encoding="utf-8"
    )

    suites = load_suites([product, lever], {"limit": 5})

    assert [(suite.name, suite.table) for suite in suites.values()] == [
        ("ledger", "ledger"),
        ("ledger_thin", "ledger"),
    ]
    assert {suite.expectations[0].kwargs["max_value"] for suite in suites.values()} == {5}


def test_two_suites_may_share_neither_a_file_name_nor_a_rule_of_a_table(tmp_path: Path) -> None:
    product, lever = tmp_path / "product", tmp_path / "lever"
    product.mkdir()
    lever.mkdir()
    write(product)
    write(lever)

    with pytest.raises(ContractError) as caught:
        load_suites([product, lever])

    assert [problem.field for problem in caught.value.problems] == ["name", "suite"]
