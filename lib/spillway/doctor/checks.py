"""Check the machine for `spillway doctor`: each check returns what it found, and the remedy.

A check never raises an error. It changes nothing: it removes the files that it writes to test a folder. With
`deep`, Spark is started by Python and by `spark-submit`. Its tasks write a Delta table that is read back. This
takes about 40 seconds.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from spillway.doctor.java import INSTALL_JAVA, JAVA_VERSIONS, find_java, java_version, java_versions_seen
from spillway.engine.spark_conf import jars_folder
from spillway.engine.task_errors import cause_of
from spillway.errors import SpillwayError
from spillway.scheduling import POOL_VARIABLE
from spillway.settings import Settings
from spillway.store.blobs import plain_uri
from spillway.store.delta_log import foreign_commits

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.engine.protocol import Engine

PYTHON_AT_LEAST = (3, 11)
SETUP = "run: make setup"
TRIED_ROWS = 10
CHECKED_PACKAGES = {
    "apache-airflow": "airflow",
    "apache-airflow-providers-apache-spark": "airflow",
    "pyspark": "pyspark",
    "deltalake": "deltalake",
    "great-expectations": "great_expectations",
    "numpy": "numpy",
    "numba": "numba",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pyyaml": "yaml",
    "rich": "rich",
}
"""The required packages: the installed name, and the module to import."""


@dataclass(frozen=True)
class Check:
    """The result of one check: whether it passed, the finding, and the remedy."""

    name: str
    ok: bool
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'} {self.name}: {self.found}" + (
            "" if self.ok else f"; {self.remedy}"
        )


def check_python() -> Check:
    """Check that Python is recent enough."""
    found = f"{sys.version.split()[0]} in {sys.executable}"
    return Check(
        "Python",
        sys.version_info[:2] >= PYTHON_AT_LEAST,
        found,
        "make the environment with Python 3.11 or later: make run PYTHON=python3.12",
    )


def check_java(environment: Mapping[str, str]) -> Check:
    """Check that Spark can run on the Java that it would start."""
    named = environment.get("JAVA_HOME")
    if named:
        told = java_version(Path(named) / "bin" / "java")
        return Check(
            "Java",
            told in JAVA_VERSIONS,
            f"version {told} in JAVA_HOME={named}",
            f"point JAVA_HOME to Java 17 or 21, or unset it and {INSTALL_JAVA}",
        )
    on_path = shutil.which("java", path=environment.get("PATH"))
    told = java_version(Path(on_path)) if on_path else None
    if told in JAVA_VERSIONS:
        return Check("Java", True, f"version {told} in {on_path}")
    other = find_java(environment)
    remedy = f"say: export JAVA_HOME={other}" if other else INSTALL_JAVA
    seen = java_versions_seen(environment)
    return Check("Java", False, f"version {told} on the path, {seen or 'none'} on the machine", remedy)


def pinned_digests(checksums: Path) -> dict[str, str]:
    """Return the digests by file name, from lines in the format of `sha256sum`."""
    lines = (line.split() for line in checksums.read_text(encoding="utf-8").splitlines() if line.strip())
    return {name: digest for digest, name in lines}


def check_jars(checksums: Path, folder: Path) -> Check:
    """Check that the Delta jars exist and are the pinned files, byte for byte."""
    if not checksums.is_file():
        return Check("Delta jars", False, f"no {checksums}", "set SPILLWAY_HOME to the checkout")
    for name, digest in pinned_digests(checksums).items():
        jar = folder / name
        if not jar.is_file():
            return Check("Delta jars", False, f"{name} is not in {folder}", f"rm -f .venv/.ready; {SETUP}")
        if hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
            return Check(
                "Delta jars", False, f"{jar} is not the pinned file", f"rm {jar} .venv/.ready; {SETUP}"
            )
    return Check("Delta jars", True, f"pinned ones in {folder}")


def pinned_versions(requirements: Path) -> dict[str, set[str]]:
    """Return the pinned versions of each package; there are several if they differ by Python version."""
    pins: dict[str, set[str]] = {}
    for name, pin in re.findall(
        r"(?m)^([A-Za-z0-9._-]+)==([^\s;\\]+)", requirements.read_text(encoding="utf-8")
    ):
        pins.setdefault(name.lower(), set()).add(pin)
    return pins


def check_packages() -> Check:
    """Check that every package is installed and can be found, without importing it, which would take seconds."""
    missing = [
        name
        for name, module in CHECKED_PACKAGES.items()
        if _installed(name) is None or find_spec(module) is None
    ]
    if missing:
        return Check("packages", False, f"not there: {', '.join(missing)}", f"rm -f .venv/.ready; {SETUP}")
    return Check("packages", True, f"{len(CHECKED_PACKAGES)} packages are there")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def check_versions(requirements: Path) -> Check:
    """Check that the installed versions are the pinned ones."""
    if not requirements.is_file():
        return Check("versions", False, f"no {requirements}", "set SPILLWAY_HOME to the checkout")
    pins = pinned_versions(requirements)
    wrong = []
    for package in CHECKED_PACKAGES:
        found = _installed(package) or "none"
        if found not in pins.get(package, set()):
            wrong.append(f"{package} {found} instead of {' or '.join(sorted(pins.get(package, {'none'})))}")
    if wrong:
        return Check("versions", False, ", ".join(wrong), f"rm -f .venv/.ready .venv/.requirements; {SETUP}")
    return Check("versions", True, f"{len(CHECKED_PACKAGES)} packages as pinned")


def spark_submit(environment: Mapping[str, str]) -> str | None:
    """Return the program that the command `spark-submit` starts; None if there is none."""
    beside = Path(sys.executable).parent / "spark-submit"
    return shutil.which("spark-submit", path=environment.get("PATH")) or (
        str(beside) if beside.is_file() else None
    )


def check_spark(environment: Mapping[str, str]) -> Check:
    """Check that Spark and a `spark-submit` of the same environment exist."""
    found = _installed("pyspark")
    if found is None:
        return Check("Spark", False, "pyspark is not installed", SETUP)
    submit, own = spark_submit(environment), Path(sys.executable).parent
    if submit is None:
        return Check("Spark", False, "there is no spark-submit on the path", SETUP)
    home = environment.get("SPARK_HOME")
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    if home and os.path.realpath(home) != os.path.realpath(Path(spec.origin).parent):
        return Check(
            "Spark", False, f"SPARK_HOME={home} is another Spark than {found}", "say: unset SPARK_HOME"
        )
    if Path(submit).parent.resolve() != own.resolve():
        remedy = f"say: export PATH={own}:$PATH"
        return Check("Spark", False, f"{submit} is of another environment than {sys.executable}", remedy)
    return Check("Spark", True, f"{found}, {submit}")


def check_spark_starts() -> Check:
    """Check that Spark starts, and that this process can read a Delta table that Spark's tasks write."""
    from spillway.engine.spark import spark_engine

    with tempfile.TemporaryDirectory() as folder:
        try:
            with spark_engine("spillway-doctor") as engine:
                count = write_and_read(engine, Settings.from_environment({"SPILLWAY_HOME": folder}))
        except Exception as problem:
            return Check(
                "Spark starts",
                False,
                cause_of(problem),
                "see the checks above; the whole message is in what Spark printed",
            )
    return Check(
        "Spark starts",
        count == TRIED_ROWS,
        f"wrote and read a Delta table of {count} rows",
        "look for what its tasks printed",
    )


