"""A stream whose lines carry parity, from the landing zone to training."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.streams import SITES, World, json_lines, sites

from spillway.engine import ProcessEngine
from spillway.levers.attributes.training.train import DamagedTrainingSets
from spillway.records.parity import lines_with_parity

TRAINED_ON = 240


def begun(folder: Path, damaged: dict[int, int]) -> World:
    """600 tuples as a sender with parity delivers them; by line (from 0), how many of its bits are flipped."""
    (lever,) = SITES["levers"]
    contract = {
        **SITES,
        "source": {**SITES["source"], "parity": "secded"},
        "levers": [{**lever, "training": {"tuples": TRAINED_ON, "candidates": 2}}],
    }
    lines = lines_with_parity(json_lines(sites(0, 600)).rstrip(b"\n").split(b"\n"))
    for place, bits in damaged.items():
        line = bytearray(lines[place])
        for bit in range(bits):
            line[10 + bit] ^= 2
        lines[place] = bytes(line)
    world = World.begin(ProcessEngine(), folder, contract)
    world.deliver("sites/2020-01-01/a.json", b"\n".join(lines) + b"\n")
    world.shed()
    return world


def trained_evidence(world: World) -> dict[str, object]:
    import json

    (cycle,) = [row for row in world.rows("models", None) if row["fact"] == "cycle"]
    found: dict[str, object] = json.loads(cycle["evidence"])
    return found


def test_flipped_bit_is_corrected_on_the_way_in_and_noted(tmp_path: Path) -> None:
    world = begun(tmp_path, {17: 1, 300: 1})
    whole = begun(tmp_path / "whole", {})
    names = ["seq", "site", "temp", "level", "pulses", "sky"]
    assert world.at("raw", "sites").rows(names).equals(whole.at("raw", "sites").rows(names))
    assert any("2 with a bit corrected by parity" in line for line in world.said)
    world.train("sites")
    evidence = trained_evidence(world)
    assert (evidence["rows"], evidence["discarded_sets"]) == (TRAINED_ON, [])


def test_line_that_parity_cannot_correct_discards_its_training_set_and_the_next_is_tried(
    tmp_path: Path,
) -> None:
    world = begun(tmp_path, {17: 2, 20: 2})
    refused = world.rows("rejected")
    assert [(row["line"], row["rule"]) for row in refused] == [
        (18, "have at most one flipped bit, by its parity"),
        (21, "have at most one flipped bit, by its parity"),
    ]
    assert world.at("raw", "sites").rows(["seq"]).num_rows == 598
    world.train("sites")
    assert trained_evidence(world)["discarded_sets"] == [2]


def test_no_training_set_without_such_a_line_is_an_error_and_nothing_is_trained(tmp_path: Path) -> None:
    world = begun(tmp_path, {17: 2, 400: 2})
    with pytest.raises(DamagedTrainingSets, match="got 2 sets with 1, 1 such lines; nothing was trained"):
        world.train("sites")
    assert world.rows("models") == []
