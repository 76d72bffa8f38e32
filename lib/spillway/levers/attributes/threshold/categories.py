"""The category of a stream by the names of its attributes, and what error it allows (3.2.4.3, 4.2).

Fuzzy-set retrieval (equation 3.7): with W_i the words of the stream's names and W_j those of a known list,

    mu(w, W) = 1 - prod over k in W of (1 - c(w, k)),  c(w, w) = 1
    Sim(i, j) = mean over w in W_i of mu(w, W_j)
    EQ = 1 when min(Sim(i, j), Sim(j, i)) >= 0.29 and |Sim(i, j) - Sim(j, i)| <= 0.65

Two matchers: `Matcher.text()` is the thesis with c = 0 for different words, because its Wikipedia matrix was
never published; it reproduces 65 of the 80 rows of Tables C.1 and C.2. `Matcher.standard()` adds what the
matrix stood for, as data to review: `word_correlations.csv` (synonyms, abbreviations, related words) and
`categories.yaml` (several lists a domain, and stop words). c(w, k) is the factor in the table, or the product
over one word between the two of which one step is a synonym.

Where we differ in `standard()`: names are also split at underscores and case changes, run-together words are
taken apart, and a beginning of at least four letters stands for the one head word that starts so. Domains
without a criticality class (vehicles, logs, chemistry, ...) are lists too: of all lists the one that explains
most of the stream's words (largest Sim(i, j)) wins, so that a temperature and a pressure in an engine are not
weather. What matches nothing, or such a domain, falls under `others` and allows any error.

Guarantee: the answer depends on the names and the data files alone, not on the order of the names.

>>> found = Matcher.standard().classify(["origin", "time_hour", "temp", "dewp", "humid", "wind_speed", "visib"])
>>> found.domain, found.criticality, found.rate_pct
('Weather Information', 'moderately', 4.81)
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import yaml

from spillway.errors import Refused

OTHERS = "others"

_WORD = re.compile(r"[a-z]+|\d+")
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_PIECES = re.compile(r"[^0-9A-Za-z]+")
_SHORTEST_BEGINNING = 4
_SHORTEST_PIECE = 3
_SPELLING = 0.92


@dataclass(frozen=True)
class KnownList:
    """A list of words that streams of a domain have in their names; `criticality` None allows any error."""

    domain: str
    criticality: str | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """How a stream's names compare with one list."""

    known: KnownList
    stream_in_list: float
    list_in_stream: float
    equal: bool


@dataclass(frozen=True)
class Category:
    """The category a stream was assigned to, its rate in per cent, and the match that decided."""

    domain: str
    criticality: str
    rate_pct: float
    words: tuple[str, ...]
    match: Match | None


