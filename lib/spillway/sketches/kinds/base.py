"""Base classes of the kinds of sketches, of their queries, and of loaded sketches that answer them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import InvalidValue, UsageError
from spillway.sketches.answers import Answer, Coverage
from spillway.sketches.kinds import every_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec
    from spillway.sketches.types import Keys

ANSWER = "struct<value:double,low:double,high:double,rows:bigint,note:string>"
HEAVY_KEYS = f"array<struct<key:string,answer:{ANSWER}>>"

Answered = list[tuple[str, Answer]]
"""Answers, each with a description of its query."""


@dataclass(frozen=True)
class SketchQuery:
    """A query of the command line: its name, its help text, and the function that answers it.

    - `ask`: gets the loaded sketch, the values and the confidence. If `of_two`, it gets the other sketch before the
      values.
    - `takes`: the least and the greatest number of arguments (None: any number), without the stream and the name of
      the other sketch.
    - `typed`: the type of the arguments. `key`: a value of each attribute; `ordered`: values of the one attribute;
      empty: plain words.
    """

    name: str
    about: str
    ask: Callable[..., Answered]
    of_two: bool = False
    takes: tuple[int, int | None] = (0, 0)
    typed: str = ""
    has_purpose: bool = False
    """Whether `ask` has a parameter `purpose`, which selects the estimator."""

    def check_arguments(self, words: Sequence[str], types: Sequence[str]) -> Sequence[str]:
        """Return the arguments; raise `UsageError` if their number is wrong."""
        least, most = (len(types), len(types)) if self.typed == "key" else self.takes
        named = 2 * self.of_two
        least, most = least + named, None if most is None else most + named
        if len(words) < least or (most is not None and len(words) > most):
            ends = f"{least} to {most}" if most != least else str(least)
            wanted = f"at least {least}" if most is None else ends
            got = " ".join(words) or "none"
            raise UsageError(f"`{self.name}` must be given {wanted} values, got {got}; it takes {self.about}")
        return words


class SketchKind(ABC):
    """A kind of sketch: how its sketches are built, merged and queried.

    `answers`: the methods of its `asking` class that SQL may call, with their return types. Those in `of_two` take
    another sketch of the kind. `merges`: False if the state depends on the order of the stream.
    """

    name: ClassVar[str]
    answers: ClassVar[Mapping[str, str]] = {}
    of_two: ClassVar[frozenset[str]] = frozenset()
    questions: ClassVar[tuple[SketchQuery, ...]] = ()
    merges: ClassVar[bool] = True
    seeded: ClassVar[bool] = True
    """Whether its sketches use the contract's `seed`; HLL sketches of DataSketches have their own seed."""

    default_kib: ClassVar[int] = 64
    """The memory in KiB of a sketch whose contract does not state it."""

    def merge_key(self, sketch: Any) -> Any:
        """Return the properties that must be equal in sketches that are merged."""
        return sketch.shape

    def context_of(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a row of `sketches` states about the payload's keys in addition to attributes and types."""
        return {}

    @abstractmethod
    def forms(self) -> tuple[type[StoredSketch], ...]:
        """Return the sketch classes that a payload of this kind can have."""

    @abstractmethod
    def empty(self, spec: SketchSpec) -> StoredSketch:
        """Return an empty sketch; raise `InvalidValue` if the memory is too small for the parameters."""

    def empty_part(self, spec: SketchSpec) -> StoredSketch:
        """Return an empty partial sketch for one slice of the rows; for most kinds the same as `empty`."""
        return spec.empty()

    @abstractmethod
    def add_rows(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> Keys | None:
        """Add the rows. Return their keys if the kind supports heavy keys, else None."""

    def finish(self, spec: SketchSpec, parts: Any, heavy: Mapping[int, Any]) -> StoredSketch:
        """Return the sketch from the merged partial sketches and, if the spec requires them, the heavy keys."""
        found: StoredSketch = parts
        return found

    def close_day(self, spec: SketchSpec, merged: Any) -> StoredSketch:
        """Return the sketch of a closed day from the merged sketches of its batches."""
        found: StoredSketch = merged
        return found

    def counters(self, sketch: Any) -> list[int] | None:
        """Return the counters for readers without Spillway, or None.

        None: the payload has the format of DataSketches, or the sketch is not a table of counters.
        """
        return None

    def query_class(self) -> type[LoadedSketch]:
        """Return the class that answers queries on a sketch of this kind."""
        return LoadedSketch


@dataclass(frozen=True)
class Segment:
    """The part of a date range with equal sketch parameters, merged to one sketch.

    A change of the contract's sketch begins a new segment.
    """

    sketch: Any
    from_date: str = ""
    to_date: str = ""

    def __str__(self) -> str:
        shape = ", ".join(
            f"{name} {value}" for name, value in self.sketch.shape.items() if value not in ([], "")
        )
        return f"{self.from_date} to {self.to_date}: {shape}"


class LoadedSketch:
    """A sketch in memory, with the data that it covers. The error for a wrong query names the kind that answers it.

    If a date range has several `segments`, some queries are answered by each segment, and the estimates and intervals
    are added up. Other queries need a single segment.
    """

    def __init__(self, sketch: Any, covers: Coverage | None = None, segments: Sequence[Segment] = ()) -> None:
        self.segments = tuple(segments) or (Segment(sketch),)
        self._sketch = sketch
        self.covers = covers or Coverage(name="+".join(sketch.context.get("attributes", ())))

    @property
    def sketch(self) -> Any:
        """The single sketch of the whole range; raise `InvalidValue` if there are several segments."""
        if len(self.segments) > 1:
            told = "; ".join(map(str, self.segments))
            remedy = f"start at {self.segments[-1].from_date}, or use one of these ranges"
            raise InvalidValue("dates", "be in a range in which the sketch has one shape", told, remedy)
        return self._sketch

    def each(self) -> list[LoadedSketch]:
        """Return a loaded sketch for each segment."""
        return [type(self)(one.sketch, self.covers) for one in self.segments]

    def sum_of_segments(self, answers: Sequence[Answer]) -> Answer:
        """Return the sum of the answers of all segments; each end of the interval is the sum of their ends."""
        first, *others = answers
        if not others:
            return self.with_coverage(first)
        sums = {
            name: sum(getattr(answer, name) for answer in answers) for name in ("estimate", "low", "high")
        }
        methods = "+".join(dict.fromkeys(answer.method for answer in answers))
        note = f"added up over {len(answers)} ranges, each with a sketch of its own shape"
        return self.with_coverage(replace(first, **sums, method=methods, note=note))

    def __getattr__(self, name: str) -> Any:
        for kind in every_kind():
            if name in kind.answers:
                raise self.wrong_kind(kind.name)
        raise AttributeError(name)

    def wrong_kind(self, wanted: str) -> InvalidValue:
        """Return the error for a query that another kind answers."""
        return InvalidValue(
            "kind",
            f"be {wanted} for this question",
            self._sketch.kind,
            f"add a {wanted} sketch to the contract",
        )

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the sketched attributes."""
        return tuple(self._sketch.context.get("types", ()))

    @property
    def rows(self) -> int | None:
        """The number of rows in the sketch; None if it does not store this."""
        return None

    def with_coverage(self, answer: Answer) -> Answer:
        """Return the answer with the data that it covers."""
        return replace(answer, covers=self.covers)

    def matched_attributes(self, other: LoadedSketch) -> str:
        """Return in words which attributes of two sketches are matched; raise `InvalidValue` if none can be."""
        if type(other) is not type(self):
            raise other.wrong_kind(self._sketch.kind)
        mine, theirs = self._sketch.context, other._sketch.context
        types = [list(context.get("types", ())) for context in (mine, theirs)]
        if types[0] != types[1]:
            where = next(
                (place for place, (one, two) in enumerate(zip(*types, strict=False)) if one != two),
                min(map(len, types)),
            )
            told = [
                f"{name} {kind}" for name, kind in zip(theirs.get("attributes", ()), types[1], strict=False)
            ]
            rule = f"be of the types {', '.join(types[0])}, in this order, to meet {self.covers.name}"
            remedy = f"they differ from attribute {where + 1} on: sketch both alike"
            raise InvalidValue("attributes", rule, ", ".join(told) or other.covers.name, remedy)
        if mine.get("seed") != theirs.get("seed"):
            raise InvalidValue(
                "seed", f"be {mine.get('seed')} for both", theirs.get("seed"), "sketch both with one seed"
            )
        names = [list(context.get("attributes", ())) for context in (mine, theirs)]
        if names[0] != names[1] and sorted(names[0]) == sorted(names[1]):
            rule = f"stand in the order of {'+'.join(names[0])}"
            raise InvalidValue("attributes", rule, "+".join(names[1]), "sketch both in one order")
        return ", ".join(f"{one} with {two}" for one, two in zip(*names, strict=True) if one != two)

    def answer_of_both(self, other: LoadedSketch, answer: Answer, what: str, paired: str = "") -> Answer:
        """Return an answer about two sketches, with a note that names both."""
        names = " x ".join(f"{one.covers.stream}/{one.covers.name}" for one in (self, other))
        return replace(self.with_coverage(answer), note=f"{what} of {names}" + f", {paired}" * bool(paired))


def numbers(question: str, values: Sequence[str], count: int | None = None) -> list[float]:
    """Return the values of a query as `count` numbers (None: at least one).

    >>> numbers("between", ["1", "2.5"], 2)
    [1.0, 2.5]
    >>> numbers("quantile", ["half"])
    Traceback (most recent call last):
        ...
    spillway.errors.UsageError: `quantile` must be given some numbers, got half; see spillway ask --help
    """
    try:
        found = [float(value) for value in values]
    except ValueError:
        found = []
    if len(found) != (count or len(values)) or not found:
        wanted, got = f"{count or 'some'} number{'s' * (count != 1)}", " ".join(values) or "none"
        raise UsageError(f"`{question}` must be given {wanted}, got {got}; see spillway ask --help")
    return found


def asks(method: str, told: str) -> Callable[..., Answered]:
    """Return the `ask` function of a query without values. `told`: the description of the answer."""
    return lambda sketch, values, confidence: [(told, getattr(sketch, method)(confidence=confidence))]


def asks_both(method: str, told: str) -> Callable[..., Answered]:
    """Return the `ask` function of a query on two sketches. `told`: the description of the answer."""
    return lambda sketch, other, _, confidence: [
        (told, getattr(sketch, method)(other, confidence=confidence))
    ]
