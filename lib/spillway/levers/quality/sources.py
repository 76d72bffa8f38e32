"""Count the tuples that each source of a query's inputs produced in a window, and those that were used.

An input is one source, or one source per value of an attribute (`sources: {by: router}`). The tuples that a source
produced are counted by the first of these that is available:

1. the sequence numbers of its tuples;
2. the weights of its rows, which represent dropped rows;
3. its rows.

The source of a refused row is not known. Neither is the source of a dropped row that no weight represents. These rows
are spread over the sources in proportion to the rows whose source is known.

A source that sends nothing in a window is silent. If a rate is stated, a source is expected to produce at least that
many tuples, so a silent source lowers the coverage. Without a rate, a silent source counts only if `expected` lists it,
with coverage 0.

The counts of a window's sources are among its counts (`of.<input>.<source>`, in millionths of a tuple), and are stored
in `coverage` as `sources`. So the next window knows which sources to expect.

Sources that number their tuples: the first number of a window should follow the last number of the previous window
(`coverage.sequence_fates`). If a source was silent at the end of a window, or for whole windows, the missing numbers
are counted as lost in the window that ends the gap. The previous window is the last earlier window that is known. If it
was not computed, or nothing of it was kept, its last numbers are unknown, and no loss is counted at the edge. A tuple
that arrives late for a window is counted as late in that window. The next window, which may have counted it as lost,
does not change.

The last number of a source is identified by the input, the attribute with the numbers, and the value of `by`. It is
among the window's counts (`last.<input>.<attribute>.<source>`), and is stored in `coverage` as `last_numbers`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from spillway.levers.protocol import Views
from spillway.levers.quality.coverage import SourceTally, WindowTally
from spillway.levers.quality.overload import COVERAGE
from spillway.levers.quality.settings import Numbered, QualitySettings, SourceRule
from spillway.levers.windows import DONE, PORTION, InputLoss, Portion, Window

MICRO = 1_000_000
_PRODUCED, _KEPT = "of", "kept"
Counts = Mapping[str, int]


def source_counts_sql(name: str, rule: SourceRule, columns: Sequence[str]) -> str:
    """Return the SQL for the rows and the sum of their weights, by portion and source of an input.

    >>> source_counts_sql("polls", SourceRule(by="router"), ["router"]).partition(" FROM ")[0]
    'SELECT spillway_portion, `polls`.`router` AS source, count(*) AS tuples, CAST(count(*) AS DOUBLE) AS weights'
    """
    weights = "sum(coalesce(weight, 1.0))" if "weight" in columns else "CAST(count(*) AS DOUBLE)"
    by = f"`{name}`.`{rule.by}`"  # it may be a reserved word of SQL
    select = f"SELECT {PORTION}, {by} AS source, count(*) AS tuples, {weights} AS weights FROM `{name}`"
    return f"{select} GROUP BY {PORTION}, {by}"


def source_counts(
    found: pa.Table,
    name: str,
    offered: Sequence[Portion],
    kept: Sequence[Portion],
    lost: float,
    by_number: Mapping[str, int],
) -> dict[str, int]:
    """Count the tuples that each source of an input produced, and those that are kept.

    `found`: rows and the sum of their weights, by portion of `offered` and source; `lost`: produced tuples of the input
    that are in no portion; `by_number`: tuples that sources produced, by their own numbers.
    """
    chosen = set(kept)
    here: dict[str, float] = {}
    weights: dict[str, float] = {}
    used: dict[str, int] = {}
    for row in found.to_pylist():
        source = "" if row["source"] is None else str(row["source"])
        here[source] = here.get(source, 0.0) + row["tuples"]
        weights[source] = weights.get(source, 0.0) + row["weights"]
        used.setdefault(source, 0)
        if offered[row[PORTION]] in chosen:
            used[source] += row["tuples"]
    total, weighted = sum(here.values()), sum(weights.values())
    each = (total + lost) / weighted if weighted else 1.0
    counts = {}
    for source, weight in weights.items():
        produced = max(here[source], weight * each) if lost else here[source]
        produced = max(by_number[source], used[source]) if source in by_number else produced
        counts[f"{_PRODUCED}.{name}.{source}"] = round(MICRO * produced)
        counts[f"{_KEPT}.{name}.{source}"] = used[source]
    return counts


def previous_sources(counts: Counts) -> dict[str, int]:
    """Return the counts that the next window needs: the sources that were present.

    >>> previous_sources({"of.sites.s1": 3_000_000, "rows": 2})
    {'of.sites.s1': 3000000}
    """
    return {place: number for place, number in counts.items() if place.startswith(_PRODUCED + ".")}


def source_records(counts: Counts) -> list[dict[str, Any]]:
    """Return a window's sources as `coverage` stores them.

    >>> source_records({"of.sites.s1": 3_000_000, "kept.sites.s1": 2})
    [{'input': 'sites', 'source': 's1', 'produced': 3.0, 'kept': 2}]
    """
    found = []
    for place, number in sorted(previous_sources(counts).items()):
        _, name, source = place.split(".", 2)
        kept = counts.get(f"{_KEPT}.{name}.{source}", 0)
        found.append({"input": name, "source": source, "produced": number / MICRO, "kept": kept})
    return found


def counts_of_records(stored: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the counts of a row of `coverage` that the next window needs."""
    return {f"{_PRODUCED}.{one['input']}.{one['source']}": round(MICRO * one["produced"]) for one in stored}


