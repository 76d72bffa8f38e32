"""A lever that nobody knows, and that tells nothing, shows all the same: everything comes from the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.report.page.pages import whole_report
from tests.report.page.small_lake import DAYS, NOW, empty_home, ledger_of, write
from tests.small_lake import batch_row

from spillway import registry
from spillway.ledger import LedgerRow
from spillway.levers.protocol import question_evidence
from spillway.report.explain import explain
from spillway.report.page import build_report
from spillway.report.status import status
from spillway.report.summary import lake_figures
from spillway.settings import Settings
from spillway.store.tables import Tables

ROWS = 100


@pytest.fixture(autouse=True)
def nobody_knows_it() -> Iterator[None]:
    with registry.extra_levers(mute="tests.report.mute"):
        yield


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    """One batch of `fields`, of which the lever lost six rows and kept four aside before `attributes` had its turn."""
    settings = empty_home(tmp_path)
    path = tmp_path / "schemas" / "streams" / "fields.yaml"
    path.write_text(path.read_text() + "levers: [{lever: mute}, {lever: attributes}]\n")
    at = ("stream", "fields", 1, DAYS[0], "mute", 1)
    went = (
        LedgerRow(*at, "rows", offered=ROWS, kept=90, shed=10, recoverable=4, lost=6, bytes_source=70),
        LedgerRow(*at, "values", offered=500, kept=450, shed=50, recoverable=20, lost=30),
    )
    write(settings, "ledger", ledger_of("fields", 1, DAYS[0], ROWS, went))
    write(settings, "batches", [batch_row("fields", 1, "done", rows=ROWS, levers=["mute", "attributes"])])
    return settings


def trained(settings: Settings, lever: str, version: int, evidence: str = "{}") -> None:
    fact = {"stream": "fields", "lever": lever, "fact": "what", "subject": "", "version": version}
    fact |= {
        "value": "1",
        "evidence": evidence,
        "trained_from_seq": 0,
        "trained_to_seq": 9,
        "created_at": NOW,
    }
    write(settings, "models", [fact])


def test_status_says_that_it_is_untrained_and_later_which_facts_it_has(lake: Settings) -> None:
    trained(lake, "attributes", 4)
    before = status(Tables(lake))
    trained(lake, "mute", 2)
    trained(lake, "mute", 3)
    after = status(Tables(lake))

    assert dict(before.streams[0].facts) == {"mute": None, "attributes": 4}
    assert before.streams[0].untrained == ("mute",)
    assert [(s.kind, s.sentence) for s in before.shortages if s.kind == "untrained"] == [
        ("untrained", "mute is not trained yet: rows are taken in, and nothing is sent")
    ]
    assert dict(after.streams[0].facts) == {"mute": 3, "attributes": 4}
    assert after.streams[0].untrained == ()


def test_status_asks_for_what_the_newest_facts_of_any_lever_had_to_assume(lake: Settings) -> None:
    question = json.dumps(question_evidence("its colour is assumed", "write `colour:` in its contract"))
    trained(lake, "mute", 2, question)
    assert [
        (s.stream, s.wrong, s.sentence, s.remedy)
        for s in status(Tables(lake)).shortages
        if s.kind == "assumed"
    ] == [("fields", False, "its colour is assumed", "write `colour:` in its contract")]
    trained(lake, "mute", 3)
    assert [s for s in status(Tables(lake)).shortages if s.kind == "assumed"] == []


def test_explain_names_it_in_its_place_and_says_what_became_of_its_rows(lake: Settings) -> None:
    found = explain(Tables(lake), "fields", "temp")

    assert [(part.lever, part.explanation is None) for part in found.levers] == [
        ("mute", True),
        ("attributes", False),
    ]
    assert [one.stage for one in found.stages if one.unit == "rows"] == [
        "intake",
        "mute",
        "attributes",
        "sent",
    ]
    (mute,) = [one for one in found.stages if (one.stage, one.unit) == ("mute", "rows")]
    assert (mute.offered, mute.handed_on, mute.shed, mute.recoverable, mute.lost) == (100, 90, 10, 4, 6)


def test_the_report_has_its_stage_and_its_ledger(lake: Settings) -> None:
    page = whole_report(build_report(Tables(lake)))

    numbers = "".join(f'<td class="n">{number}</td>' for number in (1, 100, 90, 0, 10, 4, 6))
    assert f"<td>mute</td><td>rows</td>{numbers}" in page
    assert "6 rows dropped for good" in page
    assert "Ledger: it balances" in page


def test_its_bytes_and_rows_are_in_the_figures(lake: Settings) -> None:
    (fields,) = lake_figures(Tables(lake))

    assert (fields.rows_shed, fields.rows_lost, fields.ledger_difference) == (10, 6, 0)
    assert fields.synopsis_bytes == 70 + 1500
    assert fields.wire_bytes_saved == 12_000


def test_a_stage_that_hands_on_less_than_the_next_was_offered_is_seen(lake: Settings) -> None:
    tables = Tables(lake)
    rows = tables.at("ledger").rows(subject="fields").to_pylist()
    other = [
        {**row, "offered": row["offered"] - 1, "shed": row["shed"] - 1, "lost": row["lost"] - 1}
        if (row["stage"], row["unit"]) == ("mute", "rows")
        else row
        for row in rows
    ]
    tables.at("ledger").replace(other, subject="fields")

    assert lake_figures(tables.now())[0].ledger_difference == 1
    assert status(tables.now()).wrong
