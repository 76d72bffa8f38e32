"""Every pair of stages: nothing false is said of rows and values that an earlier stage changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evidence import seams
from evidence.attributes.lake import ENGINE
from evidence.seams import (
    CASES,
    PAIRS,
    Claims,
    claims_of,
    most_missed,
    seam_figures,
    sifted_join,
    stages,
    unchecked_pairs,
)
from spillway.batch import RETIRED
from spillway.clock import utc_now
from spillway.engine.protocol import run_alone
from spillway.errors import InvalidValue
from spillway.levers.joins.join_window import LostRows
from spillway.registry import LEVERS, extra_levers
from spillway.store.batches import save_batches
from spillway.streams.shed import shed_channel
from spillway.streams.sketch_builder import sketch_stream
from spillway.streams.stored_sketches import load_sketch

SEEDS = 10


@pytest.fixture(scope="module", autouse=True)
def forgetting() -> Iterator[None]:
    """Free the lakes that checks share."""
    yield
    seams.world.cache_clear()


def test_every_pair_of_registered_levers_and_stages_has_a_check() -> None:
    assert set(LEVERS) < set(stages())
    assert unchecked_pairs() == []
    assert len(PAIRS) == len(stages()) ** 2


def test_a_lever_that_is_registered_without_checks_of_its_pairs_is_found() -> None:
    with extra_levers(thin="tests.levers.thin"):
        missing = unchecked_pairs()
    assert len(missing) == 2 * len(stages()) + 1
    assert {"thin"} == set.intersection(*(set(pair) for pair in missing if pair != ("thin", "thin"))) & {
        "thin"
    }


@pytest.mark.parametrize("pair", PAIRS, ids=" then ".join)
def test_nothing_false_is_said_behind_another_stage(pair: seams.Pair) -> None:
    claims = claims_of(pair, SEEDS)
    assert claims.intervals + claims.exact > 0
    assert claims.all_false == []


def test_joins_of_sifted_rows_are_estimated_without_bias() -> None:
    """The mean over seeds of T / truth lies within four standard errors of 1, of rows that are sampled apart."""
    for case in (one for one in CASES if not one.with_itself):
        ratios = []
        for seed in range(40):
            found = sifted_join(Claims(), case, seed)
            ratios.append(found.estimate / found.truth)
        error = float(np.std(ratios, ddof=1)) / len(ratios) ** 0.5
        assert abs(np.mean(ratios) - 1.0) < 4.0 * error, case
        assert error < 0.1, case


def test_rows_that_are_taken_for_complete_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As joins were before: weights were not read, and nobody said what was lost."""
    whole = seams._operand
    joined = seams._joined

    def unweighted(*side: Any, **_: Any) -> Any:
        return whole(*side[:4])

    def complete(case: Any, seed: int, sides: Any, budget: Any, lost: Any) -> Any:
        return joined(case, seed, sides, budget, (LostRows(), LostRows()))

    monkeypatch.setattr(seams, "_operand", unweighted)
    monkeypatch.setattr(seams, "_joined", complete)
    claims = Claims()
    for seed in range(5):
        sifted_join(claims, CASES[0], seed)
    assert len(claims.all_false) == 10, "0 missed, and sic 1"


def test_sketches_of_a_sifted_stream_cover_all_rows_on_every_path() -> None:
    """First shed, a sketch that is added later, and dates that are shed and sketched again."""
    of = seams.world(("sifters",), False, seams.PLAIN, seed=1)
    lake, everything = of.lake, len(of.rows["east"])
    assert lake.tables.at("transmitted", "east").rows(["seq"]).num_rows < everything
    stream = lake.contracts.stream("east")
    later = replace(stream, sketches=(*stream.sketches, replace(stream.sketches[2], attributes=("code",))))
    run_alone(ENGINE, sketch_stream(lake.tables.now(), later))
    (day,) = {batch.batch_date for batch in lake.batches("east")}
    shed_channel(lake.tables, ENGINE, lake.contracts, "wide", dates=(day, day))
    run_alone(ENGINE, sketch_stream(lake.tables.now(), later, dates=(day, day)))
    for name, kind in (
        ("code", "count_min"),
        ("level", "quantiles"),
        ("load", "distinct"),
        ("code", "distinct"),
    ):
        covers = load_sketch(lake.tables, "east", name, kind).covers
        assert (covers.rows, covers.missing) == (everything, 0), (name, kind)


def test_a_sketch_that_cannot_be_made_of_all_rows_says_so() -> None:
    """Raw was retired before the sketch was asked for: the rows that were kept are never sketched in its place."""
    of = seams.world(("sifters",), False, seams.PLAIN, seed=2)
    tables, stream = of.lake.tables, of.lake.contracts.stream("west")
    batches = of.lake.batches("west")
    added = replace(stream, sketches=(replace(stream.sketches[2], attributes=("code",)),))
    save_batches(tables, [one.with_changes(utc_now(), status=RETIRED) for one in batches])
    tables.at("raw", "west").delete(batch=[one.batch for one in batches])
    assert run_alone(ENGINE, sketch_stream(of.lake.tables.now(), added)) == 0
    with pytest.raises(InvalidValue, match="`sketch` must be one that the stream has"):
        load_sketch(of.lake.tables, "west", "code", "distinct")


def test_how_many_intervals_may_miss_the_truth_by_chance() -> None:
    """P(X > k) for X ~ Binomial(n, 0.05) is at most 1 in 10,000 at k, and above it at k - 1."""
    chance = np.random.default_rng(1)
    for intervals in (20, 200):
        most = most_missed(intervals)
        missed = chance.binomial(intervals, 0.05, 400_000)
        assert (missed > most).mean() < 2.5e-4 < (missed > most - 2).mean()


def test_the_figures_count_pairs_and_false_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    from evidence.book import Book
    from spillway.settings import Settings

    some = {pair: PAIRS[pair] for pair in (("joins", "quality"), ("attributes", "sifters"))}
    monkeypatch.setattr(seams, "PAIRS", some)
    figures = seam_figures(Book(lambda _: None), Settings.in_memory("seams"), 1)
    assert figures["seams.pairs_tested"] == 2
    assert figures["seams.claims_false"] == 0
    assert figures["seams.pairs_unchecked"] == len(stages()) ** 2 - 2
