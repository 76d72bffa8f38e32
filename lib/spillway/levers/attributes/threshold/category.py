"""Find the category of a stream, and with it the largest error, from the names of its attributes.

In doubt the strictest class applies. The recogniser (ours) compares the words of the names with the vocabulary of each
domain. The vocabularies come from public schemas and are data that can be reviewed (`known_words.csv`, one schema per
line; `categories.yaml`). `word_correlations.csv` (synonyms, abbreviations, related words) replaces the correlation
matrix of the thesis (Ahuja 2006). With c(w, d) the best factor between w and a word of domain d, and n(w) the sum of
c(w, d) over all domains,

    explained(d) = sum over w of n(w)^-rarity c(w, d) / sum over w of n(w)^-rarity

over the distinct words of a stream. A word that no domain knows has the weight `unknown`. So a temperature, which ten
domains know, says little, and a dewpoint much. Of equation 3.7 only Sim(i, j) has a counterpart here, because a short
stream need not cover a vocabulary.

*In doubt strict*: the thesis allows any error to a stream that it does not recognise; this module does not. If several
domains explain about the same share (within `tie`, 0.15), the one with the stricter class wins. The strictest class is
assumed, and marked as assumed, in each of these cases:

- no domain explains enough (`least_explained`: more for a looser class);
- too few words are `sure`;
- a domain without a class (vehicles, rooms, logs, ...) explains about as much (within `rival_tie`, 0.1);
- words that only such domains know have too much weight (`foreign`).

Three rules avoid this where it is unnecessary:

- *Foreign words are compared with the domain that knows them.* If retail is compared with weather, a weather word that
  retail does not know counts for weather, even if farms know it. The foreign words of all domains are added up. Of the
  domains that know one, the one that leaves the found domain the least weight of its own is used.
- *A domain without competitors may explain a little less* (`alone`): with six sure words, if no other domain of any
  class explains a third as much. The remaining words are then more likely unknown codes (PREABE, V133) than another
  domain. The value was set by leaving every schema out of its vocabulary in turn.
- *The strictest class requires the least*, because it would be assumed anyway.

Guarantee: the rate is finite, and depends on the names and the data files alone, not on the order of the names.

>>> found = standard_recogniser().classify(["origin", "time_hour", "temp", "dewp", "humid", "wind_speed", "visib"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('Weather Information', 'moderately', 4.81, False)
>>> found = standard_recogniser().classify(["engine_temp", "oil_pressure", "rpm", "speed"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('assumed: Vehicle telemetry has no class', 'extremely', 1.67, True)

*Words of a name* (`NameReader`): `PatientID`, `wind_spd` and `bytesIn` are read in any spelling. A name is split at
characters that are no letter or digit, and where the case changes. If a token is no known word, these are tried in
order:

1. without the number behind it (rtt1);
2. in the singular (humidities);
3. split into the fewest known words (totalpackets), each of at least four letters, or three if the word is a head word,
   in the table of correlations, a stop word or a unit;
4. as the beginning of the only head word that starts so (precipitat);
5. as the only head word that is written so without its vowels (lctn);
6. by similar spelling (temprature).

Otherwise the token is an unknown word, and counts as one. Accents are dropped, and letters such as ß, ø and æ are
replaced by plain ones. Stop words are left out. Units are left out too (temp_c, rain_mm), unless the name has no other
word and the unit has a meaning of its own: `HR` alone is a heart rate, in `rain_hr` it is an hour.

Guarantee: a name's words depend on the name and the data files alone.

>>> reader = NameReader(frozenset({"heart", "rate", "wind", "bytes"}), frozenset({"id"}), frozenset({"c", "hr"}))
>>> [reader.words_of(name) for name in ("heartRate_c", "WIND2", "bytesIn", "heart id", "HR")]
[('heart', 'rate'), ('wind',), ('bytes', 'in'), ('heart',), ()]

*Classes of criticality* and their error rates are those of Ahuja (2006, section 3.2.4.3 and chapter 4), without the
class "others", which has no rate. A stream that is not recognised gets the strictest class.

*Matching as in the thesis* (3.2.4.3, 4.2). `CategoryMatcher.of_thesis()` is its fuzzy-set retrieval (equation 3.7) with
plain words. With W_i the words of the stream's names and W_j those of a known list,

    mu(w, W) = 1 - prod over k in W of (1 - c(w, k)),  c(w, w) = 1
    Sim(i, j) = mean over w in W_i of mu(w, W_j)
    EQ = 1 when min(Sim(i, j), Sim(j, i)) >= 0.29 and |Sim(i, j) - Sim(j, i)| <= 0.65

and c = 0 for different words, because the Wikipedia matrix of the thesis was never published. This reproduces 65 of the
80 rows of Tables C.1 and C.2. `Matcher.standard()` returns the `DomainRecogniser`, which training uses.

>>> CategoryMatcher.of_thesis().classify(["Router Name", "Packet Loss", "Average Delay"]).domain
'Internet Traffic Information'
"""

