"""`method: paper` reaches each rule of Gedik, Wu and Yu 2008; and queries are parsed once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.levers.sifters.logs import LOGS, SIFTERS, learned, logs, rows_like
from tests.pipeline.streams import World, json_lines

from spillway.contracts import StreamContract, read_stream
from spillway.contracts.fields import to_plain
from spillway.engine import ProcessEngine
from spillway.levers.sifters import parsed_queries, predicates
from spillway.levers.sifters.choose import partition_space
from spillway.levers.sifters.configure import configure_filter
from spillway.levers.sifters.consolidate import consolidate_queries
from spillway.levers.sifters.settings import SifterSample, SifterSettings

OWN = ("regions", "sample")
PLAIN = {name: value for name, value in SIFTERS.items() if name not in OWN}


def contract_with(**settings: object) -> StreamContract:
    return read_stream({**LOGS, "levers": [{**PLAIN, **settings}]})


def settings_with(**settings: object) -> SifterSettings:
    found: SifterSettings = contract_with(**settings).lever_settings("sifters")
    return found


def test_preset_selects_what_the_paper_describes() -> None:
    found = settings_with(method="paper")
    assert (found.regions, found.partition, found.fairness, found.unqueried, found.consolidation) == (
        16,
        "query_data",
        0.5,
        "by_region",
        "uniform",
    )
    assert found.sample == SifterSample(rows=1000, marked_pct=1.0)


def test_explicit_settings_override_the_preset_one_by_one() -> None:
    found = settings_with(method="paper", fairness=0.7, sample={"marked_pct": 0})
    assert (found.fairness, found.partition) == (0.7, "query_data")
    assert found.sample == SifterSample(rows=1000, marked_pct=0.0)
    contract = contract_with(method="paper", fairness=0.7)
    assert read_stream(to_plain(contract)) == contract


def test_default_marks_no_row() -> None:
    """The marked sample caps every threshold, and nothing reads it (review 5.8)."""
    assert settings_with().sample.marked_pct == 0.0
    assert settings_with().method == "default"


def test_papers_rules_decide_regions_and_thresholds() -> None:
    rows = rows_like(3, 5000)
    found = learned(contract_with(method="paper", keep=[]), rows)
    asked, tree = found.query_boxes, found.base.tree
    assert tree.count <= 16
    assert found.sample_rows == 1000
    assert not found.base.has_unrequested_region, (
        "rows that no query asks for are dropped by the region they lie in"
    )
    # QDPart (V-B, eq. 11)
    expected = partition_space("query_data", tree.space, found.points, asked, 16)
    assert (tree.cuts.tolist(), tree.axes.tolist()) == (expected.cuts.tolist(), expected.axes.tolist())
    # eq. 5: rows lie evenly in a region, whatever the sample says
    worth = found.worth()
    evenly = consolidate_queries(tree, found.frequencies, asked)
    blended = consolidate_queries(tree, found.frequencies, asked, found.points)
    assert worth.worths.tolist() == evenly.worths.tolist()
    assert not np.allclose(evenly.worths, blended.worths)
    # fairness 0.5 (eq. 10) and a share of 1 % that no filter drops
    outcome = configure_filter(worth, 0.3, 0.0, 0.5, found.base.share)
    touched = outcome.thresholds[worth.touched]
    assert touched.max() - touched.min() <= 0.5 + 1e-9
    assert outcome.thresholds.max() <= 0.99


def test_default_blends_the_sample_into_equation_5() -> None:
    found = learned(contract_with(keep=[], unqueried="by_region"), rows_like(3, 5000))
    blended = consolidate_queries(found.base.tree, found.frequencies, found.query_boxes, found.points)
    assert found.worth().worths.tolist() == blended.worths.tolist()


def test_method_shapes_a_filter_also_where_nothing_else_differs() -> None:
    same = {"keep": [], "unqueried": "by_region"}
    rows = rows_like(3, 2000)
    one, other = (
        learned(contract_with(**same, consolidation=how), rows).digest for how in ("sampled", "uniform")
    )
    assert one != other


@pytest.mark.parametrize("count", [40])
def test_each_query_is_parsed_once_per_process(tmp_path: Path, count: int) -> None:
    """Reading the contract twice, training and shedding parse no text again (review 5.5: 7 times a batch)."""
    texts = [f"latency >= {17.25 + at} and latency < {917.25 + at} and host = 'web-1'" for at in range(count)]
    lever = {**SIFTERS, "queries": [{"where": text} for text in texts], "rows_per_second": 50.0}
    stream = {**LOGS, "levers": [lever]}
    predicates._condition.cache_clear()
    parsed_queries._parse_queries.cache_clear()
    assert read_stream(stream) == read_stream(stream)
    world = World.begin(ProcessEngine(), tmp_path, stream, capacity="1 Mbps")
    for number in range(3):
        world.deliver(f"logs/2020-01-0{number + 1}/a.json", json_lines(logs(600 * number, 600)))
        world.shed()
        world.train("logs")
    assert len(world.rows("sifters")) >= 2
    assert predicates._condition.cache_info().misses == count + len(SIFTERS["keep"])
    assert parsed_queries._parse_queries.cache_info().misses == 1
