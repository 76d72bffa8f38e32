"""What happens to an attribute and why: what each lever of its stream tells of it, and what every stage did.

Levers speak for themselves, in the order in which they work on the stream; one that tells nothing still shows in the
stages, which come from the ledger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spillway.contracts import StreamContract, load_contracts
from spillway.contracts.shapes import suggest
from spillway.errors import UsageError
from spillway.ledger import TOTAL
from spillway.levers.protocol import Told
from spillway.pipeline.facts import newest_facts
from spillway.registry import lever
from spillway.store.tables import Tables

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """What a stage did to one unit of counting, all batches added up; `attribute` is empty for the whole stage."""

    stage: str
    unit: str
    attribute: str
    batches: int
    offered: int
    handed_on: int
    rounded: int
    shed: int
    recoverable: int
    lost: int


@dataclass(frozen=True)
class Part:
    """What one lever tells of the attribute, and the version of its facts in force; None where it has none."""

    lever: str
    facts: int | None
    told: Told | None


@dataclass(frozen=True)
class Explanation:
    """Everything that led to what is done to one attribute, and how it and its stream have fared so far."""

    stream: str
    attribute: str
    role: str
    levers: tuple[Part, ...]
    stages: tuple[Stage, ...]


def explain(tables: Tables, stream: str, attribute: str) -> Explanation:
    """Explain one attribute, from what its stream's levers tell and from the ledger."""
    streams = load_contracts(tables.settings.schemas).streams
    if stream not in streams:
        names = sorted(streams)
        raise UsageError(
            f"`stream` must be one of {', '.join(names)}, got {stream!r}; {suggest(stream, names)}"
        )
    contract = streams[stream]
    if attribute not in contract.names:
        raise UsageError(
            f"`attribute` must be one of {contract.stream}'s ({', '.join(contract.names)}), got {attribute!r}; "
            f"{suggest(attribute, contract.names)}"
        )
    ledger = tables.at("ledger").rows(scope="stream", subject=contract.stream).to_pylist()
    mine = [row for row in ledger if row["dimension_kind"] == "attribute" and row["dimension"] == attribute]
    whole = [row for row in ledger if row["dimension_kind"] == TOTAL]
    return Explanation(
        contract.stream,
        attribute,
        contract.attribute(attribute).role,
        tuple(_part(tables, contract, attribute, name) for name in contract.lever_names),
        tuple(stages([*whole, *mine])),
    )


def _part(tables: Tables, contract: StreamContract, attribute: str, name: str) -> Part:
    facts = newest_facts(tables, contract.stream, name)
    told = lever(name).told(contract, attribute, facts, tables)
    return Part(name, None if facts is None else facts.version, told)


def stages(ledger: Iterable[Row]) -> list[Stage]:
    """Rows of the ledger added up over batches, in the order of the way; what is beside the way comes last.

    Contracts may order levers differently from batch to batch: a stage stands where it stood last.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in ledger:
        attribute = row["dimension"] if row["dimension_kind"] == "attribute" else ""
        found.setdefault((row["stage"], row["unit"], attribute), []).append(row)
    place = {
        stage: max(rows, key=lambda row: int(row["batch"]))["ordinal"]
        for (stage, _, _), rows in found.items()
    }
    ordered = sorted(found, key=lambda key: (place[key[0]] < 0, place[key[0]], *key))
    return [_stage(*key, found[key]) for key in ordered]


def _stage(stage: str, unit: str, attribute: str, rows: Sequence[Row]) -> Stage:
    names = ("offered", "kept", "rounded", "shed", "recoverable", "lost")
    batches = len({row["batch"] for row in rows})
    return Stage(stage, unit, attribute, batches, *(sum(int(row[name]) for row in rows) for name in names))
