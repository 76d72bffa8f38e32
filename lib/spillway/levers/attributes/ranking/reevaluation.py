"""Decide when to re-evaluate the ranking, and which treatment to adopt (Ahuja 2006, section 3.2.3.3, Algorithm 2).

Algorithm 2: rank again after an interval dt. If the set of attributes is the same, dt doubles (`factor`, up to
`cap_windows`). If it is another set, that set is adopted and dt returns to its first value (the print's RS := C is
reversed, erratum A16). dt is a real number of windows, and the next evaluation is floor(dt) windows later. So an
interval of one window grows also with a factor below 2, which section 4.3.2 recommends for fewer misses.

A ranking computed on a window applies from the next window on, so no row waits. A *treatment* here is the decision that
follows from a ranking: what is done to every attribute that is not kept. Two treatments that differ only in precision
count as the same.

A *hit* is a window in which the treatment in force equals the one that a new ranking of its own data gives, without
memory and hysteresis (`ranking_of`). This is the measure of the thesis, and the settings below do not change it. A rule
that never changes its treatment gets only the hits of windows that happen to agree.

Extensions (ours), all switched off in `Reevaluation.of_thesis()`:

- `memory_evaluations` (m): three forecasts compete: the ranking of training; the mean of the scores of the last
  evaluations, s <- s + (x - s) / m (a plain mean until there are m); and the last evaluation alone. Every evaluation
  shows which forecast was nearest to this window's own ranking, by the number of attributes with another treatment; old
  differences are discounted by `_DISCOUNT`. Another forecast is followed if it was nearer by more than `_MARGIN`. The
  last window is the best forecast on a stream that drifts. On a noisy stream it is the mean, or training, which saw
  most data.
- The interval dt is divided by `factor`, not multiplied, if the treatment is kept although this window needs another
  one, and another forecast has been nearer so far. A miss that no forecast would have avoided is noise, and an early
  re-evaluation would not help.
- `reach`: dt is at most `reach` x the time that treatments stayed in force so far (the mean of the last m, or the
  current one if longer). Before the first change Algorithm 2 is not changed.
- `most_pct` (b): of w windows at most max(log2 w + 1, b / 100 w) are evaluated. Doubling needs log2 w + 1 on a stream
  that never changes. Algorithm 2 evaluates every second window of a noisy stream without any benefit.
- `hysteresis` (h): an attribute stays in force unless another one is better by more than h; its score counts 1/(1 + h).

Guarantee: all information is in the state (JSON, no clock, no globals). Replaying windows gives the same treatments.

>>> controller = Reevaluation.of_thesis()
>>> state = ReevaluationState()
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

from spillway.errors import InvalidValue

Treatment = Mapping[str, str]
"""Treatment and precision of every attribute that is not kept, such as `shed+/2` (+: synopsis sent)."""

Chooser = Callable[[tuple[str, ...]], Treatment]

TRAINED, MEAN, LATEST = "trained", "mean", "latest"

# weight of earlier differences of the forecasts at the next evaluation
_DISCOUNT = 0.9
# number of attributes by which another forecast must be nearer to be followed: one swap of two places
_MARGIN = 2.0


def ranking_of(scores: Mapping[str, float]) -> tuple[str, ...]:
    """Return the ranking by these scores only; ties keep the order of `scores`, which is that of the contract.

    >>> ranking_of({"a": 2.0, "b": 1.0, "c": 1.0})
    ('b', 'c', 'a')
    """
    return tuple(sorted(scores, key=lambda name: scores[name]))


def count_changed_treatments(one: Treatment, other: Treatment) -> int:
    """Return the number of attributes that differ between two treatments, without precision; 0 is a hit.

    >>> count_changed_treatments({"a": "shed", "b": "round/1"}, {"a": "round", "b": "round/2", "c": "shed"})
    2
    """
    return sum(_kind(one.get(name)) != _kind(other.get(name)) for name in {*one, *other})


def _kind(done: str | None) -> str | None:
    return None if done is None else done.partition("/")[0]


@dataclass(frozen=True)
class ReevaluationState:
    """The treatment in force, the scores behind it, and the time of the next evaluation."""

    treatment: Treatment = field(default_factory=dict)
    ranking: tuple[str, ...] = ()
    trained: Mapping[str, float] = field(default_factory=dict)
    """The scores of training; empty if there is no such forecast."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The mean scores of the last evaluations."""
    latest: Mapping[str, float] = field(default_factory=dict)
    """The scores of the last evaluation."""
    strayed: Mapping[str, float] = field(default_factory=lambda: {TRAINED: 0.0, MEAN: 0.0, LATEST: 0.0})
    """The discounted number of attributes that each forecast got wrong."""
    follows: str = TRAINED
    evaluations: int = 0
    interval_windows: float = 0.0
    """The interval dt in force; the next evaluation is floor(dt) windows after the last one."""
    evaluated_window: int = -1
    next_window: int = 0
    changes: int = 0
    changed_window: int = 0
    stay_windows: float = 0.0
    """Mean number of windows that the last treatments stayed in force."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "ranking": list(self.ranking)}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> ReevaluationState:
        """Return the state that `to_dict` wrote.

        >>> ReevaluationState.from_dict(ReevaluationState(treatment={"a": "shed"}, evaluations=1).to_dict()).treatment
        {'a': 'shed'}
        """
        return ReevaluationState(**{**stored, "ranking": tuple(stored["ranking"])})


@dataclass(frozen=True)
class Reevaluation:
    """The controller of re-evaluations; intervals are in windows, and there is no cap if `cap_windows` is None."""

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
    def of_thesis(
        interval_windows: int = 1, factor: float = 2.0, cap_windows: int | None = None
    ) -> Reevaluation:
        """Return Algorithm 2 as in the thesis: without memory, hysteresis, cap and limits."""
        return Reevaluation(interval_windows, factor, cap_windows, 0.0, 1, None, None)

    def due(self, state: ReevaluationState, window: int) -> bool:
        """Return whether `window` is due for evaluation."""
        return window >= state.next_window

    def evaluate(
        self, state: ReevaluationState, window: int, scores: Mapping[str, float], choose: Chooser
    ) -> ReevaluationState:
        """Re-evaluate at `window`: adopt the treatment and set the next evaluation.

        `scores` is in contract order. Ties are broken first for attributes in force (with hysteresis), then by this
        order. `choose` returns the treatment for a ranking, at the capacity and rate of this window.
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
        strayed = self._forecast_errors(state, scores, own, choose)
        forecasts = {MEAN: self._mean(state, scores), LATEST: dict(scores)}
        if state.trained and self.memory_evaluations > 1:
            forecasts = {TRAINED: _of(state.trained, scores), **forecasts}
        follows = min(forecasts, key=lambda name: strayed[name])
        if state.follows in forecasts and strayed[state.follows] <= strayed[follows] + _MARGIN:
            follows = state.follows
        ranking = self._ranking(forecasts[follows], state.treatment)
        treatment = choose(ranking)
        moved = state.evaluations > 0 and count_changed_treatments(treatment, state.treatment) > 0
        changes, stay = state.changes + moved, state.stay_windows
        if moved:
            stayed = window - state.changed_window
            stay += (stayed - stay) / min(changes, self.memory_evaluations)
        interval = float(self.interval_windows)
        if state.evaluations and not moved:
            missed = count_changed_treatments(own, state.treatment) > 0
            doubted = missed and min(strayed[name] for name in forecasts) < strayed[follows]
            interval = self.next_interval(state.interval_windows, doubted)
            if self.reach is not None and changes and not doubted:
                longest = max(stay, window - state.changed_window)
                interval = max(self.interval_windows, min(interval, self.reach * longest))
        next_window = max(window + math.floor(interval), self._not_before(state.evaluations + 1))
        return ReevaluationState(
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
        >>> Reevaluation.of_thesis(factor=1.5).next_interval(1)
        1.5
        """
        if doubted:
            return max(float(self.interval_windows), interval_windows / self.factor)
        longer = max(float(self.interval_windows), interval_windows * self.factor)
        return longer if self.cap_windows is None else min(longer, float(self.cap_windows))

    def _forecast_errors(
        self, state: ReevaluationState, scores: Mapping[str, float], own: Treatment, choose: Chooser
    ) -> dict[str, float]:
        """Return how far each forecast is from this window's own treatment (`own`), with discounted history."""
        found = {name: _DISCOUNT * astray for name, astray in state.strayed.items()}
        for name, seen in ((TRAINED, state.trained), (MEAN, state.scores), (LATEST, state.latest)):
            if seen and (state.evaluations or name == TRAINED):
                forecast = choose(self._ranking(_of(seen, scores), state.treatment))
                found[name] += count_changed_treatments(forecast, own)
        return found

    def _mean(self, state: ReevaluationState, scores: Mapping[str, float]) -> dict[str, float]:
        count = min(self.memory_evaluations, state.evaluations + 1)
        if count == 1:
            return dict(scores)
        return {name: (s := state.scores.get(name, now)) + (now - s) / count for name, now in scores.items()}

    def _ranking(self, scores: Mapping[str, float], in_force: Treatment) -> tuple[str, ...]:
        if not self.hysteresis:
            return ranking_of(scores)
        # scores of recoverability are negative: an advantage makes them larger in magnitude
        bonus = 1.0 + self.hysteresis
        weighed = {a: (s / bonus if s > 0 else s * bonus) if a in in_force else s for a, s in scores.items()}
        return tuple(sorted(weighed, key=lambda a: (weighed[a], a not in in_force)))

    def _not_before(self, evaluations: int) -> int:
        """Return the first window at which one more evaluation is within max(log2 w + 1, b / 100 w)."""
        if self.most_pct is None:
            return 0
        by_share = math.ceil((evaluations + 1) * 100.0 / self.most_pct) - 1
        return min(by_share, 2 ** min(evaluations, 62) - 1)


def _of(seen: Mapping[str, float], known: Mapping[str, float]) -> dict[str, float]:
    """Return the scores of the attributes that may be ranked now; a new attribute comes last."""
    return {name: seen.get(name, math.inf) for name in known}


def _require(holds: bool, name: str, rule: str, value: object, remedy: str) -> None:
    if not holds:
        raise InvalidValue(name, rule, value, _advice(name, remedy))


def _advice(name: str, remedy: str) -> str:
    return f"write {name}: {remedy}" if " " not in remedy else remedy
