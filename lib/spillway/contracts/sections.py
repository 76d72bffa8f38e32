"""The sections of a stream's contract: every field, its meaning, its rule and its default.

>>> Rate(from_="declared", tuples_per_second=400).tuples_per_second
400

`AlertHook` names an address for alerts, and the events that are sent to it. The address is a secret, so it is never in
a contract. It is the environment variable `SPILLWAY_HOOK_NAME`, or the password of the Airflow connection NAME.

>>> AlertHook(hook="oncall").on
('violation', 'shortfall', 'refusal', 'failure')

`sketch_problems` checks the rules between a contract's sketches, and between sketches and their attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spillway.contracts.capacity import SizeShape
from spillway.contracts.fields import (
    METHODS,
    PERCENT,
    Broken,
    Choice,
    Flag,
    Listing,
    Number,
    OptionalValue,
    Record,
    Report,
    Text,
    rule,
    to_plain,
)
from spillway.errors import InvalidValue
from spillway.sketches.kinds import MOST_KIB, SKETCH_KINDS

# ruff: noqa: RUF009 - `rule` is dataclasses.field with a shape; it makes no shared value


LANDING_PATH = Text(
    pattern=(
        r"^(?!/+\Z)(?!\s)(?!.*\s\Z)(?!(.*/)?\.{1,2}(/|\Z))(?![A-Za-z][A-Za-z0-9+.-]*://[^/]*/*\Z)"
        r"[^\x00-\x1f\x7f\\]+\Z"
    ),
    means="a folder below a root, without `.` or `..` in its path",
    remedy="write the folder itself, e.g. weather",
)
"""The shape of a landing folder: never a root itself, never outside of its root."""
MEMORY_KIB = Number(least=1, most=MOST_KIB, whole=True)
"""The memory of a sketch, at most 1 GiB in each task."""
_TOPICS = ("kafka", "kinesis", "mqtt", "http", "stream", "topic")
_NO_TOPICS = (
    "no topic is read as a stream yet: let a consumer write files into the landing folder, kind: files"
)
_NO_TABLES = "no table is read as a stream yet: land its rows as files, kind: files"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to read CSV; JSON and Parquet need no options."""

    header: bool = rule(
        Flag(),
        "CSV: true: the first line has the column names; false: the columns are in the order of the contract",
        True,
    )
    delimiter: str = rule(
        Text(pattern=r"^[^\"\r\n]\Z", means="one character", remedy='write ","'),
        "CSV: character between fields",
        ",",
    )
    decimal: str = rule(
        Choice((".", ",")),
        "CSV: decimal separator; the other of the two characters must not occur in a number",
        ".",
    )
    null_values: tuple[str, ...] = rule(
        Listing(Text(blank=True), unique=True), "CSV: texts that mean null, with or without quotes", ("",)
    )


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source of the tuples."""

    kind: str = rule(
        Choice(("files",), instead=(("table", _NO_TABLES), *((one, _NO_TOPICS) for one in _TOPICS))),
        "files: files in a landing folder",
        "files",
    )
    path: str | None = rule(
        OptionalValue(LANDING_PATH),
        "landing folder: relative to SPILLWAY_LANDING, absolute, or a URI; default: the stream's name",
        None,
    )
    format: str = rule(
        Choice(("json", "csv", "parquet")), "json (one object per line), csv or parquet", "json"
    )
    options: Options = rule(Record(Options), "options for reading the files", Options())
    parity: str = rule(
        Choice(("none", "secded")),
        "secded: each line of csv or json ends with the parity of its bytes, written by `spillway "
        "parity add FILE` (extended Hamming code; Ahuja 2006, Appendix A). Intake corrects one "
        "flipped bit in a line. It rejects a line with more flipped bits, and training discards a "
        "training set with such a line. none: lines have no parity",
        "none",
    )
    settle_seconds: float = rule(
        Number(least=0),
        "a file is taken in after it has not changed for this number of seconds; 0: at once, for "
        "files that are renamed into the landing folder",
        60.0,
    )
    changed: str = rule(
        Choice(("refuse", "new_batch")),
        "treatment of a file that changed after it was taken in. refuse: the changed file is refused and "
        "reported; new_batch: the whole file is taken in again, as a new batch. In both cases, the rows that "
        "were taken in before stay in the lake",
        "refuse",
    )
    files_at_a_time: int = rule(Number(least=1, whole=True), "maximum number of files per intake step", 1000)
    mb_at_a_time: float = rule(
        Number(above=0), "maximum size of an intake step in megabytes; a larger file is taken in alone", 256.0
    )
    after_ingest: str = rule(
        Choice(("keep", "archive", "remove")),
        "what `spillway keep` does with files whose batch is done. keep: leave them; archive: move them to the "
        "folder .archived in the landing folder; remove: delete them",
        "keep",
        former="after_taken_in",
    )

    def rules(self) -> Iterator[Broken]:
        if self.format != "csv" and self.options != Options():
            yield (
                "options",
                "be absent unless the format is csv",
                self.format,
                "remove it: it would be ignored",
            )
        if self.parity != "none" and self.format == "parquet":
            yield (
                "parity",
                "be none if the format is parquet",
                self.parity,
                "send csv or json, which have lines",
            )

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        return ("be absent", _NO_TABLES) if name == "table" else None


@dataclass(frozen=True, kw_only=True)
class Rate:
    """How the rate of the stream is determined."""

    from_: str = rule(
        Choice(("event_time", "arrival", "declared")),
        "event_time: number of tuples / time by `order` from the end of the previous batch to the end of this "
        "batch. A gap before the batch counts as at most one day. A late batch covers only the time span of its "
        "own tuples; arrival: number of tuples / time since the previous files arrived; declared: the value of "
        "tuples_per_second",
        "event_time",
        yaml="from",
    )
    tuples_per_second: float | None = rule(
        OptionalValue(Number(above=0)), "declared rate, with `from: declared`", None
    )

    def rules(self) -> Iterator[Broken]:
        if self.from_ == "declared" and self.tuples_per_second is None:
            yield (
                "tuples_per_second",
                "be there when the rate is declared",
                None,
                "write the line rate, or from: event_time",
            )
        if self.from_ in ("event_time", "arrival") and self.tuples_per_second is not None:
            yield (
                "tuples_per_second",
                f"be absent when the rate is from {self.from_}",
                self.tuples_per_second,
                "write from: declared",
            )

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        return {
            "if": {"properties": {"from": {"const": "declared"}}, "required": ["from"]},
            "then": {
                "required": ["tuples_per_second"],
                "properties": {"tuples_per_second": {"type": "number"}},
            },
            "else": {"properties": {"tuples_per_second": {"type": "null"}}},
        }


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How long batches wait in `raw` to be sent together, in one file and one commit for each batch date."""

    until_bytes: int = rule(
        SizeShape(),
        "send the waiting batches if their size in raw is at least this, for example 1 MB",
        1_000_000,
    )
    until_seconds: float = rule(
        Number(above=0, most=31_622_400),
        "send the waiting batches of a batch date this number of seconds after the oldest of them was taken in",
        3600.0,
    )