from __future__ import annotations

import csv
import difflib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from typing import Any

import yaml

from spillway.errors import InvalidValue

_PIECES = re.compile(r"[\W_]+")
_PLAIN = re.compile(r"[0-9a-z]+", re.IGNORECASE)
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ed", ""))
# letters that Unicode does not decompose into a plain letter and an accent
_LETTERS = str.maketrans(
    {"ß": "ss", "ø": "o", "Ø": "O", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ł": "l", "Ł": "L", "ı": "i"}
)
_VOWELS = frozenset("aeiou")
_SHORTEST_BEGINNING = 4
_SHORTEST_PIECE = 3
_SHORTEST_MISSPELT = 6
_SPELLING = 0.9


@dataclass(frozen=True)
class NameReader:
    """Split names into known words; `heads` are words that may be abbreviated, misspelt or joined at three letters."""

    known: frozenset[str]
    stop_words: frozenset[str]
    units: frozenset[str]
    heads: frozenset[str] = frozenset()

    def words_of(self, name: str) -> tuple[str, ...]:
        """Return the words of one name without stop words and units."""
        pieces = [
            word for piece in _PIECES.split(_without_accents(name)) if piece for word in self._split(piece)
        ]
        if len(pieces) > 1:
            # a single letter after a name is a unit or an axis; alone it may be a name (o, h, l, c, v)
            pieces = [piece for piece in pieces if len(piece) > 1] or pieces[:1]
        words = [word for piece in pieces for word in self._recognise(piece)]
        meant = tuple(word for word in words if word not in self.stop_words and word not in self.units)
        if meant:
            return meant
        return tuple(word for word in words if word in self.known and word not in self.stop_words)[:1]

    def _split(self, piece: str) -> list[str]:
        lower = piece.lower()
        if self._knows(lower) or not _PLAIN.fullmatch(piece):
            return [lower]
        unnumbered = lower.rstrip("0123456789")
        if len(unnumbered) >= _SHORTEST_PIECE and self._knows(unnumbered):
            return [unnumbered]
        return [word.lower() for word in _CASE.findall(piece) if not word.isdigit()]

    def _knows(self, word: str) -> bool:
        return word in self.known or word in self.stop_words or word in self.units

    def _recognise(self, word: str) -> list[str]:
        """Return the known words for `word`, or `word` itself if there are none."""
        if self._knows(word):
            return [word]
        for ending, instead in _ENDINGS:
            if word.endswith(ending) and self._knows(word.removesuffix(ending) + instead):
                return [word.removesuffix(ending) + instead]
        if taken_apart := self._take_apart(word):
            return taken_apart
        if len(word) >= _SHORTEST_BEGINNING:
            begun = [head for head in self._ordered_heads if head.startswith(word)]
            if begun and all(head.startswith(begun[0]) for head in begun):
                return begun[:1]
        if meant := self._without_vowels.get(word):
            return [meant]
        if len(word) >= _SHORTEST_MISSPELT:
            near = difflib.get_close_matches(word, self._ordered_heads, n=1, cutoff=_SPELLING)
            if near:
                return near
        return [word]

    def _take_apart(self, word: str) -> list[str]:
        """Divide `word` into the fewest known words; return [] if that is impossible."""
        fewest: list[list[str] | None] = [[]]
        for end in range(1, len(word) + 1):
            best: list[str] | None = None
            for start in range(end - _SHORTEST_PIECE + 1):
                before = fewest[start]
                if before is not None and word[start:end] in self._joinable:
                    candidate = [*before, word[start:end]]
                    if best is None or len(candidate) < len(best):
                        best = candidate
            fewest.append(best)
        return fewest[-1] or []

    @cached_property
    def _ordered_heads(self) -> list[str]:
        return sorted(self.heads | self.stop_words | self.units)

    @cached_property
    def _without_vowels(self) -> dict[str, str]:
        """Return the heads by their spelling without vowels (the first letter stays); ambiguous spellings are left
        out."""
        found: dict[str, set[str]] = {}
        for head in self._ordered_heads:
            short = head[:1] + "".join(letter for letter in head[1:] if letter not in _VOWELS)
            if len(short) >= _SHORTEST_BEGINNING and short != head:
                found.setdefault(short, set()).add(head)
        return {short: min(heads) for short, heads in found.items() if len(heads) == 1}

    @cached_property
    def _joinable(self) -> frozenset[str]:
        """Return the words that may be joined; words of three letters only if they are common, because many words
        contain three letters of some schema."""
        common = self.heads | self.stop_words | self.units
        return frozenset(word for word in self.known if len(word) > _SHORTEST_PIECE) | frozenset(
            word for word in common if len(word) >= _SHORTEST_PIECE
        )


def _without_accents(text: str) -> str:
    """Return the text with plain letters only.

    >>> [_without_accents(name) for name in ("Eröffnung", "Snødybde", "Größe")]
    ['Eroffnung', 'Snodybde', 'Grosse']
    """
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(one for one in plain if not unicodedata.combining(one))


STRICTEST = "extremely"
"""The class that is assumed if the names do not show a class."""


@dataclass(frozen=True)
class Category:
    """The category of a stream and its rate in per cent; `assumed` if its names do not show one."""

    domain: str
    criticality: str
    rate_pct: float
    words: tuple[str, ...] = ()
    assumed: bool = False
    explained: Mapping[str, float] = field(default_factory=dict)
    """The share of the words that each of the best domains explains, best first."""


@dataclass(frozen=True)
class CriticalityClasses:
    """The classes of criticality and their rates in per cent."""

    rates_pct: Mapping[str, float]

    def rate_pct(self, criticality: str) -> float:
        """Return the category recovery error rate of a class, in per cent.

        >>> CriticalityClasses(class_rates()).rate_pct("extremely")
        1.67
        """
        if criticality not in self.rates_pct:
            raise InvalidValue(
                "criticality", f"be one of {', '.join(self.rates_pct)}", criticality, "correct the contract"
            )
        return self.rates_pct[criticality]

    def assumed(self, why: str, words: tuple[str, ...], explained: Mapping[str, float] = {}) -> Category:
        """Return the strictest class, marked as assumed; `why` is the reason."""
        return Category(f"assumed: {why}", STRICTEST, self.rate_pct(STRICTEST), words, True, explained)


def _read(file: str) -> str:
    return resources.files("spillway.levers.attributes.threshold").joinpath(file).read_text(encoding="utf-8")


@cache
def domain_data() -> dict[str, Any]:
    """Return the content of `categories.yaml`."""
    loaded: dict[str, Any] = yaml.safe_load(_read("categories.yaml"))
    return loaded


def class_rates() -> dict[str, float]:
    """Return the category recovery error rate of every class, in per cent."""
    return {name: float(rate) for name, rate in domain_data()["classes"].items()}


def data_rows(file: str) -> Iterator[dict[str, str]]:
    """Return the rows of a data file in the folder of this module."""
    return iter(csv.DictReader(_read(file).splitlines()))


_TOLD_DOMAINS = 3


@dataclass(frozen=True)
class DomainRecogniser(CriticalityClasses):
    """The recogniser of domains: vocabularies, word correlations, and the limits for a sure result."""

    vocabularies: Mapping[str, frozenset[str]]
    criticalities: Mapping[str, str]
    """The class of each domain; other domains have no class."""
    reader: NameReader
    correlations: Mapping[str, Mapping[str, float]]
    rarity: float
    unknown: float
    merely_related: float
    least_explained: Mapping[str, float]
    tie: float
    rival_tie: float
    sure: float
    foreign: float
    alone: Mapping[str, float]

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the words of attribute names without stop words and units, repeats included (W).

        >>> standard_recogniser().words(["windSpeed_kph", "maxRain", "PatientName"])
        ('windspeed', 'rain', 'patient')
        """
        return tuple(word for name in names for word in self.reader.words_of(name))

    def classify(self, names: Sequence[str]) -> Category:
        """Return the category of a stream with these attribute names."""
        words = self.words(names)
        distinct = sorted(set(words))
        explained = self.explained_shares(distinct)
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
        if classed[found] < self._least(distinct, found, explained) or not self._is_sure(distinct, found):
            return self.assumed("no known domain", words, told)
        return Category(found, criticality, self.rate_pct(criticality), words, False, told)

    def explained_shares(self, words: Sequence[str]) -> dict[str, float]:
        """Return the share of these words that each domain explains, best first, without domains that explain none."""
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
        """Return c(w, d) by domain; a related word counts less if some domain has the word itself."""
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
        """Return c(w, k), equal in both directions; 0 for words that the table does not connect."""
        return word_correlation(self.correlations, word, other)

    def _best(self, word: str, words: frozenset[str]) -> float:
        if word in words:
            return 1.0
        return max(
            (factor for other, factor in self._related.get(word, {}).items() if other in words), default=0.0
        )

    def _least(self, distinct: Sequence[str], domain: str, explained: Mapping[str, float]) -> float:
        """Return the share that the domain must explain: a little less without competitors and with many sure words."""
        others = max((share for other, share in explained.items() if other != domain), default=0.0)
        alone = (
            others <= self.alone["others"] * explained[domain]
            and self._sure_words(distinct, domain) >= self.alone["sure_words"]
        )
        return self.least_explained[self.criticalities[domain]] - (self.alone["less"] if alone else 0.0)

    def _sure_words(self, distinct: Sequence[str], domain: str) -> int:
        return sum(self.covers(word).get(domain, 0.0) >= self.sure for word in distinct)

    def _is_sure(self, distinct: Sequence[str], domain: str) -> bool:
        sure = self._sure_words(distinct, domain)
        if self._rate(domain) == self.rate_pct(STRICTEST):
            return sure >= 2  # the strictest class would be assumed anyway
        own, foreign = self._own_and_foreign(distinct, domain)
        # two words are enough if both are sure, but not for the loosest class
        least = 3 if self._rate(domain) == max(self.rates_pct.values()) else max(2, min(3, len(distinct)))
        return sure >= least and (not foreign or foreign < self.foreign * own)

    def _own_and_foreign(self, distinct: Sequence[str], domain: str) -> tuple[float, float]:
        """Return the weight of the domain's words that a rival does not know, and that of words that only rivals know.

        A rival is a domain without a class that knows one of the latter words. If there are several rivals, the one
        that leaves the least weight counts.
        """
        foreign, rivals = 0.0, set()
        sure = [
            word for word in distinct if self.covers(word).get(domain, 0.0) >= self.sure and len(word) > 1
        ]
        for word in distinct:
            covers = self.covers(word)
            elsewhere = {
                d for d, factor in covers.items() if factor >= self.sure and d not in self.criticalities
            }
            if elsewhere and covers.get(domain, 0.0) < self.sure * self.merely_related:
                foreign += self._weight(covers)
                rivals |= elsewhere
        own = (
            sum(
                self._weight(self.covers(word))
                for word in sure
                if self.covers(word).get(rival, 0.0) < self.sure
            )
            for rival in rivals
        )
        return min(own, default=0.0), foreign

    def _weight(self, covers: Mapping[str, float]) -> float:
        return max(1.0, sum(covers.values())) ** -self.rarity if covers else self.unknown

    def _rate(self, domain: str) -> float:
        return self.rate_pct(self.criticalities[domain])

    @cached_property
    def _covered(self) -> dict[str, Mapping[str, float]]:
        return {}

    @cached_property
    def _related(self) -> dict[str, dict[str, float]]:
        """Return the correlations in both directions."""
        found: dict[str, dict[str, float]] = {}
        for word, others in self.correlations.items():
            for other in others:
                factor = self.correlation(word, other)
                found.setdefault(word, {})[other] = factor
                found.setdefault(other, {})[word] = factor
        return found


def word_correlation(correlations: Mapping[str, Mapping[str, float]], word: str, other: str) -> float:
    """Return c(w, k), equal in both directions; 0 for words that the table does not connect."""
    return max(correlations.get(word, {}).get(other, 0.0), correlations.get(other, {}).get(word, 0.0))


@cache
def standard_recogniser() -> DomainRecogniser:
    """Return the recogniser with the vocabularies of this package."""
    data = domain_data()
    heads = {
        domain["name"]: {word for words in domain["lists"] for word in words} for domain in data["domains"]
    }
    vocabularies = {domain: set(words) for domain, words in heads.items()}
    for row in data_rows("known_words.csv"):
        if row["domain"] not in vocabularies:
            raise InvalidValue(
                "domain", "be one of categories.yaml", row["domain"], "correct known_words.csv"
            )
        vocabularies[row["domain"]].update(row["words"].split())
    correlations = _correlations()
    paired = frozenset(word for word, others in correlations.items() for word in (word, *others))
    direct = frozenset(
        word for row in data_rows("word_correlations.csv") for word in (row["word"], row["head"])
    )
    stop_words, units = frozenset(data["stop_words"]), frozenset(data["units"])
    common = direct.union(*heads.values())
    return DomainRecogniser(
        class_rates(),
        {domain: frozenset(words) for domain, words in vocabularies.items()},
        {domain["name"]: domain["class"] for domain in data["domains"] if "class" in domain},
        NameReader(paired.union(*vocabularies.values()), stop_words, units, common),
        correlations,
        data["rarity"],
        data["unknown"],
        data["merely_related"],
        data["least_explained"],
        data["tie"],
        data["rival_tie"],
        data["sure"],
        data["foreign"],
        data["alone"],
    )


def _correlations() -> dict[str, dict[str, float]]:
    """Return the factors of the table, and products over one word in between if one of the two steps is a synonym."""
    table: dict[str, dict[str, float]] = {}
    for row in data_rows("word_correlations.csv"):
        factor = float(row["factor"])
        if not 0.0 < factor <= 1.0:
            raise InvalidValue(
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


@dataclass(frozen=True)
class WordList:
    """A list of words in the attribute names of a domain; `criticality` is None if the domain has no class."""

    domain: str
    criticality: str | None
    words: tuple[str, ...]


@dataclass(frozen=True)
class Match:
    """The comparison of a stream's names with one list."""

    known: WordList
    stream_in_list: float
    list_in_stream: float
    equal: bool


@dataclass(frozen=True)
class CategoryMatcher(CriticalityClasses):
    """The matching of the thesis: known lists, stop words, word correlations and the thresholds of EQ."""

    lists: tuple[WordList, ...]
    stop_words: frozenset[str]
    correlations: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    permissible: float = 0.29
    variation: float = 0.65

    @staticmethod
    def of_thesis() -> CategoryMatcher:
        """Return the matcher with the predefined lists of the thesis and plain words."""
        return _text()

    @staticmethod
    def standard() -> DomainRecogniser:
        """Return the recogniser with all vocabularies and the table of word correlations."""
        return standard_recogniser()

    def words(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the words of attribute names without stop words, repeats included (W).

        >>> CategoryMatcher.of_thesis().words(["Last Sale", "Nasdaq100 Index", "Net Change"])
        ('sale', 'index', 'net', 'change')
        """
        return tuple(word for name in names for word in _plain_words(name) if word not in self.stop_words)

    def compare(self, words: Sequence[str], known: WordList) -> Match:
        """Return Sim in both directions, and EQ (equation 3.7)."""
        forth = self._similarity(words, known.words)
        back = self._similarity(known.words, words)
        equal = min(forth, back) >= self.permissible and abs(forth - back) <= self.variation
        return Match(known, forth, back, equal)

    def classify(self, names: Sequence[str]) -> Category:
        """Return the category of a stream with these attribute names."""
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
            uncovered *= 1.0 - word_correlation(self.correlations, word, other)
        return 1.0 - uncovered


def _plain_words(name: str) -> list[str]:
    tokens = [token.strip("'\".,;:()").lower() for token in name.split()]
    return [token for token in tokens if token and not any(letter.isdigit() for letter in token)]


@cache
def _text() -> CategoryMatcher:
    data = domain_data()
    stop_words = frozenset(data["text_stop_words"])
    lists = tuple(
        WordList(
            domain["name"],
            domain["class"],
            tuple(word for name in domain["text"] for word in _plain_words(name) if word not in stop_words),
        )
        for domain in data["domains"]
        if "text" in domain
    )
    return CategoryMatcher(class_rates(), lists, stop_words, {}, data["permissible"], data["variation"])


def criticality_weight(criticality: str | None) -> float:
    """Return the weight of a loss in a stream of this class: inverse to the error that the class allows, 1 for `not`.

    >>> criticality_weight("not"), round(criticality_weight("very"), 2), criticality_weight(None)
    (1.0, 4.33, 1.0)
    """
    classes = CategoryMatcher.standard()
    # old facts, from before every stream had a class, may name the class without a rate
    if criticality is None or criticality == "others":
        return 1.0
    return classes.rate_pct("not") / classes.rate_pct(criticality)
