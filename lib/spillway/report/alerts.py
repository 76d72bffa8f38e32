"""Send alerts about failures to the addresses that contracts name (hooks).

Alerts are derived from two sources: the tables (failed expectations, shortfalls, rejected records), and the
error messages of a run that failed. The table `alerts` stores what was sent to each address, so that a rerun
sends nothing twice. Each address gets one message per run: an HTTP POST of JSON with a `text` for people (the
format of chat services) and the list `alerts`.

Guarantees:

- Nothing here fails a run. An address that does not respond is tried `TRIES` times per run, in at most `MOST_RUNS`
  runs. Alerts that could not be sent are in the log and in `alerts`.
- An address is never logged or stored, because it may contain a secret. Error messages do not contain it either.

An address is the URL of a web service that accepts JSON (`https://chat.example/services/...`). Mail is sent by
Airflow: its notifiers send it when a task or a DAG run fails.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from spillway.contracts import Contracts
from spillway.errors import InvalidValue, SpillwayError
from spillway.ledger import TOTAL
from spillway.levers.protocol import Say
from spillway.report.summary import total_rows
from spillway.settings import HOOK_PREFIX
from spillway.store.batches import load_batches
from spillway.store.tables import Between, Tables
from spillway.streams.drafts import shortfall_remedy

TIMEOUT_SECONDS = 10.0
_MAIL_REMEDY = "send mail with a notifier of Airflow (SmtpNotifier)"


class DeliveryError(SpillwayError):
    """An address did not accept a message. `again`: a later attempt may succeed."""

    def __init__(self, why: str, again: bool = True) -> None:
        self.again = again
        super().__init__(why)


def check_address(hook: str, found: str | None) -> str:
    """Return the address if it is valid; otherwise raise an error that names the hook but not the address."""
    variable = f"{HOOK_PREFIX}{hook.upper()}"
    remedy = f"set {variable}, or make it the password of an Airflow connection {hook}"
    if not found:
        raise InvalidValue("hook", "have an address", hook, remedy)
    try:
        parts = urlsplit(found)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        mail = found.startswith(("smtp://", "smtps://"))
        remedy = f"{_MAIL_REMEDY}, or {remedy}" if mail else remedy
        raise InvalidValue("hook", "have an address that begins with http:// or https://", hook, remedy)
    return found


def send(address: str, body: dict[str, Any]) -> None:
    """Send one HTTP request."""
    request = urllib.request.Request(
        address,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "spillway"},
        method="POST",
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            answer.read(1024)
    except urllib.error.HTTPError as problem:
        again = problem.code in (408, 429) or problem.code >= 500
        raise DeliveryError(f"it answered {problem.code}", again) from None
    except TimeoutError:
        raise DeliveryError(f"it did not answer within {TIMEOUT_SECONDS:g} s") from None
    except (OSError, HTTPException, ValueError) as problem:
        raise DeliveryError(f"it cannot be reached ({_why(problem)})") from None


def _why(problem: Exception) -> str:
    """Return the system's description of the error, or the type of the error."""
    reason = getattr(problem, "reason", problem)
    return reason.strerror if isinstance(reason, OSError) and reason.strerror else type(problem).__name__


TRIES, MOST_RUNS = 3, 5
LOOK_BACK = timedelta(days=7)
"""Older events are not reported."""
MOST_AT_ONCE = 50
DELIVERED_STATUS = "delivered"

FindAddress = Callable[[str], str | None]


@dataclass(frozen=True)
class Alert:
    """One failure. `about` distinguishes it from other alerts of the same event and stream."""

    event: str
    stream: str
    about: str
    sentence: str

    @property
    def key(self) -> str:
        return hashlib.sha256("\0".join((self.event, self.stream, self.about)).encode()).hexdigest()[:32]


def address_in_environment(hook: str) -> str | None:
    """Return the address of a hook from the environment; None if there is none."""
    return os.environ.get(f"{HOOK_PREFIX}{hook.upper()}")


def recorded_alerts(tables: Tables, since: datetime) -> Iterator[Alert]:
    """Yield the failures since a moment that the tables record."""
    fresh = {(b.stream, b.batch): b for b in load_batches(tables, updated_at=Between(since))}
    for batch in fresh.values():
        refused = batch.rejected or 0
        if refused or batch.status == "refused":
            what = f"{refused:,} of {refused + (batch.rows or 0):,} records" if refused else "its files"
            said = f"batch {batch.batch} of {batch.batch_date}: {what} were refused; see the table rejected"
            yield Alert("refusal", batch.stream, str(batch.batch), said)
    of_fresh = {"subject": sorted({b.stream for b in fresh.values()}), "batch": sorted({n for _, n in fresh})}
    days = sorted({b.batch_date for b in fresh.values()})
    where: dict[str, Any] = {"scope": "stream", "dimension_kind": TOTAL, "batch_date": days, **of_fresh}
    lines = tables.at("ledger").rows(**where).to_pylist() if fresh else []
    for row in total_rows(lines):
        if row["shortfall"] > 0 and (row["subject"], row["batch"]) in fresh:
            why = f": {row['reason']}" if row["reason"] else ""
            said = (
                f"batch {row['batch']} of {row['batch_date']}: about {row['shortfall']:,} of {row['kept']:,} "
                f"{row['unit']} are more than there is room for{why}"
                f"{'' if shortfall_remedy(row['reason'], '') else '; widen the channel, or let more be shed'}"
            )
            yield Alert("shortfall", row["subject"], f"{row['batch']} {row['stage']} {row['unit']}", said)
    for row in tables.at("validations").rows(validated_at=Between(since)).to_pylist():
        if not row["success"]:
            about = f"{row['table']} {row['expectation']} {row['batch_date']} {row['sentence']}"
            yield Alert("violation", row["stream"] or "", about, row["sentence"])


