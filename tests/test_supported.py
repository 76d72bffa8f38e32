"""What the README says it runs on is what is pinned, checked and tested with here."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from spillway.doctor.checks import PYTHON_AT_LEAST, pinned_versions
from spillway.doctor.java import JAVA_VERSIONS, find_java, java_version

HOME = Path(__file__).resolve().parents[1]
README = (HOME / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = {
    "Spark": "pyspark",
    "deltalake": "deltalake",
    "Airflow": "apache-airflow",
    "Great Expectations": "great-expectations",
}


def table() -> dict[str, tuple[str, str]]:
    """By what it is: what it runs on, and what it is tested with."""
    _, _, rest = README.partition("| | runs on | tested with |")
    rows = [line.strip("| ").split(" | ") for line in rest.splitlines()[2:] if line.startswith("|")]
    return {name: (runs_on, tested) for name, runs_on, tested in rows[:7]}


def test_packages_are_tested_with_what_is_pinned_and_run_on_what_the_package_demands() -> None:
    pins = pinned_versions(HOME / "infra" / "requirements.txt")
    demanded = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["airflow"]]
    for name, package in PACKAGES.items():
        runs_on, tested = table()[name]
        assert pins[package] == {tested}
        (asked,) = (one for one in demanded if re.match(rf"{package}[=<>]", one))
        least = runs_on.removesuffix(" or later")
        lowest = re.search(r"[=>]=([0-9.]+)", asked)
        assert lowest is not None
        assert lowest.group(1).rstrip(".") == least
        assert tested.startswith(least)


def test_python_and_java_are_those_that_the_doctor_asks_for_and_this_suite_runs_on() -> None:
    runs_on, tested = table()["Python"]
    assert runs_on == ".".join(map(str, PYTHON_AT_LEAST)) + " or later"
    assert PROJECT["requires-python"] == ">=" + ".".join(map(str, PYTHON_AT_LEAST))
    assert tuple(map(int, tested.split("."))) <= sys.version_info[:2]
    runs_on, tested = table()["Java"]
    assert tuple(map(int, runs_on.split(", "))) == JAVA_VERSIONS
    assert int(tested) in JAVA_VERSIONS
    java = find_java()
    assert java is not None
    assert java_version(java / "bin" / "java") in JAVA_VERSIONS


def test_the_jars_are_the_pinned_ones() -> None:
    _, tested = table()["Delta Lake's jars"]
    jars = (HOME / "infra" / "jars.sha256").read_text(encoding="utf-8").split()[1::2]
    assert jars
    assert all(jar.endswith(f"-{tested}.jar") for jar in jars)


def test_the_license_is_the_one_that_the_package_names() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (HOME / "LICENSE").read_text(encoding="utf-8")
