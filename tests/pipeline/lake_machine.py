"""A Hypothesis state machine over the store and the pipeline in this process. Not a test.

Rules deliver files, run the pipeline, kill it before a commit, run it again, compact, replay and migrate. The model
is a dict: file name -> the kind and the row of each line. After each rule no table refers to an absent file, and raw
has no row twice. If no work is left, each delivered line is in exactly one place, and the ledger balances. After a
validation each recovered value is within its bound of the delivered value.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.clock import START
from tests.pipeline.interleaved import Lake, Stepped
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.batch import DONE, DUPLICATE, FILE_INGESTED, REPLAYED
from spillway.intake.dedupe import DELIVERED_BEFORE
from spillway.intake.replay import Selection, replay
from spillway.ledger import TOTAL, total_imbalance
from spillway.store import blobs
from spillway.store.tables import Table, Tables
from spillway.streams import migrate as migration
from spillway.streams.retention import maintain_lake

STREAM = "sites"
NEW, REPEAT, NO_TEMP, NONSENSE = "new", "repeat", "no temp", "nonsense"
KINDS = st.sampled_from([NEW, NEW, NEW, NEW, REPEAT, REPEAT, NO_TEMP, NONSENSE])
BOUNDS = {"temp": 2.0, "level": 2.0, "pulses": 5.0}
EXACT = ("site", "at", "sky")
TRAINING_ROWS = 60


def contract(levers: Sequence[Mapping[str, Any]], temp_may_be_null: bool) -> dict[str, Any]:
    """Return the contract; the first version of it rejects rows without `temp`."""
    attributes = [
        {**one, "nullable": temp_may_be_null} if one["name"] == "temp" else one for one in SITES["attributes"]
    ]
    return {
        **SITES,
        "attributes": attributes,
        "frame": {"tuples": 20},
        "levers": list(levers),
        "duplicates": {"rows": "exact", "on": ["site", "at"]},
        "bad_records": {"max_share_pct": 60.0},
    }


LEVERS: dict[str, list[dict[str, Any]]] = {
    "none": [],
    "attributes": [
        {"lever": "attributes", "training": {"tuples": TRAINING_ROWS}, "treatments": ["keep", "shed"]}
    ],
}

Line = tuple[str, dict[str, Any]]
"""The kind of a delivered line, and its row; a line without a row has an empty one."""


def row_of(number: int) -> dict[str, Any]:
    """Return a row that the contract accepts; its key and time are its own."""
    (row,) = sites(number, 1)
    return row if row["temp"] is not None else {**row, "temp": 50.0, "level": 122.0}


def content_of(lines: Sequence[Line]) -> bytes:
    return b"".join(json_lines([row]) if row else b"nonsense\n" for _, row in lines)


def key_of(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return site and time of a row, both of a delivered and of a stored one."""
    at = row["at"]
    return row["site"], at.removesuffix("Z") if isinstance(at, str) else at.replace(tzinfo=None).isoformat()


class Killed(BaseException):
    """What a process does that is killed: no handler for errors sees it."""


class KilledBefore:
    """Kill a run before its commit of this number; between two commits it changes nothing that others see."""

    def __init__(self, number: int) -> None:
        self._left, self._turn = number, threading.Lock()

    def step(self, what: str) -> None:
        """Called before each step, in whichever thread of the run; no thread of it lives longer than another."""
        with self._turn:
            commits = what.startswith("commit")
            if self._left <= 0 and (commits or self._left < 0):
                self._left = -1
                raise Killed(what)
            self._left -= commits


def begin_lakes(folder: Path) -> dict[str, Lake]:
    """Return a lake for each choice of levers, in which one batch was shed, with its landing zone saved."""
    found = {}
    for name, levers in LEVERS.items():
        world = Lake.begin(folder / name, contract(levers, temp_may_be_null=False))
        world.deliver("sites/2020-01-01/0.json", content_of(first_lines()))
        world.shed()
        if levers:
            world.train(STREAM)
            world.shed()
        world.validate()
        shutil.copytree(world.settings.landing, folder / name / "landing at first")
        found[name] = Lake(world)
    return found


