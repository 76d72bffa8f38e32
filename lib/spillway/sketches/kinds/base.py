"""What a kind of sketch is, and what it is to ask one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from spillway.errors import Refused, UsageError
from spillway.sketches.answers import Answer, Covers
from spillway.sketches.kinds import every_kind

if TYPE_CHECKING:
    import pyarrow as pa

    from spillway.sketches.binary import StoredSketch
    from spillway.sketches.specification import SketchSpec
    from spillway.sketches.types import Keys

ANSWER = "struct<value:double,low:double,high:double,rows:bigint,note:string>"
HEAVY_KEYS = f"array<struct<key:string,answer:{ANSWER}>>"

Answered = list[tuple[str, Answer]]
"""Answers, each with what was asked."""


@dataclass(frozen=True)
class SketchQuestion:
    """A question of the command line: its name, what is said of it, and how its values become answers.

    `ask` gets the loaded sketch, the values and the confidence; of two sketches (`of_two`) it gets the other one before
    the values. `takes` are the least and the most words it takes (None: any number), beside the other sketch's stream
    and name, and `typed` says what they are: `key`, a value of each attribute; `ordered`, values of the one attribute;
    else words.
    """

    name: str
    about: str
    ask: Callable[..., Answered]
    of_two: bool = False
    takes: tuple[int, int | None] = (0, 0)
    typed: str = ""
    has_purpose: bool = False
    """Whether `ask` has a parameter `purpose`, which selects the estimator."""

    def checked(self, words: Sequence[str], types: Sequence[str]) -> Sequence[str]:
        """The words, when they are as many as the question takes."""
        least, most = (len(types), len(types)) if self.typed == "key" else self.takes
        named = 2 * self.of_two
        least, most = least + named, None if most is None else most + named
        if len(words) < least or (most is not None and len(words) > most):
            ends = f"{least} to {most}" if most != least else str(least)
            wanted = f"at least {least}" if most is None else ends
            got = " ".join(words) or "none"
            raise UsageError(f"`{self.name}` must be given {wanted} values, got {got}; it takes {self.about}")
        return words


class Kind(ABC):
    """One kind: what its sketches are made of and asked.

    `answers` are the methods of its `asking` class that SQL may call, by what they return; those in `of_two` take
    another sketch of the kind. `merges` is false where the order of the stream decides the cells.
    """

    name: ClassVar[str]
    answers: ClassVar[Mapping[str, str]] = {}
    of_two: ClassVar[frozenset[str]] = frozenset()
    questions: ClassVar[tuple[SketchQuestion, ...]] = ()
    merges: ClassVar[bool] = True
    seeded: ClassVar[bool] = True
    """Whether its sketches hash by the contract's `seed`; the library's have one of their own."""

    default_kib: ClassVar[int] = 64
    """The memory of a sketch whose contract names none."""

    def alike(self, sketch: Any) -> Any:
        """What sketches of this kind must have in common to become one."""
        return sketch.shape

    def context_of(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a row of `sketches` knows of the keys in its payload, beside the attributes and their types."""
        return {}

    @abstractmethod
    def forms(self) -> tuple[type[StoredSketch], ...]:
        """The sketches that a payload of this kind can be."""

    @abstractmethod
    def empty(self, spec: SketchSpec) -> StoredSketch:
        """A sketch that has seen nothing; refused when the memory is too small for what is asked."""

    def part(self, spec: SketchSpec) -> StoredSketch:
        """What one piece of the rows fills: mostly the sketch itself."""
        return spec.empty()

    @abstractmethod
    def feed(self, sketch: Any, spec: SketchSpec, rows: pa.Table) -> Keys | None:
        """Take the rows in; returns their keys where heavy ones may be asked for."""

    def whole(self, spec: SketchSpec, parts: Any, heavy: Mapping[int, Any]) -> StoredSketch:
        """The sketch, from all parts merged and the heavy keys where the spec asks for them."""
        found: StoredSketch = parts
        return found

    def of_day(self, spec: SketchSpec, merged: Any) -> StoredSketch:
        """A closed day's sketch, from those of its batches merged."""
        found: StoredSketch = merged
        return found

    def counters(self, sketch: Any) -> list[int] | None:
        """What readers without this program may count with: None where its payload is the library's, or no table."""
        return None

    def asking(self) -> type[Loaded]:
        """The class that answers questions to a sketch of this kind."""
        return Loaded


