"""Min-hash signatures agree as often as similarity says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spillway.errors import InvalidValue
from spillway.sketches.min_hash import min_hash, text_vectors
from spillway.sketches.query import read_sketch, wrap_sketch
from spillway.sketches.specification import SketchSpec


def two_sets(shared: int, own: int) -> tuple[np.ndarray, np.ndarray]:
    both = np.arange(shared)
    tokens = [both, 100 + np.arange(own), both, 200 + np.arange(own)]
    return np.concatenate(tokens).astype(np.uint64), np.array([shared + own, 2 * (shared + own)])


@pytest.mark.parametrize(("shared", "own"), [(10, 0), (10, 5), (5, 15), (0, 10)])
def test_coordinates_agree_with_the_probability_of_jaccard(shared: int, own: int) -> None:
    tokens, ends = two_sets(shared, own)
    one, two = min_hash(tokens, ends, 4000)
    jaccard = shared / (shared + 2 * own)
    # binomial(4000, J): sd at most 0.008
    assert (one == two).mean() == pytest.approx(jaccard, abs=4 * 0.008)


def test_all_empty_sets_are_alike() -> None:
    first, second, third = min_hash(np.array([5], dtype=np.uint64), np.array([0, 1, 1]), 2)
    assert first.tolist() == third.tolist() != second.tolist()


TITLES = [" ".join(f"w{i}.{word}" for word in range(10)) for i in range(400)]
COPIES = [f"{title.upper().rpartition(' ')[0]}\tREPRINT-{i}" for i, title in enumerate(TITLES)]
"""Nine of eleven words are in both."""


def test_a_contract_sketches_a_text_and_says_how_many_are_near_copies() -> None:
    entry = SimpleNamespace(kind="pair_count", attributes=["title"], min_hashes=6, at_least=5, memory_kib=512)
    spec = SketchSpec.from_contract(entry, {"title": "string"}, "books")
    sketch: Any = spec.empty()
    rows = pa.table({"title": [*TITLES, *COPIES, "", None], "seq": range(802)})
    spec.kind_object.add_rows(sketch, spec, rows)
    found: Any = wrap_sketch(read_sketch(sketch.to_bytes()))
    vectors = text_vectors(rows["title"], 6, spec.seed)
    truth = sum(int((vectors[i] == vectors[400 + i]).sum() >= 5) for i in range(400))
    answer = found.near_duplicate_pairs()
    assert answer.low <= truth <= answer.high
    # binomial(400, p) copies with 5 or 6 of 6 alike: sd at most 10
    share = 6 * (9 / 11) ** 5 * (2 / 11) + (9 / 11) ** 6
    assert truth == pytest.approx(400 * share, abs=40)
    # a join with itself has every pair twice, and each text with itself
    join = found.near_duplicate_join(found)
    assert join.low <= 2 * truth + 802 <= join.high


def test_only_one_text_is_min_hashed() -> None:
    for names, types, hashes in (
        (("a",), ("integer",), 6),
        (("a", "b"), ("string",) * 2, 6),
        (("a",), ("string",), 1),
    ):
        with pytest.raises(InvalidValue, match="`min_hashes` must be at least 2, of one text"):
            SketchSpec("pair_count", names, types, min_hashes=hashes)


def test_wrong_shapes_are_refused() -> None:
    tokens = np.array([1, 2], dtype=np.uint64)
    with pytest.raises(InvalidValue, match="rise to 2"):
        min_hash(tokens, np.array([1]), 2)
    with pytest.raises(InvalidValue, match="at least 1"):
        min_hash(tokens, np.array([2]), 0)
