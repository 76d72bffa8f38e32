"""Asking for values back: command line, job and the DAG's form mean the same by the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.jobs.conftest import Run
from tests.pipeline.streams import World

from spillway.cli import main
from spillway.errors import SpillwayError, UsageError
from spillway.scheduling import recover_arguments
from spillway.streams.recover import output_path, write_output

OFFSET = ("--key", "site=site-0", "--from-time", "2026-01-01T06:10:00+05:00")
"""The moment 01:10 UTC, told by a clock that is five hours ahead: turn 70, seq 420."""


def expected(world: World, seqs: range, key: str = "site-2") -> pd.DataFrame:
    whole = world.frame("recovered", "sites")
    return whole[(whole["site"] == key) & whole["seq"].between(seqs[0], seqs[-1])]


def test_the_job_writes_the_rows_and_attributes_that_were_asked_for_and_starts_no_spark(
    run: Run, world: World, started: list[str]
) -> None:
    output = Path(world.settings.output, "deep", "temps.parquet")
    wanted = (
        "--key",
        "site=site-2",
        "--from-seq",
        "100",
        "--to-seq",
        "220",
        "--output",
        "deep/temps.parquet",
    )
    code, said = run("recover", "--stream", "sites", "--attributes", "temp", *wanted)
    assert (code, started) == (0, [])
    assert f"spillway: sites: 20 tuples from 2 frames written to {output}" in said
    given = pq.read_table(output).to_pandas()
    rows = expected(world, range(100, 221))
    assert given["seq"].tolist() == rows["seq"].tolist()
    assert given["temp"].dropna().tolist() == rows["temp"].dropna().tolist()
    assert "sky" not in given


def test_without_an_output_the_job_gives_the_batches_of_the_range_back_whole_into_the_table(
    run: Run, world: World, started: list[str]
) -> None:
    rows = world.rows("recovered", "sites")
    world.at("recovered", "sites").delete(batch=[1, 2, 3])
    assert world.rows("recovered", "sites") == []
    code, said = run("recover", "--stream", "sites", "--from-seq", "325", "--to-seq", "335")
    assert (code, started) == (0, ["spillway recover sites"])
    assert "spillway: sites: 460 tuples of batch 1, 2 given back in" in said
    given = world.rows("recovered", "sites")
    assert given == [row for row in rows if row["batch"] in (1, 2)]
    code, _ = run("recover", "--stream", "sites", "--from-seq", "325", "--to-seq", "335")
    assert (code, world.rows("recovered", "sites")) == (0, given)
    code, _ = run("recover", "--stream", "sites")
    assert (code, world.rows("recovered", "sites")) == (0, rows)


def test_a_time_with_an_offset_means_the_same_row_to_the_job_and_on_the_command_line(
    run: Run, world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    output = Path(world.settings.output, "out.json")
    # where an output lies below the root may be told in full too
    assert run("recover", "--stream", "sites", *OFFSET, "--output", str(output))[0] == 0
    (of_job,) = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert main(["recover", "sites", *OFFSET, "--json"]) == 0
    (of_line,) = json.loads(capfd.readouterr().out)["tuples"]
    assert of_job == of_line
    assert (of_job["seq"], of_job["at"]) == (420, "2026-01-01T01:10:00+00:00")
    (truth,) = expected(world, range(420, 421), "site-0").to_dict("records")
    assert (of_job["temp"], of_job["temp__bound_pct"]) == (truth["temp"], truth["temp__bound_pct"])


def test_several_keys_are_any_of_them(run: Run, world: World) -> None:
    output = Path(world.settings.output, "out.csv")
    keys = ("--key", "site=site-2", "--key", "site=site-4", "--to-seq", "17", "--from-seq", "0")
    assert run("recover", "--stream", "sites", *keys, "--output", str(output))[0] == 0
    assert pacsv.read_csv(output)["seq"].to_pylist() == [2, 4, 8, 10, 14, 16]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"attributes": ["tmp"]}, "`attributes` must be of the stream sites, got tmp"),
    ({"keys": ["site-2"]}, "`key` must be NAME=VALUE with NAME one of site, got 'site-2'"),
    ({"keys": ["temp=10"]}, "`key` must be NAME=VALUE with NAME one of site, got 'temp=10'"),
    ({"stream": "site"}, "`stream` must have a contract, got 'site'"),
    ({"from_time": "noon"}, "`from_time` must be an ISO date or time, as at is, got 'noon'"),
    ({"from_seq": 9, "to_seq": 5}, "the seq range must not end before it begins, got 9..5"),
]


@pytest.mark.parametrize(("form", "sentence"), REFUSED, ids=[str(form) for form, _ in REFUSED])
def test_what_cannot_be_meant_is_refused_with_one_sentence_by_form_job_and_command_line(
    run: Run,
    world: World,
    started: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    form: dict[str, Any],
    sentence: str,
) -> None:
    form = {"stream": "sites", **form}
    monkeypatch.chdir(world.folder)
    with pytest.raises(SpillwayError) as problem:
        recover_arguments(world.settings, form)
    assert sentence in str(problem.value)
    options = {"stream": "--stream", "attributes": "--attributes", "keys": "--key"}
    words: list[str] = []
    for name, value in form.items():
        told = [str(one) for one in (value if isinstance(value, list) else [value])]
        words += [options.get(name, f"--{name.replace('_', '-')}"), *told]
    code, said = run("recover", *words)
    assert (code, started) == (1, [])
    assert f"spillway: failed: {sentence}" in said
    assert main(["recover", *words[1:]]) == 2
    assert sentence in capfd.readouterr().err


@pytest.mark.parametrize("output", [(), ("--output", "none.csv")])
def test_a_range_that_holds_nothing_is_said_in_a_sentence_and_starts_no_spark(
    run: Run, world: World, started: list[str], monkeypatch: pytest.MonkeyPatch, output: tuple[str, ...]
) -> None:
    monkeypatch.chdir(world.folder)
    code, said = run("recover", "--stream", "sites", "--from-seq", "5000", *output)
    assert (code, started) == (1, [])
    assert "failed: sites: the range must hold transmitted tuples, got none for seq 5000..5000" in said
    assert not (world.folder / "none.csv").exists()


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        (
            {
                "keys": ["site=site-1", "site=site-2"],
                "from_seq": 0,
                "to_seq": 9,
                "output": "",
                "to_time": None,
            },
            "--key site=site-1 --key site=site-2 --from-seq 0 --to-seq 9",
        ),
        (
            {"attributes": ["temp", "sky"], "from_time": "2026-01-01T00:00:00+00:00", "output": "a.csv"},
            "--attributes temp,sky --from-time 2026-01-01T00:00:00+00:00 --output a.csv",
        ),
    ],
)
def test_the_form_becomes_the_jobs_arguments(world: World, form: dict[str, Any], arguments: str) -> None:
    told = recover_arguments(world.settings, {"stream": "sites", **form})
    assert told == ["--stream", "sites", *arguments.split()]


def test_the_command_line_shows_values_with_their_bounds_and_writes_them_to_a_file(
    run: Run, world: World, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["recover", "sites", "--attributes", "temp", "--key", "site=site-2", "--from-seq", "100"]
    assert main([*asked, "--to-seq", "220", "--limit", "2"]) == 0
    words = " ".join(capfd.readouterr().out.split())
    assert words.startswith("seq site at temp 104 site-2 ")
    assert "18 more rows; raise --limit, or write them with --output" in words
    target = tmp_path / "deep" / "found.parquet"
    assert main([*asked, "--to-seq", "220", "--output", str(target), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["rows"], told["tuples"], told["output"]) == (20, [], str(target))
    assert pq.read_table(target)["seq"].to_pylist() == expected(world, range(100, 221))["seq"].tolist()


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.json"])
def test_rows_are_written_in_the_format_that_the_name_asks_for(tmp_path: Path, name: str) -> None:
    rows = pa.table({"seq": [1, 2], "temp": [60.5, None], "sky": ["söft", ""]})
    path = output_path(str(tmp_path / "deep" / name))
    assert write_output([rows.slice(0, 1), rows.slice(1)], path) == 2
    assert [one.name for one in path.parent.iterdir()] == [name]
    if name.endswith(".json"):
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        found = (pq.read_table(path) if name.endswith(".parquet") else pacsv.read_csv(path)).to_pylist()
    assert found == rows.to_pylist()


def test_on_the_command_line_a_name_that_tells_no_format_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'recovered'; name a file so"):
        output_path("recovered")


def test_a_file_of_which_the_rows_cannot_be_had_is_not_left_half_written(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.Table]:
        yield pa.table({"seq": [1]})
        raise SpillwayError("the next file is gone")

    path = tmp_path / "a.csv"
    path.write_text("what was there")
    with pytest.raises(SpillwayError, match="the next file is gone"):
        write_output(rows(), path)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["what was there"]


def test_a_name_without_an_ending_is_a_delta_table_of_exactly_what_was_asked_written_by_the_engine(
    run: Run, world: World, started: list[str]
) -> None:
    wanted = ("--attributes", "temp", "--key", "site=site-2", "--output", "of_site_2")
    code, said = run("recover", "--stream", "sites", *wanted, "--from-seq", "100", "--to-seq", "500")
    assert (code, started) == (0, ["spillway recover sites"])
    path = f"{world.settings.output}/of_site_2"
    assert f"sites: 67 tuples from 6 frames written to {path}, " in said
    rows = expected(world, range(100, 501))
    given = DeltaTable(path).to_pyarrow_table().sort_by("seq")
    assert set(given.column_names) == {"seq", "batch", "batch_date", "site", "at", "temp", "temp__bound_pct"}
    for name in given.column_names:
        mine = rows[name].astype(object).where(rows[name].notna(), None).tolist()
        assert given[name].to_pylist() == [
            getattr(one, "to_pydatetime", lambda one=one: one)() for one in mine
        ]

    # run again it leaves the same rows; asked for others it holds these alone
    assert run("recover", "--stream", "sites", *wanted, "--from-seq", "100", "--to-seq", "500")[0] == 0
    assert DeltaTable(path).to_pyarrow_table().sort_by("seq") == given
    assert run("recover", "--stream", "sites", *wanted, "--from-seq", "0", "--to-seq", "9")[0] == 0
    assert DeltaTable(path).to_pyarrow_table()["seq"].to_pylist() == [2, 8]

    # nothing found, or other columns: a sentence, and what is there stays
    code, said = run("recover", "--stream", "sites", *wanted, "--from-seq", "5000")
    assert (code, "got none for site = site-2, seq 5000..5000" in said) == (1, True)
    code, said = run("recover", "--stream", "sites", "--output", "of_site_2", "--from-seq", "0")
    assert code == 1
    assert f"`output` must be a new table, or one of the same columns, got {path} with seq" in said
    assert DeltaTable(path).to_pyarrow_table()["seq"].to_pylist() == [2, 8]


@pytest.mark.parametrize("output", ["../x.csv", "/etc/x.csv", "a/../../x.csv", "link/x.csv", ".", "a\0.csv"])
def test_no_output_of_a_job_leaves_its_folder(
    run: Run, world: World, started: list[str], output: str
) -> None:
    Path(world.settings.output).mkdir(parents=True)
    Path(world.settings.output, "link").symlink_to(world.folder)
    sentence = (
        f"`output` must lie below SPILLWAY_OUTPUT ({world.settings.output}), got {output!r}; write e.g. "
    )
    with pytest.raises(SpillwayError) as problem:
        recover_arguments(world.settings, {"stream": "sites", "output": output})
    assert str(problem.value).startswith(sentence)
    code, said = run("recover", "--stream", "sites", "--output", output)
    assert (code, started, sentence in said) == (1, [], True)
    assert list(world.folder.rglob("x.csv")) == []


def test_an_output_of_a_job_that_tells_no_format_is_refused(run: Run, world: World) -> None:
    rule = "end in .parquet, .csv or .json, or in nothing to be a Delta table"
    sentence = f"`output` must {rule}, got 'x.txt'; name it so"
    with pytest.raises(SpillwayError) as problem:
        recover_arguments(world.settings, {"stream": "sites", "output": "x.txt"})
    assert str(problem.value) == sentence
    code, said = run("recover", "--stream", "sites", "--output", "x.txt")
    assert (code, f"failed: {sentence}" in said) == (1, True)