def add_silent_sources(
    counts: dict[str, int], name: str, rule: SourceRule, seconds: float, before: Counts
) -> None:
    """Add the sources that are silent, and raise each count to the number of tuples that the rate expects."""
    prefix = f"{_PRODUCED}.{name}."
    known = {place.removeprefix(prefix) for place in counts if place.startswith(prefix)}
    known |= set(rule.expected)
    if rule.per_second is not None and not rule.expected:
        known |= {place.removeprefix(prefix) for place in before if place.startswith(prefix)}
    least = 0 if rule.per_second is None else round(MICRO * rule.per_second * seconds)
    for source in known:
        place = prefix + source
        # if a source that must be present is absent, at least one tuple is missing
        counts[place] = max(counts.get(place, MICRO), least)
        counts.setdefault(f"{_KEPT}.{name}.{source}", 0)


def tally_sources(
    settings: QualitySettings,
    sources: Sequence[str],
    offered: Sequence[Portion],
    kept: Sequence[Portion],
    losses: Mapping[str, InputLoss],
    counts: Counts,
    seconds: float,
) -> WindowTally:
    """Return the produced and kept tuples of every source in a window."""
    found: list[SourceTally] = []
    for name in sources:
        rule = settings.source_rule(name)
        numbered = counts.get(f"produced.{name}")
        by_rate = rule is not None and rule.per_second is not None
        stored = [one for one in source_records(counts) if one["input"] == name]
        if rule is not None and rule.by is not None and stored:
            weights = {one.source: one.weight for one in rule.weights}
            for one in stored:
                weight = weights.get(one["source"], rule.weight)
                relative = numbered is None and not by_rate
                place = f"{name}.{one['source']}"
                found.append(SourceTally(place, one["produced"], one["kept"], relative, weight, name))
            continue
        here = sum(one.tuples for one in offered if one.stream == name)
        used = sum(one.tuples for one in kept if one.stream == name)
        produced = float(numbered) if numbered is not None else here + losses.get(name, InputLoss()).lost_rows
        if rule is not None and rule.per_second is not None:
            produced = max(produced, rule.per_second * seconds)
        relative = numbered is None and not by_rate
        weight = 1.0 if rule is None else rule.weight
        found.append(SourceTally(name, max(produced, used), used, relative, weight))
    return WindowTally(tuple(found))


_LAST = "last"
_PARTS = ("input", "attribute", "source")
Numbers = Mapping[str, int]
"""By name (`last_number_key`): the last number of each source. They are part of the counts of a window."""


def last_number_key(one: Numbered, source: object) -> str:
    """Return the name under which the last number of a source is counted.

    >>> last_number_key(Numbered(input="sites", attribute="poll", by="site"), "s.1")
    'last.sites.poll.s.1'
    """
    return f"{_LAST}.{one.input}.{one.attribute}.{'' if source is None else source}"


def last_numbers(counts: Numbers) -> list[dict[str, Any]]:
    """Return the last numbers of a window as `coverage` stores them.

    >>> last_numbers({"last.sites.poll.s.1": 7, "rows": 3})
    [{'input': 'sites', 'attribute': 'poll', 'source': 's.1', 'number': 7}]
    """
    mine = ((name.split(".", 3), number) for name, number in sorted(counts.items()))
    return [
        {**dict(zip(_PARTS, parts[1:], strict=True)), "number": number}
        for parts, number in mine
        if parts[0] == _LAST
    ]


@dataclass(frozen=True)
class NumbersBefore:
    """The state at the end of the windows before some windows: the last numbers and the sources."""

    right_before: Mapping[int, int] = field(default_factory=dict)
    """By window: the window before it, if that was computed or is part of this run."""
    stored: Mapping[int, Numbers] = field(default_factory=dict)
    """The state at the end of each window that was computed before this run."""

    def of(self, window: int, this_run: Mapping[int, Numbers]) -> Numbers:
        """Return the state at the end of the previous window; empty if it is unknown.

        `this_run`: the counts of the windows that this run has computed.
        """
        before = self.right_before.get(window)
        if before is None:
            return {}
        found = this_run.get(before) or self.stored.get(before, {})
        numbers = {name: number for name, number in found.items() if name.startswith(_LAST + ".")}
        return numbers | previous_sources(found)


def numbers_before(tables: Views, subject: str, windows: Sequence[Window], overlap: int = 1) -> NumbersBefore:
    """Return the state at the end of the windows before these; `overlap`: number of windows that contain a moment."""
    now = {one.window for one in windows}
    rows = tables.at("windows").rows(["window", "status"], subject=subject).to_pylist()
    status = {row["window"]: row["status"] for row in rows}
    known = sorted(status.keys() | now)
    ended = {n for n in known if n in now or status[n] == DONE}
    right_before = {}
    for n in now:
        # the last window that does not overlap this one
        at = bisect_right(known, n - overlap)
        if at and known[at - 1] in ended:
            right_before[n] = known[at - 1]
    wanted = sorted(set(right_before.values()) - now)
    found = (
        tables.at(COVERAGE).rows(["window", "last_numbers", "sources"], subject=subject, window=wanted)
        if wanted
        else None
    )
    stored = {
        row["window"]: {
            f"{_LAST}.{one['input']}.{one['attribute']}.{one['source']}": one["number"]
            for one in row["last_numbers"] or ()
        }
        | counts_of_records(row["sources"] or ())
        for row in (found.to_pylist() if found is not None else ())
    }
    return NumbersBefore(right_before, stored)
