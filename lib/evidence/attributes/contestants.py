"""Compare rules of re-evaluation: the scheme in force on a window against the scheme that its own data require.

Every contestant is the product's planner under other settings (`Lab.watched_plan`), in the thesis's own case: ranking
by deviation, keep or shed, and the shortest prefix of the ranking whose measured widths fit. The capacity is the size
of everything that is always sent, plus half of the measures' bytes. A window is a hit if the scheme in force on it
equals the scheme of its own ranking. Regret is the additional loss of the scheme in force, in points: an absent
attribute counts 100, weighted by its place in the window's own ranking (`levers.attributes.loss`).

- algorithm_2: as printed;
- fixed: even intervals, as many evaluations, adopting what each shows;
- never: what training ranked, for ever; always: every window evaluated, in force on the next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.attributes.even_intervals import even_windows
from evidence.attributes.lab import Lab
from spillway.errors import InvalidValue
from spillway.levers.attributes.loss import option_loss, place_weights
from spillway.levers.attributes.option import Option, of_way, options_of
from spillway.levers.attributes.policy import OptionsByName
from spillway.levers.attributes.ranking.reevaluation import ranking_of
from spillway.levers.attributes.settings import Reevaluate
from spillway.levers.attributes.window_planner import WindowRanking

MEASURES_PCT = 50.0


@dataclass(frozen=True)
class WindowScore:
    """The score of a rule over some windows."""

    windows: int
    evaluations: int
    hits: int
    regret_points: float
    """Mean over the windows."""

    @property
    def hits_pct(self) -> float:
        return 100.0 * self.hits / max(1, self.windows)

    @property
    def evaluated_pct(self) -> float:
        return 100.0 * self.evaluations / max(1, self.windows)


@dataclass(frozen=True)
class RuleResult:
    """A rule with its scores: over all windows, over those of the training tuples, and over later ones."""

    rule: str
    all: WindowScore
    training: WindowScore
    later: WindowScore
    treatments_asked: int = 2
    """The number of different treatments that the windows require, each ranked by itself."""

    @property
    def is_conclusive(self) -> bool:
        """Whether hits and regret are meaningful: if all windows require one treatment, every rule always hits."""
        return self.treatments_asked > 1


def thesis_settings() -> dict[str, Any]:
    """Return the thesis's settings: its ranking, its two treatments, its re-evaluation."""
    return {
        "plan": "prefix",
        "rank_by": "stddev",
        "treatments": ("keep", "shed"),
        "synopsis": "hold",
        "fit": "bits",
        "reevaluate": Reevaluate(cap_windows=None),
    }


def contestants_of(lab: Lab, measures_pct: float = MEASURES_PCT) -> list[RuleResult]:
    """Return the result of every rule on the windows of this stream."""
    room = {"measures_pct": measures_pct}
    printed = thesis_settings() | room
    algorithm_2 = lab.watched_plan(**printed).looks
    windows = [look.window for look in algorithm_2]
    even = frozenset(
        windows[at] for at in even_windows(len(windows), max(1, sum(look.evaluated for look in algorithm_2)))
    )
    looks = {
        "algorithm_2": algorithm_2,
        "fixed": lab.watched_plan(**printed, evaluate_at=even).looks,
        "never": lab.watched_plan(**printed, evaluate_at=frozenset()).looks,
        "always": lab.watched_plan(**printed, evaluate_at=frozenset(windows)).looks,
    }
    return [rule_result(lab, rule, seen) for rule, seen in looks.items()]


def rule_result(lab: Lab, rule: str, looks: Sequence[WindowRanking]) -> RuleResult:
    """Return the result of a rule from the rankings of its windows."""
    options = lab.learned.options
    trained = [look for look in looks if look.next_seq - 1 <= lab.trained_to_seq]
    return RuleResult(
        rule,
        score_windows(looks, options),
        score_windows(trained, options),
        score_windows(looks[len(trained) :], options),
        count_treatments(looks),
    )


