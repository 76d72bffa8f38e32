"""Why an attribute was kept, rounded or shed: the rule, the numbers, the bound, and what one can do about it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spillway.contracts import Attribute, StreamContract, load_contracts
from spillway.contracts.shapes import suggest
from spillway.errors import SpillwayError
from spillway.settings import Settings
from spillway.show.summary import table_rows

Row = Mapping[str, Any]


class UnknownName(SpillwayError):
    """A stream or attribute that no contract names."""


@dataclass(frozen=True)
class Explanation:
    """Everything that led to one attribute's way in the newest scheme, and how it has travelled so far.

    `rank` counts from 1, the first to go; None where the attribute was not ranked. Numbers are None while
    there is no scheme, model or certificate that has them.
    """

    stream: str
    attribute: str
    role: str
    way: str | None
    rule: str
    reason: str
    stage: int | None
    predictor: str | None
    batch: int | None
    from_seq: int | None
    to_seq: int | None
    rank: int | None
    ranked: int
    score: float | None
    rank_by: str
    width_bits: float | None
    rate_kbps: float | None
    planned_kbps: float | None
    capacity_kbps: float | None
    shortfall_kbps: float | None
    error_pct: float | None
    error_source: str
    worst_error_pct: float | None
    mean_error_pct: float | None
    stored_share_pct: float | None
    violations: int | None
    tuples_by_way: Mapping[str, int]
    evidence: Mapping[str, Any]
    remedies: tuple[str, ...]


def explain(settings: Settings, stream: str, attribute: str) -> Explanation:
    """Explain one attribute from the newest scheme, the models and the certificates."""
    contracts = load_contracts(settings.schemas)
    if stream not in contracts.streams:
        names = sorted(contracts.streams)
        raise UnknownName(
            f"`stream` must be one of {', '.join(names)}, got {stream!r}; {suggest(stream, names)}"
        )
    contract = contracts.streams[stream]
    if attribute not in contract.names:
        raise UnknownName(
            f"`attribute` must be one of {stream}'s ({', '.join(contract.names)}), got {attribute!r}; "
            f"{suggest(attribute, contract.names)}"
        )
    schemes = sorted(table_rows(settings, "schemes", stream), key=lambda row: row["from_seq"])
    certificates = [
        row for row in table_rows(settings, "certificates", stream) if row["attribute"] == attribute
    ]
    return _explanation(contract, attribute, schemes, certificates, table_rows(settings, "models", stream))


def _explanation(
    contract: StreamContract,
    name: str,
    schemes: Sequence[Row],
    certificates: Sequence[Row],
    models: Sequence[Row],
) -> Explanation:
    attribute = contract.attribute(name)
    newest = schemes[-1] if schemes else None
    item = _of(newest, name) if newest else None
    way = (item["way"] if item else "keep") if newest else None
    ranking = list(newest["ranking"]) if newest else []
    rank = next((i for i, entry in enumerate(ranking) if entry["attribute"] == name), None)
    bound, evidence = _model(models, name)
    last = max(certificates, key=lambda row: row["batch"], default=None)
    return Explanation(
        stream=contract.stream,
        attribute=name,
        role=attribute.role,
        way=way,
        rule=_rule(contract, attribute, way, rank, len(ranking)),
        reason=_reason(attribute, newest, item),
        stage=item["stage"] if item else None,
        predictor=item["predictor"] if item else None,
        batch=newest["batch"] if newest else None,
        from_seq=newest["from_seq"] if newest else None,
        to_seq=newest["to_seq"] if newest else None,
        rank=None if rank is None else rank + 1,
        ranked=len(ranking),
        score=None if rank is None else ranking[rank]["score"],
        rank_by=contract.rank_by,
        width_bits=None if rank is None else ranking[rank]["width_bits"],
        rate_kbps=newest["rate_kbps"] if newest else None,
        planned_kbps=newest["planned_kbps"] if newest else None,
        capacity_kbps=newest["capacity_kbps"] if newest else None,
        shortfall_kbps=newest["shortfall_kbps"] if newest else None,
        error_pct=bound.get("error_pct", last["error_pct"] if last else None),
        error_source=str(bound.get("source", "")),
        worst_error_pct=max((row["max_error_pct"] or 0.0 for row in certificates), default=None),
        mean_error_pct=last["mean_error_pct"] if last else None,
        stored_share_pct=last["stored_share_pct"] if last else None,
        violations=sum(row["violations"] for row in certificates) if certificates else None,
        tuples_by_way=_tuples_by_way(schemes, name),
        evidence=evidence,
        remedies=tuple(_remedies(contract, attribute, way)),
    )


def _reason(attribute: Attribute, newest: Row | None, item: Row | None) -> str:
    """What the plan noted: about the attribute, else about the scheme; a role needs no reason."""
    if newest is None or attribute.role != "measure":
        return ""
    return str((item or {}).get("reason") or newest["reason"])


def _of(scheme: Row, name: str) -> Row | None:
    return next((item for item in scheme["attributes"] if item["attribute"] == name), None)


def _model(models: Sequence[Row], name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The newest threshold of the attribute, and the evidence its way was chosen on."""
    newest = max((row["version"] for row in models), default=None)
    own = {row["fact"]: row for row in models if row["version"] == newest and row["subject"] == name}
    threshold = json.loads(own["threshold"]["value"]) if "threshold" in own else {}
    attribute = json.loads(own["attribute"]["value"]) if "attribute" in own else {}
    evidence = json.loads(own["attribute"]["evidence"]) if "attribute" in own else {}
    bound = {
        key: value for key, value in {**attribute, **threshold}.items() if key in ("error_pct", "source")
    }
    plain = {key: value for key, value in evidence.items() if isinstance(value, str | int | float)}
    return bound, plain


