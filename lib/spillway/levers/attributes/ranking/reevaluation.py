"""When to evaluate the ranking again, and how often that was right (3.2.3.3, Algorithm 2).

Algorithm 2: after an interval dt rank again; the same set of attributes lets dt double (`factor`, up to
`cap_windows`), another set brings dt back to its first value and is adopted (the print's RS := C is reversed,
erratum A16). A *hit* is a window whose scheme is the one a fresh evaluation would give. A ranking made on a
window applies from the next one on, so window w is judged by what window w - 1 could tell: the same for a
controller and for what it is compared with.

What we add, each switched off in `Reevaluation.text()`:

- `memory_evaluations` (m): the score that ranks is the mean of the last evaluations, s <- s + (x - s) / m,
  a plain mean until there are m. One window of 64 tuples says little: between two neighbouring windows of the
  New York weather the set of three least informative attributes differs in 62 of 100 cases, and no schedule
  can follow that short of looking at every window.
- `hysteresis` (h): an attribute in force stays unless beaten by more than h: its score counts 1/(1 + h).
- `reach`: Algorithm 2 looks less and less often however close the ranking is. The relative distance between
  the nearest shed and kept scores, and the speed at which it moved so far, say when the two could change
  places; the next evaluation comes no later than `reach` times that.

Is a hit with hysteresis and memory a hit? A fresh evaluation is the same rule, run now, from the same state:
it asks what would be shed if one looked. A rule that changes its mind on noise costs real bytes (each change
starts corrections for other attributes), hence stability belongs to the rule and not to the schedule. So that
nobody has to believe this, the evidence sets it beside looking at even intervals, for the schemes of the text's
rule and of this rule alike.

Guarantee: the state is all there is (JSON, no clock, no global); replaying windows gives the same schemes.

>>> controller = Reevaluation.text()
>>> state = State()
>>> for window in range(8):
...     if controller.due(state, window):
...         state = controller.evaluate(state, window, {"a": 1.0, "b": 2.0}, lambda ranking: ranking[:1])
>>> state.scheme, state.evaluations, state.interval_windows, state.next_window
(('a',), 4, 8, 15)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spillway.errors import Refused

Chooser = Callable[[tuple[str, ...]], tuple[str, ...]]

# weight of the newest observation of how fast the ranking moves
_SPEED_WEIGHT = 0.3


@dataclass(frozen=True)
class State:
    """What is in force, and when to look again."""

    scheme: tuple[str, ...] = ()
    ranking: tuple[str, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    evaluations: int = 0
    interval_windows: int = 0
    evaluated_window: int = -1
    next_window: int = 0
    distance: float | None = None
    speed: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "scheme": list(self.scheme), "ranking": list(self.ranking)}

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> State:
        """The state that `to_dict` wrote.

        >>> State.from_dict(State(scheme=("a",), evaluations=1).to_dict()).scheme
        ('a',)
        """
        return State(
            **{
                **stored,
                "scheme": tuple(stored["scheme"]),
                "ranking": tuple(stored["ranking"]),
                "scores": dict(stored["scores"]),
            }
        )


@dataclass(frozen=True)
class Reevaluation:
    """The controller's settings; intervals are counted in windows, `cap_windows` None has no cap."""

    interval_windows: int = 1
    factor: float = 2.0
    cap_windows: int | None = 64
    hysteresis: float = 0.1
    memory_evaluations: int = 8
    reach: float | None = 0.5

    def __post_init__(self) -> None:
        _require(self.interval_windows >= 1, "interval_windows", "be 1 or more", self.interval_windows, "1")
        _require(self.factor >= 1 and math.isfinite(self.factor), "factor", "be 1 or more", self.factor, "2")
        cap = self.cap_windows
        _require(
            cap is None or cap >= self.interval_windows, "cap_windows", "reach the first interval", cap, "64"
        )
        _require(
            self.hysteresis >= 0 and math.isfinite(self.hysteresis),
            "hysteresis",
            "be 0 or more",
            self.hysteresis,
            "0.1",
        )
        _require(
            self.memory_evaluations >= 1, "memory_evaluations", "be 1 or more", self.memory_evaluations, "8"
        )
        _require(self.reach is None or self.reach > 0, "reach", "be above 0", self.reach, "0.2")

    @staticmethod
    def text(interval_windows: int = 1, factor: float = 2.0, cap_windows: int | None = None) -> Reevaluation:
        """Algorithm 2 as the thesis has it: no memory, no hysteresis, no cap."""
        return Reevaluation(interval_windows, factor, cap_windows, 0.0, 1, None)

    def due(self, state: State, window: int) -> bool:
        """Whether `window` is to be evaluated."""
        return window >= state.next_window

    def fresh(self, state: State, scores: Mapping[str, float], choose: Chooser) -> State:
        """Ranking and scheme that an evaluation with these scores would bring, from `state`.

        `scores` is in contract order, which breaks ties after what is in force; `choose` picks the scheme
        from a ranking: the capacity's count or fit at this window's rate.
        """
        _require(len(scores) > 0, "scores", "name at least one attribute", "none", "rank a wider stream")
        weight = max(1.0 / self.memory_evaluations, 1.0 / (state.evaluations + 1))
        means = {}
        for attribute, now in scores.items():
            before = state.scores.get(attribute, now)
            means[attribute] = before + weight * (now - before)
        weighed = self._weighed(means, state.scheme)
        in_force = frozenset(state.scheme)
        ranking = tuple(sorted(means, key=lambda a: (weighed[a], a not in in_force)))
        return State(choose(ranking), ranking, means)

    def evaluate(self, state: State, window: int, scores: Mapping[str, float], choose: Chooser) -> State:
        """Rank again at `window`: adopt what is found and set the next evaluation."""
        _require(
            window > state.evaluated_window,
            "window",
            f"come after {state.evaluated_window}",
            window,
            "evaluate windows in order",
        )
        found = self.fresh(state, scores, choose)
        same = state.evaluations > 0 and set(found.scheme) == set(state.scheme)
        interval = self.next_interval(state.interval_windows, same)
        distance = _distance(self._weighed(found.scores, found.scheme), found.scheme)
        speed = state.speed
        if state.distance is not None:
            moved = abs(distance - state.distance) / (window - state.evaluated_window)
            speed = moved if speed is None else speed + _SPEED_WEIGHT * (moved - speed)
        if self.reach is not None and speed is not None and speed > 0:
            interval = max(self.interval_windows, min(interval, int(self.reach * distance / speed)))
        return State(
            scheme=found.scheme,
            ranking=found.ranking,
            scores=found.scores,
            evaluations=state.evaluations + 1,
            interval_windows=interval,
            evaluated_window=window,
            next_window=window + interval,
            distance=distance,
            speed=speed,
        )

    def next_interval(self, interval_windows: int, same: bool) -> int:
        """Algorithm 2 alone: longer by `factor` up to the cap when the scheme is the same, else the first.

        >>> Reevaluation().next_interval(4, same=True), Reevaluation().next_interval(4, same=False)
        (8, 1)
        """
        if not same:
            return self.interval_windows
        longer = max(self.interval_windows, math.floor(interval_windows * self.factor))
        return longer if self.cap_windows is None else min(longer, self.cap_windows)

    def _weighed(self, scores: Mapping[str, float], in_force: Sequence[str]) -> dict[str, float]:
        # scores of recoverability are negative: there an advantage makes the number larger in magnitude
        bonus = 1.0 + self.hysteresis
        kept = frozenset(in_force)
        return {a: (s / bonus if s > 0 else s * bonus) if a in kept else s for a, s in scores.items()}


