"""`method: paper`: the rules of a paper are one preset of its lever, and settings that are stated override it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.levers.joins.streams import Row, operand

from spillway.contracts import StreamContract, read_channel, read_stream
from spillway.contracts.loader import read_workload
from spillway.errors import ContractError
from spillway.levers.attributes.cycle.identifier import declared_cycle
from spillway.levers.attributes.facts import TrainedFacts
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.policy import own_settings, policy_of
from spillway.levers.attributes.ranking.reevaluation import Reevaluation
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.ranking.windows import window_tuples
from spillway.levers.attributes.settings import AttributeSettings
from spillway.levers.attributes.synopsis.model import AttributeModel
from spillway.levers.joins import budget as allotting
from spillway.levers.joins import join_window
from spillway.levers.joins.budget import allocate_budget
from spillway.levers.joins.controllers import adapt_fraction
from spillway.levers.joins.directions import SideRows
from spillway.levers.joins.exploration import LearnedSide, Memory
from spillway.levers.joins.settings import JoinSettings
from spillway.levers.protocol import CapacityShare, Load
from spillway.sketches import sql
from spillway.sketches.query import read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec

NAMES = tuple("abcd")


def stream(
    levers: dict[str, Any] | None = None, sketches: list[dict[str, Any]] | None = None
) -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "key", "type": "string", "role": "key"},
                {"name": "at", "type": "integer", "role": "order"},
                *({"name": name, "type": "double"} for name in NAMES),
            ],
            "levers": [{"lever": "attributes", **(levers or {})}],
            "sketches": sketches or [],
        }
    )


# --- attributes: Ahuja 2006 ---


def planned(**settings: Any) -> Any:
    """The policy of a stream of 6 attributes of 9, 9, 9 ... bits a thousand times a second, trained by deviation."""
    options = {
        name: (
            Option(name, "keep", 9 / 8),
            Option(name, "round", 0.5, 0.0, 0.5),
            Option(name, "shed", 0.0, 0.4, 0.3, predictor="last"),
        )
        for name in NAMES
    }
    cycle = declared_cycle({"key": ["x", "y"] * 4, "at": list(range(8))}, list(range(8)), ["key"], order="at")
    models = {name: AttributeModel(name, "real", error_pct=2.0) for name in NAMES}
    learned = TrainedFacts(1, cycle, models, options, {}, {"c": 0.1, "a": 0.2, "d": 0.3, "b": 0.4})
    load = Load({"seq": 10.0, "key": 9.0, "at": 9.0, **dict.fromkeys(NAMES, 9.0)}, 1000.0)
    channel = read_channel("up", {"capacity": "60 kbps", "divide_by": "proportional"})
    return policy_of(
        stream({"method": "paper", **settings}), channel, learned, load, CapacityShare(64.0 * 2 / 3)
    )


def test_paper_sheds_the_counted_prefix_of_the_ranking_by_deviation_and_holds_its_synopses() -> None:
    """Equations 3.4 and 3.9: a third of 6 attributes; 3.2.3.2: those of least deviation; 3.2.4.2: nothing is sent."""
    policy = planned()
    assert policy.rank_by == "stddev"
    assert [name for name, _ in policy.trained_ranking] == ["c", "a", "d", "b"]
    found = policy.decide([name for name, _ in policy.trained_ranking])
    assert {way.attribute: way.way for way in found.ways} == {
        "a": "shed",
        "b": "keep",
        "c": "shed",
        "d": "keep",
    }
    assert not any(way.sent for way in found.ways)


def test_paper_smooths_by_the_moving_average_and_reevaluates_as_algorithm_2_is_printed() -> None:
    policy = planned()
    assert policy.smoothing == Smoothing("ema", 0.18, "first")
    assert policy.reevaluation == Reevaluation()


def test_paper_ranks_windows_of_one_cycle() -> None:
    assert window_tuples(75, planned().tuples_at_least) == 75
    assert window_tuples(12, planned().tuples_at_least) == 12


def test_paper_keeps_or_sheds_and_recovers_from_the_last_stored_value() -> None:
    settings = own_settings(stream({"method": "paper"}))
    assert (settings.treatments, settings.predictors, settings.synopsis) == (
        ("keep", "shed"),
        ("last",),
        "hold",
    )


def test_stated_settings_of_attributes_override_the_preset() -> None:
    policy = planned(rank_by="relative", reevaluate={"factor": 1.5}, smoothing={"kind": "none"}, fit="bits")
    assert (policy.rank_by, policy.smoothing.kind) == ("relative", "none")
    assert policy.reevaluation == Reevaluation(factor=1.5)
    assert own_settings(stream({"method": "paper", "fit": "bits"})).fit == "bits"
    with pytest.raises(ContractError, match=r"`levers\[0\].fit` must be absent if the plan is not prefix"):
        stream({"method": "paper", "plan": "least_loss"})


def test_default_method_is_the_settings_of_the_lever() -> None:
    assert own_settings(stream({"method": "default"})) == own_settings(stream()) == AttributeSettings()


# --- joins: Gedik, Wu, Yu and Liu 2007 ---


def join(**settings: Any) -> JoinSettings:
    sides = {side: {"attribute": "tag", "lasts_seconds": 4} for side in ("left", "right")}
    lever = {"lever": "joins", "method": "paper", "index": False, **sides, **settings}
    found: JoinSettings = read_workload(
        {"name": "pairs", "inputs": ["east", "west"], "window": {"seconds": 5}, "levers": [lever]}
    ).lever_settings("joins")
    return found


def allotment(settings: JoinSettings, worth: tuple[float, ...] = (1.0,)) -> Any:
    rows = [operand([Row(at + half, {1: 1.0}) for at in range(400)]) for half in (0.0, 0.5)]
    basic = np.full(5, 1e6)
    known = LearnedSide(basic, 10 * basic, float(basic.sum()))
    memory = Memory(left=known, right=known, r=0.25)
    return allocate_budget(
        SideRows(rows[0], 0, 400), SideRows(rows[1], 0, 400), settings, memory, worth, 400.0
    )


def counting(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[int]:
    """Count the calls of a function, which does what it does."""
    calls: list[int] = []
    real = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *given: (calls.append(1), real(*given))[1])
    return calls


def test_paper_takes_its_fraction_from_what_could_be_fetched() -> None:
    """Algorithm 1: r goes on from the last window's, whatever is there to compare."""
    budget = {"comparisons_per_second": 4.0}
    assert allotment(join(budget=budget)).r == 0.25
    assert allotment(join(budget=budget, adapt={"rate": "counted"})).r != 0.25
    assert (join().adapt.boost, join().adapt.buffer_seconds) == (1.2, 1.0)
    assert adapt_fraction(0.5, 100, 100, join().adapt.boost) == pytest.approx(0.6)


