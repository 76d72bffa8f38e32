"""A sound stream in every curated table, as plain rows, so that a test can spoil one thing at a time."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from spillway.batch import Batch, LandingFile
from spillway.checks import ExaminedRows
from spillway.checks.views import types_of
from spillway.contracts import StreamContract, read_stream
from spillway.ledger import LedgerRow
from spillway.levers.joins.checks import EXAMINED_PAIRS, check_pairs
from spillway.levers.joins.operands import Operand, SetFormat, encode_sets
from spillway.levers.joins.settings import JoinSettings, JoinSide
from spillway.levers.quality.checks import EXAMINED_ANSWER, check_answer
from spillway.levers.quality.scaled_answer import NO_INTERVAL
from spillway.store.schemas import table_contracts

DAY = date(2026, 1, 2)
NOW = datetime(2026, 1, 3, tzinfo=UTC)
ROWS = 6
SCHEME = ("scheme", "bigint", "number of the scheme")
Rows = dict[str, list[dict[str, Any]]]


def contract(stream: str, **fields: Any) -> StreamContract:
    """Sites that measure a temperature."""
    return read_stream(
        {
            "stream": stream,
            "channel": "uplink",
            "source": {"kind": "files", "format": "json"},
            "attributes": [
                {"name": "site", "type": "string", "role": "key"},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "temp", "type": "double", "role": "measure"},
            ],
            "sketches": [{"kind": "pair_count", "attributes": ["site", "temp"], "at_least": 1}],
            **fields,
        }
    )


def tuples(numbers: range = range(ROWS)) -> list[dict[str, Any]]:
    """Rows as they are in `raw`."""
    at = {"batch": 1, "batch_date": DAY, "at": NOW}
    return [at | {"seq": seq, "site": "ab"[seq % 2], "temp": 1.0} for seq in numbers]


def sound_stream(stream: str) -> Rows:
    """One batch of `ROWS` tuples, taken in, its temperatures shed, sent, recovered and certified without fault."""
    at = {"stream": stream, "batch": 1, "batch_date": DAY}
    fact = {"stream": stream, "lever": "attributes", "version": 1, "value": "{}", "evidence": "{}"}
    fact |= {"trained_from_seq": 0, "trained_to_seq": 5, "created_at": NOW}
    subjects = {"cycle": "", "ranking": "", "threshold": "temp", "attribute": "temp"}
    return {
        "batches": [sound_batch(stream).row()],
        "models": [fact | {"fact": kind, "subject": subject} for kind, subject in subjects.items()],
        "schemes": [
            at
            | {
                "run": run,
                "from_seq": 3 * run,
                "to_seq": 3 * run + 2,
                "scheme": 1,
                "windows": 2,
                "evaluations": 1,
            }
            | {"hits": 2, "rate_kbps": 3.0, "planned_kbps": 2.0, "capacity_kbps": 2.0, "shortfall_kbps": 0.0}
            | {"frame_origin": 0, "frame_tuples": 64, "model_version": 1, "reason": "the least deviation"}
            | {"attributes": [way("site", "keep"), way("temp", "shed", "lowest rank")], "state": "{}"}
            | {"ranking": [{"attribute": "temp", "score": 0.5, "width_bits": 32.0}]}
            for run in (0, 1)
        ],
        "ledger": [row.to_dict() for row in sound_ledger(stream)],
        "windows": [
            {
                "scope": "join",
                "subject": stream,
                "window": 7,
                "status": "done",
                "levers": ["meet"],
                "models": [],
            }
            | {"from_time": NOW, "to_time": NOW + timedelta(minutes=1), "created_at": NOW, "updated_at": NOW}
            | {"inputs": [{"stream": stream, "batch": 1}]}
        ],
        "raw": tuples(),
        "transmitted": [row | {"scheme": 1, "temp": None} for row in tuples()],
        "recovered": [row | {"scheme": 1, "temp__bound_pct": 2.0} for row in tuples()],
        "synopsis": [
            at
            | {"stage": 1, "frame": 0, "attribute": "temp", "first_seq": 0, "last_seq": 5, "entries": 2}
            | {"shed_values": 6, "payload": b"packed"}
        ],
        "sent_synopsis": [
            at
            | {"stage": 1, "frame": 0, "attribute": "wind", "first_seq": 0, "last_seq": 5, "entries": 1}
            | {"shed_values": 6, "payload": b"packed"}
        ],
        "sifters": [
            at
            | {"filter": 1, "model_version": 1, "partition": "one", "throttle": 1.0, "throttle_measured": 1.0}
            | {"fairness": 1.0, "quality_planned": 1.0, "quality": 1.0, "shortfall_kbps": 0.0}
            | {"reason": "all fits", "queries": "digest", "payload": b"packed"}
            | {"regions": [region(0, 0.0, 4, 4), region(-1, 0.0, 2, 2)]}
        ],
        "join_windows": [
            dict.fromkeys(_numbers("join_windows"), 0)
            | {"subject": stream, "window": 7, "batch_date": DAY, "updated_at": NOW}
            | {
                "left_rows": 3,
                "right_rows": 3,
                "possible": 9,
                "compared": 4,
                "budget_steps": 5.0,
                "sampled": 2,
            }
            | {"missed": 5.0, "missed_low": 3.0, "missed_high": 8.0, "pairs": 2, "utility": 2.0}
        ],
        "joined": [pair(0, 1), pair(2, 1)],
        "results": [
            {"window": 7, "batch_date": DAY, "row": 1, "sic": 0.75, "coverage": 0.75, "n": 9}
            | {"n__estimate": 9.0, "n__low": 8.0, "n__high": 10.0, "n__no_interval": None}
        ],
        "coverage": [
            dict.fromkeys(_numbers("coverage"), 0)
            | {"subject": stream, "window": 7, "batch_date": DAY, "capacity_group": "desk", "policy": "fair"}
            | {"from_time": NOW, "to_time": NOW + timedelta(minutes=1), "updated_at": NOW, "relative": True}
            | {
                "floor": 0.5,
                "sic": 0.75,
                "portions_offered": 4,
                "portions_kept": 3,
                "produced": 6,
                "arrived": 6,
            }
            | {"tuples_kept": 4, "tuples_shed": 2, "rows": 1}
        ],
        "certificates": [
            at
            | {
                "lever": "attributes",
                "attribute": "temp",
                "treatment": "shed",
                "error_pct": 2.0,
                "shed_values": 6,
            }
            | {"rounded_values": 0, "stored_values": 2, "stored_share_pct": 33.3, "max_error_pct": 1.5}
            | {"mean_error_pct": 0.4, "worst_over_threshold": 0.75, "violations": 0, "column_bytes": 50}
            | {"wire_bytes": 0, "synopsis_bytes": 20, "created_at": NOW}
        ],
        "sketches": [
            at
            | {"kind": "count_min", "name": "temp", "attributes": ["temp"], "parameters": "{}", "seed": 1}
            | {"format_version": 1, "rows": ROWS, "digest": "d", "payload": b"packed"}
        ],
        "daily_sketches": [
            {
                "stream": stream,
                "batch": 1,
                "batch_date": DAY,
                "kind": "count_min",
                "name": "temp",
                "batches": 2,
            }
            | {"attributes": ["temp"], "parameters": "{}", "seed": 1, "format_version": 1, "rows": 2 * ROWS}
            | {"made_of": "digest", "payload": b"packed"}
        ],
        "exemptions": [
            {"stream": stream, "until": NOW + timedelta(days=1), "reason": "audit", "created_at": NOW}
        ],
        "alerts": [
            {
                "hook": "desk",
                "key": f"about {stream}",
                "event": "refusal",
                "stream": stream,
                "status": "delivered",
            }
            | {"sentence": "3 of 9 records were refused", "tries": 1, "tried_at": NOW}
        ],
        "validations": [
            {"run_id": "r", "table": "ledger", "stream": stream, "batch_date": DAY, "success": True}
            | {"expectation": "ledger_balances", "observed": "0", "expected": "0", "where_": None}
            | {"sentence": "it balances", "validated_at": NOW}
        ],
    }


def pair(left: int, right: int) -> dict[str, Any]:
    """A pair of two of the rows of `joined_rows`."""
    times = {"left_time": NOW + timedelta(seconds=left), "right_time": NOW + timedelta(seconds=right)}
    bounds = {"left_bound_pct": None, "right_bound_pct": None}
    numbers = {"left_seq": left, "right_seq": right, "utility": 1.0, "weight": 1.0, "sic": 0.25}
    return {"window": 7, "batch_date": DAY} | times | bounds | numbers


JOIN = JoinSettings(
    left=JoinSide(attribute="site", lasts_seconds=2.0), right=JoinSide(attribute="site", lasts_seconds=2.0)
)


def joined_rows() -> Operand:
    """Either side of the join: a row a second, every second of `a`, the third and the last of `b`."""
    sites = pa.array(["a", "a", "a", "b", "a", "b"])
    sets, _ = encode_sets(sites, sites, SetFormat())
    begin = round(NOW.timestamp() * 1_000_000)
    return Operand(begin + 1_000_000 * np.arange(ROWS), np.arange(ROWS), sets, np.zeros(ROWS, np.int64))


def examined_results(table: str, stream: str, rows: list[dict[str, Any]]) -> ExaminedRows:
    """Results of the join or query as its lever examines them: of window 7, of a minute."""
    base = table_contracts()[table].arrow_schema
    own = [
        (name, pa.string() if name.endswith(NO_INTERVAL) else pa.float64())
        for name in (rows[0] if rows else ())
        if name not in base.names
    ]
    schema = pa.schema([*((field.name, field.type) for field in base), *own])
    given = pa.Table.from_pylist(rows, schema)
    if table == "joined":
        span = (NOW, NOW + timedelta(minutes=1))
        sides = (joined_rows(), joined_rows())
        found = check_pairs(JOIN, given, span, JOIN.lasts_micros, sides, with_itself=False)
        said = EXAMINED_PAIRS
    else:
        found, said = check_answer(given), EXAMINED_ANSWER
    place = [("stream", pa.string()), ("window", pa.int64()), ("batch_date", pa.date32())]
    one = {"stream": stream, "window": 7, "batch_date": DAY, **found}
    return ExaminedRows(types_of(given.schema), pa.Table.from_pylist([one], pa.schema([*place, *said])))


def region(number: int, threshold: float, offered: int, kept: int) -> dict[str, Any]:
    """What became of the rows of a region."""
    found = {
        "bounds": "all",
        "frequency": 1.0,
        "utility": 1.0,
        "queried": True,
        "sampled_rows": 2,
        "marked": 0,
    }
    return {"region": number, "threshold": threshold, "offered": offered, "kept": kept} | found


def _numbers(table: str) -> list[str]:
    columns = table_contracts()[table].columns
    return [column.name for column in columns if column.type in ("bigint", "double")]


def sound_batch(stream: str) -> Batch:
    """The batch of the stream."""
    return Batch(
        stream,
        1,
        DAY,
        "done",
        (LandingFile("a.json", 9, f"digest of {stream}", ROWS, 0, "ingested", NOW),),
        0,
        ROWS - 1,
        "r",
        NOW,
        NOW,
        rows=ROWS,
        rejected=0,
        deduplicated=0,
        levers=("attributes",),
        models={"attributes": 1},
        seconds_covered=1.0,
        capacity_kbps=2.0,
    )


def sound_ledger(stream: str) -> list[LedgerRow]:
    """Taken in, shed value by value, sent."""
    rows = LedgerRow("stream", stream, 1, DAY, "intake", 0, "rows", offered=6, kept=6)
    whole = replace(rows, stage="attributes", ordinal=1)
    values = replace(whole, unit="values", offered=12, kept=6, shed=6, recoverable=6)
    return [
        rows,
        whole,
        values,
        replace(values, dimension_kind="attribute", dimension="temp", offered=6, kept=0),
        replace(
            values, dimension_kind="attribute", dimension="mood", offered=6, kept=6, shed=0, recoverable=0
        ),
        replace(rows, stage="sent", ordinal=2, bytes_offered=300, bytes_kept=250),
        replace(values, stage="sent", ordinal=2, offered=6, kept=6, shed=0, recoverable=0),
        comparisons(stream),
    ]


def comparisons(stream: str) -> LedgerRow:
    """Of the join of the same name."""
    return LedgerRow("join", stream, 7, DAY, "joins", 1, "comparisons", offered=4, kept=4)


def thinned_stream(stream: str) -> Rows:
    """The sound stream behind a lever that puts rows 1 and 3 aside to give them back, and drops row 5 for good."""
    rows = sound_stream(stream)
    thin = LedgerRow(
        "stream", stream, 1, DAY, "thin", 1, "rows", offered=6, kept=3, shed=3, recoverable=2, lost=1
    )
    values = LedgerRow(
        "stream", stream, 1, DAY, "attributes", 2, "values", offered=6, kept=3, shed=3, recoverable=3
    )
    three = replace(thin, stage="attributes", ordinal=2, offered=3, shed=0, recoverable=0, lost=0)
    rows["ledger"] = [
        row.to_dict()
        for row in (
            sound_ledger(stream)[0],
            thin,
            replace(
                thin,
                dimension_kind="reason",
                dimension="every second",
                reason="room",
                shed=2,
                lost=0,
                offered=5,
            ),
            replace(
                thin,
                dimension_kind="reason",
                reason="too old",
                offered=1,
                kept=0,
                shed=1,
                recoverable=0,
                lost=1,
            ),
            three,
            values,
            replace(values, dimension_kind="attribute", dimension="temp", offered=3, kept=0),
            replace(
                values, dimension_kind="attribute", dimension="mood", offered=3, kept=3, shed=0, recoverable=0
            ),
            replace(three, stage="sent", ordinal=3, bytes_kept=200),
            comparisons(stream),
        )
    ]
    rows["batches"][0]["levers"] = ["thin", "attributes"]
    rows["transmitted"] = [row for row in rows["transmitted"] if row["seq"] % 2 == 0]
    rows["recovered"] = [row for row in rows["recovered"] if row["seq"] != 5]
    for row in rows["recovered"]:
        row["scheme"] = 1 if row["seq"] % 2 == 0 else None
    rows["certificates"][0]["shed_values"] = 3
    aside = {"lever": "thin", "attribute": "", "treatment": "shed", "shed_values": 2, "stored_values": 0}
    rows["certificates"].append(copy.deepcopy(rows["certificates"][0]) | aside)
    return rows


def sifted_stream(stream: str) -> Rows:
    """The same where the lever is a sifter, whose one region lost half of its rows."""
    rows = thinned_stream(stream)
    for row in (*rows["ledger"], *rows["certificates"]):
        row |= {name: "sifters" for name in ("stage", "lever") if row.get(name) == "thin"}
    rows["batches"][0]["levers"] = ["sifters", "attributes"]
    rows["sifters"][0]["regions"] = [region(0, 0.5, 6, 3)]
    rows["sifted_rows"] = tuples(range(2))
    return rows


def way(attribute: str, done: str, reason: str | None = None) -> dict[str, Any]:
    """How one attribute travels."""
    return {"attribute": attribute, "treatment": done, "stage": 1, "predictor": None, "reason": reason}


def arrow(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """The rows as the table holds them; nulls are let in everywhere, for tests spoil what they like."""
    schema = table_contracts()[table].arrow_schema
    plain = pa.schema([pa.field(field.name, field.type) for field in schema])
    return pa.Table.from_pylist([_as_stored(row) for row in rows], plain)


def _as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """A row of `batches` holds files as tuples and models as a mapping: structs and pairs for Arrow."""
    if "files" not in row:
        return row
    names = [item.name for item in fields(LandingFile)]
    files = [dict(zip(names, file, strict=True)) for file in row["files"]]
    return row | {"files": files, "models": list(row["models"].items())}
