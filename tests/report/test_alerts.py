"""People are told what went wrong: once, at a real web address, and no run fails because nobody answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.small_lake import batch_row, small_settings, write_table

from spillway.batch import DONE
from spillway.contracts import load_contracts
from spillway.errors import ContractError
from spillway.ledger import LedgerRow
from spillway.report import alerts
from spillway.report.alerts import MOST_RUNS, TRIES, address_in_environment, run_failures, send_alerts
from spillway.settings import Settings
from spillway.store.tables import Tables

NOW = datetime(2026, 1, 5, tzinfo=UTC)
SECRET = "/services/T0/very-secret"


class Server:
    """Takes what is posted, and answers with the codes it is told, the last one for good."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.codes = [200]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.path == SECRET
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.taken.append(json.loads(body))
                self.send_response(outer.codes.pop(0) if len(outer.codes) > 1 else outer.codes[0])
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}{SECRET}"

    @property
    def told(self) -> list[tuple[str, str]]:
        """Event and stream of every alert of the last request."""
        return [(one["event"], one["stream"]) for one in self.taken[-1]["alerts"]]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    found = Server()
    thread = threading.Thread(target=found.http.serve_forever)
    thread.start()
    monkeypatch.setenv("SPILLWAY_HOOK_ONCALL", found.address)
    yield found
    found.http.shutdown()
    thread.join()
    found.http.server_close()


def lake(folder: Path, *hooks: dict[str, Any], of_channel: bool = False) -> Settings:
    """Two streams, of which the first (or their channel) has hooks."""
    settings = small_settings(folder, {"river": "uplink", "sea": "uplink"})
    path = Path(settings.schemas, "channels.yaml" if of_channel else "streams/river.yaml")
    document = yaml.safe_load(path.read_text())
    (document["channels"]["uplink"] if of_channel else document)["alerts"] = list(hooks)
    path.write_text(yaml.safe_dump(document))
    return settings


def go_wrong(settings: Settings) -> None:
    """A refusal, a shortfall and a violation of each stream."""
    for stream in ("river", "sea"):
        now = {"created_at": NOW, "updated_at": NOW}
        write_table(settings, "batches", [batch_row(stream, 1, DONE, rejected=3, **now)])
        day = date(2026, 1, 1)
        line = LedgerRow("stream", stream, 1, day, "sent", 2, "rows", offered=10, kept=10, shortfall=4)
        write_table(settings, "ledger", [line.to_dict()])
        failed = {"run_id": "r", "table": "ledger", "stream": stream, "expectation": "e", "success": False}
        failed |= {"sentence": f"{stream}, batch 1 is off by 2", "validated_at": NOW}
        write_table(settings, "validations", [failed])


def told(settings: Settings, said: list[str], now: datetime = NOW, **more: Any) -> int:
    pauses: list[float] = []
    contracts = load_contracts(settings.schemas)
    count = send_alerts(Tables(settings), contracts, now, said.append, pause=pauses.append, **more)
    assert pauses == [1.0, 2.0][: len(pauses)]
    return count


def test_a_streams_hook_is_told_of_its_violations_shortfalls_and_refusals_once(
    tmp_path: Path, server: Server
) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    go_wrong(settings)
    assert told(settings, said) == 3
    assert sorted(server.told) == [("refusal", "river"), ("shortfall", "river"), ("violation", "river")]
    assert "Spillway: 3 alerts" in server.taken[0]["text"]
    assert "refusal: river: batch 1 of 2026-01-01: 3 of 13 records were refused" in server.taken[0]["text"]
    assert "about 4 of 10 rows are more than there is room for" in server.taken[0]["text"]
    assert told(settings, said) == 0
    assert (len(server.taken), said) == (1, [])


def test_a_channels_hook_is_told_of_all_its_streams_and_only_of_what_it_asked_for(
    tmp_path: Path, server: Server
) -> None:
    settings = lake(tmp_path, {"hook": "oncall", "on": ["violation", "failure"]}, of_channel=True)
    go_wrong(settings)
    contracts = load_contracts(settings.schemas)
    red = ["sea, batch 2: `plan` must end; mend it", "the ledger must balance; report it", ""]
    failed = list(run_failures(red, "run 7", contracts))
    assert told(settings, [], failed=failed) == 4
    assert sorted(server.told) == [
        ("failure", ""),
        ("failure", "sea"),
        ("violation", "river"),
        ("violation", "sea"),
    ]
    again = list(run_failures(red, "run 8", contracts))
    assert told(settings, [], failed=again) == 2, "another run that fails is news"


def test_one_that_is_busy_is_tried_again_a_bounded_number_of_times(tmp_path: Path, server: Server) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    go_wrong(settings)
    server.codes = [503, 429, 200]
    assert told(settings, said) == 3
    assert (len(server.taken), said) == (3, [])


