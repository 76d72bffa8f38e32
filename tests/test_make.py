"""The commands people type, and the files that make a machine ready."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from demo.airflow_home import environment
from demo.ownership import record_demo_files
from spillway.engine.spark_conf import DELTA_JARS, defaults_file, spark_conf
from spillway.settings import Settings

HOME = Path(__file__).resolve().parents[1]
TRACKED = (
    "Makefile",
    ".ci/run",
    ".importlinter",
    "infra",
    "dags",
    "plugins",
    "jobs",
    "lib",
    "schemas",
    "expectations",
)


def make(*arguments: str) -> str:
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=HOME,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", HOME / "infra" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_python_compiles_is_kept_whatever_the_shell_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    asked = "import sys; print(sys.dont_write_bytecode)"
    assert make("--eval", f"ask: ; @{sys.executable} -c '{asked}'", "ask").split() == ["False"]


def home_with_a_demo(folder: Path) -> Path:
    """A project in which `make run` was run: one landing file, a table of one of its streams."""
    shutil.copy(HOME / "Makefile", folder)
    for name in ("lib", "tests", "jobs", "dags", "plugins", "infra", "build", "lib/demo"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(HOME / "lib" / "demo" / "ownership.py", folder / "lib" / "demo")
    for place in (
        "landing/weather/2013-01-01/a.json",
        "lake/raw/weather/part.parquet",
        "lake/.spillway-demo",
    ):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text("the demo's")
    record_demo_files(folder / "landing", ["weather/2013-01-01/a.json"])
    return folder


def cleaned(home: Path) -> str:
    told = subprocess.run(
        ["make", "-s", "clean"],
        cwd=home,
        check=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert not (home / "build").exists()
    return told.stdout


def test_clean_removes_what_the_demo_made(tmp_path: Path) -> None:
    home = home_with_a_demo(tmp_path)
    assert cleaned(home) == ""
    assert not (home / "lake").exists()
    assert not (home / "landing").exists()
    assert cleaned(home) == "", "nothing is there any more"


def test_clean_spares_what_the_demo_did_not_make(tmp_path: Path) -> None:
    home = home_with_a_demo(tmp_path)
    mine = [home / "landing" / name for name in ("turbines/2026-01-01/a.csv", "weather/2013-01-01/mine.json")]
    mine.append(home / "lake" / "raw" / "turbines" / "part.parquet")
    for file in mine:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("mine")
    told = cleaned(home)
    assert [file.read_text() for file in mine] == ["mine"] * 3
    assert "lake/ also holds turbines and is kept" in told
    assert "landing/ also holds files that the demo did not write" in told
    assert not (home / "landing" / "weather" / "2013-01-01" / "a.json").exists()
    assert (home / "lake" / "raw" / "weather" / "part.parquet").exists()


def test_clean_spares_a_lake_and_a_landing_zone_that_the_demo_did_not_make(tmp_path: Path) -> None:
    home = home_with_a_demo(tmp_path)
    (home / "lake" / ".spillway-demo").unlink()
    # as it was left before the files were listed
    (home / "landing" / ".spillway-demo").write_text("Made by `make run`; `make clean` removes it.\n")
    told = cleaned(home)
    assert "lake/ was not made by the demo and is kept" in told
    assert "landing/ does not say which files are the demo's and is kept" in told
    assert (home / "lake" / "raw" / "weather" / "part.parquet").exists()
    assert (home / "landing" / "weather" / "2013-01-01" / "a.json").exists()


def test_every_requirement_is_pinned_by_version_and_hash() -> None:
    pins = (HOME / "infra" / "requirements.txt").read_text()
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", pins)[1:]
    assert len(blocks) > 100
    for block in blocks:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", block), block
        assert "--hash=sha256:" in block, block


def test_every_direct_requirement_states_its_reason_and_is_pinned() -> None:
    pins = (HOME / "infra" / "requirements.txt").read_text().lower().replace("_", "-")
    lines = (HOME / "infra" / "requirements.in").read_text().splitlines()
    for line in (line for line in lines if line and not line.startswith("#")):
        requirement, _, reason = line.partition("#")
        assert len(reason.split()) >= 2, line
        name = re.split(r"[=<>]", requirement.strip())[0].lower().replace("_", "-")
        assert f"\n{name}==" in pins, name


def test_no_file_names_a_package_registry() -> None:
    # spelled apart, or this file would
    hosts = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("maven", "org"))]
    hosts += [
        ".".join(parts) for parts in (("maven2",), ("maven", "apache"), ("docker", "io"), ("ghcr", "io"))
    ]
    for name in TRACKED:
        root = HOME / name
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            # what is compiled comes and goes while tests run
            if "__pycache__" not in file.parts and file.is_file():
                text = file.read_text(encoding="utf-8", errors="replace")
                assert not [host for host in hosts if host in text], file


def test_the_pinned_jars_are_those_spark_is_told_to_load(bootstrap: ModuleType) -> None:
    expected = bootstrap.expected_jars(HOME / "infra" / "jars.sha256")
    assert tuple(expected) == DELTA_JARS
    ivy = (HOME / "infra" / "ivy.xml").read_text()
    for jar in DELTA_JARS:
        name, _, version = jar.removesuffix(".jar").rpartition("-")
        assert f'name="{name}" rev="{version}" transitive="false"' in ivy
    assert spark_conf("/jars", {})["spark.jars"] == ",".join(f"/jars/{jar}" for jar in DELTA_JARS)


def test_jars_that_are_there_are_not_fetched_again(bootstrap: ModuleType, tmp_path: Path) -> None:
    nowhere = tmp_path / "no-java"
    bootstrap.fetch_jars(HOME / ".jars", nowhere, nowhere)
    with pytest.raises((bootstrap.CannotGoOn, OSError)):
        bootstrap.fetch_jars(tmp_path / "jars", nowhere, nowhere)


def fake_java_home(folder: Path, script: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!{sys.executable}\n{script}")
    java.chmod(0o755)
    return folder


FETCH = """
import sys
pattern = sys.argv[sys.argv.index("-retrieve") + 1]
for name in {names!r}:
    artifact, _, revision = name.removesuffix(".jar").rpartition("-")
    target = pattern.replace("[artifact]", artifact).replace("[revision]", revision).replace("[ext]", "jar")
    open(target, "wb").write(b"not the pinned bytes")
