"""Explain what happens to an attribute, a join or a query, and why.

Each lever explains itself, in the order in which the levers process the stream. A lever without an explanation
still appears in the list of stages, which comes from the ledger alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spillway.clock import utc_now
from spillway.contracts import Contracts, StreamContract, load_usable
from spillway.contracts.fields import suggest
from spillway.errors import ContractError, UsageError
from spillway.ledger import Row
from spillway.levers.protocol import LeverExplanation
from spillway.levers.windows import WindowLever
from spillway.records.rejects import absent_column, is_repeated_hour, repeated_hour
from spillway.registry import lever
from spillway.report.recent import RecentBatches, last_windows, read_recent
from spillway.report.text import StageSum, stages_of
from spillway.report.trade_off import ChannelTradeOff, load_trade_off
from spillway.store.tables import Tables
from spillway.streams.exemptions import exempt_streams
from spillway.streams.facts import newest_facts
from spillway.workloads.windows import search_problem


@dataclass(frozen=True)
class VersionedExplanation:
    """The explanation of one lever, and the version of its facts in force; None if it has no facts."""

    lever: str
    facts: int | None
    explanation: LeverExplanation | None


@dataclass(frozen=True)
class Explanation:
    """Everything that determines the treatment of one attribute, and the figures of the attribute so far."""

    stream: str
    attribute: str
    role: str
    levers: tuple[VersionedExplanation, ...]
    stages: tuple[StageSum, ...]
    trade: ChannelTradeOff | None = None
    """The trade-off of the stream's channel; None if there is no data to measure."""
    exempt: str | None = None
    """Why nothing of the stream is shed from its next batch on, if it is exempt; this overrides everything above."""
    notes: tuple[str, ...] = ()
    """Sentences on irregular values that were accepted."""


def find_stream_contract(contracts: Contracts, stream: str) -> StreamContract:
    """Return the contract of a stream; refuse an unknown name and suggest the nearest one."""
    streams = contracts.streams
    for one in contracts.broken:
        if one.subject == stream:
            raise ContractError(list(one.problems))
    if stream not in streams:
        if stream in contracts.joins or stream in contracts.queries:
            raise UsageError(
                f"`stream` must be a stream, got {stream!r}, a join or a query; leave the attribute out"
            )
        names = sorted([*streams, *contracts.joins, *contracts.queries])
        raise UsageError(
            f"`stream` must be a stream, a join or a query, got {stream!r}; {suggest(stream, names)}"
        )
    return streams[stream]


def explain(tables: Tables, stream: str, attribute: str) -> Explanation:
    """Explain one attribute, from the explanations of the levers and from the ledger."""
    contracts = load_usable(tables.settings.schemas)
    contract = find_stream_contract(contracts, stream)
    if attribute not in contract.names:
        raise UsageError(
            f"`attribute` must be one of {contract.stream}'s ({', '.join(contract.names)}), got {attribute!r}; "
            f"{suggest(attribute, contract.names)}"
        )
    recent = read_recent(tables, contract.stream)
    return Explanation(
        contract.stream,
        attribute,
        contract.attribute(attribute).role,
        tuple(_explain_lever(tables, contract, attribute, name) for name in contract.lever_names),
        tuple(stages_of(recent.ledger, attribute)),
        load_trade_off(tables, contracts, contract.channel),
        exempt_streams(tables, [contract.stream], utc_now()).get(contract.stream),
        tuple(_notes(contract, contract.attribute(attribute).source_name, recent)),
    )


def repeated_hours(ledger: Iterable[Row]) -> dict[str, int]:
    """Return, by note, the number of times without an offset in an hour that clocks show twice."""
    found: dict[str, int] = {}
    for row in ledger:
        if row["dimension_kind"] == "note" and is_repeated_hour(row["dimension"]):
            found[row["dimension"]] = found.get(row["dimension"], 0) + int(row["offered"])
    return found


def _notes(contract: StreamContract, column: str, recent: RecentBatches) -> Iterator[str]:
    """Yield sentences on irregular values of one source column in the last batches."""
    odd: dict[str, int] = {}
    for row in recent.ledger:
        if row["dimension_kind"] == "note":
            odd[row["dimension"]] = odd.get(row["dimension"], 0) + int(row["offered"])
    if count := odd.get(repeated_hour(column)):
        yield f"{count:,} records with {repeated_hour(column)} of {contract.timezone}"
    if count := odd.get(absent_column(column)):
        yield f"{count:,} records with {absent_column(column)}: it is null in them"


@dataclass(frozen=True)
class WorkloadExplanation:
    """The treatment of a join or a query, and the work of its stages so far."""

    name: str
    inputs: tuple[str, ...]
    description: str
    levers: tuple[VersionedExplanation, ...]
    stages: tuple[StageSum, ...]
    refused: str | None = None
    """Why no run accepts its current contract; None if it is accepted."""


def explain_workload(tables: Tables, name: str) -> WorkloadExplanation | None:
    """Explain a join or a query; return None if no contract of a join or a query has this name."""
    contracts = load_usable(tables.settings.schemas)
    contract = {**contracts.joins, **contracts.queries}.get(name)
    if contract is None:
        return None
    tells = []
    for one in contract.lever_names:
        facts, found = newest_facts(tables, name, one), lever(one)
        told = found.explain(contract, tables) if isinstance(found, WindowLever) else None
        tells.append(VersionedExplanation(one, None if facts is None else facts.version, told))
    stages = tuple(stages_of(last_windows(tables, name)))
    why = search_problem(tables, contracts, contract)
    return WorkloadExplanation(name, contract.inputs, contract.description, tuple(tells), stages, why)


def _explain_lever(
    tables: Tables, contract: StreamContract, attribute: str, name: str
) -> VersionedExplanation:
    facts = newest_facts(tables, contract.stream, name)
    told = lever(name).explain(contract, attribute, facts, tables)
    return VersionedExplanation(name, None if facts is None else facts.version, told)
