"""Plans of rivals: one scheme for all tuples, or the product's plan with every window watched."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evidence.attributes.rival.settings import RivalSettings
from spillway.batch import Batch
from spillway.contracts import Channel
from spillway.levers.attributes.lever import Attributes
from spillway.levers.attributes.plan import AROUND_SENT_BYTES, AttributePlan
from spillway.levers.attributes.policy import policy_of
from spillway.levers.attributes.ranking.reevaluation import Reevaluation, ReevaluationState
from spillway.levers.attributes.scheme import AttributeTreatment, Run
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.attributes.window_planner import WindowRanking, plan_batch
from spillway.levers.protocol import CapacityGroup, CapacityShare, Load, Plan, Views, Work


class FixedSchemePlan(AttributePlan):
    """One given scheme for every batch; everything else follows as in the product."""

    def __init__(
        self,
        work: Work,
        channel: Channel,
        tables: Views,
        framed: Sequence[Batch],
        scheme: Mapping[str, str],
    ) -> None:
        super().__init__(replace(work, batches=()), channel, tables, ())
        self.work, self.framed = work, framed
        for batch in work.batches:
            models = self.learned[batch.models["attributes"]].models
            ways = tuple(_parse_treatment(scheme.get(name, "keep"), model) for name, model in models.items())
            rate = work.loads[batch.batch].rate_kbps
            capacity = batch.allowed_kbps
            self.runs[batch.batch] = [
                Run(
                    batch.first_seq,
                    batch.last_seq,
                    ways,
                    rate_kbps=rate,
                    planned_kbps=rate,
                    capacity_kbps=capacity,
                    reason="given",
                )
            ]
            self.states[batch.batch], self.paid[batch.batch], self.lost[batch.batch] = {}, {}, 0.0
            self.around[batch.batch] = AROUND_SENT_BYTES

    def can_shed_more(self, batch: int) -> bool:
        return False


def _parse_treatment(treatment: str, model: AttributeModel) -> AttributeTreatment:
    """Return the treatment as planners write it (`shed+/2`: sent, third precision); by default the most expensive one.

    >>> _parse_treatment("shed+/0", AttributeModel("temp", "real", 1.0)).sent
    True
    """
    kind, _, precision = treatment.partition("/")
    way = kind.removesuffix("+")
    places = {"shed": model.precisions, "round": model.roundings}.get(way, ())
    place = int(precision) if precision else max(0, len(places) - 1)
    predictor = model.predictors[0].name if way == "shed" else ""
    return AttributeTreatment(model.attribute, way, 1, predictor, "given", place, kind.endswith("+"))


class WatchedPlan(AttributePlan):
    """The product's plan, made while every window is ranked; `looks` has the ranking of each."""

    def __init__(
        self,
        work: Work,
        channel: Channel,
        tables: Views,
        framed: Sequence[Batch],
        settings: RivalSettings | None = None,
    ) -> None:
        super().__init__(replace(work, batches=()), channel, tables, ())
        self.work, self.framed = work, framed
        self.looks: list[WindowRanking] = []
        asked = settings or RivalSettings()
        state: Mapping[str, Any] | None = None
        for batch in work.batches:
            learned, load = self.learned[batch.models["attributes"]], work.loads[batch.batch]
            part = CapacityShare(batch.capacity_kbps or 0.0, batch.trunk_kbps)
            if asked.measures_pct is not None:
                part = CapacityShare(room_kbps(load, set(learned.models), asked.measures_pct))
            around = AROUND_SENT_BYTES / max(1, batch.rows or 0)
            policy = policy_of(
                self.contract, channel, learned, load, part, around_sent_bytes=around, hits=True
            )
            if asked.evaluate_at is not None:
                looking = _FixedWindows(**vars(policy.reevaluation), at=asked.evaluate_at)
                policy = replace(policy, reevaluation=looking)
            self.runs[batch.batch], state = plan_batch(
                work.before(batch.batch_date),
                batch.first_seq,
                batch.last_seq,
                batch.first_seq if batch.frame_origin is None else batch.frame_origin,
                batch.frame_tuples,
                replace(policy, watch=self.looks.append),
                state,
            )
            self.states[batch.batch], self.paid[batch.batch] = state, {}
            self.around[batch.batch] = AROUND_SENT_BYTES
            self.lost[batch.batch] = max(run.loss for run in self.runs[batch.batch])


def room_kbps(load: Load, measures: Collection[str], measures_pct: float) -> float:
    """Return the rate of the columns that are always sent, plus a share of the measures' bytes.

    >>> room_kbps(Load({"key": 8.0, "temp": 30.0, "wind": 10.0}, 1000.0), {"temp", "wind"}, 50)
    28.0
    """
    bits = sum(
        width * (measures_pct / 100.0 if name in measures else 1.0)
        for name, width in load.widths_bits.items()
    )
    return bits * load.tuples_per_second / 1000.0


@dataclass(frozen=True)
class _FixedWindows(Reevaluation):
    """Evaluates these windows and no others."""

    at: frozenset[int] = frozenset()

    def due(self, state: ReevaluationState, window: int) -> bool:
        return window in self.at


class Rival(Attributes):
    """The lever with the decisions of its settings."""

    def plan(self, room: CapacityGroup, work: Sequence[Work]) -> Sequence[Plan]:
        channels = room.contracts.channels
        return [self._plan(one, channels[one.contract.channel], room.tables) for one in work]

    def _plan(self, work: Work, channel: Channel, tables: Views) -> AttributePlan:
        settings = work.contract.lever_settings("attributes")
        if isinstance(settings, RivalSettings) and settings.watched:
            return WatchedPlan(work, channel, tables, work.framed, settings)
        if isinstance(settings, RivalSettings) and settings.scheme is not None:
            return FixedSchemePlan(work, channel, tables, work.framed, settings.scheme)
        return AttributePlan(work, channel, tables, work.framed)


LEVER = Rival()
