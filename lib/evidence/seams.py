"""Check every ordered pair of stages on data with known truth; pairs that a contract cannot express must be refused.

A stage is a lever of the registry, deduplication, or sketches. There is a check for each ordered pair (first, second).
If the second stage may work on the output of the first, every estimate and every claim of completeness is compared with
the delivered rows. Otherwise the contract must be refused by name. `unchecked_pairs` lists pairs of registered levers
without a check.

A claim is false if it says exact or complete and is not, or if more 95 % intervals miss the truth than chance explains
(`most_missed`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from evidence.attributes.lake import ENGINE, Lake
from evidence.book import Book
from evidence.quality.sifted_streams import STATEMENTS, IntervalCounts, compare_query, sifted_lake
from spillway.contracts import Contracts, read_channel, read_stream, read_workload
from spillway.engine.protocol import run_alone
from spillway.errors import ContractError, SpillwayError
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.exploration import Memory
from spillway.levers.joins.join_window import JoinWindow, LostRows
from spillway.levers.joins.operands import ItemSets, Operand
from spillway.levers.joins.settings import Budget, JoinSettings, JoinSide, SetWords
from spillway.levers.sifters.filter import sift_rows
from spillway.levers.windows import InputLoss
from spillway.registry import LEVERS
from spillway.settings import Settings
from spillway.sketches.answers import Answer
from spillway.streams.query import StreamQuery, plan_query
from spillway.streams.sketch_builder import sketch_stream
from spillway.streams.stored_sketches import load_sketch
from spillway.workloads.run import run_workloads
from spillway.workloads.windows import workload_problems

NO_LEVERS = ("deduplication", "sketches")
"""Stages of a stream's contract that are not levers."""
Pair = tuple[str, str]
Row = Mapping[str, Any]
CONFIDENCE = 0.95
ONE_IN = 10_000
"""How rarely a sound interval may be called false."""


@dataclass
class Claims:
    """The results of comparisons with the truth."""

    intervals: int = 0
    missed: int = 0
    """Intervals that do not hold the truth."""
    exact: int = 0
    """Claims without an interval: exact values, complete windows, refusals."""
    false: list[str] = field(default_factory=list)

    def check_interval(self, what: str, truth: float, low: float, high: float) -> None:
        """Compare an interval with the truth; an interval of width 0 claims to be exact."""
        slack = 1e-9 * max(1.0, abs(truth))
        inside = low - slack <= truth <= high + slack
        if low == high:
            self.check_claim(inside, f"{what}: exactly {low:g}, and the truth is {truth:g}")
        else:
            self.intervals += 1
            self.missed += not inside

    def check_claim(self, true: bool, otherwise: str) -> None:
        """Count a claim that is true or false."""
        self.exact += 1
        if not true:
            self.false.append(otherwise)

    @property
    def all_false(self) -> list[str]:
        """Every false claim, and whether intervals miss the truth too often."""
        most = most_missed(self.intervals)
        often = f"{self.missed} of {self.intervals} intervals miss the truth; chance explains {most}"
        return [*self.false, *([often] if self.missed > most else [])]


def most_missed(intervals: int, confidence: float = CONFIDENCE) -> int:
    """Return the largest number of sound intervals that miss the truth, exceeded once in `ONE_IN` trials (binomial).

    >>> most_missed(0), most_missed(1), most_missed(100)
    (0, 1, 15)
    """
    missing, below = 1.0 - confidence, 0.0
    for count in range(intervals + 1):
        below += math.comb(intervals, count) * missing**count * confidence ** (intervals - count)
        if 1.0 - below <= 1.0 / ONE_IN:
            return count
    return intervals


def stages() -> tuple[str, ...]:
    """Return all stages, including every registered lever."""
    return (*NO_LEVERS, *sorted(LEVERS))


def unchecked_pairs() -> list[Pair]:
    """Return the pairs of stages without a check."""
    return [pair for pair in product(stages(), stages()) if pair not in PAIRS]


# --- small lakes with known rows

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS, WINDOW, LASTS = 360, 30, 20
CODES = 12


