"""Show the result of a run on one screen: the checks, the bytes sent next to gzip and xz, and the losses.

The first sentence says whether the data at the destination is correct. It claims nothing that was not checked.
Counts and bytes come from `batches`, `ledger` and `certificates`. The bytes of gzip and xz are measured on the
rows of `raw`, batch by batch.

`Progress` shows what a command does while it runs, with the elapsed seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from spillway.contracts import Contracts, StreamContract
from spillway.errors import format_count
from spillway.lossless import csv_bytes, gzip_bytes, xz_bytes
from spillway.report.overview import StreamOverview, WorkloadOverview, measured_loss, stream_overviews
from spillway.report.summary import expectation_figures, last_outcomes, last_stages
from spillway.report.text import (
    format_bytes,
    format_loss,
    format_pct,
    page_width,
    sentences,
    table_lines,
)
from spillway.store.tables import Tables

MOST_LINES = 14
"""The most lines of the screen. With the lines that `make run` prints after it, there are 25."""
MOST_NAMED = 3
"""The most streams whose losses one sentence names."""
GZIP, XZ = "gzip -9", "xz -9"
RIVALS: Mapping[str, Callable[[bytes], int]] = {GZIP: gzip_bytes, XZ: xz_bytes}


@dataclass(frozen=True)
class StreamResult:
    """One line of the screen: a stream, its link, and the bytes of the same rows by gzip and xz."""

    seen: StreamOverview
    link: str
    rivals: Mapping[str, int] | None = None
    """Bytes by rival; None: not measured, or `raw` no longer has all rows."""


@dataclass(frozen=True)
class RunResult:
    """The content of the screen."""

    streams: tuple[StreamResult, ...]
    expectations_failed: int = 0

    @property
    def seen(self) -> tuple[StreamOverview, ...]:
        return tuple(one.seen for one in self.streams)

    def rival_bytes(self, rival: str) -> int | None:
        """Return the bytes of all streams by a rival; None if it was not measured on every stream."""
        sizes = [one.rivals[rival] for one in self.streams if one.rivals is not None]
        return sum(sizes) if sizes and len(sizes) == len(self.streams) else None

    def flat(self) -> dict[str, float]:
        """Return the numbers of the result by their names in `build/run.json`."""
        found: dict[str, float] = {}
        for one in self.streams:
            name = one.seen.figures.stream
            found |= {f"sent_bytes.{name}": one.seen.sent_bytes, f"exact_bytes.{name}": one.seen.exact_bytes}
            for rival, size in (one.rivals or {}).items():
                found[f"{rival.split()[0]}_bytes.{name}"] = size
        return found


def run_result(
    tables: Tables,
    contracts: Contracts,
    streams: Iterable[str] | None = None,
    seen: Sequence[StreamOverview] | None = None,
    rivals: bool = False,
) -> RunResult:
    """Return the result of `streams` (default: all); `seen`: their overviews, if they are known.

    `rivals`: also compress the rows of `raw` with gzip and xz, which takes about two seconds per MB of CSV.
    """
    names = list(contracts.streams) if streams is None else list(streams)
    wanted = {name: contracts.streams[name] for name in names if name in contracts.streams}
    if seen is None:
        seen = stream_overviews(tables, wanted)
    found = []
    for one in seen:
        contract = wanted.get(one.figures.stream)
        if contract is None:
            continue
        channel = contracts.channels[contract.channel]
        measured = rival_bytes(tables, contract) if rivals else None
        found.append(StreamResult(one, f"{contract.channel}, {channel.capacity.stated}", measured))
    failed = int(expectation_figures(last_outcomes(tables))["expectations.failed"])
    return RunResult(tuple(found), failed)


def rival_bytes(tables: Tables, contract: StreamContract) -> dict[str, int] | None:
    """Return the bytes of each rival over the rows of all batches that were sent, a CSV file for each batch.

    None if `raw` does not have all of these rows.
    """
    from spillway.report.recent import read_recent

    recent = read_recent(tables, contract.stream)
    sent = last_stages(recent.ledger)
    totals = dict.fromkeys(RIVALS, 0)
    for batch in recent.batches:
        if batch.batch not in sent:
            continue
        rows = tables.at("raw", contract.stream).rows(
            ["seq", *contract.names], batch=batch.batch, batch_date=batch.batch_date
        )
        if rows.num_rows != (batch.rows or 0):
            return None
        text = csv_bytes(_in_order(rows))
        for rival, size in RIVALS.items():
            totals[rival] += size(text)
    return totals


def _in_order(rows: pa.Table) -> pa.Table:
    """Return the rows in the order of arrival, without `seq`."""
    return rows.take(pc.sort_indices(rows["seq"])).drop_columns(["seq"])


def result_lines(found: RunResult) -> list[str]:
    """Return the lines of the screen: the verdict, the summary, and as many streams as fit into `MOST_LINES`."""
    lines = sentences(verdict(found))
    if not found.streams:
        return lines
    lines += [*sentences(summary(found)), ""]
    table: list[str] = []
    for shown in range(min(len(found.streams), MOST_LINES), 0, -1):
        table = stream_table(found.streams[:shown])
        if left := len(found.streams) - shown:
            table.append(f"and {format_count(left, 'more stream')}: spillway status")
        if len(lines) + len(table) <= MOST_LINES:
            break
    return [*lines, *table]


def stream_table(streams: Sequence[StreamResult]) -> list[str]:
    """Return a table with a line for each stream: its link, the bytes of rivals, its own bytes, and its loss."""
    rivals = [name for name in RIVALS if any(one.rivals is not None for one in streams)]
    heads = ["~stream", "~link", "#rows", *(f"#{name}" for name in rivals), "#Parquet", "#sent", "~lost"]
    rows = [
        [
            one.seen.figures.stream,
            one.link,
            f"{one.seen.rows:,}",
            *("-" if one.rivals is None else format_bytes(one.rivals[name]) for name in rivals),
            format_bytes(one.seen.exact_bytes),
            format_bytes(one.seen.sent_bytes),
            format_stream_loss(one.seen),
        ]
        for one in streams
    ]
    return table_lines(heads, rows)


def verdict(found: RunResult) -> str:
    """Return the sentence that says whether the data at the destination is correct, as far as it was checked."""
    sent = sum(one.batches for one in found.seen)
    unchecked = sum(one.batches_unchecked for one in found.seen)
    checked = sum(one.values_checked for one in found.seen)
    wrong = [
        format_count(count, one, more)
        for count, one, more in (
            (_outside(found), "value is outside its bound", "values are outside their bound"),
            (sum(one.rows_missing for one in found.seen), "row is missing", "rows are missing"),
            (found.expectations_failed, "expectation failed", "expectations failed"),
        )
        if count
    ]
    if wrong:
        return f"WRONG: {', '.join(wrong)}. {format_count(checked, 'value')} checked; see spillway status."
    if not sent:
        return "Nothing was checked: no batch was sent yet."
    batches = format_count(sent, "batch", "batches")
    if unchecked == sent:
        return f"Nothing was checked: of {batches} sent, none is validated. Start the DAG spillway_validate."
    if checked:
        said = (
            f"{format_count(checked, 'rounded or recovered value')} checked against the source one by one, everything "
            f"else by checksum: none outside its bound, {_missing(found)}."
        )
    else:
        said = f"Everything that was sent was checked against the source by checksum: no difference, {_missing(found)}."
    return f"{said} Not validated yet: {unchecked:,} of {batches}." if unchecked else said


def _outside(found: RunResult) -> int:
    return sum(one.figures.violations for one in found.seen)


def _missing(found: RunResult) -> str:
    """Return the words "none missing", with the rows and values that were left out on purpose."""
    left_out = [
        format_count(count, *words)
        for count, *words in (
            (sum(one.figures.rows_lost for one in found.seen), "dropped row"),
            (
                sum(one.figures.source_values for one in found.seen),
                "value kept at the source",
                "values kept at the source",
            ),
        )
        if count
    ]
    return f"none missing except {' and '.join(left_out)}" if left_out else "none missing"


def summary(found: RunResult) -> str:
    """Return the sentences on the bytes that were sent, those of the same rows in files, the losses, and what waits."""
    sent = sum(one.sent_bytes for one in found.seen)
    exact = sum(one.exact_bytes for one in found.seen)
    sizes = [(name, found.rival_bytes(name)) for name in RIVALS]
    rivals = "".join(
        f", {format_bytes(size)} as CSV with {name.split()[0]}" for name, size in sizes if size is not None
    )
    lost = [
        f"{one.figures.stream} {said}"
        for one in found.seen
        if (said := format_stream_loss(one, brief=True)) != "nothing"
    ]
    if len(lost) > MOST_NAMED:
        lost[MOST_NAMED:] = [f"and {format_count(len(lost) - MOST_NAMED, 'more stream')}"]
    waiting = [
        f"{one.figures.stream} {format_count(one.rows_waiting, 'row')}"
        for one in found.seen
        if one.rows_waiting
    ]
    if len(waiting) > MOST_NAMED:
        waiting[MOST_NAMED:] = [f"and {format_count(len(waiting) - MOST_NAMED, 'more stream')}"]
    saved = f" and saved {format_pct(100.0 * (exact - sent) / exact)}" if sent < exact else ""
    said = (
        f"Sent {format_bytes(sent)}{saved}: all rows take {format_bytes(exact)} as Parquet{rivals}. "
        f"Lost: {'; '.join(lost) or 'nothing'}."
    )
    return f"{said} Not sent yet: {'; '.join(waiting)}." if waiting else said


def format_stream_loss(one: StreamOverview, brief: bool = False) -> str:
    """Return what the destination lacks of a stream, and its mean error; `brief` leaves out the share of queries."""
    f, parts = one.figures, []
    if f.rows_lost:
        said = format_count(f.rows_lost, "row")
        parts.append(f"{said}, {format_query_share(one)}" if one.rows_asked and not brief else said)
    if f.source_values:
        parts.append(format_count(f.source_values, "value kept at the source", "values kept at the source"))
    there = measured_loss([one])
    if there and not f.source_values:
        parts.append(f"values off by {format_loss(there)} on average")
    return "; ".join(parts) or "nothing"


def format_query_share(one: StreamOverview) -> str:
    """Return the share of the rows of the stream's queries that was sent."""
    queries = format_count(one.queries, "query", "queries")
    if one.rows_answered == one.rows_asked:
        return f"none that its {queries} ask{'s' if one.queries == 1 else ''} for"
    has = "has" if one.queries == 1 else "have"
    return f"its {queries} {has} {format_pct(100.0 * one.rows_answered / one.rows_asked)} of their rows"


