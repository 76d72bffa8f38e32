"""The protocol of a lever: what the pipeline calls, when, and what it passes.

A lever sheds one kind of data (values, rows). A batch of a stream goes through the levers of its contract in order.
Each lever reads the rows (`Rows`) that the previous lever passed on. The first lever reads the table `raw`; what the
last lever passes on becomes the table `transmitted`. Recovery goes the other way.

**The calls, in order.** Only those marked * are abstract; the others have a default.

    Lever.train           on a schedule: learn facts about the stream from a sample; each training is a new version
    Lever.detect_drift    when batches are validated: report facts in force that the last tuples contradict
    Lever.update_offer    before capacity is divided: what the stream would send, and its cheaper alternatives
    Lever.plan *          once for all streams of a capacity group: return a `Plan` per stream; nothing is applied yet
    Plan.decision *       the decision as an object that travels to tasks
    Plan.output_load *    the load that the next lever is offered
      Decision.apply *               in tasks: the rows that are passed on
      Decision.rows_kept_at_source   in tasks: the rows that are written to the lever's tables at the source
    Plan.account *        after drafts were written and measured: the rows of the ledger
    Plan.records          together with the drafts: the rows of the lever's own tables
    Lever.load_decision * later, possibly at another place: the same decision, read from the lever's tables
      Decision.recover *    the rows of the previous stage, as far as they can be recovered
      Decision.certify      the proof: recovered values against true values, while these are available

A draft that does not fit its share of the channel is planned again (`Work.tried`, with a lower target in `Work.aims`).
`Plan.could_lose_less`, `Plan.can_shed_more`, `Plan.is_worth_a_draft` and `Plan.exceeds_own_limit` tell the pipeline
whether another draft is worth its time.

**To write a lever**, create a package with two modules and register it (`registry`):

- `settings.SETTINGS`: a frozen dataclass of the contract fields, declared with `contracts.fields.rule`. The module may
  also define `COLUMNS`, `LOSES_ROWS` and `NEEDS_EVERY_ROW` (see `registry`);
- `lever.LEVER`: an instance of a subclass of `Lever`, with the abstract methods, and with the registered name as
  `name`. The plan is a subclass of `Plan`, the decision is a subclass of `Decision`.

A lever describes only itself: other levers may come before it and after it. It reads the rows of its stage with
`Work.before`, and its settings with `contract.lever_settings(name)`. Decisions and their members must pickle.

A contract may change between batches, so a decision must not read the settings of the contract when rows are
recovered. What it needs is stored with each batch: as facts, whose version is pinned to the batch (`Batch.models`), or
in the lever's own tables. These are declared as YAML files in its folder `tables`:

- `tables_at_source`: rows that tasks write, of scope `stream`. Their contract declares `seq`, `batch` and `batch_date`;
  the attributes of the stream are added. `Decision.rows_kept_at_source` yields `seq`, `batch` and the attributes.
- `record_tables`: a few rows per batch, returned by `Plan.records`. They have the columns `stream`, `batch` and
  `batch_date`, by which they are replaced.

`docs/develop/add-a-lever.md` shows these files. The smallest complete lever is `tests/levers/thin`. A lever that works
on joins or queries subclasses `levers.windows.WindowLever`.

A lever also explains itself, as data: detected drift (`Drift`), why an attribute is treated as it is
(`LeverExplanation`), and pictures for the report (`Picture`).

A lever asks the author of the contract a question if training had to assume something that the contract does not say.
The question is stored in the evidence of the assumed fact. `status` finds it there, for any lever. It stays open until
a training runs with a contract that answers it.

>>> from spillway.levers.protocol import Fact, Facts
>>> fact = Fact("colour", "", "grey", question_evidence("its colour is assumed", "write `colour:` in the contract"))
>>> list(open_questions(Facts(1, {("colour", ""): fact})))
[OpenQuestion(sentence='its colour is assumed', remedy='write `colour:` in the contract')]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, Contracts, StreamContract
from spillway.ledger import LedgerRow
from spillway.levers.certificate import Certificate
from spillway.levers.dropped_rows import DroppedRows
from spillway.levers.exact import exact_fraction
from spillway.levers.knapsack import Alternative


@dataclass(frozen=True)
class Drift:
    """Drift: something that no longer holds. It is reported like a failed expectation, and never stops a run."""

    rule: str
    observed: str
    expected: str
    sentence: str


@dataclass(frozen=True)
class OpenQuestion:
    """A doubt about a contract, and what to write to remove it."""

    sentence: str
    remedy: str


@dataclass(frozen=True)
class LeverExplanation:
    """A lever's part of `explain`: the treatment of an attribute, the reason, numbers, and remedies."""

    treatment: str
    """The treatment, as the end of the sentence "temp is ...": `kept`, `rounded`, `not planned yet`."""
    because: str
    """The reason, as the end of the sentence "because ...", without a full stop."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture or a table for the report, as data. The report draws it."""

    title: str
    kind: str
    """lines, recovery, timeline, bars, regions or table."""
    data: Mapping[str, Any]
    note: str = ""
    wide: bool = False
    section: str = "details"
    """The section of a channel's page: losses, values or answers. The details, which are folded, have every picture."""


