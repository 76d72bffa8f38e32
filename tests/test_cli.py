"""The `spillway` command: words for people, JSON for programs, exit codes for both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.report.page.small_lake import TUPLES, empty_home, environment_of, rows_of, small_lake
from tests.report.page.small_lake import write as write_table
from tests.small_lake import deliver, small_settings

from spillway.cli import COMMANDS, main, parser
from spillway.contracts import load_contracts
from spillway.engine import ProcessEngine
from spillway.intake.ingest import ingest
from spillway.ledger import LedgerRow
from spillway.registry import extra_levers
from spillway.report.text import format_bytes
from spillway.settings import Settings
from spillway.store.batches import load_batches, save_batches
from spillway.store.blobs import write_bytes
from spillway.store.tables import Tables

ROOT = Path(__file__).resolve().parents[1]
DAY = date(2026, 1, 1)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return small_lake(tmp_path_factory.mktemp("home"))


@pytest.fixture
def at_home(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    stand_in(lake, monkeypatch)
    return lake


def stand_in(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("SPILLWAY_")]:
        monkeypatch.delenv(name)
    for name, value in environment_of(Path(settings.home)).items():
        monkeypatch.setenv(name, value)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, text = told(capsys, *arguments, "--json")
    return code, json.loads(text)


def words(text: str) -> str:
    return " ".join(text.split())


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from spillway.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'pyspark', 'pyarrow', 'numpy', 'great_expectations', 'deltalake', 'yaml', 'rich', 'numba'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "lib")},
    )

    assert "HEAVY []" in found.stdout


@pytest.mark.parametrize("command", COMMANDS, ids=lambda add: add.__name__.removeprefix("add_"))
def test_every_subcommand_has_help(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name = command.__name__.removeprefix("add_").replace("_", "-").replace("_", "-")
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])

    assert stopped.value.code == 0
    assert f"spillway {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "action", ["doctor", "contracts check", "contracts schema", "contracts new", "status"]
)
def test_help_shows_examples(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*action.split(), "--help"])

    assert f"examples:\n  spillway {action}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["explain"], ["status", "--josn"]])
def test_what_is_not_understood_ends_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(arguments)

    assert stopped.value.code == 2


def test_status_shows_runs_streams_and_what_falls_short(
    at_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = told(capsys, "status")

    assert code == 1  # an expectation failed
    assert text.startswith("1 thing is wrong and 2 notes, see below.")
    assert "Last run with new data: run-2, 2026-01-03 04:00 UTC, 1 batch of fields, 120 rows." in words(text)
    assert "fields shed 2 done 240 4 32 kB 8 kB uplink, 2 kbps 26.7 % attributes" in words(text)
    assert "meadows shed 1 untrained 10 2 - - uplink, 2 kbps - attributes (not trained)" in words(text)
    assert "WRONG  fields: schemes: fields, batch 2 falls short by 0.2 kbps" in text
    assert (
        "note fields: 2 batches do not fit into the channel. The worst is batch 1: about 38 of the 420 values that "
        "attributes kept are too many: all that may be shed is shed"
    ) in words(text)
    assert "note meadows: attributes is not trained yet: rows are taken in, and nothing is sent" in words(
        text
    )


def test_status_has_details_of_channels_and_attributes(
    at_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "of the capacity" not in told(capsys, "status")[1]
    code, text = told(capsys, "status", "--details")
    assert code == 1
    assert "uplink (fields), 2 kbps: 2.13 kbps offered, 533 bps sent, 26.7 % of the capacity" in words(text)
    assert "attribute treatment bound mean error worst offered sent" in words(text)
    assert "fields: the ledger balances; attributes: model version 1" in words(text)


def test_status_tells_programs_the_same(at_home: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "status")

    assert (code, found["ok"]) == (1, False)
    assert [run["run_id"] for run in found["runs"]] == ["run-2", "run-1"]
    assert {(s["stream"], s["kind"], s["wrong"]) for s in found["shortages"]} == {
        ("fields", "expectation", True),
        ("fields", "capacity", False),
        ("meadows", "untrained", False),
    }
    assert found["streams"][0]["figures"]["tuples"] == TUPLES


def test_status_tells_what_is_spent_of_a_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    assert "spent" not in told(capsys, "status")[1]
    write_bytes(f"{settings.schemas}/channels.yaml", b"channels: {uplink: {capacity: 1 MB/day}}")
    totals = [
        row
        for row in rows_of(settings, "ledger")
        if (row["unit"], row["dimension_kind"]) == ("rows", "total")
    ]
    mine = [row for row in totals if (row["subject"], row["batch"]) == ("fields", 2)]
    sent = max(mine, key=lambda row: row["ordinal"])["bytes_kept"]
    assert sent > 0

    text = words(told(capsys, "status")[1])
    assert (
        f"uplink: {format_bytes(sent)} of 1 MB spent on {DAY + timedelta(days=1)}, in 0.0167 of 24 hours"
        in text
    )
    (quota,) = document(capsys, "status")[1]["quotas"]
    assert (quota["channel"], quota["spent_bytes"], quota["quota_bytes"]) == ("uplink", sent, 1_000_000)


def test_elapsed_time_of_a_quota_ends_with_the_batch_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A month of weather that arrived on its last day was `in 59.8 of 31 days`."""
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    write_bytes(f"{settings.schemas}/channels.yaml", b"channels: {uplink: {capacity: 1 MB/month}}")
    tables = Tables(settings)
    batch = max(load_batches(tables, "fields"), key=lambda one: one.batch_date)
    save_batches(tables, [replace(batch, seconds_covered=30 * 86_400.0)])

    (quota,) = document(capsys, "status")[1]["quotas"]
    assert quota["elapsed_seconds"] == batch.batch_date.day * 86_400


