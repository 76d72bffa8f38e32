"""What a lever is: what the pipeline asks of it, when, and what it hands it.

A stream's batch goes through the levers of its contract in order, each reading the rows that the one before it handed
on (`Rows`), the first those of `raw`; what the last hands on is `transmitted`. Recovery goes the other way. The
pipeline calls, in this order:

    train           once in a while: facts about the stream, each training a version of its own
    offered         before a room is divided: what the stream would put on it, and could give up
    plan            once for all streams that share the room: a `Plan` a stream, nothing applied yet
    Plan.decision   in tasks, piece by piece: the rows it hands on, and the rows it lays aside
    Plan.account    after the drafts were written and measured: lines of the ledger
    Plan.records    with the drafts, published in one go: rows of tables of its own
    decided         later, maybe elsewhere: the decision again, from the tables alone
    Decision.given_back, Decision.certify      recovery, and the proof that it keeps its promise

A lever subclasses `Lever`, and answers for itself only: other levers may stand before and after it. Decisions and what
they hold travel to tasks, so they pickle. State between batches is what its own tables hold.

What a lever tells people: what no longer holds, why an attribute travels as it does, and pictures, all as data.

What a lever asks of whoever wrote the contract: a line that training had to do without.

The question travels with the fact that was assumed, in its evidence, and whoever shows how things stand (`status`)
finds it there, of any lever. It is asked until a training was told.

>>> from spillway.levers.protocol import Fact, Facts
>>> fact = Fact("colour", "", "grey", asking("its colour is assumed", "write `colour:` in the contract"))
>>> list(open_questions(Facts(1, {("colour", ""): fact})))
[OpenQuestion(sentence='its colour is assumed', remedy='write `colour:` in the contract')]

Rows and tables as levers are handed them: read by what is asked for, whatever lies behind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from spillway.batch import Batch
from spillway.contracts import Channel, Contracts, StreamContract
from spillway.ledger import LedgerRow
from spillway.levers.certificate import Certificate
from spillway.levers.dropped_rows import DroppedRows
from spillway.levers.exact import exact
from spillway.levers.knapsack import Alternative


@dataclass(frozen=True)
class Noticed:
    """Something that no longer holds, told as an expectation is: reported, never a failure."""

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
class Told:
    """A lever's part of `explain`: what it does to an attribute, why, in numbers, and what to do about it."""

    way: str
    because: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A picture or a table for the report, as data: the report draws it."""

    title: str
    kind: str
    """lines, timeline, bars, regions or table."""
    data: Mapping[str, Any]
    note: str = ""
    wide: bool = False


@dataclass(frozen=True)
class MinedEntry:
    """What a lever's entry of a contract could be by the queries that people ran, and what is to be said of it."""

    entry: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class Rows(Protocol):
    """The rows of one batch date at some stage, read by columns and a range of `seq`, in `seq` order."""

    def __call__(self, columns: Sequence[str], from_seq: int, to_seq: int) -> pa.Table:
        """`seq` and the columns of the rows with `from_seq <= seq <= to_seq`; a column nobody has is null."""

    def values(self, seq: np.ndarray) -> np.ndarray:
        """How many values each of these rows carries: one an attribute, less what was shed of it."""

    @property
    def asked_back_bytes(self) -> int:
        """Bytes kept at the source that were read to give these rows back."""


