"""One side of a join as arrays: rows in the order of time, each with its items (and weights) in ascending order.

Kernels read an `Operand`. `cut` returns the rows of a range of time. A task needs such a range of the other side, so a
large window is partitioned by time and never copied whole.

>>> import pyarrow as pa
>>> left, right = encoded(pa.array(["b a", "", None, "a a"]), pa.array(["c b"]), Words(" "))
>>> left.items.tolist(), left.first.tolist(), right.items.tolist()
([0, 1, 0], [0, 2, 2, 2, 3], [1, 2])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spillway.errors import Refused

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Words:
    """How a text encodes a set: the separator of items, and that of an item and its weight (None: a single value)."""

    separator: str | None = None
    weight: str | None = None


class ItemSets(NamedTuple):
    """The items of rows: those of row k are at `first[k]..first[k + 1]`, ascending, without duplicates."""

    first: Array
    items: Array
    weights: Array


@dataclass(frozen=True)
class Operand:
    """One side: rows in the order of (time, seq)."""

    at: Array
    """Event time in microseconds."""
    seq: Array
    sets: ItemSets
    kinds: Array
    """The type of each row (z), as an ordinal."""
    row_weights: Array | None = None
    """The weight of each row, 1 / its sampling probability; None: all weights are 1."""

    @property
    def rows(self) -> int:
        return len(self.at)

    def cut(self, low: int, high: int) -> Operand:
        """Return the rows `low..high - 1`."""
        first = self.sets.first[low : high + 1]
        begin, end = (int(first[0]), int(first[-1])) if len(first) else (0, 0)
        return replace(
            self,
            at=self.at[low:high],
            seq=self.seq[low:high],
            sets=ItemSets(
                first - begin if len(first) else np.zeros(1, np.int64),
                self.sets.items[begin:end],
                self.sets.weights[begin:end],
            ),
            kinds=self.kinds[low:high],
            row_weights=None if self.row_weights is None else self.row_weights[low:high],
        )


def holds_sets(kind: pa.DataType) -> bool:
    """Return whether values of the type can be texts with items."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def are_comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether values of both types can be equal: the types are equal, or both are numeric.

    >>> are_comparable(pa.int64(), pa.float64()), are_comparable(pa.int64(), pa.string())
    (True, False)
    """
    numbers = (pa.types.is_integer, pa.types.is_floating)
    return left == right or all(any(is_kind(one) for is_kind in numbers) for one in (left, right))


def encoded(left: pa.Array, right: pa.Array, words: Words) -> tuple[ItemSets, ItemSets]:
    """Return the items of both sides as ordinals of one dictionary."""
    if words.separator is None:
        return encoded_values([left], [right])
    sides = [_split(column, words) for column in (left, right)]
    tokens = pa.concat_arrays([side[1] for side in sides]).dictionary_encode()
    # ordinals follow the order of the items' names, so that they do not depend on the order of rows
    by_name = pc.sort_indices(tokens.dictionary)
    rank = np.empty(len(tokens.dictionary), np.int64)
    rank[np.asarray(by_name)] = np.arange(len(rank))
    codes = rank[np.asarray(tokens.indices.cast(pa.int64()))] if len(tokens) else np.zeros(0, np.int64)
    cut = len(sides[0][1])
    return tuple(
        _as_sets(row, mine, weights, length)
        for (row, _, weights, length), mine in zip(sides, (codes[:cut], codes[cut:]), strict=True)
    )  # type: ignore[return-value]


def _split(column: pa.Array, words: Words) -> tuple[Array, pa.Array, Array | None, int]:
    """Return row, token and weight (if there are any) of every item in the texts."""
    if not holds_sets(column.type):
        raise Refused(
            "attribute",
            "be text where it holds sets",
            str(column.type),
            "leave `sets` out, or name another attribute",
        )
    lists = pc.split_pattern(column.cast(pa.string()), pattern=words.separator)
    tokens = pc.utf8_trim_whitespace(pc.list_flatten(lists))
    rows = np.asarray(pc.list_parent_indices(lists))
    some = np.asarray(pc.greater(pc.utf8_length(tokens), 0))
    tokens, rows = tokens.filter(pa.array(some)), rows[some]
    weights = None
    if words.weight is not None and len(tokens):
        weights = np.ones(len(tokens))
        pairs = pc.split_pattern(tokens, pattern=words.weight, max_splits=1, reverse=True)
        tokens = pc.list_element(pairs, 0)
        stated = np.asarray(pc.equal(pc.list_value_length(pairs), 2))
        texts = [pair[1] for pair in pairs.filter(pa.array(stated)).to_pylist()]
        weights[stated] = [_weight(text) for text in texts]
    return rows, tokens, weights, len(column)


def _weight(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    return value if np.isfinite(value) else 0.0


def encoded_values(lefts: Sequence[pa.Array], rights: Sequence[pa.Array]) -> tuple[ItemSets, ItemSets]:
    """Return rows as sets of the values of several attributes. Each attribute shares a dictionary with its counterpart.

    A null is no item.

    >>> left, right = encoded_values([pa.array([1, 2]), pa.array(["a", None])], [pa.array([2]), pa.array(["a"])])
    >>> left.items.tolist(), left.first.tolist(), right.items.tolist()
    ([0, 2, 1], [0, 2, 3], [1, 2])
    """
    cut, codes, there, begin = len(lefts[0]), [], [], 0
    for left, right in zip(lefts, rights, strict=True):
        mine, known = _codes(left, right)
        codes.append(mine + begin)
        there.append(known)
        begin = int(codes[-1].max(initial=begin - 1)) + 1
    table, known = np.column_stack(codes), np.column_stack(there)
    first, second = (_rows_of(table[span], known[span]) for span in (slice(0, cut), slice(cut, None)))
    return first, second


def _rows_of(codes: Array, there: Array) -> ItemSets:
    """Return the rows of a table of codes as sets. Codes ascend from column to column."""
    first = np.concatenate([[0], np.cumsum(there.sum(axis=1))]).astype(np.int64)
    return ItemSets(first, codes[there], np.ones(int(first[-1])))


def _codes(left: pa.Array, right: pa.Array) -> tuple[Array, Array]:
    """Return the values of both sides as ordinals, one side after the other, and a mask without nulls and NaN."""
    if left.type != right.type:
        if not are_comparable(left.type, right.type):
            raise Refused(
                "attribute",
                "be of one type on both sides",
                f"{left.type} and {right.type}",
                "join by attributes that hold the same",
            )
        # like Spark: beyond 2^53 an integer is compared as the nearest double
        left, right = (one.cast(pa.float64(), safe=False) for one in (left, right))
    both = pa.concat_arrays([left, right])
    if pa.types.is_floating(both.type):
        # -0.0 equals 0.0, and NaN equals nothing
        values = np.asarray(pc.fill_null(both, float("nan"))) + 0.0
        both = pa.array(values, from_pandas=True)
    there = np.asarray(pc.is_valid(both))
    return np.asarray(pc.fill_null(both.dictionary_encode().indices, 0)).astype(np.int64), there


def _as_sets(rows: Array, codes: Array, weights: Array | None, length: int) -> ItemSets:
    """Return sets with items in ascending order. Weights of duplicates are added; without weights each item counts 1.

    `rows` ascend, so sorting by one key of row and item suffices. It takes a tenth of the time of sorting by two keys.
    """
    many = int(codes.max(initial=0)) + 1
    keys = rows.astype(np.int64) * many + codes
    if weights is None:
        keys.sort()
    else:
        order = np.argsort(keys, kind="stable")
        keys, weights = keys[order], weights[order]
    new = np.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    begins = np.flatnonzero(new)
    times = np.diff(begins, append=len(keys)).astype(np.float64)
    summed = times if weights is None or not len(begins) else np.add.reduceat(weights, begins)
    own = rows[begins]
    items = keys[begins] - own * many
    counts = np.bincount(own, minlength=length) if length else np.zeros(0, np.int64)
    return ItemSets(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), items, summed)
