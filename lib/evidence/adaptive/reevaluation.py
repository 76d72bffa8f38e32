"""Re-evaluation of the ranking: our controller against never re-evaluating, Algorithm 2 as printed and even intervals.

The measure is the error at capacity: the points that a window loses under the scheme in force. An absent attribute
counts 100 times its place in the window's own ranking (`levers.attributes.loss`). Consecutive windows are the blocks of
the interval.

Two settings are compared. `reevaluation` is the thesis's setting: ranking by deviation, and the shortest prefix that
fits into half of the measures' bytes. Here the ranking decides which attributes are shed. `reevaluation_by_default` is
the default plan: the least measured loss, ranked by recoverability. Here the ranking does not change the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evidence.adaptive.gains import Contest
from evidence.adaptive.streams import slices
from evidence.attributes.contestants import MEASURES_PCT, thesis_settings
from evidence.attributes.even_intervals import even_windows
from evidence.attributes.lab import Lab
from evidence.attributes.lake import Lake
from evidence.attributes.nine_streams import CAPACITY_KBPS, CHANNEL, RATE_KBPS
from evidence.attributes.real_streams import real_stream
from evidence.attributes.variants import with_settings
from spillway.contracts import read_channel
from spillway.levers.attributes.loss import loss, place_weights
from spillway.levers.attributes.policy import OptionsByName, own_settings
from spillway.levers.attributes.ranking.reevaluation import ranking_of
from spillway.levers.attributes.settings import AttributeSettings, Reevaluate
from spillway.levers.attributes.window_planner import WindowRanking

BLOCKS = 20
TRAINED_CHEAPLY = AttributeSettings(predictors=("last",))
"""Only the choice of shed attributes is compared, not the size of synopses, so training with the last value is
enough."""


class PlannedLab(Lab):
    """A stream that was trained and sent, for its plans alone: nothing is recovered or certified."""

    def __post_init__(self) -> None:
        self._runs, self._parts = {}, {}
        self.batches = self.every_batch = self.lake.batches(self.stream)


def planned_labs(demo: Lake, real: Sequence[str]) -> Iterator[PlannedLab]:
    """Yield the demo's streams and real ones, each trained and planned into 72/120 of its rate."""
    for name, contract in demo.contracts.streams.items():
        yield _planned(Lake(demo.settings, replace(demo.contracts, streams={name: contract})), name)
    for name in real:
        made = real_stream(name)
        training = own_settings(made.contract).training
        contract = with_settings(made.contract, replace(TRAINED_CHEAPLY, training=training))
        lab = _planned(Lake.land(f"adaptive-{name}", {name: contract}, {name: made.files}), name)
        yield lab
        lab.lake.forget()


def _planned(lake: Lake, name: str) -> PlannedLab:
    kbps = max(load.rate_kbps for load in lake.loads(name)) * CAPACITY_KBPS / RATE_KBPS
    contract = replace(lake.contracts.streams[name], channel=CHANNEL)
    lake = lake.with_contract(contract).with_channels(
        {CHANNEL: read_channel(CHANNEL, {"capacity": f"{kbps!r} kbps"})}
    )
    lake.train()
    lake.send()
    return PlannedLab(lake, name)


def reevaluation_contests(lab: Lab) -> list[Contest]:
    """Compare our controller with its rivals on one stream, under the thesis's settings and by default."""
    room = {"measures_pct": MEASURES_PCT}
    own, printed = thesis_settings(memory=True) | room, thesis_settings() | room
    ours = lab.watched_plan(**own).looks
    even = frozenset(
        ours[at].window for at in even_windows(len(ours), max(1, sum(look.evaluated for look in ours)))
    )
    by_text = {
        "ours": ours,
        "never": lab.watched_plan(**printed, evaluate_at=frozenset()).looks,
        "algorithm_2": lab.watched_plan(**printed).looks,
        "even_intervals": lab.watched_plan(**printed, evaluate_at=even).looks,
    }
    defaults = {"reevaluate": Reevaluate()}
    by_default = {
        "ours": lab.watched_plan(**defaults).looks,
        "never": lab.watched_plan(**defaults, evaluate_at=frozenset()).looks,
    }
    options = lab.learned.options
    return [
        Contest("reevaluation", lab.stream, "points", "ours", losses(by_text, options, placed=True)),
        Contest(
            "reevaluation_by_default", lab.stream, "points", "ours", losses(by_default, options, placed=False)
        ),
    ]


def evaluations(lab: Lab) -> dict[str, float]:
    """Return the cost of adapting: how many of 100 windows each rule evaluates, under the thesis's settings."""
    room = {"measures_pct": MEASURES_PCT}
    found = {
        "ours": lab.watched_plan(**thesis_settings(memory=True), **room).looks,
        "algorithm_2": lab.watched_plan(**thesis_settings(), **room).looks,
    }
    return {
        f"adaptive.reevaluation.evaluated_pct.{rule}.{lab.stream}": 100.0
        * sum(look.evaluated for look in looks)
        / max(1, len(looks))
        for rule, looks in found.items()
    }


def losses(
    looks: Mapping[str, Sequence[WindowRanking]], options: OptionsByName, *, placed: bool
) -> dict[str, list[float]]:
    """Return, by contestant, the points that the windows of each block lose under the schemes in force."""
    found = {}
    for name, seen in looks.items():
        points = [
            loss(look.in_force, options, place_weights(ranking_of(look.scores)) if placed else None)
            for look in seen
        ]
        found[name] = [sum(points[begin:end]) for begin, end in slices(len(points), BLOCKS)]
    return found