"""


def test_a_jar_with_another_digest_is_refused_and_leaves_nothing_behind(
    bootstrap: ModuleType, tmp_path: Path
) -> None:
    java = fake_java_home(tmp_path / "java", FETCH.format(names=list(DELTA_JARS)))
    with pytest.raises(bootstrap.CannotGoOn, match="must have the digest pinned"):
        bootstrap.fetch_jars(tmp_path / "jars", java, tmp_path / "ivy.jar")
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_missing_java_says_exactly_what_to_install(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "find_java", lambda: None)
    monkeypatch.setattr(bootstrap, "may_install", lambda: False)
    monkeypatch.setattr(bootstrap, "java_versions_seen", lambda: [11])
    with pytest.raises(bootstrap.CannotGoOn, match=r"version 17 or 21, got \[11\].*openjdk-17-jre-headless"):
        bootstrap.need_java()


def test_a_missing_java_is_installed_where_that_is_allowed(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed: list[str] = []
    monkeypatch.setattr(bootstrap, "find_java", lambda: tmp_path if installed else None)
    monkeypatch.setattr(bootstrap, "may_install", lambda: True)
    monkeypatch.setattr(bootstrap, "install_debian", installed.append)
    assert bootstrap.need_java() == tmp_path
    assert installed == ["openjdk-17-jre-headless"]


def test_a_python_without_venv_says_what_to_install(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bootstrap.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(bootstrap, "may_install", lambda: False)
    with pytest.raises(bootstrap.CannotGoOn, match="apt-get install python3-venv"):
        bootstrap.make_venv(tmp_path / "venv")


def test_a_step_whose_inputs_did_not_change_is_not_done_again(bootstrap: ModuleType, tmp_path: Path) -> None:
    source, stamp, done = tmp_path / "in", tmp_path / "stamp", []
    source.write_text("one")
    for _ in range(2):
        bootstrap.once(stamp, [source], lambda: done.append(source.read_text()))
    source.write_text("two")
    bootstrap.once(stamp, [source], lambda: done.append(source.read_text()))
    assert done == ["one", "two"]


def test_a_step_that_failed_is_tried_again(bootstrap: ModuleType, tmp_path: Path) -> None:
    source, stamp = tmp_path / "in", tmp_path / "stamp"
    source.write_text("one")

    def fail() -> None:
        raise bootstrap.CannotGoOn("the network is away")

    with pytest.raises(bootstrap.CannotGoOn):
        bootstrap.once(stamp, [source], fail)
    assert not stamp.exists()


def test_airflow_listens_on_this_machine_only_and_what_was_set_wins() -> None:
    settings = Settings.from_environment({"SPILLWAY_HOME": str(HOME)})
    base = {"PATH": os.environ["PATH"], "AIRFLOW__CORE__PARALLELISM": "32"}
    env = environment(settings, 8123, base)
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__API__PORT"] == "8123"
    assert env["AIRFLOW__CORE__PARALLELISM"] == "32"
    assert env["AIRFLOW__USAGE_DATA_COLLECTION__ENABLED"] == "False"
    assert env["PYSPARK_PYTHON"] == sys.executable
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


def test_the_defaults_file_of_an_image_says_what_jobs_say(tmp_path: Path) -> None:
    conf = spark_conf(environment={})
    read_back = dict(line.split(None, 1) for line in defaults_file(conf).splitlines())
    assert read_back == conf