def first_lines() -> list[Line]:
    return [(NEW, row_of(number)) for number in range(80)]


class LakeMachine(RuleBasedStateMachine):
    """Deliveries, runs, kills, compactions, replays and migrations of one stream, against a dict of its rows."""

    lakes: ClassVar[dict[str, Lake]]

    @initialize(levers=st.sampled_from(sorted(LEVERS)))
    def begin(self, levers: str) -> None:
        self.levers = LEVERS[levers]
        lake = self.lakes[levers]
        self.world: World = lake.world
        lake.put_back()
        landing = Path(self.world.settings.landing)
        shutil.rmtree(landing)
        shutil.copytree(self.world.folder / "landing at first", landing)
        self.world.contract_becomes(contract(self.levers, temp_may_be_null=False))
        self.delivered: dict[str, list[Line]] = {"sites/2020-01-01/0.json": first_lines()}
        self.rows = len(first_lines())
        self.corrected = False
        self.quiet, self.validated = True, True

    # rules

    @rule(kinds=st.lists(KINDS, min_size=1, max_size=12), day=st.integers(1, 3), data=st.data())
    def land(self, kinds: list[str], day: int, data: st.DataObject) -> None:
        before = [line for lines in self.delivered.values() for line in lines if line[1]]
        lines: list[Line] = []
        for kind in kinds:
            if kind == REPEAT:
                lines.append(data.draw(st.sampled_from([*before[-30:], *(one for one in lines if one[1])])))
            elif kind == NONSENSE:
                lines.append((kind, {}))
            else:
                row = row_of(self.rows)
                self.rows += 1
                lines.append((kind, row if kind == NEW else {**row, "temp": None}))
        self._deliver(day, lines)

    @rule(day=st.integers(1, 3), data=st.data())
    def land_the_same_file_again(self, day: int, data: st.DataObject) -> None:
        self._deliver(day, self.delivered[data.draw(st.sampled_from(sorted(self.delivered)))])

    def _deliver(self, day: int, lines: list[Line]) -> None:
        name = f"sites/2020-01-0{day}/{len(self.delivered)}.json"
        self.world.deliver(name, content_of(lines))
        self.delivered[name] = lines
        self.quiet = False

    @rule()
    def run(self) -> None:
        self.world.shed()
        assert {batch.status for batch in self.world.batches(STREAM)} == {DONE}
        self.quiet, self.validated = True, False
        self.each_line_is_in_one_place()

    @rule()
    def validate(self) -> None:
        self.world.validate()
        if self.quiet and {batch.status for batch in self.world.batches(STREAM)} == {DONE}:
            self.validated = True
            self.recovered_rows_are_those_delivered()

    @precondition(lambda self: self.quiet and self.validated)
    @rule()
    def run_again_and_change_nothing(self) -> None:
        before = self._stored()
        versions = {table.path: table.version for table in self._tables()}
        self.world.shed()
        self.world.validate()
        assert self._stored() == before
        assert {table.path: table.version for table in self._tables()} == versions

    @rule(commit=st.integers(0, 15))
    def kill_run(self, commit: int) -> None:
        self._kill(commit, self.world.shed)

    @rule(commit=st.integers(0, 6))
    def kill_validation(self, commit: int) -> None:
        self._kill(commit, self.world.validate)

    @rule(commit=st.integers(0, 8))
    def kill_replay(self, commit: int) -> None:
        self._kill(commit, self._replay)

    @rule(days=st.sampled_from([0, 101]))
    def keep(self, days: int) -> None:
        before = self._stored()
        self._keep(days)
        assert self._stored() == before

    @rule(commit=st.integers(0, 8))
    def kill_keep(self, commit: int) -> None:
        before = self._stored()
        self._kill(commit, partial(self._keep, 0), leaves_work=False)
        assert self._stored() == before

    @rule()
    def replay(self) -> None:
        self._replay()
        self.validated = False
        if self.quiet:
            self.each_line_is_in_one_place()
            waiting = Counter(self._kind(*place) for place in self._rejected_lines() if place[1])
            assert set(waiting) <= {NONSENSE}, "the corrected contract accepts all other lines"

    @precondition(lambda self: self.quiet)
    @rule(commit=st.integers(0, 4))
    def migrate(self, commit: int) -> None:
        """Make the lake one of an earlier version; kill its migration, and migrate it to the end."""
        before = self._stored()
        for table in self._tables():
            if table.contract.version > 1:
                table._log.set_format(table.contract.version - 1)
        rejected = self.world.at("rejected")
        rows = rejected.rows(stream=STREAM).to_pylist()
        if rows:
            rejected.replace([{**row, "replayed_by": None} for row in rows], stream=STREAM)
        killer = KilledBefore(commit)
        with patch.object(migration, "Tables", lambda settings: Stepped(settings, killer)), suppress(Killed):
            migration.migrate(self.world.settings)
        migration.migrate(self.world.settings)
        assert migration.migrate(self.world.settings) == []
        assert self._stored() == before

    def _kill(self, commit: int, work: Callable[[], object], leaves_work: bool = True) -> None:
        tables = self.world.tables
        self.world.tables = Stepped(self.world.settings, KilledBefore(commit))
        try:
            work()
        except Killed as at:
            event(f"killed before: {at}")
        finally:
            self.world.tables = tables
        if leaves_work:
            self.quiet, self.validated = False, False

    def _replay(self) -> None:
        """Correct the contract, and replay what it rejected before."""
        world = self.world
        world.contract_becomes(contract(self.levers, temp_may_be_null=True))
        self.corrected = True
        replay(world.tables, world.engine, world.contracts.streams[STREAM], Selection(), "replay")

    def _keep(self, days: int) -> None:
        world = self.world
        now = START + timedelta(days=days)
        found = maintain_lake(world.tables, world.contracts, world.said.append, now=now)
        assert (found.conflicts, found.failed) == ([], [])
        assert set(found.rows_removed) <= {"validations"}

    # what is compared

    def _tables(self) -> Iterator[Table]:
        tables = Tables(self.world.settings)
        for name, one in tables.contracts.items():
            table = tables.at(name, STREAM if one.scope == "stream" else None)
            if table.exists:
                yield table

    def _stored(self) -> dict[str, list[dict[str, Any]]]:
        return self.world.everything(STREAM)

    def _kind(self, name: str, line: int) -> str:
        return self.delivered[name][line - 1][0]

    def _raw_lines(self) -> dict[tuple[str, int], dict[str, Any]]:
        """Return the raw rows by file and line; a row that no file of a batch explains is an error."""
        places = {
            file.base_seq + line: (file.name, line)
            for batch in self.world.batches(STREAM)
            for file in batch.files
            if file.status in (FILE_INGESTED, REPLAYED)
            for line in range(1, 1 + len(self.delivered[file.name]))
        }
        rows = self.world.at("raw", STREAM).rows().to_pylist()
        found = {places[row["seq"]]: row for row in rows}
        assert len(found) == len(rows), "a raw row is there twice"
        return found

    def _rejected_lines(self) -> Counter[tuple[str, int]]:
        """Return file and line of the rejected rows that wait for a replay; line 0 is the whole file."""
        rows = self.world.at("rejected").rows(stream=STREAM, replayed_by=None).to_pylist()
        return Counter((row["file"], row["line"]) for row in rows if row["reason"] != DELIVERED_BEFORE)

    def _deduplicated_lines(self) -> Counter[tuple[str, int]]:
        rows = self.world.at("rejected").rows(stream=STREAM, replayed_by=None).to_pylist()
        return Counter((row["file"], row["line"]) for row in rows if row["reason"] == DELIVERED_BEFORE)

    @invariant()
    def no_table_refers_to_an_absent_file(self) -> None:
        for table in self._tables():
            there = {one.path for one in blobs.list_files(table.path)}
            assert {file.path for file in table.files()} <= there, table.path

    @invariant()
    def raw_rows_are_delivered_rows(self) -> None:
        seqs = self.world.at("raw", STREAM).rows(["seq"])["seq"].to_pylist()
        assert len(set(seqs)) == len(seqs)

    def each_line_is_in_one_place(self) -> None:
        """Assert that raw, rejected and deduplicated rows are the delivered lines, each once."""
        raw, rejected, repeated = self._raw_lines(), self._rejected_lines(), self._deduplicated_lines()
        batches = self.world.batches(STREAM)
        skipped = Counter(file.name for batch in batches for file in batch.files if file.status == DUPLICATE)
        stayed: Counter[tuple[str, str]] = Counter()
        gone: set[tuple[str, str]] = set()
        for name, lines in self.delivered.items():
            for number, (kind, row) in enumerate(lines, 1):
                place = (name, number)
                counts = (
                    int(place in raw),
                    rejected[place],
                    rejected[name, 0],
                    repeated[place],
                    skipped[name],
                )
                assert sum(counts) == 1, (place, kind, counts)
                if place in raw:
                    assert kind != NONSENSE
                    assert self.corrected or kind == NEW, (place, kind)
                    self._is_as_delivered(raw[place], row)
                    stayed[key_of(row)] += 1
                elif repeated[place]:
                    gone.add(key_of(row))
                elif rejected[place]:
                    assert kind != NEW, (place, "an acceptable row was rejected")
        assert max(stayed.values()) == 1, "a key is there twice"
        assert gone <= set(stayed), "a repeated row has left, and none stayed"
        ledger = self.world.rows("ledger")
        assert total_imbalance(ledger) == 0
        ingested = {
            row["batch"]: row
            for row in ledger
            if (row["stage"], row["unit"], row["dimension_kind"]) == ("intake", "rows", TOTAL)
        }
        held = Counter(row["batch"] for row in raw.values())
        for batch in batches:
            if batch.rows is not None:
                line = ingested[batch.batch]
                assert batch.rows == held[batch.batch] == line["kept"]
                assert (batch.rejected, batch.deduplicated) == (line["rejected"], line["deduplicated"])

    def recovered_rows_are_those_delivered(self) -> None:
        """Assert that every raw row is transmitted and recovered once, within the bounds of its contract."""
        raw = self._raw_lines()
        wanted = {row["seq"]: self.delivered[name][line - 1][1] for (name, line), row in raw.items()}
        sent = self.world.at("transmitted", STREAM).rows(["seq"])["seq"].to_pylist()
        assert sorted(sent) == sorted(wanted)
        recovered = self.world.at("recovered", STREAM).rows().to_pylist()
        assert sorted(row["seq"] for row in recovered) == sorted(wanted)
        for row in recovered:
            self._is_as_delivered(row, wanted[row["seq"]], BOUNDS)
        certificates = self.world.rows("certificates")
        assert {row["batch"] for row in certificates} <= {one.batch for one in self.world.batches(STREAM)}
        assert all(row["violations"] == 0 for row in certificates)
        event(f"shed: {sum(row['shed_values'] for row in certificates) > 0}")

    @staticmethod
    def _is_as_delivered(
        row: Mapping[str, Any], delivered: Mapping[str, Any], bounds: Mapping[str, float] | None = None
    ) -> None:
        assert key_of(row) == key_of(delivered)
        assert row["sky"] == delivered["sky"]
        for name, bound in BOUNDS.items():
            got, wanted = row[name], delivered[name]
            if wanted is None or bounds is None:
                assert got == wanted, (name, row, delivered)
            else:
                assert got is not None, (name, row)
                assert abs(got - wanted) <= bound / 100 * abs(wanted) + 1e-9, (name, row, delivered)

    def teardown(self) -> None:
        """Run to the end, and check everything once more."""
        if hasattr(self, "world"):
            self.run()
            self.validate()
            self.run_again_and_change_nothing()