def readings(seed: int, rate: float) -> list[dict[str, Any]]:
    """Return the rows of a stream: a code to join by, a load that queries ask about, a level that may be rounded."""
    chance = np.random.default_rng(seed)
    rows = []
    for number in range(round(SECONDS * rate)):
        at = BEGIN + timedelta(milliseconds=round(1000 * number / rate))
        rows.append(
            {
                "site": f"s{number % 4}",
                "at": at.isoformat(),
                "code": f"c{int(chance.integers(0, CODES))}",
                "load": float(chance.integers(0, 100)),
                "level": round(500.0 + 60.0 * math.sin(number / 40) + float(chance.normal(0.0, 20.0)), 2),
            }
        )
    return rows


SKETCHES = (
    {"kind": "count_min", "attributes": ["code"]},
    {"kind": "quantiles", "attributes": ["level"]},
    {"kind": "distinct", "attributes": ["load"]},
)


def contract(name: str, levers: Sequence[Row], rate: float, **more: Any) -> dict[str, Any]:
    """Return the contract of a stream of `readings`."""
    return {
        "stream": name,
        "channel": "wide",
        "source": {"path": name, "format": "json", "settle_seconds": 0},
        "rate": {"from": "declared", "tuples_per_second": rate},
        "frame": {"tuples": 200},
        "levers": list(levers),
        "sketches": list(SKETCHES),
        "attributes": [
            {"name": "site", "type": "string", "role": "key", "nullable": False},
            {"name": "at", "type": "timestamp", "role": "order", "nullable": False},
            {"name": "code", "type": "string", "role": "protected"},
            {"name": "load", "type": "double", "role": "protected"},
            {"name": "level", "type": "double", "error_pct": 1.0},
        ],
        **more,
    }


RATES = {"east": 4.0, "west": 3.0}
SIFTERS: dict[str, Any] = {
    "lever": "sifters",
    "queries": [{"where": "load < 30"}, {"where": "load < 60"}],
    "regions": 4,
    "unqueried": "by_region",
    # a sampled row in a hundred: no region is dropped whole, so that row weights can stand for all rows
    "sample": {"marked_pct": 1.0},
}
ATTRIBUTES: dict[str, Any] = {"lever": "attributes", "training": {"tuples": 300}}
TWICE: dict[str, Any] = {"duplicates": {"rows": "exact"}}


@dataclass(frozen=True)
class World:
    """A lake with two streams, and their rows as they were produced: those delivered twice stand once."""

    lake: Lake
    rows: Mapping[str, Sequence[Row]]

    def at(self, stream: str) -> np.ndarray:
        """Return when the rows were, in seconds since the first."""
        return np.array(
            [(datetime.fromisoformat(row["at"]) - BEGIN).total_seconds() for row in self.rows[stream]]
        )


@cache
def world(levers: tuple[str, ...], duplicates: bool, capacity: str, seed: int = 0) -> World:
    """Return a lake whose streams went through these levers; `duplicates`: a tenth of the rows is delivered twice."""
    known = {"sifters": SIFTERS, "attributes": ATTRIBUTES}
    rows, files, contracts = {}, {}, {}
    for place, (name, rate) in enumerate(RATES.items()):
        rows[name] = readings(10 * seed + place, rate)
        # if both levers work, the capacity is so small that columns are shed as well
        share = 0.8 if "attributes" in levers else 0.4
        own = {"sifters": {"rows_per_second": share * rate, "takes": "rest"}}
        mine = [{**known[lever], **own.get(lever, {})} for lever in levers]
        contracts[name] = read_stream(contract(name, mine, rate, **(TWICE if duplicates else {})))
        sent = [
            row for number, row in enumerate(rows[name]) for _ in range(1 + (duplicates and number % 10 == 0))
        ]
        text = "".join(json.dumps(row) + "\n" for row in sent)
        files[name] = {f"{BEGIN.date()}/a.json": text.encode()}
    channel = {"wide": read_channel("wide", {"capacity": capacity})}
    lake = Lake.land(f"seams/{'-'.join(levers)}/{duplicates}/{seed}", contracts, files, channel)
    # joins and queries are known before the streams are shed, as in a running lake
    lake = replace(lake, contracts=replace(lake.contracts, joins=joins_of(), queries=queries_of()))
    if levers:
        lake.train()
    lake.send()
    for name in contracts:
        run_alone(ENGINE, sketch_stream(lake.tables.now(), lake.contracts.stream(name)))
    return World(lake, rows)


