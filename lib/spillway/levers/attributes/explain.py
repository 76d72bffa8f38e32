"""Explain the lever: why an attribute has its treatment, and the charts of the report as data.

A number with a unit is returned as `{unit: number}`: people read "5 % (from category)", programs read 5. Long series
are thinned to what a plot can show; nothing is averaged.

>>> treatment_in(Run(0, 9, (AttributeTreatment("temp", "shed"),)), "temp").way, treatment_in(Run(0, 9, ()), "temp").way
('shed', 'keep')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import Attribute, StreamContract
from spillway.contracts.column_names import BOUND_SUFFIX, OWN_BOUND_SUFFIX
from spillway.errors import format_rate
from spillway.ledger import Row
from spillway.levers.attributes import facts as kinds
from spillway.levers.attributes.policy import own_bound, own_settings
from spillway.levers.attributes.scheme import AttributeTreatment, Run, last_batches, run_from_row, scheme_rows
from spillway.levers.protocol import Facts, LeverExplanation, Picture, Views

PAST = {"keep": "kept", "round": "rounded", "shed": "shed"}
"""The past participle of each treatment, in the order of a legend."""
UNTOUCHABLE = {
    "key": "it identifies the sender of the tuple",
    "order": "it is the time or sequence number of the tuple",
    "protected": "its owner protects it",
}
PLOTTED_ATTRIBUTES = 2
PLOTTED_TUPLES = 96
READ_TUPLES = 4000
PLOTTED_THRESHOLDS_PCT = 30


@dataclass(frozen=True)
class _RunOfBatch:
    """A run, and its row in `schemes`, which names the batch."""

    row: Row
    run: Run


def explain_attribute(
    contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
) -> LeverExplanation:
    """Explain why the attribute is kept, rounded or shed: the rule, the numbers, the bound, and how to change it."""
    stated = contract.attribute(attribute)
    batches = last_batches(tables, contract.stream)
    shed = _runs(tables, contract.stream, batches)
    newest = shed[-1].run if shed else None
    certificates = _certificates(tables, contract.stream, batches, attribute)
    way = None if newest is None else treatment_in(newest, attribute)
    because = _rule(contract, stated, newest)
    if newest is not None and way is not None and stated.role == "measure":
        because = f"{because}. The plan says: {way.reason or newest.reason}".removesuffix(".")
    numbers = {
        **_scheme_numbers(contract, attribute, shed),
        **_bound_numbers(attribute, facts, certificates),
        "predictor": (way and way.predictor) or None,
        "stage": {1: "1: the stream's own", 2: "2: its channel's"}[way.stage]
        if way and _is_treated(way)
        else None,
        **_certificate_numbers(certificates),
        "so far": {
            f"tuples {PAST[done]}": count
            for done, count in _tuples_by_way(tables, contract.stream, batches, attribute).items()
        },
        "in training": _training_numbers(attribute, facts),
    }
    return LeverExplanation(
        "not planned yet" if way is None else PAST[way.way],
        because,
        {name: value for name, value in numbers.items() if value not in (None, {})},
        tuple(_remedies(contract, stated, way)),
    )


def treatment_in(run: Run, attribute: str) -> AttributeTreatment:
    """Return the treatment of an attribute in a run; an attribute without an entry is kept."""
    return next((way for way in run.ways if way.attribute == attribute), AttributeTreatment(attribute))


def _is_treated(way: AttributeTreatment) -> bool:
    return way.way != "keep"


def _runs(tables: Views, stream: str, batches: range) -> list[_RunOfBatch]:
    return [_RunOfBatch(row, run_from_row(row)) for row in scheme_rows(tables, stream, batches)]


def _certificates(tables: Views, stream: str, batches: range, attribute: str | None = None) -> list[Row]:
    """Return the certificates that validation wrote for the lever, in the order of the batches."""
    rows = tables.at("certificates").rows(stream=stream, lever="attributes", batch=batches).to_pylist()
    mine = [row for row in rows if attribute in (None, row["attribute"])]
    return sorted(mine, key=lambda row: int(row["batch"]))


def _rule(contract: StreamContract, attribute: Attribute, newest: Run | None) -> str:
    stated = own_settings(contract)
    if attribute.role != "measure":
        return f"role {attribute.role} is never rounded or shed: {UNTOUCHABLE[attribute.role]}"
    if contract.mode == "observe":
        return "mode observe plans and accounts, and drops nothing"
    own = own_bound(attribute)
    if 0 in ((own.error_pct, own.error) if own else (stated.error_pct,)):
        return "error_pct 0 allows no error, so only an exact synopsis could replace it"
    if newest is None:
        return "no scheme yet: the stream waits to be taken in, trained and shed"
    names = [name for name, _, _ in newest.ranking]
    position = "it was not ranked"
    if attribute.name in names:
        rank = names.index(attribute.name) + 1
        position = f"it ranks {rank} of {len(names)} by {stated.rank_by}"
    way = treatment_in(newest, attribute.name)
    if stated.plan == "prefix":
        return {
            "keep": f"{position}, and the rate fits without it",
            "round": f"{position}; to round it within its bound needs no synopsis and fewer bytes",
            "shed": f"{position}, and attributes are shed in that order until the rate fits the capacity",
        }[way.way]
    what = {"keep": "it is sent exact", "round": "it is rounded within its bound"}.get(way.way)
    if what is None:
        what = "its synopsis is sent instead" if way.sent else "its synopsis is kept at the source"
    return f"this plan loses least of those that fit the capacity: {what}; {position}"


def _scheme_numbers(contract: StreamContract, attribute: str, shed: Sequence[_RunOfBatch]) -> dict[str, Any]:
    """Return the numbers behind the newest scheme."""
    if not shed:
        return {}
    run, row = shed[-1].run, shed[-1].row
    found: dict[str, Any] = {
        "newest scheme": f"batch {row['batch']}, seq {run.from_seq:,} to {run.to_seq:,}",
        "rank": None,
        "width": None,
        "rate": f"{format_rate(run.rate_kbps)} offered, {format_rate(run.planned_kbps)} planned, "
        f"{format_rate(run.capacity_kbps)} allowed, {format_rate(run.shortfall_kbps)} too much",
    }
    for rank, (name, score, width_bits) in enumerate(run.ranking, start=1):
        if name == attribute:
            by = own_settings(contract).rank_by
            found["rank"] = f"{rank} of {len(run.ranking)} (score {score:.4g}, {by})"
            found["width"] = {"bits a tuple": width_bits}
    return found


def _bound_numbers(attribute: str, facts: Facts | None, certificates: Sequence[Row]) -> dict[str, Any]:
    """Return the trained threshold; without one, the bound of the last certificate."""
    threshold = facts.value(kinds.THRESHOLD, attribute) if facts is not None else None
    if threshold is not None:
        source = f" (from {str(threshold['source']).replace('_', ' ')})"
        return {"bound": _bounds_by_unit(threshold, source)}
    return {"bound": _bounds_by_unit(certificates[-1], "")} if certificates else {}


def _bounds_by_unit(row: Mapping[str, Any], source: str) -> dict[str, float]:
    """Return a bound by its unit: per cent of the value, the attribute's own unit, or both.

    >>> _bounds_by_unit({"error_pct": None, "error": 0.5}, " (from contract)")
    {'in its own unit (from contract)': 0.5}
    """
    units = {"%": row["error_pct"], "in its own unit": row.get("error")}
    return {f"{unit}{source}": float(bound) for unit, bound in units.items() if bound is not None}


def _certificate_numbers(certificates: Sequence[Row]) -> dict[str, Any]:
    if not certificates:
        return {}
    last = certificates[-1]
    found: dict[str, Any] = {
        "worst error": _error_words(last, certificates, "max_error", max),
    }
    if last["mean_error_pct"] is not None:
        found["mean error"] = _error_words(last, [last], "mean_error", max)
    if last["stored_share_pct"] is not None:
        found["stored"] = {"% of shed values": last["stored_share_pct"]}
    found["outside bound"] = sum(int(row["violations"]) for row in certificates)
    if all(row.get("offered_values") is not None for row in certificates):
        offered, held, lost = (
            sum(int(row[f"{name}_values"]) for row in certificates) for name in ("offered", "source", "lost")
        )
        absent = 100.0 * (held + lost) / max(1, offered)
        found["at the destination"] = {"% present within its bound": 100.0 - absent, "% absent": absent}
    return found


def _error_words(
    bound: Row, certificates: Sequence[Row], column: str, of: Callable[[Iterable[float]], float]
) -> dict[str, float]:
    """Return an error in each unit in which its bound is stated, so that both can be compared."""
    found = {}
    if bound["error_pct"] is not None:
        found["%"] = of(float(row[f"{column}_pct"] or 0.0) for row in certificates)
    if bound.get("error") is not None:
        found["in its own unit"] = of(float(row[column] or 0.0) for row in certificates)
    return found


def _training_numbers(attribute: str, facts: Facts | None) -> dict[str, Any] | None:
    """Return the training measurements on which the choice of the treatment is based."""
    if facts is None or (kinds.MODEL, attribute) not in facts.facts:
        return None
    evidence = facts.facts[kinds.MODEL, attribute].evidence
    words = {
        "rows": "rows",
        "column_bytes": "bytes as a column",
        "packed_bytes": "bytes as a synopsis",
        "rounded_bytes": "bytes rounded",
    }
    return {said: evidence[name] for name, said in words.items() if evidence.get(name) is not None}


def _tuples_by_way(tables: Views, stream: str, batches: range, attribute: str) -> dict[str, int]:
    """Return the number of tuples by treatment of the attribute, from the ledger."""
    rows = tables.at("ledger").rows(
        ["kept", "rounded", "shed"], scope="stream", subject=stream, stage="attributes", unit="values",
        dimension_kind="attribute", dimension=attribute, batch=batches,
    ).to_pylist()  # fmt: skip
    totals = {name: sum(int(row[name]) for row in rows) for name in ("kept", "rounded", "shed")}
    found = {
        "keep": totals["kept"] - totals["rounded"],
        "round": totals["rounded"],
        "shed": totals["shed"],
    }
    return {way: count for way, count in found.items() if count}


def _remedies(
    contract: StreamContract, attribute: Attribute, way: AttributeTreatment | None
) -> Iterator[str]:
    file = f"schemas/streams/{contract.stream}.yaml"
    if attribute.role == "measure":
        yield f"exempt it: role: protected on {attribute.name} in {file}"
        yield f"allow a smaller error: error_pct: 1 on {attribute.name} (0: exact)"
    if attribute.role == "protected":
        yield f"let it be shed: role: measure on {attribute.name} in {file}"
    if way is not None and way.way == "shed":
        yield f"recover it: spillway recover {contract.stream} --attributes {attribute.name}"


def draw_charts(contract: StreamContract, facts: Facts | None, tables: Views) -> Iterator[Picture]:
    """Yield the charts: recovered and original values, thresholds, rate and capacity, treatments over time."""
    batches = last_batches(tables, contract.stream)
    shed = _runs(tables, contract.stream, batches)
    if not shed:
        return
    certificates = _certificates(tables, contract.stream, batches)
    yield from _samples(contract, shed, certificates, tables)
    yield from _thresholds(facts)
    yield _rates([one.run for one in shed])
    yield from _ways(contract, [one.run for one in shed])


def _thresholds(facts: Facts | None) -> Iterator[Picture]:
    """Yield the chart of the stored share by threshold, which shows why the thresholds were chosen."""
    lines, chosen = [], set()
    for name, fact in sorted(facts.of(kinds.THRESHOLD).items()) if facts is not None else ():
        drawn = fact.evidence
        points = list(zip(drawn.get("error_pct", ()), drawn.get("stored_share_pct", ()), strict=True))
        if len(points) > 1 and fact.value["error_pct"] is not None:
            error_pct = float(fact.value["error_pct"])
            chosen.add(error_pct)
            shown = [(error, share) for error, share in points if error <= PLOTTED_THRESHOLDS_PCT]
            lines.append({"name": f"{name} (E = {error_pct:.3g} %)", "points": shown})
    if lines:
        one = next(iter(chosen))
        mark = {"mark": (one, f"E = {one:.3g} %")} if len(chosen) == 1 else {}
        yield Picture(
            "Stored share against threshold",
            "lines",
            {"lines": lines, "x": "threshold E, %", "y": "stored share, %", "from_zero": True, **mark},
            "Trained on the first tuples, last-value synopsis.",
        )


def _rates(runs: Sequence[Run]) -> Picture:
    """Return the chart of rate and capacity, run by run."""
    lines = []
    for style, name, of in (
        ("offered", "offered", "rate_kbps"),
        ("planned", "under the scheme", "planned_kbps"),
        ("capacity", "its part of the channel", "capacity_kbps"),
    ):
        points = [(float(at), getattr(run, of)) for run in runs for at in (run.from_seq, run.to_seq)]
        lines.append({"name": name, "style": style, "points": points, "steps": True})
    shortfall = max(run.shortfall_kbps for run in runs)
    over = f" Falls short by up to {shortfall:.3g} kbps." if shortfall else ""
    return Picture(
        "Rate against capacity",
        "lines",
        {"lines": lines, "x": "seq", "y": "kbps", "from_zero": True},
        f"Widths as written, compressed.{over}",
        wide=True,
    )


def _ways(contract: StreamContract, runs: Sequence[Run]) -> Iterator[Picture]:
    """Yield the timeline of the treatment of each attribute."""
    rows = [(name, _treatment_spans(runs, name)) for name in contract.sheddable]
    windows, evaluations = sum(run.windows for run in runs), sum(run.evaluations for run in runs)
    # if the hits of one run were not measured, the sum would be wrong
    measured = all(run.hits >= 0 for run in runs)
    hits = sum(run.hits for run in runs)
    said = f"{hits:,} hits, {windows - hits:,} misses" if measured else "not measured"
    if rows:
        yield Picture(
            "Kept, rounded and shed over time",
            "timeline",
            {"rows": rows, "x": "seq", "legend": PAST},
            f"{windows:,} windows, {evaluations:,} of them evaluated; {said}.",
            wide=True,
        )


def _treatment_spans(runs: Sequence[Run], attribute: str) -> list[tuple[float, float, str, str]]:
    """Return (first seq, last seq, treatment, text) of an attribute; adjacent runs with one treatment are merged."""
    found: list[tuple[float, float, str, str]] = []
    for run in runs:
        way = treatment_in(run, attribute)
        if found and found[-1][2] == way.way:
            found[-1] = (found[-1][0], float(run.to_seq), way.way, found[-1][3])
        else:
            words = f"{attribute}, seq {run.from_seq} to {run.to_seq}: {way.way}"
            words += f"; {way.reason}" if way.reason else ""
            found.append((float(run.from_seq), float(run.to_seq), way.way, words))
    return found


def _samples(
    contract: StreamContract, shed: Sequence[_RunOfBatch], certificates: Sequence[Row], tables: Views
) -> Iterator[Picture]:
    """Yield charts of the attributes with the largest errors: the last tuples of the busiest key that raw still has."""
    totals: dict[str, tuple[float, int]] = {}
    for row in certificates:
        changed = int(row["shed_values"]) + int(row["rounded_values"])
        error, values = totals.get(row["attribute"], (0.0, 0))
        totals[row["attribute"]] = error + changed * (row["mean_error_pct"] or 0.0), values + changed
    order = sorted(totals.items(), key=lambda pair: (-pair[1][0], -pair[1][1], pair[0]))
    most = [name for name, (_, values) in order if values]
    certified = {row["batch"] for row in certificates}
    recovered = [one for one in shed if one.row["batch"] in certified]
    for name in most[:PLOTTED_ATTRIBUTES]:
        if name in contract.names:
            yield from _sample(contract, name, recovered, tables)


def _sample(
    contract: StreamContract, attribute: str, shed: Sequence[_RunOfBatch], tables: Views
) -> Iterator[Picture]:
    days = sorted({one.row["batch_date"] for one in shed})
    raw = tables.at("raw", contract.stream).stored_files(batch_date=days)
    back = tables.at("recovered", contract.stream).stored_files(batch_date=days)
    times = [one.name for one in contract.attributes if one.role == "order" and one.type == "timestamp"][:1]
    names = list(dict.fromkeys([*contract.keys, *times, attribute]))
    bounds = [attribute + BOUND_SUFFIX, attribute + OWN_BOUND_SUFFIX]
    for last in reversed([one for one in shed if treatment_in(one.run, attribute).way != "keep"]):
        end = last.run.to_seq
        if not raw.reader_for(last.row["batch_date"])([], end - READ_TUPLES, end).num_rows:
            continue  # raw data of these rows is deleted
        near = [one.row["batch_date"] for one in shed if end - READ_TUPLES <= one.run.to_seq <= end]
        pair = [
            pa.concat_tables(
                [stored.reader_for(day)(columns, end - READ_TUPLES, end) for day in sorted(set(near))],
                promote_options="permissive",
            )
            for stored, columns in ((raw, names), (back, [attribute, *bounds]))
        ]
        yield from _recovery_chart(contract, attribute, next(iter(times), None), *pair)
        return


def _recovery_chart(
    contract: StreamContract, attribute: str, time: str | None, raw: pa.Table, back: pa.Table
) -> Iterator[Picture]:
    """Yield the chart of original and recovered values over time, with the bound of each value.

    `time`: the attribute with the event time; None: the values are drawn over seq.
    """
    original = raw.rename_columns([*raw.column_names[:-1], "original"])
    back = back.rename_columns(["seq", "recovered", "bound", "own"])
    for name in ("bound", "own"):  # an absent column has the type null, which a join does not accept
        place = back.column_names.index(name)
        back = back.set_column(place, name, back[name].cast(pa.float64()))
    joined = original.join(back, "seq", join_type="inner")
    kind = joined.schema.field("original").type
    if joined.num_rows == 0 or not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return
    joined, key = _tuples_of_busiest_key(contract, joined.sort_by("seq"))
    joined = joined.slice(max(joined.num_rows - PLOTTED_TUPLES, 0))
    is_time = time is not None and not joined[time].null_count
    if is_time:
        joined = joined.sort_by(time)
        x = [float(at.timestamp()) for at in joined[time].to_pylist()]
    else:
        x = [float(seq) for seq in joined["seq"].to_pylist()]
    truth, given = joined["original"].to_pylist(), joined["recovered"].to_pylist()
    bounds = [
        None if value is None else 0.0 if (off := _largest_error(value, *both)) is None else off
        for value, *both in zip(given, joined["bound"].to_pylist(), joined["own"].to_pylist(), strict=True)
    ]
    used = _used_of_bounds(truth, given, bounds)
    unit = contract.attribute(attribute).unit or ""
    data = {"x": x, "original": truth, "recovered": given, "bound": bounds, "y": attribute, "unit": unit}
    yield Picture(
        f"{contract.stream}.{attribute}: the largest error is {used:.0f} % of its bound",
        "recovery",
        data | {"is_time": is_time, "used_pct": used},
        f"The last {joined.num_rows:,} rows of {key}. Below: the same on the scale of the error.",
        section="values",
    )


def _used_of_bounds(
    truth: Sequence[float | None], given: Sequence[float | None], bounds: Sequence[float | None]
) -> float:
    """Return the largest error in per cent of its bound; values without a bound are exact.

    >>> _used_of_bounds([1.0, 2.0, None], [1.5, 2.0, None], [1.0, 0.0, None])
    50.0
    """
    shares = [
        100.0 * abs(given_one - true_one) / bound
        for true_one, given_one, bound in zip(truth, given, bounds, strict=True)
        if true_one is not None and given_one is not None and bound
    ]
    return max(shares, default=0.0)


def _largest_error(value: float, bound_pct: float | None, bound: float | None) -> float | None:
    """Return the largest distance of the truth from a recovered value; None if it has no bound.

    >>> _largest_error(2.0, math.nan, 2.0), _largest_error(50.0, 2.0, None), _largest_error(5.0, None, None)
    (2.0, 1.0, None)
    """
    if bound is not None:
        return bound
    return None if bound_pct is None or not math.isfinite(bound_pct) else abs(value) * bound_pct / 100


def _tuples_of_busiest_key(contract: StreamContract, joined: pa.Table) -> tuple[pa.Table, str]:
    """Return the tuples of the key that has most tuples, and the name of that key."""
    if not contract.keys:
        return joined, contract.stream
    keys = pc.binary_join_element_wise(*(pc.cast(joined[name], pa.string()) for name in contract.keys), "/")
    busiest = max(pc.value_counts(keys).to_pylist(), key=lambda pair: pair["counts"])["values"]
    return joined.filter(pc.equal(keys, busiest)), str(busiest)
