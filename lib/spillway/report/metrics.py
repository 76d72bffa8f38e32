r"""Write the state of the lake as Prometheus metrics, and send alerts, at the end of a run.

The file has the text format that a node exporter's textfile collector reads. All numbers come from `status`, so
that they agree with `spillway status`. All metrics are gauges, because retention can make every count shrink.
Metrics of streams have the label `stream`. The file is written under another name and renamed, so that no
reader sees half of it.

Guarantee: `alert_and_write_metrics` raises nothing. A failure of the alerts does not prevent the metrics, or the
reverse.

>>> one = Metric("spillway_tuples", "Tuples taken in.", ((("stream", 'a"b'),), 3.0), ((("stream", "c"),), 0.5))
>>> print(exposition([one]), end="")
# HELP spillway_tuples Tuples taken in.
# TYPE spillway_tuples gauge
spillway_tuples{stream="a\"b"} 3
spillway_tuples{stream="c"} 0.5
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from spillway.batch import PENDING, SHOWN_BATCHES
from spillway.clock import utc_now
from spillway.contracts import Contracts
from spillway.errors import InvalidValue, SpillwayError
from spillway.levers.protocol import Say
from spillway.report.alerts import FindAddress, address_in_environment, run_failures, send_alerts
from spillway.report.status import Status, StreamStatus, status
from spillway.store.tables import Tables
from spillway.streams.exemptions import exempt_streams

FILE = "metrics/spillway.prom"
"""Path in the build folder."""

Sample = tuple[tuple[tuple[str, str], ...], float]


class Metric:
    """A metric: its name, its meaning, and its samples (labels and a number)."""

    def __init__(self, name: str, meaning: str, *samples: Sample) -> None:
        self.name, self.meaning, self.samples = name, meaning, samples


def exposition(metrics: Iterable[Metric]) -> str:
    """Return the metrics in Prometheus' text format."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def write_metrics(tables: Tables, now: datetime, path: str | Path | None = None) -> Path:
    """Replace the metrics file with the current state; return its path.

    `path`: default is `metrics/spillway.prom` in the build folder.
    """
    target = Path(path) if path is not None else Path(tables.settings.build, FILE)
    if target.suffix != ".prom":
        raise InvalidValue(
            "--metrics", "be a file that ends in .prom", str(target), "collectors read no other"
        )
    text = exposition(metrics_of(tables, now))
    target.parent.mkdir(parents=True, exist_ok=True)
    # collectors ignore files that do not end in .prom
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    half.write_text(text, encoding="utf-8")
    half.replace(target)
    return target


def metrics_of(tables: Tables, now: datetime) -> list[Metric]:
    """Return all metrics, sorted by name."""
    tables = tables.now()
    found = status(tables, now)
    exempt = exempt_streams(tables, [one.stream for one in found.streams], now)
    by_stream = {
        name: (meaning, {one.stream: float(value(one)) for one in found.streams})
        for name, (meaning, value) in _OF_STATUS.items()
    }
    by_stream |= {
        "lag_seconds": (
            "How long the oldest batch that is not done has waited; 0 where none does.",
            {one.stream: _lag(one, now) for one in found.streams},
        ),
        "last_done_timestamp_seconds": (
            "When a batch was last done; absent where none was.",
            {s.stream: s.last_done_at.timestamp() for s in found.streams if s.last_done_at is not None},
        ),
        "exempt": (
            "1 while the stream is exempt from shedding.",
            {one.stream: float(one.stream in exempt) for one in found.streams},
        ),
    }
    metrics = [
        Metric(f"spillway_{name}", meaning, *(((("stream", s),), v) for s, v in sorted(values.items())))
        for name, (meaning, values) in by_stream.items()
    ]
    metrics += list(_of_lake(found))
    return sorted(metrics, key=lambda one: one.name)


