"""Learning from odd samples, and what cannot be kept to: a filter all the same, and words for what it lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.levers.sifters.logs import LEVELS, LOGS, SIFTERS, contract_of, learned, logs, rows_like
from tests.pipeline.streams import World, json_lines

from spillway.contracts import StreamContract, read_stream
from spillway.engine import ProcessEngine
from spillway.levers.sifters.configure import configure_filter
from spillway.levers.sifters.filter import SifterFilter
from spillway.levers.sifters.learn import count_rows_by_region, filter_digest
from spillway.levers.sifters.parsed_queries import ParsedQueries


def made(count: int, latency: Any, severity: Any = "WARN", host: Any = "web-1") -> pa.Table:
    """Rows that are alike."""
    return pa.table(
        {
            "seq": np.arange(count),
            "host": pa.array([host] * count, pa.string()),
            "severity": pa.array([severity] * count, pa.string()),
            "latency": pa.array([latency] * count, pa.float64()),
        }
    )


ODD = {
    "one row": made(1, 250.0),
    "two rows at one place": made(2, 250.0),
    "a constant that is asked for": made(900, 250.0),
    "a constant that nobody asks for": made(900, 50.0, "INFO"),
    "nothing but nulls": made(900, None, None, None),
    "nothing but NaN": made(900, float("nan")),
    "infinities": made(900, float("-inf"), "INFO"),
    "words that nobody named": made(900, 50.0, "NOTICE", "db"),
    "what must be kept alone": made(900, 250.0, "ERROR"),
    "nulls and NaN among others": rows_like(8, 900),
}


@pytest.mark.parametrize("unqueried", ["first", "by_region"])
@pytest.mark.parametrize("name", ODD)
def test_any_sample_makes_a_filter_that_keeps_what_there_is_room_for(name: str, unqueried: str) -> None:
    """Of its own rows, and of such as it has never seen."""
    found = learned(contract_of(unqueried=unqueried), ODD[name])
    assert found.frequencies.sum() == pytest.approx(1.0)
    for rows in (ODD[name], rows_like(9, 3000), made(3000, None, None, None)):
        counts = count_rows_by_region(found, rows)
        worth = found.worth(counts if counts.sum() else None)
        must = 1.0 - counts.sum() / rows.num_rows
        outcome = configure_filter(worth, 0.5, must, 1.0, found.base.share)
        assert ((outcome.thresholds >= 0) & (outcome.thresholds <= 0.98)).all()
        assert outcome.kept_share == pytest.approx(max(0.5, must), abs=1e-9)
        of = SifterFilter.from_bytes(found.base.with_thresholds(outcome.thresholds).to_bytes())
        kept, _ = of.decide(np.asarray(rows["seq"]), of.regions_of(rows), 0, 0)
        assert abs(kept.sum() - outcome.kept_share * rows.num_rows) <= 1 + 1e-6


@pytest.mark.parametrize("unqueried", ["first", "by_region"])
def test_queries_where_no_row_of_the_sample_lies_have_theirs_when_they_come(
    unqueried: str,
) -> None:
    queries = [*SIFTERS["queries"], {"where": "latency > 1e12", "weight": 9.0}, {"where": "latency < -1e12"}]
    found = learned(contract_of(queries=queries, unqueried=unqueried), rows_like(8, 900))
    outcome = configure_filter(found.worth(), 0.5, 0.0, 1.0, found.base.share)
    of = found.base.with_thresholds(outcome.thresholds)
    lost = [outcome.thresholds[of.regions_of(made(1, latency, "INFO"))[0]] for latency in (2e12, -2e12)]
    assert lost == [0.0, 0.0] if unqueried == "first" else max(lost) <= outcome.thresholds.max()


def test_what_queries_must_have_beats_fairness_and_the_least_that_can_be_is_said(tmp_path: Path) -> None:
    """No two regions may differ (0), one query must have 0.9 of its rows, 60 of 100 rows may go on."""
    queries = [{**SIFTERS["queries"][2], "at_least": 0.9}, {"where": "latency < 1e9 or latency is null"}]
    lever = {**SIFTERS, "queries": queries, "fairness": 0.1, "rows_per_second": 60.0}
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [lever]}, capacity="1 Mbps")
    world.deliver("logs/2020-01-01/a.json", json_lines(logs(0, 600)))
    world.shed()
    world.train("logs")
    world.shed()
    (row,) = world.rows("sifters")
    assert "fairness 0.1 cannot be kept, 0." in row["reason"]
    asked = [one["threshold"] for one in row["regions"] if one["region"] >= 0 and one["queried"]]
    assert max(asked) - min(asked) == pytest.approx(row["fairness"], abs=1e-6)
    assert row["fairness"] > 0.1


DIMENSIONS: list[dict[str, Any]] = SIFTERS["dimensions"]


@pytest.mark.parametrize(
    "change",
    [
        {"queries": SIFTERS["queries"][:2]},
        {"queries": [{**one, "weight": 1.0} for one in SIFTERS["queries"]]},
        {"queries": [{**one, "at_least": 0.5} for one in SIFTERS["queries"]]},
        {"queries": [{**one, "alpha": 0.5} for one in SIFTERS["queries"]]},
        {"keep": ["severity >= 'FATAL'"]},
        {"keep": ["severity >= 'ERROR'", "latency > 9e3"]},
        {"dimensions": [DIMENSIONS[0], {"attribute": "latency", "between": [0, 900]}, DIMENSIONS[2]]},
        {"dimensions": [{"attribute": "severity", "values": LEVELS[::-1]}, *DIMENSIONS[1:]]},
        {"regions": 31},
        {"partition": "query_data"},
        {"fairness": 0.5},
        {"sample": {"rows": 800, "marked_pct": 3.0}},
        {"unqueried": "by_region"},
    ],
)
def test_whatever_of_the_contract_shapes_a_filter_makes_another(change: dict[str, Any]) -> None:
    """A filter in use, and regions that were trained, are left when it changes: by their digest."""
    base: dict[str, Any] = {"keep": []} if "dimensions" in change else {}

    def digest(of: StreamContract) -> str:
        settings = of.lever_settings("sifters")
        return filter_digest(settings, ParsedQueries.of(settings, of))

    assert digest(contract_of(**base)) == digest(contract_of(**base))
    assert digest(contract_of(**base)) != digest(contract_of(**base | change))


def test_a_condition_that_means_other_rows_makes_another_filter() -> None:
    """The filter in use would drop first what the same text asks for on other clocks."""
    of = {
        "queries": [{"where": "at >= '2026-01-01 00:03:00'"}],
        "dimensions": [{"attribute": "at"}],
        "keep": [],
    }

    def digest(**changes: Any) -> str:
        contract = read_stream({**LOGS, "levers": [{**SIFTERS, **of}], **changes})
        settings = contract.lever_settings("sifters")
        return filter_digest(settings, ParsedQueries.of(settings, contract))

    assert digest() == digest(timezone="UTC") != digest(timezone="Asia/Kolkata")


def test_a_stream_without_rows_learns_nothing_and_says_so(tmp_path: Path) -> None:
    world = World.begin(ProcessEngine(), tmp_path, {**LOGS, "levers": [SIFTERS]}, capacity="8 kbps")
    world.train("logs")
    assert world.said == ["logs: nothing to train on yet, no tuple has been taken in"]
    assert not [row for row in world.rows("models") if row["lever"] == "sifters"]
