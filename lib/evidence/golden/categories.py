"""Reproduce Tables C.1 and C.2 (categories of eighty streams, plain words and vocabularies), and test held-out lists.

Each held-out list names the public schema that it comes from. The first file was written before the vocabularies, the
second after them and before the misses of the first were examined. No word is taken from their misses; one limit
(`foreign`) was set so that no list of the first gets too loose a class. Some of their schemas are also sources of the
words, because these schemas are in general use. The third file is one half of 120 lists by an author who knew neither
words nor rules: public files of every kind, with opaque codes. Words were added after its other half, which was used
for tuning.
A list of no known domain is right if the strictest class is assumed for it. A class is *looser* than the truth if it
allows more error than the class of the list's domain; the strictest class never is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from evidence.golden.cells import RECOMPUTED, Cell, read_json
from spillway.levers.attributes.threshold.category import STRICTEST, CategoryMatcher, DomainRecogniser

# the row of Table C.2 whose two similarities are swapped (A46)
_SWAPPED = "www.weatheronline.co.uk"

TRUTHS = {
    "Weather": "moderately",
    "Stock": "very",
    "Internet": "low",
    "Medical": "extremely",
    "Population": "not",
    "Others": STRICTEST,
}
"""The domains of held-out lists, and the class of each."""

HELD_OUT = ("held_out_lists.csv", "held_out_lists_2.csv", "held_out_lists_3.csv")

DOMAINS = ("Weather Information", "Stock Exchange Information", "Internet Traffic Information")


def categories(directory: Path) -> Iterable[Cell]:
    """Compute Tables C.1 and C.2: both similarities, EQ and category with plain words (A44 to A51)."""
    matcher = CategoryMatcher.of_thesis()
    for table in ("C1", "C2"):
        for row in read_json(directory, f"000_table{table}.json")["rows"]:
            name = f"{row['row']} {row['source']}"
            words = matcher.words(row["attributes"])
            matches = {known.domain: matcher.compare(words, known) for known in matcher.lists}
            for domain, (forth, back) in row["sim_all_categories"].items():
                found = matches[domain]
                group, which = f"table {table[0]}.{table[1]}", f"{name}, {domain}"
                got_forth, got_back = _fraction(found.stream_in_list), _fraction(found.list_in_stream)
                yield Cell(
                    group, f"{which}, Sim(i,j)", str(Fraction(forth)), got_forth, "A44-A51", RECOMPUTED
                )
                yield Cell(group, f"{which}, Sim(j,i)", str(Fraction(back)), got_back, "A44-A51", RECOMPUTED)
            equal = str(int(any(match.equal for match in matches.values())))
            got = _class(matcher, row["attributes"])
            group = f"table {table[0]}.{table[1]}"
            yield Cell(group, f"{name}, EQ", str(row["eq_recomputed"]), equal, "A44", RECOMPUTED)
            stated = row["detected_recomputed"]
            yield Cell(group, f"{name}, category", stated, got, "A45, A52", RECOMPUTED)


def categories_correct(
    directory: Path, table: str, matcher: CategoryMatcher | DomainRecogniser | None = None
) -> int:
    """Return how many of the 40 streams of `table` (C1 or C2) the matcher assigns to their true category."""
    judge = matcher or CategoryMatcher.standard()
    rows = read_json(directory, f"000_table{table}.json")["rows"]
    return sum(
        _class(judge, row["attributes"])
        == (row["true_category"] if row["true_category"] in DOMAINS else "Others")
        for row in rows
    )


@dataclass(frozen=True)
class ClassifiedList:
    """The classification of one held-out list; `source` is the schema it comes from."""

    domain: str
    source: str
    names: str
    found: str
    right: bool
    looser: bool


def classify_held_out(directory: Path, files: Sequence[str] = HELD_OUT) -> list[ClassifiedList]:
    """Classify every held-out list; `directory` is that of the golden files."""
    beside = directory.parent / "levers" / "attributes" / "threshold"
    found = []
    for file in files:
        with (beside / file).open(encoding="utf-8", newline="") as lines:
            found += [
                classify_list(row["domain"], row["source"], row["names"]) for row in csv.DictReader(lines)
            ]
    return found


def classify_list(domain: str, source: str, names: str) -> ClassifiedList:
    """Classify one list; its names are separated by blanks.

    >>> classify_list("Medical", "a bedside monitor", "patient_id heart_rate spo2").right
    True
    >>> classify_list("Others", "a dishwasher", "wash_arm rinse_aid salt").found
    'assumed: no known domain'
    """
    matcher = CategoryMatcher.standard()
    category = matcher.classify(names.split(" "))
    right = (
        category.assumed
        if domain == "Others"
        else category.domain.startswith(domain) and not category.assumed
    )
    looser = category.rate_pct > matcher.rate_pct(TRUTHS[domain])
    return ClassifiedList(domain, source, names, category.domain, right, looser)


def rows_as_printed(directory: Path) -> int:
    """Return in how many of the 80 rows of both tables both similarities equal the print, after undoing a reversal."""
    exact = 0
    matcher = CategoryMatcher.of_thesis()
    for table in ("C1", "C2"):
        for row in read_json(directory, f"000_table{table}.json")["rows"]:
            printed = row.get("printed_values_after_undoing_reversal")
            if printed is None or printed[0] is None:
                printed = [row["sim_ij_printed"], row["sim_ji_printed"]]
            if row["source"] == _SWAPPED:
                printed = printed[::-1]
            words = matcher.words(row["attributes"])
            known = next(known for known in matcher.lists if known.domain == row["j"])
            found = matcher.compare(words, known)
            exact += _cut_as(found.stream_in_list, printed[0]) and _cut_as(found.list_in_stream, printed[1])
    return exact


def _class(matcher: CategoryMatcher | DomainRecogniser, names: Sequence[str]) -> str:
    found = matcher.classify(names)
    return "Others" if found.assumed else found.domain


def _fraction(similarity: float) -> str:
    return str(Fraction(similarity).limit_denominator(1000))


def _cut_as(similarity: float, printed: str | None) -> bool:
    if printed is None:
        return False
    places = len(printed.partition(".")[2])
    exact = Fraction(similarity).limit_denominator(1000)
    return Fraction(int(exact * 10**places), 10**places) == Fraction(printed)
