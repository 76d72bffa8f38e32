"""Every kind of sketch keeps the same laws: whoever adds one adds it to the list, and to `CASES` here."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import InvalidValue
from spillway.sketches.binary import LibrarySketch
from spillway.sketches.hll import Hll
from spillway.sketches.kinds import SKETCH_KINDS, every_kind, kind_of
from spillway.sketches.query import merge_sketches, read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec
from spillway.sketches.sql import sql_functions

CASES = {
    "count_min": SketchSpec("count_min", ("s", "i"), ("string", "integer"), heavy_pct=None, memory_kib=4),
    "count_min, heavy": SketchSpec("count_min", ("s",), ("string",), heavy_pct=5.0, memory_kib=4),
    "quantiles": SketchSpec("quantiles", ("d",), ("double",), memory_kib=40),
    "distinct": SketchSpec("distinct", ("s",), ("string",), memory_kib=1),
    "pair_count": SketchSpec("pair_count", ("s", "i", "d"), ("string", "integer", "double"), memory_kib=8),
    "alternating_bloom": SketchSpec(
        "alternating_bloom", ("s", "i"), ("string", "integer"), within=500, shards=2
    ),
}
MERGING = [name for name, spec in CASES.items() if spec.kind_object.merges]
SEEDED = [name for name in MERGING if not isinstance(CASES[name].empty(), LibrarySketch)]
"""Keys that are hashed by a seed of ours."""
BLOOM = Path(__file__).parent / "fixtures" / "bloom.v1.sketch"


def rows(first: int, count: int) -> pa.Table:
    rng = np.random.default_rng(first)
    return pa.table(
        {
            "seq": np.arange(first, first + count),
            "s": pa.array(rng.choice(["a", "b", "c"], count).tolist(), pa.string()),
            "i": pa.array(rng.integers(0, 9, count), pa.int64(), mask=rng.random(count) < 0.1),
            "d": pa.array(rng.normal(0, 1, count)),
        }
    )


def fed(spec: SketchSpec, *tables: pa.Table) -> Any:
    sketch = spec.kind_object.empty_part(spec)
    for table in tables:
        spec.kind_object.add_rows(sketch, spec, table)
    return sketch


def test_every_kind_has_a_case_and_is_what_its_line_says() -> None:
    assert {spec.kind for spec in CASES.values()} == set(SKETCH_KINDS)
    assert [kind.name for kind in every_kind()] == list(SKETCH_KINDS)


@pytest.mark.parametrize("case", CASES)
def test_a_sketch_comes_back_from_its_bytes_as_it_was(case: str) -> None:
    spec = CASES[case]
    for sketch in (spec.empty(), fed(spec, rows(0, 300))):
        sketch.context = spec.context
        back = read_sketch(sketch.to_bytes(), spec.types, spec.attributes)
        assert type(back) is type(sketch)
        assert back.to_bytes() == sketch.to_bytes()
        assert back.shape == sketch.shape
        assert isinstance(back, spec.kind_object.forms())


@pytest.mark.parametrize("case", MERGING)
def test_merging_is_sketching_all_the_rows_in_any_order_of_the_parts(case: str) -> None:
    spec, days = CASES[case], [rows(0, 200), rows(200, 1), rows(201, 150)]
    parts = [fed(spec, day) for day in days]

    def state(sketch: Any) -> object:
        # the library keeps its first keys in the order in which they came
        return sketch.count() if isinstance(sketch, Hll) else sketch.to_bytes()

    whole = state(fed(spec, *days))
    assert state(merge_sketches(parts)) == whole
    assert state(merge_sketches(parts[::-1])) == whole
    assert state(merge_sketches([spec.kind_object.empty_part(spec), *parts])) == whole


@pytest.mark.parametrize("case", SEEDED)
def test_sketches_of_another_seed_do_not_merge(case: str) -> None:
    spec = CASES[case]
    entry = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
    other = SketchSpec(**{**entry, "seed": spec.seed + 1})
    with pytest.raises(InvalidValue, match="same parameters and seed"):
        spec.empty().merge(other.empty())


def test_what_depends_on_the_order_is_not_merged() -> None:
    state = CASES["alternating_bloom"].empty()
    with pytest.raises(InvalidValue, match="order of the stream"):
        merge_sketches([state, state])


@pytest.mark.parametrize("case", CASES)
def test_foreign_bytes_are_refused(case: str) -> None:
    form: Any = type(CASES[case].empty())
    read = form.from_native if issubclass(form, LibrarySketch) else form.from_bytes
    with pytest.raises(InvalidValue, match=r"must (be|begin)"):
        read(BLOOM.read_bytes())
    with pytest.raises(InvalidValue, match="rebuild the sketch"):
        read(b"PAR1" + bytes(100))
    with pytest.raises(InvalidValue, match="be one of count_min"):
        read_sketch(BLOOM.read_bytes())


@pytest.mark.parametrize("case", CASES)
def test_every_answer_of_a_kind_can_be_asked_and_of_no_other(case: str) -> None:
    spec = CASES[case]
    found = wrap_sketch(spec.kind_object.finish(spec, fed(spec, rows(0, 60)), {}))
    for kind in every_kind():
        for method in kind.answers:
            if kind.name == spec.kind:
                assert callable(getattr(found, method))
            else:
                with pytest.raises(InvalidValue, match=f"be {kind.name} for this question"):
                    getattr(found, method)


def test_questions_and_functions_are_named_once() -> None:
    asked = [question.name for kind in every_kind() for question in kind.questions]
    methods = [method for kind in every_kind() for method in kind.answers]
    assert len(asked) == len(set(asked))
    assert [f"spillway_{method}" for method in methods] == list(sql_functions())
    assert all(kind.of_two <= set(kind.answers) for kind in every_kind())


@pytest.mark.parametrize("case", CASES)
def test_a_row_of_the_table_says_what_the_sketch_is(case: str) -> None:
    spec = CASES[case]
    sketch = spec.empty()
    row = spec.row("sites", 3, datetime.date(2020, 1, 3), 7, sketch.to_bytes(), 2, "before")
    assert (row["stream"], row["batch"], row["rows"], row["kind"], row["name"]) == (
        "sites", 3, 7, spec.kind, "+".join(spec.attributes),
    )  # fmt: skip
    assert (row["started_from"], row["started_digest"], row["digest"]) == (2, "before", sketch.digest())
    assert read_sketch(row["payload"], spec.types, spec.attributes).shape == spec.parameters


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match="be one of count_min, quantiles"):
        kind_of("hyperloglog")


def test_counts_of_keys_are_as_coarse_as_the_coarser_and_wider_the_surer() -> None:
    fine, coarse = (Hll(lg_k).update(range(20_000)) for lg_k in (12, 8))
    for both in (fine.merge(coarse), coarse.merge(fine)):
        assert both.lg_k == both.to_bytes()[3] == 8
    widths = [(found := fine.count(sure)).high - found.low for sure in (0.6, 0.9, 0.99)]
    assert 0 < widths[0] < widths[1] < widths[2]
