"""Measure the loss for a given shortfall: if a channel is a little too narrow, the loss must be small.

The product's own steps send a trained stream through smaller and smaller channels. For one batch,

    lossless = the fewest bytes with which no value of a measure is absent at the destination
    fixed    = the bytes that are sent if all measures are shed, without synopses
    shortfall = s % of lossless - fixed, so that the channel holds lossless - s % x (lossless - fixed)
    loss     = share of the values of the measures that are absent at the destination, in %

A batch that exceeds its channel counts as lost: a product that sheds nothing must not pass.
The promise: loss <= 2 s + one frame of the cheapest attribute, that is 100 x (rows of a frame) / (rows x measures).
`attributes.cliff_points_largest` is the largest excess of a loss over that, in percentage points; 0 if there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from evidence.attributes.generated import Source, generate_stream
from evidence.attributes.lake import Lake
from evidence.attributes.variants import with_settings
from evidence.book import Book
from spillway.batch import PLANNED, Batch
from spillway.clock import utc_now
from spillway.contracts import read_channel
from spillway.ledger import TOTAL
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.settings import AttributeSettings
from spillway.registry import lever
from spillway.store.batches import save_batches
from spillway.streams.drafts import SENT
from spillway.streams.facts import newest_facts

SHORTFALLS_PCT = (0.1, 0.3, 1.0, 3.0, 10.0, 25.0, 50.0)
HALVINGS = 8
"""Number of bisection steps that find the fewest lossless bytes."""
TUPLES = 2_000
FRAME_TUPLES = 256
CASES = {
    "default": AttributeSettings(),
    "shed only": AttributeSettings(synopsis="hold", treatments=("keep", "shed")),
}
ROUNDING = 1e-9
WIDE_KBPS = 1e9
NARROW_KBPS = 1e-6


@dataclass(frozen=True)
class Loss:
    """The bytes that were sent at one capacity, and the loss."""

    crossed_bytes: int
    lost_pct: float


@dataclass(frozen=True)
class CliffTrial:
    """One batch of a trained stream that is sent at several capacities."""

    lake: Lake
    stream: str
    batch: Batch

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """The attributes that may be shed."""
        facts = newest_facts(self.lake.tables, self.stream, "attributes")
        assert facts is not None, "a stream that is sent into too little is trained"
        return tuple(TrainedFacts.from_facts(facts).models)

    def send_through(self, capacity_bytes: float | None) -> Loss:
        """Send the batch through a channel of `capacity_bytes`; None: unlimited capacity."""
        seconds = self.batch.seconds_covered or 1.0
        kbps = WIDE_KBPS if capacity_bytes is None else max(NARROW_KBPS, capacity_bytes / 125.0 / seconds)
        (now,) = [one for one in self.lake.batches(self.stream) if one.batch == self.batch.batch]
        save_batches(
            self.lake.tables,
            [
                now.with_changes(
                    utc_now(), status=PLANNED, capacity_kbps=kbps, trunk_kbps=None, validated_revision=None
                )
            ],
        )
        self.lake.send([self.stream])
        tables = self.lake.tables
        (line,) = (
            tables.at("ledger")
            .rows(
                ["bytes_kept"],
                subject=self.stream,
                batch=self.batch.batch,
                stage=SENT,
                unit="rows",
                dimension_kind=TOTAL,
            )
            .to_pylist()
        )
        contract = self.lake.contracts.streams[self.stream]
        absent = lever("attributes").count_absent_values(contract, [self.batch], tables)
        self.lake.sweep()
        lost = sum(count for (_, name), count in absent.items() if name in self.measures)
        return Loss(line["bytes_kept"], 100.0 * lost / max(1, (self.batch.rows or 0) * len(self.measures)))

    @cached_property
    def fixed_bytes(self) -> int:
        """Return the bytes that are sent if all measures are shed."""
        return self.send_through(0.0).crossed_bytes

    @cached_property
    def lossless_bytes(self) -> int:
        """Return about the fewest bytes with which no value is absent."""
        found = self.send_through(None)
        least, most = float(self.fixed_bytes), found.crossed_bytes
        for _ in range(HALVINGS):
            middle = (least + most) / 2.0
            found = self.send_through(middle)
            if found.lost_pct > 0 or found.crossed_bytes > middle:
                least = middle
            else:
                most = min(most, found.crossed_bytes)
        return most

    @cached_property
    def frame_pct(self) -> float:
        """Return the share of the values that are in one frame of one attribute, in %."""
        rows = self.batch.rows or 1
        frame = min(rows, self.batch.frame_tuples or rows)
        return 100.0 * frame / (rows * len(self.measures))

    def losses(self, shortfalls_pct: Iterable[float] = SHORTFALLS_PCT) -> dict[float, float]:
        """Return by shortfall the share of values that are absent, in %; 100 if the batch exceeds its channel."""
        sheddable = self.lossless_bytes - self.fixed_bytes
        assert sheddable > 0, "a trial in which nothing can be shed shows nothing"
        found = {}
        for one in shortfalls_pct:
            capacity = self.lossless_bytes - one / 100.0 * sheddable
            sent = self.send_through(capacity)
            found[one] = sent.lost_pct if sent.crossed_bytes <= capacity * (1.0 + ROUNDING) else 100.0
        return found

    def excess_points(self, losses: Mapping[float, float]) -> float:
        """Return the largest excess of a loss over the promise, in percentage points; 0 if there is none."""
        return max(0.0, *(lost - 2.0 * short - self.frame_pct for short, lost in losses.items()))


def small_trial(source: Source, settings: AttributeSettings, name: str) -> CliffTrial:
    """Return a trial of a stream with two batches of about a thousand tuples, the second of which is sent."""
    made = generate_stream(source, cycles=max(16, TUPLES // source.cycle))
    contract = replace(made.contract, frame=replace(made.contract.frame, tuples=FRAME_TUPLES))
    stated = contract.lever_settings("attributes")
    contract = with_settings(contract, replace(settings, training=stated.training))
    channels = {contract.channel: read_channel(contract.channel, {"capacity": "1 Tbps"})}
    lake = Lake.land(f"cliff-{name}", {contract.stream: contract}, {contract.stream: made.files}, channels)
    lake.train()
    lake.send()
    last = [batch for batch in lake.batches(contract.stream) if batch.rows][-1]
    return CliffTrial(lake, contract.stream, last)


def cliffs(book: Book, every: Sequence[Source]) -> dict[str, float]:
    """Return the largest excess over the promise, over all sources and both cases."""
    rows: list[tuple[str | float, ...]] = []
    worst = 0.0
    for source in every:
        for case, settings in CASES.items():
            trial = small_trial(source, settings, f"{source.name}-{case}")
            losses = trial.losses()
            excess = trial.excess_points(losses)
            worst = max(worst, excess)
            place: tuple[str | float, ...] = (
                source.name,
                case,
                trial.lossless_bytes,
                trial.fixed_bytes,
                trial.frame_pct,
            )
            rows.append((*place, *losses.values(), excess))
            trial.lake.forget()
    shortfalls = (f"lost % at {one:g} % too little" for one in SHORTFALLS_PCT)
    book.table(
        "Values lost for a given shortfall",
        ("stream", "case", "lossless bytes", "fixed bytes", "one frame %", *shortfalls, "excess points"),
        rows,
        [
            "The promise: a loss of at most twice the shortfall plus one frame of one attribute. Excess: loss above "
            "the promise. Case `shed only`: no attribute is rounded, and no synopsis is sent."
        ],
    )
    return {"attributes.cliff_points_largest": worst}
