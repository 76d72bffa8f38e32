"""The Spark engine and its session: a classic session, or one of Spark Connect (`SPILLWAY_MASTER=sc://host:port`).

A task processes one slice of the items, and the driver collects the results (`engine.frames`). Items travel in the plan
if they are small. Larger ones are written to a folder of the lake, which all workers can read, one file per slice: a
plan goes to every task, and Spark Connect limits its size. spark-submit, plain Python and the tests create the session
in the same way.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs

from spillway.engine.frames import cores_of, labelled, made_in_tasks, slices_of
from spillway.engine.spark_conf import has_delta, jars_folder, spark_conf, without_delta
from spillway.engine.statements import SqlView, Steps, columns_by_spark, query_spark
from spillway.engine.task_errors import Item, JobFailed, Result, Thrown, caught, cause_of, raised
from spillway.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_IN_PLAN = 1 << 20
"""Bytes of a function and its items that travel in the plan; more of them are written to files."""
RESULT_BYTES = 4 << 20
"""Bytes of one row of results. A larger result has several rows: a message of Spark Connect has a limit."""
RESULTS = "item bigint, part int, made binary"
_RESULTS = pa.schema([("item", pa.int64()), ("part", pa.int32()), ("made", pa.binary())])


@dataclass(frozen=True)
class _Slices:
    """The pickled function and the pickled items of each slice, or the paths of files that hold them."""

    function: bytes | str
    items: tuple[bytes | str, ...]

    def __call__(self, slice_number: int) -> Iterator[pa.RecordBatch]:
        """Yield the results of a slice."""
        function = pickle.loads(_content(self.function))
        waiting: list[tuple[int, int, bytes]] = []
        size = 0
        for item, argument in pickle.loads(_content(self.items[slice_number])):
            made = pickle.dumps(caught(function, argument, Thrown), protocol=pickle.HIGHEST_PROTOCOL)
            for part, start in enumerate(range(0, len(made), RESULT_BYTES)):
                piece = made[start : start + RESULT_BYTES]
                if size + len(piece) > RESULT_BYTES:
                    yield _result_rows(waiting)
                    waiting, size = [], 0
                waiting.append((item, part, piece))
                size += len(piece)
        yield _result_rows(waiting)


def _result_rows(rows: Sequence[tuple[int, int, bytes]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(one, field.type) for one, field in zip(columns, _RESULTS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_RESULTS)


def _content(pickled: bytes | str) -> bytes:
    if isinstance(pickled, bytes):
        return pickled
    filesystem, inside = _filesystem(pickled)
    with filesystem.open_input_stream(inside, compression=None) as source:
        content: bytes = source.read()
    return content


def _filesystem(path: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in path:
        return pafs.LocalFileSystem(), path
    found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path.replace("s3a://", "s3://", 1))
    return found


@contextmanager
def _shipped(
    function: Callable[[Item], Result], items: Sequence[Item], slices: int, folder: str | None
) -> Iterator[_Slices]:
    """Yield the work of the slices; each has consecutive items. Files that it needs are removed at the end."""
    from pyspark import cloudpickle

    edges = [len(items) * place // slices for place in range(slices + 1)]
    numbered = list(enumerate(items))
    pickled = [cloudpickle.dumps(numbered[low:high]) for low, high in pairwise(edges)]
    called = cloudpickle.dumps(function)
    if folder is None or len(called) + sum(map(len, pickled)) <= MOST_IN_PLAN:
        yield _Slices(called, tuple(pickled))
        return
    root = f"{folder}/{uuid4()}"
    filesystem, inside = _filesystem(root)
    filesystem.create_dir(inside, recursive=True)
    try:
        for name, content in [
            ("function", called),
            *((str(place), one) for place, one in enumerate(pickled)),
        ]:
            with filesystem.open_output_stream(f"{inside}/{name}", compression=None) as sink:
                sink.write(content)
        yield _Slices(f"{root}/function", tuple(f"{root}/{place}" for place in range(slices)))
    finally:
        with suppress(OSError):
            filesystem.delete_dir(inside)


class SparkEngine:
    """Runs slices in Spark tasks.

    The session is created at its first use, because most runs find nothing to do. `name` begins the labels of the jobs
    in Spark's UI. `folder`: where items that are too large for a plan are written.
    """

    def __init__(
        self, session: Callable[[], SparkSession], name: str = "", folder: str | None = None
    ) -> None:
        self._make, self._name, self._folder = session, name, folder
        self._spark: SparkSession | None = None
        self._one_at_a_time = threading.Lock()

    @property
    def started(self) -> bool:
        """Whether the session was created, that is, whether there was work."""
        return self._spark is not None

    @property
    def spark(self) -> SparkSession:
        """The session; it is created at the first access."""
        with self._one_at_a_time:
            if self._spark is None:
                self._spark = self._make()
            return self._spark

    @property
    def cores(self) -> int:
        return cores_of(self.spark)

    def load(self) -> None:
        import_module("pyspark.sql")

    def map(self, function: Callable[[Item], Result], items: Sequence[Item], label: str = "") -> list[Result]:
        if not items:
            return []
        slices = slices_of(self.spark, len(items))
        with _shipped(function, items, slices, self._folder) as work, self._job(label):
            rows = made_in_tasks(self.spark, slices, work, RESULTS).toArrow().sort_by(
                [("item", "ascending"), ("part", "ascending")]
            )  # fmt: skip
        parts: list[list[bytes]] = [[] for _ in items]
        for item, part in zip(rows["item"].to_pylist(), rows["made"].to_pylist(), strict=True):
            parts[item].append(part)
        results: list[Result] = []
        for made in parts:
            one = pickle.loads(b"".join(made))
            if isinstance(one, Thrown):
                raise raised(one)
            results.append(one)
        return results

    def _full_label(self, label: str) -> str:
        """Return the label with the engine's name before it, unless it begins with that name."""
        return label if label.startswith(self._name) else f"{self._name}: {label}".removesuffix(": ")

    @contextmanager
    def _job(self, label: str) -> Iterator[None]:
        """Label the jobs of the block; if Spark fails, raise `JobFailed` with its cause."""
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        with labelled(self.spark, self._full_label(label)):
            try:
                yield
            except (PySparkException, Py4JError) as problem:
                raise JobFailed(cause_of(problem)) from problem

    def ask(
        self,
        views: Mapping[str, SqlView],
        steps: Steps,
        most_rows: int,
        most_seconds: float | None = None,
        label: str = "",
    ) -> pa.Table:
        with labelled(self.spark, self._full_label(label)):
            return query_spark(self.spark, views, steps, most_rows, most_seconds)

    def columns(self, views: Mapping[str, SqlView], steps: Steps) -> pa.Schema:
        return columns_by_spark(self.spark, views, steps)

    def stop(self) -> None:
        """Stop the session if it was created."""
        if self._spark is not None:
            self._spark.stop()


