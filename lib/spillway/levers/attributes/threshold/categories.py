"""The category of a stream by the names of its attributes, and what error it allows (3.2.4.3, 4.2).

Two matchers. `Matcher.text()` is the thesis's fuzzy-set retrieval (equation 3.7) with plain words: with W_i the words
of the stream's names and W_j those of a known list,

    mu(w, W) = 1 - prod over k in W of (1 - c(w, k)),  c(w, w) = 1
    Sim(i, j) = mean over w in W_i of mu(w, W_j)
    EQ = 1 when min(Sim(i, j), Sim(j, i)) >= 0.29 and |Sim(i, j) - Sim(j, i)| <= 0.65

and c = 0 for different words, because its Wikipedia matrix was never published; it reproduces 65 of the 80 rows of
Tables C.1 and C.2. `Matcher.standard()` is a `Recogniser`: every domain has a vocabulary, taken from public schemas and
kept as data to review (`known_words.csv`, `categories.yaml`), beside the correlations that the matrix stood for
(`word_correlations.csv`: synonyms, abbreviations, related words). With c(w, d) the best factor between w and a word of
domain d, and n(w) the sum of it over all domains,

    explained(d) = sum over w of n(w)^-rarity c(w, d) / sum over w of n(w)^-rarity

over the distinct words of a stream; a word that nobody knows weighs `unknown`. So a temperature, which ten domains
know, says little, and a dewpoint much. Only Sim(i, j) has a like here: a short stream need not cover a vocabulary.

*When in doubt, strict*, where the thesis allows any error to what it does not know. Of domains that explain about
equally much (`tie`) the one of the stricter class wins. Where none explains enough (`least_explained`: the looser the
class, the more), too few words are sure, a domain without a class (vehicles, rooms, logs, ...) explains about as much
(`rival_tie`), or words that only such domains know weigh as much as those that they do not know (`foreign`), the
strictest class is assumed, and said to be.

Guarantee: the rate is finite, and depends on the names and the data files alone, not on the order of the names.

>>> found = Matcher.standard().classify(["origin", "time_hour", "temp", "dewp", "humid", "wind_speed", "visib"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('Weather Information', 'moderately', 4.81, False)
>>> found = Matcher.standard().classify(["engine_temp", "oil_pressure", "rpm", "speed"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('assumed: Vehicle telemetry has no class', 'extremely', 1.67, True)
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any

import yaml

from spillway.errors import Refused
from spillway.levers.attributes.threshold.words import Reader

STRICTEST = "extremely"
"""The class that is assumed where the names tell none."""

_TOLD_DOMAINS = 3


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
class Category:
    """The category a stream was assigned to and its rate in per cent; `assumed` where its names tell none."""

    domain: str
    criticality: str
    rate_pct: float
    words: tuple[str, ...] = ()
    assumed: bool = False
    explained: Mapping[str, float] = field(default_factory=dict)
    """The share of the words that each of the best few domains explains, best first."""


@dataclass(frozen=True)
class Classes:
    """The classes of criticality and their rates in per cent."""

    rates_pct: Mapping[str, float]

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

    def assumed(self, why: str, words: tuple[str, ...], explained: Mapping[str, float] = {}) -> Category:
        """The strictest class, for want of a better one."""
        return Category(f"assumed: {why}", STRICTEST, self.rate_pct(STRICTEST), words, True, explained)


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
        return _standard()

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
            uncovered *= 1.0 - _factor(self.correlations, word, other)
        return 1.0 - uncovered


@dataclass(frozen=True)
class Recogniser(Classes):
    """Vocabularies of the domains, word correlations, and what it takes to be sure."""

    vocabularies: Mapping[str, frozenset[str]]
    criticalities: Mapping[str, str]
    """By domain; those that are not here have no class."""
    reader: Reader
    correlations: Mapping[str, Mapping[str, float]]
    rarity: float
    unknown: float
    merely_related: float
    least_explained: Mapping[str, float]
    tie: float
    rival_tie: float
    sure: float
    foreign: float

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """The words of attribute names that count, repeats included (W).

        >>> Matcher.standard().words(["windSpeed_kph", "maxtemp", "PatientID"])
        ('windspeed', 'temp', 'patient')
        """
        return tuple(word for name in names for word in self.reader.words_of(name))

    def classify(self, names: Sequence[str]) -> Category:
        """The category of a stream with these attribute names."""
        words = self.words(names)
        distinct = sorted(set(words))
        explained = self.explained(distinct)
        told = dict(list(explained.items())[:_TOLD_DOMAINS])
        classed = {domain: share for domain, share in explained.items() if domain in self.criticalities}
        most = max(classed.values(), default=0.0)
        equals = [domain for domain, share in classed.items() if share >= most - self.tie]
        found = min(equals, key=lambda domain: (self._rate(domain), -classed[domain], domain), default=None)
        rival = next((domain for domain in explained if domain not in self.criticalities), None)
        if rival is not None and explained[rival] >= max(
            self.least_explained[STRICTEST], classed[found] - self.rival_tie if found else 0.0
        ):
            return self.assumed(f"{rival} has no class", words, told)
        if found is None or (rival is not None and explained[rival] >= classed[found] - self.rival_tie):
            return self.assumed("no known domain", words, told)
        criticality = self.criticalities[found]
        if classed[found] < self.least_explained[criticality] or not self._is_sure(distinct, found):
            return self.assumed("no known domain", words, told)
        return Category(found, criticality, self.rate_pct(criticality), words, False, told)

    def explained(self, words: Sequence[str]) -> dict[str, float]:
        """The share of these words that each domain explains, the best first; domains that explain none are left out."""
        shares = dict.fromkeys(self.vocabularies, 0.0)
        whole = 0.0
        for word in words:
            covers = self.covers(word)
            weight = self._weight(covers)
            whole += weight
            for domain, factor in covers.items():
                shares[domain] += weight * factor
        ordered = sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))
        return {domain: share / whole for domain, share in ordered if share}

    def covers(self, word: str) -> Mapping[str, float]:
        """c(w, d) by domain; a related word counts less where some domain has the word itself."""
        if word not in self._covered:
            found = {domain: self._best(word, words) for domain, words in self.vocabularies.items()}
            at_home = 1.0 in found.values()
            self._covered[word] = {
                domain: factor if factor == 1.0 or not at_home else factor * self.merely_related
                for domain, factor in found.items()
                if factor
            }
        return self._covered[word]

    def correlation(self, word: str, other: str) -> float:
        """c(w, k), the same in both directions; 0 for words the table does not connect."""
        return _factor(self.correlations, word, other)

    def _best(self, word: str, words: frozenset[str]) -> float:
        if word in words:
            return 1.0
        return max((factor for other, factor in self._related.get(word, {}).items() if other in words), default=0.0)

    def _is_sure(self, distinct: Sequence[str], domain: str) -> bool:
        sure = sum(self.covers(word).get(domain, 0.0) >= self.sure for word in distinct)
        if self._rate(domain) == self.rate_pct(STRICTEST):
            return sure >= 2  # nothing is lost by believing it
        own, foreign = self._own_and_foreign(distinct, domain)
        # a list of two words is believed if both are sure, though not where almost any error is allowed
        least = 3 if self._rate(domain) == max(self.rates_pct.values()) else max(2, min(3, len(distinct)))
        return sure >= least and (foreign == 0 or foreign < self.foreign * own)

    def _own_and_foreign(self, distinct: Sequence[str], domain: str) -> tuple[float, float]:
        """The weight of the words that speak for the domain alone, and of those that speak for one without a class."""
        own = foreign = 0.0
        for word in distinct:
            covers = self.covers(word)
            here = covers.get(domain, 0.0)
            elsewhere = max((factor for d, factor in covers.items() if d not in self.criticalities), default=0.0)
            if here >= self.sure > elsewhere and len(word) > 1:
                own += self._weight(covers)
            if elsewhere >= self.sure and here < self.sure * self.merely_related:
                foreign += self._weight(covers)
        return own, foreign

    def _weight(self, covers: Mapping[str, float]) -> float:
        return max(1.0, sum(covers.values())) ** -self.rarity if covers else self.unknown

    def _rate(self, domain: str) -> float:
        return self.rate_pct(self.criticalities[domain])

    @cached_property
    def _covered(self) -> dict[str, Mapping[str, float]]:
        return {}

    @cached_property
    def _related(self) -> dict[str, dict[str, float]]:
        """The correlations in both directions."""
        found: dict[str, dict[str, float]] = {}
        for word, others in self.correlations.items():
            for other in others:
                factor = self.correlation(word, other)
                found.setdefault(word, {})[other] = factor
                found.setdefault(other, {})[word] = factor
        return found


def _factor(correlations: Mapping[str, Mapping[str, float]], word: str, other: str) -> float:
    return max(correlations.get(word, {}).get(other, 0.0), correlations.get(other, {}).get(word, 0.0))


def _plain_words(name: str) -> list[str]:
    tokens = [token.strip("'\".,;:()").lower() for token in name.split()]
    return [token for token in tokens if token and not any(letter.isdigit() for letter in token)]


def _read(file: str) -> str:
    return resources.files("spillway.levers.attributes.threshold").joinpath(file).read_text(encoding="utf-8")


@cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(_read("categories.yaml"))
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
    return Matcher(_rates(data), lists, stop_words, {}, data["permissible"], data["variation"])


@cache
def _standard() -> Recogniser:
    data = _data()
    heads = {domain["name"]: {word for words in domain["lists"] for word in words} for domain in data["domains"]}
    vocabularies = {domain: set(words) for domain, words in heads.items()}
    for row in _rows("known_words.csv"):
        if row["domain"] not in vocabularies:
            raise Refused("domain", "be one of categories.yaml", row["domain"], "correct known_words.csv")
        vocabularies[row["domain"]].update(row["words"].split())
    correlations = _correlations()
    paired = frozenset(word for word, others in correlations.items() for word in (word, *others))
    direct = frozenset(word for row in _rows("word_correlations.csv") for word in (row["word"], row["head"]))
    stop_words, units = frozenset(data["stop_words"]), frozenset(data["units"])
    common = direct.union(*heads.values())
    return Recogniser(
        _rates(data),
        {domain: frozenset(words) for domain, words in vocabularies.items()},
        {domain["name"]: domain["class"] for domain in data["domains"] if "class" in domain},
        Reader(paired.union(*vocabularies.values()), stop_words, units, common),
        correlations,
        data["rarity"],
        data["unknown"],
        data["merely_related"],
        data["least_explained"],
        data["tie"],
        data["rival_tie"],
        data["sure"],
        data["foreign"],
    )


def _rates(data: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(rate) for name, rate in data["classes"].items()}


def _rows(file: str) -> Iterator[dict[str, str]]:
    return iter(csv.DictReader(_read(file).splitlines()))


def _correlations() -> dict[str, dict[str, float]]:
    """The factor in the table, or the product over one word between the two of which one step is a synonym."""
    table: dict[str, dict[str, float]] = {}
    for row in _rows("word_correlations.csv"):
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
    classes = Matcher.standard()
    # facts trained before every stream had a class name the one without a rate
    if criticality is None or criticality == "others":
        return 1.0
    return classes.rate_pct("not") / classes.rate_pct(criticality)
