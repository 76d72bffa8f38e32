"""Drafting a contract from a landing file."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.contracts.fields import Report
from spillway.contracts.sections import Batching
from spillway.contracts.yaml import read_yaml
from spillway.errors import ContractError, SpillwayError
from spillway.intake import contract_draft as intake_roles
from spillway.intake.contract_draft import draft_contract
from spillway.records import parse_records


def drafted(path: Path) -> StreamContract:
    text = draft_contract(path, stream="draft", channel="market")
    report = Report("draft.yaml")
    value = read_yaml(text, report)
    assert report.problems == []
    return read_stream(value)


def test_a_draft_from_csv_reads_the_file_it_was_drafted_from(tmp_path: Path) -> None:
    path = tmp_path / "quotes.csv"
    rows = "".join(f"{t};2004-08-{d:02d};{d * 1.5};NA;{d}\n" for d in range(1, 9) for t in ("AAPL", "IBM"))
    path.write_text("Ticker;Date;Adj Close;Gap;line\n" + rows)
    draft = drafted(path)
    assert [(a.name, a.source_name, a.type, a.role) for a in draft.attributes] == [
        ("ticker", "Ticker", "string", "key"),
        ("date", "Date", "date", "order"),
        ("adj_close", "Adj Close", "double", "measure"),
        ("gap", "Gap", "double", "measure"),
        ("line_2", "line", "integer", "measure"),
    ]
    assert (draft.source.options.delimiter, draft.source.options.null_values) == (";", ("NA",))
    assert (draft.mode, draft.channel, draft.rate.from_) == ("observe", "market", "event_time")
    assert draft.lever_names == ("attributes",)
    parsed = parse_records(draft, path.name, path.read_bytes())
    assert (parsed.table.num_rows, parsed.rejected.num_rows) == (16, 0)


@pytest.mark.parametrize(
    ("words", "nulls"),
    [
        (("1.5", "NaN", "nan"), []),
        (("1", "NaN", "2"), ["NaN"]),
        (("1.5", "NA", "NaN"), ["NA"]),
        (("a", "nan", ""), ["", "nan"]),
    ],
)
def test_nan_among_numbers_is_a_value_and_stands_for_nothing_elsewhere(
    tmp_path: Path, words: tuple[str, ...], nulls: list[str]
) -> None:
    path = tmp_path / "levels.csv"
    lines = "".join(f"2026-01-{1 + i // 24:02d} {i % 24:02d}:00,{words[i % 3]},{i}\n" for i in range(60))
    path.write_text("at,level,n\n" + lines)
    draft = drafted(path)
    found = draft.source.options.null_values
    assert list(found if nulls else []) == nulls
    if words[0] == "1.5":
        assert draft.attribute("level").type == "double"
        assert "NaN" not in found


def test_a_draft_from_json_survives_a_bad_record_in_twenty(tmp_path: Path) -> None:
    path = tmp_path / "net.jsonl"
    good = [
        f'{{"router":"r{i % 3}","at":"2026-03-02T08:{i:02d}:00Z","up":true,"delay":{i}.5,"n":{i}}}'
        for i in range(40)
    ]
    good[7] = '{"router":"r1","at":"2026-03-02T08:07:00Z","delay":"slow","note":"?"}'
    path.write_text("\n".join(good) + '\n{"router":"r1","at')
    draft = drafted(path)
    assert [(a.name, a.type, a.role) for a in draft.attributes] == [
        ("router", "string", "key"),
        ("at", "timestamp", "order"),
        ("up", "boolean", "measure"),
        ("delay", "double", "measure"),
        ("n", "integer", "measure"),
    ]
    parsed = parse_records(draft, path.name, path.read_bytes())
    assert (parsed.table.num_rows, parsed.rejected.column("line").to_pylist()) == (39, [8, 41])


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_draft_leaves_nested_fields_out_by_name_and_reads_the_rest(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"orders.{ending}"
    rows: list[dict[str, Any]] = [
        {
            "at": f"2026-03-02T08:{i:02d}:00Z",
            "shop": f"s{i % 3}",
            "who": {"n": i},
            "tags": ["a"],
            "orderId": i,
            "km": i / 2,
        }
        for i in range(40)
    ]
    if ending == "parquet":
        times = [{**row, "at": datetime.fromisoformat(row["at"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(times), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "  # nested fields, which are not taken in: who, tags; flatten" in draft_contract(path)
    draft = drafted(path)
    assert [(a.name, a.role) for a in draft.attributes] == [
        ("at", "order"),
        ("shop", "key"),
        ("order_id", "protected"),
        ("km", "measure"),
    ]
    parsed = parse_records(draft, path.name, path.read_bytes())
    assert (parsed.table.num_rows, parsed.rejected.num_rows) == (40, 0)


def test_an_identifier_is_no_measure_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    path.write_text("at,orderId,paid\n" + "".join(f"2024-05-{1 + i:02d},{100 + i},{i}\n" for i in range(8)))
    assert [(a.name, a.role) for a in drafted(path).attributes][1:] == [
        ("order_id", "protected"),
        ("paid", "measure"),
    ]
    assert (
        "# an identifier by its name, so it is exact; if it is a quantity: role: measure"
        in draft_contract(path)
    )


def test_a_draft_from_parquet_takes_the_types_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    when = pa.array([1, 1, 2, 2], pa.timestamp("ms"))
    router = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    note = pa.array(["w", "x", "y", "z"])
    pq.write_table(
        pa.table({"note": note, "router": router, "when": when, "v": pa.array([1, 2, 3, 4], pa.int8())}), path
    )
    draft = drafted(path)
    assert [(a.name, a.type, a.role, a.declared_bits) for a in draft.attributes] == [
        ("note", "string", "protected", 8),
        ("router", "string", "key", 8),
        ("when", "timestamp", "order", 64),
        ("v", "integer", "measure", 8),
    ]


def test_decimals_of_a_parquet_file_are_numbers_and_what_is_of_no_type_is_left_out_by_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bills.parquet"
    table = pa.table(
        {
            "at": pa.array([i * 10**6 for i in range(40)], pa.timestamp("us")),
            "paid": pa.array([Decimal(i) / 8 for i in range(40)], pa.decimal128(12, 3)),
            "pieces": pa.array([Decimal(i % 7) for i in range(40)], pa.decimal128(9, 0)),
            "opens": pa.array(list(range(40)), pa.time32("ms")),
        }
    )
    pq.write_table(table, path)
    assert "  # fields of other types, which are not taken in: opens (time32[ms]);" in draft_contract(path)
    draft = drafted(path)
    assert [(a.name, a.type) for a in draft.attributes][1:] == [("paid", "double"), ("pieces", "integer")]
    parsed = parse_records(draft, path.name, path.read_bytes())
    assert parsed.rejected.num_rows == 0
    assert parsed.table["paid"].to_pylist() == [i / 8 for i in range(40)]
    assert parsed.table["pieces"].to_pylist() == [i % 7 for i in range(40)]


def test_numbers_with_a_comma_before_their_fraction_are_drafted_and_read_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "ships.csv"
    rows = [
        f"{211_000_000 + 7 * (i % 5)};2026-10-25T{i // 60:02d}:{i % 60:02d}:11Z;53,{i:03d};{i % 9};an"
        for i in range(200)
    ]
    path.write_text(
        "\n".join(["MMSI;Zeit;Länge;Fahrt;Status", *rows, "211000000;2026-10-26;1.000,5;1;an"]) + "\n"
    )
    draft = drafted(path)
    assert [(a.name, a.type, a.role) for a in draft.attributes] == [
        ("mmsi", "integer", "key"),
        ("zeit", "timestamp", "order"),
        ("lange", "double", "measure"),
        ("fahrt", "integer", "measure"),
        ("status", "string", "protected"),
    ]
    parsed = parse_records(draft, path.name, path.read_bytes())
    assert parsed.table["lange"].to_pylist() == [float(f"53.{i:03d}") for i in range(200)]
    (rejected,) = parsed.rejected.to_pylist()
    assert (rejected["value"], rejected["rule"]) == ("1.000,5", "be a number with ',' before its fraction")


def test_a_draft_without_a_measure_lists_no_lever(tmp_path: Path) -> None:
    path = tmp_path / "doors.csv"
    path.write_text("door,at,who\n" + "".join(f"d{i % 2},2024-05-{1 + i:02d},p{i}\n" for i in range(8)))
    assert "levers: []  #" in draft_contract(path)
    assert drafted(path).levers == ()


def test_a_draft_names_no_attribute_like_a_column_of_a_lever(tmp_path: Path) -> None:
    path = tmp_path / "plans.csv"
    path.write_text(
        "at,scheme,weight,seq\n" + "".join(f"2024-05-{1 + i:02d},{i},{i},{i}\n" for i in range(8))
    )
    assert drafted(path).names == ("at", "scheme_2", "weight_2", "seq_2")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.xlsx", b"x", "must end in .csv"),
        ("a.csv", b"", "must hold records"),
        ("a.csv", b"a,b\n", "must hold records below its header"),
        ("a.csv", b"a,b\nx,y\n", "must hold a timestamp, a date or a rising number"),
        ("a.json", b"nonsense\n", "must hold one JSON object a line"),
        ("a.json", b'{"a":{"b":1}}\n', "must hold a timestamp, a date or a rising number"),
        ("a.json", b'{"t":"2013-01-01","a":1}\n{"t":"2013-01-02","a":"x"}\n', "`a` must be of one type"),
        ("a.parquet", b"PAR1", "must be readable Parquet"),
    ],
)
def test_a_sample_that_makes_no_contract_is_refused(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpillwayError, match=told):
        draft_contract(tmp_path / name)


def test_a_draft_that_would_not_be_valid_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,v\n2013-01-01,1\n")
    with pytest.raises(ContractError, match="`stream` must be a lower-case name"):
        draft_contract(tmp_path / "a.csv", stream="My Stream")


def test_a_sample_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpillwayError, match="must be readable"):
        draft_contract(tmp_path / "none.csv")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_column_of_zeros_is_drafted_to_take_fractions(tmp_path: Path, form: str) -> None:
    rows = [(f"2024-05-{1 + i:02d}", 0, 0, i % 3) for i in range(8)]
    path = tmp_path / f"rain.{form}"
    if form == "csv":
        lines = ["at,rain_mm,site_id,errors", *(",".join(map(str, row)) for row in rows)]
    else:
        names = ("at", "rain_mm", "site_id", "errors")
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    kinds = {one.name: one.type for one in drafted(path).attributes}
    assert kinds == {"at": "date", "rain_mm": "double", "site_id": "integer", "errors": "integer"}
    assert "always 0 in the sample: type guessed, integer if it is a count" in draft_contract(path)


def test_column_of_zeros_in_parquet_keeps_its_type(tmp_path: Path) -> None:
    path = tmp_path / "rain.parquet"
    at = [datetime(2024, 5, 1 + i) for i in range(8)]
    pq.write_table(pa.table({"at": at, "errors": pa.array([0] * 8, pa.int64())}), path)
    assert {one.name: one.type for one in drafted(path).attributes}["errors"] == "integer"


def roles(path: Path) -> dict[str, str]:
    return {a.name: a.role for a in drafted(path).attributes}


def test_a_whole_number_whose_few_values_come_once_a_moment_is_a_key(tmp_path: Path) -> None:
    path = tmp_path / "pumps.csv"
    rows = [
        f"{1 + i % 9},2026-01-{1 + i // 216:02d}T{i // 9 % 24:02d}:00:00Z,{i % 5},{i * 7 % 1000}"
        for i in range(900)
    ]
    path.write_text("\n".join(["pump,at,errors,load", *rows]) + "\n")
    assert roles(path) == {"pump": "key", "at": "order", "errors": "measure", "load": "measure"}


def test_a_text_and_a_whole_number_are_a_key_together_where_the_text_alone_says_not_who(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rooms.csv"
    rows = [
        f"{'NS'[i // 4 % 2]},{i % 4},2026-01-01T{i // 8 // 60:02d}:{i // 8 % 60:02d}:00Z,{i * 13 % 11}"
        for i in range(800)
    ]
    path.write_text("\n".join(["house,room,at,people", *rows]) + "\n")
    assert roles(path) == {"house": "key", "room": "key", "at": "order", "people": "measure"}


def test_a_text_that_says_how_is_no_key_where_a_whole_number_alone_says_who(tmp_path: Path) -> None:
    path = tmp_path / "meters.csv"
    rows = [
        f"{4_000_000_000 + 7 * (i % 8)},2026-01-01T{i // 8 // 60:02d}:{i // 8 % 60:02d}:00Z,"
        f"{'ESTIMATED' if i % 31 == 0 else 'OK'},{i * 13 % 11}"
        for i in range(800)
    ]
    path.write_text("\n".join(["meter,at,status,power", *rows]) + "\n")
    assert roles(path) == {"meter": "key", "at": "order", "status": "protected", "power": "measure"}


@pytest.mark.parametrize("text", ["two\nlines", "two\u2028lines", "a # and a\x85", "long " * 99])
def test_a_text_that_is_always_the_same_keeps_to_its_line_of_the_draft(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.jsonl"
    lines = [json.dumps({"at": f"2026-01-{d:02d}", "level": d * 1.5, "note": text}) for d in range(1, 29)]
    path.write_text("\n".join(lines) + "\n")
    assert roles(path) == {"at": "order", "level": "measure", "note": "protected"}


@pytest.mark.parametrize(("ending", "codec"), [(".csv.gz", "gzip"), (".csv.zst", "zstd"), (".csv", "gzip")])
def test_a_draft_is_made_from_a_file_as_it_lands_wrapped(tmp_path: Path, ending: str, codec: str) -> None:
    path = tmp_path / f"tides{ending}"
    rows = "".join(f"2026-01-{d:02d},{d * 1.5}\n" for d in range(1, 29))
    with pa.CompressedOutputStream(str(path), codec) as out:
        out.write(b"at,level\n" + rows.encode())
    assert roles(path) == {"at": "order", "level": "measure"}
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(SpillwayError, match="`sample_file` must be whole and readable"):
        draft_contract(path)


@pytest.mark.parametrize("date", ["2{:03d}-{:02d}-15", "2{:03d}{:02d}15"])
def test_of_year_month_and_date_the_finest_is_the_order(tmp_path: Path, date: str) -> None:
    path = tmp_path / "sales.csv"
    rows = [
        f"{2000 + i // 12},{1 + i % 12},{date.format(i // 12, 1 + i % 12)},{i * 31 % 97}" for i in range(120)
    ]
    path.write_text("\n".join(["year,month,date,sold", *rows]) + "\n")
    found = roles(path)
    assert found["date"] == "order"
    assert found["sold"] == "measure"
    if "-" in date:
        assert (found["year"], found["month"]) == ("protected", "protected")


def test_a_fraction_that_would_order_more_finely_is_pointed_out(tmp_path: Path) -> None:
    path = tmp_path / "houses.csv"
    rows = [f"{2000 + i // 12},{1 + i % 12},{2000 + i / 12:.3f},{i * 31 % 97}" for i in range(120)]
    path.write_text("\n".join(["year,month,date,sold", *rows]) + "\n")
    text = draft_contract(path)
    assert "# date rises more finely than year, but only times and whole numbers can be the order" in text


@pytest.mark.parametrize("behind", [0, 5])
def test_what_only_repeats_the_time_in_parts_is_no_measure_and_says_how_it_could_be_given_back(
    tmp_path: Path, behind: int
) -> None:
    path = tmp_path / "grid.csv"
    start = datetime(2026, 12, 28, tzinfo=UTC)
    rows = []
    for i in range(200):
        at = start + timedelta(hours=i)
        local = at - timedelta(hours=behind if i < 120 else behind - 1)
        parts = (local.month, local.day, local.hour, local.isoweekday())
        rows.append(f"{at:%Y-%m-%dT%H:%M:%SZ},{','.join(map(str, parts))},{i * 17 % 23},7")
    path.write_text("\n".join(["at,month,day,hour,weekday,load,site_no", *rows]) + "\n")
    text = draft_contract(path)
    found = roles(path)
    assert found == {
        "at": "order",
        "month": "protected",
        "day": "protected",
        "hour": "protected",
        "weekday": "protected",
        "load": "measure",
        "site_no": "measure",
    }
    (hour,) = [line for line in text.splitlines() if "name: hour," in line]
    assert hour.endswith(
        "# the hour of at; as a measure with codes: true it can be shed, and is recovered exactly"
    )
    (constant,) = [line for line in text.splitlines() if "name: site_no," in line]
    assert constant.endswith("# always 7 in the sample")


def test_month_is_never_the_order_if_there_is_a_date(tmp_path: Path) -> None:
    """The months rise and the dates of several shops do not: still only the dates say when."""
    path = tmp_path / "shops.csv"
    days = [f"2026-{1 + i // 20:02d}-{1 + i * 7 % 20:02d}" for i in range(120)]
    for month in (
        lambda day: day[:7] + "-01",
        lambda day: day[:7].replace("-", ""),
        lambda day: str(int(day[5:7])),
    ):
        rows = [f"{month(day)},{day},{i * 31 % 97}" for i, day in enumerate(days)]
        path.write_text("\n".join(["month,date,sold", *rows]) + "\n")
        assert roles(path)["date"] == "order"


def test_row_number_is_never_the_order(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    rows = [f"{i + 1},{2010 + i // 50},{1 + i % 12},{i % 24},{i * 31 % 97}.5" for i in range(200)]
    path.write_text("\n".join(["No,year,month,hour,pm", *rows]) + "\n")
    text = draft_contract(path)
    found = roles(path)
    assert (found["no"], found["year"], found["pm"]) == ("protected", "order", "measure")
    assert "a row number" in text
    assert "one column with the full time" in text


def test_sample_with_a_row_number_and_no_time_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "air.csv"
    path.write_text("\n".join(["No,pm", *(f"{i},{i * 31 % 97}" for i in range(50))]) + "\n")
    with pytest.raises(SpillwayError, match="No is a row number, not a time"):
        draft_contract(path)


@pytest.mark.parametrize(
    ("name", "first", "step", "unit", "rate"),
    [
        ("event_time", 1_770_000_000, 60, "s", "event_time"),
        ("ts", 1_770_000_000_000, 60_000, "ms", "event_time"),
        ("event_time", 1_770_000_000_000_000, 60_000_000, "us", "event_time"),
        ("event_time", 1_770_000_000_000_000_000, 60_000_000_000, "ns", "event_time"),
        ("year", 1800, 1, "year", "event_time"),
        ("tick", 10, 3, None, "arrival"),
    ],
)
def test_draft_states_the_unit_of_a_whole_number_order(
    tmp_path: Path, name: str, first: int, step: int, unit: str | None, rate: str
) -> None:
    path = tmp_path / "runs.csv"
    rows = [f"{first + step * i},{i * 31 % 97}.5" for i in range(100)]
    path.write_text("\n".join([f"{name},load", *rows]) + "\n")
    contract = drafted(path)
    assert (contract.order, contract.attribute(name).unit, contract.rate.from_) == (name, unit, rate)


def test_a_time_in_several_columns_is_no_order(tmp_path: Path) -> None:
    """The day of the month rises nearly always in a sample of some months, and is no time."""
    path = tmp_path / "air.csv"
    rows = [f"2024,{1 + i // 28},{1 + i % 28},{i * 31 % 97}.5" for i in range(200)]
    path.write_text("\n".join(["year,month,day,pm", *rows]) + "\n")
    with pytest.raises(SpillwayError, match="add a column with the time of each record"):
        draft_contract(path)


def test_a_time_is_preferred_to_counters_that_look_like_one(tmp_path: Path) -> None:
    """Of equally many values, and of more: only a moment is as good as a time, and it must be the finer one."""
    path = tmp_path / "sent.csv"
    clock = [f"2026-01-01T{i // 120:02d}:{i // 2 % 60:02d}:00Z" for i in range(200)]
    rows = [
        f"{1_700_000_000 + 997 * i},{17 * i},{4_006_381_000_000 + i * 7919 % 997},{at}"
        for i, at in enumerate(clock)
    ]
    path.write_text("\n".join(["bytes_sent,cpu_ms,article,at", *rows]) + "\n")
    assert drafted(path).order == "at"


def test_parts_of_time_are_searched_for_once_per_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search looks at every part on every clock; repeating it made `contracts new` take seconds."""
    searched: list[str] = []
    search = intake_roles._search_part_of_time

    def counted(column: intake_roles.SampleColumn, order: intake_roles.SampleColumn) -> str | None:
        searched.append(column.name)
        return search(column, order)

    monkeypatch.setattr(intake_roles, "_search_part_of_time", counted)
    path = tmp_path / "wide.csv"
    rows = [f"2026-01-01T00:{i // 60:02d}:{i % 60:02d}Z,{i % 7},{i % 24},{i % 13}" for i in range(600)]
    path.write_text("\n".join(["at,a,b,c", *rows]) + "\n")
    draft_contract(path)
    assert sorted(searched) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("seconds", "rows", "waits"),
    [(9, 100, True), (60, 100, False), (0.001, 60_000, False)],
    ids=["a quarter of an hour", "more than an hour", "a quarter of an hour that is large"],
)
def test_drafted_contract_batches_small_files_that_arrive_more_often_than_hourly(
    tmp_path: Path, seconds: float, rows: int, waits: bool
) -> None:
    start = datetime(2026, 3, 2, tzinfo=UTC)
    lines = [
        json.dumps(
            {"device": f"d{i % 4}", "at": (start + timedelta(seconds=seconds * i)).isoformat(), "v": i / 7}
        )
        for i in range(rows)
    ]
    sample = tmp_path / "docks.json"
    sample.write_text("\n".join(lines))
    found = drafted(sample).batching
    assert found == (Batching(until_bytes=1_000_000, until_seconds=3600.0) if waits else None)
