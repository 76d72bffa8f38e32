"""How a window's steps are shared out among the sample, looks and what is selected: each rule alone, by its formula."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.levers.joins.streams import Row, operand

from evidence.joins.driver import join_settings
from spillway.levers.joins import budget as allotting
from spillway.levers.joins import decision as deciding
from spillway.levers.joins.budget import DRAWN_ENTRY, MOST_LOOKED, Allocation, allocate_budget
from spillway.levers.joins.controllers import Side
from spillway.levers.joins.decision import JoinDecision, SideBounds, pair_weights
from spillway.levers.joins.directions import Direction, SideRows, build_direction, costs_in_order
from spillway.levers.joins.exploration import LearnedSide, Memory
from spillway.levers.joins.matching import PREDICATES, SELECTED, FoundPairs, index_for, probe
from spillway.levers.joins.operands import Array, ItemSets, Operand
from spillway.levers.joins.settings import JoinSettings

NOTHING = LearnedSide()


def stream(per_second: int, seed: int) -> Operand:
    """40 seconds of sets of three out of nine items."""
    chance = np.random.default_rng(seed)
    return operand(
        [
            Row(at / per_second, dict.fromkeys(chance.choice(9, 3, replace=False).tolist(), 1.0))
            for at in range(40 * per_second)
        ]
    )


LEFT, RIGHT = stream(5, 1), stream(15, 2)
"""Sides that differ in rows, and windows in length, so that whoever takes one for the other is seen."""


def join(index: bool, **more: Any) -> JoinSettings:
    sides = ({"attribute": "x", "lasts_seconds": lasts} for lasts in (10, 6))
    stated = dict(zip(("left", "right"), sides, strict=True))
    stated |= {"predicate": "overlap", "threshold": 2, "sets": {}, "budget": {"comparisons_per_second": 100}}
    return join_settings(index=index, basic_window_seconds=2, **stated | more)


def bases(settings: JoinSettings, learned: tuple[LearnedSide, LearnedSide] = (NOTHING, NOTHING)) -> Any:
    left, right = (SideRows(rows, 0, rows.rows) for rows in (LEFT, RIGHT))
    return (
        build_direction(right, left, settings, learned[0], (1.0,), probe_is_left=False),
        build_direction(left, right, settings, learned[1], (1.0,), probe_is_left=True),
    )


def volumes_of(base: tuple[Direction, Direction]) -> Array:
    return np.concatenate([one.volumes.sum(axis=1) for one in base])


def peaked(n: int, at: int, many: float = 4000.0) -> LearnedSide:
    """Nearly all matches lie in one basic window, and much is known of it."""
    matches = np.full(n, many / 100)
    matches[at] = many
    return LearnedSide(matches, np.full(n, 5 * many), float(matches.sum()))


KNOWN = (peaked(6, 3), peaked(4, 1))
SHARES = np.linspace(0.1, 1.0, 10)


def test_without_an_index_each_basic_window_is_looked_at_by_its_share_of_what_may_be_spent_evenly() -> None:
    settings = join(False)
    base = bases(settings)
    found = allotting._look_probabilities(settings, base, SHARES, 9000.0, 0.02)
    assert [len(one) for one in found] == [6, 4]
    assert np.concatenate(found) == pytest.approx(SHARES * 9000 / volumes_of(base).sum() - 0.02)
    # what is drawn already is looked at as often, and no less than nothing
    assert (np.concatenate(allotting._look_probabilities(settings, base, SHARES, 9000.0, 0.5)) == 0.0).all()


def test_with_an_index_all_basic_windows_are_looked_at_by_the_mean_of_their_comparisons() -> None:
    settings = join(True)
    base = bases(settings)
    volumes = volumes_of(base)
    steps = sum(one.whole_steps for one in base)
    mean = float(SHARES @ volumes / volumes.sum())
    assert mean != pytest.approx(SHARES.mean(), rel=0.02)
    found = np.concatenate(allotting._look_probabilities(settings, base, SHARES, 0.4 * steps, 0.02))
    assert found == pytest.approx(np.full(10, 0.4 * mean - 0.02))


def test_the_sample_takes_what_looking_would_without_an_index_and_gamma_with_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(allotting, "ENOUGH_FOUND", 1e12)
    plain, indexed = join(False), join(True)
    base = bases(plain)
    volumes = volumes_of(base)
    assert allotting._sampling_probability(plain, base, None, 3000.0) == pytest.approx(
        MOST_LOOKED * 3000 / volumes.sum()
    )
    looks = float(SHARES @ volumes / volumes.sum())
    assert allotting._sampling_probability(plain, base, SHARES, 3000.0) == pytest.approx(
        looks * 3000 / volumes.sum()
    )
    # gamma where that is more
    assert allotting._sampling_probability(plain, base, SHARES / 1e3, 3000.0) == pytest.approx(
        0.05 * 3000 / volumes.sum()
    )
    with_index = bases(indexed)
    entries = sum(one.population for one in with_index)
    # an entry that is drawn waits for memory: few are, until it is known how many are enough
    for shares, takes in ((None, DRAWN_ENTRY), (SHARES, 2.0)):
        found = allotting._sampling_probability(indexed, with_index, shares, 3000.0)
        assert found == pytest.approx(0.05 * 3000 / (takes * entries))


def test_the_sample_takes_no_more_than_finds_enough_pairs_of_both_sides() -> None:
    settings = join(False)
    base = bases(settings, KNOWN)
    pairs = sum(float(one.volumes.sum(axis=1) @ one.curve) for one in base)
    found = allotting._sampling_probability(settings, base, SHARES, 1e9)
    assert found == pytest.approx(allotting.ENOUGH_FOUND / pairs)


@pytest.mark.parametrize("index", [False, True])
def test_what_is_drawn_is_taken_off_what_whole_rows_may_take(index: bool) -> None:
    settings = join(index)
    base = bases(settings)
    possible = sum(one.whole_steps for one in base)
    spends = 0.3 * possible
    chance, chosen = allotting._allocate_steps(spends, base, settings, (NOTHING, NOTHING), (1.0,))
    # a comparison is a step; with an index so is the entry that leads to it
    drawn = chance * sum(one.population for one in base) * (2 if index else 1)
    assert drawn > 0
    for one in chosen:
        assert one.how.take.sum() == 0, "nothing is known to select by"
        assert one.how.looking.chances == pytest.approx(np.full(len(one.costs), (spends - drawn) / possible))


def test_by_an_index_whole_rows_are_compared_where_no_basic_window_is_better_than_another() -> None:
    settings = join(True)
    flat = [LearnedSide(np.full(n, 4000.0), np.full(n, 20_000.0), 4000.0 * n) for n in (6, 4)]
    for learned, picks in (((flat[0], flat[1]), False), (KNOWN, True)):
        base = bases(settings, learned)
        spends = 0.3 * sum(one.whole_steps for one in base)
        _, chosen = allotting._allocate_steps(spends, base, settings, learned, (1.0,))
        assert bool(sum(one.how.take.sum() for one in chosen)) == picks
        assert picks == (chosen[0].how.looking.chances[0] < 0.1)


def shared_out(
    settings: JoinSettings, chance: float, spends: float
) -> tuple[tuple[Direction, Direction], Any]:
    base = bases(settings, KNOWN)
    looking = allotting._add_looks(base, [np.full(len(one.costs), chance) for one in base], settings)
    return base, allotting._select_comparisons(looking, settings, KNOWN, spends, (1.0,))[0]


@pytest.mark.parametrize("index", [False, True])
def test_rows_that_look_are_taken_off_and_the_others_share_what_is_left(index: bool) -> None:
    """A quarter of all cells, or rows, is looked at: what is left beside goes to the other three quarters."""
    settings = join(index, adapt={"correlation": False, "direction": "none"})
    steps = sum(one.whole_steps for one in bases(settings, KNOWN))
    base, chosen = shared_out(settings, 0.25, 0.5 * steps)
    alone = sum(float(one.volumes.sum(axis=1) @ one.costs) for one in base)
    even = (0.5 - 0.25) * steps / 0.75 / alone
    for one in chosen:
        there = one.how.high - one.how.low
        assert one.how.take.sum() == pytest.approx(even * there.sum(), rel=0.02)


@pytest.mark.parametrize("index", [False, True])
def test_whether_picking_pays_is_asked_of_what_is_left_beside_looks(
    index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float]] = []

    def pays(yields: float, budget: float, sides: Any, whole_steps: float) -> bool:
        asked.append((budget, whole_steps))
        return True

    monkeypatch.setattr(allotting, "is_selection_worthwhile", pays)
    settings = join(index)
    base, _ = shared_out(settings, 0.25, 20_000.0)
    whole = sum(one.whole_steps for one in base)
    left = (20_000 - 0.25 * whole) / (0.75 if index else 1.0)
    assert asked == [(pytest.approx(left), pytest.approx(whole))]


def side_of(one: Direction, settings: JoinSettings, unseen: Array) -> Side:
    return allotting._side(one, NOTHING, settings, (1.0,), unseen)


def test_of_a_basic_window_the_part_that_is_not_looked_at_yields_and_costs() -> None:
    settings = join(True)
    one = bases(settings, KNOWN)[0]
    unseen = np.linspace(0.5, 1.0, 6)
    found = side_of(one, settings, unseen)
    added = costs_in_order(one.costs, one.looked_up, one.how.order, one.held)
    assert (added < one.costs).any()
    assert found.o == pytest.approx(one.curve * unseen)
    assert found.costs == pytest.approx(added * unseen)
    # without correlation they are all one, and cost what they cost on average over comparisons
    alike = join(True, adapt={"correlation": False})
    one = bases(alike, KNOWN)[0]
    found = side_of(one, alike, np.ones(6))
    added, made = costs_in_order(one.costs, one.looked_up, one.how.order, one.held), one.volumes.sum(axis=1)
    assert found.costs.tolist() == [pytest.approx(float(added @ made) / float(made.sum()))]
    assert found.volumes.tolist() == [[made.sum()]]


def test_basic_windows_are_taken_whole_by_an_index_and_partly_without_and_both_as_many_as_is_their_share() -> (
    None
):
    for index, correlation in ((True, True), (True, False), (False, True)):
        settings = join(index, adapt={"correlation": correlation})
        for one in bases(settings, KNOWN):
            how, share = one.how, np.array([0.37])
            take = allotting.selected_row_counts(one, share, settings)
            there = how.high - how.low
            assert take.sum() == pytest.approx(0.37 * there.sum(), rel=0.06)
            part = replace(one, how=replace(how, take=take))
            whole = replace(one, how=replace(how, take=there))
            used, sizes = (part.selected_volumes, whole.selected_volumes)
            assert used.sum() == take.sum()
            assert sizes.sum() == there.sum()
            # either all rows took as much of their window as they wanted, or some took more and others less
            off = np.abs(take - 0.37 * there)
            assert (off.max() < 1) == (not (index and correlation))


def test_basic_windows_that_cost_more_for_what_they_yield_come_last() -> None:
    flat = [LearnedSide(np.full(n, 4000.0), np.full(n, 20_000.0), 4000.0 * n) for n in (6, 4)]
    for one in bases(join(True), (flat[0], flat[1])):
        last = len(one.costs) - 1
        # of the newest and the oldest but a part is in reach, and lists are looked up all the same
        assert set(one.how.order[-2:].tolist()) == {0, last}
        assert (np.diff((one.curve / one.costs)[one.how.order]) <= 1e-12).all()


def test_rows_of_either_side_take_by_draws_of_their_own() -> None:
    settings = join(False)
    left = bases(settings, KNOWN)[0]
    same = [replace(left, probe_is_left=flag) for flag in (False, True)]
    found = [allotting.selected_row_counts(one, np.array([0.37]), settings) for one in same]
    assert (found[0] != found[1]).any(), "of a stream that is joined with itself both sides have the same seq"


def test_what_is_known_is_what_both_windows_tell_and_nothing_where_either_is_cut_otherwise() -> None:
    base = bases(join(False), KNOWN)
    each = [float(one.matches.sum()) ** 2 / one.squares for one in KNOWN]
    assert allotting._lumps(base, KNOWN) == pytest.approx(sum(each))
    assert allotting._lumps(base, (KNOWN[0], NOTHING)) == 0.0
    assert allotting._lumps(base, (NOTHING, KNOWN[1])) == 0.0


def test_rows_that_fell_out_of_the_buffer_look_at_nothing() -> None:
    settings = join(False, adapt={"rate": "followed"}, budget={"comparisons_per_second": 300})
    given = [SideRows(rows, 0, rows.rows) for rows in (LEFT, RIGHT)]
    found = allocate_budget(*given, settings, Memory(r=0.5), (1.0,), 40.0)
    for one in found.directions:
        assert 0 < one.fetched.mean() < 1
        assert (one.how.looking.who == one.fetched).all()
        assert (one.comparisons_by_row[~one.fetched] == 0).all()
        assert one.comparisons_by_row[one.fetched].sum() > 0


def test_each_pair_weighs_one_over_the_chance_it_had() -> None:
    """Selected 1; by a row that looks 1 / (p_j + (1 - p_j) q); by one that fell out of the buffer 1 / q."""
    one = bases(join(False), KNOWN)[0]
    one = replace(one.with_looks(np.array([0.5, 0.25, 0.0, 0.0, 0.0, 0.0]), False, 1), chance=0.1)
    who = np.arange(one.probes.rows) % 2 == 0

    def found(behind: list[int], probe: list[int]) -> FoundPairs:
        none = np.zeros(0, np.int64)
        rows = np.zeros(len(probe), np.int64)
        return FoundPairs(np.array(probe), rows, np.array(behind), none, none, none, none, 0, 0)

    pairs = found([SELECTED, 0, 1, 2, SELECTED, 0, 2], [0, 0, 0, 0, 1, 1, 1])
    some = replace(one, how=replace(one.how, looking=one.how.looking._replace(who=who)))
    looked = [1.0, 1 / 0.55, 1 / 0.325, 10.0]
    assert pair_weights(some, pairs) == pytest.approx([*looked, 1.0, 10.0, 10.0])
    assert pair_weights(one, pairs) == pytest.approx([*looked, 1.0, 1 / 0.55, 10.0])
    # and so many comparisons are expected to be made of a basic window
    made = one.expected_comparisons.sum(axis=1) / one.volumes.sum(axis=1)
    assert made[2:] == pytest.approx(np.full(4, 0.1))
    assert made[:2] == pytest.approx([0.55, 0.325], abs=0.03)


def worked_out(
    settings: JoinSettings, sides: tuple[Operand, Operand], worth: tuple[float, ...], found: Allocation
) -> Any:
    """By direction: who faces whom, and the shares (sic) of the pairs that are found."""
    rows = sum(one.rows for one in sides)
    decision = JoinDecision(
        found, PREDICATES[settings.predicate], settings.threshold or 0.0, worth, False, SideBounds(), rows
    )
    shares = []
    for (part,) in [(one,) for some in decision.task_inputs(None, {}) for one in some]:  # type: ignore[arg-type]
        tables = list(decision.results(None, (part,), {}))  # type: ignore[arg-type]
        shares.append(np.concatenate([one["sic"].to_numpy() for one in tables]))
    return list(zip(found.directions, shares, strict=True))


def found_by_probing(one: Direction, settings: JoinSettings) -> FoundPairs:
    index = index_for(one.probes.sets, one.window.sets) if settings.index else None
    predicate = PREDICATES[settings.predicate]
    threshold = settings.threshold or 0.0
    return probe(
        one.probes, one.window, one.how, predicate, threshold, index, one.probe_is_left, False, one.drawn
    )


def test_shares_of_the_source_add_up_to_what_rows_that_have_pairs_were_compared_with() -> None:
    settings = join(False, budget={"comparisons_per_second": 400})
    given = [SideRows(rows, 0, rows.rows) for rows in (LEFT, RIGHT)]
    allotment = allocate_budget(*given, settings, Memory(left=KNOWN[0], right=KNOWN[1]), (1.0,), 40.0)
    for one, shares in worked_out(settings, (LEFT, RIGHT), (1.0,), allotment):
        found = found_by_probing(one, settings)
        assert (found.inside < found.everything).any(), "chance found some of the pairs"
        there = np.maximum(1, one.how.high - one.how.low)
        with_pairs = found.everything > 0
        truth = (found.compared / there)[with_pairs].sum() / (LEFT.rows + RIGHT.rows)
        assert len(shares) == found.everything.sum()
        assert shares.sum() == pytest.approx(truth)


def test_who_looks_travels_with_the_rows_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that fell out of the buffer none looks, in whichever task it is."""
    settings = join(False, adapt={"rate": "followed"}, budget={"comparisons_per_second": 300})
    given = [SideRows(rows, 0, rows.rows) for rows in (LEFT, RIGHT)]
    found = allocate_budget(*given, settings, Memory(r=0.5), (1.0,), 40.0)
    decision = JoinDecision(
        found, PREDICATES["overlap"], 2.0, (1.0,), False, SideBounds(), LEFT.rows + RIGHT.rows
    )
    monkeypatch.setattr(deciding, "STEPS_A_PART", 10)
    said = []
    for cores in (1, 3):
        counts: dict[str, int] = {}
        parts = decision.task_inputs(None, {})  # type: ignore[arg-type]
        assert len(parts) >= cores
        for part in parts:
            list(decision.results(None, part, counts))  # type: ignore[arg-type]
        said.append({name: count for name, count in counts.items() if name != "nanoseconds"})
    assert said[0] == said[1]