@dataclass(frozen=True)
class Segment:
    """What of a range was sketched alike, and so is one sketch; a contract that changes begins another."""

    sketch: Any
    from_date: str = ""
    to_date: str = ""

    def __str__(self) -> str:
        shape = ", ".join(
            f"{name} {value}" for name, value in self.sketch.shape.items() if value not in ([], "")
        )
        return f"{self.from_date} to {self.to_date}: {shape}"


class Loaded:
    """A sketch in memory and what it covers; questions it cannot answer are refused with what can.

    Where a range holds `segments`, some questions are answered by each and added up, intervals too; others need one.
    """

    def __init__(self, sketch: Any, covers: Covers | None = None, segments: Sequence[Segment] = ()) -> None:
        self.segments = tuple(segments) or (Segment(sketch),)
        self._sketch = sketch
        self.covers = covers or Covers(name="+".join(sketch.context.get("attributes", ())))

    @property
    def sketch(self) -> Any:
        """The one sketch of the whole range; refused where there are several."""
        if len(self.segments) > 1:
            told = "; ".join(map(str, self.segments))
            remedy = f"ask from {self.segments[-1].from_date} on, or for one of these ranges"
            raise Refused("dates", "lie where the sketch was of one shape for this question", told, remedy)
        return self._sketch

    def each(self) -> list[Loaded]:
        """Every segment by itself."""
        return [type(self)(one.sketch, self.covers) for one in self.segments]

    def added(self, answers: Sequence[Answer]) -> Answer:
        """The answers of all segments as one: the sum of each end of their intervals holds the sum."""
        first, *others = answers
        if not others:
            return self.covered(first)
        sums = {
            name: sum(getattr(answer, name) for answer in answers) for name in ("estimate", "low", "high")
        }
        methods = "+".join(dict.fromkeys(answer.method for answer in answers))
        note = f"added up over {len(answers)} ranges, each with a sketch of its own shape"
        return self.covered(replace(first, **sums, method=methods, note=note))

    def __getattr__(self, name: str) -> Any:
        for kind in every_kind():
            if name in kind.answers:
                raise self.wrong_kind(kind.name)
        raise AttributeError(name)

    def wrong_kind(self, wanted: str) -> Refused:
        """The refusal of a question that another kind answers."""
        return Refused(
            "kind",
            f"be {wanted} for this question",
            self._sketch.kind,
            f"add a {wanted} sketch to the contract",
        )

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the attributes that were sketched."""
        return tuple(self._sketch.context.get("types", ()))

    @property
    def rows(self) -> int | None:
        """How many rows the sketch knows it has seen; None where it does not."""
        return None

    def covered(self, answer: Answer) -> Answer:
        """The answer with what it covers."""
        return replace(answer, covers=self.covers)

    def paired(self, other: Loaded) -> str:
        """How the attributes of two sketches meet, in words; refused where they cannot, saying what differs."""
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
            raise Refused("attributes", rule, ", ".join(told) or other.covers.name, remedy)
        if mine.get("seed") != theirs.get("seed"):
            raise Refused(
                "seed", f"be {mine.get('seed')} for both", theirs.get("seed"), "sketch both with one seed"
            )
        names = [list(context.get("attributes", ())) for context in (mine, theirs)]
        if names[0] != names[1] and sorted(names[0]) == sorted(names[1]):
            rule = f"stand in the order of {'+'.join(names[0])}"
            raise Refused("attributes", rule, "+".join(names[1]), "sketch both in one order")
        return ", ".join(f"{one} with {two}" for one, two in zip(*names, strict=True) if one != two)

    def of_both(self, other: Loaded, answer: Answer, what: str, paired: str = "") -> Answer:
        """An answer about two sketches."""
        names = " x ".join(f"{one.covers.stream}/{one.covers.name}" for one in (self, other))
        return replace(self.covered(answer), note=f"{what} of {names}" + f", {paired}" * bool(paired))


def numbers(question: str, values: Sequence[str], count: int | None = None) -> list[float]:
    """The values of a question as so many numbers (at least one).

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
    """A question without values."""
    return lambda sketch, values, confidence: [(told, getattr(sketch, method)(confidence=confidence))]


def asks_both(method: str, told: str) -> Callable[..., Answered]:
    """A question about two sketches."""
    return lambda sketch, other, _, confidence: [
        (told, getattr(sketch, method)(other, confidence=confidence))
    ]