def workload_lines(workloads: Iterable[WorkloadOverview]) -> list[str]:
    """Return the share of its work that each join and query did; no line if there is none."""
    shares = [
        f"{one.explanation.name} {format_pct(100.0 * stage.handed_on / stage.offered)} of {stage.unit}"
        for one in workloads
        for stage in one.explanation.stages
        if stage.unit in ("rows", "comparisons") and stage.offered
    ]
    return sentences(f"Joins and queries, share of the work done: {'; '.join(shares)}.") if shares else []


class Progress:
    """Show what a command does while it runs.

    A step is a line that stays. On a terminal, a detail replaces the detail before it, so that the screen ends with the
    result. If the output is no terminal, neither is shown. With `verbose`, all lines are shown and stay. A failure is
    always shown.
    """

    def __init__(self, console: Console, shows: bool = True, keeps: bool = True) -> None:
        """`shows`: show steps and details. `keeps`: each detail is a line that stays."""
        self.console = console
        self.started = time.monotonic()
        self._shows, self._keeps = shows, keeps
        self._lock = threading.Lock()
        self._last_time = ""
        self._has_detail = False

    @staticmethod
    def for_stream(stream: TextIO, verbose: bool = False) -> Progress:
        """Return the progress for a stream."""
        is_terminal = stream.isatty()
        console = Console(file=stream, width=None if is_terminal else page_width())
        return Progress(console, shows=is_terminal or verbose, keeps=verbose)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def step(self, text: str) -> None:
        if self._shows:
            self._line(text, "bold")

    def detail(self, text: str) -> None:
        if self._shows and self._keeps:
            self._line(text, "", indent=2)
        elif self._shows:
            with self._lock:
                line = f"{self._time()}  {' '.join(text.split())}"
                self._wipe()
                self.console.file.write(line[: self.console.width - 1])
                self.console.file.flush()
                self._has_detail = True

    def failed(self, sentence: str) -> None:
        self._line(f"FAILED: {sentence}", "bold red")

    def clear(self) -> None:
        """Remove the last detail from the terminal."""
        with self._lock:
            self._wipe()

    def _wipe(self) -> None:
        if self._has_detail:
            self.console.file.write("\r\x1b[2K")
            self.console.file.flush()
            self._has_detail = False

    def _time(self) -> str:
        return f"{self.elapsed():6.0f} s  "

    def _line(self, text: str, style: str, indent: int = 0) -> None:
        # streams are processed concurrently, and their lines must not mix
        with self._lock:
            self._wipe()
            at = self._time()
            shown, self._last_time = (" " * len(at) if at == self._last_time else at), at
            room = max(40, self.console.width - len(at))
            parts = [part for line in text.split("\n") for part in sentences(line, indent, room) or [""]]
            whole = shown + f"\n{' ' * len(at)}".join(parts)
            self.console.print(whole, style=style, highlight=False, markup=False, soft_wrap=True)
