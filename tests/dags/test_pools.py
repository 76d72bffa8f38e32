"""A run's pools: made when it begins, also where two begin at one moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.dags.conftest import clean_environment

TWO_RUNS_AT_ONCE = """
from airflow.models.pool import Pool
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from spillway.airflow.pools import make_pools

engine = create_engine("sqlite://")
tables = [one for one in Pool.metadata.sorted_tables if one.name in ("team", "slot_pool")]
Pool.metadata.create_all(engine, tables=tables)
with Session(engine, autoflush=False) as session:  # as Airflow's sessions are
    for _ in range(2):
        make_pools(session, ["spillway", "spillway_uplink", "spillway", "default_pool"])
    session.flush()
    print(sorted((one.pool, one.slots) for one in session.query(Pool)))
"""


def test_two_runs_that_begin_at_one_moment_make_each_pool_once(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", TWO_RUNS_AT_ONCE],
        env=clean_environment() | {"AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines()[-1:] == ["[('spillway', 1), ('spillway_uplink', 1)]"], ran.stderr[-2000:]
