"""A cycle that changes after training is noticed; noise is not mistaken for change."""

from __future__ import annotations

import numpy as np
import pytest
from tests.levers.attributes.demo_streams import Stream, bits_of, rows_of, stocks

from evidence.streams import perturb
from spillway.levers.attributes.cycle.identifier import Cycle, Member, cycle_drift, find_cycle


def cities(names: str, rounds: int) -> Stream:
    return {"city": np.array(list(names) * rounds, dtype=object)}


@pytest.fixture
def trained() -> Cycle:
    return find_cycle(cities("abcdef", 100), np.arange(600), {"city": 8})


def test_nothing_changed_asks_for_nothing(trained: Cycle) -> None:
    found = cycle_drift(trained, cities("abcdef", 50), np.arange(600, 900))
    assert (found.new, found.vanished, found.confidence) == ((), (), 1.0)
    assert not found.needs_retraining
    assert "train the stream again" not in str(found)


def test_a_new_member_is_named_with_its_first_seq(trained: Cycle) -> None:
    columns = {"city": np.concatenate([cities("abcdef", 20)["city"], cities("abcxdef", 20)["city"]])}
    found = cycle_drift(trained, columns, np.arange(600, 860))
    assert found.new == (Member(("x",), 723),)
    assert found.vanished == ()
    assert found.needs_retraining
    assert "new members: x" in str(found)


def test_a_member_that_stays_away_has_vanished(trained: Cycle) -> None:
    columns = {"city": np.concatenate([cities("abcdef", 20)["city"], cities("abdef", 20)["city"]])}
    found = cycle_drift(trained, columns, np.arange(600, 820))
    assert [member.values for member in found.vanished] == [("c",)]
    assert found.vanished[0].until_seq == 600 + 6 * 19 + 2
    assert found.confidence > 0.95


def test_a_member_that_never_came_has_vanished_too(trained: Cycle) -> None:
    found = cycle_drift(trained, cities("abdef", 20), np.arange(600, 700))
    assert [member.values for member in found.vanished] == [("c",)]


def test_noise_and_a_misspelt_key_are_no_change(trained: Cycle) -> None:
    columns = rows_of(cities("abcdef", 300), perturb(1800, np.random.default_rng(6)))
    columns["city"][77] = "typo"
    found = cycle_drift(trained, columns, np.arange(len(columns["city"])))
    assert (found.new, found.vanished) == ((), ())
    # 300 cycles: sd of the share below sqrt(.12 x .88 / 1700) = .008
    assert found.confidence == pytest.approx(0.88, abs=0.03)
    assert not found.needs_retraining


def test_another_order_loses_confidence(trained: Cycle) -> None:
    found = cycle_drift(trained, cities("fdbeca", 50), np.arange(300))
    assert found.confidence < 0.5
    assert found.needs_retraining


def test_a_key_of_which_nothing_is_left_has_no_confidence(trained: Cycle) -> None:
    found = cycle_drift(trained, cities("uvwxyz", 50), np.arange(300))
    assert found.confidence == 0.0
    assert len(found.new) == len(found.vanished) == 6


def test_a_batch_without_rows_changes_nothing(trained: Cycle) -> None:
    assert not cycle_drift(trained, cities("", 0), np.arange(0)).needs_retraining


def test_a_cycle_that_is_not_unique_drifts_by_its_period() -> None:
    trained = find_cycle(cities("abac", 10), np.arange(40), {"city": 8})
    assert not trained.unique
    assert cycle_drift(trained, cities("abac", 10), np.arange(40)).confidence == 1.0
    assert cycle_drift(trained, cities("abcabca", 6), np.arange(42)).needs_retraining


def test_the_fifth_ticker_is_noticed_by_a_cycle_trained_before_it() -> None:
    columns = stocks()
    cycle = find_cycle(rows_of(columns, np.arange(10_000)), np.arange(10_000), bits_of(columns), order="date")
    later = np.arange(10_000, len(columns["date"]))
    found = cycle_drift(cycle, rows_of(columns, later), later)
    assert [member.values for member in found.new] == [("FB",)]
    assert columns["date"][found.new[0].from_seq] == "2012-05-18"
    assert found.vanished == ()


def test_a_member_away_for_long_has_an_absence_and_one_that_left_an_end() -> None:
    columns = {
        "city": np.concatenate(
            [cities("abcd", 300)["city"], cities("abd", 200)["city"], cities("abcd", 300)["city"]]
        )
    }
    cycle = find_cycle(columns, np.arange(3000), {"city": 8})
    away = next(member for member in cycle.members if member.values == ("c",))
    assert away.absences == ((1198, 1802),)
    assert not away.is_active_at(1500)
    assert (cycle.length_at(0), cycle.length_at(1500), cycle.length_at(2500)) == (4, 3, 4)
    assert Member.from_dict(away.to_dict()) == away