class View(Protocol):
    """A table as a lever is handed it."""

    @property
    def exists(self) -> bool:
        """Whether there is such a table here."""

    def rows(self, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """The rows that match; none where there is no table."""

    def newest(
        self, by: str, columns: Sequence[str] | None = None, below: int | None = None, **where: Any
    ) -> pa.Table:
        """Of the rows that match, those with the largest `by` (below a number)."""

    def last(self, by: str, most: int, columns: Sequence[str] | None = None, **where: Any) -> pa.Table:
        """Of the rows that match, those with the so many largest `by`; of others that column alone is read."""

    def stored(self, order: str = "seq", **where: Any) -> Stored:
        """What tasks read of it, along an ordered column."""


class Stored(Protocol):
    """Files of a table, on their way to tasks."""

    def on(self, day: date) -> Callable[[Sequence[str], int, int], pa.Table]:
        """Those of one batch date, to be read by columns and a range of the ordered column."""


class Views(Protocol):
    """The tables of a step, each opened once."""

    def at(self, table: str, stream: str | None = None) -> View:
        """The table."""


__all__ = [
    "Decision", "Drafted", "Fact", "Facts", "FramePart", "Lesson", "Lever", "Load", "Measured", "MinedEntry",
    "Noticed", "Offer", "Part", "Picture", "Plan", "Room", "Rows", "Say", "Stored", "Told", "View",
    "Views", "Work",
]  # fmt: skip

Say = Callable[[str], None]


OVERHEAD = ("seq",)
"""Columns that travel in addition to a stream's attributes and count towards its rate."""


@dataclass(frozen=True)
class Load:
    """What a batch puts on the wire: width per column and tuple, as measured, and the rate."""

    widths_bits: Mapping[str, float]
    tuples_per_second: float
    fixed_kbps: float = 0.0
    """What crosses beside columns: footers, and what the table's log says of the files."""

    @property
    def rate_kbps(self) -> float:
        """The rate, rounded once: 322 bits 200.1 times a second are 64.4322 kbps, not a float next to it."""
        bits = sum((exact(width) for width in self.widths_bits.values()), Fraction(0))
        return float(bits * exact(self.tuples_per_second) / 1000 + exact(self.fixed_kbps))

    def thinned(self, share: float) -> Load:
        """The load of a share of the rows.

        >>> Load({"temp": 32.0}, 100.0).thinned(0.5).rate_kbps
        1.6
        """
        return replace(self, tuples_per_second=self.tuples_per_second * share)


@dataclass(frozen=True)
class Part:
    """Kbps a stream may send into its own channel, and into the one that goes into (None: it goes into none)."""

    own_kbps: float
    trunk_kbps: float | None = None

    @property
    def narrower_kbps(self) -> float:
        """What the stream may send in the end."""
        return self.own_kbps if self.trunk_kbps is None else min(self.own_kbps, self.trunk_kbps)

    def times(self, factor: float) -> Part:
        """A share of both."""
        return Part(self.own_kbps * factor, None if self.trunk_kbps is None else self.trunk_kbps * factor)


@dataclass(frozen=True)
class Offer:
    """What a stream would put on a channel, and what of it could cross in other ways."""

    rate_kbps: float
    load: Load | None = None
    items: tuple[tuple[Alternative, ...], ...] = ()
    """What it has a choice in, each with its ways: kbps that cross, and what that costs; as it is first."""
    sheds: bool = True
    """Whether any lever works on it; or it crosses as it is, whatever its part."""

    @property
    def fixed_kbps(self) -> float:
        """What it has no choice in."""
        return max(0.0, self.rate_kbps - sum(item[0].crosses for item in self.items))


@dataclass(frozen=True)
class Fact:
    """Something learned: its kind, the attribute it is about (empty: the stream), its value, and its evidence."""

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

    def value(self, fact: str, subject: str = "") -> Any:
        """The value of a fact; None where it was not learned."""
        found = self.facts.get((fact, subject))
        return None if found is None else found.value

    def of(self, fact: str) -> dict[str, Fact]:
        """All facts of a kind, by subject."""
        return {subject: one for (kind, subject), one in self.facts.items() if kind == fact}


@dataclass(frozen=True)
class Lesson:
    """What a lever may learn from: the stream, its first (or, trained before, last) tuples, its place in its room."""

    contract: StreamContract
    again: bool
    edge: Callable[[Sequence[str], int], pa.Table]
    """(columns, count): the first tuples held where the stream was never trained, else the last."""
    load: Load | None
    part: Part | None
    say: Say
    channel: Channel
    damaged: Callable[[int, int], int]
    """(from, to): number of tuples between two `seq` that were refused because parity could not correct them."""


@dataclass(frozen=True)
class Work:
    """What a lever plans for one stream: its batches, oldest first, as they come from the stage before."""

    contract: StreamContract
    facts: Mapping[int, Facts]
    """By version: those that any of these batches, or what shares a frame with them, was pinned to."""
    batches: tuple[Batch, ...]
    framed: tuple[Batch, ...]
    """Every batch that may share a frame with these, themselves included."""
    before: Callable[[date], Rows]
    """The rows that the stage before hands on, of one batch date."""
    loads: Mapping[int, Load]
    """By batch, what is offered to this stage."""
    aims: Mapping[int, float]
    """By batch, the share of its part that is aimed at: less than 1 where more came out than was planned."""
    tried: Mapping[int, tuple[Plan, Drafted]] = field(default_factory=dict)
    """By batch, what was planned the last time and what it came to, where it is planned again."""
    fits: bool = False
    """Whether a draft that fits is at hand, so that this one may try what is not known yet."""
    columns: tuple[str, ...] = ()
    """What reaches this stage: the stream's attributes, and what the levers before it added."""
    ordinal: int = 1
    behind: Mapping[str, Facts | None] = field(default_factory=dict)
    """The levers that stand behind this one, in order, each with its facts in force: it may ask what they can do."""


@dataclass(frozen=True)
class Room:
    """What is shared: a channel with all the streams that are planned together."""

    name: str
    contracts: Contracts
    tables: Views
    failed: frozenset[str] = frozenset()
    """Who shares it and cannot be worked out as it stands: nothing is left to them."""


@dataclass(frozen=True)
class FramePart:
    """A stretch of one batch inside one frame: the rows `from_seq..to_seq`, the frame's begin at `frame`."""

    batch: int
    batch_date: date
    frame: int
    from_seq: int
    to_seq: int


@dataclass(frozen=True)
class Measured:
    """What certifying a stretch of rows found of one attribute (empty: of whole rows), to be added up by batch."""

    batch: int
    attribute: str
    ways: frozenset[str]
    certificate: Certificate

    def __add__(self, other: Measured) -> Measured:
        return Measured(
            self.batch, self.attribute, self.ways | other.ways, self.certificate + other.certificate
        )

    @property
    def way(self) -> str:
        """What was done, in one word: keep where nothing was.

        >>> Measured(1, "temp", frozenset({"keep", "round", "shed"}), Certificate(5.0)).way
        'shed+round'
        """
        return "+".join(way for way in ("shed", "round") if way in self.ways) or "keep"


class Decision(ABC):
    """What was decided for some batches of one stream, and whatever shares a frame with them; travels to tasks."""

    @property
    def bounded(self) -> frozenset[str]:
        """The attributes of which any value was shed or made inexact, and so may come with a bound."""
        return frozenset()

    @abstractmethod
    def kept(self, before: Rows, day: date) -> Rows:
        """The rows that are handed on."""

    def aside(
        self, table: str, parts: Sequence[FramePart], before: Rows, counts: dict[str, int]
    ) -> Iterator[pa.Table]:
        """What is laid aside in one of the lever's tables, of stretches of a batch that follow each other.

        What is counted on the way goes into `counts` and comes back to `Plan.account`.
        """
        raise NotImplementedError(f"{type(self).__name__} lays nothing aside in {table}")

    @abstractmethod
    def given_back(self, after: Rows, day: date) -> Rows:
        """The rows as they came to this stage, as far as they can be given back, from those handed on."""

    def arrived(self, after: Rows, day: date) -> Rows:
        """The rows as the destination has them by itself: whatever stays at the source is absent."""
        return after

    def certify(self, part: FramePart, truth: Rows, given: Rows) -> list[Measured]:
        """How what was given back compares with what came to this stage."""
        return []


@dataclass(frozen=True)
class Drafted:
    """What was written of one batch and is not yet published, for whoever accounts for it."""

    batch: Batch
    ordinal: int
    offered: Mapping[str, int]
    """By unit, what the stage before kept."""
    aside_rows: Mapping[str, int]
    aside_bytes: Mapping[str, int]
    crossed_bytes: Mapping[str, int]
    """By table, what of that lies at the destination: whole files, and what the table's log says of them."""
    counts: Mapping[str, int]
    """What tasks counted while they laid aside, by the names they gave it."""
    sent_rows: int
    sent_bytes: Mapping[str, int]
    raw_bytes: Mapping[str, int]
    seconds: float


class Plan(ABC):
    """A lever's plan for the batches of one stream.

    Of a stream that is only observed (`mode: observe`) it hands on everything, and says what it would have done.
    """

    @property
    @abstractmethod
    def decision(self) -> Decision:
        """What tasks apply."""

    @abstractmethod
    def offers_on(self, batch: int) -> Load:
        """What the next stage is offered, as planned."""

    @abstractmethod
    def account(self, drafted: Drafted) -> Iterable[LedgerRow]:
        """Lines of the ledger for one batch: a total for every unit it was offered, and whatever else tells more."""

    def exact_columns(self, batch: int) -> Collection[str]:
        """Return the sheddable columns of a batch that the plan leaves exact; none if the lever does not know them."""
        return ()

    def said(self, batch: int) -> str:
        """What was done to a batch, in a few words; empty where nothing was."""
        return ""

    def could_lose_less(self, batch: int) -> bool:
        """Whether it would have lost less of the batch with more room."""
        return False

    def takes_too_much(self, drafted: Drafted) -> bool:
        """Return whether a synopsis or a rounded column of a draft takes at least the bytes of the exact column."""
        return False

    def is_worth_a_draft(self, before: Plan) -> bool:
        """Whether it loses so much less than an earlier plan of the same batches that it is worth another draft."""
        return True

    def loss_of(self, batch: int) -> float:
        """Return the loss of a batch under this plan, in the lever's own unit."""
        return 0.0

    def leaves_values_absent(self, batch: int) -> bool:
        """Return whether the plan leaves some values of a batch absent at the destination."""
        return False

    def mix(self, finer: Plan, share: float) -> Plan | None:
        """Return a plan that treats the first `share` of each batch as `finer` does, and the rest as this one.

        None: the lever treats all tuples of a batch alike, or `finer` loses no less.
        """
        return None

    def can_do_more(self, batch: int) -> bool:
        """Whether it could shed more of the batch if it aimed lower."""
        return False

    def exceeds(self, drafted: Drafted) -> bool:
        """Whether a limit of the lever's own was broken, beside the part of the room, and it could be kept."""
        return False

    def fell_short(self, batch: int, excess_kbps: float, remedy: str = "") -> None:
        """Record by how much the batch is still too large, and what to do about it, if the lever keeps a record."""
        return

    def told(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """What of its records a destination that is elsewhere needs to recover; by default all of them."""
        return self.records()

    def records(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Rows for tables of its own, which replace those of the same batches."""
        return {}


class Lever(ABC):
    """A lever. What most have no say in has an answer here."""

    name: str
    needs_training = False
    sheds_rows = False
    """Whether it hands on fewer rows than it was offered."""
    aside_tables: tuple[str, ...] = ()
    """Tables that tasks lay rows aside in, published before anything is transmitted."""
    record_tables: tuple[str, ...] = ()
    """Tables of `Plan.records`."""

    def train(self, lesson: Lesson) -> list[Fact] | None:
        """Learn; None where there is nothing (new) to learn from."""
        return []

    def offered(
        self,
        offer: Offer,
        contract: StreamContract,
        channel: Channel,
        facts: Facts | None,
        own_kbps: float | None,
    ) -> Offer:
        """What a stream would put on its room after this lever, and what of it could cross in other ways.

        `channel`: the stream's own; `own_kbps`: its part of that, where the room is the channel that goes into.
        """
        return offer

    @abstractmethod
    def plan(self, room: Room, work: Sequence[Work]) -> Sequence[Plan]:
        """A plan for each of `work`, in its order, decided together."""

    def stored(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        """By batch and attribute, how many corrections are kept for what was shed."""
        return {}

    def absent(
        self, contract: StreamContract, batches: Sequence[Batch], tables: Views
    ) -> Mapping[tuple[int, str], int]:
        """By batch and attribute, how many values the destination does not have until it asks for them."""
        return {}

    def dropped_rows(self, tables: Views, stream: str, batches: Sequence[int]) -> Mapping[int, DroppedRows]:
        """Return the rows of each batch that the lever dropped."""
        return {}

    def with_fewest_bytes(self, contract: StreamContract, exact: bool) -> StreamContract | None:
        """Return the contract under which the lever sends the fewest bytes and keeps nothing at the source.

        `exact`: no value may differ; otherwise values stay within their bounds. None is returned if the lever has no
        such settings, for example because it drops rows.
        """
        return None

    def inexact_attributes(self, contract: StreamContract) -> frozenset[str]:
        """Return the attributes whose values the lever may round, or recover within a bound."""
        return frozenset()

    def whole_bound_pct(self, facts: Facts | None) -> float:
        """What an error as large as a bound in an attribute's own unit counts as, in %."""
        return 100.0

    @abstractmethod
    def decided(
        self, contract: StreamContract, batches: Sequence[Batch], facts: Mapping[int, Facts], tables: Views
    ) -> Decision:
        """The decision that these batches were shed with, read back."""

    def noticed(
        self, contract: StreamContract, facts: Facts, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[Noticed]:
        """What the last tuples say of the facts in force."""
        return []

    def doubts(
        self, contract: StreamContract, edge: Callable[[Sequence[str], int], pa.Table]
    ) -> list[OpenQuestion]:
        """Return doubts about the contract that the last tuples raise; `edge`: their columns and count."""
        return []

    def mined(self, contract: StreamContract, statements: Sequence[tuple[str, float]]) -> MinedEntry | None:
        """What its entry could be by SQL that reads the stream, each with how often it ran; None: no matter."""
        return None

    def told(
        self, contract: StreamContract, attribute: str, facts: Facts | None, tables: Views
    ) -> Told | None:
        """What `explain` says of an attribute; None where the lever has nothing to do with it."""
        return None

    def pictures(self, contract: StreamContract, facts: Facts | None, tables: Views) -> Iterable[Picture]:
        """What the report shows of the lever."""
        return ()


_ASKS = "asks"


def asking(sentence: str, remedy: str) -> dict[str, dict[str, str]]:
    """The evidence of a fact that was assumed."""
    return {_ASKS: asdict(OpenQuestion(sentence, remedy))}


def open_questions(facts: Facts) -> Iterator[OpenQuestion]:
    """What is asked of facts in force, in the order of their names."""
    for _, fact in sorted(facts.facts.items()):
        if isinstance(fact.evidence, dict) and _ASKS in fact.evidence:
            yield OpenQuestion(**fact.evidence[_ASKS])