@dataclass(frozen=True, kw_only=True)
class FrameLength:
    """The length of a frame, the unit of recovery."""

    tuples: int | None = rule(
        OptionalValue(Number(least=1, most=1 << 31, whole=True)),
        "maximum number of tuples in a frame; null: no limit, as in Ahuja 2006",
        65536,
    )


@dataclass(frozen=True, kw_only=True)
class BadRecords:
    """How records that break the contract are handled."""

    action: str = rule(
        Choice(("reject", "fail")),
        "reject: store the record in `rejected` and continue; fail: stop the batch",
        "reject",
    )
    max_share_pct: float = rule(
        PERCENT,
        "maximum share of rejected records in %; above it, the batch stops, also with action reject",
        10.0,
    )


@dataclass(frozen=True, kw_only=True)
class Duplicates:
    """How files and rows that arrive twice are handled."""

    files: str = rule(
        Choice(("skip", "take")),
        "a file with the same bytes as a file that was taken in. skip: do not take it in; take: take "
        "it in again",
        "skip",
    )
    rows: str = rule(
        Choice(("none", "exact", "filter")),
        "deduplication of rows. none: repeated rows are valid; exact: look up every row; filter: look "
        "up only the rows that a Bloom filter reports as possible duplicates, with little memory",
        "none",
    )
    on: tuple[str, ...] | None = rule(
        OptionalValue(Listing(Text(), least=1, unique=True)),
        "attributes that identify a duplicate row; null: all attributes",
        None,
    )
    within: int | None = rule(
        OptionalValue(Number(least=1, most=50_000_000, whole=True)),
        "number of preceding rows that a row is compared with; null (only for exact): all rows in raw. A filter "
        "needs about 3 bytes of memory per row",
        None,
    )
    false_positive_pct: float = rule(
        Number(above=0, most=50),
        "filter: share of new rows that are looked up although they are no duplicates",
        1.0,
    )
    shards: int = rule(
        Number(least=1, most=1024, whole=True),
        "filter: number of partitions that tasks can process in parallel",
        4,
    )

    def rules(self) -> Iterator[Broken]:
        if self.rows == "filter" and self.within is None:
            yield "within", "be given for rows: filter", None, "write within: 1000000, or rows: exact"

    @staticmethod
    def schema_extra() -> dict[str, Any]:
        filtered = {"properties": {"rows": {"const": "filter"}}, "required": ["rows"]}
        return {
            "if": filtered,
            "then": {"properties": {"within": {"type": "integer"}}, "required": ["within"]},
        }

    @staticmethod
    def former_field(name: str) -> tuple[str, str] | None:
        """Return rule and remedy for the former field `memory_kib`: the filter's memory follows from `within`."""
        return ("be given as within", "write within: 1000000") if name == "memory_kib" else None


