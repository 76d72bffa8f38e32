"""Rules for rows, each held and each broken, over several pieces, files and batches.

All streams are judged in one run: starting Great Expectations once per rule would show nothing more.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.checks import Outcome, StoredRows, failures, row_rules, run_suites
from spillway.contracts import StreamContract, read_stream
from spillway.engine.local import ProcessEngine
from spillway.settings import Settings
from spillway.store.files import DataFile

HOME = Path(__file__).resolve().parents[2]
DAYS = date(2026, 1, 2), date(2026, 1, 3)
NAN, INFINITE, NONE = float("nan"), float("inf"), None
TYPES = {
    "double": pa.float64(),
    "integer": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
}
LARGE = 2**53
WORDS = {"kind": "one_of", "values": ["a", "b"]}
EVIL = "<script>alert(1)</script>\x1b[2J" + "x" * 900

CASES: dict[str, tuple[str, dict[str, Any], list[Any], int]] = {
    "range_holds": ("double", {"kind": "range", "least": 0, "most": 9}, [0.0, 9.0, NONE, -0.0], 0),
    "range_of_one_side_holds": ("double", {"kind": "range", "least": 0}, [INFINITE, 1.0], 0),
    "range_below": ("double", {"kind": "range", "least": 0, "most": 9}, [-0.1, 1.0, NONE], 1),
    "range_above": ("double", {"kind": "range", "most": 9}, [9.1, INFINITE, -INFINITE], 2),
    "range_nan": ("double", {"kind": "range", "least": 0}, [NAN, 1.0], 1),
    "range_of_large_numbers": ("integer", {"kind": "range", "most": LARGE}, [LARGE, LARGE + 1, NONE], 1),
    "range_of_dates": ("date", {"kind": "range", "least": "2026-01-03"}, [*DAYS, NONE], 1),
    "range_of_times": (
        "timestamp",
        {"kind": "range", "most": "2026-01-01 12:00"},  # in Berlin: 11:00 UTC
        [datetime(2026, 1, 1, 11, tzinfo=UTC), datetime(2026, 1, 1, 11, 0, 1, tzinfo=UTC), NONE],
        1,
    ),
    "words_hold": ("string", WORDS, ["a", "b", NONE], 0),
    "words_broken": ("string", WORDS, ["a", "A", "", EVIL], 3),
    "numbers_hold": ("double", {"kind": "one_of", "values": [1, 2.5]}, [1.0, 2.5, NONE], 0),
    "numbers_nan": ("double", {"kind": "one_of", "values": [1]}, [1.0, NAN], 1),
    "large_numbers": ("integer", {"kind": "one_of", "values": [LARGE]}, [LARGE, LARGE + 1, NONE], 1),
    "flags": ("boolean", {"kind": "one_of", "values": [True]}, [True, False, NONE], 1),
    "pattern_holds": ("string", {"kind": "pattern", "pattern": "[a-z]{2}|x"}, ["ab", "x", NONE], 0),
    "pattern_is_of_the_whole": ("string", {"kind": "pattern", "pattern": "[a-z]{2}|x"}, ["abc", "x\n", "xx"], 2),
    "pattern_that_runs_for_ever_elsewhere": (
        "string", {"kind": "pattern", "pattern": "(([a-z])+.)+[A-Z]([a-z])+"}, ["a" * 400, "a" * 399 + "!", NONE], 2,
    ),
    "not_null_holds": ("double", {"kind": "not_null"}, [1.0, NAN], 0),
    "not_null_broken": ("boolean", {"kind": "not_null"}, [True, NONE], 1),
    "unique_holds": ("string", {"kind": "unique_with"}, ["a", "b", NONE, NONE], 0),
    "unique_broken": ("string", {"kind": "unique_with"}, ["a", "b", "c", "a", "b", "a", "b"], 6),
    "unique_nan": ("double", {"kind": "unique_with"}, [NAN, 0.0, -0.0, NAN, 1.0], 4),
    "unique_null_is_no_zero": ("double", {"kind": "unique_with"}, [0.0, NONE, 0.0, NONE], 2),
    "unique_with_another": ("double", {"kind": "unique_with", "attributes": ["site"]}, [1.0, 1.0, 1.0, 2.0], 2),
    "warned": ("double", {"kind": "range", "most": 0, "action": "warn"}, [1.0, 2.0, 0.0], 2),
}  # fmt: skip
"""By stream: type of the attribute, its rule, its values, and how many rows break the rule."""


def contract(stream: str, kind: str, rule: dict[str, Any]) -> StreamContract:
    return read_stream(
        {
            "stream": stream,
            "channel": "up",
            "timezone": "Europe/Berlin",
            "source": {"kind": "files", "format": "json"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "x", "type": kind, "rules": [rule]},
            ],
        }
    )


def stored(
    folder: Path, stream: str, files: list[tuple[date, list[int], list[Any]]], kind: str
) -> StoredRows:
    """A file for each day, numbers of batches and values; the site alternates over two rows."""
    found, seq = [], 0
    schema = pa.schema(
        [("seq", pa.int64()), ("batch", pa.int64()), ("site", pa.string()), ("x", TYPES[kind])]
    )
    for number, (day, batches, values) in enumerate(files):
        rows = [
            {"seq": seq + i, "batch": batch, "site": "ab"[i % 2], "x": value}
            for i, (batch, value) in enumerate(zip(batches, values, strict=True))
        ]
        seq += len(rows)
        path = folder / f"{stream}_{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema), path)
        found.append(DataFile(str(path), path.stat().st_size, (("batch_date", day),)))
    return StoredRows({}, tuple(found), frozenset({1, 2}))  # fmt: skip


def judged_rows(
    settings: Settings, streams: dict[str, StreamContract], rows: dict[str, Any]
) -> list[Outcome]:
    tables = {f"raw/{stream}": rows[stream] for stream in streams}
    return [one for one in run_suites(ProcessEngine(), tables, streams, settings) if one.table == "raw"]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Every case, two rows at a time, and a stream whose rule cannot be judged on what its rows are."""
    folder = tmp_path_factory.mktemp("rules")
    settings = Settings.from_environment(
        {"SPILLWAY_HOME": str(HOME), "SPILLWAY_BUILD": str(folder / "build")}
    )
    streams = {name: contract(name, kind, rule) for name, (kind, rule, _, _) in CASES.items()}
    rows = {
        name: stored(folder, name, [(DAYS[0], [1] * len(values), values)], kind)
        for name, (kind, _, values, _) in CASES.items()
    }
    streams["odd"] = contract("odd", "string", {"kind": "pattern", "pattern": "a"})
    rows["odd"] = stored(folder, "odd", [(DAYS[0], [1], [1])], "integer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_rules, "ROWS_JUDGED_AT_A_TIME", 2)
        return judged_rows(settings, streams, rows), settings


def of(outcomes: Any, stream: str) -> list[Outcome]:
    return [one for one in outcomes[0] if one.stream == stream]


@pytest.mark.parametrize("stream", CASES)
def test_a_rule_holds_or_is_broken_by_as_many_rows_as_there_are(outcomes: Any, stream: str) -> None:
    _, rule, values, broken = CASES[stream]
    (one,) = of(outcomes, stream)

    assert one.observed == f"{broken} of {len(values)} rows"
    assert one.success is (not broken or rule.get("action") == "warn")
    assert one.reported is (broken > 0 and rule.get("action") == "warn")
    assert one.batch_date == (DAYS[0] if broken else None)


def test_a_broken_rule_says_which_rows_and_what_to_do(outcomes: Any) -> None:
    (one,) = of(outcomes, "unique_with_another")

    assert one.sentence == (
        "raw: unique_with_another, 2026-01-02: x, site must occur once in a batch, got 2 of 4 rows that break it, "
        "such as batch 1, seq 0: x 1.0, site 'a'; batch 1, seq 2: x 1.0, site 'a'; "
        "correct the source, or the rule in the contract"
    )
    assert (one.expectation, one.where) == ("x_site_unique_with", "batch 1, seq 0; batch 1, seq 2")


def test_examples_are_few_short_and_of_one_line(outcomes: Any) -> None:
    (one,) = of(outcomes, "words_broken")

    assert one.sentence.isprintable()
    assert "\\x1b" in one.sentence
    assert len(one.sentence) < 600
    assert of(outcomes, "unique_broken")[0].where.count("seq") == 5


def test_a_rule_that_cannot_be_judged_fails_its_own_stream_alone(outcomes: Any) -> None:
    (one,) = of(outcomes, "odd")

    assert (one.success, one.expectation) == (False, "rules_can_be_judged")
    assert one.sentence == (
        "raw, odd: the rules of its rows must be valid for its columns, got `x` must be string in raw, "
        "got 'int64'; give the attribute its type back, or take the rule out; correct the rule in the contract, or "
        "restore the rows"
    )
    assert {one.stream for one in failures(outcomes[0])} == {
        "odd", *(name for name, (_, rule, _, broken) in CASES.items() if broken and "action" not in rule)
    }  # fmt: skip


def test_data_docs_show_a_page_a_stream_with_the_sums_and_no_markup_of_the_data(outcomes: Any) -> None:
    docs = Path(outcomes[1].build, "data_docs")
    pages = {page.parents[2].name: page.read_text() for page in docs.glob("validations/**/rows.html")}

    assert set(pages) == {f"rows_of_{stream}" for stream in CASES}
    assert "3 unexpected values found" in pages["rows_of_words_broken"].replace("&nbsp;", " ")
    assert "&lt;script&gt;alert" in pages["rows_of_words_broken"]
    assert "<script>alert" not in "".join(page.read_text() for page in docs.glob("**/*.html"))


def test_days_are_told_apart_and_other_batches_left_out(tmp_path: Path, settings: Settings) -> None:
    streams = {"s": contract("s", "double", {"kind": "range", "most": 0})}
    files = [(DAYS[0], [1, 1], [0.0, 0.0]), (DAYS[1], [2, 2, 9], [0.0, 5.0, 5.0]), (DAYS[1], [2], [6.0])]

    rows = stored(tmp_path, "s", files, "double")

    (one,) = judged_rows(settings, streams, {"s": rows})

    assert (one.batch_date, one.observed) == (DAYS[1], "2 of 3 rows")
    assert one.where == "batch 2, seq 3; batch 2, seq 5"
    assert judged_rows(settings, streams, {"s": replace(rows, batches=frozenset({7}))}) == [], (
        "nothing is of no rows"
    )


def test_rows_of_different_batches_may_agree(tmp_path: Path, settings: Settings) -> None:
    streams = {"s": contract("s", "double", {"kind": "unique_with"})}
    files = [(DAYS[0], [1, 2, 2], [7.0, 7.0, 8.0])]

    (one,) = judged_rows(settings, streams, {"s": stored(tmp_path, "s", files, "double")})

    assert (one.success, one.observed) == (True, "0 of 3 rows")


def test_an_attribute_that_raw_does_not_have_yet_is_null_there(tmp_path: Path, settings: Settings) -> None:
    other = contract("s", "double", {"kind": "not_null"})
    rows = stored(tmp_path, "s", [(DAYS[0], [1, 1], [1.0, 2.0])], "double")
    path = rows.files[0].path
    pq.write_table(pq.ParquetFile(path).read().drop_columns(["x"]), path)

    (one,) = judged_rows(settings, {"s": other}, {"s": rows})

    assert (one.success, one.observed) == (False, "2 of 2 rows")
    assert "seq 0: x null" in one.sentence


def test_data_docs_load_nothing_and_run_nothing(outcomes: Any) -> None:
    docs = Path(outcomes[1].build, "data_docs")
    pages = {page: page.read_text(encoding="utf-8") for page in docs.glob("**/*.html")}

    for page, text in pages.items():
        assert not re.search(r"<script|<link|(src|url\()\W{0,3}https?:", text), page
        assert "default-src 'none'" in text, page
    index = pages[docs / "index.html"]
    links = re.findall(r'href="([^"]+)"', index)
    assert links[0] == "../report.html"
    links = links[1:]
    assert len(links) == 2 * len(CASES), "a suite and an outcome for each case"
    assert [link for link in links if not (docs / link).is_file()] == []
    assert "rows_of_words_broken</td><td></td><td><a " in index
    warned = {name for name, (_, rule, _, broken) in CASES.items() if broken and "action" in rule}
    assert index.count(">1 of 1 failed<") == sum(broken > 0 for *_, broken in CASES.values()) - len(warned)
    assert index.count(">held, 1 reported<") == len(warned) > 0
    for name in warned:  # a rule that only warns is no failure on any page
        (page,) = docs.glob(f"validations/rows_of_{name}/**/*.html")
        text = pages[page]
        assert (text.count('"fas fa-times'), text.count('"fas fa-info-circle')) == (0, 1)
