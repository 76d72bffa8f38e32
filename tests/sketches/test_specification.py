"""What a contract asks for becomes a sketch that fits its memory, or is refused with what it would take."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from evidence.sketches.bloom import Bloom, BloomParameters
from spillway.contracts.sections import Sketch
from spillway.errors import InvalidValue
from spillway.sketches.alternating_bloom import AlternatingBloom
from spillway.sketches.binary import LibrarySketch
from spillway.sketches.count_min import CountMin
from spillway.sketches.heavy_hitters import HeavyHitters
from spillway.sketches.hll import Hll
from spillway.sketches.kll import Kll
from spillway.sketches.pair_count import PairCount
from spillway.sketches.query import read_sketch
from spillway.sketches.specification import SketchSpec

TYPES = {"origin": "string", "time_hour": "timestamp", "temp": "double", "humid": "double"}


def spec(kind: str, *names: str, **rest: object) -> SketchSpec:
    return SketchSpec(kind, names, tuple(TYPES[name] for name in names), **rest)  # type: ignore[arg-type]


def test_a_contracts_entry_becomes_a_sketch_of_its_kind() -> None:
    entry = Sketch(kind="count_min", attributes=("origin",), memory_kib=40)
    found = SketchSpec.from_contract(entry, TYPES)
    assert (found.kind, found.name, found.types) == ("count_min", "origin", ("string",))
    assert isinstance(found.empty(), HeavyHitters)
    with pytest.raises(InvalidValue, match="be among"):
        SketchSpec.from_contract(SimpleNamespace(kind="count_min", attributes=["gate"]), TYPES)


def test_every_kind_keeps_to_its_memory_and_reads_back_with_its_context() -> None:
    kinds = {
        spec("count_min", "origin", heavy_pct=None): CountMin,
        spec("count_min", "origin", "temp"): HeavyHitters,
        spec("quantiles", "temp"): Kll,
        spec("distinct", "origin", "temp"): Hll,
        spec("pair_count", "origin", "temp", "humid"): PairCount,
        spec("alternating_bloom", "origin", "time_hour", within=1000): AlternatingBloom,
    }
    for asked, kind in kinds.items():
        sketch = asked.empty()
        assert isinstance(sketch, kind)
        back = read_sketch(sketch.to_bytes(), asked.types, asked.attributes)
        assert type(back) is kind
        assert back.shape == asked.parameters
        if not issubclass(kind, LibrarySketch):
            assert dict(back.context) == asked.context
    counts = spec("count_min", "origin", heavy_pct=None).empty()
    assert counts.parameters.memory_bytes <= 64 * 1024  # type: ignore[union-attr]
    many = range(100_000)
    for asked in (spec("quantiles", "temp"), spec("distinct", "temp")):
        filled = asked.kind_object.finish(asked, asked.kind_object.empty_part(asked).update(many), {})  # type: ignore[attr-defined]
        assert asked.memory_kib / 3 < len(filled.to_bytes()) / 1024 <= asked.memory_kib * 1.02
    pairs = spec("pair_count", "origin", "temp", "humid").empty().parameters
    assert pairs.width * pairs.depth * 4 * 2 <= 64 * 1024  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "names", "rest", "message"),
    [
        ("hyperloglog", ("origin",), {}, "be one of count_min"),
        ("count_min", (), {}, "be named"),
        ("quantiles", ("origin",), {}, "one ordered attribute"),
        ("quantiles", ("temp", "humid"), {}, "one ordered attribute"),
        ("quantiles", ("temp",), {"memory_kib": -1}, "`k` must lie from 8"),
        ("pair_count", ("temp", "humid"), {"memory_kib": 1, "depth": 20}, "be at least 3"),
        ("pair_count", ("temp", "humid"), {"at_least": 3}, "from 1 to 2"),
        ("count_min", ("temp",), {"depth": 64, "memory_kib": -1}, "at least 1024 bytes"),
        ("alternating_bloom", ("temp",), {}, "`within` must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(kind: str, names: tuple[str, ...], rest: dict, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        spec(kind, *names, **rest)


def test_bytes_of_a_kind_no_contract_names_are_refused() -> None:
    with pytest.raises(InvalidValue, match="be one of count_min"):
        read_sketch(Bloom(BloomParameters(64, 1)).to_bytes())
