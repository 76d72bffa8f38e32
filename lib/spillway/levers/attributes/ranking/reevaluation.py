"""Decide when to re-evaluate the ranking, and which treatment to adopt (Ahuja 2006, section 3.2.3.3, Algorithm 2).

Algorithm 2: rank again after an interval dt. If the set of attributes is the same, dt is multiplied by `factor`, up to
`cap_windows`. If it is another set, that set is adopted and dt returns to its first value (the print's RS := C is
reversed, erratum A16). dt is a real number of windows, and the next evaluation is floor(dt) windows later. So an
interval of one window grows also with a factor below 2, which section 4.3.2 recommends for fewer misses.

A ranking computed on a window applies from the next window on, so no row waits. A *treatment* here is the decision that
follows from a ranking: what is done to every attribute that is not kept. Two treatments that differ only in precision
count as the same.

A *hit* is a window in which the treatment in force equals the one that a new ranking of its own data gives
(`ranking_of`). This is the measure of the thesis. A rule that never changes its treatment gets only the hits of windows
that happen to agree.

Guarantee: all information is in the state (JSON, no clock, no globals). Replaying windows gives the same treatments.

>>> controller = Reevaluation()
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
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from spillway.errors import InvalidValue

Treatment = Mapping[str, str]
"""Treatment and precision of every attribute that is not kept, such as `shed+/2` (+: synopsis sent)."""

Chooser = Callable[[tuple[str, ...]], Treatment]


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
    """The scores of training."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """The scores of the last evaluation."""
    evaluations: int = 0
    interval_windows: float = 0.0
    """The interval dt in force; the next evaluation is floor(dt) windows after the last one."""
    evaluated_window: int = -1
    next_window: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "ranking": list(self.ranking)}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> ReevaluationState:
        """Return the state that `to_dict` wrote; values that only older versions wrote are left out.

        >>> ReevaluationState.from_dict(ReevaluationState(treatment={"a": "shed"}, evaluations=1).to_dict()).treatment
        {'a': 'shed'}
        """
        known = {one.name: stored[one.name] for one in fields(ReevaluationState) if one.name in stored}
        return ReevaluationState(**{**known, "ranking": tuple(stored["ranking"])})


@dataclass(frozen=True)
class Reevaluation:
    """The controller of re-evaluations; intervals are in windows, and there is no cap if `cap_windows` is None."""

    interval_windows: int = 1
    factor: float = 2.0
    cap_windows: int | None = None

    def __post_init__(self) -> None:
        _require(self.interval_windows >= 1, "interval_windows", "be 1 or more", self.interval_windows, "1")
        _require(self.factor >= 1 and math.isfinite(self.factor), "factor", "be 1 or more", self.factor, "2")
        cap = self.cap_windows
        _require(
            cap is None or cap >= self.interval_windows, "cap_windows", "reach the first interval", cap, "512"
        )

    def due(self, state: ReevaluationState, window: int) -> bool:
        """Return whether `window` is due for evaluation."""
        return window >= state.next_window

    def evaluate(
        self, state: ReevaluationState, window: int, scores: Mapping[str, float], choose: Chooser
    ) -> ReevaluationState:
        """Re-evaluate at `window`: adopt the treatment and set the next evaluation.

        `scores` is in contract order, which breaks ties. `choose` returns the treatment for a ranking, at the capacity
        and rate of this window.
        """
        _require(len(scores) > 0, "scores", "name at least one attribute", "none", "rank a wider stream")
        _require(
            window > state.evaluated_window,
            "window",
            f"come after {state.evaluated_window}",
            window,
            "evaluate windows in order",
        )
        ranking = ranking_of(scores)
        treatment = choose(ranking)
        same = state.evaluations > 0 and not count_changed_treatments(treatment, state.treatment)
        interval = self.next_interval(state.interval_windows) if same else float(self.interval_windows)
        return ReevaluationState(
            treatment=treatment,
            ranking=ranking,
            trained=state.trained,
            scores=dict(scores),
            evaluations=state.evaluations + 1,
            interval_windows=interval,
            evaluated_window=window,
            next_window=window + math.floor(interval),
        )

    def next_interval(self, interval_windows: float) -> float:
        """Return the next interval after an unchanged treatment: `factor` times as long, up to the cap.

        It is never rounded: with a factor below 2 an interval of one window would stay one window for ever.

        >>> Reevaluation().next_interval(4), Reevaluation(factor=1.5).next_interval(1)
        (8.0, 1.5)
        """
        longer = max(float(self.interval_windows), interval_windows * self.factor)
        return longer if self.cap_windows is None else min(longer, float(self.cap_windows))


def _require(holds: bool, name: str, rule: str, value: object, remedy: str) -> None:
    if not holds:
        raise InvalidValue(name, rule, value, f"write {name}: {remedy}" if " " not in remedy else remedy)
