"""The category of a stream by the names of its attributes, as the thesis finds it (3.2.4.3, 4.2), and as we do.

`Matcher.text()` is the thesis's fuzzy-set retrieval (equation 3.7) with plain words: with W_i the words of the stream's
names and W_j those of a known list,

    mu(w, W) = 1 - prod over k in W of (1 - c(w, k)),  c(w, w) = 1
    Sim(i, j) = mean over w in W_i of mu(w, W_j)
    EQ = 1 when min(Sim(i, j), Sim(j, i)) >= 0.29 and |Sim(i, j) - Sim(j, i)| <= 0.65

and c = 0 for different words, because its Wikipedia matrix was never published; it reproduces 65 of the 80 rows of
Tables C.1 and C.2. `Matcher.standard()` is a `Recogniser`, which is what training uses.

>>> Matcher.text().classify(["Router Name", "Packet Loss", "Average Delay"]).domain
'Internet Traffic Information'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from spillway.levers.attributes.threshold.classes import Category, Classes, class_rates, domain_data
from spillway.levers.attributes.threshold.recognise import Recogniser, correlated, recogniser


@dataclass(frozen=True)
class KnownList:
    """A list of words that streams of a domain have in their names; `criticality` None: the domain has no class."""

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
class Matcher(Classes):
    """Known lists, the words that do not count, word correlations and the thresholds of EQ."""

    lists: tuple[KnownList, ...]
    stop_words: frozenset[str]
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    permissible: float = 0.29
    variation: float = 0.65

    @staticmethod
    def text() -> Matcher:
        """The thesis's predefined lists and plain words."""
        return _text()

    @staticmethod
    def standard() -> Recogniser:
        """All vocabularies, with the table of word correlations."""
        return recogniser()

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """The words of attribute names that count, repeats included (W).

        >>> Matcher.text().words(["Last Sale", "Nasdaq100 Index", "Net Change"])
        ('sale', 'index', 'net', 'change')
        """
        return tuple(word for name in names for word in _plain_words(name) if word not in self.stop_words)

    def compare(self, words: Sequence[str], known: KnownList) -> Match:
        """Sim in both directions and EQ (equation 3.7)."""
        forth = self._similarity(words, known.words)
        back = self._similarity(known.words, words)
        equal = min(forth, back) >= self.permissible and abs(forth - back) <= self.variation
        return Match(known, forth, back, equal)

    def classify(self, names: Sequence[str]) -> Category:
        """The category of a stream with these attribute names."""
        words = self.words(names)
        equal = [match for known in self.lists if (match := self.compare(words, known)).equal]
        best = max(equal, key=lambda m: (m.stream_in_list, m.list_in_stream), default=None)
        if best is None or best.known.criticality is None:
            return self.assumed("no known domain", words)
        criticality = best.known.criticality
        return Category(best.known.domain, criticality, self.rate_pct(criticality), words)

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
            uncovered *= 1.0 - correlated(self.correlations, word, other)
        return 1.0 - uncovered


def _plain_words(name: str) -> list[str]:
    tokens = [token.strip("'\".,;:()").lower() for token in name.split()]
    return [token for token in tokens if token and not any(letter.isdigit() for letter in token)]


@cache
def _text() -> Matcher:
    data = domain_data()
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
    return Matcher(class_rates(), lists, stop_words, {}, data["permissible"], data["variation"])


def criticality_weight(criticality: str | None) -> float:
    """How much dearer a loss is in a critical stream: inverse to the error its class allows, `not` being 1.

    >>> criticality_weight("not"), round(criticality_weight("very"), 2), criticality_weight(None)
    (1.0, 4.33, 1.0)
    """
    classes = Matcher.standard()
    # facts trained before every stream had a class name the one without a rate
    if criticality is None or criticality == "others":
        return 1.0
    return classes.rate_pct("not") / classes.rate_pct(criticality)
