"""The report shows what the tables say, on one page that fetches nothing."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.report.page.small_lake import DAYS, NOW, empty_home, rows_of, small_lake, write

from spillway.batch import RETIRED
from spillway.errors import InvalidValue
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.protocol import Picture
from spillway.report.page import build_report, refresh_report
from spillway.report.page.sections import gather_facts, picture_card
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Tables


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_lake(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def page(lake: Settings) -> str:
    return page_of(lake)


def page_of(settings: Settings, out: Path | None = None) -> str:
    return build_report(Tables(settings), out).read_text(encoding="utf-8")


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
    from spillway.report.summary import lake_figures

    figures = next(f for f in lake_figures(Tables(lake)) if f.stream == "fields")
    assert f"{figures.tuples}</b><span>tuples taken in, 4 refused" in page
    assert "25 %</b><span>of 240 shed values stored" in page
    assert "99.5 %</b><span>mean recovery accuracy" in page
    assert "1 shed, 1 rounded</b><span>temp, wind" in page


def test_every_stage_says_what_it_handed_on_shed_and_lost(page: str) -> None:
    row = r"<td>attributes</td><td>values</td>" + "".join(
        rf'<td class="n">{number}</td>' for number in ("2", "1,200", "840", "240", "360", "360", "0")
    )
    assert re.search(row, page)
    order = [page.index(f"<td>{stage}</td><td>rows</td>") for stage in ("intake", "attributes", "sent")]
    assert order == sorted(order)


def test_the_verdict_names_everything_that_is_wrong(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    certificate, line = rows_of(settings, "certificates")[0], rows_of(settings, "ledger")[0]
    write(settings, "certificates", [{**certificate, "batch": 3, "violations": 2}])
    write(settings, "ledger", [{**line, "batch": 3, "kept": line["kept"] - 5}])

    text = page_of(settings, tmp_path / "elsewhere" / "page.html")

    assert "2 values outside the threshold; the ledger is off by" in text
    assert "; 1 expectation failed</span>" in text
    assert '<tr class="bad">' in text
    assert "Ledger: it is off by" in text


def test_a_sound_lake_is_called_sound(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    held = {"run_id": "later", "table": "ledger", "expectation": "ledger_balances", "success": True}
    write(settings, "validations", [held | {"sentence": "it balances", "validated_at": NOW.replace(hour=9)}])

    assert (
        '<span class="verdict">Every recovered value is within its threshold, and the ledger balances'
        in page_of(settings)
    )


def test_a_join_shows_what_its_stages_did(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    line = LedgerRow(
        "join", "beside", 7, DAYS[0], "meet", 1, "comparisons", offered=9, kept=8, shed=1, lost=1
    )
    write(settings, "ledger", [line.to_dict()])

    text = page_of(settings)

    assert '<h2 id="beside">beside</h2>' in text
    assert "<td>meet</td><td>comparisons</td>" in text


def test_a_stream_that_waits_says_so(page: str) -> None:
    assert "10 tuples are taken in and wait to be trained and shed." in page


def test_a_lake_without_tables_is_reported_as_empty(tmp_path: Path) -> None:
    text = page_of(empty_home(tmp_path))

    assert "Nothing has been shed yet" in text
    assert text.count("Nothing has been taken in yet") == 2
    assert "Nothing has been validated yet." in text


def test_retired_raw_is_counted(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    tables = Tables(settings)
    first = load_batches(tables, "fields")[0]
    save_batches(tables, [first.with_changes(NOW, status=RETIRED)])
    gone = LedgerRow(
        "stream", "fields", 1, DAYS[0], "retire", BESIDE, "rows", offered=120, shed=120, recoverable=120,
        bytes_offered=16_000,
    )  # fmt: skip
    write(settings, "ledger", [gone.to_dict()])

    assert "Retired so far: 16 kB of raw deleted." in page_of(settings)


def test_each_table_is_opened_once(tmp_path: Path) -> None:
    opened: list[tuple[str, str | None]] = []

    class Counted(Tables):
        def at(self, table: str, stream: str | None = None):  # type: ignore[no-untyped-def]
            if (table, stream) not in self._open:
                opened.append((table, stream))
            return super().at(table, stream)

    settings = small_lake(tmp_path)
    build_report(Counted(settings))

    assert len(opened) == len(set(opened))
    assert ("raw", "fields") in opened


def test_a_picture_of_a_kind_that_nobody_draws_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidValue, match="`kind` must be one of lines, timeline, bars, regions, table, got 'pie'"
    ):
        picture_card(Picture("How", "pie", {}))


def test_every_kind_of_picture_is_drawn() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]
    shown = [
        Picture("a", "lines", {"lines": [{"name": "one", "points": points}], "x": "x", "y": "y"}),
        Picture("b", "timeline", {"rows": [("row", [(0, 1, "c1", "words")])], "x": "seq"}),
        Picture("c", "bars", {"rows": [("row", [(3.0, "c2", "words")])], "unit": " pairs"}),
        Picture("d", "table", {"heads": ["what", "#much"], "rows": [["this", 7]]}, "a note"),
    ]
    cards = [picture_card(picture) for picture in shown]

    assert 'class="line c0"' in cards[0]
    assert 'class="c1"' in cards[1]
    assert "3 pairs</text>" in cards[2]
    assert '<td class="n">7</td>' in cards[3]
    assert "<p>a note</p>" in cards[3]


def test_levers_are_shown_in_the_order_in_which_they_work(lake: Settings) -> None:
    from spillway.contracts import load_contracts

    fields, meadows = gather_facts(Tables(lake), list(load_contracts(lake.schemas).streams.values()))

    assert [picture.kind for picture in fields.pictures] == ["lines", "lines", "lines", "timeline"]
    assert meadows.pictures == ()


def test_the_page_of_an_unchanged_lake_stays_and_one_of_a_changed_lake_is_built_again(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    out = Path(settings.build, "report.html")

    def rebuilt() -> bool:
        """Whether the page is built again; what is there is marked first."""
        if out.exists():
            out.write_text(out.read_text(encoding="utf-8") + "<!-- marked -->", encoding="utf-8")
        return "marked" not in refresh_report(Tables(settings), out).read_text(encoding="utf-8")

    assert rebuilt()
    assert not rebuilt()
    (batch, *_) = load_batches(Tables(settings))
    save_batches(Tables(settings), [batch])
    assert rebuilt()
    assert not rebuilt()
    (contract, *_) = sorted(Path(settings.schemas, "streams").glob("*.yaml"))
    contract.write_text(contract.read_text(encoding="utf-8") + "# a note\n", encoding="utf-8")
    assert rebuilt()
    kept = Path(settings.build, "what_if", "desk.json")
    kept.parent.mkdir()
    assert not rebuilt()
    out.write_bytes(b"\xff is no text")
    assert "Spillway report" in refresh_report(Tables(settings), out).read_text(encoding="utf-8")