def test_broken_promises_are_wrong_and_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    certificate = {**rows_of(settings, "certificates")[0], "batch": 3, "violations": 4}
    line = next(row for row in rows_of(settings, "ledger") if row["dimension_kind"] == "total")
    write_table(settings, "certificates", [certificate])
    write_table(settings, "ledger", [{**line, "batch": 3, "lost": line["lost"] + 1}])
    write_bytes(f"{settings.landing}/fields/new.json", b"{}\n")

    code, found = document(capsys, "status")

    said = [(s["kind"], s["sentence"]) for s in found["shortages"]]
    assert code == 1
    assert said[0] == ("ledger", "the ledger is off by 1")
    assert said[1] == ("bound", "4 recovered values are outside their bound")
    assert ("pending", "1 delivered file waits") in said


def test_shed_batches_without_certificates_wait_for_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    write_table(
        settings, "ledger", [{**row, "batch": 3} for row in rows_of(settings, "ledger") if row["batch"] == 2]
    )

    _, found = document(capsys, "status")

    assert ("unvalidated", "1 sent batch is not validated yet") in [
        (s["kind"], s["sentence"]) for s in found["shortages"]
    ]


def test_batches_that_were_begun_wait_and_untrained_ones_too_once_their_levers_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    model = rows_of(settings, "models")[0]
    write_table(settings, "models", [{**model, "stream": "meadows"}])

    _, found = document(capsys, "status")

    said = [(s["stream"], s["kind"], s["sentence"]) for s in found["shortages"]]
    assert ("meadows", "pending", "1 batch waits") in said
    assert "untrained" not in [kind for _, kind, _ in said]