def check_submitted(environment: Mapping[str, str]) -> Check:
    """Check that `spark-submit JOB.py`, as in the jobs' docstrings, writes and reads a Delta table."""
    submit = spark_submit(environment)
    if submit is None:
        return Check("spark-submit", False, "there is none on the path", SETUP)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [submit, str(Path(__file__).with_name("submit_job.py"))],
            env={**environment, "SPILLWAY_HOME": folder},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    lines = (done.stdout + done.stderr).splitlines()
    odd = [line.strip() for line in lines if re.match(r"\s*(?:[\w.]+\.)?\w+(?:Exception|Error)\b", line)]
    well = done.returncode == 0 and f"spillway: {TRIED_ROWS} rows" in lines and not odd
    found = (
        "a bare spark-submit wrote and read a Delta table"
        if well
        else (odd or lines or ["it said nothing"])[-1]
    )
    return Check(
        "spark-submit",
        well,
        found,
        "see the checks above; submitted with the settings that the DAGs use it is: spark-submit --properties-file "
        "FILE jobs/x.py, with FILE from python -m spillway.engine.spark_conf",
    )


def write_and_read(engine: Engine, settings: Settings) -> int:
    """Write a Delta table of `TRIED_ROWS` rows in tasks of the engine; return the number of rows read back."""
    from spillway.store.drafts import FileTask
    from spillway.store.tables import Tables

    raw = Tables(settings).at("raw", "doctor")
    pieces = [FileTask({"batch_date": "2026-01-01"}, 1, seq) for seq in range(TRIED_ROWS)]
    raw.publish(raw.draft(engine, pieces, _one_tuple).written, batch=1)
    return int(Tables(settings).at("raw", "doctor").rows(["seq"]).num_rows)


