"""The report shows what the tables say: an index and a page for each channel, which fetch nothing and run nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from tests.report.page.pages import whole_report
from tests.report.page.small_lake import (
    CONTRACT,
    DAYS,
    NOW,
    empty_home,
    rows_of,
    small_lake,
    write,
)

from spillway.batch import RETIRED
from spillway.contracts import load_contracts, load_usable
from spillway.errors import InvalidValue
from spillway.ledger import BESIDE, LedgerRow
from spillway.levers.protocol import Picture
from spillway.report.page import build_report, refresh_report
from spillway.report.page.build import channel_page, index_page
from spillway.report.page.facts import ChannelFacts, gather
from spillway.report.page.sections import (
    Card,
    channel_finding,
    channel_sections,
    headline,
    outcome_cards,
    picture_card,
    used_pct,
)
from spillway.report.page.svg import templates
from spillway.report.result import run_result
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.tables import Tables

HOSTILE = "\"><script>act()</script><img src=x onerror='act()'>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_lake(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def uplink(lake: Settings) -> ChannelFacts:
    return facts_of(lake)


@pytest.fixture(scope="module")
def index(lake: Settings) -> Path:
    return build_report(Tables(lake))


@pytest.fixture(scope="module")
def page(index: Path) -> str:
    """The page of the channel."""
    return index.with_suffix("").joinpath("uplink.html").read_text(encoding="utf-8")


def facts_of(settings: Settings) -> ChannelFacts:
    (found,) = gather(Tables(settings), load_usable(settings.schemas)).channels
    return found


def page_of(settings: Settings) -> str:
    return channel_page(facts_of(settings), "report.html", "", NOW)


def validated(facts: ChannelFacts) -> ChannelFacts:
    """The same after a validation in which everything held."""
    streams = tuple(replace(one, batches_unchecked=0) for one in facts.streams)
    return replace(facts, failed=(), streams=streams)


class Balance(HTMLParser):
    """Collects elements that are opened and not closed, the addresses in them, and the sections."""

    VOID = frozenset({"meta", "link", "img", "br", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.drawn: dict[str, int] = {}
        self.sections: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawn[tag] = self.drawn.get(tag, 0) + 1
        told = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if told.get("class") == "part":
            self.sections.append(told["id"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_well_formed_and_fetch_and_run_nothing(index: Path) -> None:
    for path in (index, index.with_suffix("") / "uplink.html"):
        text = path.read_text(encoding="utf-8")
        found = Balance(text)
        assert found.open == []
        assert not {"script", "link", "img", "iframe"} & found.drawn.keys()
        assert not [link for link in found.links if re.match(r"[a-z]+:|//", link)]
        assert not re.search(r"url\(|@import", text)
        assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text


def test_links_lead_from_the_index_to_pages_and_data_docs_and_back(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    docs = Path(settings.build, "data_docs", "index.html")
    docs.parent.mkdir(parents=True)
    docs.write_text("<p>suites</p>")
    first = build_report(Tables(settings))
    second = first.with_suffix("") / "uplink.html"
    targets = {}
    for path in (first, second):
        links = Balance(path.read_text(encoding="utf-8")).links
        targets[path] = {(path.parent / unquote(link)).resolve() for link in links}
        assert all(target.is_file() for target in targets[path])
    assert targets[first] == {second.resolve(), docs.resolve()}
    assert targets[second] == {first.resolve(), docs.resolve()}


def test_a_report_elsewhere_has_its_pages_next_to_it_and_links_the_data_docs(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    docs = Path(settings.build, "data_docs", "index.html")
    docs.parent.mkdir(parents=True)
    docs.write_text("<p>suites</p>")
    out = tmp_path / "a place" / "mine.html"
    out.parent.mkdir()
    build_report(Tables(settings), out)
    for path in (out, tmp_path / "a place" / "mine" / "uplink.html"):
        links = Balance(path.read_text(encoding="utf-8")).links
        assert docs.resolve() in {(path.parent / unquote(link)).resolve() for link in links}


def test_a_page_without_data_docs_does_not_link_them(page: str) -> None:
    assert Balance(page).links == ["../report.html"]


def test_a_section_without_content_is_left_out_and_says_why(page: str, uplink: ChannelFacts) -> None:
    assert Balance(page).sections == ["bytes", "losses", "values", "trend", "absent", "details"]
    absent = {one.name: one.absent for one in channel_sections(uplink) if one.absent}
    assert absent.keys() == {"trade", "answers"}
    assert "no join or query" in absent["answers"]
    assert "meadows: 10 rows taken in, not sent yet." in page


def test_a_stream_of_which_nothing_is_lost_has_no_section_of_losses(uplink: ChannelFacts) -> None:
    (one,) = uplink.streams
    exact = tuple(replace(measure, rounded=0, shed=0) for measure in one.attributes)
    (detail,) = uplink.details
    quiet = replace(
        uplink,
        streams=(replace(one, attributes=exact),),
        details=(replace(detail, pictures=(), trend=detail.trend[:1]),),
    )
    absent = {section.name: section.absent for section in channel_sections(quiet) if section.absent}
    assert absent.keys() == {"trade", "losses", "values", "answers", "trend"}
    assert absent["values"] == "no column was rounded or shed."
    assert absent["trend"] == "there is no second batch yet."


def test_the_first_page_has_no_ledger_outside_the_details(page: str) -> None:
    before, _, details = page.partition('id="details"')
    assert "Ledger" not in before
    assert "Certificates" not in before
    assert "Ledger: it balances" in details
    assert details.count("<details>") == 1


def test_original_and_recovered_values_are_drawn_over_time_with_their_bound(page: str) -> None:
    values = page[page.index('id="values"') : page.index('id="trend"')]
    assert values.count('class="band"') == 4  # temp and wind: values, and errors
    assert "fields.temp: the largest error is" in values
    assert "Jan 2026, UTC" in values
    assert "temp, degF" in values


def test_what_a_contract_says_cannot_break_the_page(page: str) -> None:
    assert "&lt;every hour&gt;" in page
    assert "<every hour>" not in page


def test_names_and_sentences_that_hold_markup_are_shown_as_text(uplink: ChannelFacts, lake: Settings) -> None:
    (one,) = uplink.streams
    (detail,) = uplink.details
    columns = tuple(
        replace(measure, stream=HOSTILE, attribute=HOSTILE, unit=HOSTILE) for measure in one.attributes
    )
    named = replace(one, figures=replace(one.figures, stream=HOSTILE), attributes=columns)
    told = {"y": HOSTILE, "unit": HOSTILE}
    pictures = [
        replace(picture, title=HOSTILE, note=HOSTILE, data={**picture.data, **told})
        for picture in detail.pictures
    ]
    more = [
        Picture(HOSTILE, "table", {"heads": [HOSTILE], "rows": [[HOSTILE]]}, section="losses"),
        Picture(HOSTILE, "timeline", {"rows": [(HOSTILE, [(0, 1, "keep", HOSTILE)])], "x": HOSTILE}),
        Picture(HOSTILE, "bars", {"rows": [(HOSTILE, [(3.0, "c2", HOSTILE)])], "unit": HOSTILE}),
        Picture(
            HOSTILE, "regions",
            {"rects": [(0, 1, 0, 1, 0.5, HOSTILE)], "x": HOSTILE, "y": HOSTILE, "x_ticks": [(0, HOSTILE)]},
        ),
    ]  # fmt: skip
    contract = replace(detail.contract, stream=HOSTILE, description=HOSTILE)
    ledger = tuple({**row, "dimension": HOSTILE, "reason": HOSTILE} for row in detail.recent.ledger)
    facts = replace(
        uplink,
        channel=HOSTILE,
        description=HOSTILE,
        streams=(named,),
        details=(
            replace(
                detail,
                contract=contract,
                seen=named,
                recent=replace(detail.recent, ledger=ledger),
                pictures=(*pictures, *more),
            ),
        ),
        waiting=(HOSTILE,),
        failed=({"sentence": HOSTILE},),
    )
    whole = replace(gather(Tables(lake), load_usable(lake.schemas)), channels=(facts,), broken=(HOSTILE,))
    for text in (channel_page(facts, HOSTILE, HOSTILE, NOW), index_page(whole, HOSTILE, HOSTILE, NOW)):
        found = Balance(text)
        assert found.open == []
        assert not {"script", "img"} & found.drawn.keys()
        assert "&lt;script&gt;" in text


def test_the_finding_is_that_of_the_last_screen(uplink: ChannelFacts, lake: Settings) -> None:
    sound = validated(uplink)
    result = run_result(Tables(lake), load_contracts(lake.schemas))
    checked = sum(one.values_checked for one in result.seen)
    assert headline([sound]).text.startswith(
        f"All {checked:,} rounded or recovered values are inside their bound"
    )
    assert channel_finding(sound).text == f"{headline([sound]).text}; 27 % of the capacity used"
    assert used_pct(uplink) == pytest.approx(26.67, abs=0.01)


def test_the_headline_names_everything_that_is_wrong(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    certificate, line = rows_of(settings, "certificates")[0], rows_of(settings, "ledger")[0]
    write(settings, "certificates", [{**certificate, "violations": 2, "attribute": "rain"}])
    write(settings, "ledger", [{**line, "kept": line["kept"] - 5}])
    found = headline([facts_of(settings)])

    assert found.look == "bad"
    for part in ("4 values are outside the bound", "the ledger is off by", "1 expectation failed"):
        assert part in found.text.replace("2 values", "4 values")
    text = whole_report(build_report(Tables(settings)))
    assert '<tr class="bad">' in text
    assert "Ledger: it is off by" in text
    assert "schemes: fields, batch 2 falls short by 0.2 kbps" in text


def test_a_channel_where_nothing_was_checked_claims_nothing(uplink: ChannelFacts) -> None:
    (one,) = uplink.streams
    fresh = replace(uplink, failed=(), streams=(replace(one, batches_unchecked=one.batches),))
    found = headline([fresh])
    assert (found.look, found.text.partition(";")[0]) == ("part", "2 batches sent, not validated yet")


def test_rows_that_were_dropped_and_values_kept_at_the_source_are_in_the_headline(
    uplink: ChannelFacts,
) -> None:
    (one,) = uplink.streams
    figures = replace(one.figures, rows_lost=8750, source_values=12)
    found = headline([validated(replace(uplink, streams=(replace(one, figures=figures),)))])
    assert found.look == "part"
    assert "; 8,750 rows dropped for good; 12 values kept at the source" in found.text


def test_a_join_is_on_the_page_of_the_channel_of_its_input(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    folder = Path(settings.schemas, "joins")
    folder.mkdir()
    stated = {
        "name": "beside",
        "inputs": ["fields", "fields"],
        "window": {"seconds": 60},
        "levers": [{"lever": "joins", "left": {"attributes": ["site"]}, "right": {"attributes": ["site"]}}],
    }
    (folder / "beside.yaml").write_text(yaml.safe_dump(stated))
    line = LedgerRow(
        "join", "beside", 7, DAYS[0], "meet", 1, "comparisons", offered=9, kept=8, shed=1, lost=1
    )
    write(settings, "ledger", [line.to_dict()])

    text = page_of(settings)

    assert "<summary>beside</summary>" in text
    assert "<td>meet</td><td>comparisons</td>" in text
    assert "no join or query has an answer yet." in text


def test_a_lake_without_tables_is_reported_as_empty(tmp_path: Path) -> None:
    text = whole_report(build_report(Tables(empty_home(tmp_path))))

    assert "Nothing has been sent yet" in text
    assert text.count("fields: no data yet.") == 2  # on the index, and on the page of its channel
    assert "Nothing has been validated yet" in text


def test_a_home_without_streams_has_an_index(tmp_path: Path) -> None:
    settings = empty_home(tmp_path)
    for path in Path(settings.schemas, "streams").iterdir():
        path.unlink()
    text = build_report(Tables(settings)).read_text(encoding="utf-8")
    assert "No stream has a contract yet" in text


def test_a_contract_that_cannot_be_read_is_on_the_index(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    Path(settings.schemas, "streams", "meadows.yaml").write_text("stream: [")
    text = build_report(Tables(settings)).read_text(encoding="utf-8")
    assert "1 contract cannot be read" in text
    assert "meadows.yaml" in text


def test_the_page_of_a_channel_without_a_contract_goes(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    first = build_report(Tables(settings))
    folder = first.with_suffix("")
    (folder / "gone.html").write_text("a page of an older run")
    (folder / "notes.txt").write_text("not ours")
    build_report(Tables(settings))
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "uplink.html"]


def many_streams(folder: Path, streams: int, channels: int) -> Settings:
    """Streams of one batch each, on a number of channels."""
    settings = empty_home(folder)
    source = Path(settings.schemas, "streams")
    for path in source.iterdir():
        path.unlink()
    names = [f"s{number}" for number in range(streams)]
    capacities = {f"line{number}": {"capacity": "2 kbps"} for number in range(channels)}
    Path(settings.schemas, "channels.yaml").write_text(yaml.safe_dump({"channels": capacities}))
    from tests.report.page.small_lake import _batch, ledger_of

    batches, ledger = [], []
    for number, name in enumerate(names):
        text = CONTRACT.format(stream=name).replace("channel: uplink", f"channel: line{number % channels}")
        (source / f"{name}.yaml").write_text(text)
        at = {"stream": name, "batch": 1, "batch_date": DAYS[0]}
        batches.append(_batch(at, 0, 9, "done") | {"levers": [], "models": {}})
        ledger += ledger_of(name, 1, DAYS[0], 10)
    write(settings, "batches", batches)
    write(settings, "ledger", ledger)
    return settings


@pytest.mark.parametrize(("streams", "channels"), [(30, 2), pytest.param(1000, 1000, marks=pytest.mark.long)])
def test_every_channel_has_a_page_that_does_not_grow_with_its_streams(
    tmp_path: Path, streams: int, channels: int
) -> None:
    settings = many_streams(tmp_path, streams, channels)
    first = build_report(Tables(settings))
    pages = sorted(first.with_suffix("").glob("*.html"))
    assert len(pages) == channels
    assert len(Balance(first.read_text(encoding="utf-8")).links) == channels
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert text.count("<summary>Stream ") == min(12, streams // channels)
        assert len(text) < 400_000
    if streams // channels > 12:
        assert "3 more streams, which lose less" in text


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


def test_retired_raw_leaves_the_other_figures(tmp_path: Path) -> None:
    """Retirement is outside the path from source to destination: its row changes no sum."""
    settings = small_lake(tmp_path)
    before = facts_of(settings).overview
    tables = Tables(settings)
    first = load_batches(tables, "fields")[0]
    save_batches(tables, [first.with_changes(NOW, status=RETIRED)])
    gone = LedgerRow(
        "stream", "fields", 1, DAYS[0], "retire", BESIDE, "rows", offered=120, shed=120, recoverable=120,
        bytes_offered=16_000,
    )  # fmt: skip
    write(settings, "ledger", [gone.to_dict()])
    after = facts_of(settings)

    assert after.overview is not None
    assert before is not None
    assert after.overview.sent_kbps == before.sent_kbps
    assert after.ledger_difference == 0
    assert "<td>retire</td>" in page_of(settings)


def test_a_picture_of_a_kind_that_nobody_draws_is_refused_by_name() -> None:
    with pytest.raises(
        InvalidValue, match="`kind` must be one of lines, recovery, timeline, bars, regions, table, got 'pie'"
    ):
        picture_card(Picture("How", "pie", {}))


def drawn(card: Card) -> str:
    return str(templates().get_template("parts.html").module.card(card))


def test_every_kind_of_picture_is_drawn() -> None:
    points = [(0.0, 1.0), (1.0, 2.0)]
    recovery = {"x": [0.0, 60.0], "original": [1.0, 2.0], "recovered": [1.1, 2.0], "bound": [0.2, 0.2]}
    shown = [
        Picture("a", "lines", {"lines": [{"name": "one", "points": points}], "x": "x", "y": "y"}),
        Picture("b", "timeline", {"rows": [("row", [(0, 1, "c1", "words")])], "x": "seq"}),
        Picture("c", "bars", {"rows": [("row", [(3.0, "c2", "words")])], "unit": "pairs"}),
        Picture("d", "table", {"heads": ["what", "#much"], "rows": [["this", 7]]}, "a note"),
        Picture("e", "recovery", {**recovery, "y": "temp", "unit": "degF", "is_time": True}),
    ]
    cards = [drawn(picture_card(picture)) for picture in shown]

    assert 'class="line c0"' in cards[0]
    assert 'class="c1"' in cards[1]
    assert "3 pairs</text>" in cards[2]
    assert '<td class="n">7</td>' in cards[3]
    assert "<p>a note</p>" in cards[3]
    assert cards[4].count('class="band"') == 2
    assert "00:01" in cards[4] or "00:00:30" in cards[4]


def test_a_picture_of_a_lever_of_others_is_drawn_in_the_section_that_it_names(uplink: ChannelFacts) -> None:
    (detail,) = uplink.details
    points = [(0.0, 1.0), (1.0, 2.0)]
    lines = {"lines": [{"name": "one", "points": points}], "x": "x", "y": "y"}
    own = tuple(
        Picture(name, "lines", lines, section=name) for name in ("losses", "values", "answers", "else")
    )
    facts = replace(uplink, details=(replace(detail, pictures=own),))
    text = channel_page(facts, "report.html", "", NOW)
    front, _, details = text.partition('id="details"')
    assert [name for name in ("losses", "values", "answers", "else") if f"<h3>{name}</h3>" in front] == [
        "losses", "values",
    ]  # fmt: skip
    assert all(f"<h3>{picture.title}</h3>" in details for picture in own)


def test_failed_expectations_come_first_and_reported_ones_are_no_failures(lake: Settings) -> None:
    rows = [
        {"table": "ledger", "expectation": "a", "success": True, "where_": None, "batch_date": DAYS[0]},
        {"table": "ledger", "expectation": "b", "success": True, "where_": "batch 1", "batch_date": DAYS[0]},
        {
            "table": "schemes",
            "expectation": "c",
            "success": False,
            "where_": "batch 2",
            "batch_date": DAYS[0],
        },
    ]
    told = {"observed": "2", "expected": "0"}
    agrees = {"observed": "7f", "expected": "7f", "sentence": "checksums of the columns that were kept: 7f"}
    found, tables = outcome_cards(
        [{**told, "sentence": row["expectation"], **row} for row in [*rows, rows[1] | agrees]]
    )
    assert found.title == "1 failed, 1 reported with their reason on record"
    assert found.table is not None
    assert [row[-1] for row in found.table.rows] == ["c", "b"]
    assert found.table.bad == {0}
    assert tables.table is not None
    assert tables.table.rows == [("schemes", 1, 1), ("ledger", 2, 0)]
    assert "checksums" not in str(found.table.rows)


def test_levers_are_shown_in_the_order_in_which_they_work(uplink: ChannelFacts) -> None:
    (fields,) = uplink.details
    assert [picture.kind for picture in fields.pictures] == [
        "recovery",
        "recovery",
        "lines",
        "lines",
        "timeline",
    ]


def marked(out: Path) -> Iterator[Path]:
    yield out
    yield from sorted(out.with_suffix("").glob("*.html"))


def test_pages_of_an_unchanged_lake_stay_and_those_of_a_changed_lake_are_built_again(tmp_path: Path) -> None:
    settings = small_lake(tmp_path)
    out = Path(settings.build, "report.html")

    def rebuilt() -> bool:
        """Whether the pages are built again; those that are there are marked first."""
        for path in marked(out):
            if path.exists():
                path.write_text(path.read_text(encoding="utf-8") + "<!-- marked -->", encoding="utf-8")
        refresh_report(Tables(settings), out)
        states = {"marked" in path.read_text(encoding="utf-8") for path in marked(out)}
        assert len(states) == 1
        return states == {False}

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
    docs = Path(settings.build, "data_docs", "index.html")
    docs.parent.mkdir()
    docs.write_text("suites")
    assert rebuilt()
    assert not rebuilt()
    out.with_suffix("").joinpath("uplink.html").unlink()
    refresh_report(Tables(settings), out)
    assert out.with_suffix("").joinpath("uplink.html").is_file()
    out.write_bytes(b"\xff is no text")
    assert "Spillway report" in refresh_report(Tables(settings), out).read_text(encoding="utf-8")