def joins_of() -> dict[str, Any]:
    """Return the join of both streams by their codes, and that of one with itself."""
    side = {"attribute": "code", "lasts_seconds": LASTS}
    lever = {"lever": "joins", "left": side, "right": side}
    return {
        name: read_workload(
            {"name": name, "inputs": inputs, "window": {"seconds": WINDOW}, "levers": [lever]}
        )
        for name, inputs in (("both", ["east", "west"]), ("alone", ["east", "east"]))
    }


def queries_of() -> dict[str, Any]:
    """Return a query whose capacity is too small, so that slices are shed as well."""
    lever = {
        "lever": "quality",
        "sql": "SELECT count(*) AS n, sum(level) AS s, avg(level) AS m FROM east",
        "portion_tuples": 20,
    }
    return {
        "sums": read_workload(
            {"name": "sums", "inputs": ["east"], "window": {"seconds": 2 * WINDOW}, "levers": [lever]}
        )
    }


def check_joins(claims: Claims, of: World, names: Iterable[str] = ("both", "alone")) -> None:
    """Compare the pairs and missed pairs of join windows with all pairs of the produced rows."""
    lake = of.lake
    run_workloads(lake.tables, ENGINE, lake.contracts, list(names))
    for name in names:
        left, right = lake.contracts.joins[name].inputs
        here, there = of.at(left), of.at(right)
        codes = [np.array([row["code"] for row in of.rows[stream]]) for stream in (left, right)]
        alike = (codes[0][:, None] == codes[1][None]) & (np.abs(here[:, None] - there[None]) <= LASTS)
        if left == right:
            np.fill_diagonal(alike, False)
        later = np.maximum(here[:, None], there[None]) // WINDOW
        kept = lake.tables.at("transmitted", left).rows(["seq"]).num_rows < len(here)
        rows = lake.tables.at("join_windows").rows(subject=name).sort_by("window").to_pylist()
        claims.check_claim(bool(rows), f"{name}: no window was worked out")
        first = int(BEGIN.timestamp()) // WINDOW
        for row in rows:
            where = f"{name}, window {row['window'] - first}"
            truth = float((alike & (later == row["window"] - first)).sum()) - row["pairs"]
            claims.check_interval(f"{where}, missed", truth, row["missed_low"], row["missed_high"])
            complete = row["sic"] >= 1.0
            claims.check_claim(not complete or truth == 0, f"{where}: sic 1, and {truth:g} pairs are missed")
            claims.check_claim(not kept or not complete, f"{where}: sic 1 of sifted rows")
            claims.check_claim(truth >= 0, f"{where}: {-truth:g} pairs too many")


def check_sketches(claims: Claims, of: World) -> None:
    """Compare the answers of sketches with the rows that were produced."""
    for stream, rows in of.rows.items():
        tables = of.lake.tables
        codes = [row["code"] for row in rows]
        levels = np.sort([row["level"] for row in rows])
        counts: Any = load_sketch(tables, stream, "code", "count_min")
        answers: list[tuple[str, float, Answer]] = [
            (f"{stream}, rows with {code}", float(codes.count(code)), counts.frequency(code))
            for code in sorted(set(codes))
        ]
        distinct: Any = load_sketch(tables, stream, "load", "distinct")
        answers.append((f"{stream}, loads", float(len({row["load"] for row in rows})), distinct.distinct()))
        quantiles: Any = load_sketch(tables, stream, "level", "quantiles")
        for share in (0.1, 0.5, 0.9):
            answer = quantiles.quantile(share)
            truth = float(levels[min(len(levels) - 1, math.ceil(share * len(levels)) - 1)])
            answers.append((f"{stream}, quantile {share}", truth, answer))
        for what, truth, answer in answers:
            claims.check_interval(what, truth, answer.low, answer.high)
            covers = answer.covers
            claims.check_claim(
                (covers.rows, covers.missing) == (len(rows), 0),
                f"{what}: covers {covers.rows} of {len(rows)} rows, and says that nothing is missing",
            )


def values_shed_by_lever(of: World) -> dict[str, int]:
    """Return the number of values and rows that each lever shed; a check without shed values proves nothing."""
    rows = (
        of.lake.tables.at("ledger")
        .rows(["stage", "unit", "shed", "dimension_kind"], scope="stream")
        .to_pylist()
    )
    found = dict.fromkeys(stages(), 0)
    for row in rows:
        if row["dimension_kind"] == "total" and row["stage"] in found:
            found[row["stage"]] += row["shed"]
    return found


