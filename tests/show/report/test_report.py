"""The report shows what the tables say, on one page that fetches nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.show.report.small_lake import DAYS, ERROR_PCT, NOW, TUPLES, empty_home, small_lake, write

from spillway.settings import Settings
from spillway.show.report import build_report
from spillway.show.report.build import gather
from spillway.show.report.facts import StreamFacts
from spillway.store.table_contracts import table_contracts
from spillway.store.tables import table_path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_lake(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def page(lake: Settings) -> str:
    return build_report(lake).read_text(encoding="utf-8")


def facts_of(settings: Settings, stream: str) -> StreamFacts:
    from spillway.contracts import load_contracts

    streams = load_contracts(settings.schemas).streams
    return next(
        facts for facts in gather(settings, list(streams.values())) if facts.contract.stream == stream
    )


class Balance(HTMLParser):
    """Collects elements that are opened and not closed, and the addresses they would fetch."""

    VOID = frozenset({"meta", "link", "img", "br", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.drawn: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawn[tag] = self.drawn.get(tag, 0) + 1
        self.fetched += [
            f"{tag} {value}" for name, value in attrs if name in ("src", "href") and value[:1] != "#"
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawn[tag] = self.drawn.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_fetches_nothing(page: str) -> None:
    parser = Balance()
    parser.feed(page)

    assert parser.open == []
    assert parser.fetched == []
    assert "script" not in parser.drawn
    assert parser.drawn["svg"] == 5  # bytes, temp recovered, threshold, rate, ways
    assert not re.search(r"url\(|@import", page)


def test_what_a_contract_says_cannot_break_the_page(page: str) -> None:
    assert "&lt;every hour&gt;" in page
    assert "<every hour>" not in page


def test_the_headline_says_the_figures_of_the_run_file(page: str, lake: Settings) -> None:
    from spillway.show.summary import lake_figures

    figures = next(f for f in lake_figures(lake) if f.stream == "fields")
    assert f"{figures.tuples}</b><span>tuples taken in, 4 refused" in page
    assert "25 %</b><span>of 240 shed values stored" in page
    assert "99.5 %</b><span>mean recovery accuracy" in page
    assert "1 shed, 1 rounded</b><span>temp, wind" in page


def test_a_sample_sets_original_beside_recovered_for_one_key(lake: Settings) -> None:
    (sample,) = facts_of(lake, "fields").samples

    assert (sample.attribute, sample.key, sample.unit) == ("temp", "a", "degF")
    assert sample.seq == tuple(range(0, TUPLES, 2))
    assert set(sample.bound_pct) == {ERROR_PCT}
    pairs = zip(sample.original, sample.recovered, strict=True)
    assert all(abs(o - r) <= 1.5 for o, r in pairs if o is not None and r is not None)


def test_hits_misses_and_evaluations_are_added_up(lake: Settings) -> None:
    facts = facts_of(lake, "fields")

    assert (facts.windows, facts.evaluations, facts.hits, facts.misses) == (16, 6, 14, 2)


def test_hits_that_were_not_measured_are_not_made_up(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    facts = facts_of(settings, "fields")
    row = {**facts.schemes[0], "batch": 3, "run": 9, "hits": -1, "from_seq": 300, "to_seq": 360}
    write(settings, "schemes", [row])

    assert facts_of(settings, "fields").hits is None
    assert "not measured" in build_report(settings).read_text(encoding="utf-8")


def test_the_verdict_names_everything_that_is_wrong(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    facts = facts_of(settings, "fields")
    write(settings, "certificates", [{**facts.certificates[0], "batch": 3, "violations": 2}])
    write(settings, "ledger", [{**facts.ledger[0], "batch": 3, "kept": facts.ledger[0]["kept"] - 5}])

    text = build_report(settings, tmp_path / "elsewhere" / "page.html").read_text(encoding="utf-8")

    assert "2 values outside the threshold; the ledger is off by 5; 1 expectation failed</span>" in text
    assert '<tr class="bad">' in text
    assert "Ledger: it is off by 5" in text


def test_a_sound_lake_is_called_sound(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    held = {"run_id": "later", "table": "ledger", "expectation": "ledger_balances", "success": True}
    write(settings, "validations", [held | {"sentence": "it balances", "validated_at": NOW.replace(hour=9)}])

    text = build_report(settings).read_text(encoding="utf-8")

    assert (
        '<span class="verdict">Every recovered value is within its threshold, and the ledger balances' in text
    )


def test_a_stream_that_waits_says_so(page: str) -> None:
    assert "10 tuples are taken in and wait to be trained and shed." in page


def test_a_lake_without_tables_is_reported_as_empty(tmp_path: Path) -> None:
    text = build_report(empty_home(tmp_path)).read_text(encoding="utf-8")

    assert "Nothing has been shed yet" in text
    assert text.count("Nothing has been taken in yet") == 2
    assert "Nothing has been validated yet." in text


def test_retired_raw_is_counted_and_no_longer_plotted(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    settings = small_lake(tmp_path)
    raw = table_path(settings, table_contracts(settings.schemas)["raw"], "fields")
    DeltaTable(raw).delete(f"batch_date >= '{DAYS[0]}'")
    batches = table_path(settings, table_contracts(settings.schemas)["batches"])
    DeltaTable(batches).update(updates={"status": "'retired'"}, predicate="stream = 'fields' AND batch = 1")

    facts = facts_of(settings, "fields")

    assert facts.samples == ()
    assert facts.retired_bytes == 16_000
    assert "Retired so far: 16 kB of raw deleted." in build_report(settings).read_text(encoding="utf-8")
