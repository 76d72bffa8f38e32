"""Read and write the table `models`: the facts that each lever learned, with one version per training and lever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.errors import LiesElsewhere, RefusedElsewhere
from spillway.levers.protocol import Fact, Facts
from spillway.registry import lever
from spillway.store.tables import Tables


def load_facts(
    tables: Tables, stream: str, name: str, versions: Iterable[int] | None = None
) -> dict[int, Facts]:
    """Return the lever's facts of the stream by version: all versions, or only `versions`."""
    where: dict[str, Any] = {"stream": stream, "lever": name}
    if versions is not None:
        where["version"] = sorted(set(versions))
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in tables.at("models").rows(**where).to_pylist():
        rows.setdefault(int(row["version"]), []).append(row)
    return {version: _facts(stream, version, found) for version, found in sorted(rows.items())}


def newest_facts(tables: Tables, stream: str, name: str) -> Facts | None:
    """Return the facts in force: those of the newest version; None if the lever was never trained on the stream."""
    rows = tables.at("models").newest("version", stream=stream, lever=name).to_pylist()
    return _facts(stream, int(rows[0]["version"]), rows) if rows else None


def needed_facts(tables: Tables, stream: str, name: str, versions: Iterable[int]) -> dict[int, Facts]:
    """Return the facts of the versions that batches were shed with.

    If a version is missing, raise `LiesElsewhere`: without it, these batches cannot be recovered.
    """
    wanted = sorted(set(versions))
    found = load_facts(tables, stream, name, wanted)
    missing = set(wanted) - set(found)
    if missing:
        raise LiesElsewhere(
            f"{stream}: `models` must hold version {min(missing)} of {name}, which its batches were shed with, "
            "got none; restore the table"
        )
    return found


def untrained(tables: Tables, contract: StreamContract) -> list[str]:
    """Return the levers of the contract that need training and were never trained."""
    models = tables.at("models")
    return [
        name
        for name in contract.lever_names
        if lever(name).needs_training
        and not models.newest("version", ["version"], stream=contract.stream, lever=name).num_rows
    ]


def says_the_same(before: Facts, facts: Sequence[Fact]) -> bool:
    """Return whether a training found the values that are in force already; the evidence may differ."""
    values = {(one.fact, one.subject): json.loads(_json(one.value)) for one in facts}
    return values == {place: one.value for place, one in before.facts.items()}


@dataclass(frozen=True)
class Trained:
    """The facts of one training of a lever."""

    stream: str
    lever: str
    version: int
    span: tuple[int, int]
    """The first and the last `seq` of the rows that the lever was trained on."""
    facts: Sequence[Fact]


def save_facts(tables: Tables, trained: Sequence[Trained]) -> None:
    """Write the facts of trainings in one commit.

    Raise `ConcurrentRun` if another run has trained one of the streams meanwhile; then nothing is written.
    """
    now = utc_now()
    rows = [
        {
            "stream": one.stream,
            "lever": one.lever,
            "fact": fact.fact,
            "subject": fact.subject,
            "version": one.version,
            "value": _json(fact.value),
            "evidence": _json(fact.evidence),
            "trained_from_seq": one.span[0],
            "trained_to_seq": one.span[1],
            "created_at": now,
        }
        for one in trained
        for fact in one.facts
    ]
    if rows:
        tables.at("models").append(rows, unless_written={"stream": sorted({one.stream for one in trained})})


def _facts(stream: str, version: int, rows: Sequence[Mapping[str, Any]]) -> Facts:
    facts = {
        (row["fact"], row["subject"]): Fact(
            row["fact"],
            row["subject"],
            *(_read(stream, version, row, column) for column in ("value", "evidence")),
        )
        for row in rows
    }
    return Facts(version, facts, int(rows[0]["trained_from_seq"]), int(rows[0]["trained_to_seq"]))


def _read(stream: str, version: int, row: Mapping[str, Any], column: str) -> Any:
    try:
        return json.loads(row[column])
    except ValueError as problem:
        where = f"{stream}: models, {row['lever']} version {version}, {row['fact']} {row['subject']}".strip()
        raise RefusedElsewhere(
            column, "be JSON", row[column][:40], "restore the table, or train again", where
        ) from problem


def _json(value: Any) -> str:
    """Return a value as JSON. JSON has neither infinity nor NaN, so both are stored as null."""
    return json.dumps(_finite(value), default=_plain, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):  # np.float64 is one
        return None
    return value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