def _one_tuple(seq: int, _: dict[str, int]) -> Iterator[pa.Table]:
    import pyarrow as pa

    yield pa.table({"seq": [seq], "batch": [1]})


def check_writable(name: str, root: str) -> Check:
    """Check that files can be written under a root, in its nearest existing folder."""
    if "://" in root:
        return Check(
            f"{name} root", True, f"{root} (not a local folder: tried by --deep runs of the jobs only)"
        )
    folder = Path(root)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".spillway-doctor-"):
            pass
    except OSError as problem:
        variable = f"SPILLWAY_{name.upper()}"
        return Check(
            f"{name} root",
            False,
            f"{root}: {problem.strerror or problem}",
            f"give yourself the right to write there, or set {variable} to another folder",
        )
    return Check(f"{name} root", True, root)


def check_committers(settings: Settings) -> Check:
    """Check that no other program has committed to Spillway's tables, as far as their logs show it.

    On a disk, OPTIMIZE and VACUUM of another program are harmless. On S3, any commit of delta-spark can overwrite one
    of Spillway.
    """
    from spillway.store.tables import Tables

    tables = Tables(settings)
    paths = [tables.path(*name) for name in tables.names()]
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        foreign = [one for found in pool.map(foreign_commits, paths) for one in found]
    wrong = [one for one in foreign if _is_s3(one.path) or one.operation not in _HARMLESS]
    if wrong:
        shown = [f"{one.operation} by {one.engine} as version {one.version} of {one.path}" for one in wrong]
        more = f", and {len(shown) - MOST_SHOWN} more" if len(shown) > MOST_SHOWN else ""
        return Check(
            "committers",
            False,
            f"another program has written to tables of Spillway: {', '.join(shown[:MOST_SHOWN])}{more}",
            "stop that program, and run spillway_validate: it compares the recovered values with raw"
            + ("; on S3 such a commit can overwrite one of Spillway" if any(map(_is_s3, paths)) else ""),
        )
    on_s3 = sorted({root for root in (settings.lake, settings.destination) if _is_s3(root)})
    found = (
        f"Spillway must be the only program that writes to tables below {', '.join(on_s3)}: on S3 a commit of "
        "delta-spark (also OPTIMIZE, DELETE, ALTER) can overwrite a commit of Spillway without an error; reading is "
        "safe"
        if on_s3
        else "no table is on S3: programs that commit to one table do not overwrite each other's commits"
    )
    return Check("committers", True, found)


