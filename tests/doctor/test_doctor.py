"""Each check of the doctor finds what it is there to find, and says the remedy."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.store.rows_of_tables import tell

from spillway.doctor import checks as doctor
from spillway.doctor import java
from spillway.doctor.checks import (
    Check,
    check_airflow,
    check_jars,
    check_java,
    check_packages,
    check_versions,
    check_worker_python,
)
from spillway.engine.local import ProcessEngine
from spillway.settings import Settings
from spillway.store.tables import Tables

HOME = Path(__file__).resolve().parents[2]


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return folder


def test_a_wrong_java_home_is_named_with_its_version_and_the_remedy(tmp_path: Path) -> None:
    found = check_java({"JAVA_HOME": str(fake_java(tmp_path, "11.0.2"))})
    assert not found.ok
    assert "version 11" in found.found
    assert "Java 17 or 21" in found.remedy


def test_a_right_java_elsewhere_is_offered_when_the_one_on_the_path_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = fake_java(tmp_path / "jvm" / "java-21", "21.0.1")
    wrong = fake_java(tmp_path / "old", "25")
    monkeypatch.setattr(java, "ROOTS", (str(tmp_path / "jvm"),))
    found = check_java({"PATH": str(wrong / "bin")})
    assert not found.ok
    assert found.remedy == f"say: export JAVA_HOME={right}"
    assert check_java({"PATH": str(right / "bin")}).ok


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "ROOTS", ())
    found = check_java({"PATH": str(tmp_path)})
    assert not found.ok
    assert "openjdk-17-jre-headless" in found.remedy


def test_jars_are_missing_changed_or_right(tmp_path: Path) -> None:
    pins = tmp_path / "jars.sha256"
    pins.write_text(f"{hashlib.sha256(b'right').hexdigest()}  one.jar\n")
    missing = check_jars(pins, tmp_path)
    (tmp_path / "one.jar").write_bytes(b"wrong")
    changed = check_jars(pins, tmp_path)
    (tmp_path / "one.jar").write_bytes(b"right")
    assert (missing.ok, changed.ok, check_jars(pins, tmp_path).ok) == (False, False, True)
    assert "not in" in missing.found
    assert "not the pinned file" in changed.found
    assert "make setup" in missing.remedy


def test_a_version_that_is_not_the_pinned_one_is_named(tmp_path: Path) -> None:
    pins = (HOME / "infra" / "requirements.txt").read_text()
    assert check_versions(HOME / "infra" / "requirements.txt").ok
    other = tmp_path / "requirements.txt"
    other.write_text(pins.replace("pyspark==4.2.0", "pyspark==9.9.9"))
    found = check_versions(other)
    assert not found.ok
    assert found.found == "pyspark 4.2.0 instead of 9.9.9"


def test_every_package_is_looked_for_and_one_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert check_packages().ok
    monkeypatch.setitem(doctor.CHECKED_PACKAGES, "no-such-thing", "json")
    monkeypatch.setitem(doctor.CHECKED_PACKAGES, "numpy", "no_such_module")

    found = check_packages()

    assert not found.ok
    assert found.found == "not there: numpy, no-such-thing"
    assert "make setup" in found.remedy


def test_what_the_deep_check_tries_is_written_and_read(tmp_path: Path) -> None:
    settings = Settings.in_memory(str(tmp_path))
    assert doctor.write_and_read(ProcessEngine(), settings) == doctor.TRIED_ROWS


def test_looking_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from spillway.doctor.checks import run_checks\n"
        "run_checks()\n"
        "print('HEAVY', sorted({'pyspark', 'airflow', 'great_expectations', 'delta'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(HOME / "lib"), "SPILLWAY_HOME": str(HOME)},
    )

    assert "HEAVY []" in found.stdout


def test_a_worker_of_another_python_is_refused() -> None:
    assert check_worker_python({}).ok
    assert check_worker_python({"PYSPARK_PYTHON": sys.executable}).ok
    assert not check_worker_python({"PYSPARK_PYTHON": "/nowhere/python"}).ok
    assert "another Python" in check_worker_python({"PYSPARK_PYTHON": "/bin/sh"}).found


def test_a_root_that_cannot_be_written_is_named_with_its_variable(tmp_path: Path) -> None:
    blocking = tmp_path / "file"
    blocking.write_text("a file where a folder is wanted")
    found = doctor.check_writable("lake", str(blocking / "lake"))
    assert not found.ok
    assert "SPILLWAY_LAKE" in found.remedy
    assert doctor.check_writable("lake", str(tmp_path / "new" / "lake")).ok
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_a_missing_dag_folder_is_named(tmp_path: Path) -> None:
    settings = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    assert not check_airflow(settings, {}).ok
    told = {"AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags")}
    assert check_airflow(settings, told).ok


def test_pools_that_nothing_makes_are_told_for_tasks_would_wait_for_ever(settings: Settings) -> None:
    told = {"AIRFLOW__CORE__DAGS_FOLDER": str(HOME / "dags"), "SPILLWAY_POOL": "spillway"}
    found = check_airflow(settings, {**told, "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOME / "jobs")})
    assert not found.ok
    assert "tasks would wait for ever" in found.found
    assert check_airflow(settings, {**told, "AIRFLOW__CORE__PLUGINS_FOLDER": str(HOME / "plugins")}).ok


def test_every_check_of_this_machine_says_what_it_found_and_a_failing_one_says_what_to_do(
    settings: Settings,
) -> None:
    checks = doctor.run_checks(settings, environment=dict(os.environ))
    names = [check.name for check in checks]
    assert names[:6] == ["Python", "Java", "packages", "versions", "Delta jars", "Spark"]
    assert len(set(names)) == len(names)
    assert all(check.found for check in checks)
    assert all(check.remedy for check in checks if not check.ok)
    assert [
        str(c)
        for c in checks
        if c.name in ("Python", "Java", "packages", "versions", "Delta jars") and not c.ok
    ] == []


def test_a_check_reads_as_one_line_with_the_remedy_only_when_needed() -> None:
    assert str(Check("Java", True, "17", "never shown")) == "ok   Java: 17"
    assert str(Check("Java", False, "none", "install it")) == "FAIL Java: none; install it"


@pytest.mark.long
def test_a_bare_spark_submit_writes_and_reads_as_the_jobs_say_and_leaves_no_stack() -> None:
    found = doctor.check_submitted(os.environ)
    assert found.ok, found
    assert "wrote and read a Delta table" in found.found


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'spillway: 10 rows'; echo 'java.lang.ClassNotFoundException: io.delta.X'",
            "ClassNotFoundException",
        ),
        ("echo 'spillway: 9 rows'", "spillway: 9 rows"),
        ("echo 'spillway: 10 rows'; exit 1", "spillway: 10 rows"),
        ("", "it said nothing"),
    ],
)
def test_a_spark_submit_that_does_not_do_as_the_jobs_say_is_found_out(
    tmp_path: Path, script: str, said: str
) -> None:
    program = tmp_path / "spark-submit"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = doctor.check_submitted({"PATH": f"{tmp_path}:/bin:/usr/bin"})
    assert not found.ok
    assert said in found.found
    assert "spillway.engine.spark_conf" in found.remedy


def test_another_spark_than_the_pinned_one_is_found_out(tmp_path: Path) -> None:
    assert doctor.check_spark(os.environ).ok
    home = doctor.check_spark({**os.environ, "SPARK_HOME": str(tmp_path)})
    assert (home.ok, home.remedy) == (False, "say: unset SPARK_HOME")
    program = tmp_path / "spark-submit"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = doctor.check_spark({**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"})
    assert not path.ok
    assert path.remedy == f"say: export PATH={Path(sys.executable).parent}:$PATH"


def test_another_program_that_changes_rows_is_found_and_one_that_compacts_is_not(tmp_path: Path) -> None:
    lake = Settings.from_environment({"SPILLWAY_HOME": str(tmp_path)})
    for version in (1, 2):
        tell(Tables(lake), version=version)
    table = DeltaTable(Tables(lake).path("models"))
    assert doctor.check_committers(lake).ok
    table.optimize.compact()
    assert doctor.check_committers(lake).ok
    table.delete("version = 1")
    found = doctor.check_committers(lake)
    assert not found.ok
    assert (
        f"DELETE by delta-rs:py-{version_of('deltalake')} as version 4 of {lake.lake}/models" in found.found
    )
    assert "stop that program" in found.remedy
