"""The sources of a query's inputs in a window: which there are, what each produced, and what of it was used.

An input is one source, or one for every value of an attribute (`sources: {by: router}`). What a source produced is, by
what is known best: the numbers that it gave its tuples; the weights of its rows, which stand for rows that a lever
dropped; its rows. Rows that were refused, and dropped rows that no weight stands for, are spread over the sources as
the others, for nobody knows whose they were. An expected rate is the least that a source produces, so that a silent
source lowers the coverage. Without a rate, what a silent source would have produced is not known: only a source that is
listed as expected counts then, as not covered at all.

What a window has counted of its sources travels among its counts (`of.<input>.<source>`, in millionths of a tuple), and
stands in `coverage` as `sources`. So the next window knows whom to expect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spillway.levers.quality.settings import QualitySettings, SourceRule
from spillway.levers.quality.source_window import SourceTally, WindowTally
from spillway.levers.windows import PORTION, InputLoss, Portion

MICRO = 1_000_000
_PRODUCED, _KEPT = "of", "kept"
Counts = Mapping[str, int]


def sources_asked(name: str, rule: SourceRule, columns: Sequence[str]) -> str:
    """For every portion and source of an input, its rows and how many they stand for.

    >>> sources_asked("polls", SourceRule(by="router"), ["router"]).partition(" FROM ")[0]
    'SELECT spillway_portion, `polls`.`router` AS source, count(*) AS tuples, CAST(count(*) AS DOUBLE) AS weights'
    """
    weights = "sum(coalesce(weight, 1.0))" if "weight" in columns else "CAST(count(*) AS DOUBLE)"
    by = f"`{name}`.`{rule.by}`"  # it may be a word of SQL
    said = f"SELECT {PORTION}, {by} AS source, count(*) AS tuples, {weights} AS weights FROM `{name}`"
    return f"{said} GROUP BY {PORTION}, {by}"


def source_counts(
    found: pa.Table,
    name: str,
    offered: Sequence[Portion],
    kept: Sequence[Portion],
    lost: float,
    by_number: Mapping[str, int],
) -> dict[str, int]:
    """Count what each source of an input produced and how much of it is kept.

    `found`: by portion of `offered` and source, its rows and the sum of their weights; `lost`: tuples of the input that
    were produced and are in no portion; `by_number`: what sources produced by their own numbers.
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


def expected_before(counts: Counts) -> dict[str, int]:
    """Return what is to be known of the window before: the sources there were.

    >>> expected_before({"of.sites.s1": 3_000_000, "rows": 2})
    {'of.sites.s1': 3000000}
    """
    return {place: number for place, number in counts.items() if place.startswith(_PRODUCED + ".")}


def stored_sources(counts: Counts) -> list[dict[str, Any]]:
    """Return what `coverage` stores of a window's sources.

    >>> stored_sources({"of.sites.s1": 3_000_000, "kept.sites.s1": 2})
    [{'input': 'sites', 'source': 's1', 'produced': 3.0, 'kept': 2}]
    """
    found = []
    for place, number in sorted(expected_before(counts).items()):
        _, name, source = place.split(".", 2)
        kept = counts.get(f"{_KEPT}.{name}.{source}", 0)
        found.append({"input": name, "source": source, "produced": number / MICRO, "kept": kept})
    return found


def counted_sources(stored: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the counts that a row of `coverage` was stored from, as far as the next window asks for them."""
    return {f"{_PRODUCED}.{one['input']}.{one['source']}": round(MICRO * one["produced"]) for one in stored}


def add_silent(counts: dict[str, int], name: str, rule: SourceRule, seconds: float, before: Counts) -> None:
    """Count sources that must be there, and at least what they are expected to produce."""
    prefix = f"{_PRODUCED}.{name}."
    known = {place.removeprefix(prefix) for place in counts if place.startswith(prefix)}
    known |= set(rule.expected)
    if rule.per_second is not None and not rule.expected:
        known |= {place.removeprefix(prefix) for place in before if place.startswith(prefix)}
    least = 0 if rule.per_second is None else round(MICRO * rule.per_second * seconds)
    for source in known:
        place = prefix + source
        # of a source that must be there and is not, one tuple at least is missing
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
    """Return what became of every source's tuples in a window."""
    found: list[SourceTally] = []
    for name in sources:
        rule = settings.source_rule(name)
        numbered = counts.get(f"produced.{name}")
        by_rate = rule is not None and rule.per_second is not None
        stored = [one for one in stored_sources(counts) if one["input"] == name]
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
        produced = float(numbered) if numbered is not None else here + losses.get(name, InputLoss()).lost
        if rule is not None and rule.per_second is not None:
            produced = max(produced, rule.per_second * seconds)
        relative = numbered is None and not by_rate
        weight = 1.0 if rule is None else rule.weight
        found.append(SourceTally(name, max(produced, used), used, relative, weight))
    return WindowTally(tuple(found))