@dataclass(frozen=True, kw_only=True)
class RetainRaw:
    """How long the source side keeps the raw tuples."""

    days: int = rule(Number(least=0, most=36_500, whole=True), "retention in days after the batch date", 30)
    retire: bool = rule(
        Flag(),
        "true: delete the raw tuples of dates that are older than `days`, after their recovery was validated",
        False,
    )


RETAINED = OptionalValue(Number(least=1, most=36_500, whole=True))


@dataclass(frozen=True, kw_only=True)
class Retain:
    """How long the other tables keep the stream's rows, in days after the batch date.

    Null: the value of the table's own contract applies.
    For a batch that was taken in after its batch date, the days count from that later date.
    """

    transmitted_days: int | None = rule(
        RETAINED,
        "transmitted tuples and the data for their recovery; never deleted before their raw tuples",
        None,
    )
    rejected_days: int | None = rule(RETAINED, "rejected tuples and files", None)
    certificates_days: int | None = rule(
        RETAINED, "certificates; never deleted before their raw tuples", None
    )
    ledger_days: int | None = rule(RETAINED, "counts of every stage", None)
    sketches_days: int | None = rule(RETAINED, "sketches", None)

    def days_of(self, table: str) -> int | None:
        """Return the days for a table; None if the stream's contract does not state any.

        >>> Retain(ledger_days=400).days_of("ledger"), Retain().days_of("models")
        (400, None)
        """
        found: int | None = getattr(self, f"{table}_days", None)
        return found


