"""Read and write the table `models`: the facts that each lever learned, with one version per training and lever."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow.compute as pc

from spillway.clock import utc_now
from spillway.contracts import StreamContract
from spillway.errors import ExternalFault, InvalidExternalValue
from spillway.levers.protocol import Fact, Facts
from spillway.registry import lever
from spillway.store.tables import Table, Tables


def load_facts(
    tables: Tables, stream: str, name: str, versions: Iterable[int] | None = None
) -> dict[int, Facts]:
    """Return the lever's facts of the stream by version: all versions, or only `versions`."""
    models = tables.at("models")
    if versions is None:
        versions = models.rows(["version"], stream=stream, lever=name)["version"].to_pylist()
    found = {}
    for version in sorted(set(versions)):
        where = {"stream": stream, "lever": name, "version": version}
        facts = models.make_once((stream, name, version), partial(_read_facts, where=where), **where)
        if facts is not None:
            found[version] = facts
    return found


def _read_facts(models: Table, where: Mapping[str, Any]) -> Facts | None:
    rows = models.rows(**where).to_pylist()
    return _facts(where["stream"], where["version"], rows) if rows else None


def newest_facts(tables: Tables, stream: str, name: str) -> Facts | None:
    """Return the facts in force: those of the newest version; None if the lever was never trained on the stream."""
    newest = tables.at("models").newest("version", ["version"], stream=stream, lever=name)["version"]
    version = pc.max(newest).as_py()
    return None if version is None else load_facts(tables, stream, name, [version]).get(version)


def needed_facts(tables: Tables, stream: str, name: str, versions: Iterable[int]) -> dict[int, Facts]:
    """Return the facts of the versions that batches were shed with.

    If a version is missing, raise `ExternalFault`: without it, these batches cannot be recovered.
    """
    wanted = sorted(set(versions))
    found = load_facts(tables, stream, name, wanted)
    missing = set(wanted) - set(found)
    if missing:
        raise ExternalFault(
            f"{stream}: `models` must hold version {min(missing)} of {name}, which its batches were shed with, "
            "got none; restore the table"
        )
    return found


def untrained_levers(tables: Tables, contract: StreamContract) -> list[str]:
    """Return the levers of the contract that need training and were never trained."""
    models = tables.at("models")
    return [
        name
        for name in contract.lever_names
        if lever(name).needs_training and not models.has_rows(stream=contract.stream, lever=name)
    ]


def has_same_values(before: Facts, facts: Sequence[Fact]) -> bool:
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
        raise InvalidExternalValue(
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