@dataclass(frozen=True)
class Replay:
    """What a controller did over a stream's windows."""

    schemes: tuple[frozenset[str], ...]
    hits: int
    misses: int
    evaluations: int

    @property
    def hits_pct(self) -> float:
        """Share of windows that were hits."""
        return 100.0 * self.hits / max(self.hits + self.misses, 1)

    @property
    def evaluations_over_windows_pct(self) -> float:
        """Share of windows that were evaluated."""
        return 100.0 * self.evaluations / max(self.hits + self.misses, 1)


def follow(
    controller: Reevaluation,
    scores: Sequence[Mapping[str, float]],
    choose: Chooser,
    evaluate_at: Sequence[int] | None = None,
) -> Replay:
    """Run a controller over the scores of all windows and count its hits.

    `evaluate_at` replaces the controller's schedule: how the same rule fares at fixed intervals.
    """
    state = State()
    schemes = []
    hits = 0
    fixed = None if evaluate_at is None else frozenset(evaluate_at)
    for window, now in enumerate(scores):
        wanted = frozenset(controller.fresh(state, now, choose).scheme)
        if controller.due(state, window) if fixed is None else window in fixed:
            state = controller.evaluate(state, window, now, choose)
        schemes.append(frozenset(state.scheme))
        hits += schemes[-1] == wanted
    return Replay(tuple(schemes), hits, len(schemes) - hits, state.evaluations)


def _distance(weighed: Mapping[str, float], scheme: Sequence[str]) -> float:
    """The smallest relative distance between a shed and a kept score: 0 when they touch, 1 at most."""
    shed = [weighed[a] for a in scheme if a in weighed]
    kept = [score for a, score in weighed.items() if a not in scheme]
    apart = [abs(k - s) / (abs(k) + abs(s)) if k != s else 0.0 for s in shed for k in kept]
    return min(apart, default=1.0)


def _require(holds: bool, name: str, rule: str, value: object, remedy: str) -> None:
    if not holds:
        raise Refused(name, rule, value, _advice(name, remedy))


def _advice(name: str, remedy: str) -> str:
    return f"write {name}: {remedy}" if " " not in remedy else remedy
