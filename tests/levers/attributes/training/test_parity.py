"""Training sets that carry parity: one flip is corrected, two discard the set, all bad is an error."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from spillway.contracts import StreamContract, read_stream
from spillway.errors import Refused
from spillway.levers.attributes.training.hamming import TrainingSetsDamaged
from spillway.levers.attributes.training.parity import sound_training_set, with_parity


@pytest.fixture
def contract() -> StreamContract:
    return read_stream(
        {
            "stream": "net",
            "channel": "up",
            "source": {"format": "csv"},
            "attributes": [
                {"name": "router", "type": "string", "role": "key", "bits": 24},
                {"name": "at", "type": "timestamp", "role": "order"},
                {"name": "delay", "type": "double"},
                {"name": "packets", "type": "integer"},
                {"name": "check", "type": "string", "role": "protected"},
            ],
        }
    )


def table(rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "seq": pa.array(np.arange(rows)),
            "router": [f"r{i % 7}" for i in range(rows)],
            "at": pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us", tz="UTC")),
            "delay": pa.array(rng.normal(10, 3, rows), mask=rng.random(rows) < 0.1),
            "packets": pa.array(rng.integers(-(2**62), 2**62, rows)),
            "check": pa.nulls(rows, pa.string()),
        }
    )


def flipped(rows: pa.Table, row: int, bits: int) -> pa.Table:
    """The table with so many bits of one integer flipped on the line."""
    values = rows["packets"].to_numpy().copy()
    values[row] ^= (1 << bits) - 1
    return rows.set_column(rows.column_names.index("packets"), "packets", pa.array(values))


def test_a_flipped_bit_is_corrected_wherever_it_is(contract: StreamContract) -> None:
    sent = with_parity(contract, "check", table(50, seed=1))
    sound, report = sound_training_set(contract, "check", [flipped(sent, 17, bits=1)])
    assert sound.equals(sent)
    assert report == {"parity": "secded", "corrected_tuples": 1, "discarded_sets": [], "retried_sets": 0}


def test_two_flips_in_a_tuple_discard_the_set_and_the_next_is_tried(contract: StreamContract) -> None:
    bad, good = (
        with_parity(contract, "check", table(50, seed=1)),
        with_parity(contract, "check", table(50, seed=2)),
    )
    sound, report = sound_training_set(contract, "check", [flipped(bad, 3, bits=2), good])
    assert sound.equals(good)
    assert (report["discarded_sets"], report["retried_sets"]) == ([1], 1)


def test_all_sets_bad_is_an_error_and_nothing_is_trained(contract: StreamContract) -> None:
    bad = flipped(with_parity(contract, "check", table(20, seed=1)), 3, bits=2)
    with pytest.raises(TrainingSetsDamaged, match="2 sets with 1, 1 such tuples; nothing was trained"):
        sound_training_set(contract, "check", [bad, bad])


def test_parity_that_is_not_there_is_named(contract: StreamContract) -> None:
    with pytest.raises(
        Refused, match=r"`check` must hold \d+ hexadecimal digits of parity at seq 0, got None"
    ):
        sound_training_set(contract, "check", [table(5, seed=1)])


def test_text_wider_than_declared_is_named(contract: StreamContract) -> None:
    rows = table(3, seed=1)
    wide = rows.set_column(1, "router", pa.array(["r1", "router 2", "r3"]))
    with pytest.raises(Refused, match=r"`router` must fit its 3 bytes.*declare bits: 64"):
        with_parity(contract, "check", wide)