def test_a_join_shows_with_its_windows_its_levers_and_what_its_stages_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    (tmp_path / "schemas" / "joins").mkdir()
    (tmp_path / "schemas" / "joins" / "beside.yaml").write_text(
        "name: beside\ninputs: [fields, meadows]\nwindow: {seconds: 60}\nlevers: [{lever: attributes}]\n"
    )
    _, text = told(capsys, "status")
    assert "beside fields, meadows none -" in words(text)
    line = LedgerRow("join", "beside", 7, DAY, "meet", 1, "comparisons", offered=9, kept=8, shed=1, lost=1)
    write_table(settings, "ledger", [line.to_dict()])

    _, text = told(capsys, "status")
    _, found = document(capsys, "status")

    assert "beside fields, meadows none 88.9 % of comparisons" in words(text)
    (beside,) = found["workloads"]
    assert (beside["name"], beside["ledger_difference"]) == ("beside", 0)
    assert found["streams"][0]["figures"]["ledger_difference"] == 0


def test_a_join_whose_ledger_does_not_balance_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    (tmp_path / "schemas" / "joins").mkdir()
    (tmp_path / "schemas" / "joins" / "beside.yaml").write_text(
        "name: beside\ninputs: [fields, meadows]\nwindow: {seconds: 60}\nlevers: [{lever: attributes}]\n"
    )
    line = LedgerRow("join", "beside", 7, DAY, "meet", 1, "comparisons", offered=9, kept=9).to_dict()
    write_table(settings, "ledger", [{**line, "kept": 7}])

    code, found = document(capsys, "status")

    assert code == 1
    assert ("beside", "ledger", "the ledger is off by 2") in [
        (s["stream"], s["kind"], s["sentence"]) for s in found["shortages"]
    ]


def test_a_stream_whose_contract_is_gone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    (tmp_path / "schemas" / "streams" / "meadows.yaml").unlink()

    _, found = document(capsys, "status")

    assert ("meadows", "contract") in [(s["stream"], s["kind"]) for s in found["shortages"]]


def test_an_empty_lake_is_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    stand_in(empty_home(tmp_path), monkeypatch)

    code, text = told(capsys, "status")

    assert code == 0
    assert text.startswith("Nothing needs attention.")


