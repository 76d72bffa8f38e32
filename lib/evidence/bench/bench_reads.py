"""Count what each step reads: files by table, footers apart from rows, questions to small tables, and modules entered.

Everything is counted at the store's own doors, so that a count does not depend on the machine or on its load:

- a Parquet file that is opened, by table; if only its footer is read, it counts as a footer;
- a question to a table (`Table.rows`, `newest`, `last`), by table;
- a log that is opened, and a file of a log that is compared with a filter;
- a fact of `models` that is decoded, and a contract that is parsed;
- a module of the package in which a function is called while one batch goes through a step.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

from evidence.bench.many_streams import DAYS, TEMPLATE, lay_streams
from spillway.contracts import load_contracts, loader, yaml
from spillway.engine import ProcessEngine
from spillway.intake.ingest import ingest
from spillway.levers.attributes import facts as attribute_facts
from spillway.pipeline.run import run_streams
from spillway.pipeline.validate import changed_batches, validate
from spillway.settings import Settings
from spillway.store import blobs, delta_log, files, filters, listing
from spillway.store.tables import Table, Tables
from spillway.streams.certify import recover_and_certify
from spillway.streams.shed import shed_channel

CHANNEL = "c00"


@dataclass
class Reads:
    """The counts of a step."""

    lake: str
    opened: Counter[str] = field(default_factory=Counter)
    """Parquet files whose rows are read, by table."""
    footers: Counter[str] = field(default_factory=Counter)
    """Parquet files whose footer alone is read, by table."""
    paths: Counter[str] = field(default_factory=Counter)
    """All of these, by path."""
    questions: Counter[str] = field(default_factory=Counter)
    """By table."""
    logs: Counter[str] = field(default_factory=Counter)
    """Logs of tables that are opened."""
    compared: int = 0
    """Files of a log that are compared with a filter."""
    decoded: int = 0
    """Versions of the facts of the lever `attributes` that are decoded."""
    parsed: int = 0
    """Contracts that are parsed."""
    modules: set[str] = field(default_factory=set)

    def table_of(self, path: str) -> str:
        return path.removeprefix(f"{self.lake}/").partition("/")[0]

    def flat(self, step: str) -> dict[str, float]:
        """Return the counts by their names in `build/bench.json`."""
        found: dict[str, float] = {
            f"reads.{step}.modules": len(self.modules),
            f"reads.{step}.files_opened": self.opened.total() + self.footers.total(),
            f"reads.{step}.footers": self.footers.total(),
            f"reads.{step}.questions": self.questions.total(),
            f"reads.{step}.logs_opened": self.logs.total(),
            f"reads.{step}.files_compared": self.compared,
            f"reads.{step}.facts_decoded": self.decoded,
            f"reads.{step}.contracts_parsed": self.parsed,
        }
        for table in ("raw", "transmitted", "recovered", "batches", "models"):
            found[f"reads.{step}.files_opened.{table}"] = self.opened[table] + self.footers[table]
        for table in ("raw", "transmitted"):
            found[f"reads.{step}.footers.{table}"] = self.footers[table]
        for table in ("batches", "models", "ledger"):
            found[f"reads.{step}.questions.{table}"] = self.questions[table]
        return found


class _CountedFile(pq.ParquetFile):
    """A Parquet file that notes whether any of its rows are read."""

    def __init__(self, source: Any, **options: Any) -> None:
        super().__init__(source, **options)
        self.rows_read = False

    def read(self, *given: Any, **options: Any) -> Any:
        self.rows_read = True
        return super().read(*given, **options)

    def read_row_group(self, *given: Any, **options: Any) -> Any:
        self.rows_read = True
        return super().read_row_group(*given, **options)

    def read_row_groups(self, *given: Any, **options: Any) -> Any:
        self.rows_read = True
        return super().read_row_groups(*given, **options)

    def iter_batches(self, *given: Any, **options: Any) -> Any:
        self.rows_read = True
        return super().iter_batches(*given, **options)


@contextmanager
def counted_reads(settings: Settings, modules: bool = False) -> Iterator[Reads]:
    """Count what is read in this block; `modules`: also note the modules that are entered."""
    found, kept = Reads(settings.lake), list[tuple[str, _CountedFile]]()
    here = threading.local()
    reading, open_delta, may_match = blobs.open_for_reading, delta_log.open_delta, filters.may_match
    from_facts, read_yaml = attribute_facts.TrainedFacts._from, yaml.read_yaml

    @contextmanager
    def counted_reading(path: str) -> Iterator[Any]:
        with reading(path) as source:
            here.path = path
            yield source

    def opened(source: Any, **options: Any) -> _CountedFile:
        one = _CountedFile(source, **options)
        kept.append((here.path, one))
        return one

    def counted_log(path: str) -> Any:
        found.logs[found.table_of(path)] += 1
        return open_delta(path)

    def counted_comparison(*given: Any) -> bool:
        found.compared += 1
        return may_match(*given)

    def counted_facts(*given: Any) -> Any:
        found.decoded += 1
        return from_facts(*given)

    def counted_yaml(*given: Any) -> Any:
        found.parsed += 1
        return read_yaml(*given)

    def asked(name: str) -> Callable[..., Any]:
        act = getattr(Table, name)

        def question(self: Table, *given: Any, **where: Any) -> Any:
            found.questions[self.contract.table] += 1
            return act(self, *given, **where)

        return question

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_globals.get("__name__", "")
            if name.startswith("spillway."):
                found.modules.add(name)

    with ExitStack() as stack:
        for owner, name, value in (
            (files, "open_for_reading", counted_reading),
            (files, "pq", SimpleNamespace(ParquetFile=opened, FileMetaData=pq.FileMetaData)),
            (delta_log, "open_delta", counted_log),
            (listing, "may_match", counted_comparison),
            (attribute_facts.TrainedFacts, "_from", staticmethod(counted_facts)),
            (loader, "read_yaml", counted_yaml),
            (Table, "rows", asked("rows")),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        if modules:
            stack.callback(sys.setprofile, sys.getprofile())
            stack.callback(threading.setprofile, None)
            threading.setprofile(entered)
            sys.setprofile(entered)
        yield found
    for path, one in kept:
        found.paths[path] += 1
        (found.opened if one.rows_read else found.footers)[found.table_of(path)] += 1


def reads_of_steps() -> dict[str, Reads]:
    """Return what each step reads while one batch of a trained stream goes through it."""
    counts: dict[str, Reads] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        settings = lay_streams(folder, 1, 1)
        first = Path(settings.landing, TEMPLATE, DAYS[-1], "p.jsonl")
        fresh = Path(settings.landing, TEMPLATE, "2026-01-03", "p.jsonl")
        fresh.parent.mkdir()
        fresh.write_text(first.read_text().replace(DAYS[-1], "2026-01-03"))
        contracts, engine = load_contracts(settings.schemas), ProcessEngine()
        contract = contracts.streams[TEMPLATE]

        def recover() -> None:
            now = Tables(settings)
            batches = changed_batches(now, TEMPLATE)
            recover_and_certify(now, engine, contract, batches, lambda _: None)

        steps: dict[str, Callable[[], object]] = {
            "intake": lambda: ingest(Tables(settings), engine, contract, "second"),
            "shed": lambda: shed_channel(Tables(settings), engine, contracts, CHANNEL),
            "recover": recover,
            "validate": lambda: validate(Tables(settings), engine, contracts, "second"),
            "idle": lambda: run_streams(Tables(settings), engine, contracts, [TEMPLATE], "third"),
        }
        for step, act in steps.items():
            with counted_reads(settings, modules=True) as counts[step]:
                act()
    return counts


def read_figures() -> dict[str, float]:
    """Return the counts of each step by their names in `build/bench.json`."""
    return {name: value for step, one in reads_of_steps().items() for name, value in one.flat(step).items()}


if __name__ == "__main__":
    for step, one in reads_of_steps().items():
        print(f"{step}: {len(one.modules)} modules, {one.questions.total()} questions, {one.decoded} decoded")
        print("  opened   ", dict(one.opened))
        print("  footers  ", dict(one.footers))
        print("  questions", dict(one.questions))
        print("  logs     ", dict(one.logs), "compared", one.compared)
        if "-v" in sys.argv:
            print("  modules  ", " ".join(sorted(name.removeprefix("spillway.") for name in one.modules)))