@dataclass(frozen=True)
class MinedEntry:
    """A proposal for a lever's entry in a contract, derived from the queries that people ran, with notes."""

    entry: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class Rows(Protocol):
    """The rows of one batch date at some stage, in `seq` order. Readers select columns and a range of `seq`."""

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        """Return `seq` and the columns of the rows with `from_seq <= seq <= to_seq`.

        A column that does not exist is null.
        """

    def values(self, seq: np.ndarray) -> np.ndarray:
        """Return how many values each of these rows has: one per attribute, minus those that were shed.

        A lever that drops whole rows passes on the result of the previous stage.
        """

    @property
    def bytes_read_at_source(self) -> int:
        """Return the bytes stored at the source that were read to recover these rows.

        They are counted as sent. Rows that read a table at the source add its bytes (`pa.Table.nbytes`) to those of the
        previous stage; other rows pass on the result of the previous stage.
        """


class View(Protocol):
    """A table, as passed to a lever."""

    @property
    def exists(self) -> bool:
        """Return whether the table exists here."""

    def rows(self, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Return the rows that match; none if there is no table."""

    def newest(
        self, by: str, columns: Sequence[str] | None = None, below: int | None = None, **where: Any
    ) -> pa.Table:
        """Return the matching rows with the largest value of `by` (below `below`, if it is given)."""

    def last(self, by: str, most: int, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Return the matching rows with the `most` largest values of `by`. Of other rows only that column is read."""

    def stored_files(self, order: str = "seq", **where: Any) -> StoredFiles:
        """Return the files of the table for tasks, to be read along an ordered column."""


class StoredFiles(Protocol):
    """Files of a table that tasks read."""

    def reader_for(self, day: date) -> Callable[[Sequence[str], int, int], pa.Table]:
        """Return a reader of the files of one batch date: (columns, from, to), a range of the ordered column.

        Its rows have the ordered column (`seq`) and these columns, in the order of the ordered column.
        """


class Views(Protocol):
    """The tables of a step. Each is opened once."""

    def at(self, table: str, stream: str | None = None) -> View:
        """Return the table."""


__all__ = [
    "CapacityGroup",
    "CapacityShare",
    "Decision",
    "Drift",
    "Fact",
    "Facts",
    "FrameSlice",
    "Lever",
    "LeverExplanation",
    "Load",
    "MeasuredDraft",
    "MinedEntry",
    "Offer",
    "Picture",
    "Plan",
    "Rows",
    "Say",
    "SliceCertificate",
    "StoredFiles",
    "TrainingInput",
    "View",
    "Views",
    "Work",
]  # fmt: skip

Say = Callable[[str], None]
Form = TypeVar("Form")


OVERHEAD = ("seq",)
"""Columns that travel in addition to a stream's attributes and count towards its rate."""


@dataclass(frozen=True)
class Load:
    """The traffic of a batch: measured width per column and tuple, and the rate."""

    widths_bits: Mapping[str, float]
    tuples_per_second: float
    fixed_kbps: float = 0.0
    """Traffic in addition to columns: file footers, and entries of the table's log."""

    @property
    def rate_kbps(self) -> float:
        """Return the rate, rounded once: 322 bits at 200.1 tuples per second are exactly 64.4322 kbps."""
        bits = sum((exact_fraction(width) for width in self.widths_bits.values()), Fraction(0))
        return float(bits * exact_fraction(self.tuples_per_second) / 1000 + exact_fraction(self.fixed_kbps))

    def for_share_of_rows(self, share: float) -> Load:
        """Return the load of a share of the rows.

        >>> Load({"temp": 32.0}, 100.0).for_share_of_rows(0.5).rate_kbps
        1.6
        """
        return replace(self, tuples_per_second=self.tuples_per_second * share)


@dataclass(frozen=True)
class CapacityShare:
    """A stream's share of capacity in kbps: in its own channel, and in the channel behind it (None: there is none)."""

    own_kbps: float
    trunk_kbps: float | None = None

    @property
    def narrower_kbps(self) -> float:
        """Return the smaller of both: what the stream may send in total."""
        return self.own_kbps if self.trunk_kbps is None else min(self.own_kbps, self.trunk_kbps)

    def times(self, factor: float) -> CapacityShare:
        """Return both shares, multiplied by `factor`."""
        return CapacityShare(
            self.own_kbps * factor, None if self.trunk_kbps is None else self.trunk_kbps * factor
        )


@dataclass(frozen=True)
class Offer:
    """What a stream would send over a channel, and the treatments that could reduce it."""

    rate_kbps: float
    load: Load | None = None
    items: tuple[tuple[Alternative, ...], ...] = ()
    """The items with a choice, each with its alternatives: kbps sent and cost. The first alternative is no treatment.
    """
    sheds: bool = True
    """Whether any lever works on the stream. If not, it is sent unchanged and may exceed its share."""

    @property
    def fixed_kbps(self) -> float:
        """Return the rate of everything without a choice."""
        return max(0.0, self.rate_kbps - sum(item[0].crosses for item in self.items))


@dataclass(frozen=True)
class Fact:
    """Something learned: its kind, its attribute (empty: the stream), its value and its evidence."""

    fact: str
    subject: str
    value: Any
    evidence: Any = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """The facts of one training of one lever."""

    version: int
    facts: Mapping[tuple[str, str], Fact]
    from_seq: int = 0
    to_seq: int = 0
    _forms: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def decode_once(self, decode: Callable[[Facts], Form]) -> Form:
        """Return the facts in the form that a lever works with; they are decoded once."""
        if decode not in self._forms:
            self._forms[decode] = decode(self)
        found: Form = self._forms[decode]
        return found

    def value(self, fact: str, subject: str = "") -> Any:
        """Return the value of a fact; None if it was not learned."""
        found = self.facts.get((fact, subject))
        return None if found is None else found.value

    def of(self, fact: str) -> dict[str, Fact]:
        """Return all facts of a kind, by subject."""
        return {subject: one for (kind, subject), one in self.facts.items() if kind == fact}


@dataclass(frozen=True)
class TrainingInput:
    """What a lever may learn from: the stream, its first or last tuples, and its share of the capacity."""

    contract: StreamContract
    is_retraining: bool
    edge: Callable[[Sequence[str], int], pa.Table]
    """(columns, count): the first tuples available if the stream was never trained, else the last."""
    load: Load | None
    part: CapacityShare | None
    say: Say
    channel: Channel
    damaged: Callable[[int, int], int]
    """(from, to): number of tuples between two `seq` that were refused because parity could not correct them."""


@dataclass(frozen=True)
class Split:
    """Training that continues in parts, each in a task of its own (`Lever.train`). It travels to tasks."""

    parts: tuple[Any, ...]
    """What the parts are about, e.g. attributes."""
    learn: Callable[[TrainingInput, Any], Any]
    """(lesson, part): the result of a part; small, since it travels to the last task."""
    finish: Callable[[TrainingInput, Sequence[Any]], list[Fact] | None]
    """(lesson, results of the parts): the facts."""


@dataclass(frozen=True)
class Work:
    """What a lever plans for one stream: its batches, oldest first, as the previous stage passed them on."""

    contract: StreamContract
    facts: Mapping[int, Facts]
    """By version: the facts that these batches, or batches that share a frame with them, were pinned to."""
    batches: tuple[Batch, ...]
    framed: tuple[Batch, ...]
    """Every batch that may share a frame with these, including these."""
    before: Callable[[date], Rows]
    """Returns the rows that the previous stage passes on, of one batch date."""
    loads: Mapping[int, Load]
    """By batch, the load offered to this stage."""
    aims: Mapping[int, float]
    """By batch, the target as a share of its capacity share: below 1 after a draft that was larger than planned."""
    tried: Mapping[int, tuple[Plan, MeasuredDraft]] = field(default_factory=dict)
    """For a batch that is planned again: its previous plan and the draft of that plan."""
    fits: bool = False
    """Whether a draft that fits exists already, so that this plan may try something untested."""
    columns: tuple[str, ...] = ()
    """The columns that reach this stage: the stream's attributes, and columns added by levers before it."""
    ordinal: int = 1
    behind: Mapping[str, Facts | None] = field(default_factory=dict)
    """The levers after this one, in order, each with its current facts. The lever may ask what they can do."""


@dataclass(frozen=True)
class CapacityGroup:
    """A capacity group: a channel with all streams that are planned together."""

    name: str
    contracts: Contracts
    tables: Views
    failed: frozenset[str] = frozenset()
    """The members of the group that cannot be planned because of an error. They receive no capacity."""
    spending: Callable[[str, Iterable[date]], Any] | None = None
    """What is spent of the quota of a channel around some days; None: what the batches in `tables` spent."""


@dataclass(frozen=True)
class FrameSlice:
    """A slice of one batch inside one frame: the rows `from_seq..to_seq`; `frame` is the first seq of the frame."""

    batch: int
    batch_date: date
    frame: int
    from_seq: int
    to_seq: int


@dataclass(frozen=True)
class SliceCertificate:
    """The result of certifying a slice of rows for one attribute (empty: whole rows). Results of a batch add up."""

    batch: int
    attribute: str
    ways: frozenset[str]
    certificate: Certificate

    def __add__(self, other: SliceCertificate) -> SliceCertificate:
        return SliceCertificate(
            self.batch, self.attribute, self.ways | other.ways, self.certificate + other.certificate
        )

    @property
    def way(self) -> str:
        """Return the treatment in one word; `keep` if there was none.

        >>> SliceCertificate(1, "temp", frozenset({"keep", "round", "shed"}), Certificate(5.0)).way
        'shed+round'
        """
        return "+".join(way for way in ("shed", "round") if way in self.ways) or "keep"


class Decision(ABC):
    """The decision about some batches of one stream, and all batches that share a frame with them; travels to tasks."""

    @property
    def bounded_attributes(self) -> frozenset[str]:
        """Return the attributes with values that were shed or made inexact, and so may have a bound."""
        return frozenset()

    @abstractmethod
    def apply(self, before: Rows, day: date) -> Rows:
        """Return the rows that are passed on."""

    def rows_kept_at_source(
        self, table: str, parts: Sequence[FrameSlice], before: Rows, counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """Yield the rows to store at the source in one of `Lever.tables_at_source`, for consecutive slices of batches.

        Each table has the columns `seq` and `batch`, and the stream's attributes that are stored. Add counts to
        `counts`: they are summed over tasks and passed to `Plan.account`.
        """
        raise NotImplementedError(
            f"{type(self).__name__}.rows_kept_at_source must yield the rows of {table}, or "
            "Lever.tables_at_source must not name that table"
        )

    @abstractmethod
    def recover(self, after: Rows, day: date) -> Rows:
        """Recover the rows of the previous stage from those passed on, as far as possible."""

    def rows_at_destination(self, after: Rows, day: date) -> Rows:
        """Return the rows as the destination has them by itself: data that stays at the source is absent."""
        return after

    def certify(self, part: FrameSlice, truth: Rows, given: Rows) -> list[SliceCertificate]:
        """Compare the recovered rows with the rows of the previous stage."""
        return []


@dataclass(frozen=True)
class MeasuredDraft:
    """The measured draft of one batch, which is not published yet; input of the accounting."""

    batch: Batch
    ordinal: int
    offered: Mapping[str, int]
    """By unit, what the previous stage kept."""
    aside_rows: Mapping[str, int]
    """By table of `Lever.tables_at_source`, the number of rows of the batch."""
    aside_bytes: Mapping[str, int]
    """By table of `Lever.tables_at_source`, the bytes of these rows."""
    crossed_bytes: Mapping[str, int]
    """By table, the bytes of these rows at the destination: whole files and their entries in the table's log."""
    counts: Mapping[str, int]
    """Counts that tasks made in `Decision.rows_kept_at_source`, by name."""
    sent_rows: int
    """The rows of the batch in `transmitted`, which all levers have passed on."""
    sent_bytes: Mapping[str, int]
    """By column, the bytes in `transmitted`."""
    raw_bytes: Mapping[str, int]
    """By column, the bytes in `raw`."""
    seconds: float


class Plan(ABC):
    """A lever's plan for the batches of one stream.

    If a stream is only observed (`mode: observe`), the plan passes on everything and reports what it would have done.
    """

    @property
    @abstractmethod
    def decision(self) -> Decision:
        """Return what tasks apply."""

    @abstractmethod
    def output_load(self, batch: int) -> Load:
        """Return the load that the plan passes to the next stage."""

    @abstractmethod
    def account(self, drafted: MeasuredDraft) -> Iterable[LedgerRow]:
        """Return ledger rows for one batch: a total for every unit that was offered, and further rows as details.

        The units are the keys of `drafted.offered`: `rows` and `values`. `stage` is the name of the lever, `ordinal`
        is `drafted.ordinal`. The next stage is offered what a total keeps. The last stage, `sent`, keeps the rows that
        were written. If the ledger does not balance at `sent`, the last lever has counted its kept rows wrong.
        """

    def exact_columns(self, batch: int) -> Collection[str]:
        """Return the sheddable columns of a batch that the plan leaves exact; none if the lever does not know them."""
        return ()

    def summary(self, batch: int) -> str:
        """Return what was done to a batch, in a few words for the log; empty if the batch is passed on unchanged.

        If all levers of the stream return nothing, the log says "all kept".
        """
        return ""

    def could_lose_less(self, batch: int) -> bool:
        """Return whether more capacity would reduce the loss of the batch."""
        return False

    def is_larger_than_exact(self, drafted: MeasuredDraft) -> bool:
        """Return whether a synopsis or a rounded column of a draft takes at least the bytes of the exact column."""
        return False

    def is_worth_a_draft(self, before: Plan) -> bool:
        """Return whether the loss is lower than with an earlier plan by enough to justify another draft."""
        return True

    def loss_of(self, batch: int) -> float:
        """Return the loss of a batch under this plan, in the lever's own unit."""
        return 0.0

    def leaves_values_absent(self, batch: int) -> bool:
        """Return whether the plan leaves some values of a batch absent at the destination."""
        return False

    def is_exact(self, batch: int) -> bool:
        """Return whether the plan sends all rows of a batch as the lever receives them."""
        return False

    def mix(self, finer: Plan, share: float) -> Plan | None:
        """Return a plan that treats the first `share` of each batch as `finer` does, and the rest as this one.

        None: the lever treats all tuples of a batch alike, or `finer` loses no less.
        """
        return None

    def shed_too(self, attribute: str) -> Plan | None:
        """Return this plan with one attribute more shed, its values kept at the source.

        None: the lever may not shed it, or has shed it already.
        """
        return None

    def can_shed_more(self, batch: int) -> bool:
        """Return whether the plan could shed more of the batch with a lower target."""
        return False

    def exceeds_own_limit(self, drafted: MeasuredDraft) -> bool:
        """Return whether the draft breaks a limit of the lever itself (not the capacity share) that could be kept."""
        return False

    def record_shortfall(self, batch: int, excess_kbps: float, remedy: str = "") -> None:
        """Record by how much the batch is still too large, and the remedy, if the lever keeps a record."""
        return

    def destination_records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the records that a separate destination needs to recover; by default all of them."""
        return self.records()

    def records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return rows for the tables of `Lever.record_tables`, which replace the rows of the same batches."""
        return {}


class Lever(ABC):
    """Base class of levers. Methods that most levers do not need have a default."""

    name: str
    needs_training = False
    sheds_rows = False
    """Whether the lever passes on fewer rows than it was offered."""
    tables_at_source: tuple[str, ...] = ()
    """Tables at the source in which tasks store rows. They are published before anything is transmitted."""
    record_tables: tuple[str, ...] = ()
    """Tables of `Plan.records`."""

    def train(self, lesson: TrainingInput) -> list[Fact] | Split | None:
        """Return the facts learned; None if there is nothing (new) to learn from. It runs in a task.

        If the work can be divided (e.g. by attribute), return a `Split`: its parts run in tasks of their own.
        """
        return []

    def update_offer(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        """Return what a stream would send after this lever, and the alternatives that would reduce it.

        `channel`: the stream's own channel; `own_kbps`: its share of that channel, if `room` is the channel behind it.
        """
        return offer

    @abstractmethod
    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        """Return a plan for each of `work`, in its order. All of them are decided together."""

    def count_stored_corrections(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        """Return, by batch and attribute, how many corrections are stored for shed values."""
        return {}

    def count_absent_values(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        """Return, by batch and attribute, how many values the destination lacks until it requests them."""
        return {}

    def destination_records(self, batch: Batch, tables: Views) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return the stored records of a batch that a separate destination needs, like `Plan.destination_records`."""
        where: dict[str, Any] = {"stream": batch.stream, "batch_date": batch.batch_date, "batch": batch.batch}
        return {table: tables.at(table).rows(**where).to_pylist() for table in self.record_tables}

    def dropped_rows(self, tables: Views, stream: str, batches: Sequence[int]) -> Mapping[int, DroppedRows]:
        """Return the number of rows of each batch that the lever dropped, also if they are stored at the source.

        Joins and queries count these rows in their coverage. For a batch without an entry they use the rows that the
        ledger calls lost.
        """
        return {}

    def with_fewest_bytes(self, contract: StreamContract, exact: bool) -> StreamContract | None:
        """Return the contract under which the lever sends the fewest bytes and keeps nothing at the source.

        `exact`: no value may differ; otherwise values stay within their bounds. None is returned if the lever
        has no such settings, for example because it drops rows.
        """
        return None

    def inexact_attributes(self, contract: StreamContract) -> frozenset[str]:
        """Return the attributes whose values the lever may round, or recover within a bound."""
        return frozenset()

    def loss_at_bound_pct(self, facts: Facts | None) -> float:
        """Return the loss in % that is assigned to an error equal to the attribute's absolute bound."""
        return 100.0

    @abstractmethod
    def load_decision(
        self, contract: StreamContract, batches: Sequence[Batch], facts: Mapping[int, Facts], tables: Views
    ) -> Decision:
        """Return the decision that these batches were shed with, read from the tables."""

    def detect_drift(
        self, contract: StreamContract, facts: Facts, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[Drift]:
        """Return drift: facts in force that the last tuples contradict."""
        return []

    def doubts(
        self, contract: StreamContract, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[OpenQuestion]:
        """Return doubts about the contract that the last tuples raise; `edge`: their columns and count."""
        return []

    def mine_entry(
        self, contract: StreamContract, statements: Sequence[tuple[str, float]]
    ) -> MinedEntry | None:
        """Return a proposal for the lever's entry from SQL that reads the stream; None: not relevant.

        `statements`: each statement with the number of times that it ran.
        """
        return None

    def explain(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> LeverExplanation | None:
        """Return the lever's part of `explain` for an attribute; None if the lever does not treat it."""
        return None

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        """Return the lever's pictures for the report."""
        return ()


ASKS = "asks"
CORE_PCT = "% of a core"
"""The name of the figure of `join-advice` that states which share of a core a full join takes."""


def question_evidence(sentence: str, remedy: str) -> dict[str, dict[str, str]]:
    """Return the evidence of an assumed fact: the open question and its remedy."""
    return {ASKS: asdict(OpenQuestion(sentence, remedy))}


def open_questions(facts: Facts) -> Iterator[OpenQuestion]:
    """Yield the open questions of the facts in force, ordered by fact."""
    for _, fact in sorted(facts.facts.items()):
        if isinstance(fact.evidence, dict) and ASKS in fact.evidence:
            yield OpenQuestion(**fact.evidence[ASKS])