def run_failures(sentences: Iterable[str], run_id: str, contracts: Contracts) -> Iterator[Alert]:
    """Yield an alert for each error message of a failed run.

    If a message begins with a stream's name, the alert is of that stream, otherwise of all streams.
    """
    for sentence in filter(None, (line.strip() for line in sentences)):
        named = next((s for s in contracts.streams if sentence.startswith((f"{s}:", f"{s},"))), "")
        said = sentence[len(named) :].lstrip(",: ") if named else sentence
        yield Alert("failure", named, f"{run_id} {sentence}", said)


def send_alerts(
    tables: Tables,
    contracts: Contracts,
    now: datetime,
    say: Say,
    failed: Sequence[Alert] = (),
    address: FindAddress = address_in_environment,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Send every hook the alerts that it has not received yet. Return the number of alerts that were sent.

    `failed`: the alerts of the run that just ended. `address`: finds the address of a hook. `pause`: waits
    between two attempts.
    """
    told = 0
    try:
        tables = tables.now()
        hooks = _hooks(contracts)
        found = [*failed, *(recorded_alerts(tables, now - LOOK_BACK) if hooks else ())]
        for hook, wanted in hooks.items():
            mine = {one.key: one for one in found if _wants(wanted, one)}
            told += _send_to_hook(tables, hook, list(mine.values()), now, say, address, pause)
    except SpillwayError as problem:
        say(f"not all alerts were delivered: {problem}")
    return told


def _hooks(contracts: Contracts) -> dict[str, set[tuple[str, str]]]:
    """Return the pairs (stream, join or query; event) that each hook receives.

    The name "" means events that concern all.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for stream, contract in contracts.streams.items():
        channel = contracts.channels[contract.channel]
        trunk = contracts.channels[channel.into].alerts if channel.into else ()
        for one in (*contract.alerts, *channel.alerts, *trunk):
            found.setdefault(one.hook, set()).update(
                (name, event) for event in one.on for name in (stream, "")
            )
    for name, workload in {**contracts.joins, **contracts.queries}.items():
        for one in workload.alerts:
            found.setdefault(one.hook, set()).update((name, event) for event in one.on)
    return found


def _wants(wanted: set[tuple[str, str]], one: Alert) -> bool:
    return (one.stream, one.event) in wanted


def _send_to_hook(
    tables: Tables,
    hook: str,
    alerts: Sequence[Alert],
    now: datetime,
    say: Say,
    address: FindAddress,
    pause: Callable[[float], None],
) -> int:
    before = {row["key"]: row for row in tables.at("alerts").rows(hook=hook).to_pylist()}
    known = {
        key for key, row in before.items() if row["status"] == DELIVERED_STATUS or row["tries"] >= MOST_RUNS
    }
    # alerts of failed runs exist only in this table: retry those that were not delivered
    left = {
        key: Alert(row["event"], row["stream"] or "", "", row["sentence"])
        for key, row in before.items()
        if row["event"] == "failure" and row["tried_at"] >= now - LOOK_BACK
    }
    found = left | {one.key: one for one in alerts}
    news = {key: one for key, one in found.items() if key not in known}
    news = dict(list(news.items())[:MOST_AT_ONCE])
    if not news:
        return 0
    status = DELIVERED_STATUS
    try:
        _post(check_address(hook, address(hook)), list(news.values()), pause)
    except SpillwayError as problem:
        status = "failed"
        say(f"hook {hook} did not receive {len(news)} alerts: {problem}")
    rows = [
        {
            "hook": hook,
            "key": key,
            "event": one.event,
            "stream": one.stream or None,
            "sentence": one.sentence,
            "status": status,
            "tries": 1 + (before[key]["tries"] if key in before else 0),
            "tried_at": now,
        }
        for key, one in news.items()
    ]
    tables.at("alerts").replace(rows, hook=hook, key=list(news))
    return len(news) if status == DELIVERED_STATUS else 0


def _post(address: str, alerts: Sequence[Alert], pause: Callable[[float], None]) -> None:
    lines = [f"{one.event}: {one.stream + ': ' if one.stream else ''}{one.sentence}" for one in alerts]
    body = {
        "text": "\n".join([f"Spillway: {len(alerts)} alerts", *lines]),
        "alerts": [{"event": one.event, "stream": one.stream, "sentence": one.sentence} for one in alerts],
    }
    for attempt in range(1, TRIES + 1):
        try:
            return send(address, body)
        except DeliveryError as problem:
            if attempt == TRIES or not problem.again:
                raise
        pause(2.0 ** (attempt - 1))