def count_treatments(looks: Iterable[WindowRanking]) -> int:
    """Return how many different treatments windows require, apart from precision.

    >>> def window(**fresh: str) -> WindowRanking:
    ...     return WindowRanking(0, 0, {}, {}, fresh, evaluated=False)
    >>> count_treatments([window(a="shed/0"), window(a="shed/1")]), count_treatments([window(a="shed"), window()])
    (1, 2)
    """
    return len(
        {frozenset((name, done.partition("/")[0]) for name, done in look.fresh.items()) for look in looks}
    )


def loss(
    ways: Mapping[str, str],
    options: Mapping[str, Sequence[Option]],
    weights: Mapping[str, float] | None = None,
    sent: Collection[str] = (),
) -> float:
    """Return the loss of a scheme in percentage points.

    `ways` has the treatment of every attribute that is not kept, and `options` the trained options of every measure. A
    treatment is `round` or `shed`, or has the planner's form with precision (`shed+/2`, + if the synopsis is sent).
    Without a precision it is the coarsest. `sent` names further attributes whose synopses are sent.

    >>> options = {
    ...     "temp": [Option("temp", "keep", 4), Option("temp", "shed", 0, 1, mean_error_pct=0.5)],
    ...     "wind": [Option("wind", "keep", 4), Option("wind", "round", 2, 0, mean_error_pct=2.0)],
    ... }
    >>> loss({"temp": "shed", "wind": "round"}, options), loss({"temp": "shed"}, options, sent={"temp"})
    (51.0, 0.25)
    """
    total = 0.0
    for name, done in ways.items():
        kind, _, precision = done.partition("/")
        way = kind.removesuffix("+")
        if way == "keep":
            continue
        offered = options_of(options.get(name, ()), way)
        option = next((one for one in offered if precision and one.precision == int(precision)), None)
        option = option or of_way(offered, way)
        if option is None:
            raise InvalidValue(f"options.{name}", f"offer to {way} the attribute", None, "train it again")
        crosses = kind.endswith("+") or name in sent
        total += (1.0 if weights is None else weights[name]) * option_loss(option, crosses)
    return total / len(options) if options else 0.0


def regret(
    in_force: Mapping[str, str],
    fresh: Mapping[str, str],
    options: Mapping[str, Sequence[Option]],
    weights: Mapping[str, float] | None = None,
    sent: Collection[str] = (),
) -> float:
    """Return the percentage points that the scheme in force loses more than the `fresh` one; at least 0.

    `fresh` is the scheme that the window's own ranking gives. A scheme that loses less by chance earns no credit.

    >>> options = {
    ...     "temp": [Option("temp", "keep", 4), Option("temp", "shed", 0, 1, mean_error_pct=0.5)],
    ...     "wind": [Option("wind", "keep", 4), Option("wind", "round", 2, 0, mean_error_pct=2.0)],
    ... }
    >>> regret({"temp": "shed"}, {"wind": "round"}, options, place_weights(["wind", "temp"]))
    49.5
    """
    return max(0.0, loss(in_force, options, weights, sent) - loss(fresh, options, weights, sent))


def score_windows(looks: Iterable[WindowRanking], options: OptionsByName) -> WindowScore:
    """Return hits and mean regret of some windows.

    >>> from spillway.levers.attributes.option import Option
    >>> options = {name: [Option(name, "keep", 4), Option(name, "shed", 0)] for name in "ab"}
    >>> def window(number: int, a: float, b: float) -> WindowRanking:
    ...     fresh = {"a" if a < b else "b": "shed"}
    ...     return WindowRanking(number, 0, {"a": a, "b": b}, {"a": "shed"}, fresh, evaluated=False)
    >>> found = score_windows([window(0, 1.0, 2.0), window(1, 2.0, 1.0)], options)
    >>> found.hits_pct, found.regret_points
    (50.0, 12.5)
    """
    windows = evaluations = hits = 0
    extra = 0.0
    for look in looks:
        windows += 1
        evaluations += look.evaluated
        hits += look.hit
        # a hit may be less precise than its own data ask for
        weights = place_weights(ranking_of(look.scores))
        extra += regret(look.in_force, look.fresh, options, weights)
    return WindowScore(windows, evaluations, hits, extra / max(1, windows))
