"""The category of a stream by the vocabularies of the domains; in doubt, the strictest class.

Every domain has a vocabulary, taken from public schemas and kept as data to review (`known_words.csv`: a schema a line;
`categories.yaml`), beside the correlations that the thesis's matrix stood for (`word_correlations.csv`: synonyms,
abbreviations, related words). With c(w, d) the best factor between w and a word of domain d, and n(w) the sum of it
over all domains,

    explained(d) = sum over w of n(w)^-rarity c(w, d) / sum over w of n(w)^-rarity

over the distinct words of a stream; a word that nobody knows weighs `unknown`. So a temperature, which ten domains
know, says little, and a dewpoint much. Of equation 3.7 only Sim(i, j) has a like here: a short stream need not cover a
vocabulary.

*When in doubt, strict*, where the thesis allows any error to what it does not know. Of domains that explain about
equally much (a `tie`, 0.15) the one of the stricter class wins. Where none explains enough (`least_explained`: the
looser the class, the more), too few words are `sure`, a domain without a class (vehicles, rooms, logs, ...) explains
about as much (`rival_tie`, 0.1), or words that only such domains know weigh too much (`foreign`), the strictest class
is assumed, and said to be. Three things keep this from being needlessly so:

- *Foreign words are set against the domain that knows them.* A word counts for weather against retail when retail does
  not know it, though farms do. The foreign words of all domains are added up, and of the domains that know one, that
  is taken which leaves the domain found the least of its own.
- *A domain that stands alone may explain a little less* (`alone`). With six sure words, and no other domain, of
  whatever class, that explains a third as much, the rest are codes that nobody knows (PREABE, V133) rather than
  another domain. It was set by leaving every schema out of its vocabulary in turn.
- *The strictest class asks the least*, as it is what is assumed anyway.

Guarantee: the rate is finite, and depends on the names and the data files alone, not on the order of the names.

>>> found = recogniser().classify(["origin", "time_hour", "temp", "dewp", "humid", "wind_speed", "visib"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('Weather Information', 'moderately', 4.81, False)
>>> found = recogniser().classify(["engine_temp", "oil_pressure", "rpm", "speed"])
>>> found.domain, found.criticality, found.rate_pct, found.assumed
('assumed: Vehicle telemetry has no class', 'extremely', 1.67, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from spillway.errors import Refused
from spillway.levers.attributes.threshold.classes import (
    STRICTEST,
    Category,
    Classes,
    class_rates,
    data_rows,
    domain_data,
)
from spillway.levers.attributes.threshold.words import NameReader

_TOLD_DOMAINS = 3


@dataclass(frozen=True)
class Recogniser(Classes):
    """Vocabularies of the domains, word correlations, and what it takes to be sure."""

    vocabularies: Mapping[str, frozenset[str]]
    criticalities: Mapping[str, str]
    """By domain; those that are not here have no class."""
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
        """The words of attribute names that count, repeats included (W).

        >>> recogniser().words(["windSpeed_kph", "maxRain", "PatientName"])
        ('windspeed', 'rain', 'patient')
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
        if classed[found] < self._least(distinct, found, explained) or not self._is_sure(distinct, found):
            return self.assumed("no known domain", words, told)
        return Category(found, criticality, self.rate_pct(criticality), words, False, told)

    def explained(self, words: Sequence[str]) -> dict[str, float]:
        """The share of these words that each domain explains, the best first; those that explain none are left out."""
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
        return correlated(self.correlations, word, other)

    def _best(self, word: str, words: frozenset[str]) -> float:
        if word in words:
            return 1.0
        return max(
            (factor for other, factor in self._related.get(word, {}).items() if other in words), default=0.0
        )

    def _least(self, distinct: Sequence[str], domain: str, explained: Mapping[str, float]) -> float:
        """The share that the domain must explain: a little less where it stands alone with many sure words."""
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
            return sure >= 2  # nothing is lost by believing it
        own, foreign = self._own_and_foreign(distinct, domain)
        # a list of two words is believed if both are sure, though not where almost any error is allowed
        least = 3 if self._rate(domain) == max(self.rates_pct.values()) else max(2, min(3, len(distinct)))
        return sure >= least and (not foreign or foreign < self.foreign * own)

    def _own_and_foreign(self, distinct: Sequence[str], domain: str) -> tuple[float, float]:
        """The weights of the words for the domain that no rival knows, and of those that only rivals know.

        A rival is a domain without a class that knows one of the latter; of several rivals the worst counts.
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
        """The correlations in both directions."""
        found: dict[str, dict[str, float]] = {}
        for word, others in self.correlations.items():
            for other in others:
                factor = self.correlation(word, other)
                found.setdefault(word, {})[other] = factor
                found.setdefault(other, {})[word] = factor
        return found


def correlated(correlations: Mapping[str, Mapping[str, float]], word: str, other: str) -> float:
    """c(w, k), the same in both directions; 0 for words the table does not connect."""
    return max(correlations.get(word, {}).get(other, 0.0), correlations.get(other, {}).get(word, 0.0))


@cache
def recogniser() -> Recogniser:
    """The one with the vocabularies that are shipped."""
    data = domain_data()
    heads = {
        domain["name"]: {word for words in domain["lists"] for word in words} for domain in data["domains"]
    }
    vocabularies = {domain: set(words) for domain, words in heads.items()}
    for row in data_rows("known_words.csv"):
        if row["domain"] not in vocabularies:
            raise Refused("domain", "be one of categories.yaml", row["domain"], "correct known_words.csv")
        vocabularies[row["domain"]].update(row["words"].split())
    correlations = _correlations()
    paired = frozenset(word for word, others in correlations.items() for word in (word, *others))
    direct = frozenset(
        word for row in data_rows("word_correlations.csv") for word in (row["word"], row["head"])
    )
    stop_words, units = frozenset(data["stop_words"]), frozenset(data["units"])
    common = direct.union(*heads.values())
    return Recogniser(
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
    """The factor in the table, or the product over one word between the two of which one step is a synonym."""
    table: dict[str, dict[str, float]] = {}
    for row in data_rows("word_correlations.csv"):
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