def test_explain_gives_rule_numbers_bound_and_remedies(
    at_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = told(capsys, "explain", "fields", "temp")

    assert code == 0
    assert "fields.temp is shed" in text
    assert (
        "because this plan loses least of those that fit the capacity: its synopsis is kept at the source"
        in words(text)
    )
    assert "The plan says: lowest rank." in words(text)
    assert "rank 1 of 2 (score 0.4, recoverability)" in words(text)
    assert "bound 5 % (from category)" in words(text)
    assert "rate 3.8 kbps offered, 2.2 kbps planned, 2 kbps allowed, 200 bps too much" in words(text)
    assert "so far 240 tuples shed" in words(text)
    assert "exempt it: role: protected on temp in schemas/streams/fields.yaml" in text
    assert "recover it: spillway recover fields --attributes temp" in text
    assert "attributes values all 2 1,200 840 240 360 360 0" in words(text)
    assert "attributes values temp 2 240 0 0 240 240 0" in words(text)


def test_explain_tells_programs_numbers_with_their_units(
    at_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = document(capsys, "explain", "fields", "rain")

    (attributes,) = found["levers"]
    assert (attributes["lever"], attributes["facts"], attributes["explanation"]["treatment"]) == (
        "attributes",
        1,
        "shed",
    )
    assert attributes["explanation"]["numbers"]["so far"] == {"tuples kept": 120, "tuples shed": 120}
    assert attributes["explanation"]["numbers"]["width"] == {"bits a tuple": 12.0}


def test_explain_names_a_lever_that_tells_nothing_and_each_of_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    path = tmp_path / "schemas" / "streams" / "fields.yaml"
    path.write_text(path.read_text() + "levers: [{lever: mute}, {lever: attributes}]\n")

    with extra_levers(mute="tests.report.mute"):
        _, text = told(capsys, "explain", "fields", "temp")

    assert "mute has no explanation of fields.temp; see the counts of its stage" in text
    assert "fields.temp is shed by attributes" in text


def test_explain_of_a_stream_without_levers_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = empty_home(tmp_path)
    stand_in(settings, monkeypatch)
    path = tmp_path / "schemas" / "streams" / "fields.yaml"
    path.write_text(path.read_text() + "levers: []\n")

    _, text = told(capsys, "explain", "fields", "temp")

    assert "fields has no levers: its rows are sent unchanged" in text


@pytest.mark.parametrize(
    ("stream", "attribute", "said"),
    [
        (
            "fields",
            "wind",
            "this plan loses least of those that fit the capacity: it is rounded within its bound",
        ),
        (
            "fields",
            "site",
            "because role key is never rounded or shed: it identifies the sender of the tuple.",
        ),
        (
            "fields",
            "at",
            "because role order is never rounded or shed: it is the time or sequence number of the tuple.",
        ),
        ("meadows", "temp", "because no scheme yet: the stream waits to be taken in, trained and shed."),
    ],
)
def test_explain_knows_the_rule_of_every_case(
    at_home: Settings, capsys: pytest.CaptureFixture[str], stream: str, attribute: str, said: str
) -> None:
    code, text = told(capsys, "explain", stream, attribute)

    assert code == 0
    assert said in words(text)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("mode: observe", "mode observe plans and accounts, and drops nothing"),
        ("levers: [{lever: attributes, error_pct: 0}]", "error_pct 0 allows no error"),
    ],
)
def test_explain_names_what_the_owner_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, change: str, said: str
) -> None:
    settings = small_lake(tmp_path)
    stand_in(settings, monkeypatch)
    path = tmp_path / "schemas" / "streams" / "fields.yaml"
    path.write_text(path.read_text(encoding="utf-8") + change + "\n", encoding="utf-8")

    _, text = told(capsys, "explain", "fields", "temp")

    assert said in words(text)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["explain", "feilds", "temp"],
            "`stream` must be a stream, a join or a query, got 'feilds'; did you mean fields?",
        ),
        (
            ["explain", "fields", "tmp"],
            "`attribute` must be one of fields's (site, at, temp, wind, rain), got 'tmp'",
        ),
        (["recover", "feilds"], "`stream` must have a contract, got 'feilds'"),
        (
            ["recover", "fields", "--attributes", "tmp"],
            "`attributes` must be of the stream fields, got tmp; use",
        ),
        (["recover", "fields", "--key", "temp=1"], "`key` must be NAME=VALUE with NAME one of site"),
        (
            ["recover", "fields", "--from-time", "noon"],
            "`from_time` must be an ISO date or time, as at is, got 'noon'",
        ),
        (
            ["recover", "fields", "--seq", "1", "--to-seq", "2"],
            "`seq` must not be combined with a first or a last seq",
        ),
        (
            ["recover", "fields", "--output", "a.xlsx"],
            "`output` must end in .parquet, .csv or .json, got 'a.xlsx'",
        ),
        (
            ["join-advice", "fields", "fields", "--on", "site", "--lasts", "-5"],
            "`--lasts` must be a number above 0",
        ),
        (
            ["join-advice", "fields", "fields", "--on", "site", "--predicate", "overlap"],
            "`--threshold` must be there for overlap, got None; write e.g. --threshold 3",
        ),
        (
            ["join-advice", "fields", "fields", "--on", "site", "--lasts", "600", "--basic", "1200"],
            "`--lasts` must be no shorter than a basic window (1200), got 600.0; shorten --basic",
        ),
        (
            ["plan", "fields", "--capacity", "40"],
            "`--capacity` must be a number with a unit of rate, got '40'",
        ),
        (["contracts", "new", "nowhere.csv"], "`sample` must be a file, got 'nowhere.csv'"),
    ],
)
def test_a_name_nobody_knows_is_a_usage_error(
    at_home: Settings, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code, text = told(capsys, *arguments)
    json_code, found = document(capsys, *arguments)

    assert (code, json_code) == (2, 2)
    assert said in text
    assert said in found["error"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "fields", "--from-date", "1.2.2026"],
        ["replay", "fields", "--date", "1.2.2026"],
        ["resend", "fields", "--from", "1.2.2026"],
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_date_that_is_none_is_told_with_one_that_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert f"{arguments[2]}: must be a date like 2026-02-01, got '1.2.2026'" in capsys.readouterr().err


def test_its_version_is_asked_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert (stopped.value.code, capsys.readouterr().out) == (0, f"spillway {version('spillway')}\n")


def test_contracts_check_lists_every_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = empty_home(tmp_path)
    stand_in(settings, monkeypatch)
    assert told(capsys, "contracts", "check")[0] == 0

    path = tmp_path / "schemas" / "streams" / "fields.yaml"
    broken = path.read_text(encoding="utf-8").replace("channel: uplink", "channel: uplnk\nmode: drop")
    path.write_text(broken, encoding="utf-8")
    code, text = told(capsys, "contracts", "check")
    json_code, found = document(capsys, "contracts", "check")

    assert (code, json_code, found["ok"]) == (1, 1, False)
    assert {problem["field"] for problem in found["problems"]} == {"channel", "mode"}
    assert "2 problems in" in text


def test_contracts_check_tells_of_a_join_by_an_attribute_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stand_in(empty_home(tmp_path), monkeypatch)
    sides = {"left": {"attribute": "temp"}, "right": {"attribute": "tmp"}}
    join = {"name": "calms", "inputs": ["fields", "fields"], "window": {"seconds": 60}}
    path = tmp_path / "schemas" / "joins" / "calms.yaml"
    path.parent.mkdir()
    path.write_text(json.dumps({**join, "levers": [{"lever": "joins", **sides}]}), encoding="utf-8")

    code, found = document(capsys, "contracts", "check")
    assert code == 1
    assert [(p["where"], p["field"], p["remedy"]) for p in found["problems"]] == [
        ("joins/calms.yaml", "tmp", "did you mean temp?")
    ]
    assert "1 problem in" in told(capsys, "contracts", "check")[1]


def test_a_broken_contract_stops_questions_and_is_wrong_in_status_with_all_its_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stand_in(empty_home(tmp_path), monkeypatch)
    (tmp_path / "schemas" / "streams" / "fields.yaml").write_text("stream: fields\n", encoding="utf-8")

    code, found = document(capsys, "explain", "fields", "temp")
    status_code, now = document(capsys, "status")

    assert code == status_code == 1
    assert len(found["problems"]) >= 2
    (told,) = [one["sentence"] for one in now["shortages"] if one["kind"] == "contract" and one["wrong"]]
    assert all(problem["field"] in told for problem in found["problems"])


def test_explain_says_what_is_wrong_with_a_join_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stand_in(empty_home(tmp_path), monkeypatch)
    (tmp_path / "schemas" / "joins").mkdir()
    (tmp_path / "schemas" / "joins" / "calms.yaml").write_text("name: calms\n", encoding="utf-8")

    code, found = document(capsys, "explain", "calms")

    assert code == 1
    assert [(one["where"].split(":")[0], one["field"]) for one in found["problems"]] == [
        ("joins/calms.yaml", field) for field in ("inputs", "window", "levers")
    ]


def test_contracts_schema_is_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    _, stream = document(capsys, "contracts", "schema")
    code, channels = document(capsys, "contracts", "schema", "--channels")

    assert code == 0
    assert "attributes" in stream["properties"]
    assert "channels" in channels["properties"]


def test_contracts_new_drafts_a_contract_that_checks_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    settings = empty_home(tmp_path)
    stand_in(settings, monkeypatch)
    sample = tmp_path / "gardens.csv"
    rows = [f"2026-01-0{1 + n // 2}T0{n % 2}:00:00Z,{'ab'[n % 2]},{n / 7}" for n in range(8)]
    sample.write_text("\n".join(["at,site,temp", *rows]) + "\n", encoding="utf-8")
    target = tmp_path / "schemas" / "streams" / "gardens.yaml"

    code, text = told(capsys, "contracts", "new", str(sample), "--stream", "gardens", "--output", str(target))

    assert code == 0
    assert "Wrote" in text
    assert document(capsys, "contracts", "check")[1]["problems"] == []
    assert main(["contracts", "new", str(sample), "--output", str(target)]) == 2


def test_report_says_where_it_is(
    at_home: Settings, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, found = document(capsys, "report", "--output", str(tmp_path / "page.html"))

    assert code == 0
    assert Path(found["report"]).read_text(encoding="utf-8").startswith("<!doctype html>")


def test_doctor_names_what_is_wrong_and_the_remedy(
    at_home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = document(capsys, "doctor")
    _, text = told(capsys, "doctor")

    wrong = [check for check in found["checks"] if not check["ok"]]
    assert code == 1  # this home is no checkout
    assert wrong
    assert all(check["remedy"] in words(text) for check in wrong)


def test_replay_takes_refused_rows_in_again_once_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = small_settings(tmp_path, {"river": "uplink"})
    for name, value in (
        ("LAKE", settings.lake),
        ("LANDING", settings.landing),
        ("SCHEMAS", settings.schemas),
    ):
        monkeypatch.setenv(f"SPILLWAY_{name}", value)
    monkeypatch.setenv("SPILLWAY_HOME", settings.home)
    path = Path(settings.schemas, "streams", "river.yaml")
    mended = path.read_text()
    path.write_text(mended.replace("role: measure", "role: measure\n  nullable: false"))
    deliver(settings, "river/a.json", '{"site": "a", "at": "2026-01-01T00:00:00Z"}\n')
    ingest(Tables(settings), ProcessEngine(), load_contracts(settings.schemas).stream("river"), "run")
    code, text = told(capsys, "replay", "river", "--date", "2020-01-01")
    assert (code, words(text)) == (0, "river: nothing to replay matches these options")
    path.write_text(mended)
    code, found = document(capsys, "replay", "river", "--file", "a.json")
    assert (code, found["files"], found["tuples"], found["rejected"]) == (0, 1, 1, 0)
    assert document(capsys, "replay", "river")[1]["batches"] == []


def test_parity_is_added_checked_and_its_faults_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, sent = tmp_path / "readings.jsonl", tmp_path / "sent.jsonl"
    plain.write_bytes(b'{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    code, text = told(capsys, "parity", "add", str(plain), "--output", str(sent))
    assert (code, words(text)) == (0, f"Wrote 3 lines with parity to {sent}.")
    lines = sent.read_bytes().split(b"\n")
    assert [line.partition(b"\t")[0] + b"\n" for line in lines[:3]] == plain.read_bytes().splitlines(
        keepends=True
    )
    assert document(capsys, "parity", "check", str(sent)) == (0, {"lines": 3, "corrected": 0, "refused": []})
    one, two = bytearray(lines[0]), bytearray(lines[1])
    one[2] ^= 4
    two[2] ^= 5
    sent.write_bytes(b"\n".join([bytes(one), bytes(two), *lines[2:]]))
    assert document(capsys, "parity", "check", str(sent)) == (1, {"lines": 3, "corrected": 1, "refused": [2]})
    code, text = told(capsys, "parity", "check", str(sent))
    assert code == 1
    assert "cannot be corrected: line 2" in text
    code, _ = told(capsys, "parity", "add", str(plain), "--output", str(plain))
    assert code == 2
    assert plain.read_bytes().count(b"\n") == 3
    assert told(capsys, "parity", "check", str(tmp_path / "absent"))[0] == 2


def test_parity_is_written_to_standard_output(tmp_path: Path) -> None:
    plain = tmp_path / "readings.csv"
    plain.write_bytes(b"a\n1\n2")
    made = subprocess.run(
        [sys.executable, "-m", "spillway.cli", "parity", "add", str(plain)], capture_output=True, check=True
    )
    assert [line.partition(b"\t")[0] for line in made.stdout.split(b"\n")] == [b"a", b"1", b"2"]