@dataclass(frozen=True, kw_only=True)
class Sketch:
    """A sketch (summary) of the stream that is kept."""

    PRESETS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": {"estimator": "cmm_mean", "heavy_pct": None, "rate": 0.5}
    }

    method: str = rule(
        Choice(METHODS),
        "default: Spillway's rules; paper: the rules of Deng 2007 (count_min: `estimator: cmm_mean`, 4.2.2, and "
        "`heavy_pct: null`; pair_count: `rate: 0.5`, 5.5.2); a setting that the contract states takes precedence",
        "default",
    )
    kind: str = rule(
        # `duplicates` requests the filter of repeated rows
        Choice(tuple(kind for kind in SKETCH_KINDS if kind != "alternating_bloom")),
        "count_min: frequencies and join sizes; quantiles: quantiles of one ordered attribute; "
        "distinct: number of distinct keys; pair_count: number of near-duplicates",
    )
    attributes: tuple[str, ...] = rule(Listing(Text(), least=1, unique=True), "the sketched attributes")
    memory_kib: int | None = rule(
        OptionalValue(MEMORY_KIB), "memory limit in KiB; null: 64; quantiles: 8; distinct: 4", None
    )
    depth: int | None = rule(
        OptionalValue(Number(least=1, most=64, whole=True)),
        "number of rows of the counter table; null: computed",
        None,
    )
    heavy_pct: float | None = rule(
        OptionalValue(Number(above=0, most=100)),
        "count_min: keys with more than this share of the rows (heavy hitters) are stored with their "
        "value, for top-k queries; null: none",
        0.1,
    )
    estimator: str = rule(
        Choice(("by_purpose", "cm", "cmm_mean", "cmm_median", "cmm_order")),
        "count_min: estimator of a frequency. by_purpose: chosen by the purpose of the query; cm, "
        "cmm_mean, cmm_median: Deng 2007, 2.1.1, 4.2.2 and 4.2.4; cmm_order: an estimator of Spillway",
        "by_purpose",
    )
    at_least: int | None = rule(
        OptionalValue(Number(least=1, most=1000, whole=True)),
        "pair_count: number of attributes that must agree; null: all but one",
        None,
    )
    min_hashes: int | None = rule(
        OptionalValue(Number(least=2, most=64, whole=True)),
        "pair_count of one text attribute: number of min-hashes that represent its words; two rows "
        "are near-duplicates if `at_least` min-hashes agree; null: none",
        None,
    )
    rate: float = rule(
        Number(above=0, most=1), "pair_count: sampling rate of the attribute combinations", 1.0
    )
    twins_pct: float | None = rule(
        OptionalValue(Number(least=0)),
        "pair_count: limit of near-duplicate pairs per 100 rows. Validation of a batch fails if the "
        "low end of the 95 % interval is above it. null: no limit",
        10.0,
    )
    seed: int = rule(Number(least=0, most=(1 << 53) - 1, whole=True), "seed of the hash functions", 1)


EVENTS = ("violation", "shortfall", "refusal", "failure")
_REMEDY = (
    "write a name, and put the address into SPILLWAY_HOOK_NAME or the password of the Airflow connection"
)


@dataclass(frozen=True, kw_only=True)
class AlertHook:
    """An address for alerts, by name."""

    hook: str = rule(
        Text(
            pattern=r"^[a-z][a-z0-9_]{0,62}\Z", means="a name of small letters, digits and _", remedy=_REMEDY
        ),
        "name of the alert hook, which receives a POST request with JSON. Its https address is in the environment "
        "variable SPILLWAY_HOOK_NAME, or in the password of the Airflow connection NAME",
    )
    on: tuple[str, ...] = rule(
        Listing(Choice(EVENTS), least=1, unique=True),
        "events that send an alert. violation: an expectation failed; shortfall: a batch exceeded the "
        "capacity; refusal: records or files were rejected; failure: a run failed",
        EVENTS,
    )


def sketch_problems(sketches: Sequence[Sketch], types: Mapping[str, str], stream: str) -> Iterator[Broken]:
    """Yield the rules that sketches break: two are the same, or one cannot be built. `types`: by attribute.

    >>> [field for field, *_ in sketch_problems([Sketch(kind="distinct", attributes=("a",))] * 2, {"a": "string"}, "s")]
    ['sketches[1]']
    """
    if not sketches:
        return
    # importing the compiled kernels takes time, and few contracts need them
    from spillway.sketches.specification import SketchSpec

    asked: dict[tuple[str, tuple[str, ...]], int] = {}
    for i, sketch in enumerate(sketches):
        first = asked.setdefault((sketch.kind, tuple(sketch.attributes)), i)
        if first != i:
            rule = f"be the only {sketch.kind} of these attributes (see sketches[{first}])"
            remedy = "queries name a sketch by its kind and attributes: keep one of them"
            yield f"sketches[{i}]", rule, "+".join(map(str, sketch.attributes)), remedy
        alone = Report("")
        Record(Sketch).read(to_plain(sketch), "", alone)
        # a sketch that breaks one of its own rules is not built: it might have any size
        known = sketch.kind in SKETCH_KINDS and all(name in types for name in sketch.attributes)
        if known and not alone.problems:
            try:
                SketchSpec.from_contract(sketch, types, stream)
            except InvalidValue as problem:
                yield f"sketches[{i}]", "be a valid sketch", sketch.kind, str(problem)
            except (TypeError, ValueError):
                # a field has the wrong type, and its own rule already reports that
                continue