_LAST = f", of the last {SHOWN_BATCHES} batches"
_OF_STATUS: dict[str, tuple[str, Callable[[StreamStatus], float]]] = {
    "tuples_ingested": ("Tuples taken in.", lambda one: one.figures.tuples),
    "tuples_rejected": (
        "Tuples that broke the contract, each where it was read last.",
        lambda one: one.figures.rejected,
    ),
    "tuples_shed": (f"Tuples that were shed whole{_LAST}.", lambda one: one.figures.rows_shed),
    "values_kept": (f"Values that the last stage passed on{_LAST}.", lambda one: one.values.kept),
    "values_shed": (
        f"Values that stages shed, of all they were offered{_LAST}.",
        lambda one: one.values.shed,
    ),
    "values_lost": (f"Of the values shed, those shed for good{_LAST}.", lambda one: one.values.lost),
    "absent_ratio": (
        f"Share of the values taken in that are absent at the destination{_LAST}; NaN if nothing is validated.",
        lambda one: math.nan if one.figures.absent_pct is None else one.figures.absent_pct / 100.0,
    ),
    "batches_over_capacity": (
        f"Batches that exceeded their capacity{_LAST}.",
        lambda one: one.batches_over_capacity,
    ),
    "offered_kbps": (f"Mean rate that the stream offered{_LAST}.", lambda one: one.figures.rate_in_kbps),
    "sent_kbps": (f"Mean rate that was sent{_LAST}.", lambda one: one.figures.rate_out_kbps),
    "capacity_kbps": (
        f"Mean share of the channel for the stream{_LAST}.",
        lambda one: one.figures.capacity_kbps,
    ),
    "headroom_ratio": (
        "Share of its part of the channel that the stream leaves free; below 0 where it exceeds it.",
        lambda one: _headroom(one),
    ),
    "violations": ("Recovered values outside their bound.", lambda one: one.figures.violations),
    "ledger_difference": ("By how much the ledger is off.", lambda one: one.figures.ledger_difference),
    "waiting_files": ("Delivered files that no run has taken in.", lambda one: one.waiting_files),
    "waiting_batches": (
        "Batches that are begun and not done.",
        lambda one: sum(one.batches.get(name, 0) for name in PENDING),
    ),
}


def _headroom(one: StreamStatus) -> float:
    part = one.figures.capacity_kbps
    return 1.0 - one.figures.rate_out_kbps / part if part else math.nan


def _of_lake(found: Status) -> Iterator[Metric]:
    if found.validated_at is not None:
        yield Metric(
            "spillway_last_validation_timestamp_seconds",
            "When the lake was last validated.",
            ((), found.validated_at.timestamp()),
        )
    failed = float(found.expectations_failed)
    yield Metric(
        "spillway_expectations_failed", "Expectations that the last validation failed.", ((), failed)
    )
    wrong = float(sum(one.wrong for one in found.shortages))
    yield Metric("spillway_promises_broken", "What spillway status calls wrong.", ((), wrong))
    if found.quotas:
        yield Metric(
            "spillway_quota_left_bytes",
            "What a channel's quota may still send in the period of its newest batch.",
            *(((("channel", q.channel),), q.quota_bytes - q.spent_bytes) for q in found.quotas),
        )


def _lag(one: StreamStatus, now: datetime) -> float:
    return 0.0 if one.waiting_since is None else max(0.0, (now - one.waiting_since).total_seconds())


def _lines(metric: Metric) -> Iterator[str]:
    if not metric.samples:
        return
    yield f"# HELP {metric.name} {_escaped(metric.meaning, quotes=False)}"
    yield f"# TYPE {metric.name} gauge"
    for labels, value in metric.samples:
        within = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        yield f"{metric.name}{'{' + within + '}' if within else ''} {_number(value)}"


def _escaped(text: str, quotes: bool = True) -> str:
    found = text.replace("\\", "\\\\").replace("\n", "\\n")
    return found.replace('"', '\\"') if quotes else found


def _number(value: float) -> str:
    """Return a number in Prometheus' text format.

    >>> _number(3.0), _number(0.1), _number(math.nan), _number(-math.inf), _number(1.7e9 + 0.5)
    ('3', '0.1', 'NaN', '-Inf', '1700000000.5')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def alert_and_write_metrics(
    tables: Tables,
    contracts: Contracts,
    say: Say,
    failed: Sequence[str] = (),
    run_id: str = "",
    address: FindAddress = address_in_environment,
) -> Path | None:
    """Send alerts, including the error messages `failed` of the run, and write the metrics.

    Return the path of the metrics; None if they could not be written.
    """
    red = list(run_failures(failed, run_id, contracts))
    _attempt(
        "alerts could not be sent", say, lambda: send_alerts(tables, contracts, utc_now(), say, red, address)
    )
    written: list[Path] = []
    _attempt("metrics could not be written", say, lambda: written.append(write_metrics(tables, utc_now())))
    return written[0] if written else None


def _attempt(what: str, say: Say, act: Callable[[], object]) -> None:
    try:
        act()
    except (SpillwayError, OSError) as problem:
        say(f"{what}: {problem}")
    except Exception as problem:  # log the type only: the message may contain an address
        say(f"{what}: {type(problem).__name__}; report it")