def test_one_that_never_takes_it_fails_no_run_is_given_up_and_its_address_stands_nowhere(
    tmp_path: Path, server: Server
) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    go_wrong(settings)
    server.codes = [500]
    for run in range(MOST_RUNS + 2):
        assert told(settings, said, NOW + timedelta(hours=run)) == 0
    assert len(server.taken) == TRIES * MOST_RUNS
    assert said == ["hook oncall did not receive 3 alerts: it answered 500"] * MOST_RUNS
    rows = Tables(settings).at("alerts").rows().to_pylist()
    assert {(row["status"], row["tries"]) for row in rows} == {("failed", MOST_RUNS)}
    written = b"".join(path.read_bytes() for path in Path(settings.lake).rglob("*") if path.is_file())
    assert b"secret" not in written + "".join(said).encode()


def test_what_a_run_failed_with_is_told_by_a_later_one_when_nobody_answered(
    tmp_path: Path, server: Server
) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    failed = list(
        run_failures(["river: `plan` must end; mend it"], "run 7", load_contracts(settings.schemas))
    )
    server.codes = [404]
    assert told(settings, said, failed=failed) == 0
    server.codes = [200]
    assert told(settings, said, NOW + timedelta(hours=1)) == 1
    assert server.taken[-1]["alerts"] == [
        {"event": "failure", "stream": "river", "sentence": "`plan` must end; mend it"}
    ]
    assert told(settings, said, NOW + timedelta(hours=2)) == 0
    (row,) = Tables(settings).at("alerts").rows().to_pylist()
    assert (row["status"], row["tries"]) == ("delivered", 2)


def test_one_that_refuses_is_not_asked_again_in_this_run(tmp_path: Path, server: Server) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    go_wrong(settings)
    server.codes = [404]
    assert told(settings, said) == 0
    assert (len(server.taken), said) == (1, ["hook oncall did not receive 3 alerts: it answered 404"])


@pytest.mark.parametrize(
    ("address", "why"),
    [
        (
            None,
            "`hook` must have an address, got 'oncall'; set SPILLWAY_HOOK_ONCALL, or make it the password of",
        ),
        (
            "file:///etc/very-secret",
            "`hook` must have an address that begins with http:// or https://, got 'oncall'; set SPILLWAY_HOOK_ONCALL",
        ),
        (
            "smtp://user:secret@mail.example:587/?from=a@b.example&to=c@b.example",
            "got 'oncall'; send mail with a notifier of Airflow (SmtpNotifier), or set SPILLWAY_HOOK_ONCALL",
        ),
        ("http://127.0.0.1:1/very-secret", "it cannot be reached (Connection refused)"),
        ("http://[::1/very-secret", "`hook` must have an address that begins with"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_without_being_shown(
    tmp_path: Path, address: str | None, why: str
) -> None:
    settings, said = lake(tmp_path, {"hook": "oncall"}), []
    go_wrong(settings)
    assert told(settings, said, address=lambda hook: address if hook == "oncall" else "") == 0
    assert len(said) == 1
    assert why in said[0]
    assert "secret" not in said[0]


def test_what_is_old_is_no_news_and_where_nobody_is_named_nothing_is_read(
    tmp_path: Path, server: Server
) -> None:
    settings = lake(tmp_path, {"hook": "oncall"})
    go_wrong(settings)
    assert told(settings, [], NOW + alerts.LOOK_BACK + timedelta(seconds=1)) == 0
    quiet = lake(tmp_path / "quiet")
    go_wrong(quiet)
    assert told(quiet, []) == 0
    assert (server.taken, Tables(quiet).at("alerts").exists) == ([], False)


@pytest.mark.parametrize(
    ("hook", "rule"),
    [
        ({"hook": "https://hooks.example/secret"}, "be a name of small letters, digits and _"),
        ({"hook": "oncall", "on": ["everything"]}, "be one of violation, shortfall, refusal, failure"),
        ({"hook": "oncall", "on": []}, "hold at least 1"),
        ({"address": "x"}, "be a known field"),
    ],
)
def test_a_contract_names_an_address_and_never_holds_one(
    tmp_path: Path, hook: dict[str, Any], rule: str
) -> None:
    settings = lake(tmp_path, hook)
    with pytest.raises(ContractError) as refused:
        load_contracts(settings.schemas)
    assert any(problem.rule.startswith(rule) for problem in refused.value.problems), refused.value


def test_the_environment_has_the_address_under_the_hooks_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPILLWAY_HOOK_ON_CALL", "https://x")
    assert (address_in_environment("on_call"), address_in_environment("other")) == ("https://x", None)