_HARMLESS = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Operations that change no row."""
_REQUESTS_AT_ONCE = 16
MOST_SHOWN = 3


def _is_s3(root: str) -> bool:
    return plain_uri(root).startswith("s3://")


def check_contracts(schemas: str) -> Check:
    """Check that the contracts can be read and are valid."""
    from spillway.contracts import check

    if not Path(schemas).is_dir():
        return Check(
            "contracts", False, f"no folder {schemas}", "run from the checkout, or set SPILLWAY_HOME"
        )
    problems = check(schemas)
    if problems:
        return Check("contracts", False, str(problems[0]), "run: spillway contracts check")
    return Check("contracts", True, f"nothing wrong in {schemas}")


def check_airflow(settings: Settings, environment: Mapping[str, str]) -> Check:
    """Check that Airflow is installed and that its DAG folder exists."""
    # do not import Airflow: an import creates its home folder
    found = _installed("apache-airflow")
    if found is None:
        return Check("Airflow", False, "not installed", SETUP)
    dags = Path(environment.get("AIRFLOW__CORE__DAGS_FOLDER") or Path(settings.home) / "dags")
    if not (dags / "spillway_shed.py").is_file():
        return Check("Airflow", False, f"no spillway_shed.py in {dags}", "set SPILLWAY_HOME to the checkout")
    plugins = Path(environment.get("AIRFLOW__CORE__PLUGINS_FOLDER") or Path(settings.home) / "plugins")
    if environment.get(POOL_VARIABLE) and not (plugins / "spillway_pages.py").is_file():
        found = f"{POOL_VARIABLE} is set, and nothing in {plugins} makes the pools: tasks would wait for ever"
        return Check(
            "Airflow", False, found, f"put plugins/spillway_pages.py there, or unset {POOL_VARIABLE}"
        )
    return Check("Airflow", True, f"{found}, DAGs in {dags}")


def check_worker_python(environment: Mapping[str, str]) -> Check:
    """Check that Spark's workers run the driver's Python; otherwise recovered values could differ."""
    told = environment.get("PYSPARK_PYTHON")
    if told and not shutil.which(told):
        return Check(
            "worker Python", False, f"PYSPARK_PYTHON={told} is not there", f"set it to {sys.executable}"
        )
    if told and os.path.realpath(shutil.which(told) or told) != os.path.realpath(sys.executable):
        return Check(
            "worker Python", False, f"PYSPARK_PYTHON={told} is another Python", f"set it to {sys.executable}"
        )
    return Check("worker Python", True, told or f"{sys.executable} (by spark.pyspark.python)")


def _checks(
    settings: Settings, environment: Mapping[str, str], deep: bool
) -> Iterator[tuple[str, Callable[[], Check]]]:
    infra = Path(settings.home) / "infra"
    yield "Python", check_python
    yield "Java", lambda: check_java(environment)
    yield "packages", check_packages
    yield "versions", lambda: check_versions(infra / "requirements.txt")
    yield "Delta jars", lambda: check_jars(infra / "jars.sha256", Path(jars_folder(environment)))
    yield "Spark", lambda: check_spark(environment)
    yield "worker Python", lambda: check_worker_python(environment)
    yield "Airflow", lambda: check_airflow(settings, environment)
    yield "contracts", lambda: check_contracts(settings.schemas)
    for name in ("lake", "destination", "landing", "build"):
        root = getattr(settings, name)
        yield f"{name} root", lambda name=name, root=root: check_writable(name, root)  # type: ignore[misc]
    yield "committers", lambda: check_committers(settings)
    if deep:
        yield "Spark starts", check_spark_starts
        yield "spark-submit", lambda: check_submitted(environment)


def run_checks(
    settings: Settings | None = None, deep: bool = False, environment: Mapping[str, str] | None = None
) -> list[Check]:
    """Run every check, in the order in which problems should be fixed."""
    env = os.environ if environment is None else environment
    found = []
    if settings is None:
        try:
            settings = Settings.from_environment(env)
        except SpillwayError as problem:
            remedy = "correct that variable, then run doctor again: the other checks need it"
            return [
                check_python(),
                check_java(env),
                check_packages(),
                Check("roots", False, str(problem), remedy),
            ]
    for name, look in _checks(settings, env, deep):
        try:
            found.append(look())
        except (OSError, ImportError, SpillwayError, ValueError) as problem:
            found.append(Check(name, False, str(problem).splitlines()[0], SETUP))
    return found