def test_where_types_pick_basic_windows_out_no_whole_window_is_searched_along_chains() -> None:
    sides = (LEFT, RIGHT)
    left, right = (
        replace(
            one,
            sets=ItemSets(np.arange(one.rows + 1), one.sets.items[one.sets.first[:-1]], np.ones(one.rows)),
            kinds=np.arange(one.rows) % 2,
        )
        for one in sides
    )
    stated: dict[str, Any] = {"predicate": "equality", "threshold": None, "sets": None}
    stated |= {"types": [{"name": "a", "utility": 1.0}], "otherwise": 0.5}
    stated |= {
        name: {"attribute": "x", "lasts_seconds": lasts, "type": "kind"}
        for name, lasts in (("left", 10), ("right", 6))
    }
    settings = join(True, **stated)
    found = allocate_budget(
        *(SideRows(one, 0, one.rows) for one in (left, right)), settings, Memory(), (1.0, 0.5), 40.0
    )
    half = [
        replace(
            one.with_looks(np.zeros(len(one.costs)), True, 1),
            how=replace(one.how, take=(one.how.high - one.how.low) // 2),
        )
        for one in found.directions
    ]
    for one, shares in worked_out(
        settings, (left, right), (1.0, 0.5), replace(found, directions=(half[0], half[1]))
    ):
        assert one.chains is not None
        assert not one.has_whole_rows_only
        probed = found_by_probing(one, settings)
        assert len(shares) == len(probed.probe) < one.chains.equals[one.comparisons_by_row > 0].sum()
