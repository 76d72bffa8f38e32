"""A condition that matches no row is a warning before the rows that it was to protect are dropped (newcomer B5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.levers.sifters.logs import LOGS, SIFTERS, contract_of, logs
from tests.pipeline.streams import World, json_lines
from tests.report.page.pages import whole_report

from spillway.engine import ProcessEngine
from spillway.levers.sifters.unmatched_conditions import unmatched_conditions
from spillway.pipeline.run import run_streams
from spillway.report.page import build_report
from spillway.report.status import status

QUERIES = [
    {"name": "errors", "where": "severity = 'error'", "at_least": 1.0},
    {"name": "warnings", "where": "severity = 'WARN'"},
]


def lever(**changes: Any) -> dict[str, Any]:
    return {**SIFTERS, "keep": [], "dimensions": None, "queries": QUERIES} | changes


def said(contract: Any, rows: pa.Table) -> list[str]:
    return [one.sentence for one in unmatched_conditions(contract, rows)]


def rows_of(**columns: list[Any]) -> pa.Table:
    count = len(next(iter(columns.values())))
    return pa.table({"seq": list(range(count)), **columns})


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (
            "severity = 'error'",
            ["query severity = 'error' matches none of the last 4 rows: severity has 'ERROR' (1 rows), "
             "'INFO' (2 rows), 'WARN' (1 rows)"],
        ),
        ("severity = 'INFO'", []),
        ("severity <> 'nothing'", []),
        (
            "severity in ('WARN', 'error')",
            ["query severity in ('WARN', 'error') names the value 'error', which occurs in none of the last 4 rows: "
             "severity has 'ERROR' (1 rows), 'INFO' (2 rows), 'WARN' (1 rows)"],
        ),
        ("severity in ('WARN', 'FATAL')", []),
        (
            "latency > 1000 and severity = 'INFO'",
            ["query latency > 1000 and severity = 'INFO' matches none of the last 4 rows: "
             "severity has 'INFO' (2 rows), 'WARN' (1 rows), 'ERROR' (1 rows); latency lies between 1.0 and 9.5"],
        ),
    ],
)  # fmt: skip
def test_a_condition_names_the_closest_values_seen(where: str, expected: list[str]) -> None:
    rows = rows_of(severity=["INFO", "INFO", "WARN", "ERROR"], latency=[1.0, None, 9.5, 3.0])
    found = said(contract_of(**lever(queries=[{"where": where}])), rows)
    assert [sorted(one.replace(";", ",").split(", ")) for one in found] == [
        sorted(one.replace(";", ",").split(", ")) for one in expected
    ]


def test_rules_of_what_must_be_kept_are_checked_too() -> None:
    rows = rows_of(severity=["INFO", "ERROR"], host=["a", "a"])
    found = said(contract_of(**lever(keep=["severity = 'Error'"], queries=[{"where": "host = 'a'"}])), rows)
    assert found == [
        "keep severity = 'Error' matches none of the last 2 rows: severity has 'ERROR' (1 rows), 'INFO' (1 rows)"
    ]


def test_no_rows_are_no_reason_to_warn() -> None:
    assert said(contract_of(**lever()), rows_of(severity=[])) == []


def test_screen_status_and_report_warn_before_a_row_is_dropped(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [lever()]}, capacity="3 kbps")
    world.deliver("logs/2020-01-01/a.json", json_lines(logs(0, 1500)))
    run_streams(world.tables, world.engine, world.contracts, ["logs"], "run", world.said.append)

    warned = [
        at for at, line in enumerate(world.said) if "query errors (severity = 'error') matches none" in line
    ]
    assert warned, world.said
    assert "'ERROR'" in world.said[warned[0]]
    shed = next(at for at, line in enumerate(world.said) if line.startswith("logs: batch 1"))
    assert warned[0] < shed, "before its rows go"
    (short,) = [one for one in status(world.tables.now()).shortages if one.kind == "doubtful"]
    assert "query errors (severity = 'error') matches none of the last" in short.sentence
    page = whole_report(build_report(world.tables.now(), tmp_path / "report.html"))
    assert "query errors (severity = &#39;error&#39;) matches none of the last" in page
