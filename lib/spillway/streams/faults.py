"""Isolate faults: if a step fails for one stream, the others go on, and the run fails at the end.

`Faults` runs each step of a run stream by stream. An exception in a step, expected or not, is recorded with stream,
batches and remedy, and reported at once. An unexpected exception is also logged with its traceback. The run stops
working on that stream only, and its batches keep their status, so the next run continues them. At the end,
`Faults.tell` raises an error with one sentence per fault.

The channel share of a failed stream is neither given to other streams nor taken from them. The stream counts with its
last offered rate (`streams.capacity.parts`), so the batches that it sends later still fit next to the others of the
same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from spillway.batch import Batch
from spillway.contracts import Contracts
from spillway.engine.protocol import Engine, Step, run_together
from spillway.engine.task_errors import cause_of
from spillway.errors import ConcurrentRun, Problem, RunFailed, SpillwayError
from spillway.job import Made, map_in_threads
from spillway.levers.protocol import Say

_REMEDY = (
    "see the traceback in the log: fix what it names, or remove it from the contract, and run again; until then the "
    "stream's batches wait as they are, and the other streams go on"
)


@dataclass(frozen=True)
class Fault:
    """One fault: the stream (empty: all streams share the cause), the step, the exception, and the batches."""

    stream: str
    step: str
    problem: Exception
    batches: tuple[int, ...] = ()

    @property
    def sentence(self) -> str:
        """One sentence with the stream, the batches, the problem and the remedy.

        >>> print(Fault("weather", "plan", SpillwayError("`capacity` must be positive, got 0; say it"), (3,)).sentence)
        weather, batch 3: `capacity` must be positive, got 0; say it
        >>> print(Fault("weather", "plan", ZeroDivisionError("by nothing"), (3,)).sentence.partition(";")[0])
        weather, batch 3: `plan` must end without an unexpected error, got 'ZeroDivisionError: by nothing'
        """
        numbers = ", ".join(map(str, self.batches))
        where = f"{self.stream}, batch {numbers}" if numbers else self.stream
        if not isinstance(self.problem, SpillwayError):
            rule = "end without an unexpected error"
            return str(Problem(where, self.step, rule, format_exception(self.problem), _REMEDY))
        told = str(self.problem)
        return told if self.stream in told.partition(";")[0] else f"{where}: {told}"


def format_exception(problem: BaseException) -> str:
    """Return an exception as one line; an exception of a remote task is taken from its traceback.

    >>> format_exception(KeyError("site"))
    "KeyError: 'site'"
    """
    return cause_of(problem)


class Faults:
    """The faults of a run so far. Several threads may work on streams at the same time.

    >>> faults = Faults()
    >>> faults.run_each("halve", ["a", "bc"], lambda text: 1 / (2 - len(text)))
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
        """The streams with a fault."""
        return frozenset(fault.stream for fault in self.found)

    @property
    def conflicting_streams(self) -> frozenset[str]:
        """The streams in which another run committed first."""
        return frozenset(fault.stream for fault in self.found if isinstance(fault.problem, ConcurrentRun))

    def record(self, stream: str, step: str, problem: Exception, batches: Iterable[int] = ()) -> None:
        """Record a fault for the end of the run, and report it now."""
        fault = Fault(stream, step, problem, tuple(batches))
        if not isinstance(problem, SpillwayError):
            logging.getLogger("spillway").error(
                "%s: %s: %s", stream, step, format_exception(problem), exc_info=problem
            )
        with self._one_at_a_time:
            if all(fault.sentence != other.sentence for other in self.found):
                self.found.append(fault)
        self._say(f"not done: {fault.sentence}")

    def add_reported(self, step: str, problem: SpillwayError) -> None:
        """Record the sentences that a nested run has reported already, one fault per sentence."""
        told = problem.sentences if isinstance(problem, RunFailed) else (str(problem),)
        with self._one_at_a_time:
            known = {fault.sentence for fault in self.found}
            self.found += [Fault("", step, SpillwayError(one)) for one in told if one not in known]

    def add(self, others: Faults) -> None:
        """Add the faults that another collector has recorded and reported."""
        with self._one_at_a_time:
            self.found += others.found

    def attempt(
        self, stream: str, step: str, work: Callable[[], Made], batches: Sequence[Batch] = ()
    ) -> Made | None:
        """Return the result of a step for one stream; record the fault and return None if it fails."""
        try:
            return work()
        except Exception as problem:
            self.record(stream, step, problem, (batch.batch for batch in batches))
            return None

    def run_each(
        self,
        step: str,
        streams: Iterable[str],
        work: Callable[[str], Made],
        batches: Mapping[str, Sequence[Batch]] | None = None,
    ) -> dict[str, Made]:
        """Run a step for every stream, a few at a time; return the results of the streams for which it succeeded."""
        made: dict[str, Made] = {}

        def one(stream: str) -> None:
            found = self.attempt(stream, step, lambda: (work(stream),), (batches or {}).get(stream, ()))
            if found is not None:
                made[stream] = found[0]

        names = list(streams)
        map_in_threads(one, names)
        return {stream: made[stream] for stream in names if stream in made}

    def run_steps(
        self,
        name: str,
        engine: Engine,
        steps: Mapping[str, Step[Made]],
        batches: Mapping[str, Sequence[Batch]] | None = None,
        label: Callable[[int], str] | None = None,
    ) -> dict[str, Made]:
        """Run the steps of all streams together (`run_together`); return the results of those that succeeded.

        `label`: the label of the engine's job in each round; the default is `name`.
        """
        made: dict[str, Made] = {}
        for stream, found in run_together(engine, steps, label or (lambda _: name)):
            if isinstance(found, Exception):
                self.record(stream, name, found, (one.batch for one in (batches or {}).get(stream, ())))
            else:
                made[stream] = found
        return {stream: made[stream] for stream in steps if stream in made}

    def record_broken_contracts(self, contracts: Contracts, channel: str | None = None) -> None:
        """Record the invalid contracts of a channel (default: of all channels); their streams wait."""
        for one in contracts.broken:
            if channel is None or one.may_go_through(channel, contracts.channels):
                problem = SpillwayError("\n".join(map(str, one.problems)))
                self.record("", "contract", problem)

    def raise_all(self) -> None:
        """Raise an error with one sentence per fault; do nothing if there is no fault."""
        if not self.found:
            return
        first, sentences = self.found[0], [fault.sentence for fault in self.found]
        if sentences == [str(first.problem)]:
            raise first.problem
        if all(isinstance(fault.problem, ConcurrentRun) for fault in self.found):
            raise ConcurrentRun("\n".join(sentences)) from first.problem
        raise RunFailed(sentences) from first.problem