def check_values(claims: Claims, of: World) -> None:
    """Compare recovered values with produced values, and the sum of weights with the number of rows."""
    for stream, rows in of.rows.items():
        lake = of.lake
        found = list(plan_query(lake.tables, lake.contracts.stream(stream), StreamQuery()).rows({}))
        truth = {(row["site"], datetime.fromisoformat(row["at"])): row for row in rows}
        weight, seen = 0.0, 0
        for part in found:
            for row in part.to_pylist():
                weight, seen = weight + (row.get("weight") or 1.0), seen + 1
                known = truth.get((row["site"], row["at"].replace(tzinfo=UTC)))
                where = f"{stream}, seq {row['seq']}"
                claims.check_claim(known is not None, f"{where}: a row that nobody produced")
                if known is None:
                    continue
                bound = row["level__bound_pct"]
                off = math.inf if row["level"] is None else 100.0 * abs(row["level"] / known["level"] - 1.0)
                claims.check_claim(
                    off <= (bound or 0.0) * (1 + 1e-9) + 1e-9,
                    f"{where}: level is off by {off:g} %, and its bound is {bound}",
                )
        claims.check_claim(seen <= len(rows), f"{stream}: {seen} rows of {len(rows)}")
        heaviest = max((row.get("weight") or 1.0) for part in found for row in part.to_pylist())
        # sampling keeps within a row of every region (4 of loads, and those that no query asks for)
        most = 6 * heaviest if heaviest > 1.0 else 0.0
        claims.check_claim(
            abs(weight - len(rows)) <= most, f"{stream}: weights add up to {weight:g} of {len(rows)}"
        )


