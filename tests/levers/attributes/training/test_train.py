"""The ranking that a stream begins with, against the mean over its windows by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from spillway.contracts import read_stream
from spillway.levers.attributes.cycle.identifier import declared_cycle
from spillway.levers.attributes.option import Option
from spillway.levers.attributes.ranking.rank import rank
from spillway.levers.attributes.ranking.smoothing import Smoothing
from spillway.levers.attributes.training.train import first_ranking
from spillway.levers.protocol import Load

CONTRACT = read_stream(
    {
        "stream": "slow",
        "channel": "up",
        "source": {"format": "csv"},
        "attributes": [
            {"name": "key", "type": "string", "role": "key"},
            {"name": "at", "type": "integer", "role": "order"},
            {"name": "drifts", "type": "double"},
            {"name": "shakes", "type": "double"},
        ],
        "levers": [
            {
                "lever": "attributes",
                "rank_by": "stddev",
                "window": {"tuples_at_least": 10},
                "smoothing": {"kind": "none"},
            }
        ],
    }
)
CYCLE = declared_cycle({"key": np.array(["a", "b"] * 20, object)}, np.arange(40), ["key"])
LOAD = Load({"drifts": 64.0, "shakes": 64.0}, 100.0)


def tuples(rows: int) -> pa.Table:
    rng = np.random.default_rng(1)
    at = np.arange(rows)
    return pa.table(
        {"key": ["ab"[i % 2] for i in at], "drifts": at / 10.0, "shakes": rng.normal(50, 1.0, rows)}
    )


@pytest.mark.parametrize("rows", [3, 10, 200, 207])
def test_a_stream_begins_with_the_mean_ranking_of_its_training_windows(rows: int) -> None:
    table = tuples(rows)
    found = first_ranking(CONTRACT, table, ["drifts", "shakes"], CYCLE, LOAD, {})
    windows = max(1, rows // 10)
    scores: dict[str, list[float]] = {"drifts": [], "shakes": []}
    for window in range(windows):
        last = rows if window == windows - 1 else window * 10 + 10
        part = {name: table[name].to_numpy()[window * 10 : last] for name in scores}
        for one in rank(part, list(scores), "stddev", Smoothing("none")):
            scores[one.attribute].append(one.score)
    assert found == pytest.approx({name: sum(every) / windows for name, every in scores.items()})


def test_what_drifts_slowly_is_not_ranked_by_how_far_it_came() -> None:
    table = tuples(2000)
    found = first_ranking(CONTRACT, table, ["drifts", "shakes"], CYCLE, LOAD, {})
    assert found["drifts"] < found["shakes"]
    assert np.std(table["drifts"].to_numpy()) > 50 * np.std(table["shakes"].to_numpy())
    assert first_ranking(CONTRACT, table, [], CYCLE, LOAD, {}) == {}


def test_first_ranking_is_by_the_rule_of_the_contract() -> None:
    """By recoverability `shakes` goes first here; by the relative deviation of its windows, `drifts` would."""
    (entry,) = CONTRACT.levers
    settings = replace(entry.settings, rank_by="recoverability")
    contract = replace(CONTRACT, levers=(replace(entry, settings=settings),))
    options = {
        "drifts": [Option("drifts", "keep", 8.0), Option("drifts", "shed", 0.0, 4.0)],
        "shakes": [Option("shakes", "keep", 8.0), Option("shakes", "shed", 0.0, 1.0, mean_error_pct=1.0)],
    }
    found = first_ranking(contract, tuples(200), ["drifts", "shakes"], CYCLE, LOAD, options)
    assert found == {"drifts": -2.0, "shakes": -4.0}


def test_attribute_that_cannot_be_shed_is_ranked_last_by_recoverability() -> None:
    (entry,) = CONTRACT.levers
    contract = replace(
        CONTRACT, levers=(replace(entry, settings=replace(entry.settings, rank_by="recoverability")),)
    )
    options = {
        "drifts": [Option("drifts", "keep", 8.0), Option("drifts", "round", 2.0)],
        "shakes": [Option("shakes", "keep", 8.0), Option("shakes", "shed", 0.0, 4.0)],
    }
    found = first_ranking(contract, tuples(200), ["drifts", "shakes"], CYCLE, LOAD, options)
    assert sorted(found, key=lambda name: found[name]) == ["shakes", "drifts"]
