"""Set up the demo's Airflow: its environment, its database, its log-in.

`infra/airflow.env` holds the settings; this adds what depends on where the project lies. A deployment with an
Airflow of its own needs none of it: the DAG folder, the `spillway` package and a `spark_default` connection
are enough; with the plugin folder links lead from runs to the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from spillway.doctor.java import INSTALL_JAVA, find_java, java_versions_seen
from spillway.errors import SpillwayError
from spillway.settings import Settings

LOCAL_SPARK = {"conn_type": "spark", "host": "local[*]"}


def read_env_file(text: str) -> dict[str, str]:
    """Parse `NAME=value` lines; skip comments and blank lines.

    >>> read_env_file("# one\\nA=1\\n\\nB=x=y\\n")
    {'A': '1', 'B': 'x=y'}
    """
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def environment(
    settings: Settings, port: int = 8080, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of Airflow and of the Spark that it submits; values that are set in `base` win."""
    outer = dict(os.environ if base is None else base)
    home = Path(settings.home)
    airflow = Path(outer.get("AIRFLOW_HOME") or Path(settings.build) / "airflow")
    programs = Path(sys.executable).parent
    told = read_env_file((home / "infra" / "airflow.env").read_text(encoding="utf-8")) | {
        "AIRFLOW_HOME": str(airflow),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(airflow / "logs"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPILLWAY_HOME": settings.home,
        "SPILLWAY_LAKE": settings.lake,
        "SPILLWAY_DESTINATION": settings.destination,
        "SPILLWAY_LANDING": settings.landing,
        "SPILLWAY_SCHEMAS": settings.schemas,
        "SPILLWAY_BUILD": settings.build,
    }
    java = find_java(outer)
    if java is None:
        raise SpillwayError(
            f"`java` must be version 17 or 21, got {java_versions_seen(outer) or 'none'}; {INSTALL_JAVA}"
        )
    full = told | outer
    # spark-submit and airflow must be this environment's, whatever else the machine has
    full["PATH"] = os.pathsep.join([str(programs), outer.get("PATH", "")])
    full["JAVA_HOME"] = str(java)
    return full


def prepare(env: Mapping[str, str]) -> bool:
    """Create the database and the `spark_default` connection once; return True if that was done now.

    The connection lives in the database, not in the environment, so that the UI can change it: another
    master there moves every DAG to another cluster.
    """
    home = Path(env["AIRFLOW_HOME"])
    done = home / ".prepared"
    if done.exists():
        return False
    home.mkdir(parents=True, exist_ok=True)
    _airflow(env, "db", "migrate")
    if "AIRFLOW_CONN_SPARK_DEFAULT" not in env:
        _airflow(
            env,
            "connections",
            "add",
            "spark_default",
            "--conn-json",
            json.dumps(LOCAL_SPARK),
            unless="already exist",
        )
    done.touch()
    return True


def _airflow(env: Mapping[str, str], *arguments: str, unless: str | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "airflow", *arguments],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode and not (unless and unless in done.stdout + done.stderr):
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise SpillwayError(
            f"`airflow {' '.join(arguments[:2])}` must succeed, got exit code {done.returncode}; "
            f"remove {env['AIRFLOW_HOME']} and try again\n{tail}"
        )
