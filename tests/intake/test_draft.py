"""Drafting a contract from a landing file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.contracts.shapes import Report
from spillway.contracts.yaml_lines import read_yaml
from spillway.errors import ContractError, SpillwayError
from spillway.intake.draft import new_contract
from spillway.records import parse_records


def drafted(path: Path) -> StreamContract:
    text = new_contract(path, stream="draft", channel="market")
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


def test_a_draft_without_a_measure_lists_no_lever(tmp_path: Path) -> None:
    path = tmp_path / "doors.csv"
    path.write_text("door,at,who\n" + "".join(f"d{i % 2},2024-05-{1 + i:02d},p{i}\n" for i in range(8)))
    assert "levers: []  #" in new_contract(path)
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
        ("a.json", b'{"t":"2013-01-01","a":{"b":1}}\n', "`a` must be a plain value"),
        ("a.json", b'{"t":"2013-01-01","a":1}\n{"t":"2013-01-02","a":"x"}\n', "`a` must be of one type"),
        ("a.parquet", b"PAR1", "must be readable Parquet"),
    ],
)
def test_a_sample_that_makes_no_contract_is_refused(
    tmp_path: Path, name: str, content: bytes, told: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpillwayError, match=told):
        new_contract(tmp_path / name)


def test_a_draft_that_would_not_be_valid_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t,v\n2013-01-01,1\n")
    with pytest.raises(ContractError, match="`stream` must be a lower-case name"):
        new_contract(tmp_path / "a.csv", stream="My Stream")


def test_a_sample_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpillwayError, match="must be readable"):
        new_contract(tmp_path / "none.csv")
