"""How columns become sets: of several attributes each value is an item; numbers are compared as numbers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.levers.joins.operands import ItemSets, SetFormat, encode_sets, encode_values

rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]), st.sampled_from([1, 2, None]), st.sampled_from(["a", "1", None])
    ),
    max_size=12,
)


def sets_of(one: ItemSets) -> list[set[int]]:
    return [set(one.items[low:high].tolist()) for low, high in zip(one.first, one.first[1:], strict=False)]


@given(left=rows, right=rows)
def test_rows_have_in_common_what_they_are_alike_in(
    left: list[tuple[object, ...]], right: list[tuple[object, ...]]
) -> None:
    types = (pa.string(), pa.int64(), pa.string())
    columns = [
        [pa.array([row[k] for row in side], types[k]) for k in range(len(types))] for side in (left, right)
    ]
    mine, other = encode_values(*columns)
    for one, row in zip(sets_of(mine), left, strict=True):
        for two, partner in zip(sets_of(other), right, strict=True):
            alike = sum(a == b and a is not None for a, b in zip(row, partner, strict=True))
            assert len(one & two) == alike, "the same value of another attribute is another item"
    for side in (mine, other):
        ends = zip(side.first[:-1], side.first[1:], strict=True)
        assert all((side.items[a:b][1:] > side.items[a:b][:-1]).all() for a, b in ends)


words = st.lists(
    st.none() | st.lists(st.sampled_from(["b", "a", "cc", "", "b:2", "a:0.1", "a:0.7", "cc:x"]), max_size=6),
    max_size=8,
)


def as_written(row: list[str] | None, weight: str | None) -> dict[str, float]:
    """Items and weights of a text, one word after the other."""
    found: dict[str, float] = {}
    for word in filter(None, row or ()):
        name, _, stated = word.partition(weight) if weight else (word, "", "")
        value = 0.0 if stated == "x" else float(stated or 1)
        found[name] = found.get(name, 0.0) + value
    return found


@given(left=words, right=words, weight=st.sampled_from([None, ":"]))
def test_texts_are_sets_of_their_words_with_weights_added_up(
    left: list[list[str] | None], right: list[list[str] | None], weight: str | None
) -> None:
    texts = [[None if row is None else " ".join(row) for row in side] for side in (left, right)]
    mine = encode_sets(*(pa.array(side, pa.string()) for side in texts), SetFormat(" ", weight))
    names = sorted({name for side in (left, right) for row in side for name in as_written(row, weight)})
    for found, side in zip(mine, (left, right), strict=True):
        assert len(found.first) == len(side) + 1
        for low, high, row in zip(found.first, found.first[1:], side, strict=False):
            items = dict(zip((names[i] for i in found.items[low:high]), found.weights[low:high], strict=True))
            wanted = as_written(row, weight)
            assert list(items) == sorted(wanted)
            assert items == pytest.approx(wanted), "sums of doubles depend on what is added first"


def test_a_whole_number_that_no_double_is_joins_as_the_nearest_one() -> None:
    whole, broken = pa.array([2**53 + 1, 7]), pa.array([float(2**53), 7.0])
    left, right = encode_sets(whole, broken, SetFormat())
    assert left.items.tolist() == right.items.tolist()