def check_query(claims: Claims, of: World) -> None:
    """Compare the answers of a query with those over the rows that were produced."""
    lake = of.lake
    run_workloads(lake.tables, ENGINE, lake.contracts, ["sums"])
    at, levels = of.at("east"), np.array([row["level"] for row in of.rows["east"]])
    first = int(BEGIN.timestamp()) // (2 * WINDOW)
    rows = lake.tables.at("results", "sums").rows().to_pylist()
    claims.check_claim(bool(rows), "sums: no window was worked out")
    for row in rows:
        mine = levels[at // (2 * WINDOW) == row["window"] - first]
        where = f"sums, window {row['window'] - first}"
        for measure, truth in (("n", len(mine)), ("s", mine.sum()), ("m", mine.mean())):
            low, high = row[f"{measure}__low"], row[f"{measure}__high"]
            if low is None or high is None:
                claims.check_claim(
                    bool(row[f"{measure}__no_interval"]), f"{where}, {measure}: no interval, no reason"
                )
            else:
                claims.check_interval(f"{where}, {measure}", float(truth), low, high)
    for row in lake.tables.at("coverage").rows(subject="sums").to_pylist():
        mine = levels[at // (2 * WINDOW) == row["window"] - first]
        where = f"sums, window {row['window'] - first}"
        claims.check_claim(
            row["sic"] < 1.0 or row["tuples_kept"] == len(mine), f"{where}: sic 1 of fewer rows"
        )


def check_all(claims: Claims, of: World) -> None:
    """Run all comparisons on rows that went through several stages."""
    for look in (check_values, check_joins, check_query, check_sketches):
        look(claims, of)


# --- joins of sifted rows, many times, without a lake

THRESHOLDS = np.array([0.2, 0.5, 0.8, 0.9])


@dataclass(frozen=True)
class JoinCase:
    """A join whose rows are sifted before."""

    predicate: str = "equality"
    values: int = 12
    heavy: bool = False
    """A few rows of the left side have most of the pairs."""
    by_region: bool = False
    """Values say in which region a row lies, so that pairs are of rows that were sampled together."""
    budget: float | None = None
    with_itself: bool = False


CASES = (
    JoinCase(),
    JoinCase(heavy=True, values=60),
    JoinCase(by_region=True),
    JoinCase(budget=30.0),
    JoinCase("overlap", 8),
    JoinCase("overlap", 8, budget=100.0),
    JoinCase(with_itself=True),
    JoinCase(by_region=True, with_itself=True),
    JoinCase("overlap", 8, with_itself=True),
)


@dataclass(frozen=True)
class JoinTruth:
    """All pairs of a window, as estimated and in truth."""

    estimate: float
    truth: float


def sifted_join(claims: Claims, case: JoinCase, seed: int) -> JoinTruth:
    """Join two sides within a window, sifted by the product's own kernel, and compare with the join of all rows."""
    chance = np.random.default_rng(seed)
    sides = [_side(chance, case, rows, place == 0) for place, rows in enumerate((300, 240))]
    if case.with_itself:
        sides[1] = sides[0]
    whole = _joined(case, seed, [_operand(*side) for side in sides], None, (LostRows(), LostRows()))
    kept: list[Operand] = []
    lost: list[LostRows] = []
    for place, (at, seq, regions, items) in enumerate(sides):
        if case.with_itself and place:
            kept.append(kept[0])
            lost.append(lost[0])
            break
        stay, _ = sift_rows(seq, regions, THRESHOLDS, 0.0, 2 * seed + place)
        mine = np.flatnonzero(stay)
        kept.append(_operand(at[mine], seq[mine], regions[mine], [items[row] for row in mine], True))
        gone = int((~stay).sum())
        least = float(min(np.count_nonzero(regions[mine] == region) for region in range(len(THRESHOLDS))))
        loss = InputLoss(gone, gone, gone, largest_weight=10.0, least_kept=least)
        lost.append(LostRows(loss, loss))
    found = _joined(case, seed, kept, case.budget, (lost[0], lost[1]))
    truth = float(whole["pairs"] - found["pairs"])
    claims.check_interval(f"{case}, seed {seed}", truth, found["missed_low"], found["missed_high"])
    claims.check_claim(found["sic"] < 1.0, f"{case}, seed {seed}: sic 1 of sifted rows")
    return JoinTruth(found["missed"] + found["pairs"], whole["pairs"])


def _side(chance: np.random.Generator, case: JoinCase, rows: int, first: bool) -> tuple[Any, ...]:
    at, seq = np.sort(chance.integers(0, 30_000_000, rows)), np.arange(rows)
    regions = chance.integers(0, len(THRESHOLDS), rows).astype(np.int32)
    if case.predicate == "overlap":
        items = [sorted(set(chance.integers(0, case.values, 3).tolist())) for _ in range(rows)]
        return at, seq, regions, items
    values = chance.integers(1, case.values, rows)
    if case.heavy and first:
        values = np.where(chance.random(rows) < 0.03, 1, values)
    if case.heavy and not first:
        values = np.where(chance.random(rows) < 0.5, 1, values)
    if case.by_region:
        values = regions * 20 + chance.integers(0, 3, rows)
    return at, seq, regions, [[int(value)] for value in values]


def _operand(at: Any, seq: Any, regions: Any, items: Any, weighted: bool = False) -> Operand:
    first = np.concatenate([[0], np.cumsum([len(one) for one in items])]).astype(np.int64)
    flat = np.array([item for one in items for item in one], np.int64)
    weights = 1.0 / (1.0 - THRESHOLDS[regions]) if weighted else None
    return Operand(at, seq, ItemSets(first, flat, np.ones(len(flat))), np.zeros(len(at), np.int64), weights)


def _joined(
    case: JoinCase,
    seed: int,
    sides: Sequence[Operand],
    budget: float | None,
    lost: tuple[LostRows, LostRows],
) -> dict[str, Any]:
    side = JoinSide(attribute="value", lasts_seconds=10.0)
    overlap = case.predicate == "overlap"
    settings = JoinSettings(
        left=side, right=side, predicate=case.predicate, threshold=2 if overlap else None,
        sets=SetWords() if overlap else None, seed=seed,
        budget=None if budget is None else Budget(comparisons_per_second=budget),
    )  # fmt: skip
    given = [SideRows(one, 0, one.rows) for one in sides]
    turn = JoinWindow(settings, Memory(), given[0], given[1], 30.0, case.with_itself, losses=lost)
    counts: dict[str, int] = {}
    for part in turn.decision.task_inputs(None, {}):  # type: ignore[arg-type]
        for _ in turn.decision.results(None, part, counts):  # type: ignore[arg-type]
            pass
    return turn.result_columns(counts)


# --- the pairs

PLAIN, NARROW, NARROWER = "1 Gbps", "200 bps", "190 bps"


def check_attributes_before_joins(claims: Claims, seeds: int) -> None:
    """Check that a join by an exact attribute is complete, and that one by a rounded attribute is not claimed to be."""
    check_of_world(check_joins, ("attributes",), False, NARROW)(claims, seeds)
    side = {"attribute": "level", "lasts_seconds": LASTS}
    made = {"name": "lossy", "inputs": ["east", "west"], "window": {"seconds": WINDOW}}
    lossy = read_workload({**made, "levers": [{"lever": "joins", "left": side, "right": side}]})
    contracts = replace(
        world(("attributes",), False, NARROW).lake.contracts, joins={"lossy": lossy}, queries={}
    )
    refusals = [str(one) for one in workload_problems(contracts)]
    claims.check_claim(
        any("`level` must be exact" in one for one in refusals), f"a join by a rounded attribute: {refusals}"
    )


def check_sifters_before_joins(claims: Claims, seeds: int) -> None:
    """Check that dropped rows are included in the missed pairs that a join reports."""
    check_of_world(check_joins, ("sifters",), False, PLAIN)(claims, seeds)
    for case in CASES:
        for seed in range(2 * seeds):
            sifted_join(claims, case, seed)


def check_sifters_before_quality(claims: Claims, seeds: int) -> None:
    """Check that dropped rows are included in a query's estimates and intervals."""
    check_of_world(check_query, ("sifters",), False, PLAIN)(claims, seeds)
    held = IntervalCounts()
    for seed in range(max(1, seeds // 10)):
        sifted_rows = sifted_lake("seams", seed)
        for name, statement in STATEMENTS.items():
            compare_query(sifted_rows, name, statement, held)
        sifted_rows.lake.forget()
    claims.intervals += held.intervals
    claims.missed += held.intervals - held.held
    claims.false += held.false_claims


def check_of_world(
    look: Callable[[Claims, World], None], levers: tuple[str, ...], duplicates: bool, capacity: str
) -> Callable[[Claims, int], None]:
    """Return the check that looks at a lake whose streams went through these levers."""

    def check(claims: Claims, seeds: int) -> None:
        of = world(levers, duplicates, capacity)
        shed = values_shed_by_lever(of)
        for lever in levers:
            claims.check_claim(shed[lever] > 0, f"{lever} shed nothing, so nothing is shown")
        look(claims, of)

    return check


def expect_refusal(*words: str, stream: Any = None, workload: Any = None) -> Callable[[Claims, int], None]:
    """Return the check that a contract is refused with a message that holds these words."""

    def check(claims: Claims, seeds: int) -> None:
        said = refusal(stream, workload)
        claims.check_claim(
            all(word in said for word in words), f"refused without {words}: {said or 'not at all'}"
        )

    return check


def refusal(stream: Mapping[str, Any] | None, workload: Mapping[str, Any] | None) -> str:
    """Return the problems of a contract of a stream or a workload; empty if it is accepted."""
    try:
        if stream is not None:
            read_stream({**contract("east", [], 1.0), **stream})
            return ""
        assert workload is not None
        made = read_workload(
            {"name": "made", "inputs": ["east", "west"], "window": {"seconds": 30}, **workload}
        )
    except (ContractError, SpillwayError) as problem:
        return str(problem)
    streams = {name: read_stream(contract(name, [], 1.0)) for name in RATES}
    known = [name for name in made.inputs if name not in streams]
    if known:
        try:
            Contracts(streams, {}).stream(known[0])
        except SpillwayError as problem:
            return str(problem)
    return "; ".join(str(one) for one in workload_problems(Contracts(streams, {}, joins={"made": made})))


_SIDE = {"attribute": "code", "lasts_seconds": LASTS}
JOINS = {"lever": "joins", "left": _SIDE, "right": _SIDE}
QUALITY = {"lever": "quality", "sql": "SELECT count(*) AS n FROM east"}
AS_LEVERS: dict[str, dict[str, Any]] = {
    "attributes": {"lever": "attributes"},
    "sifters": SIFTERS,
    "joins": JOINS,
    "quality": QUALITY,
    "deduplication": {"lever": "deduplication"},
    "sketches": {"lever": "sketches"},
}


def _refused_pairs() -> dict[Pair, Callable[[Claims, int], None]]:
    """Return the checks of pairs that contracts cannot express, each with the words of its refusal."""
    found: dict[Pair, Callable[[Claims, int], None]] = {}
    for name in AS_LEVERS:
        # rows are deduplicated at intake, before any other stage; a sketch hands no rows on
        if name != "deduplication":
            levers = [AS_LEVERS[name], AS_LEVERS["deduplication"]]
            found[name, "deduplication"] = expect_refusal(
                "registered lever", "deduplication", stream={"levers": levers}
            )
        if name != "sketches":
            levers = [AS_LEVERS["sketches"], AS_LEVERS[name]]
            found["sketches", name] = expect_refusal(
                "registered lever", "sketches", stream={"levers": levers}
            )
    for name in ("attributes", "sifters"):
        found[name, name] = expect_refusal(
            "occur once in the list", name, stream={"levers": [AS_LEVERS[name]] * 2}
        )
    for name in ("joins", "quality"):
        found[name, name] = expect_refusal(
            "occur once in the list", name, workload={"levers": [AS_LEVERS[name]] * 2}
        )
        found[name, "sketches"] = expect_refusal(
            "sketches", workload={"levers": [AS_LEVERS[name]], "sketches": list(SKETCHES)}
        )
        for other in ("attributes", "sifters"):
            levers = [AS_LEVERS[name], AS_LEVERS[other]]
            found[name, other] = expect_refusal(
                "be a single lever for a join or a query", workload={"levers": levers}
            )
    found["joins", "quality"] = expect_refusal(
        "made", "have a contract", workload={"inputs": ["joined_made"], "levers": [QUALITY]}
    )
    found["quality", "joins"] = expect_refusal(
        "results_made", "have a contract", workload={"inputs": ["east", "results_made"], "levers": [JOINS]}
    )
    found["attributes", "sifters"] = expect_refusal(
        "come after every lever that drops rows", "attributes",
        stream={"levers": [AS_LEVERS["attributes"], SIFTERS]},
    )  # fmt: skip
    found["deduplication", "deduplication"] = expect_refusal(
        "duplicates", stream={"duplicates": [TWICE["duplicates"]] * 2}
    )
    found["sketches", "sketches"] = expect_refusal(
        "sketches",
        "must be one of count_min",
        stream={"sketches": [{"kind": "sketches", "attributes": ["code"]}]},
    )
    return found


PAIRS: dict[Pair, Callable[[Claims, int], None]] = {
    ("deduplication", "attributes"): check_of_world(check_values, ("attributes",), True, NARROW),
    ("deduplication", "sifters"): check_of_world(check_values, ("sifters",), True, PLAIN),
    ("deduplication", "joins"): check_of_world(check_joins, (), True, PLAIN),
    ("deduplication", "quality"): check_of_world(check_query, (), True, PLAIN),
    ("deduplication", "sketches"): check_of_world(check_sketches, (), True, PLAIN),
    ("attributes", "joins"): check_attributes_before_joins,
    ("attributes", "quality"): check_of_world(check_query, ("attributes",), False, NARROW),
    ("attributes", "sketches"): check_of_world(check_sketches, ("attributes",), False, NARROW),
    ("sifters", "attributes"): check_of_world(check_all, ("sifters", "attributes"), False, NARROWER),
    ("sifters", "joins"): check_sifters_before_joins,
    ("sifters", "quality"): check_sifters_before_quality,
    ("sifters", "sketches"): check_of_world(check_sketches, ("sifters",), False, PLAIN),
    **_refused_pairs(),
}


def claims_of(pair: Pair, seeds: int) -> Claims:
    """Check a pair."""
    claims = Claims()
    PAIRS[pair](claims, seeds)
    return claims


def seam_figures(book: Book, settings: Settings, seeds: int) -> Mapping[str, float]:
    """Check every pair of stages; `seeds`: number of repetitions with random data."""
    book.section(
        "Seams", "Every pair of stages: claims of the second about rows and values that the first changed."
    )
    found = {pair: claims_of(pair, seeds) for pair in product(stages(), stages()) if pair in PAIRS}
    book.table(
        "Pairs of stages",
        ("first", "second", "intervals", "miss the truth", "at most by chance", "other claims", "false"),
        [
            (*pair, one.intervals, one.missed, most_missed(one.intervals), one.exact, len(one.all_false))
            for pair, one in found.items()
        ],
        [
            f"{first}, {second}: {said}"
            for (first, second), one in found.items()
            for said in one.all_false[:3]
        ],
    )
    return {
        "seams.pairs_tested": len(found),
        "seams.pairs_unchecked": len(unchecked_pairs()),
        "seams.intervals": sum(one.intervals for one in found.values()),
        "seams.intervals_outside": sum(one.missed for one in found.values()),
        "seams.claims_false": sum(len(one.all_false) for one in found.values()),
    }