def spark_session(name: str, master: str | None = None, **conf: str) -> SparkSession:
    """Create the session with the application name `name`; `conf` overrides single settings (the tests use this).

    Under spark-submit, the master and the jars come from spark-submit. Under plain Python, the jars come from
    `spark_conf`, and the master from `master`, `SPILLWAY_MASTER` or the default `local[*]`. If a job is submitted
    without the Delta jars (a bare `spark-submit jobs/x.py`), the session has no Delta support. The jobs do not need it.

    A master `sc://host:port` is a server of Spark Connect. Its own settings hold there, but for the time zone.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    _forget_dead_jvm()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    master = master or os.environ.get("SPILLWAY_MASTER", "local[*]")
    if master.startswith("sc://") and not submitted:
        remote = SparkSession.builder.remote(master)
        for key, value in {"spark.sql.session.timeZone": "UTC", **conf}.items():
            remote = remote.config(key, value)
        return remote.create()
    builder = SparkSession.builder.appName(name)
    if not submitted:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master)
    own = spark_conf(jars_folder())
    if submitted:
        told = _submitted_with()
        if told.get("spark.master", "").startswith("local"):
            # set here and not in SPARK_LOCAL_IP, so that the executors of a cluster still find the driver
            own |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if not has_delta(told.get("spark.jars", "")):
            own = without_delta(own)
    for key, value in {**own, **conf}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _forget_dead_jvm() -> None:
    """Let PySpark start a new JVM if the one of an earlier session of this process has died."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and getattr(gateway, "proc", None) is not None and gateway.proc.poll() is not None:
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def _submitted_with() -> dict[str, str]:
    """Return the settings of spark-submit, from its command line and its defaults file."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


@contextmanager
def spark_engine(name: str) -> Iterator[SparkEngine]:
    """Yield the Spark engine of one job. Spark starts when there is work, and stops at the end of the block."""
    folder = Settings.from_environment().tasks_folder
    engine = SparkEngine(lambda: spark_session(name), name.removeprefix("spillway").strip(), folder)
    try:
        yield engine
    finally:
        engine.stop()