@dataclass(frozen=True)
class Matcher:
    """Known lists, the words that do not count, word correlations and the thresholds of EQ."""

    lists: tuple[KnownList, ...]
    rates_pct: Mapping[str, float]
    stop_words: frozenset[str]
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    permissible: float = 0.29
    variation: float = 0.65
    rival_margin: float = 0.0

    @staticmethod
    def text() -> Matcher:
        """The thesis's predefined lists and plain words."""
        return _text()

    @staticmethod
    def standard() -> Matcher:
        """All lists, with the table of word correlations."""
        return _standard()

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """The words of attribute names that count, repeats included (W).

        >>> Matcher.text().words(["Last Sale", "Nasdaq100 Index", "Net Change"])
        ('sale', 'index', 'net', 'change')
        >>> Matcher.standard().words(["windSpeed_kph", "maxtemp", "SpO2"])
        ('windspeed', 'temp', 'spo2')
        """
        if not self.correlations:
            return tuple(word for name in names for word in _plain_words(name) if word not in self.stop_words)
        return tuple(word for name in names for word in self._split(name) if word not in self.stop_words)

    def compare(self, words: Sequence[str], known: KnownList) -> Match:
        """Sim in both directions and EQ (equation 3.7)."""
        forth = self._similarity(words, known.words)
        back = self._similarity(known.words, words)
        equal = min(forth, back) >= self.permissible and abs(forth - back) <= self.variation
        return Match(known, forth, back, equal)

    def classify(self, names: Sequence[str]) -> Category:
        """The category of a stream with these attribute names."""
        words = self.words(names)
        matches = [self.compare(words, known) for known in self.lists]
        classed = _closest([m for m in matches if m.equal and m.known.criticality is not None])
        rival = _closest([m for m in matches if m.known.criticality is None])
        if classed is not None and rival is not None:
            # the rival need not be equal: a long list of a domain need not be covered by a short stream
            better = rival.stream_in_list - classed.stream_in_list
            if better <= self.rival_margin:
                rival = None
        if classed is None or rival is not None:
            explained = rival is not None and rival.stream_in_list >= self.permissible
            domain = rival.known.domain if rival is not None and explained else "Others"
            return Category(domain, OTHERS, float("inf"), words, rival)
        criticality = classed.known.criticality or OTHERS
        return Category(classed.known.domain, criticality, self.rates_pct[criticality], words, classed)

    def rate_pct(self, criticality: str) -> float:
        """The category recovery error rate of a class, for a contract that names the class itself.

        >>> Matcher.standard().rate_pct("extremely")
        1.67
        """
        if criticality not in self.rates_pct:
            raise Refused(
                "criticality", f"be one of {', '.join(self.rates_pct)}", criticality, "correct the contract"
            )
        return self.rates_pct[criticality]

    def _similarity(self, words: Sequence[str], others: Sequence[str]) -> float:
        if not words:
            return 0.0
        distinct = sorted(set(others))
        return sum(self._coverage(word, distinct) for word in words) / len(words)

    def _coverage(self, word: str, others: Sequence[str]) -> float:
        if word in others:
            return 1.0
        uncovered = 1.0
        for other in others:
            uncovered *= 1.0 - self.correlation(word, other)
        return 1.0 - uncovered

    def correlation(self, word: str, other: str) -> float:
        """c(w, k), the same in both directions; 0 for words the table does not connect."""
        return max(self._directed(word, other), self._directed(other, word))

    def _directed(self, word: str, other: str) -> float:
        return self.correlations.get(word, {}).get(other, 0.0)

    def _split(self, name: str) -> list[str]:
        pieces = [piece for piece in _PIECES.split(name) if piece]
        words = []
        for piece in pieces:
            if self._knows(piece.lower()):
                words.append(piece.lower())
            else:
                words.extend(word.lower() for word in _CASE.findall(piece) if not word.isdigit())
        if len(words) > 1:
            # a lone letter behind a name is a unit or an axis, alone it may be a name (o, h, l, c, v)
            words = [word for word in words if len(word) > 1]
        return [known for word in words for known in self._recognise(word)]

    def _knows(self, word: str) -> bool:
        return word in self.correlations or word in self.stop_words

    def _recognise(self, word: str) -> list[str]:
        """`word` in words of the table where it can be said in them, else as it is."""
        if self._knows(word):
            return [word]
        for ending, instead in (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ed", "")):
            if word.endswith(ending) and self._knows(word.removesuffix(ending) + instead):
                return [word.removesuffix(ending) + instead]
        if taken_apart := self._take_apart(word):
            return taken_apart
        if len(word) >= _SHORTEST_BEGINNING:
            heads = [head for head in self._heads() if head.startswith(word)]
            if len(heads) == 1:
                return heads
            near = difflib.get_close_matches(word, self._heads(), n=1, cutoff=_SPELLING)
            if near:
                return near
        return [word]

    def _take_apart(self, word: str) -> list[str]:
        """The fewest known words that `word` is written together from, [] when there are none."""
        fewest: list[list[str] | None] = [[]]
        for end in range(1, len(word) + 1):
            best: list[str] | None = None
            for start in range(end - _SHORTEST_PIECE + 1):
                before = fewest[start]
                if before is not None and self._knows(word[start:end]):
                    candidate = [*before, word[start:end]]
                    if best is None or len(candidate) < len(best):
                        best = candidate
            fewest.append(best)
        return fewest[-1] or []

    def _heads(self) -> tuple[str, ...]:
        return _head_words(self.lists)


def _closest(matches: Sequence[Match]) -> Match | None:
    return max(matches, key=lambda m: (m.stream_in_list, m.list_in_stream), default=None)


def _plain_words(name: str) -> list[str]:
    tokens = [token.strip("'\".,;:()").lower() for token in name.split()]
    return [token for token in tokens if token and not any(letter.isdigit() for letter in token)]


@cache
def _head_words(lists: tuple[KnownList, ...]) -> tuple[str, ...]:
    return tuple(sorted({word for known in lists if known.criticality for word in known.words}))


@cache
def _data() -> dict[str, Any]:
    text = (
        resources.files("spillway.levers.attributes.threshold")
        .joinpath("categories.yaml")
        .read_text(encoding="utf-8")
    )
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


@cache
def _text() -> Matcher:
    data = _data()
    stop_words = frozenset(data["text_stop_words"])
    lists = tuple(
        KnownList(
            domain["name"],
            domain["class"],
            tuple(word for name in domain["text"] for word in _plain_words(name) if word not in stop_words),
        )
        for domain in data["domains"]
        if "text" in domain
    )
    return Matcher(lists, _rates(data), stop_words, {}, data["permissible"], data["variation"])


@cache
def _standard() -> Matcher:
    data = _data()
    lists = tuple(
        KnownList(domain["name"], domain.get("class"), tuple(dict.fromkeys(words)))
        for domain in data["domains"]
        for words in domain["lists"]
    )
    return Matcher(
        lists,
        _rates(data),
        frozenset(data["stop_words"]),
        _correlations(lists),
        data["permissible"],
        data["variation"],
        data["rival_margin"],
    )


def _rates(data: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(rate) for name, rate in data["classes"].items()}


def _correlations(lists: Sequence[KnownList]) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    text = (
        resources.files("spillway.levers.attributes.threshold")
        .joinpath("word_correlations.csv")
        .read_text(encoding="utf-8")
    )
    for row in csv.DictReader(text.splitlines()):
        factor = float(row["factor"])
        if not 0.0 < factor <= 1.0:
            raise Refused(
                f"{row['word']}, {row['head']}",
                "have a factor above 0 and at most 1",
                factor,
                "correct word_correlations.csv",
            )
        table.setdefault(row["word"], {})[row["head"]] = factor
        table.setdefault(row["head"], {})
    for known in lists:
        for word in known.words:
            table.setdefault(word, {})
    reached: dict[str, dict[str, float]] = {}
    for word, direct in table.items():
        found = dict(direct)
        for between, first in direct.items():
            for other, second in table[between].items():
                if other != word and max(first, second) == 1.0:
                    found[other] = max(found.get(other, 0.0), first * second)
        reached[word] = found
    return reached


def criticality_weight(criticality: str | None) -> float:
    """How much dearer a loss is in a critical stream: inverse to the error its class allows, `not` being 1.

    >>> criticality_weight("not"), round(criticality_weight("very"), 2), criticality_weight(None)
    (1.0, 4.33, 1.0)
    """
    rates = Matcher.standard()
    most_tolerant = rates.rate_pct("not")
    # `others` allows any error; a weight of nothing would shed such a stream to the last bit
    return 1.0 if criticality is None else most_tolerant / min(rates.rate_pct(criticality), most_tolerant)
