"""Warn of conditions that match no row.

A query protects the rows that its condition matches. If the contract says `level = 'error'` and the data say `ERROR`,
no query asks for these rows, and they are dropped first. The condition is valid SQL, so the error shows only in rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spillway.contracts import StreamContract
from spillway.errors import escape_text
from spillway.levers.sifters.boxes import products_contain
from spillway.levers.sifters.dimensions import Dimension
from spillway.levers.sifters.parsed_queries import ParsedQueries
from spillway.levers.sifters.predicates import Predicate, compared_words, parse_sql
from spillway.levers.sifters.settings import SifterSettings

SHOWN_VALUES = 3
_LONGEST_VALUE = 40


@dataclass(frozen=True)
class UnmatchedCondition:
    """A condition of the contract that matches none of the inspected rows, or names a value that occurs in none."""

    title: str
    """How messages name it: `query NAME` or `keep`."""
    condition: str
    found: str
    """The values that occur instead."""
    rows: int
    word: str | None = None
    """The value that occurs in no row, if the condition matches by its other parts."""

    @property
    def sentence(self) -> str:
        """Return the condition, and the values that occur instead."""
        what = "matches" if self.word is None else f"names the value {self.word}, which occurs in"
        condition = "" if self.title.endswith(f" {self.condition}") else f" ({self.condition})"
        return f"{self.title}{condition} {what} none of the last {self.rows:,} rows: {self.found}"

    @property
    def remedy(self) -> str:
        return (
            "correct the value if such rows must be protected (upper and lower case differ): rows that no query asks "
            "for are dropped first"
        )


def unmatched_conditions(contract: StreamContract, rows: pa.Table) -> Iterator[UnmatchedCondition]:
    """Yield the queries and `keep` rules of the contract's sifters that match none of these rows."""
    if not rows.num_rows:
        return
    settings: SifterSettings = contract.lever_settings("sifters")
    wanted = ParsedQueries.of(settings, contract)
    for title, predicate in (
        *((f"query {query.title}", predicate) for query, predicate in wanted.queries),
        *((f"keep {predicate.text}", predicate) for predicate in wanted.keep),
    ):
        if not predicate.used_dimensions:
            continue
        seen = {
            name: _AttributeValues.of(dimension, rows)
            for name, dimension in _used_dimensions(predicate).items()
        }
        keys = [one.keys_of(rows[one.name]) for one in predicate.dimensions]
        if not products_contain(predicate.products, keys).any():
            named = _words(predicate)
            found = "; ".join(one.words(named.get(name, frozenset())) for name, one in seen.items())
            yield UnmatchedCondition(title, predicate.text, found, rows.num_rows)
            continue
        for name, words in _words(predicate).items():
            for word in sorted(words - seen[name].counts.keys()):
                if seen[name].similar_values(word):
                    yield UnmatchedCondition(
                        title, predicate.text, seen[name].words({word}), rows.num_rows, _quoted(word)
                    )


def _used_dimensions(predicate: Predicate) -> dict[str, Dimension]:
    used = set(predicate.used_dimensions)
    return {one.name: one for one in predicate.dimensions if one.name in used}


def _words(predicate: Predicate) -> Mapping[str, set[str]]:
    """Return, by text attribute, the values that the condition compares it with."""
    texts = [one.name for one in _used_dimensions(predicate).values() if one.is_text]
    return compared_words(parse_sql(predicate.text), texts)


@dataclass(frozen=True)
class _AttributeValues:
    """The values of an attribute in some rows: counts of each value of a text, else the smallest and the largest."""

    name: str
    counts: Mapping[str, int]
    span: tuple[Any, Any] | None

    @staticmethod
    def of(dimension: Dimension, rows: pa.Table) -> _AttributeValues:
        column = rows[dimension.name]
        if dimension.is_text:
            found = Counter(column.cast(pa.string()).drop_null().to_pylist())
            return _AttributeValues(dimension.name, found, None)
        values = column.drop_null()
        if pa.types.is_floating(values.type):
            values = values.filter(pc.is_finite(values))
        ends = pc.min_max(values).as_py() if len(values) else None
        return _AttributeValues(dimension.name, {}, None if ends is None else (ends["min"], ends["max"]))

    def similar_values(self, word: str) -> list[str]:
        """Return values that differ from the word only in case or blanks."""
        return [one for one in self.counts if _plain(one) == _plain(word)]

    def words(self, named: set[str] | frozenset[str]) -> str:
        """Return the values closest to those that the condition names, then the most frequent ones, in words."""
        if self.span is not None:
            low, high = (escape_text(str(one), _LONGEST_VALUE) for one in self.span)
            return f"{self.name} lies between {low} and {high}"
        if not self.counts:
            return f"{self.name} is null in all of them"
        by_plain = {_plain(one): one for one in self.counts}
        close = [
            by_plain[one]
            for word in sorted(named)
            for one in get_close_matches(_plain(word), list(by_plain), SHOWN_VALUES)
        ]
        often = sorted(self.counts, key=lambda one: (-self.counts[one], one))
        shown = list(dict.fromkeys([*close, *often]))[:SHOWN_VALUES]
        return f"{self.name} has " + ", ".join(f"{_quoted(one)} ({self.counts[one]:,} rows)" for one in shown)


def _plain(text: str) -> str:
    return "".join(text.split()).casefold()


def _quoted(text: str) -> str:
    return escape_text(f"'{text}'", _LONGEST_VALUE)
