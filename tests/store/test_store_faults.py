"""Faults of an object store end as one sentence with a remedy, and are never blamed on what is stored there.

The clients are the real ones (delta-rs, Arrow); the server speaks S3 on loopback and fails as a test asks.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.small_lake import batch_row, small_settings
from tests.store.s3_server import S3Server, s3_server

from spillway import cli
from spillway.batch import DONE
from spillway.contracts import load_usable
from spillway.doctor.checks import check_committers
from spillway.engine import ProcessEngine
from spillway.errors import StoreFault, is_own_fault
from spillway.intake.ingest import ingest
from spillway.settings import Settings
from spillway.store import blobs
from spillway.store.delta_log import open_delta
from spillway.store.maintenance import shorten_log
from spillway.store.tables import Tables

LAKE = "s3://lake/one"
ANSWERS = [
    (
        403,
        "AccessDenied",
        r"`store` must permit the request, got .*; check the key, and permit it",
    ),
    (
        403,
        "InvalidAccessKeyId",
        r"`store` must accept the credentials, got .*; set AWS_ACCESS_KEY_ID and AWS_SECRET",
    ),
    (
        404,
        "NoSuchBucket",
        r"`store` must have the bucket, got .*; create the bucket, or correct SPILLWAY_LAKE",
    ),
]


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Arrow's own tries; delta-rs has no such variable and tries ten times, some three seconds
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_server("lake") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    found = small_settings(tmp_path, {"river": "uplink"})
    return found.with_roots({"lake": LAKE, "destination": LAKE, "landing": "s3://lake/landing"})


def row(number: int) -> dict[str, object]:
    return batch_row("river", number, DONE)


def batches_in(settings: Settings) -> list[int]:
    return sorted(Tables(settings).at("batches").rows(["batch"])["batch"].to_pylist())


def is_one_sentence(problem: BaseException) -> bool:
    text = str(problem)
    return (
        text.startswith("s3://lake/")
        and "\n" not in text
        and "\x1b" not in text
        and not is_own_fault(problem)
    )


@pytest.mark.parametrize(("status", "code", "said"), ANSWERS)
def test_a_fault_says_what_to_do_where_a_table_is_opened_read_committed_or_kept(
    server: S3Server, settings: Settings, status: int, code: str, said: str
) -> None:
    Tables(settings).at("batches").append([row(1)])
    read, written, kept = (Tables(settings).at("batches") for _ in range(3))
    acts = {
        "opened": lambda: Tables(settings).at("batches"),
        "refreshed": lambda: read._log.refresh(),
        "read": lambda: read.rows(),
        "written": lambda: written.append([row(2)]),
        "kept": lambda: shorten_log(kept),
        "listed": lambda: blobs.list_files(LAKE),
    }
    if code == "NoSuchBucket":
        # to Arrow this is an object that is not there, as in an empty folder
        del acts["read"], acts["listed"]
    server.fault = lambda _method, _path: (status, code)
    for act in acts.values():
        with pytest.raises(StoreFault) as fault:
            act()
        assert is_one_sentence(fault.value)
        # a HEAD has no body to name more than the status in
        assert re.search(said, str(fault.value)) or (status == 403 and "must permit" in str(fault.value))
    server.fault = lambda _method, _path: None
    assert batches_in(settings) == [1]


@pytest.mark.parametrize(("status", "code", "said"), ANSWERS)
def test_a_store_that_takes_files_but_no_commit_says_so_and_the_next_run_goes_on(
    server: S3Server, settings: Settings, status: int, code: str, said: str
) -> None:
    table = Tables(settings).at("batches")
    table.append([row(1)])
    server.fault = lambda method, path: (status, code) if method == "PUT" and "_delta_log" in path else None
    for act in (
        lambda: table.append([row(2)]),
        lambda: table.replace([row(1)], stream="river", batch=1),
        lambda: Tables(settings).at("validations")._log.create(Tables(settings).at("validations").contract),
    ):
        with pytest.raises(StoreFault, match=said) as fault:
            act()
        assert is_one_sentence(fault.value)
    server.fault = lambda _method, _path: None
    assert batches_in(settings) == [1]
    Tables(settings).at("batches").append([row(2)])
    assert batches_in(settings) == [1, 2]


def test_files_of_a_commit_that_went_through_unheard_stay_where_they_are(
    server: S3Server, settings: Settings
) -> None:
    """The store does the commit, its answer is lost, and nothing is to be reached afterwards: the table stays whole."""
    Tables(settings).at("batches").append([row(1)])
    table = Tables(settings).at("batches")
    seen: list[str] = []

    def unheard(method: str, path: str) -> bool:
        if method == "PUT" and "_delta_log" in path:
            seen.append(path)
            server.fault = lambda _method, _path: (503, "SlowDown")
            return True
        return False

    server.after = unheard
    with pytest.raises(StoreFault, match=r"`store` must answer without an error, got .*503"):
        table.replace([row(1), row(2)], stream="river", batch=[1, 2])
    server.after, server.fault = (lambda _method, _path: False), (lambda _method, _path: None)
    assert len(seen) == 1
    assert batches_in(settings) == [1, 2]


@pytest.mark.long
def test_an_endpoint_that_nobody_listens_on_is_named_with_what_to_look_at(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        server = S3Server()
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.server_close()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        for act in (lambda: open_delta(f"{LAKE}/batches"), lambda: blobs.list_files(LAKE)):
            with pytest.raises(
                StoreFault, match=r"`store` must be reachable, got .*; check AWS_ENDPOINT_URL"
            ):
                act()


def test_http_without_leave_and_missing_credentials_say_which_variable_to_set(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    with pytest.raises(StoreFault, match=r"must be reached over https, got .*; set AWS_ALLOW_HTTP=true"):
        open_delta(f"{LAKE}/batches")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.environment["AWS_ENDPOINT_URL"])
    with pytest.raises(StoreFault, match=r"must accept the credentials, got .*; set AWS_ACCESS_KEY_ID"):
        open_delta(f"{LAKE}/batches")


def test_a_landed_file_that_the_store_does_not_hand_out_is_not_refused_but_waits(
    server: S3Server, settings: Settings
) -> None:
    line = b'{"site": "a", "at": "2026-01-01T00:00:00Z", "level": 1.5}\n'
    blobs.write_bytes("s3://lake/landing/river/2026-01-01/part-1.json", line * 3)
    contract = load_usable(settings.schemas).stream("river")
    reads: list[str] = []

    def fault(method: str, path: str) -> tuple[int, str] | None:
        if method == "GET" and path.endswith("part-1.json"):
            reads.append(path)
            # first when it is measured, then when it is parsed
            return (403, "AccessDenied") if len(reads) in (1, 3) else None
        return None

    server.fault = fault
    tables = Tables(settings)
    with pytest.raises(StoreFault, match=r"part-1.json: `store` must"):
        ingest(tables, ProcessEngine(), contract, "first")
    with pytest.raises(StoreFault, match=r"part-1.json: `store` must"):
        ingest(Tables(settings), ProcessEngine(), contract, "second")
    server.fault = lambda _method, _path: None
    ingest(Tables(settings), ProcessEngine(), contract, "third")
    assert Tables(settings).at("raw", "river").rows(["seq"]).num_rows == 3
    assert Tables(settings).at("rejected").rows(["stream"]).num_rows == 0


def test_the_command_line_ends_with_the_sentence(
    server: S3Server, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("lake", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(settings, name))
    server.fault = lambda _method, _path: (403, "AccessDenied")
    assert cli.main(["status"]) == cli.WRONG
    told = " ".join(capsys.readouterr().err.split())
    assert "`store` must permit the request" in told
    assert "Traceback" not in told


def test_a_damaged_file_on_a_store_is_still_called_damaged(server: S3Server, settings: Settings) -> None:
    Tables(settings).at("batches").append([row(1)])
    (name,) = [one for one in server.buckets["lake"] if one.endswith(".parquet")]
    server.buckets["lake"][name] = b"PAR1 nothing of it PAR1"
    with pytest.raises(Exception, match=r"`file` must exist and be complete") as problem:
        Tables(settings).at("batches").rows()
    assert not isinstance(problem.value, StoreFault)
    assert DeltaTable(f"{LAKE}/batches").version() == 1


def commit_as(server: S3Server, engine: str, operation: str) -> None:
    """Another program commits to `batches`, as Delta's log store for S3 does: it asks, then puts."""
    info = {"commitInfo": {"operation": operation, "engineInfo": engine}}
    bucket = server.buckets["lake"]
    number = sum("/batches/_delta_log/" in name and name.endswith(".json") for name in bucket)
    (log,) = {name.rpartition("/")[0] for name in bucket if "/batches/_delta_log/" in name}
    bucket[f"{log}/{number:020d}.json"] = json.dumps(info).encode()


def test_the_doctor_finds_another_committer_on_s3(server: S3Server, settings: Settings) -> None:
    Tables(settings).at("batches").append([row(1)])
    alone = check_committers(settings)
    assert alone.ok
    assert f"must be the only program that writes to tables below {LAKE}: on S3" in alone.found
    commit_as(server, "Apache-Spark/4.2.0 Delta-Lake/4.4.0", "OPTIMIZE")
    found = check_committers(settings)
    assert not found.ok
    said = f"OPTIMIZE by Apache-Spark/4.2.0 Delta-Lake/4.4.0 as version 2 of {LAKE}/batches"
    assert said in found.found
    assert "on S3 such a commit can overwrite one of Spillway" in found.remedy
