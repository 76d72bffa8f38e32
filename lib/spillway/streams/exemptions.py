"""Exempt a stream from shedding, from its next batch until a given time.

Exemptions are rows of the table `exemptions`. The newest row of a stream is in force, so an earlier end can replace a
later one. A batch that is first planned during an exemption is pinned to no lever, and `batches.sent_whole` stores the
reason. So a rerun does the same, and the batch needs no training. Its bytes are counted as usual, and are subtracted
from the channel before the other streams share it. If they do not fit, the shortfall is recorded.

>>> from spillway.settings import Settings
>>> tables, now = Tables(Settings.in_memory("exempt-example")), datetime(2026, 1, 1, 12, tzinfo=UTC)
>>> exempt(tables, "weather", datetime(2026, 1, 2, tzinfo=UTC), "audit", now).sentence
'exempt until 2026-01-02 00:00 UTC: audit'
>>> [exemption_of(tables.now(), "weather", at) is not None for at in (now, datetime(2026, 1, 2, tzinfo=UTC))]
[True, False]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from spillway.errors import InvalidValue
from spillway.store.tables import Tables

MOST_LETTERS = 500


@dataclass(frozen=True)
class Exemption:
    """An exemption as it was requested."""

    stream: str
    until: datetime
    reason: str
    created_at: datetime

    @property
    def sentence(self) -> str:
        return f"exempt until {self.until:%Y-%m-%d %H:%M} UTC: {self.reason}"


def exempt(tables: Tables, stream: str, until: datetime, reason: str, now: datetime) -> Exemption:
    """Record that nothing of the stream is shed from the next batch on; an `until` in the past ends an exemption."""
    words = " ".join(reason.split())
    if not words or len(words) > MOST_LETTERS or not words.isprintable():
        raise InvalidValue(
            "reason", f"be a sentence of at most {MOST_LETTERS} letters", reason, "say why, for the ledger"
        )
    found = Exemption(stream, until.astimezone(UTC), words, now)
    tables.at("exemptions").append([asdict(found)])
    return found


def exemption_of(tables: Tables, stream: str, now: datetime) -> Exemption | None:
    """Return the exemption in force; None if there is none."""
    return _in_force(tables, [stream], now).get(stream)


def exempt_streams(tables: Tables, streams: Iterable[str], now: datetime) -> dict[str, str]:
    """Return the streams that are exempt now, with the reason."""
    return {stream: one.sentence for stream, one in _in_force(tables, streams, now).items()}


def _in_force(tables: Tables, streams: Iterable[str], now: datetime) -> dict[str, Exemption]:
    """Return the exemptions in force, in the order of the streams."""
    names = list(streams)
    last: dict[str, Exemption] = {}
    for row in tables.at("exemptions").rows(stream=names).to_pylist():
        one = Exemption(**row)
        if one.stream not in last or one.created_at > last[one.stream].created_at:
            last[one.stream] = one
    return {name: last[name] for name in names if name in last and last[name].until > now}
