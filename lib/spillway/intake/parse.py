"""Parsing: a task reads its files once; what is good goes into a file of `raw`, what is not into some of `rejected`.

A file of any size takes bounded memory: a large one is read in pieces, by several tasks, and what cannot be cut as a
stream. A file that turns out to be damaged is refused whole, also what other tasks have read of it. Whatever a file
holds, it stops no other: one that is gone or was changed since it was recorded is missed, one on which its parser fails
is refused, and its task goes on with the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spillway.batch import MISSED, REFUSED, Batch, LandingFile
from spillway.contracts import StreamContract
from spillway.engine.protocol import Engine
from spillway.errors import Problem, SpillwayError, safely
from spillway.intake.fates import Dropped, Fate, by_file
from spillway.intake.landing import landing_root
from spillway.intake.quarantine import judged
from spillway.intake.tasks import KeptRecords, TaskFiles, checked, in_tasks, recorded_file
from spillway.records import (
    Parsed,
    SeekableBytes,
    WholeFile,
    parse_parts,
    reason_of,
    refused_file,
)
from spillway.records.wrapper import plain_bytes
from spillway.store.blobs import refuse_store_fault
from spillway.store.drafts import discard
from spillway.store.landing_zone import GoneOrChanged
from spillway.store.tables import Table
from spillway.store.writing import Written, write_file

_REJECTED_BYTES = 32 << 20
_HEADER_BYTES = 1 << 20
_MOST_TOLD = 200

Drops = Mapping[int, Dropped]
"""By `base_seq`."""


@dataclass(frozen=True)
class Target:
    """Where a task writes."""

    folder: str
    schema: pa.Schema

    @staticmethod
    def of(table: Table) -> Target:
        return Target(table.path, table.contract.file_schema)


@dataclass(frozen=True)
class ParsedFiles:
    """What a task made of its files: what it wrote, what it counted, and of which files nothing may be taken."""

    batch: int
    raw: Written | None = None
    rejected: tuple[Written, ...] = ()
    fates: tuple[Fate, ...] = ()
    notes: Mapping[str, int] = field(default_factory=dict)
    nulls: Mapping[str, int] = field(default_factory=dict)
    dropped: Drops = field(default_factory=dict)
    problem: SpillwayError | None = None


def parse_all(
    engine: Engine,
    contract: StreamContract,
    landing: str,
    raw: Table,
    rejected: Table,
    batches: Sequence[Batch],
    kept: KeptRecords,
) -> tuple[list[ParsedFiles], dict[int, list[Fate]]]:
    """Parse all files of the batches, in order, and tell by batch what became of each; nothing is in a table yet."""
    work = in_tasks(engine, contract, landing, batches, kept)
    parse = partial(parse_files, contract, landing, Target.of(raw), Target.of(rejected))
    found = engine.map(partial(parse, {}), work)

    dropped: dict[int, Dropped] = {}
    refused: dict[int, Fate] = {}
    while True:
        dropped |= {place: why for one in found for place, why in one.dropped.items()}
        told: dict[int, list[Fate]] = defaultdict(list)
        for one in found:
            told[one.batch] += one.fates
        fates = {batch.batch: judged(contract, by_file(told[batch.batch])) for batch in batches}
        # whether a file is refused hangs on all of it, and on the others of its batch
        more = {
            one.file.base_seq: one
            for own in fates.values()
            for one in own
            if one.status == REFUSED and not one.whole and one.file.base_seq not in dropped
        }
        refused |= more
        dropped |= {place: Dropped(REFUSED, str(one.reason)) for place, one in more.items()}
        again = [
            i
            for i, (one, task) in enumerate(zip(found, work, strict=True))
            if task.places & (dropped.keys() - one.dropped.keys()) and not one.problem
        ]
        if not again:
            return found, {n: [refused.get(f.file.base_seq, f) for f in own] for n, own in fates.items()}
        # who has taken rows of such a file has to do without; what changes meanwhile is missed then
        drop_drafts(raw, rejected, [found[i] for i in again])
        made = engine.map(partial(parse, dropped), [work[i] for i in again])
        for i, one in zip(again, made, strict=True):
            found[i] = one


def drop_drafts(raw: Table, rejected: Table, parsed: Sequence[ParsedFiles]) -> None:
    """Take away what tasks have written, or every try of a batch would leave files behind."""
    discard(raw.path, [one.raw for one in parsed if one.raw])
    discard(rejected.path, [written for one in parsed for written in one.rejected])


def parse_files(
    contract: StreamContract,
    landing: str,
    raw: Target,
    rejected: Target,
    dropped: Drops,
    work: TaskFiles,
) -> ParsedFiles:
    """Read some files, once; write what is good and what is not, or say why neither was."""
    dropped = dict(dropped)
    while True:
        aside = _Aside(rejected, work)
        try:
            day = {"batch_date": str(work.batch.batch_date)}
            made = write_file(raw.folder, day, raw.schema, _good(contract, landing, dropped, work, aside))
            return aside.told(made, dropped)
        except _NothingOfIt as found:
            aside.drop()
            dropped[found.place] = found.why
        except SpillwayError as problem:
            aside.drop()
            return ParsedFiles(work.batch.batch, problem=problem)


class _NothingOfIt(Exception):
    """A file of which nothing may be taken was met half-way."""

    def __init__(self, place: int, why: Dropped) -> None:
        super().__init__(place)
        self.place, self.why = place, why


def _good(
    contract: StreamContract, landing: str, dropped: Drops, work: TaskFiles, aside: _Aside
) -> Iterator[pa.Table]:
    for part in work.files:
        file = part.file
        reader = work.kept[file.base_seq].contract if file.base_seq in work.kept else contract
        try:
            if file.base_seq in dropped:
                why = dropped[file.base_seq]
                if why.why is None:
                    aside.dropped(file, why)
                elif not part.piece.before:
                    with recorded_file(contract, landing, file, work.kept) as source:
                        aside.add(reader, refused_file(reader, file.name, WholeFile(*why.why), source), file)
                continue
            with recorded_file(contract, landing, file, work.kept) as source:
                for found in parse_parts(reader, file.name, *checked(part, source)):
                    aside.add(reader, found, file)
                    if found.table.num_rows:
                        yield _numbered(found.table, work.batch, file)
                if aside.wants_header(reader, file):
                    aside.headers[file.base_seq] = _header(source)
        except Exception as problem:  # whatever a file does to its parser, it must not stop the others
            refuse_store_fault(landing_root(contract, landing), problem)
            raise _NothingOfIt(file.base_seq, _why(file, problem)) from None


def _why(file: LandingFile, problem: Exception) -> Dropped:
    name = safely(file.name)
    if isinstance(problem, WholeFile):
        return Dropped(REFUSED, str(Problem(name, *problem.why)), problem.why)
    if isinstance(problem, GoneOrChanged | FileNotFoundError):
        return Dropped(MISSED, f"{name} is left for a later run: {problem}")
    kind = safely(f"{type(problem).__name__}: {problem}", _MOST_TOLD)
    return Dropped(REFUSED, str(Problem(name, "the file", "be one that can be read", kind, "mend the file")))


def _header(source: SeekableBytes) -> str | None:
    """The line that names a CSV file's columns: what its refused records are read by when they are replayed."""
    first = plain_bytes(source).read(_HEADER_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    try:
        return first.partition(b"\n")[0].decode("utf-8")
    except UnicodeDecodeError:
        return None


class _Aside:
    """What a task does not take: written as it gathers, so that a file of nothing else takes bounded memory."""

    def __init__(self, target: Target, work: TaskFiles) -> None:
        self._target, self._batch = target, work.batch
        self._held: list[pa.Table] = []
        self._written: list[Written] = []
        self._fates = {part.file.base_seq: Fate(part.file) for part in work.files}
        self._notes: dict[str, int] = {}
        self._nulls: dict[str, int] = {}
        self.headers: dict[int, str | None] = {}

    def add(self, contract: StreamContract, found: Parsed, file: LandingFile) -> None:
        for name in contract.names:
            self._nulls[name] = self._nulls.get(name, 0) + found.table.column(name).null_count
        for note, count in found.notes.items():
            self._notes[note] = self._notes.get(note, 0) + count
        self._count(contract, found, file)
        if not found.rejected.num_rows:
            return
        part = _numbered(found.rejected, self._batch, file)
        self._held.append(part.append_column("file", pa.array([file.name] * part.num_rows, pa.string())))
        if sum(table.nbytes for table in self._held) > _REJECTED_BYTES:
            self._write()

    def _count(self, contract: StreamContract, found: Parsed, file: LandingFile) -> None:
        told = found.rejected
        reasons: dict[str, int] = {}
        for broken, rule in zip(told["field"].to_pylist(), told["rule"].to_pylist(), strict=True):
            reason = reason_of(contract, broken, rule)
            reasons[reason] = reasons.get(reason, 0) + 1
        first = told["reason"][0].as_py() if told.num_rows else None
        whole = bool(told.num_rows) and told["line"][0].as_py() == 0
        more = Fate(file, good=found.table.num_rows, reasons=reasons, reason=first, whole=whole)
        self._fates[file.base_seq] = self._fates[file.base_seq].with_more(more)

    def dropped(self, file: LandingFile, why: Dropped) -> None:
        self._fates[file.base_seq] = Fate(file, why.status, reason=why.reason)

    def wants_header(self, contract: StreamContract, file: LandingFile) -> bool:
        """Whether records of a file were refused that only its header can read."""
        named = contract.source.format == "csv" and contract.source.options.header
        return named and bool(self._fates[file.base_seq].bad) and file.replays is None

    def _write(self) -> None:
        place = {"stream": self._batch.stream}
        made = write_file(self._target.folder, place, self._target.schema, iter(self._held))
        self._written += [made] if made else []
        self._held = []

    def told(self, raw: Written | None, dropped: Drops) -> ParsedFiles:
        self._write()
        fates = (
            one.with_more(Fate(one.file, header=self.headers.get(at))) for at, one in self._fates.items()
        )
        return ParsedFiles(
            self._batch.batch, raw, tuple(self._written), tuple(fates), self._notes, self._nulls, dropped
        )

    def drop(self) -> None:
        discard(self._target.folder, self._written)


def _numbered(part: pa.Table, batch: Batch, file: LandingFile) -> pa.Table:
    """Parsed records of a file with their numbers; line 0 is the whole file: no tuple, no number."""
    line = part["line"].cast(pa.int64())
    numbers = {
        "seq": pc.if_else(pc.equal(line, 0), None, pc.add(line, file.base_seq)),
        "batch": pa.array(np.full(part.num_rows, batch.batch)),
        "batch_date": pa.array([batch.batch_date] * part.num_rows, pa.date32()),
    }
    for name, column in numbers.items():
        part = part.append_column(name, column)
    return part
