"""One fault stays one fault: what goes wrong with a stream is kept, the others go on, and the run ends red.

Every step of a run is done stream by stream through `Faults`. What a stream's step raises, on purpose or not, is noted
with stream, batches and remedy, and said at once; an exception that nobody foresaw also leaves its stack in the log. It
is given up for that stream alone, and its batches wait as they are: the next run takes them up again. At the end
`Faults.tell` raises one sentence for each.

The room of a stream that failed is neither given away nor kept from the others: it counts with what it last offered
(`streams.capacity.parts`), so that the batches it will send later, of the same time, still fit beside theirs.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.batch import Batch
from spillway.contracts import Contracts
from spillway.errors import ConcurrentRun, Problem, RunFailed, SpillwayError
from spillway.job import Made, side_by_side
from spillway.levers.protocol import Say

_REMEDY = (
    "its stack is in the log: mend what that names, or take it out of the contract, and run again; until then the "
    "stream's batches wait as they are, and the other streams go on"
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")


@dataclass(frozen=True)
class Fault:
    """What went wrong: with which stream (none: with what all share), at which step, with which batches."""

    stream: str
    step: str
    problem: Exception
    batches: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """Stream, batches, what, remedy.

        >>> print(Fault("weather", "plan", SpillwayError("`capacity` must be positive, got 0; say it"), (3,)).sentence)
        weather, batch 3: `capacity` must be positive, got 0; say it
        >>> print(Fault("weather", "plan", ZeroDivisionError("by nothing"), (3,)).sentence.partition(";")[0])
        weather, batch 3: `plan` must end without an error that nobody foresaw, got 'ZeroDivisionError: by nothing'
        """
        numbers = ", ".join(map(str, self.batches))
        where = f"{self.stream}, batch {numbers}" if numbers else self.stream
        if not isinstance(self.problem, SpillwayError):
            rule = "end without an error that nobody foresaw"
            return str(Problem(where, self.step, rule, words(self.problem), _REMEDY))
        told = str(self.problem)
        return told if self.stream in told.partition(";")[0] else f"{where}: {told}"


def words(problem: BaseException) -> str:
    """An exception in one line, what a task far away raised included.

    >>> words(KeyError("site"))
    "KeyError: 'site'"
    """
    text = str(problem).strip()
    found = _TRACEBACK.search(text)
    if found is not None:
        return found.group(1).strip()
    first = text.partition("\n")[0]
    return f"{type(problem).__name__}: {first}" if first else type(problem).__name__


class Faults:
    """What went wrong in a run so far; several streams may be at work at the same time.

    >>> faults = Faults()
    >>> faults.each("halve", ["a", "bc"], lambda text: 1 / (2 - len(text)))
    {'a': 1.0}
    >>> faults.streams
    frozenset({'bc'})
    """

    def __init__(self, say: Say = lambda _: None) -> None:
        self._say = say
        self._one_at_a_time = threading.Lock()
        self.found: list[Fault] = []

    @property
    def streams(self) -> frozenset[str]:
        """The streams that something went wrong with."""
        return frozenset(fault.stream for fault in self.found)

    @property
    def gave_way(self) -> frozenset[str]:
        """The streams in which another run was quicker."""
        return frozenset(fault.stream for fault in self.found if isinstance(fault.problem, ConcurrentRun))

    def note(self, stream: str, step: str, problem: Exception, batches: Iterable[int] = ()) -> None:
        """Keep it for the end, and say it now."""
        fault = Fault(stream, step, problem, tuple(batches))
        if not isinstance(problem, SpillwayError):
            logging.getLogger("spillway").error("%s: %s: %s", stream, step, words(problem), exc_info=problem)
        with self._one_at_a_time:
            if all(fault.sentence != other.sentence for other in self.found):
                self.found.append(fault)
        self._say(f"not done: {fault.sentence}")

    def keep(self, step: str, problem: SpillwayError) -> None:
        """Keep what a run in a run has said already, one sentence each."""
        told = problem.sentences if isinstance(problem, RunFailed) else (str(problem),)
        with self._one_at_a_time:
            known = {fault.sentence for fault in self.found}
            self.found += [Fault("", step, SpillwayError(one)) for one in told if one not in known]

    def add(self, others: Faults) -> None:
        """Keep what others noted, and said."""
        with self._one_at_a_time:
            self.found += others.found

    def attempt(
        self, stream: str, step: str, work: Callable[[], Made], batches: Sequence[Batch] = ()
    ) -> Made | None:
        """What the step makes of one stream; None where it cannot."""
        try:
            return work()
        except Exception as problem:
            self.note(stream, step, problem, (batch.batch for batch in batches))
            return None

    def each(
        self,
        step: str,
        streams: Iterable[str],
        work: Callable[[str], Made],
        batches: Mapping[str, Sequence[Batch]] | None = None,
    ) -> dict[str, Made]:
        """The step for every stream, a few at a time; what it made of those it could be done for."""
        made: dict[str, Made] = {}

        def one(stream: str) -> None:
            found = self.attempt(stream, step, lambda: (work(stream),), (batches or {}).get(stream, ()))
            if found is not None:
                made[stream] = found[0]

        names = list(streams)
        side_by_side(one, names)
        return {stream: made[stream] for stream in names if stream in made}

    def broken(self, contracts: Contracts, channel: str | None = None) -> None:
        """Note what contracts of a channel (or all) cannot be used: their streams wait."""
        for one in contracts.broken:
            if channel is None or one.may_go_through(channel, contracts.channels):
                problem = SpillwayError("\n".join(map(str, one.problems)))
                self.note("", "contract", problem)

    def tell(self) -> None:
        """Raise what went wrong, a sentence each; nothing where nothing did."""
        if not self.found:
            return
        first, sentences = self.found[0], [fault.sentence for fault in self.found]
        if sentences == [str(first.problem)]:
            raise first.problem
        if all(isinstance(fault.problem, ConcurrentRun) for fault in self.found):
            raise ConcurrentRun("\n".join(sentences)) from first.problem
        raise RunFailed(sentences) from first.problem