def test_paper_takes_one_window_before_the_other_and_types_by_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 4, and Algorithm 5 where rows have types."""
    whole, each = (
        counting(monkeypatch, allotting, name) for name in ("allocate_by_direction", "allocate_by_utility")
    )
    budget = {"comparisons_per_second": 4.0}
    allotment(join(budget=budget))
    assert (len(whole), len(each)) == (1, 0)
    types = {
        "left": {"attribute": "tag", "type": "kind", "lasts_seconds": 4},
        "types": [{"name": "high", "utility": 3.0}],
    }
    with pytest.raises(
        ContractError, match=r"adapt.direction` must be each if rows have types \(Algorithm 5\)"
    ):
        join(budget=budget, **types)
    allotment(join(budget=budget, adapt={"direction": "each"}, **types))
    assert (len(whole), len(each)) == (1, 1)


def test_paper_ranks_basic_windows_by_a_sample_that_forgets() -> None:
    """Algorithms 2 and 3: gamma is 0.1, and counts are of the last interval alone."""
    adapt = join().adapt
    assert (adapt.correlation, adapt.sample_pct, adapt.memory) == (True, 10.0, 0.0)
    assert join().basic_window_seconds == 1.0
    assert join_window.rank_basic_windows is not None


def test_stated_settings_of_joins_override_the_preset_one_by_one() -> None:
    adapt = join(adapt={"sample_pct": 5}).adapt
    assert (adapt.sample_pct, adapt.rate, adapt.memory) == (5.0, "followed", 0.0)


# --- sketches: Deng 2007 ---


def spec(**sketch: Any) -> SketchSpec:
    (entry,) = stream(
        sketches=[{"attributes": ["key"], "kind": "count_min", "memory_kib": 2, **sketch}]
    ).sketches
    return SketchSpec.from_contract(entry, {"key": "string"}, "net")


def counted(one: SketchSpec) -> tuple[Any, bytes]:
    keys = [f"k{key}" for key in np.random.default_rng(3).zipf(1.2, 5000).tolist()]
    sketch: Any = one.empty()
    one.kind_object.add_rows(sketch, one, pa.table({"key": keys}))
    payload = one.kind_object.finish(one, sketch, {}).to_bytes()
    return wrap_sketch(read_sketch(payload)), payload


@pytest.mark.parametrize(
    ("stated", "method"),
    [({}, "cmm_mean"), ({"estimator": "cm"}, "cm"), ({"estimator": "cmm_median"}, "cmm_median")],
)
def test_paper_answers_frequencies_by_its_estimators_through_every_door(
    stated: dict[str, str], method: str
) -> None:
    """4.2.2 by default of the preset; 2.1.1 and 4.2.4 where they are stated."""
    sketch, payload = counted(spec(method="paper", **stated))
    for key in ("k1", "k7", "never"):
        answer = sketch.frequency(key)
        wanted = sketch.frequency(key, estimator=method)
        assert (answer.method, answer.estimate) == (method, wanted.estimate)
        function, _ = sql.sql_functions()["spillway_frequency"]
        (found,) = function(pa.array([payload]), pa.array([key])).to_pylist()
        assert found["value"] == answer.estimate
        assert method in found["note"]


def test_default_sketch_answers_by_purpose_and_merges_with_those_built_before() -> None:
    one, paper = spec(heavy_pct=None), spec(method="paper")
    assert "estimator" not in one.context
    assert counted(one)[0].frequency("k1").method == "cmm_order"
    assert (paper.heavy_share, one.context | {"estimator": "cmm_mean"}) == (None, paper.context)


def test_paper_draws_half_of_the_super_values() -> None:
    pairs = {"kind": "pair_count", "attributes": ["key", "a", "b"], "memory_kib": 64}
    rates = [
        stream(sketches=[{**pairs, **stated}]).sketches[0].rate
        for stated in ({}, {"method": "paper"}, {"method": "paper", "rate": 1.0})
    ]
    assert rates == [1.0, 0.5, 1.0]
    assert math.ceil(0.5 * math.comb(6, 3)) == 10, "5.5.2: of 20 triples of 6 attributes"


def test_unknown_method_is_refused() -> None:
    with pytest.raises(ContractError, match=r"`levers\[0\].method` must be one of default, paper"):
        stream({"method": "papers"})
