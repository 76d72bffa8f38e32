"""What no run takes of a join or a query is told by its contract alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.levers.joins.lake import JOIN, STREAM

from spillway.contracts import load_contracts
from spillway.errors import Refused
from spillway.pipeline.window_rules import broken_workloads, refuse_always

CHANNELS = {"channels": {"narrow": {"capacity": "1 Mbps"}}}


def folder_with(tmp_path: Path, join: dict[str, Any], **west: Any) -> Path:
    east = {**STREAM, "source": {**STREAM["source"], "path": "east"}}
    other = {**STREAM, "stream": "west", "source": {**STREAM["source"], "path": "west"}, **west}
    for name, text in (
        ("channels.yaml", CHANNELS),
        ("streams/east.yaml", east),
        ("streams/west.yaml", other),
        ("joins/alike.yaml", join),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(yaml.safe_dump(text), encoding="utf-8")
    return tmp_path


def changed(**entries: Any) -> dict[str, Any]:
    join = copy.deepcopy(JOIN)
    (lever,) = join["levers"]
    for name, change in entries.items():
        lever[name] = {**lever[name], **change} if isinstance(change, dict) else change
    return join


@pytest.mark.parametrize(
    ("join", "told"),
    [
        (changed(right={"attribute": "tagz"}), ("tagz", "be an attribute of west", "did you mean tags?")),
        (
            changed(left={"type": "urgent"}, types=[{"name": "high", "worth": 2}]),
            ("urgent", "be an attribute of east", "did you mean urgency?"),
        ),
        (
            {**JOIN, "inputs": ["east", "west", "east"]},
            ("inputs", "be two for a join", "name the left and the right stream"),
        ),
        (
            {**JOIN, "levers": [{"lever": "attributes"}]},
            ("levers", "be one that works on windows", "name joins, or a lever for queries"),
        ),
    ],
)
def test_what_its_inputs_do_not_have_is_told_before_any_run(
    tmp_path: Path, join: dict[str, Any], told: tuple[str, str, str]
) -> None:
    contracts = load_contracts(folder_with(tmp_path, join))
    (problem,) = broken_workloads(contracts)
    assert (problem.where, problem.field, problem.rule, problem.remedy) == ("joins/alike.yaml", *told)
    with pytest.raises(Refused, match=rf"^alike: `{told[0]}` must {told[1]}"):
        refuse_always(contracts, contracts.joins["alike"])


def test_nothing_is_wrong_with_a_join_by_what_its_inputs_have(tmp_path: Path) -> None:
    join = changed(left={"attribute": "batch_date"}, right={"attribute": "site"})
    contracts = load_contracts(folder_with(tmp_path, join))
    assert broken_workloads(contracts) == []
    refuse_always(contracts, contracts.joins["alike"])


def test_of_a_stream_that_cannot_be_cut_into_windows_its_order_is_told(tmp_path: Path) -> None:
    counted = copy.deepcopy(STREAM["attributes"])
    counted[1]["type"] = "integer"
    rate = {"from": "declared", "tuples_per_second": 10}
    (problem,) = broken_workloads(load_contracts(folder_with(tmp_path, JOIN, attributes=counted, rate=rate)))
    assert (problem.field, problem.value) == ("inputs", "integer")
    assert "west is by at" in problem.rule
