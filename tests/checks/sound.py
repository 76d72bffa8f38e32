"""A sound stream in every curated table, as plain rows, so that a test can spoil one thing at a time."""

from __future__ import annotations

import copy
from datetime import UTC, date, datetime
from typing import Any

from spillway.contracts import StreamContract, read_stream

DAY = date(2026, 1, 2)
NOW = datetime(2026, 1, 3, tzinfo=UTC)
ROWS = 6
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
            **fields,
        }
    )


def sound_stream(stream: str) -> Rows:
    """One batch of `ROWS` tuples, taken in, shed, recovered and certified without fault."""
    at = {"stream": stream, "batch": 1, "batch_date": DAY}
    counts = ("rounded", "shed", "deduplicated", "rejected", "recoverable", "lost")
    zero = dict.fromkeys((*counts, "bytes_offered", "bytes_kept", "bytes_synopsis"), 0)
    counted = {**at, **zero, "compute_seconds": 0.1}
    tuples = [
        {
            "seq": seq,
            "batch": 1,
            "batch_date": DAY,
            "scheme": 1,
            "site": "ab"[seq % 2],
            "at": NOW,
            "temp": None,
        }
        for seq in range(ROWS)
    ]
    return {
        "batches": [
            at
            | {
                "status": "done",
                "first_seq": 0,
                "last_seq": ROWS - 1,
                "rows": ROWS,
                "rejected": 0,
                "deduplicated": 0,
            }
            | {
                "models": {"cycle": 1},
                "seconds_covered": 1.0,
                "run_id": "r",
                "created_at": NOW,
                "updated_at": NOW,
                "capacity_kbps": 2.0,
            }
            | {"files": [("a.json", 9, f"digest of {stream}", ROWS, 0, "taken", NOW)]}
        ],
        "models": [
            {"stream": stream, "fact": "cycle", "subject": "", "version": 1, "value": "{}", "evidence": "{}"}
            | {"trained_from_seq": 0, "trained_to_seq": 5, "created_at": NOW}
        ],
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
            | {"state": "{}"}
            | {"attributes": [("site", "keep", 1, None, None), ("temp", "shed", 1, "last", "lowest rank")]}
            | {"ranking": [("temp", 0.5, 32.0)]}
            for run in (0, 1)
        ],
        "ledger": [
            counted
            | {"stage": "ingest", "unit": "rows", "attribute": "", "reason": "", "offered": 6, "kept": 6},
            counted
            | {"stage": "transmitted", "unit": "rows", "attribute": "", "reason": "", "offered": 6, "kept": 6}
            | {"bytes_offered": 300, "bytes_kept": 250},
            counted
            | {
                "stage": "attributes",
                "unit": "values",
                "attribute": "temp",
                "reason": "",
                "offered": 6,
                "kept": 0,
            }
            | {"shed": 6, "recoverable": 6},
        ],
        "transmitted": copy.deepcopy(tuples),
        "recovered": [row | {"temp": 1.0, "temp__bound_pct": 2.0} for row in tuples],
        "synopsis": [
            at
            | {"stage": 1, "frame": 0, "attribute": "temp", "first_seq": 0, "last_seq": 5, "entries": 2}
            | {"shed_values": 6, "payload": b"packed"}
        ],
        "certificates": [
            at
            | {"attribute": "temp", "way": "shed", "error_pct": 2.0, "shed_values": 6, "rounded_values": 0}
            | {"stored_values": 2, "stored_share_pct": 33.3, "max_error_pct": 1.5, "mean_error_pct": 0.4}
            | {"worst_over_threshold": 0.75, "violations": 0, "column_bytes": 50, "wire_bytes": 0}
            | {"synopsis_bytes": 20, "created_at": NOW}
        ],
        "sketches": [
            at
            | {"kind": "count_min", "name": "temp", "attributes": ["temp"], "parameters": "{}", "seed": 1}
            | {"format_version": 1, "rows": ROWS, "digest": "d", "payload": b"packed"}
        ],
        "validations": [
            {
                "run_id": "r",
                "table": "ledger",
                "stream": stream,
                "batch_date": DAY,
                "expectation": "ledger_balances",
            }
            | {"success": True, "observed": "0", "expected": "0", "where_": None, "sentence": "it balances"}
            | {"validated_at": NOW}
        ],
    }
