"""What no run takes of a join or a query is told by its contract alone."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.levers.joins.lake import JOIN, STREAM

from spillway.cli import main
from spillway.contracts import load_contracts
from spillway.errors import InvalidValue
from spillway.workloads.windows import refuse_impossible, workload_problems

CHANNELS = {"channels": {"narrow": {"capacity": "1 Mbps"}}}


def folder_with(tmp_path: Path, join: dict[str, Any], **west: Any) -> Path:
    east = {**STREAM, "source": {**STREAM["source"], "path": "east"}}
    other = {**STREAM, "stream": "west", "source": {**STREAM["source"], "path": "west"}, **west}
    for name, text in (
        ("channels.yaml", CHANNELS),
        ("streams/east.yaml", east),
        ("streams/west.yaml", other),
        ("joins/alike.yaml", join),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(text), encoding="utf-8")
    return tmp_path


def changed(**entries: Any) -> dict[str, Any]:
    join = copy.deepcopy(JOIN)
    (lever,) = join["levers"]
    for name, change in entries.items():
        lever[name] = {**lever[name], **change} if isinstance(change, dict) else change
    return join


@pytest.mark.parametrize(
    ("join", "told"),
    [
        (changed(right={"attribute": "tagz"}), ("tagz", "be an attribute of west", "did you mean tags?")),
        (
            changed(left={"type": "urgent"}, types=[{"name": "high", "utility": 2}]),
            ("urgent", "be an attribute of east", "did you mean urgency?"),
        ),
        (
            {**JOIN, "inputs": ["east", "west", "east"]},
            ("inputs", "be two for a join", "name the left and the right stream"),
        ),
        (
            {**JOIN, "levers": [{"lever": "attributes"}]},
            ("levers", "be one that works on windows", "name joins, or a lever for queries"),
        ),
    ],
)
def test_what_its_inputs_do_not_have_is_told_before_any_run(
    tmp_path: Path, join: dict[str, Any], told: tuple[str, str, str]
) -> None:
    contracts = load_contracts(folder_with(tmp_path, join))
    (problem,) = workload_problems(contracts)
    assert (problem.where, problem.field, problem.rule, problem.remedy) == ("joins/alike.yaml", *told)
    with pytest.raises(InvalidValue, match=rf"^alike: `{told[0]}` must {told[1]}"):
        refuse_impossible(contracts, contracts.joins["alike"])


VALUES = {"predicate": "equality", "threshold": None, "sets": None}
SEVERAL = {"sets": None, "threshold": 2}


@pytest.mark.parametrize(
    ("join", "told"),
    [
        (
            changed(left={"attribute": "level"}, right={"attribute": "site"}, **VALUES),
            ("right.attribute", "be of a type that compares with double, as east's level is", "string"),
        ),
        (
            changed(left={"attribute": "at"}, right={"attribute": "batch_date"}, **VALUES),
            ("right.attribute", "be of a type that compares with timestamp, as east's at is", "date"),
        ),
        (
            changed(right={"attribute": "level"}),
            ("right.attribute", "be text where it holds sets, and level of west is none", "double"),
        ),
        (
            changed(
                left={"attribute": None, "attributes": ["site", "level"]},
                right={"attribute": None, "attributes": ["site", "tags"]},
                **SEVERAL,
            ),
            ("right.attributes[1]", "be of a type that compares with double, as east's level is", "string"),
        ),
    ],
)
def test_what_no_two_rows_can_be_compared_by_is_told_before_any_run(
    tmp_path: Path, join: dict[str, Any], told: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    schemas = folder_with(tmp_path, join)
    assert main(["contracts", "check", "--schemas", str(schemas), "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    field, rule, value = told
    expected = ("joins/alike.yaml", f"levers[0].{field}", rule, value)
    assert (problem["where"], problem["field"], problem["rule"], problem["value"]) == expected
    assert problem["remedy"]
    contracts = load_contracts(schemas)
    with pytest.raises(InvalidValue, match=rf"^alike: `{re.escape(expected[1])}` must {rule}"):
        refuse_impossible(contracts, contracts.joins["alike"])


@pytest.mark.parametrize(
    "join",
    [
        changed(left={"attribute": "site"}),
        changed(left={"attribute": "batch_date"}, right={"attribute": "batch_date"}, **VALUES),
        changed(left={"attribute": "level"}, right={"attribute": "seq"}, **VALUES),
        changed(left={"type": "level"}, types=[{"name": "100.0", "utility": 2}]),
    ],
)
def test_nothing_is_wrong_with_a_join_by_what_its_inputs_have(tmp_path: Path, join: dict[str, Any]) -> None:
    contracts = load_contracts(folder_with(tmp_path, join))
    assert workload_problems(contracts) == []
    refuse_impossible(contracts, contracts.joins["alike"])


def test_of_a_stream_that_cannot_be_cut_into_windows_its_order_is_told(tmp_path: Path) -> None:
    counted = copy.deepcopy(STREAM["attributes"])
    counted[1]["type"] = "integer"
    rate = {"from": "declared", "tuples_per_second": 10}
    (problem,) = workload_problems(load_contracts(folder_with(tmp_path, JOIN, attributes=counted, rate=rate)))
    assert (problem.field, problem.value) == ("inputs", "integer")
    assert "west is by at" in problem.rule


QUERY: dict[str, Any] = {
    "name": "busy",
    "inputs": ["east"],
    "window": {"seconds": 600},
    "levers": [{"lever": "quality"}],
}


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC count(*) AS n FROM east", "must be Spark SQL"),
        ("SELECT avg(lvel) AS m FROM east", "must name columns that its inputs have, got 'lvel'"),
        ("DELETE FROM east", "must be one SELECT statement"),
        ("SELECT count(*) AS n FROM east JOIN west USING (site)", "must read only its inputs"),
        ("SELECT count(*) AS n FROM west", "must be read by its statements"),
        ("SELECT now() AS n FROM east", "must give the same answer whenever it runs"),
        ("SELECT site, count(*) AS n FROM east", "must appear in the GROUP BY clause"),
        ("SELECT count(*) FROM east", "must name every column of its answer"),
        ("SELECT percentile(level, 0.5) AS p FROM east", "run it with --engine spark"),
        ("SELECT count(*) AS n FROM east", ""),
        (
            "SELECT max(level) AS top, max(level__bound_pct) AS bound FROM east WHERE batch_date > '2020-01-01'",
            "",
        ),
    ],
)
def test_contracts_check_finds_what_a_run_would_refuse_of_a_query(
    tmp_path: Path, sql: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schemas = folder_with(tmp_path, JOIN)
    (schemas / "queries").mkdir()
    query = {**QUERY, "levers": [{"lever": "quality", "sql": sql}]}
    (schemas / "queries/busy.yaml").write_text(yaml.safe_dump(query), encoding="utf-8")
    status = main(["contracts", "check", "--schemas", str(schemas), "--json"])
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert status == (1 if message else 0)
    if message:
        (problem,) = problems
        assert problem["where"] == "queries/busy.yaml"
        assert message in f"must {problem['rule']}, got {problem['value']!r}; {problem['remedy']}"
    spark = main(["contracts", "check", "--schemas", str(schemas), "--engine", "spark"])
    assert spark == (1 if message and "--engine spark" not in message else 0)
