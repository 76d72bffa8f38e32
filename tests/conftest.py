"""One Spark session for the whole suite, and a lake of its own for every test that asks for one.

`make test` gives the suite to two processes (pytest-xdist), a file to one of them, all files that ask for Spark to the
same one, and so the files of a folder that share what its conftest.py makes. What takes longest comes first, or one
process would wait for the other in the end.
"""

from __future__ import annotations

import ast
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from tests.clock import now

from spillway.clock import use_clock
from spillway.settings import Settings

ROOT = Path(__file__).resolve().parents[1]

# on a busy machine an example may take longer than Hypothesis's 200 ms: no test asserts a time
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

os.environ["COLUMNS"] = "100"  # screens are as wide as the terminal, if there is one

ON_SPARK = "on Spark"
LONGEST = ("tests/dags", ON_SPARK, "tests/pipeline")
"""Much of the first is waiting for Airflow, so it goes on beside the others."""


@cache
def asks_for_spark(file: Path) -> bool:
    """Whether some test or fixture of the file does."""
    functions = [one for one in ast.walk(ast.parse(file.read_bytes())) if isinstance(one, ast.FunctionDef)]
    asking = [one for one in functions if one.name.startswith("test_") or one.decorator_list]
    return any(argument.arg in ("spark", "engine") for one in asking for argument in one.args.args)


@cache
def shared_with(name: str) -> str:
    """What a file's tests share, and with it a process."""
    file = ROOT / name
    if name.startswith("tests/") and asks_for_spark(file):
        return ON_SPARK
    folder = next(one for one in file.parents if one == ROOT or (one / "conftest.py").is_file())
    return name if folder in (ROOT, ROOT / "tests") else str(folder.relative_to(ROOT))


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


STARTS_SPARK = ("tests/jobs/test_on_spark.py",)
STARTS_AIRFLOW = ("tests/dags/",)
MAKES_LAKES = (
    "tests/pipeline/",
    "tests/jobs/",
    "tests/demo/",
    "tests/evidence/",
    "tests/frozen/",
    "tests/report/",
    "tests/test_any_hour.py",
    "tests/test_cli.py",
    "tests/test_cli_examples.py",
    "tests/test_frozen_lake.py",
    "tests/test_running.py",
)
"""Files and folders whose tests bring streams from end to end."""
LAKES = (
    "tests.pipeline",
    "tests.levers.joins.lake",
    "tests.levers.quality.worlds",
    "evidence.attributes.lake",
)
"""Modules that make lakes: a test file that imports one of them brings streams from end to end."""
OVER_A_SECOND = (
    "tests/contracts/test_method.py::test_paper_takes_its_fraction_from_what_could_be_fetched",
    "tests/levers/attributes/training/test_cascade.py::test_no_model_weighs_more_than_last_value_or_breaks_its_bound",
    "tests/records/test_any_size.py::test_csv_is_the_same_in_blocks_in_pieces_and_record_by_record",
    "tests/records/test_equivalence.py::test_json_lines_are_judged_one_by_one",
    "tests/records/test_line_parity.py::test_any_lines_come_back_from_any_single_flip_in_them",
    "tests/records/test_line_parity.py::test_no_flipped_bit_of_a_delivered_file_is_accepted_wrong",
    "tests/test_docs.py",
    "tests/test_installed.py",
    "tests/test_kernel_cache.py",
    "tests/test_make.py",
    "tests/test_readme.py",
)
"""Other tests, and files of tests, that take longer than about a second or start processes."""


@cache
def makes_lakes(file: Path) -> bool:
    """Return whether a test file imports a module that makes lakes."""
    names = {
        one.module or "" for one in ast.walk(ast.parse(file.read_bytes())) if isinstance(one, ast.ImportFrom)
    }
    return any(f"{name}.".startswith(f"{lake}.") for name in names for lake in LAKES)


def kind_of(item: pytest.Item) -> str:
    """Return the marker of a test: what it needs, by its fixtures, its file and its duration."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if fixtures & {"prepare", "dags"} or item.nodeid.startswith(STARTS_AIRFLOW):
        return "airflow"
    if "spark" in fixtures or item.nodeid.startswith(STARTS_SPARK):
        return "spark"
    long = item.get_closest_marker("long") is not None
    if long or item.nodeid.startswith((*MAKES_LAKES, *OVER_A_SECOND)):
        return "pipeline"
    return "pipeline" if item.nodeid.startswith("tests/") and makes_lakes(item.path) else "unit"


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test by kind. In the processes of `make test` what takes longest comes first."""
    for item in items:
        item.add_marker(kind_of(item))
    if hasattr(config, "workerinput"):
        places = {shared: place for place, shared in enumerate(LONGEST)}
        items.sort(key=lambda item: places.get(shared_with(file_of(item.nodeid)), len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files that share go to one process; xdist's own groups do not: they rename tests, which pytest 9.2 ignores."""
    from xdist.scheduler import LoadScopeScheduling

    class ByWhatIsShared(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return shared_with(file_of(nodeid))

    config.option.loadscopereorder = False  # the order is ours
    return ByWhatIsShared(config, log)


ON_THE_WALL_CLOCK = ("tests/dags", "tests/jobs", "tests/demo", "tests/evidence")
"""Folders whose tests start processes, which know only the wall clock."""


@pytest.fixture(autouse=True, scope="module")
def clock(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the test clock, but for tests that start processes and for those on Spark."""
    if request.path.relative_to(ROOT).as_posix().startswith(ON_THE_WALL_CLOCK) or asks_for_spark(
        request.path
    ):
        yield
    else:
        with use_clock(now):
            yield


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The shared session: two cores, small everything."""
    from spillway.engine.spark import spark_session
    from spillway.engine.spark_conf import SHORT_LIVED_JVM

    os.environ.setdefault("SPILLWAY_JAVA_OPTIONS", SHORT_LIVED_JVM)
    interrupt = signal.getsignal(signal.SIGINT)
    session = spark_session("tests", "local[2]")
    # PySpark answers SIGINT by cancelling the jobs of its session: that would interrupt tests that have none
    signal.signal(signal.SIGINT, interrupt)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def engine(spark: Any) -> Any:
    """Spark as an engine; most tests run in this process and need none."""
    from spillway.engine.spark import SparkEngine

    return SparkEngine(lambda: spark)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Roots in a folder of this test's own; the repository's schemas."""
    return Settings.from_environment(
        {
            "SPILLWAY_HOME": str(ROOT),
            "SPILLWAY_LAKE": str(tmp_path / "lake"),
            "SPILLWAY_LANDING": str(tmp_path / "landing"),
            "SPILLWAY_BUILD": str(tmp_path / "build"),
        }
    )
