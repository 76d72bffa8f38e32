"""The words that attribute names are made of: `PatientID`, `wind_spd` and `bytesIn` say the same in any spelling.

A name is split where no letter or digit stands and where the case changes. A piece that is no known word is tried, in
this order, without the number behind it (rtt1), in the singular (humidities), taken apart into the fewest known words
(totalpackets, each of at least four letters, or three where the table of correlations has it), as the beginning of the
one head word that starts so (precipitat), as the one head word that is left so without its vowels (lctn), and by
spelling (temprature). What is left is a word that nobody knows, and counts as such. Accents are dropped, and letters
such as ß, ø and æ written in plain ones. Stop words are left out, and units too (temp_c, rain_mm) unless the name is
nothing else and the word has a meaning of its own: `HR` alone is a heart rate, in `rain_hr` it is an hour.

Guarantee: a name's words depend on the name and the data files alone.

>>> reader = NameReader(frozenset({"heart", "rate", "wind", "bytes"}), frozenset({"id"}), frozenset({"c", "hr"}))
>>> [reader.words_of(name) for name in ("heartRate_c", "WIND2", "bytesIn", "heart id", "HR")]
[('heart', 'rate'), ('wind',), ('bytes', 'in'), ('heart',), ()]
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

_PIECES = re.compile(r"[\W_]+")
_PLAIN = re.compile(r"[0-9a-z]+", re.IGNORECASE)
_CASE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ing", ""), ("ed", ""))
# letters that Unicode does not take apart in a plain one and an accent
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
    """Reads names in known words; `heads` are those that may be abbreviated, misspelt or joined at three letters."""

    known: frozenset[str]
    stop_words: frozenset[str]
    units: frozenset[str]
    heads: frozenset[str] = frozenset()

    def words_of(self, name: str) -> tuple[str, ...]:
        """The words of one name that count."""
        pieces = [word for piece in _PIECES.split(_unaccented(name)) if piece for word in self._split(piece)]
        if len(pieces) > 1:
            # a lone letter behind a name is a unit or an axis, alone it may be a name (o, h, l, c, v)
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
        """`word` in known words where it can be said in them, else as it is."""
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
        """The fewest known words that `word` is written together from, [] when there are none."""
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
        """The heads by their letters without vowels, but for the first; of several with the same, none."""
        found: dict[str, set[str]] = {}
        for head in self._ordered_heads:
            short = head[:1] + "".join(letter for letter in head[1:] if letter not in _VOWELS)
            if len(short) >= _SHORTEST_BEGINNING and short != head:
                found.setdefault(short, set()).add(head)
        return {short: min(heads) for short, heads in found.items() if len(heads) == 1}

    @cached_property
    def _joinable(self) -> frozenset[str]:
        """Three letters of somebody's schema are in half of all words, those of common words are not."""
        common = self.heads | self.stop_words | self.units
        return frozenset(word for word in self.known if len(word) > _SHORTEST_PIECE) | frozenset(
            word for word in common if len(word) >= _SHORTEST_PIECE
        )


def _unaccented(text: str) -> str:
    """
    >>> [_unaccented(name) for name in ("Eröffnung", "Snødybde", "Größe")]
    ['Eroffnung', 'Snodybde', 'Grosse']
    """
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    return "".join(one for one in plain if not unicodedata.combining(one))
