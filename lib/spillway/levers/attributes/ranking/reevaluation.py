"""When to evaluate the ranking again, and what to adopt (3.2.3.3, Algorithm 2).

Algorithm 2: rank again after an interval dt. If the set of attributes is the same, dt doubles (`factor`, up to
`cap_windows`). If it is another set, that set is adopted and dt returns to its first value (the print's RS := C is
reversed, erratum A16). dt is a real number of windows, and the next evaluation is floor(dt) windows later. So an
interval of one window grows also with a factor below 2, which section 4.3.2 recommends for fewer misses.

A ranking made on a window applies from the next one on: nothing waits. A *treatment* is what a ranking leads to: the
way of every attribute that is not kept, precision aside; two rankings of one treatment are the same to this rule.

A *hit* is a window in which the treatment in force equals the one that its own data, ranked afresh with no memory
and no hysteresis (`ranking_of`), would give. That is the text's yardstick, and nothing here may bend it: who never
changes his mind hits as often as the stream happens to agree with him.

What we add, each switched off in `Reevaluation.text()`:

- `memory_evaluations` (m): forecasts compete: what training ranked, the mean of the last evaluations' scores,
  s <- s + (x - s) / m, a plain mean until there are m, and the last evaluation alone. Every evaluation shows which of
  them would have been nearest to what this window asks for (attributes treated otherwise, old evidence discounted by
  `_DISCOUNT`), and the one that strayed least, by more than `_MARGIN`, is followed. On a stream that wanders the last
  window is the best forecast, on a noisy one the mean, or training, which saw most: none is right for all, and the
  stream itself tells.
- A treatment that is kept although this window would have had another, and another forecast would have been nearer
  so far, halves dt instead of doubling it. A miss that no forecast would have avoided is noise: to look again soon
  learns nothing.
- `reach`: how long treatments stayed so far (mean of the last m, or the stay that lasts) says how far one may look
  ahead: dt is at most `reach` times that. Before the first change Algorithm 2 is left alone.
- `most_pct` (b): of w windows at most max(log2 w + 1, b / 100 w) are evaluated, log2 w + 1 being what doubling takes
  on a stream that never changes. Algorithm 2 looks at every second window of a noisy stream and learns nothing by it.
- `hysteresis` (h): an attribute in force stays unless beaten by more than h: its score counts 1/(1 + h).

Guarantee: the state is all there is (JSON, no clock, no global); replaying windows gives the same treatments.

>>> controller = Reevaluation.text()
>>> state = State()
>>> for window in range(8):
...     if controller.due(state, window):
...         state = controller.evaluate(state, window, {"a": 1.0, "b": 2.0}, lambda ranking: {ranking[0]: "shed"})
>>> state.treatment, state.evaluations, state.interval_windows, state.next_window
({'a': 'shed'}, 4, 8.0, 15)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spillway.errors import Refused

Treatment = Mapping[str, str]
"""What is done to every attribute that does not travel as it is, and how precisely: `shed+/2` (+: synopsis sent)."""

Chooser = Callable[[tuple[str, ...]], Treatment]

TRAINED, MEAN, LATEST = "trained", "mean", "latest"

# what an evaluation said of the forecasts counts this much at the next one
_DISCOUNT = 0.9
# attributes that another forecast must have been nearer by to be followed: one place changed with another
_MARGIN = 2.0


def ranking_of(scores: Mapping[str, float]) -> tuple[str, ...]:
    """The ranking of these scores and nothing else, ties in their order, which is the contract's.

    >>> ranking_of({"a": 2.0, "b": 1.0, "c": 1.0})
    ('b', 'c', 'a')
    """
    return tuple(sorted(scores, key=lambda name: scores[name]))


def treated_otherwise(one: Treatment, other: Treatment) -> int:
    """How many attributes two treatments treat otherwise, precision aside; 0 is a hit.

    >>> treated_otherwise({"a": "shed", "b": "round/1"}, {"a": "round", "b": "round/2", "c": "shed"})
    2
    """
    return sum(_kind(one.get(name)) != _kind(other.get(name)) for name in {*one, *other})


def _kind(done: str | None) -> str | None:
    return None if done is None else done.partition("/")[0]


@dataclass(frozen=True)
class State:
    """What is in force, what it rests on, and when to look again."""

    treatment: Treatment = field(default_factory=dict)
    ranking: tuple[str, ...] = ()
    trained: Mapping[str, float] = field(default_factory=dict)
    """The scores that training found; none: no forecast."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The mean of the last evaluations."""
    latest: Mapping[str, float] = field(default_factory=dict)
    """What the last evaluation saw."""
    strayed: Mapping[str, float] = field(default_factory=lambda: {TRAINED: 0.0, MEAN: 0.0, LATEST: 0.0})
    """By how many attributes each forecast was off, discounted."""
    follows: str = TRAINED
    evaluations: int = 0
    interval_windows: float = 0.0
    """The interval dt in force; the next evaluation is floor(dt) windows after the last one."""
    evaluated_window: int = -1
    next_window: int = 0
    changes: int = 0
    changed_window: int = 0
    stay_windows: float = 0.0
    """How long the last treatments stayed in force, on average."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "ranking": list(self.ranking)}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> State:
        """The state that `to_dict` wrote.

        >>> State.from_dict(State(treatment={"a": "shed"}, evaluations=1).to_dict()).treatment
        {'a': 'shed'}
        """
        return State(**{**stored, "ranking": tuple(stored["ranking"])})


@dataclass(frozen=True)
class Reevaluation:
    """The controller's settings; intervals are counted in windows, `cap_windows` None has no cap."""

    interval_windows: int = 1
    factor: float = 2.0
    cap_windows: int | None = 512
    hysteresis: float = 0.0
    memory_evaluations: int = 8
    reach: float | None = 0.2
    most_pct: float | None = 10.0

    def __post_init__(self) -> None:
        _require(self.interval_windows >= 1, "interval_windows", "be 1 or more", self.interval_windows, "1")
        _require(self.factor >= 1 and math.isfinite(self.factor), "factor", "be 1 or more", self.factor, "2")
        cap = self.cap_windows
        _require(
            cap is None or cap >= self.interval_windows, "cap_windows", "reach the first interval", cap, "512"
        )
        _require(
            self.hysteresis >= 0 and math.isfinite(self.hysteresis),
            "hysteresis",
            "be 0 or more",
            self.hysteresis,
            "0",
        )
        _require(
            self.memory_evaluations >= 1, "memory_evaluations", "be 1 or more", self.memory_evaluations, "8"
        )
        _require(self.reach is None or self.reach > 0, "reach", "be above 0", self.reach, "0.2")
        most = self.most_pct
        _require(most is None or 0 < most <= 100, "most_pct", "be above 0, at most 100", most, "10")

    @staticmethod
    def text(interval_windows: int = 1, factor: float = 2.0, cap_windows: int | None = None) -> Reevaluation:
        """Algorithm 2 as the thesis has it: no memory, no hysteresis, no cap, no limit."""
        return Reevaluation(interval_windows, factor, cap_windows, 0.0, 1, None, None)

    def due(self, state: State, window: int) -> bool:
        """Whether `window` is to be evaluated."""
        return window >= state.next_window

    def evaluate(self, state: State, window: int, scores: Mapping[str, float], choose: Chooser) -> State:
        """Rank again at `window`: adopt what is found and set the next evaluation.

        `scores` is in contract order, which breaks ties after what is in force; `choose` picks the treatment
        from a ranking: the capacity's count or fit at this window's rate.
        """
        _require(len(scores) > 0, "scores", "name at least one attribute", "none", "rank a wider stream")
        _require(
            window > state.evaluated_window,
            "window",
            f"come after {state.evaluated_window}",
            window,
            "evaluate windows in order",
        )
        own = choose(ranking_of(scores))
        strayed = self._strayed(state, scores, own, choose)
        forecasts = {MEAN: self._mean(state, scores), LATEST: dict(scores)}
        if state.trained and self.memory_evaluations > 1:
            forecasts = {TRAINED: _of(state.trained, scores), **forecasts}
        follows = min(forecasts, key=lambda name: strayed[name])
        if state.follows in forecasts and strayed[state.follows] <= strayed[follows] + _MARGIN:
            follows = state.follows
        ranking = self._ranking(forecasts[follows], state.treatment)
        treatment = choose(ranking)
        moved = state.evaluations > 0 and treated_otherwise(treatment, state.treatment) > 0
        changes, stay = state.changes + moved, state.stay_windows
        if moved:
            stayed = window - state.changed_window
            stay += (stayed - stay) / min(changes, self.memory_evaluations)
        interval = float(self.interval_windows)
        if state.evaluations and not moved:
            missed = treated_otherwise(own, state.treatment) > 0
            doubted = missed and min(strayed[name] for name in forecasts) < strayed[follows]
            interval = self.next_interval(state.interval_windows, doubted)
            if self.reach is not None and changes and not doubted:
                longest = max(stay, window - state.changed_window)
                interval = max(self.interval_windows, min(interval, self.reach * longest))
        next_window = max(window + math.floor(interval), self._not_before(state.evaluations + 1))
        return State(
            treatment=treatment,
            ranking=ranking,
            trained=state.trained,
            scores=forecasts[MEAN],
            latest=forecasts[LATEST],
            strayed=strayed,
            follows=follows,
            evaluations=state.evaluations + 1,
            interval_windows=max(interval, float(next_window - window)),
            evaluated_window=window,
            next_window=next_window,
            changes=changes,
            changed_window=window if moved else state.changed_window,
            stay_windows=stay,
        )

    def next_interval(self, interval_windows: float, doubted: bool = False) -> float:
        """Return the next interval after an unchanged treatment: `factor` times as long, up to the cap.

        If the treatment is in doubt, the interval is divided by `factor`. It is never rounded: with a factor below 2 an
        interval of one window would stay one window for ever.

        >>> Reevaluation().next_interval(4), Reevaluation().next_interval(4, doubted=True)
        (8.0, 2.0)
        >>> Reevaluation.text(factor=1.5).next_interval(1)
        1.5
        """
        if doubted:
            return max(float(self.interval_windows), interval_windows / self.factor)
        longer = max(float(self.interval_windows), interval_windows * self.factor)
        return longer if self.cap_windows is None else min(longer, float(self.cap_windows))

    def _strayed(
        self, state: State, scores: Mapping[str, float], own: Treatment, choose: Chooser
    ) -> dict[str, float]:
        """How far off each forecast was, from what this window asks for (`own`)."""
        found = {name: _DISCOUNT * astray for name, astray in state.strayed.items()}
        for name, seen in ((TRAINED, state.trained), (MEAN, state.scores), (LATEST, state.latest)):
            if seen and (state.evaluations or name == TRAINED):
                forecast = choose(self._ranking(_of(seen, scores), state.treatment))
                found[name] += treated_otherwise(forecast, own)
        return found

    def _mean(self, state: State, scores: Mapping[str, float]) -> dict[str, float]:
        count = min(self.memory_evaluations, state.evaluations + 1)
        if count == 1:
            return dict(scores)
        return {name: (s := state.scores.get(name, now)) + (now - s) / count for name, now in scores.items()}

    def _ranking(self, scores: Mapping[str, float], in_force: Treatment) -> tuple[str, ...]:
        if not self.hysteresis:
            return ranking_of(scores)
        # scores of recoverability are negative: there an advantage makes the number larger in magnitude
        bonus = 1.0 + self.hysteresis
        weighed = {a: (s / bonus if s > 0 else s * bonus) if a in in_force else s for a, s in scores.items()}
        return tuple(sorted(weighed, key=lambda a: (weighed[a], a not in in_force)))

    def _not_before(self, evaluations: int) -> int:
        """The first window at which one more evaluation is within max(log2 w + 1, b / 100 w)."""
        if self.most_pct is None:
            return 0
        by_share = math.ceil((evaluations + 1) * 100.0 / self.most_pct) - 1
        return min(by_share, 2 ** min(evaluations, 62) - 1)


def _of(seen: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """What was seen of the attributes that may be ranked now; a new one comes last."""
    return {name: seen.get(name, math.inf) for name in known}


def _require(holds: bool, name: str, rule: str, value: object, remedy: str) -> None:
    if not holds:
        raise Refused(name, rule, value, _advice(name, remedy))


def _advice(name: str, remedy: str) -> str:
    return f"write {name}: {remedy}" if " " not in remedy else remedy