def _rule(
    contract: StreamContract, attribute: Attribute, way: str | None, rank: int | None, ranked: int
) -> str:
    if attribute.role != "measure":
        words = {
            "key": "it says who sent the tuple",
            "order": "it says when",
            "protected": "its owner protects it",
        }
        return f"role {attribute.role} is never rounded or shed: {words[attribute.role]}"
    if contract.mode == "observe":
        return "mode observe plans and accounts, and drops nothing"
    if attribute.error_pct == 0 or (attribute.error_pct is None and contract.error_pct == 0):
        return "error_pct 0 allows no error, so only an exact synopsis could stand for it"
    if way is None:
        return "no scheme yet: the stream waits to be taken in, trained and shed"
    position = (
        "it was not ranked"
        if rank is None
        else f"it ranks {rank + 1} of {ranked} by {contract.rank_by}, first to go first"
    )
    return {
        "keep": f"{position}, and the rate fits without touching it, or touching it would not pay",
        "round": f"{position}; rounding within its bound needs no synopsis and is the cheaper way",
        "shed": f"{position}, and attributes are shed in that order until the rate fits the capacity",
    }[str(way)]


def _tuples_by_way(schemes: Sequence[Row], name: str) -> dict[str, int]:
    """How many seq numbers it has travelled in each way."""
    totals: dict[str, int] = {}
    for row in schemes:
        item = _of(row, name)
        way = item["way"] if item else "keep"
        totals[way] = totals.get(way, 0) + row["to_seq"] - row["from_seq"] + 1
    return totals


def _remedies(contract: StreamContract, attribute: Attribute, way: str | None) -> Iterator[str]:
    file = f"schemas/streams/{contract.stream}.yaml"
    if attribute.role == "measure":
        yield f"exempt it: role: protected on {attribute.name} in {file}"
        yield f"tighten its bound: error_pct: 1 on {attribute.name} (0: exact)"
    if attribute.role == "protected":
        yield f"let it be shed: role: measure on {attribute.name} in {file}"
    if way == "shed":
        yield f"get it back: spillway recover {contract.stream} --attributes {attribute.name}"
