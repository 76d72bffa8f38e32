"""What is said of roots that cannot be used, by every way into the product."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.small_lake import HOME, small_settings

from spillway import cli
from spillway.doctor.checks import check_committers, run_checks
from spillway.errors import InvalidValue
from spillway.settings import Settings
from spillway.streams.reader import read

LOCAL = ("SPILLWAY_SCHEMAS", "SPILLWAY_BUILD", "SPILLWAY_OUTPUT", "SPILLWAY_HOME")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings = small_settings(tmp_path, {"river": "uplink"})
    for name in ("lake", "landing", "schemas", "build"):
        monkeypatch.setenv(f"SPILLWAY_{name.upper()}", getattr(settings, name))
    monkeypatch.setenv("SPILLWAY_HOME", str(HOME))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("variable", LOCAL)
@pytest.mark.parametrize(
    "uri", ["s3://bucket/folder", "s3a://bucket/folder", "file:///srv/folder", "hdfs://n/a"]
)
def test_a_uri_where_a_path_is_needed_is_refused_by_name(variable: str, uri: str) -> None:
    with pytest.raises(
        InvalidValue, match=rf"`{variable}` must be a path of a file system, got '{uri}'; write a path"
    ):
        Settings.from_environment({variable: uri})


@pytest.mark.parametrize("variable", ["SPILLWAY_LAKE", "SPILLWAY_DESTINATION", "SPILLWAY_LANDING"])
def test_a_root_with_a_password_is_refused_without_showing_it(variable: str) -> None:
    with pytest.raises(InvalidValue, match=rf"`{variable}` must hold no password") as refused:
        Settings.from_environment({variable: "s3://AKIA:hunter2@bucket/lake"})
    assert "hunter2" not in str(refused.value)
    for secret in ("hunter2/with+slash", "hunter2?x", "hunter2#x", "x@hunter2"):
        with pytest.raises(InvalidValue, match=rf"`{variable}` must hold no password") as refused:
            Settings.from_environment({variable: f"s3://AKIA:{secret}@bucket/lake"})
        assert "hunter2" not in str(refused.value)
    account = "abfs://container@account.dfs.core.windows.net/lake"
    assert Settings.from_environment({"SPILLWAY_LAKE": account}).lake == account


@pytest.mark.parametrize("variable", ["SPILLWAY_LAKE", "SPILLWAY_DESTINATION", "SPILLWAY_LANDING", *LOCAL])
@pytest.mark.parametrize(
    "uri",
    ["s3://b/x?access_key=a&secret_key=hunter2", "abfs://c@a.dfs/x?sv=1&sig=hunter2", "s3://b/x#hunter2"],
)
def test_a_root_with_a_query_is_refused_without_showing_it(variable: str, uri: str) -> None:
    """Keys and signatures stand there; and no table lies below it, for `?` ends the path."""
    with pytest.raises(InvalidValue, match=rf"`{variable}` must have no query") as refused:
        Settings.from_environment({variable: uri})
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("uri", ["s3:/bucket/lake", "file:/srv/lake", "hdfs:/srv"])
def test_a_uri_with_one_slash_is_refused_and_makes_no_folder_of_its_name(uri: str) -> None:
    for variable in ("SPILLWAY_LAKE", "SPILLWAY_BUILD"):
        with pytest.raises(InvalidValue, match=rf"`{variable}` must be a path or a URI"):
            Settings.from_environment({variable: uri})
    assert Settings.from_environment({"SPILLWAY_LAKE": "/srv/a?b:/c#d"}).lake == "/srv/a?b:/c#d"


@pytest.mark.parametrize("variable", LOCAL[:3])
@pytest.mark.parametrize("command", [["status"], ["report"], ["run"]])
def test_the_command_line_says_it_and_writes_nothing(
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
    command: list[str],
) -> None:
    monkeypatch.setenv(variable, "s3://bucket/folder")
    assert cli.main(command) == cli.WRONG
    assert f"`{variable}` must be a path of a file system" in " ".join(capsys.readouterr().err.split())
    assert list(world.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ["contracts", "check", "--schemas", "s3://bucket/schemas"],
        ["report", "--output", "s3://bucket/report.html"],
        ["recover", "river", "--output", "s3://bucket/found.csv"],
    ],
)
def test_a_uri_on_the_command_line_is_refused_and_writes_nothing(
    world: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert cli.main(command) in (cli.WRONG, cli.USAGE)
    assert "must be a path of a file system" in " ".join(capsys.readouterr().err.split())
    assert list(world.iterdir()) == []


def test_a_reader_is_told_which_of_its_arguments_is_a_uri(world: Path) -> None:
    with pytest.raises(InvalidValue, match="`schemas` must be a path of a file system"):
        read("river", schemas="s3://bucket/schemas")


def test_a_job_and_a_dag_say_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spillway.scheduling import channel_groups

    monkeypatch.setenv("SPILLWAY_BUILD", "s3://bucket/build")
    with pytest.raises(InvalidValue, match="`SPILLWAY_BUILD` must be a path of a file system"):
        channel_groups()
    done = subprocess.run(
        [sys.executable, str(HOME / "jobs" / "keep.py")], capture_output=True, text=True, cwd=world
    )
    assert done.returncode == 1
    assert "spillway: failed: `SPILLWAY_BUILD` must be a path of a file system" in done.stdout
    assert list(world.iterdir()) == []


@pytest.mark.parametrize("module", ["run", "ui", "data"])
def test_the_demo_says_it_in_one_sentence(world: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setenv("SPILLWAY_BUILD", "s3://bucket/build")
    done = subprocess.run([sys.executable, "-m", f"demo.{module}"], capture_output=True, text=True, cwd=world)
    assert done.returncode != 0
    assert "`SPILLWAY_BUILD` must be a path of a file system" in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr
    assert list(world.iterdir()) == []


def test_the_doctor_says_it_as_a_check() -> None:
    found = run_checks(environment={"SPILLWAY_BUILD": "s3://bucket/build"})
    assert [one.name for one in found if "SPILLWAY_BUILD" in one.found and not one.ok] == ["roots"]


def test_the_doctor_has_nothing_to_say_of_committers_where_no_table_is(tmp_path: Path) -> None:
    found = check_committers(Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)}))
    assert found.ok
    assert "no table is on S3" in found.found
